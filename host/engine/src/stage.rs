//! Processors behind other processors: what these put out goes to them in memory, and whoever has caused it waits for its end.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use async_trait::async_trait;
use futures::future::BoxFuture;
use shardmill_lease::Fence;
use shardmill_plugin::ShardContext;
use shardmill_record::{Batch, BatchBuilder, Position, Record};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::batch_work::{BatchWork, Ledger, Origin, Scene, Told};
use crate::destination::Sent;
use crate::flow::{Route, Router};
use crate::leave::Leave;
use crate::live::Activity;
use crate::metrics::ConsumerLabels;
use crate::status::ShardState;
use crate::wall_clock::{WallClock, now_ms};
use crate::{Caused, DeadLetters, Delivery, Destinations, Guest, Metrics, Options};

/// How many calls within calls one task makes: each takes some of its thread's stack, and there may be as many as a record may
/// have hops.
const CALLS_OF_A_TASK: u32 = 8;

/// What a stage is made of.
pub struct StageParts {
    /// Its application, name, batches, flow and failure policy count; what is about reading does not.
    pub options: Arc<Options>,
    /// The guest.
    pub guest: Arc<dyn Guest>,
    /// The worker's id.
    pub worker: Arc<str>,
    /// Where records go that are given up.
    pub dead_letters: Option<Arc<dyn DeadLetters>>,
    /// Counts and times.
    pub metrics: Metrics,
    /// How many processors a record may come through.
    pub max_hops: u32,
}

/// A processor whose records come from other processors of this process. Records of one call are spread over its lanes and
/// batchers as those of a shard are, and the call ends when every one of them is done and its outputs are where they belong, or
/// given up as this processor's failure policy says.
///
/// It holds nothing while it waits for what is behind it, so stages may lead to each other in any way.
pub struct Stage {
    parts: StageParts,
    destinations: OnceLock<Destinations>,
    wall_clock: WallClock,
    hooks_called: Arc<AtomicU64>,
    told: Arc<Mutex<Told>>,
}

/// One batch of one track, and which of its records have failed before anybody saw them.
#[derive(Default)]
struct Part {
    builder: BatchBuilder,
    /// Which have failed before anybody saw them, by their place, and why.
    refused: Vec<(usize, String)>,
    /// For each of its records, the first record of the batch before that has caused it.
    since: Vec<usize>,
    bytes: usize,
    /// The beginning of the window that its records arrived in.
    window: Option<u64>,
}

/// How many records at the front of a part are done.
#[derive(Default)]
struct Through(AtomicUsize);

/// A stage at work for somebody.
struct StageScene {
    /// Whose records these are.
    before: Arc<dyn Scene>,
    options: Arc<Options>,
    origin: Origin,
    handed_over: Mutex<Option<Position>>,
    /// Cancelled when the call is left, here or by another destination of the same outputs.
    leaving: CancellationToken,
}

// === impl Stage ===

impl Stage {
    /// Without destinations, which may be other stages: [`lead_to`](Self::lead_to) names them.
    pub fn new(parts: StageParts) -> Self {
        Self {
            parts,
            destinations: OnceLock::new(),
            wall_clock: Arc::new(now_ms),
            hooks_called: Arc::default(),
            told: Arc::default(),
        }
    }

    /// Where its outputs go. Counts once.
    pub fn lead_to(&self, destinations: Destinations) {
        let _again = self.destinations.set(destinations);
    }

