//! What becomes of a shard that is left while a stage behind its processor is at work: handed over, paused, or stopped.

use std::collections::BTreeMap;

use super::stages::{away, run_before, stage, to_stage};
use super::*;
use crate::Target;

/// Tried again after a time that no test waits for.
fn patient() -> Options {
    let slow = Backoff { first: Duration::from_secs(600), longest: Duration::from_secs(600) };
    Options { backoff: slow, ..options() }
}

fn with_letters(options: Options, attempts: u32) -> Options {
    let failure = FailurePolicy { then: Then::DeadLetter, attempts, ..options.failure };
    Options { failure, ..options }
}

/// Lets the shard go, and says where its checkpoint stands then.
async fn let_go(run: Run) -> Checkpoint {
    run.drain.cancel();
    let store = run.store.clone();
    assert_eq!(run.task.await.unwrap(), Ended::Released);
    store.row(&LeaseKey::of_shard(&shard(SHARD))).unwrap().checkpoint
}

/// Why a stage is in no hurry with a record when its shard is to be let go.
#[derive(Debug, Clone, Copy)]
enum Wait {
    /// It is tried again, after a while.
    Attempt,
    /// Its letter finds no room.
    Letter,
}

impl Wait {
    fn attempts(self) -> u32 {
        match self {
            Self::Attempt => 2,
            Self::Letter => 1,
        }
    }
}

/// Runs with a stage, or stages in a row, and lets the shard go while the last of them waits with a record. What comes then
/// is a successor whose guests are well.
async fn handed_over_while_it_waits(wait: Wait, stages: usize, poison: u64) {
    let (kept, letters) = (Arc::new(Kept::default()), Arc::new(Letters::default()));
    let row = |guest: FakeGuest, last: Options| {
        let last = stage(last, guest, &letters, 16);
        last.lead_to(away(&kept));
        let mut all = vec![last];
        for _ in 1..stages {
            let before = stage(with_letters(options(), 2), FakeGuest::new(|_, batch| Ok(copy(batch))), &letters, 16);
            before.lead_to(to_stage(&all[0]));
            all.insert(0, before);
        }
        all
    };
    let attempts = wait.attempts();
    letters.is_full.store(true, Ordering::SeqCst);
    let ill = FakeGuest::new(move |_, batch| Ok(failing(batch, |number| number == poison, true)));
    let stages = row(ill, with_letters(patient(), attempts));
    let run = run_before(&stages[0], options(), 30).await;
    // All before it is sent by then.
    sleep(Duration::from_secs(20)).await;
    let store = run.store.clone();
    let checkpoint = let_go(run).await;
    let expected = match poison {
        1 => Checkpoint::TrimHorizon,
        poison => Checkpoint::Position(at(poison - 1)),
    };
    assert_eq!(checkpoint, expected, "{wait:?}");
    assert_eq!(kept.sent(), texts(1..poison), "{wait:?}");
    letters.is_full.store(false, Ordering::SeqCst);
    let stages = row(FakeGuest::new(|_, batch| Ok(copy(batch))), with_letters(options(), 1));
    let reader = FakeReader { pages: [(1..=30).collect()].into(), ends: false };
    let guest = FakeGuest::new(|_, batch| Ok(copy(batch)));
    let from = checkpoint.position().cloned();
    let run = Run::start_leading_to(store, from, options(), guest, reader, Some(to_stage(&stages[0]))).await;
    run.until("all is checkpointed", |run| run.checkpoint() == "30/0").await;
    assert_eq!(kept.sent(), texts(1..=30), "{wait:?}");
}

