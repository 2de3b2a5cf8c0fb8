//! A spool in a folder: what is stored comes out again, in order, within the bound.

mod bound;
mod closing;
mod draining;

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus_client::registry::Registry;
use shardmill_record::{HashKey, UserRecord};

use crate::writer::Clock;
use crate::*;

const SMALL: u64 = 1 << 20;

/// A record with this number, of one of three keys; every fifth has a hash key of its own.
fn record(number: u64) -> UserRecord {
    sized(number, 20 + (number % 7) as usize)
}

fn sized(number: u64, bytes: usize) -> UserRecord {
    let mut data = format!("{number:012} ").into_bytes();
    data.resize(bytes.max(data.len()), number as u8);
    UserRecord {
        partition_key: format!("key {}", number % 3),
        explicit_hash_key: number.is_multiple_of(5).then(|| HashKey::new(u128::from(number) << 100)),
        data: data.into(),
    }
}

fn records(numbers: impl IntoIterator<Item = u64>) -> Vec<UserRecord> {
    numbers.into_iter().map(record).collect()
}

/// The numbers in payloads.
fn numbers<'a>(records: impl IntoIterator<Item = &'a UserRecord>) -> Vec<u64> {
    records.into_iter().map(|record| std::str::from_utf8(&record.data[..12]).unwrap().parse().unwrap()).collect()
}

fn unstored(error: StoreError) -> Vec<UserRecord> {
    error.refused.into_iter().map(|refused| refused.record).collect()
}

fn spooled(front: &[Spooled]) -> Vec<u64> {
    numbers(front.iter().map(|spooled| &spooled.record))
}

async fn opened(folder: &Path) -> Spool {
    Spool::open(folder, Options::default(), Metrics::default()).await.unwrap()
}

/// A spool whose clock is the number of seconds.
async fn timed(folder: &Path, seconds: &Arc<AtomicU64>) -> Spool {
    let seconds = Arc::clone(seconds);
    let clock: Clock = Arc::new(move || UNIX_EPOCH + Duration::from_secs(seconds.load(Ordering::SeqCst)));
    Spool::start(folder, Some(Options::default()), Metrics::default(), clock).await.unwrap()
}

/// All that waits of a stream.
async fn all(spool: &Spool, stream: &str) -> Vec<Spooled> {
    spool.front(stream, usize::MAX, u64::MAX).await.unwrap()
}

#[tokio::test]
async fn records_come_out_as_they_went_in_stream_by_stream_also_later() {
    let home = tempfile::tempdir().unwrap();
    let spool = opened(home.path()).await;
    assert_eq!(all(&spool, "orders").await, []);
    spool.store("orders", records(1..=5)).await.unwrap();
    spool.store("returns", records([6])).await.unwrap();
    spool.store("orders", records(7..=9)).await.unwrap();
    spool.store("orders", Vec::new()).await.unwrap();
    let front = all(&spool, "orders").await;
    let expected = records([1, 2, 3, 4, 5, 7, 8, 9]);
    assert_eq!(front.iter().map(|spooled| spooled.record.clone()).collect::<Vec<_>>(), expected);
    assert_eq!(front.iter().map(|spooled| spooled.id.number()).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 7, 8, 9]);
    assert_eq!(spool.streams(), ["orders", "returns"]);
    spool.close().await.unwrap();

    let spool = opened(home.path()).await;
    assert_eq!(all(&spool, "orders").await, front);
    let removed = spool.remove(front.iter().take(3).map(|spooled| spooled.id)).await.unwrap();
    assert_eq!(removed, 3);
    assert_eq!(spool.remove(front.iter().take(3).map(|spooled| spooled.id)).await.unwrap(), 0, "they are gone");
    assert_eq!(spooled(&all(&spool, "orders").await), [4, 5, 7, 8, 9]);
    spool.close().await.unwrap();

    let spool = opened(home.path()).await;
    let rest: Vec<Spooled> = all(&spool, "orders").await;
    spool.remove(rest.iter().map(|spooled| spooled.id)).await.unwrap();
    assert_eq!(spool.streams(), ["returns"]);
    spool.close().await.unwrap();

    // Numbers are never used again, though their records are gone.
    let spool = opened(home.path()).await;
    spool.store("orders", records([10])).await.unwrap();
    let front = all(&spool, "orders").await;
    assert_eq!((front.len(), front[0].id.number()), (1, 10));
}

