//! Processes that are killed at any moment, and two that want one folder.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use shardmill_spool::{Error, Metrics, Options, Spool};

use crate::support::{again, all, is_child, opened, parse, record, runtime};

/// How far each key has come, for a child: numbers with commas.
const NEXT: &str = "SHARDMILL_TEST_NEXT";
const KEYS: u64 = 4;

fn seeds() -> Vec<u64> {
    match std::env::var("SHARDMILL_TEST_SEED") {
        Ok(seed) => vec![seed.parse().expect("a seed is a number")],
        Err(_) => (1..=6).collect(),
    }
}

fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).expect("somebody listens");
}

/// Stores records of each key and removes what comes first, until it is killed; says before and after what it does.
async fn work_for_ever(folder: &Path) {
    let spool = opened(folder).await;
    // Behind what the test's program has written.
    say("");
    let next: Vec<u64> =
        std::env::var(NEXT).expect("a list").split(',').map(|text| text.parse().expect("a number")).collect();
    let store = async |key: u64| {
        let mut number = next[key as usize];
        loop {
            let count = 1 + number % 3;
            let records = (number..number + count).map(|number| record(key, number)).collect();
            spool.store("s", records).await.expect("it stores");
            number += count;
            say(&format!("stored {key} {number}"));
        }
    };
    let send = async || {
        loop {
            let front = spool.front("s", 7, u64::MAX).await.expect("the front");
            for spooled in &front {
                let (key, number) = parse(&spooled.record);
                say(&format!("sent {key} {number}"));
            }
            spool.remove(front.iter().map(|spooled| spooled.id)).await.expect("it removes");
            say("removed");
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    };
    tokio::join!(store(0), store(1), store(2), store(3), send());
}

/// What the killed children of one folder have said.
#[derive(Default)]
struct Said {
    /// Behind the last stored record of each key.
    stored: [u64; KEYS as usize],
    /// All that was given out.
    sent: BTreeSet<(u64, u64)>,
    /// What was given out, and not yet said to be removed.
    in_hand: BTreeSet<(u64, u64)>,
}

impl Said {
    fn line(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        match &words[..] {
            ["stored", key, upto] => {
                let (key, upto): (usize, u64) = (key.parse().expect("a key"), upto.parse().expect("a number"));
                self.stored[key] = upto;
            }
            ["sent", key, number] => {
                let sent = (key.parse().expect("a key"), number.parse().expect("a number"));
                assert!(self.sent.insert(sent) || self.in_hand.contains(&sent), "{sent:?} was removed and came again");
                self.in_hand.insert(sent);
            }
            ["removed"] => self.in_hand.clear(),
            // Of the test's own program.
            _other => {}
        }
    }
}

#[test]
fn a_process_that_is_killed_at_any_moment_loses_nothing_and_keeps_the_order() {
    let name = "kill::a_process_that_is_killed_at_any_moment_loses_nothing_and_keeps_the_order";
    if let Some(folder) = is_child() {
        return runtime().block_on(work_for_ever(&folder));
    }
    for seed in seeds() {
        let mut random = SmallRng::seed_from_u64(seed);
        let home = tempfile::tempdir().expect("a temporary folder");
        let mut said = Said::default();
        let mut begins = [0; KEYS as usize];
        for _round in 0..5 {
            let next: Vec<String> = begins.iter().map(ToString::to_string).collect();
            let mut child = again(name, home.path())
                .env(NEXT, next.join(","))
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .expect("this program can be run");
            let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
            let kill_after = random.random_range(1..400);
            let mut whole = Vec::new();
            for line in lines.map_while(Result::ok) {
                whole.push(line);
                if whole.len() == kill_after {
                    std::thread::sleep(Duration::from_micros(random.random_range(0..4000)));
                    child.kill().expect("a child can be killed");
                }
            }
            child.wait().expect("a child can be waited for");
            assert!(whole.len() >= kill_after, "seed {seed}: it ended by itself: {whole:?}");
            // A line is written as a whole, or not at all.
            whole.iter().for_each(|line| said.line(line));
            begins = runtime().block_on(check(home.path(), &mut said, seed));
        }
    }
}

/// What is in the folder must be all that was stored and not removed, in order. Where each key goes on.
async fn check(folder: &Path, said: &mut Said, seed: u64) -> [u64; KEYS as usize] {
    let spool = opened(folder).await;
    let found: Vec<(u64, u64)> = all(&spool, "s").await.iter().map(|spooled| parse(&spooled.record)).collect();
    let mut by_key: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for (key, number) in &found {
        by_key.entry(*key).or_default().push(*number);
    }
    let mut begins = said.stored;
    for key in 0..KEYS {
        let numbers = by_key.remove(&key).unwrap_or_default();
        assert!(numbers.is_sorted(), "seed {seed}: key {key} is not in order: {numbers:?}");
        let there: BTreeSet<u64> = numbers.iter().copied().collect();
        assert_eq!(there.len(), numbers.len(), "seed {seed}: key {key} has records twice: {numbers:?}");
        // What was stored in the last moment, without a word, is there as a whole.
        let end = said.stored[key as usize].max(numbers.last().map_or(0, |last| last + 1));
        for number in 0..end {
            let is_known = there.contains(&number) || said.sent.contains(&(key, number));
            assert!(is_known, "seed {seed}: record {number} of key {key} was stored, and is gone");
        }
        for number in &numbers {
            let removed = said.sent.contains(&(key, *number)) && !said.in_hand.contains(&(key, *number));
            assert!(!removed, "seed {seed}: record {number} of key {key} was removed, and is there");
        }
        begins[key as usize] = end;
    }
    said.in_hand = found.into_iter().filter(|found| said.sent.contains(found)).collect();
    said.stored = begins;
    spool.close().await.expect("it closes");
    begins
}

#[test]
fn a_second_process_is_refused_with_the_first_ones_id_until_that_is_killed() {
    let name = "kill::a_second_process_is_refused_with_the_first_ones_id_until_that_is_killed";
    if let Some(folder) = is_child() {
        return runtime().block_on(async {
            let spool = opened(&folder).await;
            spool.store("s", vec![record(0, 1)]).await.expect("it stores");
            say("stored");
            std::future::pending::<()>().await;
        });
    }
    let home = tempfile::tempdir().expect("a temporary folder");
    let mut child =
        again(name, home.path()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("this program can be run");
    let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.ends_with("stored")), "it ended by itself");
    runtime().block_on(async {
        let refused = Spool::open(home.path(), Options::default(), Metrics::default()).await.expect_err("a second one");
        let Error::InUse { owner, .. } = &refused else { panic!("{refused}") };
        assert!(owner.starts_with(&format!("process {} on ", child.id())), "{owner}");
        assert!(matches!(Spool::open_existing(home.path()).await, Err(Error::InUse { .. })));
        child.kill().expect("a child can be killed");
        child.wait().expect("a child can be waited for");
        let spool = opened(home.path()).await;
        assert_eq!(all(&spool, "s").await.len(), 1);
    });
}
