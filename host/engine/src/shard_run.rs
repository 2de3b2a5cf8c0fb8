//! From a lease to its shard's task.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use shardmill_cause::{Trouble, with_causes};
use shardmill_lease::{HeldLease, LeaseKey};
use shardmill_record::{HashKeyRange, ShardId, Unpacker};
use shardmill_stream::polling::{Condition, Phase};
use shardmill_stream::start::resume;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::batch_work::{BatchWork, Scene};
use crate::checkpointer::{Cadence, Checkpointer};
use crate::consumer::Parts;
use crate::feed::Feed;
use crate::flow::Router;
use crate::input::{Incarnation, Stream};
use crate::input_reader::{InputReader, Sources};
use crate::meter::Meter;
use crate::metrics::ConsumerLabels;
use crate::policy::Watermark;
use crate::shard_entry::ShardEntry;
use crate::shard_source::{Siblings, Streams};
use crate::shard_task::{Ended, Progress, ShardScene, ShardTask};
use crate::stop::{Deadline, StopRequest};
use crate::wall_clock::now_ms;

/// How long checkpoints must have failed before that is told: a throttle passes.
const CHECKPOINT_PATIENCE: Duration = Duration::from_secs(2);

/// What the tasks of a consumer have in common.
pub(crate) struct Shared {
    pub(crate) parts: Arc<Parts>,
    pub(crate) streams: Streams,
    sources: Sources,
    /// Checkpoints that cannot be written.
    pub(crate) trouble: Arc<Trouble<LeaseKey>>,
    /// Cancelled when what is in flight is to be given up.
    pub(crate) abort: CancellationToken,
    /// When that will be.
    pub(crate) deadline: Deadline,
    /// Where the failure policy of a shard asks for the consumer's stop.
    pub(crate) stop_request: StopRequest,
}

// === impl Shared ===

impl Shared {
    pub(crate) fn new(parts: Arc<Parts>, streams: Streams) -> Self {
        let sources = Sources {
            limits: parts.read_limits.clone(),
            metrics: parts.stream_metrics.clone(),
            store: Arc::clone(&parts.store),
            expiry: parts.lease_options.expiry,
        };
        let trouble = Arc::new(Trouble::new(CHECKPOINT_PATIENCE));
        Self {
            parts,
            streams,
            sources,
            trouble,
            abort: CancellationToken::new(),
            deadline: Deadline::default(),
            stop_request: StopRequest::default(),
        }
    }
}

/// Runs the shard of a lease until it is let go. One that is stopped and started again keeps its lease, so that nobody
/// else has it in between.
pub(crate) async fn run_shard(shared: Arc<Shared>, lease: HeldLease) -> (ShardId, Ended) {
    let key = lease.lease().key.clone();
    let (Ok(shard), Some(of)) = (key.shard_id(), shared.streams.of(&key)) else {
        // The stream went while the lease was taken: its leases go with it.
        tracing::debug!(lease = %key, "the lease is of no stream that is read now");
        let fence = lease.fence();
        tokio::select! {
            () = lease.draining() => {}
            _ = fence.lost() => {}
        }
        return (ShardId::parse("unnamed").expect("letters are allowed"), Ended::Released);
    };
    let options = &of.0.input.options;
    let labels = ConsumerLabels { processor: options.processor.to_string(), stream: options.stream.to_string() };
    let _counted = Counted::new(shared.parts.metrics.shards.get_or_create(&labels).clone());
    let lease = Arc::new(lease);
    // Dropped before the lease, which another task of this worker may hold the next moment.
    let entry = shared.parts.status.add_shard(&options.processor, &options.stream, &shard, &key);
    let condition = shared.parts.stream_metrics.condition(&options.stream, &shard);
    entry.live().attach(condition.clone(), &lease, options.start.shards.contains_key(&shard));
    loop {
        let entry = (entry.clone(), condition.clone());
        let ended = match task(&shared, of.clone(), shard.clone(), Arc::clone(&lease), labels.clone(), entry).await {
            Some(task) => task.run().await,
            None => Ended::Lost,
        };
        if ended != Ended::Restart {
            return (shard, ended);
        }
    }
}

