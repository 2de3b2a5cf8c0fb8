//! Nobody is held up by a spool that does not answer any more.

use std::sync::atomic::AtomicBool;

use super::*;

/// A spool whose thread breaks down in the first change after this is set.
async fn fragile(folder: &Path) -> (Spool, Arc<AtomicBool>) {
    let breaks = Arc::new(AtomicBool::new(false));
    let of_clock = Arc::clone(&breaks);
    let clock: Clock = Arc::new(move || {
        assert!(!of_clock.load(Ordering::SeqCst), "the clock is broken, as this test wants it");
        SystemTime::now()
    });
    (Spool::start(folder, Some(Options::default()), Metrics::default(), clock).await.unwrap(), breaks)
}

#[tokio::test]
async fn a_thread_that_breaks_down_ends_everything_and_loses_nothing() {
    let home = tempfile::tempdir().unwrap();
    let (spool, breaks) = fragile(home.path()).await;
    spool.store("s", records(1..=3)).await.unwrap();
    assert!(spool.holds("s") && !spool.is_closed());
    let waits = spool.clone();
    let nobody = tokio::spawn(async move { waits.until_some("t").await });
    breaks.store(true, Ordering::SeqCst);
    let lost = [spool.store("s", records([4])), spool.store("t", records([5]))];
    for lost in lost {
        let error = lost.await.unwrap_err();
        assert!(matches!(*error.refused[0].reason, Error::Closed(_)), "{error}");
    }
    assert!(spool.is_closed());
    assert!(!spool.holds("s") && !spool.holds("t"), "what is healthy goes past it");
    nobody.await.unwrap();
    spool.until_some("s").await;
    spool.until_none("s").await;
    assert!(matches!(spool.front("s", 1, 1).await, Err(Error::Closed(_))));
    let sender = spool.sender("s").unwrap();
    let drained = sender.drain_once(Batch::default(), async |_batch| Ok::<(), &str>(())).await;
    assert!(matches!(drained, Err(Error::Closed(_))));
    // What it accepted is there for the next one, of the same process too.
    assert_eq!(spooled(&all(&opened(home.path()).await, "s").await), [1, 2, 3]);
}

#[tokio::test]
async fn records_that_nobody_waits_for_hold_no_stream() {
    let home = tempfile::tempdir().unwrap();
    let (gate, shut) = mpsc::channel::<()>();
    let shut = Mutex::new(shut);
    let (enters, entered) = mpsc::channel();
    let clock: Clock = Arc::new(move || {
        let _unheard = enters.send(());
        let _opened = shut.lock().unwrap().recv();
        SystemTime::now()
    });
    let spool = Spool::start(home.path(), Some(Options::default()), Metrics::default(), clock).await.unwrap();
    // The thread stands still in the first change.
    let first = spool.store("s", records([1]));
    entered.recv().unwrap();
    let given_up = spool.store("t", records([2]));
    assert!(spool.holds("t"));
    drop(given_up);
    drop(gate);
    first.await.unwrap();
    // Behind everything that was asked for.
    assert_eq!(all(&spool, "t").await, []);
    assert!(!spool.holds("t") && spool.holds("s"));
    spool.until_none("t").await;
}

#[tokio::test]
async fn what_waits_when_a_spool_is_closed_holds_no_stream() {
    let home = tempfile::tempdir().unwrap();
    let spool = opened(home.path()).await;
    let clone = spool.clone();
    let closing = spool.close();
    let (closed, late) = tokio::join!(closing, async {
        // Behind the job that closes, or after the thread is gone.
        clone.store("s", records([1])).await
    });
    closed.unwrap();
    assert!(matches!(*late.unwrap_err().refused[0].reason, Error::Closed(_)));
    assert!(!clone.holds("s"));
    clone.until_none("s").await;
}
