//! Processors behind a shard's processor: what becomes of what they get, and of the shard meanwhile.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::{Stage, StageParts, Target};

/// A stage with this name and guest. What leads to it has to keep it.
pub(super) fn stage(options: Options, mut guest: FakeGuest, letters: &Arc<Letters>, max_hops: u32) -> Arc<Stage> {
    guest.plugin = "another digest";
    stage_of(options, Arc::new(guest), letters, max_hops)
}

fn stage_of(options: Options, guest: Arc<dyn Guest>, letters: &Arc<Letters>, max_hops: u32) -> Arc<Stage> {
    let then = options.failure.then;
    Arc::new(Stage::new(StageParts {
        options: Arc::new(Options { processor: "stage".into(), ..options }),
        guest,
        worker: "w1".into(),
        dead_letters: (then == Then::DeadLetter).then(|| Arc::clone(letters) as Arc<dyn DeadLetters>),
        metrics: Metrics::default(),
        max_hops,
    }))
}

pub(super) fn to_stage(stage: &Arc<Stage>) -> Destinations {
    Destinations::new(BTreeMap::from([("out".to_owned(), Target::Stage(Arc::downgrade(stage)))]))
}

fn away(kept: &Arc<Kept>) -> Destinations {
    let destination = Arc::clone(kept) as Arc<dyn Destination>;
    Destinations::new(BTreeMap::from([("out".to_owned(), Target::Away(destination))]))
}

/// A guest of which there is one instance for all who share it.
struct OfOne(FakeGuest, Arc<tokio::sync::Semaphore>);

#[async_trait::async_trait]
impl Guest for OfOne {
    async fn process(&self, shard: &ShardContext, batch: &Batch) -> crate::Answer {
        let _instance = self.1.acquire().await;
        self.0.process(shard, batch).await
    }

    fn plugin(&self) -> Arc<str> {
        self.0.plugin()
    }

    fn has_hooks(&self) -> bool {
        false
    }

    async fn hook(
        &self,
        _: u64,
        _: &ShardContext,
        _: crate::Hook,
        _: Duration,
    ) -> Result<shardmill_plugin::HookOutcome, Failure> {
        Ok(shardmill_plugin::HookOutcome::default())
    }
}

/// A stage whose guest has its only instance in common with others.
fn shared(options: Options, guest: FakeGuest, one: &Arc<tokio::sync::Semaphore>) -> Arc<Stage> {
    stage_of(options, Arc::new(OfOne(guest, Arc::clone(one))), &Arc::default(), 16)
}

/// A shard whose processor copies everything to a stage, which does this.
async fn run_before(stage: &Arc<Stage>, options: Options, records: u64) -> Run {
    let reader = FakeReader { pages: [(1..=records).collect()].into(), ends: false };
    let guest = FakeGuest::new(|_, batch| Ok(copy(batch)));
    Run::start_leading_to(Memory::new(), None, options, guest, reader, Some(to_stage(stage))).await
}

#[tokio::test(start_paused = true)]
async fn the_checkpoint_waits_for_the_last_stage() {
    let kept = Arc::new(Kept::default());
    let last = stage(
        options(),
        FakeGuest::new(|context, batch| {
            assert_eq!((&*context.processor, context.shard.as_str()), ("stage", SHARD));
            Ok(copy(batch))
        }),
        &Arc::default(),
        16,
    );
    last.lead_to(away(&kept));
    let first = stage(options(), FakeGuest::new(|_, batch| Ok(copy(batch))), &Arc::default(), 16);
    first.lead_to(to_stage(&last));
    kept.closed.store(true, Ordering::SeqCst);
    let run = run_before(&first, options(), 30).await;
    sleep(Duration::from_secs(10)).await;
    assert_eq!(run.checkpoint(), "TRIM_HORIZON", "nothing is where it belongs");
    kept.closed.store(false, Ordering::SeqCst);
    run.until("all is checkpointed", |run| run.checkpoint() == "30/0").await;
    assert_eq!(kept.sent(), texts(1..=30));
}

