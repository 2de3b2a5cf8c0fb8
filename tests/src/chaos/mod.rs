//! Workers that are killed, frozen, cut off and replaced, whose plugins, disks and clocks are tampered with, while the stream
//! is split and merged under them, their leases are deleted and the services fail; and an account of every record.
//!
//! A [`Schedule`] is made from a seed, and from nothing else. [`run`] starts services, three worker processes of one
//! application, each behind a link of the proxy, and a writer that numbers the records of each key. The application is a
//! pipeline: a guest that some records make go wrong hands all others to a second processor, which writes them to an output
//! stream, aggregated; what either gives up becomes a dead letter. An agent carries the schedule out. Then everything that is
//! wrong ends, the writer stops, and the workers get time to work off what is left. The checker reads both streams, the
//! dead letters, the lease table and the proxy's journal, and the [`Report`] tells.
//!
//! | file | job |
//! |---|---|
//! | `action` | what can be done |
//! | `schedule` | what is done when; pure |
//! | `agent` | does it: to shards, leases and services |
//! | `post` | and to the workers of one place, one after the other |
//! | `rules` | what is wrong with the services, for the proxy |
//! | `clock` | a wall clock that can be wrong |
//! | `fate` | what is to become of each record; pure |
//! | `writer` | writes numbered records and knows which are acknowledged |
//! | `checker` | judges the output; pure |
//! | `letters` | reads and judges the dead letters |
//! | `violation` | what can be wrong |
//! | `report` | what a person or a program is told |

mod action;
mod agent;
mod checker;
mod clock;
mod fate;
mod letters;
mod post;
mod report;
mod rules;
mod schedule;
mod violation;
mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

use futures::future::join_all;
use serde_json::Value;
use shardmill_record::Position;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

pub use action::{Deed, Forget, Reshard, Temper, Trouble, Weather};
pub use agent::{Event, Life};
pub use checker::{Appearance, Findings, Longest, Repeat, Repeated, appearances, check};
pub use fate::Fate;
pub use letters::{Account, Letter, RepeatedLetter, check_letters};
pub use report::{Cause, Causes, Curves, Point, Report};
pub use schedule::{MOST_SHARDS, SHARDS, Schedule, Timed, WORKERS};
pub use violation::Violation;
pub use writer::{KEYS, Written};

use crate::history::{assert_fenced, lapses};
use crate::{Config, Found, Leases, Proxy, Rule, Services, Tail, leases, paths};
use agent::Agent;
use fate::SECOND;
use post::{Post, suffer};
use report::Past;

const INPUT: &str = "input";
const OUTPUT: &str = "output";
const OUTPUT_SHARDS: i32 = 2;
/// The plugin of the processor that reads the input.
const PLUGIN: &str = "guest_poison";

/// Until everything is worked off, once nothing is wrong any more.
const PATIENCE: Duration = Duration::from_secs(90);

