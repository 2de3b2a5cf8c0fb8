//! What is judged of shards that are made up.

use proptest::prelude::*;
use shardmill_cause::Failing;
use shardmill_lease::{Lease, NewLease, WorkerId};
use shardmill_record::{Checkpoint, ShardId};
use shardmill_stream::Kind;
use shardmill_stream::polling::{Phase, Seen, Trouble};

use super::telling::sentence;
use super::*;
use crate::Metrics;
use crate::live::{Activity, Vitals};
use crate::status::ShardState;

const MINUTE: Duration = Duration::from_secs(60);

/// A shard at its tip that has just been read.
fn at_rest(now: Instant) -> Vitals {
    let reader = Seen { phase: Phase::Pause, since: now, trouble: None, has_read: true, millis_behind: Some(0) };
    Vitals {
        activity: Activity::Waiting,
        active_since: now,
        moved: now,
        is_at_tip: true,
        reader: Some(reader),
        checkpoint: None,
        undone: None,
        taken: now,
    }
}

fn reading(now: Instant, change: impl FnOnce(&mut Seen)) -> Vitals {
    let mut vitals = at_rest(now);
    if let Some(reader) = &mut vitals.reader {
        reader.millis_behind = Some(7_000);
        change(reader);
    }
    vitals
}

fn trouble(since: Instant, kind: Kind) -> Option<Trouble> {
    Some(Trouble { since, failures: 7, kind, reason: "GetRecords: Rate exceeded".to_owned(), at_iterator: false })
}

const PATIENCE: Patience = Patience { work: MINUTE, table: Duration::from_secs(5) };

fn stall(state: &ShardState, vitals: &Vitals, after: Duration) -> Option<Stall> {
    let now = vitals.moved + after;
    judge(now, PATIENCE, &Patient { state, vitals, checkpoint_fails: None })
}

fn label(vitals: &Vitals) -> String {
    stall(&ShardState::Running, vitals, MINUTE).expect("a stall").reason.label()
}