#[tokio::test(start_paused = true)]
async fn a_stage_has_a_failure_policy_of_its_own_and_its_letters_stand_where_the_cause_does() {
    let (kept, letters) = (Arc::new(Kept::default()), Arc::new(Letters::default()));
    let failure = FailurePolicy { then: Then::DeadLetter, attempts: 2, ..options().failure };
    let picky = FakeGuest::new(|_, batch| Ok(failing(batch, |number| number % 7 == 0, true)));
    let stage = stage(Options { failure, ..options() }, picky, &letters, 16);
    stage.lead_to(away(&kept));
    let run = run_before(&stage, options(), 30).await;
    run.until("all is checkpointed", |run| run.checkpoint() == "30/0").await;
    assert_eq!(kept.sent(), texts((1..=30).filter(|number| number % 7 != 0)));
    let letters = letters.stored.lock().unwrap();
    let found: Vec<_> = letters.iter().map(|letter| (letter.position.to_string(), letter.attempts)).collect();
    assert_eq!(found, [7, 14, 21, 28].map(|number: u64| (format!("{number}/0"), 2)));
    assert!(letters.iter().all(|letter| &*letter.processor == "stage" && &*letter.plugin == "another digest"));
    assert!(run.letters.stored.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_stop_behind_the_shards_processor_stops_the_shard_before_the_record() {
    let kept = Arc::new(Kept::default());
    let failure = FailurePolicy { attempts: 1, ..options().failure };
    let picky = FakeGuest::new(|_, batch| Ok(failing(batch, |number| number == 25, true)));
    let stage = stage(Options { failure, ..options() }, picky, &Arc::default(), 16);
    stage.lead_to(away(&kept));
    let run = run_before(&stage, options(), 30).await;
    let reason = run.stopped().await;
    assert!(reason.contains("processor `stage`") && reason.contains("25/0"), "{reason}");
    run.until("what is done is checkpointed", |run| run.checkpoint() == "24/0").await;
    assert_eq!(kept.sent(), texts(1..=24), "nothing is sent that comes again");
}

/// Why a stage is in no hurry with a record when its shard is to be let go.
#[derive(Debug, Clone, Copy)]
enum Wait {
    /// It is tried again, after a while.
    Attempt,
    /// Its letter finds no room.
    Letter,
}

/// Runs with a stage, or stages in a row, and lets the shard go while the last of them waits with a record. What comes then
/// is a successor whose guests are well.
async fn handed_over_while_it_waits(wait: Wait, stages: usize, poison: u64) {
    let (kept, letters) = (Arc::new(Kept::default()), Arc::new(Letters::default()));
    let row = |guest: FakeGuest, options: Options| {
        let last = stage(options, guest, &letters, 16);
        last.lead_to(away(&kept));
        let mut all = vec![last];
        for _ in 1..stages {
            let before = stage(options_of_letters(2), FakeGuest::new(|_, batch| Ok(copy(batch))), &letters, 16);
            before.lead_to(to_stage(&all[0]));
            all.insert(0, before);
        }
        all
    };
    let (attempts, slow) = match wait {
        Wait::Attempt => (2, Backoff { first: Duration::from_secs(600), longest: Duration::from_secs(600) }),
        Wait::Letter => (1, options().backoff),
    };
    letters.is_full.store(true, Ordering::SeqCst);
    let ill = FakeGuest::new(move |_, batch| Ok(failing(batch, |number| number == poison, true)));
    let stages = row(ill, Options { backoff: slow, ..options_of_letters(attempts) });
    let run = run_before(&stages[0], options(), 30).await;
    // All before it is sent by then.
    sleep(Duration::from_secs(20)).await;
    run.drain.cancel();
    let store = run.store.clone();
    assert_eq!(run.task.await.unwrap(), Ended::Released);
    let row_of = |store: &Memory| store.row(&LeaseKey::of_shard(&shard(SHARD))).unwrap();
    let checkpoint = match poison {
        1 => "TRIM_HORIZON".to_owned(),
        poison => format!("{}/0", poison - 1),
    };
    assert_eq!(row_of(&store).checkpoint.to_string(), checkpoint, "{wait:?}");
    assert_eq!(kept.sent(), texts(1..poison), "{wait:?}");
    letters.is_full.store(false, Ordering::SeqCst);
    let stages = row(FakeGuest::new(|_, batch| Ok(copy(batch))), options_of_letters(1));
    let reader = FakeReader { pages: [(1..=30).collect()].into(), ends: false };
    let guest = FakeGuest::new(|_, batch| Ok(copy(batch)));
    let from = row_of(&store).checkpoint.position().cloned();
    let run = Run::start_leading_to(store, from, options(), guest, reader, Some(to_stage(&stages[0]))).await;
    run.until("all is checkpointed", |run| run.checkpoint() == "30/0").await;
    assert_eq!(kept.sent(), texts(1..=30), "{wait:?}");
}

fn options_of_letters(attempts: u32) -> Options {
    let failure = FailurePolicy { then: Then::DeadLetter, attempts, ..options().failure };
    Options { failure, ..options() }
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
    let slow = Backoff { first: Duration::from_secs(600), longest: Duration::from_secs(600) };
    let lanes = Arc::new(crate::Flow { lanes: 4, ..crate::Flow::default() });
    let ill = FakeGuest::new(|_, batch| Ok(failing(batch, |number| number == 17 || number == 14, true)));
    let stage = stage(Options { backoff: slow, flow: lanes, ..options() }, ill, &Arc::default(), 16);
    stage.lead_to(away(&kept));
    let run = run_before(&stage, options(), 30).await;
    sleep(Duration::from_secs(20)).await;
    run.drain.cancel();
    let store = run.store.clone();
    assert_eq!(run.task.await.unwrap(), Ended::Released);
    let row = store.row(&LeaseKey::of_shard(&shard(SHARD))).unwrap();
    assert_eq!(row.checkpoint.to_string(), "13/0");
    let mut sent: Vec<u64> = kept.sent().iter().map(|text| text.parse().unwrap()).collect();
    sent.sort_unstable();
    assert!(sent.starts_with(&(1..=13).collect::<Vec<_>>()), "{sent:?}");
    assert!(!sent.contains(&14) && !sent.contains(&17), "{sent:?}");
}

/// Tried again after a time that no test waits for.
fn patient() -> Options {
    let slow = Backoff { first: Duration::from_secs(600), longest: Duration::from_secs(600) };
    Options { backoff: slow, ..options() }
}

async fn let_go(run: Run) -> String {
    run.drain.cancel();
    let store = run.store.clone();
    assert_eq!(run.task.await.unwrap(), Ended::Released);
    store.row(&LeaseKey::of_shard(&shard(SHARD))).unwrap().checkpoint.to_string()
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
        let checkpoint = let_go(run).await;
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
        let attempts = if let Wait::Attempt = wait { 2 } else { 1 };
        let ill = FakeGuest::new(|_, batch| Ok(failing(batch, |number| number == 17, true)));
        let stage = stage(Options { backoff: patient().backoff, ..options_of_letters(attempts) }, ill, &letters, 16);
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
    let slow = Backoff { first: Duration::from_secs(600), longest: Duration::from_secs(600) };
    let ill = FakeGuest::new(|_, batch| Ok(failing(batch, |number| number > 1_000, true)));
    let stage = stage(Options { backoff: slow, ..options() }, ill, &Arc::default(), 16);
    stage.lead_to(away(&kept));
    let reader = FakeReader { pages: [(1..=10).collect()].into(), ends: false };
    let guest = FakeGuest::new(move |_, batch| Ok(sum(batch)));
    let run = Run::start_leading_to(Memory::new(), None, options(), guest, reader, Some(to_stage(&stage))).await;
    sleep(Duration::from_secs(20)).await;
    run.drain.cancel();
    let store = run.store.clone();
    assert_eq!(run.task.await.unwrap(), Ended::Released);
    assert_eq!(kept.sent(), texts(1..=10));
    let row = store.row(&LeaseKey::of_shard(&shard(SHARD))).unwrap();
    assert_eq!(row.checkpoint, Checkpoint::TrimHorizon, "a sum of fewer records would be another one");
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_the_wait_for_another_attempt_behind_the_shards_processor() {
    let slow = Backoff { first: Duration::from_secs(600), longest: Duration::from_secs(600) };
    let picky = FakeGuest::new(|_, batch| Ok(failing(batch, |_| true, true)));
    let stage = stage(Options { backoff: slow, ..options() }, picky, &Arc::default(), 16);
    stage.lead_to(Destinations::default());
    let run = run_before(&stage, options(), 5).await;
    run.until("the batch has failed", |run| matches!(run.state(), ShardState::Retrying { .. })).await;
    run.drain.cancel();
    let store = run.store.clone();
    assert_eq!(run.task.await.unwrap(), Ended::Released);
    let row = store.row(&LeaseKey::of_shard(&shard(SHARD))).unwrap();
    assert_eq!(row.checkpoint.to_string(), "TRIM_HORIZON");
}

#[tokio::test(start_paused = true)]
async fn a_cycle_holds_nothing_that_it_waits_for_and_ends_at_its_hops() {
    let letters = Arc::new(Letters::default());
    let failure = FailurePolicy { then: Then::DeadLetter, attempts: 1, ..options().failure };
    let round = stage(Options { failure, ..options() }, FakeGuest::new(|_, batch| Ok(copy(batch))), &letters, 4);
    round.lead_to(to_stage(&round));
    let run = run_before(&round, options(), 40).await;
    run.until("all is checkpointed", |run| run.checkpoint() == "40/0").await;
    let letters = letters.stored.lock().unwrap();
    assert_eq!(letters.len(), 40);
    assert!(letters.iter().all(|letter| letter.reason.contains("through 4 processors") && letter.attempts == 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// A chain of stages behind one that sends records round to itself, all of which share one instance, guests that
    /// fail now and then and take various times, lanes everywhere: every record comes out once, and those of a key in
    /// order as long as nothing is repeated.
    #[test]
    fn whatever_leads_to_what_every_record_ends(
        seed in any::<u64>(), lanes in 1..5u32, stage_lanes in 1..5u32, records in 1..200u64, rounds in 0..4u64,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async move {
            let kept = Arc::new(Kept::default());
            let spread = |lanes| Options { flow: Arc::new(crate::Flow { lanes, ..crate::Flow::default() }), ..options() };
            // Once in a while a batch fails as a whole.
            let calls = Arc::new(AtomicU32::new(0));
            let guest = |then: Box<dyn Fn(&Batch) -> Outcome + Send + Sync>| {
                let calls = Arc::clone(&calls);
                let mut guest = FakeGuest::new(move |_, batch| {
                    let call = u64::from(calls.fetch_add(1, Ordering::SeqCst));
                    match (seed ^ call).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 61 {
                        0 => Err(ProcessError::Retry { message: "later".into(), after: Duration::ZERO }.into()),
                        _ => Ok(then(batch)),
                    }
                });
                guest.varies = Some(seed);
                guest
            };
            let often = |options: Options| Options { failure: FailurePolicy { attempts: 1_000, ..options.failure.clone() }, ..options };
            let one = Arc::new(tokio::sync::Semaphore::new(1));
            let last = shared(often(spread(stage_lanes)), guest(Box::new(copy)), &one);
            last.lead_to(away(&kept));
            let mut next = last;
            let mut all = vec![Arc::clone(&next)];
            for _ in 0..rounds {
                let before = shared(often(spread(stage_lanes)), guest(Box::new(copy)), &one);
                before.lead_to(to_stage(&next));
                all.push(Arc::clone(&before));
                next = before;
            }
            // Each record goes round so often first, a thousand larger each time.
            let round = guest(Box::new(move |batch| {
                let mut outcome = copy(batch);
                for output in &mut outcome.outputs {
                    let number = number(&output.record.data);
                    let is_there = number / 1000 == rounds;
                    let data = if is_there { number % 1000 } else { number + 1000 };
                    output.record.data = Bytes::from(data.to_string());
                    output.name = if is_there { "out".into() } else { "again".into() };
                }
                outcome
            }));
            let ring = shared(often(spread(stage_lanes)), round, &one);
            ring.lead_to(Destinations::new(BTreeMap::from([
                ("out".to_owned(), Target::Stage(Arc::downgrade(&next))),
                ("again".to_owned(), Target::Stage(Arc::downgrade(&ring))),
            ])));
            let next = ring;
            let run = run_before(&next, often(spread(lanes)), records).await;
            run.until("all is checkpointed", |run| run.checkpoint() == format!("{records}/0")).await;
            let mut sent: Vec<u64> = kept.sent().iter().map(|text| text.parse().unwrap()).collect();
            for key in 0..super::fakes::KEYS {
                let of_key: Vec<u64> = sent.iter().copied().filter(|number| number % super::fakes::KEYS == key).collect();
                assert!(of_key.is_sorted(), "{of_key:?}");
            }
            sent.sort_unstable();
            assert_eq!(sent, (1..=records).collect::<Vec<_>>());
        });
    }
}

#[tokio::test(start_paused = true)]
async fn what_hooks_return_does_not_go_round_for_ever() {
    // Whatever is given up comes again, by the hook that tells of it.
    let calls = AtomicU32::new(0);
    let again = FakeGuest {
        hook: Box::new(move |hook| {
            let call = calls.fetch_add(1, Ordering::SeqCst) + 1;
            let record = UserRecord { partition_key: "k".into(), explicit_hash_key: None, data: Bytes::from("7") };
            let output = Output { name: "out".into(), record, cause: Cause::Hook(call.into()) };
            let outputs = (hook.name() == "given-up").then_some(output).into_iter().collect();
            (Duration::ZERO, Ok(shardmill_plugin::HookOutcome { outputs, ..Default::default() }))
        }),
        ..FakeGuest::new(|_, batch| Ok(failing(batch, |_| true, false)))
    };
    let failure = FailurePolicy { then: Then::Skip, ..options().failure };
    let round = stage(Options { failure, ..options() }, again, &Arc::default(), 1000);
    round.lead_to(to_stage(&round));
    let run = run_before(&round, options(), 1).await;
    let reason = run.stopped().await;
    assert!(reason.contains("`given-up`") && reason.contains("without end"), "{reason}");
    assert_eq!(run.checkpoint(), "TRIM_HORIZON");
}

#[tokio::test(start_paused = true)]
async fn a_pause_while_what_a_hook_returned_is_tried_again_keeps_the_lease() {
    let slow = Backoff { first: Duration::from_secs(600), longest: Duration::from_secs(600) };
    let picky = FakeGuest::new(|_, batch| Ok(failing(batch, |number| number == 7, true)));
    let stage = stage(Options { backoff: slow, ..options() }, picky, &Arc::default(), 16);
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
