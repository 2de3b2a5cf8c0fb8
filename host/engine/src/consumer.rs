//! One processor on its streams: holds leases, and runs a task for each.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use shardmill_cause::code;
use shardmill_lease::balance::Balance;
use shardmill_lease::store::{self, KeyForm, Store};
use shardmill_lease::{Clock, Coordinator, Event, Handle};
use shardmill_record::ShardId;
use shardmill_stream::polling::ReadLimits;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::budget::ShardBudget;
use crate::claim::{prepare, watch_over};
use crate::input::Input;
use crate::shard_run::{Shared, run_shard};
use crate::shard_source::Streams;
use crate::shard_task::Ended;
use crate::stop::StopReason;
use crate::watchdog::{self, Watchdog, keep_retention};
use crate::{Allowance, Budget, DeadLetters, Destinations, Guest, Metrics, Options, Status};

/// How long the last words of a stop may take: releases that the store does not answer, the guest's shutdown.
const GRACE: Duration = Duration::from_secs(3);

/// What a consumer is made of.
pub struct Parts {
    /// The streams that it reads, one or more.
    pub inputs: Vec<Input>,
    /// How the keys of its leases are made; where they do not name the stream there is one.
    pub key_form: KeyForm,
    /// How it holds leases.
    pub lease_options: shardmill_lease::Options,
    /// By what rule it shares leases out.
    pub balance: Arc<dyn Balance>,
    /// What readers of one shard share, whichever consumer of the process they belong to.
    pub read_limits: ReadLimits,
    /// Where leases are kept.
    pub store: Arc<dyn Store>,
    /// By what leases expire.
    pub clock: Arc<dyn Clock>,
    /// The guest.
    pub guest: Arc<dyn Guest>,
    /// Where its outputs go.
    pub destinations: Destinations,
    /// Where records go that are given up; `None` keeps them nowhere.
    pub dead_letters: Option<Arc<dyn DeadLetters>>,
    /// The bytes that all consumers of the process share.
    pub budget: Budget,
    /// The records that all consumers of the process may process.
    pub allowance: Allowance,
    /// When a shard is said to make no progress, and when its lag is an alarm: as it stands at each look.
    pub watchdog: watch::Receiver<watchdog::Options>,
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
    /// Its share of the budget, from the start and also while it has no lease: what others borrow of it comes back late.
    share: ShardBudget,
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
        "the lease table {table} holds the checkpoints of another stream: it is for {stored_arn}, and not for {arn}; use another table (`lease-table`), or delete {table} and {table}-shardmill"
    )]
    OtherStream {
        /// The table.
        table: String,
        /// What it belongs to.
        stored_arn: String,
        /// What was to be read.
        arn: String,
    },
    /// The lease table's keys have another form.
    #[error("the lease table {table} is one of a consumer of {}, which was chosen when it was created, and this consumer has {}: use another table (`lease-table`)", Streamed(*stored), Written(*configured))]
    OtherForm {
        /// The table.
        table: String,
        /// What it has.
        stored: KeyForm,
        /// What the configuration asks for.
        configured: KeyForm,
    },
    /// Two of a consumer's streams cannot be told apart.
    #[error(
        "the streams {first} and {second} cannot be read by one consumer: {reason}; give each a processor of its own"
    )]
    SameStreams {
        /// The one.
        first: String,
        /// The other.
        second: String,
        /// What is the same.
        reason: String,
    },
    /// The failure policy of a shard has stopped the consumer.
    #[error("the failure policy has stopped the {}: shard {shard} of stream {stream}: {reason}", if *process { "process" } else { "processor" })]
    Stopped {
        /// The stream.
        stream: String,
        /// The shard.
        shard: ShardId,
        /// Why.
        reason: String,
        /// Whether the process is to end as well.
        process: bool,
    },
    /// The stream's ARN, which lease keys are made of, is none.
    #[error("stream {stream}: {reason}; check what answers at the endpoint")]
    NoArn {
        /// The stream.
        stream: String,
        /// What is wrong with it.
        reason: String,
    },
}

struct Streamed(KeyForm);

struct Written(KeyForm);

impl std::fmt::Display for Streamed {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self.0 {
            KeyForm::Shard => "one stream (`stream`)",
            KeyForm::MultiStream => "many streams (`streams`)",
        })
    }
}

impl std::fmt::Display for Written {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self.0 {
            KeyForm::Shard => "`stream`",
            KeyForm::MultiStream => "`streams`",
        })
    }
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

impl From<StopReason> for Error {
    fn from(StopReason { stream, shard, reason, process }: StopReason) -> Self {
        Self::Stopped { stream: stream.to_string(), shard, reason, process }
    }
}

// === impl Parts ===

impl Parts {
    /// What is the same for every stream.
    pub(crate) fn options(&self) -> &Options {
        &self.inputs[0].options
    }
}

// === impl Consumer ===

impl Consumer {
    /// A consumer; does nothing before it is run.
    ///
    /// # Panics
    /// If it has no stream, or several and keys that do not name them.
    pub fn new(parts: Parts) -> Self {
        assert!(!parts.inputs.is_empty(), "a consumer has a stream");
        assert!(
            parts.inputs.len() == 1 || parts.key_form == KeyForm::MultiStream,
            "shards of streams have the same ids"
        );
        parts.status.add_consumer(&parts.options().processor);
        let options = parts.options();
        let share = parts.budget.shard(&options.processor, options.bytes_in_batches());
        Self { parts, share }
    }

