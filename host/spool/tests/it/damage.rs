//! Files that do not hold what was written to them: that is told, and no record is missing or wrong without a word.

use std::fs;
use std::path::Path;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use shardmill_record::UserRecord;
use shardmill_spool::{Error, Metrics, Options, Spool};
use tempfile::TempDir;

use crate::support::{all, left_by_a_killed_one, opened, record, runtime};

/// A folder with records in the database and in its log, and what they are.
async fn filled() -> (TempDir, Vec<UserRecord>) {
    let home = tempfile::tempdir().expect("a temporary folder");
    let spool = opened(home.path()).await;
    let large = UserRecord { partition_key: "large".into(), explicit_hash_key: None, data: vec![9; 30_000].into() };
    spool.store("s", (0..150).map(|number| record(1, number)).collect()).await.expect("it stores");
    spool.store("t", vec![record(2, 1), large]).await.expect("it stores");
    spool.close().await.expect("it closes");
    let spool = opened(home.path()).await;
    let front = spool.front("s", 30, u64::MAX).await.expect("the front");
    spool.remove(front.iter().map(|spooled| spooled.id)).await.expect("it removes");
    for number in 150..170 {
        spool.store("s", vec![record(1, number)]).await.expect("it stores");
    }
    let kept = left_by_a_killed_one(home.path());
    let mut records: Vec<UserRecord> = all(&spool, "s").await.into_iter().map(|spooled| spooled.record).collect();
    records.extend(all(&spool, "t").await.into_iter().map(|spooled| spooled.record));
    assert_eq!(records.len(), 142);
    (kept, records)
}

/// Opens a damaged spool and reads all of it: an error that tells of the damage, or how many records are set aside. Nothing
/// may be missing, changed or out of order.
async fn read(folder: &Path, expected: &[UserRecord]) -> Result<usize, Error> {
    let spool = Spool::open(folder, Options::default(), Metrics::default()).await?;
    let mut found = Vec::new();
    for stream in spool.depth().streams.keys() {
        found.extend(spool.front(stream, usize::MAX, u64::MAX).await?.into_iter().map(|spooled| spooled.record));
    }
    // Reading on is what comes after damaged ones.
    let aside = spool.aside(0, usize::MAX).await?.len();
    let mut left = expected.iter();
    for record in &found {
        assert!(left.any(|expected| expected == record), "{record:?} was not written, or not in this order");
    }
    assert_eq!(found.len() + aside, expected.len(), "records are missing without a word");
    spool.close().await?;
    Ok(aside)
}

