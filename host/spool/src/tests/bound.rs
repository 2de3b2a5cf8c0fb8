//! What the files take.

use std::collections::VecDeque;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;

/// What the files of a folder take.
fn taken(folder: &Path) -> u64 {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
}

async fn bounded(folder: &Path, bytes: u64, when_full: Full) -> Spool {
    Spool::open(folder, Options { bytes, when_full }, Metrics::default()).await.unwrap()
}

#[tokio::test]
async fn a_full_spool_refuses_and_gives_back_what_has_no_room() {
    let home = tempfile::tempdir().unwrap();
    let spool = bounded(home.path(), SMALL, Full::Refuse).await;
    let all_of_them: Vec<UserRecord> = (0..40).map(|number| sized(number, 50_000)).collect();
    let error = spool.store("s", all_of_them.clone()).await.unwrap_err();
    assert!(matches!(*error.refused[0].reason, Error::Full { bytes: SMALL, .. }), "{error}");
    let stored = error.refused[0].index;
    assert!(stored >= 10, "half of the bound is records at least: {stored}");
    let refused = unstored(error);
    assert_eq!(refused, all_of_them[stored..]);
    assert!(taken(home.path()) <= SMALL);
    // What is small still fits.
    spool.store("s", records([100])).await.unwrap();
    // And when something is gone, so does what is large.
    let front = spool.front("s", 2, u64::MAX).await.unwrap();
    spool.remove(front.iter().map(|spooled| spooled.id)).await.unwrap();
    spool.store("s", refused[..1].to_vec()).await.unwrap();
    let mut expected: Vec<u64> = (2..stored as u64).collect();
    expected.extend([100, stored as u64]);
    assert_eq!(spooled(&all(&spool, "s").await), expected);
    assert!(taken(home.path()) <= SMALL);
}

#[tokio::test]
async fn a_full_spool_drops_what_is_oldest_of_all_streams_where_that_is_wanted() {
    let home = tempfile::tempdir().unwrap();
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let options = Options { bytes: SMALL, when_full: Full::DropOldest };
    let spool = Spool::open(home.path(), options, metrics).await.unwrap();
    for number in 0..60 {
        let stream = ["s", "t"][number as usize % 2];
        spool.store(stream, vec![sized(number, 30_000)]).await.unwrap();
        if number == 0 {
            let first = spool.front("s", 1, 1).await.unwrap()[0].id;
            spool.set_aside(first, "refused").await.unwrap();
        }
    }
    assert!(taken(home.path()) <= SMALL);
    let (s, t) = (spooled(&all(&spool, "s").await), spooled(&all(&spool, "t").await));
    let mut left = [&s[..], &t[..]].concat();
    left.sort_unstable();
    let first = left[0];
    assert_eq!(left, (first..60).collect::<Vec<_>>(), "the newest are there, all of them");
    assert!(left.len() >= 15, "{}", left.len());
    assert_eq!(spool.aside(0, 10).await.unwrap(), [], "what is set aside is old too");
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    let dropped: u64 = text
        .lines()
        .filter(|line| line.starts_with("shardmill_spool_dropped_total{"))
        .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
        .sum();
    assert_eq!(dropped, first, "each is counted");
    // What can never fit is refused, and drops nothing.
    let error = spool.store("s", vec![sized(99, 900_000)]).await.unwrap_err();
    assert!(matches!(*error.refused[0].reason, Error::TooLarge { .. }), "{error}");
    assert_eq!(spooled(&all(&spool, "s").await), s);
}

#[tokio::test]
async fn an_empty_spool_gives_the_disk_back() {
    let home = tempfile::tempdir().unwrap();
    let spool = opened(home.path()).await;
    spool.store("s", (0..400).map(|number| sized(number, 50_000)).collect()).await.unwrap();
    assert!(taken(home.path()) > 20_000_000, "{}", taken(home.path()));
    let front = all(&spool, "s").await;
    spool.remove(front.iter().map(|spooled| spooled.id)).await.unwrap();
    // The thread does it after it has answered.
    spool.front("s", 1, 1).await.unwrap();
    assert!(taken(home.path()) < 200_000, "{}", taken(home.path()));
    assert_eq!(spool.depth().disk_bytes, taken(home.path()));
    spool.store("s", records([1])).await.unwrap();
    spool.close().await.unwrap();
    let front = all(&opened(home.path()).await, "s").await;
    assert_eq!((spooled(&front), front[0].id.number()), (vec![1], 401));
}

