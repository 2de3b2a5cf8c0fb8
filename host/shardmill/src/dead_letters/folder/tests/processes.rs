//! Folders of real processes: one that is killed at any moment, and one that the operating system refuses to let write.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Stdio};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::*;

/// Where its first letter is counted from.
const FIRST: &str = "SHARDMILL_TEST_FIRST_LETTER";
/// How many letters each process could store before anybody minds.
const ENOUGH: u64 = 1_000_000;

pub(super) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap()
}

/// Stores letters until it is killed, three at a time by four shards, and says on standard output what is stored.
async fn store_for_ever(folder: &Path, first: u64) {
    let held = lease().await;
    let place = opened(folder, rand::random());
    let shard = async |shard: u64| {
        let mut next = first + shard * ENOUGH;
        loop {
            place.store(letters(next..next + 3), &held.fence()).await.unwrap();
            let mut out = std::io::stdout().lock();
            writeln!(out, "stored {next}").and_then(|()| out.flush()).unwrap();
            next += 3;
        }
    };
    tokio::join!(shard(0), shard(1), shard(2), shard(3));
}

/// Kills a child once it has said so many times that something is stored; the letters that it has stored.
fn stored_before_the_kill(mut child: Child, times: usize) -> Vec<u64> {
    let mut firsts = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok) {
        firsts.extend(line.strip_prefix("stored ").and_then(|number| number.parse::<u64>().ok()));
        if firsts.len() == times {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    assert!(firsts.len() >= times, "it ended by itself");
    // The last line may be cut, and its number another one.
    firsts.pop();
    firsts.into_iter().flat_map(|first| first..first + 3).collect()
}

#[test]
fn workers_that_are_killed_lose_nothing_that_was_stored_and_spoil_nothing() {
    if let Some(folder) = is_child() {
        let first = std::env::var(FIRST).unwrap().parse().unwrap();
        return runtime().block_on(store_for_ever(&folder, first));
    }
    let home = tempfile::tempdir().unwrap();
    let mut acknowledged = Vec::new();
    for round in 0..4_u64 {
        // Two at a time in one folder.
        let children = [0, 1].map(|worker| {
            let mut child =
                again("processes::workers_that_are_killed_lose_nothing_that_was_stored_and_spoil_nothing", home.path());
            child.env(FIRST, ((round * 2 + worker) * 10 * ENOUGH + 1).to_string());
            let child = child.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
            std::thread::spawn(move || stored_before_the_kill(child, (40 + 37 * (round + worker)) as usize))
        });
        acknowledged.extend(children.into_iter().flat_map(|child| child.join().unwrap()));
    }
    let found = runtime().block_on(found(home.path()));
    let numbers: BTreeSet<String> = found.iter().map(|letter| letter.position.sequence_number.to_string()).collect();
    for number in &acknowledged {
        assert!(numbers.contains(&format!("4957{number:08}")), "letter {number} was stored, and is gone");
    }
    for letter in &found {
        let number: u64 = letter.position.sequence_number.as_str()[4..].parse().unwrap();
        assert_eq!(*letter, super::letter(number), "it is whole");
    }
}

/// The limit on the size of files stands for a full disk: the operating system cuts a line off in its middle.
#[test]
fn a_line_that_the_system_cut_off_is_written_anew_when_there_is_room() {
    let Some(folder) = alone("processes::a_line_that_the_system_cut_off_is_written_anew_when_there_is_room") else {
        return;
    };
    let maximum = getrlimit(Resource::Fsize).maximum;
    let limit = |bytes: Option<u64>| setrlimit(Resource::Fsize, Rlimit { current: bytes, maximum }).unwrap();
    runtime().block_on(async {
        crate::cli::outlive_file_limits().unwrap();
        let held = lease().await;
        let metrics = Metrics::default().of_place("enrich", "folder");
        let place = Folder::open(&folder, FILE_BYTES, "enrich", "w", 1, metrics.clone()).unwrap();
        let mut large = letter(7);
        large.data = vec![7; 20_000].into();
        limit(Some(5_000));
        // Files that may not grow are followed by others.
        for number in 1..=6 {
            place.store(letters([number]), &held.fence()).await.unwrap();
        }
        for number in 20..=60 {
            place.store(letters([number]), &held.fence()).await.unwrap();
        }
        assert!(files(&folder).len() > 3, "{:?}", files(&folder));
        let (fence, before) = (held.fence(), metrics.counts().1);
        let (stored, ()) = tokio::join!(place.store(vec![large.clone()], &fence), async {
            while metrics.counts().1 < before + 3 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            limit(maximum);
        });
        stored.unwrap();
        let expected: Vec<DeadLetter> = letters(1..=6).into_iter().chain([large]).chain(letters(20..=60)).collect();
        assert_eq!(found(&folder).await, expected);
        for file in files(&folder) {
            let text = fs::read_to_string(folder.join(&file)).unwrap();
            assert!(text.ends_with('\n') || text.is_empty(), "{file} ends with half a line");
        }
    });
}
