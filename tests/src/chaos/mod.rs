//! Workers that are killed, frozen, cut off, replaced and throttled while the stream is split and merged under them, and
//! an account of every record.
//!
//! A [`Schedule`] is made from a seed, and from nothing else. [`run`] starts services, three worker processes of one
//! application that copies each record to an output stream, each behind a link of the proxy, and a writer that numbers the
//! records of each key. An agent carries the schedule out. Then everything that is wrong ends, the writer stops, and the
//! workers get time to work off what is left. The checker reads both streams, the lease table and the proxy's journal, and
//! the [`Report`] tells.
//!
//! | file | job |
//! |---|---|
//! | `action` | what can be done |
//! | `schedule` | what is done when; pure |
//! | `agent` | does it |
//! | `writer` | writes numbered records and knows which are acknowledged |
//! | `checker` | judges the output; pure |
//! | `violation` | what can be wrong |
//! | `report` | what a person or a program is told |

mod action;
mod agent;
mod checker;
mod report;
mod schedule;
mod violation;
mod writer;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use futures::future::join_all;
use shardmill_record::Position;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

pub use action::{Deed, Reshard, Temper, Trouble, Weather};
pub use agent::{Event, Life};
pub use checker::{Appearance, Findings, Longest, Repeat, appearances, check};
pub use report::Report;
pub use schedule::{MOST_SHARDS, SHARDS, Schedule, Timed, WORKERS};
pub use violation::Violation;
pub use writer::{KEYS, Written};

use crate::history::assert_fenced;
use crate::{Config, Found, Leases, Proxy, Rule, Services, Tail, leases};
use agent::{Agent, Post, suffer};

const INPUT: &str = "input";
const OUTPUT: &str = "output";
const OUTPUT_SHARDS: i32 = 2;

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
    let config = config(temper);
    let table = config.lease_table();
    let agent = Agent::new(&services, &proxy, config);
    let mut posts = agent.start(WORKERS);

    let (stop, stopped) = watch::channel(false);
    let acting = async {
        tokio::join!(
            suffer(&mut posts, &schedule.workers),
            agent.reshard(INPUT, &schedule.shards),
            agent.weather(INPUT, OUTPUT, &schedule.weather),
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
    let (events, lives) = agent.into_past();

    let output = Tail::all(&services, OUTPUT).await;
    let writes = proxy.writes();
    let findings = check(&written, &appearances(&output, &writes));
    let mut report = Report::new(schedule, findings, events, lives);
    report.took = took;
    report.written = written.count();
    report.unclear = written.unclear.len() as u64;
    report.first = input.iter().map(|record| record.arrival).min().unwrap_or(0);
    report.delay = checker::longest_delay(&input, &output);

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
    broken.extend(report.lives.iter().flat_map(told));
    if report.temper == Temper::Gentle && report.repeated() > 0 {
        broken.push(other("nothing is repeated without a reason", format!("{:?}", report.repeats)));
    }
    report.violations.append(&mut broken);
    report
}

/// Small batches, so that there is always something under way, and no worker that has all shards, so that whatever is done
/// to one is done to one that works.
fn config(temper: Temper) -> Config {
    let leases = match temper {
        // Nothing expires, however busy the machine is.
        Temper::Gentle => Leases::Lasting,
        Temper::Rough => Leases::Brief,
    };
    let config = Config::copy().leases(leases);
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

/// What a worker must never say: that something of it broke down.
fn told(life: &Life) -> Option<Violation> {
    let is_defect =
        |line: &&str| ["panicked at", "please report", r#""level":"ERROR""#].iter().any(|word| line.contains(word));
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
