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

pub(super) fn away(kept: &Arc<Kept>) -> Destinations {
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
pub(super) async fn run_before(stage: &Arc<Stage>, options: Options, records: u64) -> Run {
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