#[tokio::test]
async fn a_front_is_bounded_in_records_and_bytes_and_has_one_record_at_least() {
    let home = tempfile::tempdir().unwrap();
    let spool = opened(home.path()).await;
    // A key of five bytes and a payload of 95.
    spool.store("s", (1..=9).map(|number| sized(number, 95)).collect()).await.unwrap();
    for (limit, bytes, expected) in
        [(3, 10_000, 3), (100, 300, 3), (100, 299, 2), (100, 1, 1), (1, u64::MAX, 1), (0, u64::MAX, 0)]
    {
        assert_eq!(spool.front("s", limit, bytes).await.unwrap().len(), expected, "{limit} {bytes}");
    }
}

#[tokio::test]
async fn payloads_of_any_size_and_keys_of_any_text_come_back_byte_for_byte() {
    let home = tempfile::tempdir().unwrap();
    let spool = opened(home.path()).await;
    let any = |key: &str, data: Vec<u8>| UserRecord {
        partition_key: key.to_owned(),
        explicit_hash_key: Some(HashKey::MAX),
        data: data.into(),
    };
    let odd = vec![
        any("", Vec::new()),
        any("nul \0 é \u{1F980}", vec![0, 255, 254]),
        any(&"é".repeat(256), vec![7; 4000]),
        any("k", (0..10 << 20).map(|byte| (byte % 251) as u8).collect()),
    ];
    let stream = "arn:aws:kinesis:eu-west-1:123456789012:stream/o'rders \" é";
    spool.store(stream, odd.clone()).await.unwrap();
    spool.close().await.unwrap();
    let spool = opened(home.path()).await;
    assert_eq!(all(&spool, stream).await.into_iter().map(|spooled| spooled.record).collect::<Vec<_>>(), odd);
}

#[tokio::test]
async fn what_many_callers_store_is_synced_once() {
    let home = tempfile::tempdir().unwrap();
    let mut registry = Registry::default();
    let counted = Metrics::register(&mut registry);
    // The thread stands still in the first change until all are waiting.
    let (gate, shut) = mpsc::channel::<()>();
    let shut = Mutex::new(shut);
    let clock: Clock = Arc::new(move || {
        let _opened = shut.lock().unwrap().recv();
        SystemTime::now()
    });
    let spool = Spool::start(home.path(), Some(Options::default()), counted, clock).await.unwrap();
    let first = spool.store("s", records([0]));
    let waiting: Vec<_> = (1..=200).map(|number| spool.store("s", records([number]))).collect();
    assert!(spool.holds("s"), "they are on their way");
    drop(gate);
    first.await.unwrap();
    for stored in waiting {
        stored.await.unwrap();
    }
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    // The first may have been alone, or with any of those that came while it waited for the gate.
    let commits = text.lines().find_map(|line| line.strip_prefix("shardmill_spool_commits_total ")).unwrap();
    assert!(["1", "2"].contains(&commits), "{commits} commits");
    assert_eq!(spooled(&all(&spool, "s").await), (0..=200).collect::<Vec<_>>(), "in the order of the calls");
}

#[tokio::test]
async fn a_stream_is_held_from_the_call_on_until_it_is_empty() {
    let home = tempfile::tempdir().unwrap();
    let spool = opened(home.path()).await;
    assert!(!spool.holds("s"));
    let storing = spool.store("s", records([1]));
    assert!(spool.holds("s") && !spool.holds("t"));
    let (stored, ()) = tokio::join!(storing, spool.until_some("s"));
    stored.unwrap();
    let front = all(&spool, "s").await;
    assert!(spool.holds("s"));
    spool.remove(front.iter().map(|spooled| spooled.id)).await.unwrap();
    assert!(!spool.holds("s"));
    // Refused, it is not held.
    let error = spool.store("s", vec![sized(2, 13 << 20)]).await.unwrap_err();
    assert!(matches!(*error.refused[0].reason, Error::TooLarge { .. }), "{error}");
    assert_eq!(unstored(error), [sized(2, 13 << 20)]);
    assert!(!spool.holds("s"));
}