/// Carries out a schedule, with a fault besides that a test has planted: what the checker has to find.
///
/// Nothing is judged here: see [`Report::assert_kept`].
pub async fn run(schedule: &Schedule, planted: Option<Rule>) -> Report {
    let Schedule { seed, temper, length, .. } = *schedule;
    let services = Services::with_streams(SHARDS as i32, OUTPUT_SHARDS).await;
    let proxy = Proxy::new(&services, seed);
    proxy.keep_writes();
    if let Some(rule) = planted {
        proxy.inject(rule);
    }
    let home = TempDir::new().expect("a temporary folder");
    let letters = home.path().join("letters");
    let config = config(temper, &letters);
    let table = config.lease_table();
    let agent = Agent::new(&services, &proxy, config, PLUGIN, home.path());
    let mut posts = agent.start(WORKERS);
    // Their plugin may have to be compiled, and a short run would be over.
    join_all(posts.iter_mut().map(Post::ready)).await;
    agent.begin();

    let (stop, stopped) = watch::channel(false);
    let acting = async {
        tokio::join!(
            suffer(&mut posts, &schedule.workers),
            agent.reshard(INPUT, &schedule.shards),
            agent.weather(INPUT, OUTPUT, &schedule.weather),
            agent.forget(INPUT, &schedule.rows),
        );
        agent.until(length).await;
        stop.send_replace(true);
    };
    let (written, ()) = tokio::join!(writer::write(&services, INPUT, seed, stopped), acting);
    proxy.calm();
    join_all(posts.iter_mut().map(Post::ready)).await;
    let mut broken = Vec::new();
    let input = Tail::all(&services, INPUT).await;
    if let Err(behind) = work_off(&services, table, &input).await {
        let workers = join_all(posts.iter().map(Post::readiness)).await;
        broken.push(other("everything is worked off", format!("{behind}; {}", workers.join("; "))));
    }
    let took = agent.elapsed();
    join_all(posts.iter_mut().map(Post::stop)).await;
    drop(posts);
    let began_at = agent.began_at();
    let (events, lives) = agent.into_past();

    let output = Tail::all(&services, OUTPUT).await;
    let writes = proxy.writes();
    let lapses = lapses(&writes, table);
    let appearances = appearances(&output, &writes, &proxy.untold_answers());
    let deleted: BTreeSet<&str> =
        events.iter().filter(|event| event.what == Forget::NAME).filter_map(|event| event.shard.as_deref()).collect();
    let anew = input.iter().filter(|record| deleted.contains(record.shard.as_str()));
    let anew = anew.map(|record| (record.key.clone(), writer::nth_of_key(record.number))).collect();
    let findings = check(&written, &anew, &appearances);
    let account = check_letters(&written, &letters::read(&letters));
    let place = |record: &'_ Found| ((record.key.clone(), writer::nth_of_key(record.number)), record.shard.clone());
    let places: Vec<_> = input.iter().map(place).collect();
    let shards = places.iter().map(|((key, nth), shard)| ((key.as_str(), *nth), shard.as_str())).collect();
    let past = Past { began_at, events: &events, lapses: &lapses, shards };
    let causes = past.explain(&appearances, &findings.repeated, &account.repeated);
    let mut report = Report::new(schedule, findings, account, causes).with_past(events, lives);
    report.took = took;
    report.began_at = began_at;
    report.lapses = lapses.len();
    report.written = written.count();
    report.unclear = written.unclear.len() as u64;
    report.delay = checker::longest_delay(&input, &output);
    report.curves = Curves::of(&input, &output, began_at, took);

    // A record that is in the input more than once has no one position.
    let clear = |found: &[Found]| -> Vec<Found> {
        let is_clear = |record: &&Found| {
            let nth = writer::nth_of_key(record.number);
            !written.unclear.contains(&(record.key.clone(), nth))
        };
        found.iter().filter(is_clear).cloned().collect()
    };
    let fenced = keeps("leases are fenced", || assert_fenced(&writes, table, &clear(&input), &clear(&output)));
    report.leases = fenced.map_err(|violation| broken.push(violation)).ok();
    let rows = leases::rows(&services, table).await;
    let shards = services.shards(INPUT).await;
    let closed: Vec<&str> = shards.iter().filter(|shard| is_closed(shard)).map(|shard| shard.shard_id()).collect();
    let at_end = keeps("leases are released at the end of their shards", || {
        leases::assert_released_at_the_end(&rows, &input);
        leases::assert_lineage(&rows, &shards, &closed);
    });
    broken.extend(at_end.err());
    broken.extend(report.lives.iter().filter_map(|life| told(life, temper)));
    let Causes { unexplained, unexplained_letters, .. } = report.causes;
    if unexplained + unexplained_letters > 0 {
        let examples = &report.causes.examples;
        let seen = format!("{unexplained} records and {unexplained_letters} dead letters: {}", examples.join(", "));
        broken.push(other("nothing is repeated without a reason", seen));
    }
    if report.temper == Temper::Gentle
        && report.repeated() + report.causes.letters() > unexplained + unexplained_letters
    {
        broken.push(other("nothing of this is a reason to repeat anything", format!("{:?}", report.causes)));
    }
    report.violations.append(&mut broken);
    report
}

