//! A disk that takes no more. The limit on the size of files stands for it: the operating system refuses to write, in the
//! middle of whatever is being written.

use std::fs;
use std::path::Path;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use shardmill_record::UserRecord;
use shardmill_spool::{Error, Full, Id, Metrics, Options, Spool, StoreError};

use crate::support::{all, alone, left_by_a_killed_one, opened, parse, record, runtime};

fn limit(bytes: Option<u64>) {
    let maximum = getrlimit(Resource::Fsize).maximum;
    setrlimit(Resource::Fsize, Rlimit { current: bytes.or(maximum), maximum }).expect("a limit");
}

fn records(numbers: impl IntoIterator<Item = u64>) -> Vec<UserRecord> {
    numbers.into_iter().map(|number| record(0, number)).collect()
}

fn is_of_disk(error: &StoreError) -> bool {
    error.refused.iter().all(|refused| matches!(*refused.reason, Error::Io { .. } | Error::DiskFull { .. }))
}

/// A record of 30,000 bytes.
fn large(number: u64) -> UserRecord {
    let data = format!("{number:030000}");
    UserRecord { partition_key: "large".to_owned(), explicit_hash_key: None, data: data.into() }
}

fn length(folder: &Path, name: &str) -> u64 {
    fs::metadata(folder.join(name)).map_or(0, |file| file.len())
}

/// Removes what comes first, so many at a time, and says how many they were.
async fn remove(spool: &Spool, at_once: usize) -> usize {
    let front = spool.front("s", at_once, u64::MAX).await.expect("what comes first");
    spool.remove(front.iter().map(|found| found.id)).await.expect("it can be removed");
    front.len()
}

#[test]
fn a_full_disk_lets_records_be_removed_and_the_spool_be_opened() {
    let Some(folder) = alone("disk::a_full_disk_lets_records_be_removed_and_the_spool_be_opened") else { return };
    runtime().block_on(async {
        let spool = opened(&folder).await;
        // More than the log takes: most of it is in the database, and the last of it is not.
        let stored = 900;
        for number in 0..stored {
            spool.store("s", vec![large(number)]).await.expect("there is room");
        }
        assert!(length(&folder, "spool.db-wal") < length(&folder, "spool.db"), "the limit is that of the database");
        limit(Some(length(&folder, "spool.db")));
        let mut more = stored;
        let error = loop {
            match spool.store("s", (more..more + 30).map(large).collect()).await {
                Ok(()) => more += 30,
                Err(error) => break error,
            }
        };
        assert!(is_of_disk(&error), "{error}");
        limit(None);
        let killed = left_by_a_killed_one(&folder);
        limit(Some(length(&folder, "spool.db")));
        // In one process all of it goes, though that is more than the log takes.
        let mut removed = 0;
        while spool.depth_of("s").records > 100 {
            removed += remove(&spool, 50).await as u64;
        }
        assert_eq!(all(&spool, "s").await[0].record, large(removed));
        spool.close().await.expect("it closes");
        let spool = opened(&folder).await;
        while remove(&spool, 50).await > 0 {}
        // And after a crash the next one has all of it.
        let spool = opened(killed.path()).await;
        let found: Vec<UserRecord> = all(&spool, "s").await.into_iter().map(|found| found.record).collect();
        assert_eq!(found, (0..more).map(large).collect::<Vec<_>>());
        while remove(&spool, 100).await > 0 {}
        spool.close().await.expect("it closes");
    });
}

#[test]
fn a_log_that_cannot_grow_is_used_over_and_over() {
    let Some(folder) = alone("disk::a_log_that_cannot_grow_is_used_over_and_over") else { return };
    runtime().block_on(async {
        let spool = opened(&folder).await;
        spool.store("s", records(0..300)).await.expect("there is room");
        spool.close().await.expect("it closes");
        for is_closed in [true, false] {
            let room = length(&folder, "spool.db-wal");
            assert!((200_000..400_000).contains(&room), "the log keeps some room: {room}");
            assert!(length(&folder, "spool.db") < room, "the limit is that of the log");
            limit(Some(room));
            let spool = opened(&folder).await;
            let error = loop {
                let before = length(&folder, "spool.db");
                let Err(error) = spool.store("s", records(9000..9020)).await else { continue };
                assert_eq!(length(&folder, "spool.db"), before, "what it took for them is given back");
                break error;
            };
            assert!(is_of_disk(&error) && error.to_string().contains("storing records"), "{error}");
            // All of this is more than the log takes.
            let front = spool.front("s", 20, u64::MAX).await.expect("what comes first");
            spool.set_aside(front[0].id, "refused").await.expect("it is set aside");
            spool.remove(front[1..].iter().map(|found| found.id)).await.expect("they are removed");
            for _batch in 0..100 {
                assert_eq!(remove(&spool, 2).await, 2);
            }
            let selection = shardmill_spool::Selection { set_aside: true, ..Default::default() };
            assert_eq!(spool.discard(selection).await.expect("it is dropped")["s"], 1);
            if is_closed {
                spool.close().await.expect("it closes");
            } else {
                while remove(&spool, 500).await > 0 {}
            }
            limit(None);
        }
    });
}

#[test]
fn nothing_is_dropped_for_records_that_the_disk_does_not_take() {
    let Some(folder) = alone("disk::nothing_is_dropped_for_records_that_the_disk_does_not_take") else { return };
    runtime().block_on(async {
        let opened = async || {
            let options = Options { bytes: 4 << 20, when_full: Full::DropOldest };
            Spool::open(&folder, options, Metrics::default()).await.expect("a spool")
        };
        let spool = opened().await;
        let batch = |from: u64| (from..from + 20).map(large).collect::<Vec<_>>();
        for number in 0..20 {
            spool.store("s", batch(20 * number)).await.expect("it drops what is oldest");
        }
        let records = spool.depth_of("s").records;
        assert!((40..200).contains(&records), "it is full: {records}");
        spool.close().await.expect("it closes");
        let spool = opened().await;
        // The log takes what removing does, and not this.
        limit(Some(300_000));
        let error = spool.store("s", batch(1000)).await.expect_err("there is no room");
        assert!(is_of_disk(&error), "{error}");
        assert_eq!(spool.depth_of("s").records, records);
        limit(None);
        spool.store("s", batch(1000)).await.expect("there is room again");
        assert_eq!(all(&spool, "s").await.last().expect("the last one").record, large(1019));
    });
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
            let error = spool.store("s", batch.clone()).await.expect_err("there is no room");
            assert!(is_of_disk(&error), "{error}");
            assert_eq!(error.refused.into_iter().map(|refused| refused.record).collect::<Vec<_>>(), batch);
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
