//! What is sent leaves the spool, and nothing else.

use super::*;

const TWO: Batch = Batch { records: 2, bytes: u64::MAX };

#[tokio::test]
async fn a_spool_is_drained_batch_by_batch_in_order() {
    let home = tempfile::tempdir().unwrap();
    let spool = opened(home.path()).await;
    spool.store("s", records(1..=5)).await.unwrap();
    let sender = spool.sender("s").unwrap();
    // In a task of its own, as a program does it.
    let task = tokio::spawn(async move {
        let mut sent = Vec::new();
        loop {
            let send = async |batch| {
                tokio::task::yield_now().await;
                sent.extend(batch);
                Ok::<(), &str>(())
            };
            if sender.drain_once(TWO, send).await.unwrap().sent == 0 {
                return sent;
            }
        }
    });
    assert_eq!(task.await.unwrap(), records(1..=5));
    assert!(spool.streams().is_empty());
}

#[tokio::test]
async fn what_is_not_sent_stays_and_what_never_can_be_is_set_aside() {
    let home = tempfile::tempdir().unwrap();
    let spool = opened(home.path()).await;
    spool.store("s", records(1..=5)).await.unwrap();
    let batch = Batch { records: 4, ..Batch::default() };
    let sender = spool.sender("s").unwrap();
    let first_kept = Some(all(&spool, "s").await[0].id);
    let failed = sender.drain_once(batch, async |_batch| Err::<(), _>("no connection")).await.unwrap();
    assert_eq!(failed, Drained { sent: 0, set_aside: 0, kept: 4, first_kept, error: Some("no connection") });
    assert_eq!(spooled(&all(&spool, "s").await), [1, 2, 3, 4, 5]);
    let first_kept = Some(all(&spool, "s").await[2].id);
    let partly = sender.drain_once(batch, async |batch| {
        assert_eq!(numbers(&batch), [1, 2, 3, 4]);
        Answer::Partly(vec![Fate::Sent, Fate::Refused("no key".to_owned()), Fate::Kept, Fate::Sent], Some("throttled"))
    });
    let partly = partly.await.unwrap();
    assert_eq!(partly, Drained { sent: 2, set_aside: 1, kept: 1, first_kept, error: Some("throttled") });
    assert_eq!(spooled(&all(&spool, "s").await), [3, 5]);
    assert_eq!(spool.aside(0, 9).await.unwrap()[0].reason, "no key");
}

#[tokio::test]
async fn nothing_is_sent_of_a_stream_that_has_nothing() {
    let home = tempfile::tempdir().unwrap();
    let spool = opened(home.path()).await;
    spool.store("s", records([1])).await.unwrap();
    let sender = spool.sender("t").unwrap();
    let drained = sender.drain_once(TWO, async |_batch| -> Result<(), &str> { unreachable!("there is nothing") });
    assert_eq!(drained.await.unwrap(), Drained { sent: 0, set_aside: 0, kept: 0, first_kept: None, error: None });
    // And nobody else sends past somebody who has the right to.
    assert!(matches!(spool.sender("t"), Err(Error::Taken { .. })));
    drop(sender);
    spool.sender("t").unwrap();
}
