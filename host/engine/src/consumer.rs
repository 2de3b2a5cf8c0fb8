//! One processor on one stream: holds leases, and runs a task for each.

use std::sync::Arc;
use std::time::Duration;

use shardmill_cause::{Trouble, with_causes};
use shardmill_lease::balance::Balance;
use shardmill_lease::store::{self, KeyForm, Store, StreamClaim, StreamIdentity, claim_stream};
use shardmill_lease::{Clock, Coordinator, Event, HeldLease, LeaseKey};
use shardmill_record::{HashKeyRange, ShardId, Unpacker};
use shardmill_stream::polling::{self, PollingReader, Source};
use shardmill_stream::start::resume;
use shardmill_stream::{Kind, Kinesis, StreamInfo};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::checkpointer::Checkpointer;
use crate::feed::Feed;
use crate::meter::Meter;
use crate::metrics::ConsumerLabels;
use crate::shard_source::{StreamShards, now_ms};
use crate::shard_task::{Ended, ShardTask};
use crate::{Budget, Destinations, Guest, Metrics, Options, Status};

/// How long the last words of a stop may take: releases that the store does not answer, the guest's shutdown.
const GRACE: Duration = Duration::from_secs(3);

/// How long checkpoints must have failed before that is told: a throttle passes.
const CHECKPOINT_PATIENCE: Duration = Duration::from_secs(2);

/// What a consumer is made of.
pub struct Parts {
    /// How it works.
    pub options: Arc<Options>,
    /// How it holds leases.
    pub lease_options: shardmill_lease::Options,
    /// By what rule it shares leases out.
    pub balance: Arc<dyn Balance>,
    /// How it reads.
    pub polling: polling::Options,
    /// The stream's service.
    pub kinesis: Kinesis,
    /// Where leases are kept.
    pub store: Arc<dyn Store>,
    /// By what leases expire.
    pub clock: Arc<dyn Clock>,
    /// The guest.
    pub guest: Arc<dyn Guest>,
    /// Where its outputs go.
    pub destinations: Destinations,
    /// The bytes that all consumers of the process share.
    pub budget: Budget,
    /// What is shown of it.
    pub status: Status,
    /// The engine's numbers.
    pub metrics: Metrics,
    /// The lease room's numbers.
    pub lease_metrics: shardmill_lease::Metrics,
    /// The stream room's numbers.
    pub stream_metrics: shardmill_stream::Metrics,
    /// Where jitter comes from.
    pub seed: u64,
}

/// A consumer that has not been started.
pub struct Consumer {
    parts: Parts,
}

/// Why a consumer cannot work.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The stream.
    #[error(transparent)]
    Stream(#[from] shardmill_stream::Error),
    /// The lease table.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The lease options do not go together.
    #[error(transparent)]
    LeaseOptions(#[from] shardmill_lease::InvalidOptions),
    /// Another process uses this worker's id.
    #[error(transparent)]
    Twin(shardmill_lease::Twin),
    /// Another system works on the lease table.
    #[error("the lease table {table} is in use")]
    Foreign {
        /// The table.
        table: String,
        /// Who uses it.
        #[source]
        source: shardmill_lease::ForeignWorker,
    },
    /// The lease table belongs to another stream.
    #[error(
        "the lease table {table} holds the checkpoints of another stream: {stored_arn} created at {stored_created_at}, while {arn} was created at {created_at} (milliseconds since 1970); if the stream was deleted and created again, use another table (`lease-table`), or delete {table} and {table}-shardmill"
    )]
    OtherStream {
        /// The table.
        table: String,
        /// What it belongs to.
        stored_arn: String,
        /// When that was created.
        stored_created_at: u64,
        /// What was to be read.
        arn: String,
        /// When that was created.
        created_at: u64,
    },
}

// === impl Error ===

impl Error {
    fn of(error: shardmill_lease::RunError, table: &str) -> Self {
        match error {
            shardmill_lease::RunError::Store(error) => Self::Store(error),
            shardmill_lease::RunError::Twin(twin) => Self::Twin(twin),
            shardmill_lease::RunError::Foreign(source) => Self::Foreign { table: table.to_owned(), source },
        }
    }
}

// === impl Consumer ===

impl Consumer {
    /// A consumer; does nothing before it is run.
    pub fn new(parts: Parts) -> Self {
        parts.status.add_consumer(&parts.options.processor);
        Self { parts }
    }