    /// Brings records to their end that records of a batch have caused. Left before that, it says how far it is: what it has
    /// done nobody has to do again. `leaving`: cancelled when the batch is left, by whoever has a reason to.
    pub(crate) fn take<'a>(
        self: &'a Arc<Self>,
        outputs: Vec<Caused>,
        batch: &'a Batch,
        before: &'a Arc<dyn Scene>,
        leaving: &'a CancellationToken,
    ) -> BoxFuture<'a, Sent> {
        let mut origin = before.origin();
        origin.hops += 1;
        if !origin.hops.is_multiple_of(CALLS_OF_A_TASK) {
            return Box::pin(self.work_off(outputs, batch, before, leaving, origin));
        }
        let (stage, batch, before, leaving) = (Arc::clone(self), batch.clone(), Arc::clone(before), leaving.clone());
        let mut task = JoinSet::new();
        // It ends if this is dropped.
        task.spawn(async move { stage.work_off(outputs, &batch, &before, &leaving, origin).await });
        Box::pin(async move {
            match task.join_next().await {
                Some(Ok(ended)) => ended,
                Some(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                // The runtime ends.
                _cancelled => Sent { leave: Some(Leave::Abort), first_undone: Some(0), ..Sent::default() },
            }
        })
    }

    async fn work_off(
        &self,
        outputs: Vec<Caused>,
        batch: &Batch,
        before: &Arc<dyn Scene>,
        leaving: &CancellationToken,
        origin: Origin,
    ) -> Sent {
        let options = &self.parts.options;
        let too_far = (origin.hops > self.parts.max_hops)
            .then(|| format!("it has come through {} processors, as many as may be (`max-hops`)", self.parts.max_hops));
        // A record that has come too far is given up; were it to go on for ever by what the guest returns when it is told of
        // that, nothing else would end it.
        if origin.hops > self.parts.max_hops.saturating_mul(2) {
            let leave = Leave::stop(format!(
                "processor `{}`: what hooks return when they are told of given-up records (`given-up`) goes from processor to processor without end; let it leave the cycle",
                options.processor
            ));
            leaving.cancel();
            return Sent { leave: Some(leave), first_undone: Some(0), ..Sent::default() };
        }
        let labels = ConsumerLabels { processor: options.processor.to_string(), stream: origin.stream.to_string() };
        let router = Router::new(Arc::clone(&options.flow), Arc::clone(&origin.stream), origin.shard.as_str());
        let (tracks, filtered, invalid) = self.spread(&outputs, batch, &router, too_far.as_deref());
        drop(outputs);
        self.parts.metrics.filtered(&labels, filtered, invalid);
        let work = BatchWork {
            options: Arc::clone(options),
            guest: Arc::clone(&self.parts.guest),
            worker: Arc::clone(&self.parts.worker),
            destinations: self.destinations.get().cloned().unwrap_or_default(),
            dead_letters: self.parts.dead_letters.clone(),
            metrics: self.parts.metrics.clone(),
            labels,
            wall_clock: Arc::clone(&self.wall_clock),
            hooks_called: Arc::clone(&self.hooks_called),
            told: Arc::clone(&self.told),
            scene: Arc::new(StageScene {
                before: Arc::clone(before),
                options: Arc::clone(options),
                origin,
                handed_over: Mutex::new(None),
                leaving: leaving.clone(),
            }),
        };
        let is_once = before.delivery() == Delivery::AtMostOnce;
        let lanes = tracks.into_iter().filter(|parts| !parts.is_empty()).map(|parts| {
            let work = &work;
            async move {
                let mut sent = Sent::default();
                for Part { builder, refused, since, .. } in parts {
                    let (part, through) = (builder.build(), Through::default());
                    let ended = match sent.leave.take() {
                        None => work.process(part, &refused, &through).await,
                        Some(leave) if is_once => work.abandon(&part, &refused, leave, &through).await,
                        Some(leave) => Err(leave),
                    };
                    let through = if ended.is_ok() { since.len() } else { through.0.into_inner() };
                    sent.count += through;
                    sent.first_undone = sent.first_undone.into_iter().chain(since.into_iter().skip(through)).min();
                    sent.leave = ended.err();
                    if sent.leave.is_some() {
                        leaving.cancel();
                    }
                }
                sent
            }
        });
        // Every lane to its end: what is done in one is not to be given up for another.
        let mut sent = futures::future::join_all(lanes).await.into_iter().fold(Sent::default(), Sent::and);
        sent.count += filtered;
        if let Some(Leave::Stop(_, reason)) = &mut sent.leave {
            *reason = format!("processor `{}`: {reason}", options.processor);
        }
        sent
    }

    /// By lane of each batcher, batches one after another; and how many records the filter has kept out, and of these could not
    /// read.
    fn spread(
        &self,
        outputs: &[Caused],
        batch: &Batch,
        router: &Router,
        too_far: Option<&str>,
    ) -> (Vec<Vec<Part>>, usize, usize) {
        let options = &self.parts.options;
        let flow = &options.flow;
        let batches: Vec<_> = flow.batchers.iter().map(|batcher| batcher.batch).chain([options.batch]).collect();
        let mut tracks: Vec<Vec<Part>> =
            std::iter::repeat_with(Vec::new).take(batches.len() * flow.lanes as usize).collect();
        let (mut filtered, mut invalid) = (0, 0);
        let now = (self.wall_clock)();
        for Caused { by, since, output } in outputs {
            let hash_key = output.record.explicit_hash_key.map(|key| key.to_string());
            let cause = (*by < batch.len()).then(|| batch.record(*by));
            let record = Record {
                // A hook, or a call without records, stands nowhere.
                sequence_number: cause.map_or("0", |cause| cause.sequence_number),
                sub_sequence_number: cause.map_or(0, |cause| cause.sub_sequence_number),
                approximate_arrival: cause.map_or(now, |cause| cause.approximate_arrival),
                partition_key: &output.record.partition_key,
                explicit_hash_key: hash_key.as_deref(),
                data: &output.record.data,
            };
            let (track, refused) = match (router.route(&record), too_far) {
                (Route::Nowhere { is_invalid }, _) => {
                    filtered += 1;
                    invalid += usize::from(is_invalid);
                    continue;
                }
                (Route::Track(track) | Route::Failed(track, _), Some(too_far)) => (track, Some(too_far.to_owned())),
                (Route::Failed(track, reason), None) => (track, Some(reason)),
                (Route::Track(track), None) => (track, None),
            };
            let bytes = record.partition_key.len() + record.data.len();
            let batch = batches[track / flow.lanes as usize];
            let window = batch.window.map(|window| window.of(record.approximate_arrival));
            let is_full = |part: &Part| {
                let most = batch.limits;
                part.since.len() >= most.records || part.bytes + bytes > most.bytes || part.window != window
            };
            if tracks[track].last().is_none_or(is_full) {
                tracks[track].push(Part { window, ..Part::default() });
            }
            if let Some(part) = tracks[track].last_mut() {
                part.refused.extend(refused.map(|reason| (part.since.len(), reason)));
                part.builder.push(record);
                part.since.push(*since);
                part.bytes += bytes;
            }
        }
        (tracks, filtered, invalid)
    }
}