#[tokio::test]
async fn a_record_that_is_too_large_costs_only_itself() {
    let home = tempfile::tempdir().unwrap();
    let spool = bounded(home.path(), SMALL, Full::Refuse).await;
    let large = |number| sized(number, 400_000);
    let mut batch: Vec<UserRecord> = (0..400).map(|number| sized(number, 500)).collect();
    (batch[0], batch[7], batch[399]) = (large(0), large(7), large(399));
    let error = spool.store("s", batch).await.unwrap_err();
    assert!(error.refused.iter().all(|refused| matches!(*refused.reason, Error::TooLarge { .. })), "{error}");
    assert_eq!(error.refused.iter().map(|refused| refused.index).collect::<Vec<_>>(), [0, 7, 399]);
    assert_eq!(unstored(error), [large(0), large(7), large(399)]);
    let expected: Vec<u64> = (1..399).filter(|number| *number != 7).collect();
    assert_eq!(spooled(&all(&spool, "s").await), expected);
    // Where there is no room for all of the others, each has its own reason.
    let batch = vec![large(500), sized(501, 50_000), large(502), sized(503, 50_000)];
    let mut batch: Vec<UserRecord> = batch.into_iter().chain((504..540).map(|number| sized(number, 50_000))).collect();
    batch.push(large(540));
    let error = spool.store("s", batch).await.unwrap_err();
    let too_large = error.refused.iter().filter(|refused| matches!(*refused.reason, Error::TooLarge { .. }));
    assert_eq!(too_large.map(|refused| refused.index).collect::<Vec<_>>(), [0, 2]);
    let first_full = error.refused[2].index;
    assert!(first_full > 3, "{first_full}");
    assert_eq!(
        error.refused[2..].iter().map(|refused| refused.index).collect::<Vec<_>>(),
        (first_full..41).collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn whoever_opens_a_spool_to_empty_it_keeps_to_its_bound() {
    let home = tempfile::tempdir().unwrap();
    let spool = bounded(home.path(), SMALL, Full::Refuse).await;
    while spool.store("s", vec![sized(1, 2000)]).await.is_ok() {}
    spool.close().await.unwrap();
    let spool = Spool::open_existing(home.path()).await.unwrap();
    let error = spool.store("s", vec![sized(2, 50_000)]).await.unwrap_err();
    assert!(matches!(*error.refused[0].reason, Error::Full { bytes: SMALL, .. }), "{error}");
    for found in all(&spool, "s").await {
        // The log takes each, one by one.
        spool.remove([found.id]).await.unwrap();
        assert!(taken(home.path()) <= SMALL, "{}", taken(home.path()));
    }
    spool.close().await.unwrap();
    // It is the last one that counts.
    bounded(home.path(), 4 * SMALL, Full::Refuse).await.close().await.unwrap();
    let spool = Spool::open_existing(home.path()).await.unwrap();
    let mut stored = 0;
    while spool.store("s", vec![sized(1, 50_000)]).await.is_ok() {
        stored += 1;
    }
    assert!(stored > 40 && taken(home.path()) <= 4 * SMALL, "{stored}");
}

#[tokio::test]
async fn what_is_set_aside_does_not_keep_the_files_large() {
    let home = tempfile::tempdir().unwrap();
    let spool = opened(home.path()).await;
    spool.store("s", (0..400).map(|number| sized(number, 50_000)).collect()).await.unwrap();
    let front = all(&spool, "s").await;
    spool.set_aside(front[200].id, "refused").await.unwrap();
    spool.remove(front.iter().map(|spooled| spooled.id)).await.unwrap();
    // The thread does it after it has answered.
    spool.front("s", 1, 1).await.unwrap();
    assert!(taken(home.path()) < 600_000, "{}", taken(home.path()));
    assert_eq!(spool.aside(0, 9).await.unwrap()[0].number, 201);
    assert_eq!(spool.take_back(None).await.unwrap(), 1);
    assert_eq!(all(&spool, "s").await, front[200..201]);
}

#[tokio::test]
async fn many_records_that_are_set_aside_come_back_in_few_changes() {
    let home = tempfile::tempdir().unwrap();
    let spool = bounded(home.path(), 2 * SMALL, Full::Refuse).await;
    spool.store("s", (0..300).map(|number| sized(number, 1500)).collect()).await.unwrap();
    spool.store("t", records(300..310)).await.unwrap();
    let front = [all(&spool, "s").await, all(&spool, "t").await].concat();
    for spooled in &front {
        spool.set_aside(spooled.id, "refused").await.unwrap();
    }
    assert_eq!((spool.depth_of("s").set_aside, spool.depth_of("t").set_aside), (300, 10));
    assert_eq!(spool.take_back(Some("t")).await.unwrap(), 10);
    assert_eq!(spool.take_back(None).await.unwrap(), 300);
    assert_eq!([all(&spool, "s").await, all(&spool, "t").await].concat(), front);
    assert_eq!((spool.depth_of("s").records, spool.depth_of("s").set_aside), (300, 0));
    assert!(taken(home.path()) <= 2 * SMALL);
}

/// Whatever is done, the files stay within the bound and the spool holds what it should.
#[tokio::test]
async fn any_course_of_things_stays_within_the_bound() {
    for seed in 0..12 {
        let mut random = SmallRng::seed_from_u64(seed);
        let when_full = if seed % 2 == 0 { Full::Refuse } else { Full::DropOldest };
        let bytes = SMALL + random.random_range(0..3 * SMALL);
        let home = tempfile::tempdir().unwrap();
        let mut spool = bounded(home.path(), bytes, when_full).await;
        // Of each stream, what should be there.
        let mut model: [VecDeque<u64>; 2] = Default::default();
        let mut next = 0;
        let largest = [60, 3000, 5000, 100_000][seed as usize % 4];
        for step in 0..=96 {
            let which = random.random_range(0..2);
            let stream = ["s", "t"][which];
            match random.random_range(0..10) {
                0..6 => {
                    let count = random.random_range(1..200_000 / largest + 2);
                    let batch: Vec<UserRecord> = (next..next + count as u64)
                        .map(|number| sized(number, random.random_range(12..=largest)))
                        .collect();
                    let stored = match spool.store(stream, batch.clone()).await {
                        Ok(()) => batch.len(),
                        Err(error) => {
                            let stored = error.refused[0].index;
                            assert!(error.refused[0].reason.is_full(), "seed {seed}: {error}");
                            assert_eq!(when_full, Full::Refuse, "seed {seed}: {error}");
                            assert_eq!(unstored(error), batch[stored..]);
                            stored
                        }
                    };
                    model[which].extend(next..next + stored as u64);
                    next += batch.len() as u64;
                }
                6..9 => {
                    let front = spool.front(stream, random.random_range(1..400), u64::MAX).await.unwrap();
                    let keep = random.random_range(0..4);
                    let gone: Vec<Id> = front
                        .iter()
                        .enumerate()
                        .filter(|(index, _)| index % 4 >= keep)
                        .map(|(_, found)| found.id)
                        .collect();
                    let gone_numbers: Vec<u64> = front
                        .iter()
                        .filter(|found| gone.contains(&found.id))
                        .flat_map(|found| spooled(std::slice::from_ref(found)))
                        .collect();
                    spool.remove(gone).await.unwrap();
                    model[which].retain(|number| !gone_numbers.contains(number));
                }
                _rarely => {
                    spool.close().await.unwrap();
                    spool = bounded(home.path(), bytes, when_full).await;
                }
            }
            assert!(taken(home.path()) <= bytes, "seed {seed}: {} of {bytes}", taken(home.path()));
            if step % 8 != 0 {
                continue;
            }
            let found = [spooled(&all(&spool, "s").await), spooled(&all(&spool, "t").await)];
            if when_full == Full::DropOldest {
                // What was dropped was older than all that is left.
                let first = found.iter().flatten().min().copied().unwrap_or(next);
                model.iter_mut().for_each(|numbers| numbers.retain(|number| *number >= first));
            }
            assert_eq!(found, model.clone().map(Vec::from), "seed {seed}");
        }
    }
}