/// What of a file is more than room.
fn used(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

fn is_told(error: &Error, folder: &Path) -> bool {
    let text = error.to_string();
    match error {
        Error::Damaged { file, advice, .. } => file.starts_with(folder) && text.contains(advice),
        Error::Foreign { file, .. } => file.starts_with(folder),
        // The first pages say whether a file may be written, and more of that kind.
        Error::Io { path, .. } => path.starts_with(folder),
        _other => false,
    }
}

#[test]
fn a_changed_byte_anywhere_is_harmless_or_told() {
    runtime().block_on(async {
        let (kept, expected) = filled().await;
        assert_eq!(read(left_by_a_killed_one(kept.path()).path(), &expected).await.expect("it is whole"), 0);
        let (mut told, mut set_aside, mut harmless) = (0, 0, 0);
        for seed in 0..400 {
            let mut random = SmallRng::seed_from_u64(seed);
            let copy = left_by_a_killed_one(kept.path());
            let name = ["spool.db", "spool.db-wal", "spool.db-wal", "spool.accepted"][seed as usize % 4];
            let path = copy.path().join(name);
            let mut bytes = fs::read(&path).expect("a file");
            // Many things stand at the beginning.
            let used = used(&bytes);
            let end = if random.random_bool(0.3) { used.min(5000) } else { used };
            for _change in 0..random.random_range(1..4) {
                let at = random.random_range(0..end);
                bytes[at] ^= random.random_range(1..=255_u8);
            }
            fs::write(&path, bytes).expect("a file");
            match read(copy.path(), &expected).await {
                Ok(0) => harmless += 1,
                Ok(_some) => set_aside += 1,
                Err(error) => {
                    assert!(is_told(&error, copy.path()), "seed {seed}, {name}: {error}");
                    told += 1;
                }
            }
        }
        assert!(
            told > 100 && set_aside > 5 && harmless > 50,
            "{told} told, {set_aside} set aside, {harmless} harmless"
        );
    });
}

#[test]
fn files_that_are_cut_or_gone_are_told() {
    runtime().block_on(async {
        let (kept, expected) = filled().await;
        for name in ["spool.db", "spool.db-wal"] {
            let length = used(&fs::read(kept.path().join(name)).expect("a file")) as u64;
            for tenth in 0..10 {
                let copy = left_by_a_killed_one(kept.path());
                let file = fs::OpenOptions::new().write(true).open(copy.path().join(name)).expect("a file");
                file.set_len(length * tenth / 10).expect("a shorter file");
                let error = read(copy.path(), &expected).await.expect_err("records are missing");
                assert!(is_told(&error, copy.path()), "{name} {tenth}: {error}");
            }
            let copy = left_by_a_killed_one(kept.path());
            fs::remove_file(copy.path().join(name)).expect("a file");
            let error = read(copy.path(), &expected).await.expect_err("records are missing");
            assert!(matches!(&error, Error::Damaged { .. }), "{name}: {error}");
            assert!(error.to_string().contains("spool.db"), "{error}");
        }
    });
}

#[test]
fn what_is_left_can_be_had_where_somebody_says_so() {
    runtime().block_on(async {
        let (kept, _) = filled().await;
        let copy = left_by_a_killed_one(kept.path());
        fs::remove_file(copy.path().join("spool.db-wal")).expect("a file");
        let refused =
            Spool::open(copy.path(), Options::default(), Metrics::default()).await.expect_err("records are missing");
        let file = copy.path().join("spool.accepted");
        let advice = format!("to go on with the records that are left, remove {}", file.display());
        assert!(refused.to_string().contains(&advice), "{refused}");
        fs::remove_file(file).expect("a file");
        let spool = opened(copy.path()).await;
        // As it was before the log.
        assert_eq!(all(&spool, "s").await.len(), 150);
    });
}

#[test]
fn a_damaged_record_is_set_aside_and_the_others_go_on() {
    runtime().block_on(async {
        let home = tempfile::tempdir().expect("a temporary folder");
        let spool = opened(home.path()).await;
        spool.store("s", (0..9).map(|number| record(1, number)).collect()).await.expect("it stores");
        spool.close().await.expect("it closes");
        let path = home.path().join("spool.db");
        let mut bytes = fs::read(&path).expect("a file");
        let payload = record(1, 4).data;
        let at = bytes.windows(payload.len()).position(|window| window == payload).expect("a payload");
        bytes[at + 5] = b'y';
        fs::write(&path, bytes).expect("a file");
        let spool = opened(home.path()).await;
        // One of them alone stands at the front, too.
        let first = spool.front("s", 5, u64::MAX).await.expect("the front");
        assert_eq!(first.len(), 4);
        let rest = all(&spool, "s").await;
        let expected: Vec<UserRecord> = (0..9).filter(|number| *number != 4).map(|number| record(1, number)).collect();
        assert_eq!(rest.into_iter().map(|spooled| spooled.record).collect::<Vec<_>>(), expected);
        let aside = spool.aside(0, 9).await.expect("what is aside");
        assert_eq!((aside.len(), aside[0].number, &*aside[0].stream), (1, 5, "s"));
        assert!(aside[0].reason.contains("is not what was written"), "{:?}", aside[0]);
        assert_eq!(spool.depth().streams["s"].set_aside, 1);
        // Taken back, it is found once more.
        assert_eq!(spool.take_back(None).await.expect("it is taken back"), 1);
        assert_eq!(all(&spool, "s").await.len(), 8);
        assert_eq!(spool.depth().streams["s"].set_aside, 1);
    });
}

/// Changes the database as somebody does who has its format right, and opens it.
async fn changed(folder: &Path, sql: &str) -> Result<Spool, Error> {
    let copy = left_by_a_killed_one(folder);
    let database = rusqlite::Connection::open(copy.path().join("spool.db")).expect("a database");
    database.execute_batch(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    database.close().expect("it closes");
    Spool::open(copy.path(), Options::default(), Metrics::default()).await
}

#[test]
fn a_database_that_is_whole_and_says_something_else_is_told() {
    runtime().block_on(async {
        let (kept, _) = filled().await;
        changed(kept.path(), "SELECT 1").await.expect("nothing was changed");
        for sql in [
            "UPDATE streams SET name = 'u' WHERE number = 1",
            "UPDATE streams SET last_id = last_id + 1 WHERE number = 1",
            "UPDATE streams SET records = records - 1 WHERE number = 1; DELETE FROM records_1 WHERE id = 100",
            "DELETE FROM records_1 WHERE id = 100",
            "DELETE FROM streams WHERE number = 1",
            "DROP TABLE records_2",
            "UPDATE bound SET bytes = bytes + 1",
            "DELETE FROM bound",
            "INSERT INTO aside VALUES (9, 7, 0, 0, 0, '', NULL, '', x'')",
            "CREATE TABLE notes (text TEXT)",
            "CREATE TRIGGER gone AFTER INSERT ON records_1 BEGIN DELETE FROM records_1; END",
        ] {
            let error = changed(kept.path(), sql).await.expect_err(sql);
            assert!(matches!(error, Error::Damaged { .. }), "{sql}: {error}");
        }
    });
}

/// A page that is free and in use would be written over by the next record.
#[test]
fn a_list_of_free_pages_that_names_one_in_use_is_told() {
    runtime().block_on(async {
        let home = tempfile::tempdir().expect("a temporary folder");
        let spool = opened(home.path()).await;
        let large = |number: u8| UserRecord {
            partition_key: "large".into(),
            explicit_hash_key: None,
            data: vec![number; 30_000].into(),
        };
        spool.store("s", (0..9).map(large).collect()).await.expect("it stores");
        let first = spool.front("s", 2, u64::MAX).await.expect("the front");
        spool.remove(first.iter().map(|spooled| spooled.id)).await.expect("it removes");
        spool.close().await.expect("it closes");
        opened(home.path()).await.close().await.expect("it is whole");
        let path = home.path().join("spool.db");
        let mut bytes = fs::read(&path).expect("a file");
        let number = |bytes: &[u8], at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let trunk = (number(&bytes, 32) as usize - 1) * 4096;
        assert!(number(&bytes, trunk + 4) > 3, "pages are free");
        let last = u32::try_from(bytes.len() / 4096).expect("few pages");
        bytes[trunk + 8..trunk + 12].copy_from_slice(&last.to_be_bytes());
        fs::write(&path, bytes).expect("a file");
        let error = Spool::open(home.path(), Options::default(), Metrics::default()).await.expect_err("it is damaged");
        assert!(matches!(&error, Error::Damaged { file, .. } if *file == path), "{error}");
    });
}