#[test]
fn each_reason_is_named() {
    let now = Instant::now();
    let doing = |activity| Vitals { activity, ..at_rest(now) };
    assert_eq!(label(&doing(Activity::Guest)), "guest-running");
    assert_eq!(label(&doing(Activity::Sending)), "outputs-pending");
    assert_eq!(label(&doing(Activity::Hook)), "hook-running");
    assert_eq!(label(&doing(Activity::Storing)), "dead-letters-pending");
    assert_eq!(label(&doing(Activity::Checkpointing)), "checkpoint-failing");
    assert_eq!(label(&doing(Activity::Ending)), "end-not-written");
    let read = |change: fn(&mut Seen)| label(&reading(now, change));
    assert_eq!(read(|reader| reader.phase = Phase::Memory), "no-memory");
    assert_eq!(read(|reader| reader.phase = Phase::Turn), "other-readers");
    assert_eq!(read(|reader| reader.phase = Phase::Stream), "stream-gone");
    assert_eq!(read(|reader| reader.phase = Phase::Store), "store-failing");
    assert_eq!(read(|reader| reader.phase = Phase::Iterator), "no-iterator");
    assert_eq!(read(|reader| reader.phase = Phase::Records), "read-unanswered");
    assert_eq!(read(|reader| reader.trouble = trouble(reader.since, Kind::Throttled)), "reads-throttled");
    assert_eq!(read(|reader| reader.trouble = trouble(reader.since, Kind::Unavailable)), "reads-unavailable");
    let no_iterator = read(|reader| {
        reader.trouble =
            trouble(reader.since, Kind::Unavailable).map(|trouble| Trouble { at_iterator: true, ..trouble });
    });
    assert_eq!(no_iterator, "no-iterator");
    let retrying = ShardState::Retrying { reason: "poison".to_owned(), attempts: 4 };
    let stall = stall(&retrying, &doing(Activity::BackingOff), MINUTE).expect("a stall");
    let text = sentence(&stall, "orders", "shardId-000000000000", now + MINUTE, 1_767_225_660_000);
    let parts =
        ["shard shardId-000000000000 of stream orders", "60 s", "failed 4 times: poison", "since 2026-01-01T00:00"];
    for part in parts {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn the_reason_s_own_time_is_told_beside_that_of_the_last_progress() {
    let now = Instant::now();
    let mut vitals = reading(now, |reader| reader.phase = Phase::Memory);
    let since = now + Duration::from_secs(20);
    vitals.reader.as_mut().unwrap().since = since;
    let stall = stall(&ShardState::Running, &vitals, MINUTE).unwrap();
    assert_eq!((stall.since, stall.moved), (since, now));
}

#[test]
fn nothing_is_said_of_who_has_no_work_or_gets_on_or_stands_because_somebody_wants_it() {
    let now = Instant::now();
    let hour = 60 * MINUTE;
    let running = ShardState::Running;
    assert_eq!(stall(&running, &at_rest(now), hour), None, "at the tip");
    assert_eq!(stall(&running, &reading(now, |_| {}), MINUTE - Duration::from_millis(1)), None, "not for long enough");
    assert_eq!(stall(&running, &Vitals { reader: None, ..at_rest(now) }, hour), None, "nothing is known");
    let limited = Vitals { activity: Activity::Allowance, ..reading(now, |reader| reader.phase = Phase::Full) };
    assert_eq!(stall(&running, &limited, hour), None, "others process what this run may process");
    let in_guest = Vitals { activity: Activity::Guest, ..at_rest(now) };
    for state in [ShardState::Stopped { reason: String::new() }, ShardState::Paused, ShardState::Draining] {
        assert_eq!(stall(&state, &in_guest, hour), None, "{state:?}");
    }
    // Never read: nobody knows what is in it.
    let unread = reading(now, |reader| (reader.has_read, reader.millis_behind) = (false, None));
    assert!(stall(&ShardState::Starting, &unread, MINUTE).is_some());
}

#[test]
fn checkpoints_that_fail_are_a_stall_though_work_goes_on() {
    let now = Instant::now();
    let vitals = at_rest(now);
    let of = |seconds| {
        let failing = Failing { lasted: Duration::from_secs(seconds), reason: "table orders: throttled".to_owned() };
        judge(now, PATIENCE, &Patient { state: &ShardState::Running, vitals: &vitals, checkpoint_fails: Some(failing) })
    };
    assert_eq!(of(4), None);
    // Before the lease runs out, and the shard with it.
    let stall = of(5).expect("a stall");
    assert_eq!(stall.reason.label(), "checkpoint-failing");
    assert!(stall.reason.because().contains("throttled"));
}

pub(crate) fn lease(shard: usize, parents: &[usize], owner: Option<&str>, checkpoint: Checkpoint) -> Lease {
    let id = |shard: &usize| ShardId::parse(&format!("shardId-{shard:012}")).unwrap();
    let new = NewLease {
        key: LeaseKey::of_shard(&id(&shard)),
        checkpoint: Checkpoint::TrimHorizon,
        start_at: None,
        parents: parents.iter().map(id).collect(),
        range: None,
    };
    Lease {
        key: new.key,
        owner: owner.map(|id| WorkerId::parse(id).unwrap()),
        counter: 0,
        epoch: shardmill_lease::LeaseEpoch(1),
        checkpoint,
        start_at: None,
        checkpoint_owner: None,
        owner_switches_since_checkpoint: 0,
        throughput: None,
        parents: new.parents,
        children: Vec::new(),
        range: None,
    }
}

pub(crate) fn at(number: u64) -> Checkpoint {
    Checkpoint::parse(&number.to_string(), 0).unwrap()
}

#[test]
fn a_child_is_named_when_its_parent_stands_still_here_or_is_nobodys() {
    let now = Instant::now();
    let mut parents = Parents::default();
    let leases = |owner| {
        vec![
            lease(0, &[], owner, at(1)),
            lease(1, &[], Some("w2"), Checkpoint::ShardEnd),
            lease(2, &[0, 1], None, Checkpoint::TrimHorizon),
            lease(3, &[2], None, Checkpoint::TrimHorizon),
        ]
    };
    let front = lease(0, &[], None, at(1)).key.to_string();
    let mut look = |after: Duration, leases: &[Lease], stands_since: Option<Option<Instant>>| {
        let here = stands_since.map(|since| (front.as_str(), since)).into_iter().collect();
        let mut found = parents.look(now + after, MINUTE, leases, &here);
        found.sort_by(|one, other| one.0.cmp(&other.0));
        found.into_iter().map(|(key, stall)| (key.to_string(), stall.reason.because())).collect::<Vec<_>>()
    };
    let (here, elsewhere, free) = (leases(Some("w1")), leases(Some("w2")), leases(None));
    for minute in 0..9 {
        let after = MINUTE * minute;
        assert_eq!(look(after, &here, Some(None)), [], "it gets on, or rests because somebody wants it to");
        assert_eq!(
            look(after, &elsewhere, None),
            [],
            "its own worker knows how it gets on, however rarely it checkpoints"
        );
    }
    let found = look(MINUTE, &here, Some(Some(now)));
    let keys: Vec<_> = found.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(keys, ["shardId-000000000002", "shardId-000000000003"], "the grandchild waits for the same one");
    for (_, because) in &found {
        assert!(because.contains("shardId-000000000000 (held by w1)"), "{because}");
    }
    assert_eq!(look(10 * MINUTE, &free, None), [], "seen for the first time");
    let found = look(11 * MINUTE, &free, None);
    assert!(found.len() == 2 && found[0].1.contains("which nobody holds"), "{found:?}");
    assert_eq!(look(12 * MINUTE, &here, Some(None)), [], "taken at last");
}

#[test]
fn how_far_a_shard_is_behind_is_told_by_the_oldest_record_that_is_not_done() {
    let (now, now_ms, hour) = (Instant::now(), 1_767_225_600_000, 3_600_000);
    let behind = |vitals: Vitals, after: u64| vitals.behind(now + Duration::from_millis(after), now_ms + after);
    assert_eq!(behind(at_rest(now), hour), Some(0), "the reader has looked, and nothing is left");
    // One page brought all of 20 hours, and its first record is poison.
    let stopped = Vitals { undone: Some(now_ms - 20 * hour), ..at_rest(now) };
    assert_eq!(behind(stopped.clone(), 0), Some(20 * hour));
    assert_eq!(behind(stopped, 4 * hour), Some(24 * hour), "and now it is lost");
    // What is still to be read is older than what was.
    let reading = reading(now, |reader| reader.millis_behind = Some(9 * hour));
    assert_eq!(behind(Vitals { undone: Some(now_ms - hour), ..reading }, 0), Some(9 * hour));
    let mut unread = at_rest(now);
    (unread.reader.as_mut().unwrap().has_read, unread.reader.as_mut().unwrap().millis_behind) = (false, None);
    assert_eq!(behind(unread, 20 * hour), Some(20 * hour), "nobody could read it since it was taken");
}

/// What the metrics show, line by line.
fn shown(registry: &prometheus_client::registry::Registry, name: &str) -> Vec<String> {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
    text.lines().filter(|line| line.starts_with(name)).map(str::to_owned).collect()
}

#[test]
fn a_stall_is_shown_with_its_reason_for_as_long_as_it_lasts() {
    let mut registry = prometheus_client::registry::Registry::default();
    let mut stalls = Stalls::new("p".into(), Metrics::register(&mut registry));
    let now = Instant::now();
    let key = || ("shardId-000000000000".to_owned(), ["orders".to_owned(), "shardId-000000000000".to_owned()]);
    let stall = |reason| {
        let (key, names) = key();
        vec![(key, names, Stall { reason, since: now, moved: now })]
    };
    let labels = r#"processor="p",stream="orders",shard="shardId-000000000000""#;
    let line =
        |reason, seconds| vec![format!("shardmill_shard_stalled_seconds{{{labels},reason=\"{reason}\"}} {seconds}")];
    let of = |registry| shown(registry, "shardmill_shard_stalled");
    let told = stalls.tell(now + MINUTE, 0, stall(Reason::Guest));
    assert_eq!(of(&registry), line("guest-running", 60));
    let told = &told["shardId-000000000000"];
    assert_eq!((told.reason.as_str(), told.seconds), ("guest-running", 60));
    stalls.tell(now + 2 * MINUTE, 0, stall(Reason::Outputs));
    assert_eq!(of(&registry), line("outputs-pending", 120), "another reason takes the place of the first");
    assert!(stalls.tell(now + 3 * MINUTE, 0, Vec::new()).is_empty());
    assert_eq!(of(&registry), [""; 0]);
}

#[test]
fn a_lag_near_the_retention_is_named_and_its_part_is_shown() {
    let mut registry = prometheus_client::registry::Registry::default();
    let mut lags = Lags::new("p".into(), Metrics::register(&mut registry));
    let status = ShardStatus {
        stream: "orders".to_owned(),
        shard: "shardId-000000000000".to_owned(),
        state: ShardState::Running,
        position: None,
        checkpoint: None,
        millis_behind_latest: None,
        retention_used_percent: None,
    };
    let key = "lease".to_owned();
    let labels = r#"processor="p",stream="orders",shard="shardId-000000000000""#;
    let line = |ratio| vec![format!("shardmill_shard_retention_used_ratio{{{labels}}} {ratio}")];
    let alarm = || vec![format!("shardmill_shard_lag_alarm{{{labels}}} 1")];
    let used = |registry| shown(registry, "shardmill_shard_retention_used");
    let alarms = |registry| shown(registry, "shardmill_shard_lag_alarm");
    let mut tell = |hours: Option<u64>, retention| {
        lags.tell(80, [(&key, &status, hours.map(|hours| hours * 3_600_000), retention)].into_iter())
    };
    let found = tell(Some(12), Some(24));
    assert_eq!((found.alarms.len(), found.used["lease"]), (0, 50));
    assert_eq!((used(&registry), alarms(&registry)), (line("0.5"), Vec::new()));
    let found = tell(Some(21), Some(24));
    assert!(
        found.alarms["lease"].contains("shard shardId-000000000000 of stream orders is 21 h 0 min behind"),
        "{found:?}"
    );
    assert_eq!(alarms(&registry), alarm());
    for unknown in [tell(None, Some(24)), tell(Some(21), None)] {
        assert_eq!(unknown, found, "what is not known for a moment ends no alarm");
    }
    assert_eq!(alarms(&registry), alarm());
    // The operator made it longer.
    let found = tell(Some(21), Some(168));
    assert_eq!(found.alarms.len(), 0);
    assert_eq!((used(&registry), alarms(&registry)), (line("0.125"), Vec::new()));
    tell(Some(160), Some(168));
    assert_eq!(alarms(&registry), alarm());
    assert_eq!(lags.tell(80, std::iter::empty()), Found::default(), "it is let go");
    assert_eq!((used(&registry), alarms(&registry)), (Vec::new(), Vec::new()));
}

#[test]
fn what_was_told_goes_with_the_watchdog() {
    let mut registry = prometheus_client::registry::Registry::default();
    let (metrics, now) = (Metrics::register(&mut registry), Instant::now());
    let mut stalls = Stalls::new("p".into(), metrics.clone());
    let names = ["orders".to_owned(), "shardId-000000000000".to_owned()];
    stalls.tell(now, 0, vec![("lease".to_owned(), names, Stall { reason: Reason::Guest, since: now, moved: now })]);
    let table = Table::new("p".into(), "app-p".to_owned(), metrics);
    let told = table.tell(Some((Duration::from_secs(7), "throttled")), 1_767_225_607_000).expect("it is told");
    assert_eq!((told.reason, told.seconds), ("store-failing", 7));
    for part in ["lease table app-p", "for 7 s", "throttled", "since 2026-01-01T00:00:00"] {
        assert!(told.because.contains(part), "{part} in {}", told.because);
    }
    let all =
        |registry| ["shardmill_shard_stalled", "shardmill_lease_table_failing"].map(|name| shown(registry, name).len());
    assert_eq!(all(&registry), [1, 1]);
    drop((stalls, table));
    assert_eq!(all(&registry), [0, 0]);
}

fn activity() -> impl Strategy<Value = Activity> {
    prop_oneof![
        Just(Activity::Waiting),
        Just(Activity::Allowance),
        Just(Activity::Guest),
        Just(Activity::BackingOff),
        Just(Activity::Sending),
        Just(Activity::Storing),
        Just(Activity::Checkpointing),
        Just(Activity::Hook),
        Just(Activity::Ending),
    ]
}

fn phase() -> impl Strategy<Value = Phase> {
    prop_oneof![
        Just(Phase::Starting),
        Just(Phase::Iterator),
        Just(Phase::Pause),
        Just(Phase::Turn),
        Just(Phase::Memory),
        Just(Phase::Records),
        Just(Phase::Full),
        Just(Phase::Stream),
        Just(Phase::Store),
    ]
}

proptest! {
    /// Whatever a shard is about: who gets on is never named, who has work and does not is always, and each has a reason
    /// that metrics and people can read.
    #[test]
    fn who_stands_is_named_and_nobody_else(
        activity in activity(),
        phase in phase(),
        has_read: bool,
        lag in proptest::option::of(0..3u64),
        failing: bool,
        stood in 0..120u64,
    ) {
        let now = Instant::now();
        let reader = Seen {
            phase,
            since: now,
            trouble: if failing { trouble(now, Kind::Throttled) } else { None },
            has_read,
            millis_behind: lag,
        };
        let vitals = Vitals { activity, reader: Some(reader), ..at_rest(now) };
        let found = stall(&ShardState::Running, &vitals, Duration::from_secs(stood));
        let has_work = match activity {
            Activity::Waiting => !has_read || lag.is_some_and(|lag| lag > 0),
            other => other != Activity::Allowance,
        };
        prop_assert_eq!(found.is_some(), has_work && stood >= 60);
        if let Some(stall) = found {
            let label = stall.reason.label();
            prop_assert!(!label.is_empty() && label.chars().all(|letter| letter.is_ascii_lowercase() || letter == '-'));
            prop_assert!(!stall.reason.because().is_empty());
        }
    }
}