#[tokio::test]
async fn the_depth_says_what_is_in_it_and_since_when() {
    let home = tempfile::tempdir().unwrap();
    let clock = Arc::new(AtomicU64::new(1000));
    let spool = timed(home.path(), &clock).await;
    let at = |seconds| Some(UNIX_EPOCH + Duration::from_secs(seconds));
    let depth = |spool: &Spool, stream: &str| spool.depth().streams[stream];
    spool.store("s", vec![sized(1, 95)]).await.unwrap();
    clock.store(1060, Ordering::SeqCst);
    spool.store("s", vec![sized(2, 95), sized(3, 95)]).await.unwrap();
    spool.store("t", vec![sized(4, 95)]).await.unwrap();
    let expected = StreamDepth { records: 3, bytes: 300, set_aside: 0, oldest: at(1000) };
    assert_eq!(depth(&spool, "s"), expected);
    let front = all(&spool, "s").await;
    assert_eq!(front[1].stored_at, at(1060).unwrap());
    spool.remove([front[0].id]).await.unwrap();
    assert!(spool.set_aside(front[1].id, "too large").await.unwrap());
    assert!(!spool.set_aside(front[1].id, "too large").await.unwrap(), "it is aside already");
    let expected = StreamDepth { records: 1, bytes: 100, set_aside: 1, oldest: at(1060) };
    assert_eq!(depth(&spool, "s"), expected);
    let disk = spool.depth().disk_bytes;
    assert!(disk > 8192, "{disk}");
    spool.close().await.unwrap();
    // From the disk it is the same.
    let spool = timed(home.path(), &clock).await;
    assert_eq!(depth(&spool, "s"), expected);
    assert_eq!(depth(&spool, "t"), StreamDepth { records: 1, bytes: 100, set_aside: 0, oldest: at(1060) });
}

#[tokio::test]
async fn records_are_dropped_by_stream_age_and_state() {
    let home = tempfile::tempdir().unwrap();
    let clock = Arc::new(AtomicU64::new(1000));
    let spool = timed(home.path(), &clock).await;
    spool.store("s", records(1..=3000)).await.unwrap();
    spool.store("t", records(1..=10)).await.unwrap();
    clock.store(2000, Ordering::SeqCst);
    spool.store("s", records(3001..=3010)).await.unwrap();
    let aside = spool.front("t", 1, 1).await.unwrap()[0].id;
    spool.set_aside(aside, "refused").await.unwrap();
    let count = async |selection: &Selection| {
        let counts = spool.count(selection.clone()).await.unwrap();
        counts.into_iter().map(|(stream, counted)| (stream, counted.records)).collect::<Vec<_>>()
    };
    let s = |records| ("s".to_owned(), records);
    let t = |records| ("t".to_owned(), records);
    let all_of_them = Selection::default();
    assert_eq!(count(&all_of_them).await, [s(3010), t(10)]);
    let old = Selection { stored_before: Some(UNIX_EPOCH + Duration::from_secs(1500)), ..Selection::default() };
    assert_eq!(count(&old).await, [s(3000), t(10)]);
    let old_of_s = Selection { stream: Some("s".to_owned()), ..old };
    assert_eq!(count(&old_of_s).await, [s(3000)]);
    let set_aside = Selection { set_aside: true, ..Selection::default() };
    assert_eq!(count(&set_aside).await, [t(1)]);
    let mut dropped = 0;
    loop {
        let some = spool.discard(old_of_s.clone()).await.unwrap();
        let Some(count) = some.get("s") else { break };
        assert!(*count <= 1000, "bit by bit");
        dropped += count;
    }
    assert_eq!(dropped, 3000);
    assert_eq!(spooled(&all(&spool, "s").await), (3001..=3010).collect::<Vec<_>>());
    assert_eq!(spool.discard(set_aside).await.unwrap(), [t(1)].into());
    assert_eq!(spooled(&all(&spool, "t").await), (2..=10).collect::<Vec<_>>());
    assert_eq!(spool.discard(all_of_them).await.unwrap(), [s(10), t(9)].into());
    assert!(spool.streams().is_empty());
}

#[tokio::test]
async fn what_is_set_aside_stands_in_nobodys_way_and_comes_back_to_its_place() {
    let home = tempfile::tempdir().unwrap();
    let spool = opened(home.path()).await;
    let large = sized(3, 1 << 20);
    spool.store("s", records(1..=2)).await.unwrap();
    spool.store("s", vec![large.clone()]).await.unwrap();
    spool.store("s", records(4..=5)).await.unwrap();
    let front = all(&spool, "s").await;
    for (index, reason) in [(0, "its key is too long"), (2, "too large")] {
        spool.set_aside(front[index].id, reason).await.unwrap();
    }
    assert_eq!(spooled(&all(&spool, "s").await), [2, 4, 5]);
    let aside = spool.aside(0, 10).await.unwrap();
    assert_eq!(
        aside.iter().map(|aside| (aside.number, &*aside.reason)).collect::<Vec<_>>(),
        [(1, "its key is too long"), (3, "too large")]
    );
    assert_eq!((&*aside[1].stream, &*aside[1].partition_key, aside[1].bytes), ("s", "key 0", (1 << 20) + 5));
    assert_eq!(spool.aside(1, 10).await.unwrap(), aside[1..]);
    spool.close().await.unwrap();
    let spool = opened(home.path()).await;
    assert_eq!(spool.take_back(Some("t")).await.unwrap(), 0);
    assert_eq!(spool.take_back(None).await.unwrap(), 2);
    let back = all(&spool, "s").await;
    assert_eq!(back, front);
    assert_eq!(back[2].record, large);
    assert_eq!(spool.depth().streams["s"].set_aside, 0);
}