/// Small batches, so that there is always something under way, and no worker that has all shards, so that whatever is done
/// to one is done to one that works. Records that are no poison are never to blame for what fails: nothing of what is done may
/// make them dead letters.
fn config(temper: Temper, letters: &Path) -> Config {
    let leases = match temper {
        // Nothing expires, however busy the machine is.
        Temper::Gentle => Leases::Lasting,
        Temper::Rough => Leases::Brief,
    };
    let second = paths::plugin("route");
    let sections = format!(
        r#"
[defaults.processor.failure]
then = "dead-letter"
[defaults.processor.retry]
attempts = 2
backoff = "50ms"
[defaults.processor.limits]
batch-timeout = "5m"
start-timeout = "5m"
[defaults.processor.dead-letters]
folder = {letters:?}
[processors.{SECOND}]
plugin = {second:?}
[processors.{SECOND}.config]
field = "/n"
default = "copies"
[processors.{SECOND}.outputs.copies]
stream = "{OUTPUT}"
aggregate = true"#
    );
    let config = Config::copy().plugin(PLUGIN).leases(leases).leads_to(SECOND).others(&sections);
    config.processor("batch = { records = 10 }").processor(r#"checkpoint-interval = "300ms""#)
}

/// Waits until each shard is checkpointed at its last record, and each closed one at its end.
async fn work_off(services: &Services, table: &str, input: &[Found]) -> Result<(), String> {
    let deadline = Instant::now() + PATIENCE;
    let last: BTreeMap<&str, &Position> =
        input.iter().map(|record| (record.shard.as_str(), &record.position)).collect();
    loop {
        let rows = leases::rows(services, table).await;
        let shards = services.shards(INPUT).await;
        let behind: Vec<String> = shards
            .iter()
            .filter_map(|shard| {
                let id = shard.shard_id();
                let Some(row) = rows.get(id) else { return Some(format!("{id} has no lease")) };
                let last = last.get(id).copied();
                let is_done = if is_closed(shard) {
                    row.checkpoint.is_shard_end()
                } else {
                    last.is_none() || row.checkpoint.position() == last
                };
                (!is_done).then(|| format!("{id} is at {} of {last:?}, with {:?}", row.checkpoint, row.owner))
            })
            .collect();
        if behind.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(format!("not within {PATIENCE:?}: {}", behind.join(", ")));
        }
        sleep(Duration::from_millis(200)).await;
    }
}

fn is_closed(shard: &aws_sdk_kinesis::types::Shard) -> bool {
    shard.sequence_number_range().is_some_and(|range| range.ending_sequence_number().is_some())
}

/// What a worker must never say: that something of it broke down. What its guests say is their own affair, and where leases
/// expire or are deleted nobody reads a shard for a while.
fn told(life: &Life, temper: Temper) -> Option<Violation> {
    let is_expected = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap_or_default();
        // A crash is quoted, with the guest's last words.
        let is_quoted = line["reason"].as_str().is_some_and(|reason| reason.starts_with("the guest crashed"));
        let is_unread = line["message"].as_str().is_some_and(|message| message.starts_with("nobody reads shard"));
        is_quoted || line["target"] == "guest" || (temper == Temper::Rough && is_unread)
    };
    let is_defect = |line: &&str| {
        let is_said = ["panicked at", "please report", r#""level":"ERROR""#].iter().any(|word| line.contains(word));
        is_said && !is_expected(line)
    };
    let line = life.log.lines().find(is_defect)?;
    Some(other("no worker breaks down", format!("{}: {line}", life.name)))
}

/// A check that panics when a promise is broken.
fn keeps<T>(promise: &str, check: impl FnOnce() -> T) -> Result<T, Violation> {
    catch_unwind(AssertUnwindSafe(check)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let seen = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        other(promise, seen.unwrap_or_default())
    })
}

fn other(promise: &str, seen: String) -> Violation {
    Violation::Other { promise: promise.to_owned(), seen }
}