    /// Runs until told to drain, and then until everything is let go or the time for a stop is over.
    pub async fn run(self, drain: CancellationToken) -> Result<(), Error> {
        let parts = Arc::new(self.parts);
        let prepared = tokio::select! {
            biased;
            () = drain.cancelled() => return Ok(()),
            prepared = prepare(&parts) => prepared?,
        };
        let shards = Arc::new(StreamShards::new(
            parts.kinesis.clone(),
            Arc::clone(&parts.options.stream),
            parts.options.start.clone(),
        ));
        let (coordinator, mut handle, mut events) = Coordinator::new(
            parts.lease_options.clone(),
            Arc::clone(&parts.store),
            Arc::clone(&parts.clock),
            Arc::clone(&shards) as Arc<dyn shardmill_lease::ShardSource>,
            parts.lease_metrics.clone(),
            parts.seed,
        )?;
        let coordinator = coordinator.with_balance(Arc::clone(&parts.balance));
        let mut changes = handle.clone();
        let trouble = Arc::new(Trouble::new(CHECKPOINT_PATIENCE));
        let abort = CancellationToken::new();
        let mut started = false;
        let mut tasks = JoinSet::new();
        let mut coordinating = tokio::spawn(coordinator.run(drain.clone()));
        let mut time_left = std::pin::pin!(async {
            drain.cancelled().await;
            tokio::time::sleep(parts.options.shutdown_timeout).await;
        });
        // After that, whatever still waits for the store is left to the leases' expiry.
        let mut grace = std::pin::pin!(async {
            abort.cancelled().await;
            tokio::time::sleep(GRACE).await;
        });
        let coordinated = loop {
            tokio::select! {
                result = &mut coordinating => break Some(result),
                () = &mut grace => break None,
                () = handle.leased(), if !started => {
                    started = true;
                    parts.status.set_started(&parts.options.processor);
                }
                () = changes.changed() => parts.status.set_unattended(&parts.options.processor, &changes.view()),
                Some(event) = events.recv() => {
                    if let Event::Held(lease) = event {
                        tasks.spawn(run_shard(Arc::clone(&parts), Arc::clone(&shards), prepared.clone(), lease, Arc::clone(&trouble), abort.clone()));
                    }
                }
                Some(ended) = tasks.join_next() => report(&parts.options, ended),
                () = &mut time_left, if !abort.is_cancelled() => abort.cancel(),
            }
        };
        while let Some(ended) = tasks.join_next().await {
            report(&parts.options, ended);
        }
        if tokio::time::timeout(GRACE, parts.guest.close()).await.is_err() {
            tracing::warn!(processor = %parts.options.processor, "the guest's shutdown took too long and was ended");
        }
        match coordinated {
            None => {
                coordinating.abort();
                tracing::warn!(
                    processor = %parts.options.processor,
                    "the store did not take every release in time; a successor must wait until those leases expire"
                );
                Ok(())
            }
            Some(Ok(result)) => result.map_err(|error| Error::of(error, lease_table(&parts))),
            Some(Err(panic)) => std::panic::resume_unwind(panic.into_panic()),
        }
    }
}

/// Sees to it that the stream and the table are there and belong together.
async fn prepare(parts: &Parts) -> Result<StreamInfo, Error> {
    let stream = &parts.options.stream;
    let info = parts.kinesis.wait_until_active(stream).await?;
    // What passes is left to the coordinator, which lists the shards again and again.
    if let Err(error) = parts.kinesis.list_shards(stream).await
        && matches!(error.kind(), Kind::NotPermitted | Kind::Credentials)
        && !error.is_transient()
    {
        return Err(error.into());
    }
    let identity =
        StreamIdentity { arn: info.arn.clone(), created_at: info.creation_time_ms, key_form: KeyForm::Shard };
    let mut failures = 0u32;
    let claim = loop {
        let claimed = async {
            parts.store.ensure().await?;
            claim_stream(parts.store.as_ref(), stream, &identity).await
        };
        match claimed.await {
            Ok(claim) => {
                if failures > 0 {
                    tracing::info!(processor = %parts.options.processor, "the lease table is reached");
                }
                break claim;
            }
            Err(error) if error.is_transient() => {
                failures += 1;
                if failures == 1 {
                    tracing::warn!(
                        processor = %parts.options.processor, error = with_causes(&error),
                        "the lease table cannot be reached yet; trying on"
                    );
                }
                tokio::time::sleep(parts.options.backoff.delay(failures, rand::random())).await;
            }
            Err(error) => return Err(error.into()),
        }
    };
    match claim {
        StreamClaim::Same => Ok(info),
        StreamClaim::Different(stored) => Err(Error::OtherStream {
            table: lease_table(parts).to_owned(),
            stored_arn: stored.arn,
            stored_created_at: stored.created_at,
            arn: identity.arn,
            created_at: identity.created_at,
        }),
    }
}