#[tokio::test]
async fn a_closed_spool_gives_everything_back() {
    let home = tempfile::tempdir().unwrap();
    let spool = opened(home.path()).await;
    let clone = spool.clone();
    let stored = spool.store("s", records([1]));
    spool.close().await.unwrap();
    stored.await.unwrap();
    let error = clone.store("s", records(2..=3)).await.unwrap_err();
    assert!(matches!(*error.refused[1].reason, Error::Closed(_)), "{error}");
    assert_eq!(unstored(error), records(2..=3));
    assert!(clone.is_closed() && !clone.holds("s"));
    assert!(matches!(clone.front("s", 1, 1).await, Err(Error::Closed(_))));
    clone.close().await.unwrap();
    assert_eq!(spooled(&all(&opened(home.path()).await, "s").await), [1]);
}

#[tokio::test]
async fn folders_of_others_and_of_later_versions_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("spool.db");
    let refused = async || Spool::open(home.path(), Options::default(), Metrics::default()).await.unwrap_err();
    std::fs::write(&file, "not a database, but long enough to be one: ".repeat(100)).unwrap();
    let error = refused().await;
    assert!(matches!(&error, Error::Damaged { file: found, .. } if *found == file), "{error}");
    assert!(error.to_string().contains("keep a copy of"), "{error}");
    std::fs::remove_file(&file).unwrap();
    let other = rusqlite::Connection::open(&file).unwrap();
    // Of one page, it does not show before it is opened that it is nobody's of ours.
    for sql in ["CREATE VIEW one AS SELECT 1", "CREATE TABLE notes (text TEXT)"] {
        other.execute_batch(sql).unwrap();
        let before = std::fs::read(&file).unwrap();
        let error = refused().await;
        assert!(matches!(error, Error::Foreign { .. }), "{error}");
        assert_eq!(std::fs::read(&file).unwrap(), before, "it is as it was");
    }
    other.close().unwrap();
    let error = refused().await;
    assert!(matches!(error, Error::Foreign { .. }), "{error}");
    std::fs::remove_file(&file).unwrap();
    opened(home.path()).await.close().await.unwrap();
    let later = rusqlite::Connection::open(&file).unwrap();
    later.pragma_update(None, "user_version", 2).unwrap();
    later.pragma_update(None, "journal_mode", "DELETE").unwrap();
    later.close().unwrap();
    let before = std::fs::read(&file).unwrap();
    let error = refused().await;
    assert!(error.to_string().contains("its format is 2"), "{error}");
    assert_eq!(std::fs::read(&file).unwrap(), before, "it is as it was");
    let nowhere = Spool::open_existing(home.path().join("elsewhere")).await.unwrap_err();
    assert!(matches!(nowhere, Error::NotThere(_)), "{nowhere}");
    let options = Options { bytes: 5, ..Options::default() };
    let out_of_bounds = Spool::open(home.path(), options, Metrics::default()).await.unwrap_err();
    assert!(matches!(out_of_bounds, Error::Options(_)), "{out_of_bounds}");
}

#[tokio::test]
async fn payloads_are_nobody_elses_business() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("spool");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let spool = opened(&folder).await;
    spool.store("s", records(1..=9)).await.unwrap();
    let names = || std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    assert_eq!(names().len(), 4, "{:?}", names());
    for path in names() {
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
    assert_eq!(mode(&folder), 0o700);
    spool.close().await.unwrap();
    // What others could read is taken from them.
    for path in names() {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    }
    let spool = opened(&folder).await;
    for path in names() {
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
    spool.close().await.unwrap();
    // Where others can put files, there may be links among them.
    let refused = async || Spool::open(&folder, Options::default(), Metrics::default()).await.unwrap_err().to_string();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o770)).unwrap();
    let error = refused().await;
    assert!(error.contains("others may write to it") && error.contains("chmod go-w"), "{error}");
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).unwrap();
    let victim = home.path().join("victim");
    for name in ["spool.lock", "spool.accepted", "spool.db", "spool.db-wal"] {
        let (path, kept) = (folder.join(name), home.path().join("kept"));
        std::fs::rename(&path, &kept).unwrap();
        std::fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, &path).unwrap();
        let error = refused().await;
        assert!(error.contains(name) && error.contains("symbolic link"), "{error}");
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
        std::fs::rename(&kept, &path).unwrap();
    }
    assert_eq!(all(&opened(&folder).await, "s").await.len(), 9);
}