#[tokio::test(start_paused = true)]
async fn a_hand_over_while_a_stage_waits_with_a_record_repeats_nothing_that_it_has_sent() {
    for wait in [Wait::Attempt, Wait::Letter] {
        for stages in 1..=3 {
            for poison in [1, 8, 10, 11, 24] {
                handed_over_while_it_waits(wait, stages, poison).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stage_that_is_left_in_several_lanes_is_as_far_as_the_one_that_is_least_far() {
    let kept = Arc::new(Kept::default());
    let lanes = Arc::new(crate::Flow { lanes: 4, ..crate::Flow::default() });
    let ill = FakeGuest::new(|_, batch| Ok(failing(batch, |number| number == 17 || number == 14, true)));
    let stage = stage(Options { flow: lanes, ..patient() }, ill, &Arc::default(), 16);
    stage.lead_to(away(&kept));
    let run = run_before(&stage, options(), 30).await;
    sleep(Duration::from_secs(20)).await;
    assert_eq!(let_go(run).await.to_string(), "13/0");
    let mut sent: Vec<u64> = kept.sent().iter().map(|text| text.parse().unwrap()).collect();
    sent.sort_unstable();
    assert!(sent.starts_with(&(1..=13).collect::<Vec<_>>()), "{sent:?}");
    assert!(!sent.contains(&14) && !sent.contains(&17), "{sent:?}");
}

/// Each record to `out`, a thousand later to `more`.
fn fan_out(batch: &Batch, more: &str) -> Outcome {
    let mut outcome = copy(batch);
    let mut others = outcome.outputs.clone();
    for other in &mut others {
        other.name = more.into();
        other.record.data = Bytes::from((number(&other.record.data) + 1_000).to_string());
    }
    outcome.outputs.extend(others);
    outcome
}

#[tokio::test(start_paused = true)]
async fn a_record_is_done_when_all_that_it_has_caused_is_where_it_belongs() {
    // Of two outputs to one stage the second one waits; of two destinations, one.
    for more in ["out", "more"] {
        let (kept, others) = (Arc::new(Kept::default()), Arc::new(Kept::default()));
        let ill = FakeGuest::new(|_, batch| Ok(failing(batch, |number| number == 1_005 || number == 15, true)));
        let stage = stage(patient(), ill, &Arc::default(), 16);
        stage.lead_to(away(&kept));
        let to = Destinations::new(BTreeMap::from([
            ("out".to_owned(), Target::Stage(Arc::downgrade(&stage))),
            ("more".to_owned(), Target::Away(Arc::clone(&others) as Arc<dyn Destination>)),
        ]));
        let reader = FakeReader { pages: [(1..=20).collect()].into(), ends: false };
        let guest = FakeGuest::new(move |_, batch| Ok(fan_out(batch, more)));
        let run = Run::start_leading_to(Memory::new(), None, options(), guest, reader, Some(to)).await;
        run.until("the batch has failed", |run| matches!(run.state(), ShardState::Retrying { .. })).await;
        let labels = ConsumerLabels { processor: "p".into(), stream: "s".into() };
        let metrics = run.metrics.clone();
        let checkpoint = let_go(run).await.to_string();
        let outputs = metrics.outputs.get_or_create(&labels).get();
        if more == "out" {
            // Five of the first and four of the others, in the order of their records.
            assert_eq!((checkpoint.as_str(), kept.sent().len(), outputs), ("4/0", 9, 9));
        } else {
            assert_eq!((checkpoint.as_str(), kept.sent(), others.sent().len()), ("14/0", texts(1..=14), 20));
            assert_eq!(outputs, 34);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn of_given_up_records_those_are_told_of_that_do_not_come_again() {
    let (kept, ill) = (Arc::default(), FakeGuest::new(|_, batch| Ok(failing(batch, |number| number == 5, true))));
    let behind = stage(patient(), ill, &Arc::default(), 16);
    behind.lead_to(away(&kept));
    let start = |then| {
        let failure = FailurePolicy { then, ..options().failure };
        let reader = FakeReader { pages: [(1..=10).collect()].into(), ends: false };
        let poisoned = move |number| number == 8 || number == 3 && then == Then::Skip;
        let guest = FakeGuest::new(move |_, batch| Ok(failing(batch, poisoned, false)));
        let options = Options { failure, ..options() };
        Run::start_leading_to(Memory::new(), None, options, guest, reader, Some(to_stage(&behind)))
    };
    for (then, word, told) in [(Then::Skip, "skip", 1), (Then::StopShard, "stop-shard", 0)] {
        let run = start(then).await;
        run.until("the batch has failed", |run| matches!(run.state(), ShardState::Retrying { .. })).await;
        run.drain.cancel();
        run.until("the stop", |run| run.task.is_finished()).await;
        assert_eq!((run.checkpoint().as_str(), counted(&run, "final", word)), ("4/0", told), "{then:?}");
        let heard = run.guest.told().iter().filter(|hook| **hook == "given-up").count();
        assert_eq!(heard as u64, told, "{then:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_is_heard_where_a_stage_waits_and_what_it_has_sent_is_not_sent_again() {
    for wait in [Wait::Attempt, Wait::Letter] {
        let (kept, letters) = (Arc::new(Kept::default()), Arc::new(Letters::default()));
        letters.is_full.store(true, Ordering::SeqCst);
        let attempts = wait.attempts();
        let ill = FakeGuest::new(|_, batch| Ok(failing(batch, |number| number == 17, true)));
        let stage = stage(with_letters(patient(), attempts), ill, &letters, 16);
        stage.lead_to(away(&kept));
        let run = run_before(&stage, options(), 30).await;
        sleep(Duration::from_secs(20)).await;
        run.status.pause("p", SHARD);
        run.until("the shard rests", |run| run.state() == ShardState::Paused).await;
        assert_eq!((kept.sent(), run.checkpoint()), (texts(1..=16), "16/0".to_owned()), "{wait:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_in_a_lane_or_of_a_destination_calls_the_others_away() {
    let began = tokio::time::Instant::now();
    let lanes = Arc::new(crate::Flow { lanes: 4, ..crate::Flow::default() });
    let ill = FakeGuest::new(|_, batch| {
        let mut outcome = failing(batch, |number| number == 14 || number == 17, true);
        let is_final = |failed: &&mut FailedRecord| number(batch.record(failed.index as usize).data) == 14;
        outcome.failed.iter_mut().filter(is_final).for_each(|failed| failed.retry = false);
        Ok(outcome)
    });
    let spread = stage(Options { flow: lanes, ..patient() }, ill, &Arc::default(), 16);
    let kept = Arc::new(Kept::default());
    spread.lead_to(away(&kept));
    let run = run_before(&spread, options(), 30).await;
    let reason = run.stopped().await;
    assert!(reason.contains("14/0"), "{reason}");
    run.until("what is done is checkpointed", |run| run.checkpoint() == "13/0").await;

    let refusing = Arc::new(Kept::default());
    refusing.refuses.store(true, Ordering::SeqCst);
    let ill = FakeGuest::new(|_, batch| Ok(failing(batch, |_| true, true)));
    let stage = stage(patient(), ill, &Arc::default(), 16);
    stage.lead_to(away(&kept));
    let to = Destinations::new(BTreeMap::from([
        ("out".to_owned(), Target::Stage(Arc::downgrade(&stage))),
        ("more".to_owned(), Target::Away(Arc::clone(&refusing) as Arc<dyn Destination>)),
    ]));
    let reader = FakeReader { pages: [(1..=5).collect()].into(), ends: false };
    let guest = FakeGuest::new(|_, batch| Ok(fan_out(batch, "more")));
    let run = Run::start_leading_to(Memory::new(), None, options(), guest, reader, Some(to)).await;
    let reason = run.stopped().await;
    assert!(reason.contains("no such stream"), "{reason}");
    assert!(began.elapsed() < Duration::from_secs(300), "nobody waits for another attempt: {:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_a_call_has_caused_is_missing_behind_no_checkpoint() {
    // The first processor puts out one sum of each batch, which the stage does not take.
    let sum = |batch: &Batch| {
        let sum: u64 = batch.iter().map(|record| number(record.data)).sum();
        let mut outcome = copy(batch);
        let mut output = outcome.outputs[0].clone();
        (output.record.data, output.cause) = (Bytes::from((1_000 + sum).to_string()), Cause::Batch);
        outcome.outputs.push(output);
        outcome
    };
    let kept = Arc::new(Kept::default());
    let ill = FakeGuest::new(|_, batch| Ok(failing(batch, |number| number > 1_000, true)));
    let stage = stage(patient(), ill, &Arc::default(), 16);
    stage.lead_to(away(&kept));
    let reader = FakeReader { pages: [(1..=10).collect()].into(), ends: false };
    let guest = FakeGuest::new(move |_, batch| Ok(sum(batch)));
    let run = Run::start_leading_to(Memory::new(), None, options(), guest, reader, Some(to_stage(&stage))).await;
    sleep(Duration::from_secs(20)).await;
    let checkpoint = let_go(run).await;
    assert_eq!(kept.sent(), texts(1..=10));
    assert_eq!(checkpoint, Checkpoint::TrimHorizon, "a sum of fewer records would be another one");
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_the_wait_for_another_attempt_behind_the_shards_processor() {
    let picky = FakeGuest::new(|_, batch| Ok(failing(batch, |_| true, true)));
    let stage = stage(patient(), picky, &Arc::default(), 16);
    stage.lead_to(Destinations::default());
    let run = run_before(&stage, options(), 5).await;
    run.until("the batch has failed", |run| matches!(run.state(), ShardState::Retrying { .. })).await;
    assert_eq!(let_go(run).await, Checkpoint::TrimHorizon);
}

#[tokio::test(start_paused = true)]
async fn a_pause_while_what_a_hook_returned_is_tried_again_keeps_the_lease() {
    let picky = FakeGuest::new(|_, batch| Ok(failing(batch, |number| number == 7, true)));
    let stage = stage(patient(), picky, &Arc::default(), 16);
    stage.lead_to(Destinations::default());
    let hooked = super::outputs::hooked("assigned");
    let reader = FakeReader { pages: [(1..=5).collect()].into(), ends: false };
    let run = Run::start_leading_to(Memory::new(), None, options(), hooked, reader, Some(to_stage(&stage))).await;
    run.until("the batch has failed", |run| matches!(run.state(), ShardState::Retrying { .. })).await;
    run.status.pause("p", SHARD);
    run.until("the shard rests", |run| run.state() == ShardState::Paused).await;
    run.status.resume("p", SHARD);
    assert_eq!(run.task.await.unwrap(), Ended::Restart);
}