/// The name of the lease table.
fn lease_table(parts: &Parts) -> &str {
    let sidecar = parts.store.sidecar_table();
    sidecar.strip_suffix("-shardmill").unwrap_or(sidecar)
}

fn report(options: &Options, ended: Result<(ShardId, Ended), tokio::task::JoinError>) {
    match ended {
        Ok((shard, ended)) => {
            tracing::debug!(processor = %options.processor, %shard, ?ended, "a shard's task has ended");
        }
        Err(error) => {
            // Its lease was dropped with it, so that the shard is taken up again.
            tracing::error!(processor = %options.processor, %error, "a shard's task broke down, please report it");
        }
    }
}

async fn run_shard(
    parts: Arc<Parts>,
    shards: Arc<StreamShards>,
    info: StreamInfo,
    lease: HeldLease,
    trouble: Arc<Trouble<LeaseKey>>,
    abort: CancellationToken,
) -> (ShardId, Ended) {
    let options = Arc::clone(&parts.options);
    let shard = match lease.lease().key.shard_id() {
        Ok(shard) => shard,
        Err(error) => {
            // Rows are checked when they are read; a key of another form belongs to another kind of table.
            tracing::error!(processor = %options.processor, lease = %lease.lease().key, %error, "the lease names no shard");
            let fence = lease.fence();
            tokio::select! {
                () = lease.draining() => {}
                _ = fence.lost() => {}
            }
            return (unnamed(), Ended::Released);
        }
    };
    let labels = ConsumerLabels { processor: options.processor.to_string(), stream: options.stream.to_string() };
    let _counted = Counted::new(parts.metrics.shards.get_or_create(&labels).clone());
    let ended = match task(&parts, shards, &info, shard.clone(), Arc::new(lease), trouble, abort, labels).await {
        Some(task) => task.run().await,
        None => Ended::Lost,
    };
    (shard, ended)
}

/// One more in a gauge for as long as this lives, also if its task panics.
struct Counted(prometheus_client::metrics::gauge::Gauge);

impl Counted {
    fn new(gauge: prometheus_client::metrics::gauge::Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

fn unnamed() -> ShardId {
    ShardId::parse("unnamed").expect("letters are allowed")
}

/// Makes a shard's task. `None` when the lease was lost meanwhile.
async fn task(
    parts: &Parts,
    shards: Arc<StreamShards>,
    info: &StreamInfo,
    shard: ShardId,
    lease: Arc<HeldLease>,
    trouble: Arc<Trouble<LeaseKey>>,
    abort: CancellationToken,
    labels: ConsumerLabels,
) -> Option<ShardTask> {
    let options = Arc::clone(&parts.options);
    let held = lease.lease();
    // A lease that is complete is never handed out.
    let resume = resume(&held.checkpoint, held.start_at, &shard, &options.start, now_ms())?;
    if let Some(at) = resume.remember {
        remember_start(&lease, at).await?;
    }
    let seed = parts.seed
        ^ held.epoch.get()
        ^ u64::from(shard.as_str().bytes().fold(7u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte))));
    let source =
        Source { stream: Arc::clone(&options.stream), shard: shard.clone(), creation_time_ms: info.creation_time_ms };
    let reader =
        PollingReader::new(parts.kinesis.clone(), source, resume.from, &parts.polling, &parts.stream_metrics, seed);
    let range = held.range.unwrap_or(HashKeyRange::ALL);
    Some(ShardTask {
        worker: parts.lease_options.worker.as_str().into(),
        status: parts.status.add_shard(&options.processor, &shard),
        feed: Feed::start(Box::new(reader), parts.budget.clone(), lease.fence()),
        unpacker: Unpacker::new(resume.done, range, options.out_of_range),
        reservations: Vec::new(),
        closed: None,
        millis_behind: None,
        meter: Meter::new(tokio::time::Instant::now()),
        checkpointer: Checkpointer::start(
            Arc::clone(&lease),
            options.checkpoint_interval,
            trouble,
            parts.metrics.clone(),
            labels.clone(),
        ),
        guest: Arc::clone(&parts.guest),
        destinations: parts.destinations.clone(),
        directory: shards,
        metrics: parts.metrics.clone(),
        labels,
        hooks_called: 0,
        skip_told: None,
        options,
        shard,
        lease,
        abort,
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
