//! A disk that takes no more. The limit on the size of files stands for it: the operating system refuses to write, in the
//! middle of whatever is being written.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use shardmill_record::UserRecord;
use shardmill_spool::{Error, Id};

use crate::support::{all, alone, opened, parse, record, runtime};

fn limit(bytes: Option<u64>) {
    let maximum = getrlimit(Resource::Fsize).maximum;
    setrlimit(Resource::Fsize, Rlimit { current: bytes.or(maximum), maximum }).expect("a limit");
}

fn records(numbers: impl IntoIterator<Item = u64>) -> Vec<UserRecord> {
    numbers.into_iter().map(|number| record(0, number)).collect()
}

#[test]
fn a_disk_that_takes_no_more_refuses_and_loses_nothing() {
    let Some(folder) = alone("disk::a_disk_that_takes_no_more_refuses_and_loses_nothing") else { return };
    runtime().block_on(async {
        let spool = opened(&folder).await;
        spool.store("s", records(0..100)).await.expect("there is room");
        let mut next = 100;
        // Wherever the end of the disk is, in the log or in the database.
        for room in (60_000..200_000).step_by(9_000) {
            limit(Some(room));
            let batch = records(next..next + 2000);
            let refused = spool.store("s", batch.clone()).await.expect_err("there is no room");
            assert!(matches!(refused.source, Error::Io { .. } | Error::DiskFull { .. }), "{refused}");
            assert_eq!(refused.records, batch);
            assert_eq!(all(&spool, "s").await.len() as u64, next, "what is there can be read");
            limit(None);
            spool.store("s", records([next])).await.expect("there is room again");
            next += 1;
        }
        spool.close().await.expect("it closes");
        let spool = opened(&folder).await;
        let numbers: Vec<u64> = all(&spool, "s").await.iter().map(|spooled| parse(&spooled.record).1).collect();
        assert_eq!(numbers, (0..next).collect::<Vec<_>>());
    });
}

#[test]
fn what_was_sent_and_cannot_be_removed_is_not_given_out_again() {
    let Some(folder) = alone("disk::what_was_sent_and_cannot_be_removed_is_not_given_out_again") else { return };
    runtime().block_on(async {
        let spool = opened(&folder).await;
        spool.store("s", records(0..10)).await.expect("there is room");
        let sent: Vec<Id> =
            spool.front("s", 4, u64::MAX).await.expect("the front").iter().map(|found| found.id).collect();
        limit(Some(1));
        spool.remove(sent).await.expect_err("nothing can be written");
        spool.front("s", 4, u64::MAX).await.expect_err("or it would be sent twice");
        // Others do not wait for it.
        assert_eq!(spool.depth().streams["s"].records, 10);
        limit(None);
        let front = spool.front("s", 100, u64::MAX).await.expect("there is room again");
        let numbers: Vec<u64> = front.iter().map(|spooled| parse(&spooled.record).1).collect();
        assert_eq!(numbers, (4..10).collect::<Vec<_>>());
        assert_eq!(spool.depth().streams["s"].records, 6);
    });
}