/// One more in a gauge for as long as this lives, also if its task panics.
pub(crate) struct Counted(prometheus_client::metrics::gauge::Gauge);

impl Counted {
    pub(crate) fn new(gauge: prometheus_client::metrics::gauge::Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Makes a shard's task. `None` when the lease was lost meanwhile.
async fn task(
    shared: &Shared,
    (stream, incarnation): (Arc<Stream>, Arc<Incarnation>),
    shard: ShardId,
    lease: Arc<HeldLease>,
    labels: ConsumerLabels,
    (status, condition): (ShardEntry, Condition),
) -> Option<ShardTask> {
    let parts = &shared.parts;
    let options = Arc::clone(&stream.input.options);
    let held = lease.lease();
    // A lease that is complete is never handed out.
    let resume = resume(&held.checkpoint, held.start_at, &shard, &options.start, now_ms())?;
    if let Some(at) = resume.remember {
        condition.enter(Phase::Store, Instant::now());
        remember_start(&lease, at).await?;
    }
    // Shards of different streams have the same ids.
    let mut hasher = DefaultHasher::new();
    held.key.hash(&mut hasher);
    let seed = parts.seed ^ held.epoch.get() ^ hasher.finish();
    let checkpoint = resume.done.as_ref().map(|done| done.sequence_number.clone());
    let reader = InputReader::new(
        shared.sources.clone(),
        (Arc::clone(&stream), Arc::clone(&incarnation)),
        (shard.clone(), held.key.clone()),
        resume.from,
        checkpoint,
        condition,
        seed,
    );
    let reader = reader.await;
    let range = held.range.unwrap_or(HashKeyRange::ALL);
    let memory = parts.budget.shard(&options.processor, options.bytes_in_batches());
    let worker: Arc<str> = parts.lease_options.worker.as_str().into();
    let cadence = Cadence { interval: options.checkpoint_interval, count: options.checkpoint_count };
    let scene = Arc::new(ShardScene {
        worker: Arc::clone(&worker),
        status,
        share: parts.allowance.share(),
        progress: Mutex::new(Progress::new(Watermark::new(options.checkpoint, resume.done.clone()))),
        checkpointer: Checkpointer::start(
            Arc::clone(&lease),
            cadence,
            Arc::clone(&shared.trouble),
            parts.metrics.clone(),
            labels.clone(),
        ),
        directory: Arc::new(Siblings { stream, incarnation }),
        options: Arc::clone(&options),
        shard,
        abort: shared.abort.clone(),
        is_last: AtomicBool::new(false),
        is_followed: AtomicBool::new(false),
        lease: Arc::clone(&lease),
    });
    let work = Arc::new(BatchWork {
        worker,
        guest: Arc::clone(&parts.guest),
        destinations: parts.destinations.clone(),
        dead_letters: parts.dead_letters.clone(),
        metrics: parts.metrics.clone(),
        labels,
        hooks_called: Arc::default(),
        told: Arc::default(),
        wall_clock: Arc::new(now_ms),
        scene: Arc::clone(&scene) as Arc<dyn Scene>,
        options: Arc::clone(&options),
    });
    let router = options
        .flow
        .filter
        .is_some()
        .then(|| Router::new(Arc::clone(&options.flow), Arc::clone(&options.stream), scene.shard.as_str()));
    Some(ShardTask {
        router,
        work,
        scene,
        feed: Feed::start(Box::new(reader), memory, options.prefetch, lease.fence()),
        unpacker: Unpacker::new(resume.done, range, options.out_of_range),
        reservations: Vec::new(),
        closed: None,
        meter: Meter::new(Instant::now()),
        deadline: shared.deadline.clone(),
        stop_request: shared.stop_request.clone(),
    })
}

/// Stores where the shard starts before the first read, or a restart would start later and skip records.
async fn remember_start(lease: &HeldLease, at: u64) -> Option<()> {
    loop {
        match lease.set_start_at(at).await {
            Ok(()) => return Some(()),
            Err(error) if error.is_transient() => tokio::time::sleep(Duration::from_millis(500)).await,
            Err(error) => {
                tracing::warn!(lease = %lease.lease().key, error = with_causes(&error), "where the shard starts could not be stored");
                return None;
            }
        }
    }
}