    /// Runs until told to drain, and then until everything is let go or the time for a stop is over.
    pub async fn run(self, drain: CancellationToken) -> Result<(), Error> {
        let (parts, _share) = (Arc::new(self.parts), self.share);
        let prepared = tokio::select! {
            biased;
            () = drain.cancelled() => return Ok(()),
            prepared = prepare(&parts) => prepared?,
        };
        let streams = Streams(prepared.into());
        // Cancelled as well when a stream can no longer be consumed.
        let stop = drain.child_token();
        let (coordinator, mut handle, mut events) = Coordinator::new(
            parts.lease_options.clone(),
            Arc::clone(&parts.store),
            Arc::clone(&parts.clock),
            Arc::new(streams.clone()),
            parts.lease_metrics.clone(),
            parts.seed,
        )?;
        let coordinator = coordinator.with_balance(Arc::clone(&parts.balance));
        let mut changes = handle.clone();
        let shared = Arc::new(Shared::new(Arc::clone(&parts), streams.clone()));
        parts.status.set_whole(&parts.options().processor, Arc::downgrade(&shared));
        let mut started = false;
        let mut failed = None;
        let mut tasks = JoinSet::new();
        let mut watches = JoinSet::new();
        for stream in streams.0.iter() {
            watches.spawn(watch_over(Arc::clone(stream), Arc::clone(&parts), handle.clone()));
        }
        // Ends with this function.
        let mut watching = JoinSet::new();
        watching.spawn(Watchdog::new(Arc::clone(&parts), Arc::clone(&shared), handle.clone()).run());
        watching.spawn(keep_retention(streams.clone()));
        let mut coordinating = tokio::spawn(coordinator.run(stop.clone()));
        let mut time_left = std::pin::pin!(async {
            stop.cancelled().await;
            let end = Instant::now() + parts.options().shutdown_timeout;
            shared.deadline.set(end);
            tokio::time::sleep_until(end).await;
        });
        // After that, whatever still waits for the store is left to the leases' expiry.
        let abort = shared.abort.clone();
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
                    parts.status.set_started(&parts.options().processor);
                    tell_of_others(&parts, &handle);
                }
                () = changes.changed() => {
                    parts.status.set_fleet(&parts.options().processor, &changes.view(), &parts.lease_options);
                }
                Some(event) = events.recv() => {
                    if let Event::Held(lease) = event {
                        tasks.spawn(run_shard(Arc::clone(&shared), lease));
                    }
                }
                Some(ended) = tasks.join_next() => report(parts.options(), ended),
                Some(ended) = watches.join_next() => match ended {
                    Ok(error) => {
                        failed = Some(error);
                        stop.cancel();
                    }
                    Err(panic) => std::panic::resume_unwind(panic.into_panic()),
                },
                asked = shared.stop_request.asked(), if !stop.is_cancelled() => {
                    parts.status.set_consumer_stopped(&parts.options().processor, &asked.reason);
                    stop.cancel();
                }
                () = &mut time_left, if !abort.is_cancelled() => abort.cancel(),
            }
        };
        while let Some(ended) = tasks.join_next().await {
            report(parts.options(), ended);
        }
        let processor = &parts.options().processor;
        if tokio::time::timeout(GRACE, parts.guest.close()).await.is_err() {
            tracing::warn!(%processor, "the guest's shutdown took too long and was ended");
        }
        match coordinated {
            None => {
                coordinating.abort();
                tracing::warn!(
                    %processor,
                    "the store did not take every release in time; a successor must wait until those leases expire"
                );
            }
            Some(Ok(result)) => result.map_err(|error| Error::of(error, parts.store.lease_table()))?,
            Some(Err(panic)) => std::panic::resume_unwind(panic.into_panic()),
        }
        let stopped = shared.stop_request.get().map(Error::from);
        failed.or(stopped).map_or(Ok(()), Err)
    }
}

/// Says, once, that the table has leases of streams that are not read.
fn tell_of_others(parts: &Parts, handle: &Handle) {
    let mut others: BTreeMap<String, usize> = BTreeMap::new();
    for lease in handle.view().others.iter() {
        *others.entry(lease.key.stream().map(|stream| stream.to_string()).unwrap_or_default()).or_default() += 1;
    }
    for (stream, leases) in others {
        tracing::info!(
            processor = %parts.options().processor, stream, leases,
            "the lease table holds leases of a stream that is not in the list; they are left alone"
        );
    }
}

fn report(options: &Options, ended: Result<(ShardId, Ended), tokio::task::JoinError>) {
    match ended {
        Ok((shard, ended)) => {
            tracing::debug!(processor = %options.processor, %shard, ?ended, "a shard's task has ended");
        }
        Err(error) => {
            // Its lease was dropped with it, so that the shard is taken up again.
            tracing::error!(processor = %options.processor, %error, code = %code::engine::BROKEN, "a shard's task broke down, please report it");
        }
    }
}