impl Ledger for Through {
    fn passed(&self, _batch: &Batch, through: usize, _records: usize, _is_end: bool) {
        self.0.store(through, Ordering::Relaxed);
    }
}

#[async_trait]
impl Scene for StageScene {
    fn origin(&self) -> Origin {
        self.origin.clone()
    }

    fn context(&self, attempt: u32) -> ShardContext {
        let context = self.before.context(attempt);
        ShardContext { processor: Arc::clone(&self.options.processor), last_batch: false, ..context }
    }

    fn fence(&self) -> Fence {
        self.before.fence()
    }

    async fn cut_off(&self) -> Leave {
        self.before.cut_off().await
    }

    fn delivery(&self) -> Delivery {
        self.before.delivery()
    }

    /// Others that have a reason to leave are heard where somebody comes back to the records.
    async fn called_away(&self) -> Leave {
        let waits = self.delivery() == Delivery::AtLeastOnce;
        tokio::select! {
            biased;
            leave = self.before.called_away() => leave,
            () = self.leaving.cancelled(), if waits => Leave::Pause,
        }
    }

    fn doing(&self, activity: Activity) {
        self.before.doing(activity);
    }

    fn set_state(&self, state: ShardState) {
        self.before.set_state(state);
    }

    fn hand_over(&self, last: Position) {
        let mut handed_over = self.handed_over.lock().unwrap_or_else(PoisonError::into_inner);
        *handed_over = handed_over.take().max(Some(last));
    }

    fn handed_over(&self) -> Option<Position> {
        self.handed_over.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A checkpoint is of the shard, and the shard's processor says how far it goes.
    fn allow(&self, _position: Position) {}

    async fn checkpoint_first(&self, _batch: &Batch) -> Result<(), Leave> {
        Ok(())
    }
}
