//! Between the generated bindings and the types of this crate: what the host calls, and what it is called for.

use std::cell::RefCell;
use std::thread::LocalKey;
use std::time::Duration;

use crate::bindings::columnar::exports::shardmill::processor::columnar as wit;
use crate::bindings::columnar::shardmill::processor::{logging, metrics, types};
use crate::bindings::hooks::exports::shardmill::processor::hooks as wit_hooks;
use crate::log::Level;
use crate::outcome::{Done, Exception};
use crate::output::{Cause, Columns};
use crate::processor::configure;
use crate::{Batch, Error, GivenUpRecord, HookOutcome, Hooks, Outcome, Position, Processor, ShardContext};

/// A crate's export: what `processor!` implements.
pub trait Component: 'static {
    /// The type that was named.
    type Processor: Processor;

    /// Where this instance keeps it.
    fn slot() -> &'static LocalKey<Slot<Self::Processor>>;
}

/// The processor of an instance, from `init` on.
#[derive(Debug)]
pub struct Slot<P>(RefCell<Option<P>>);

impl<P> Slot<P> {
    /// Before `init`.
    pub const fn empty() -> Slot<P> {
        Slot(RefCell::new(None))
    }
}

// === exports ===

impl<C: Component> wit::Guest for C {
    fn init(config: String) -> Result<(), String> {
        // A panic ends the instance; this line is all that will be known of it.
        std::panic::set_hook(Box::new(|panic| crate::error!("{panic}")));
        let processor = configure(&config)?;
        C::slot().with(|slot| slot.0.replace(Some(processor)));
        Ok(())
    }

    fn process_batch(shard: wit::ShardContext, records: wit::RecordColumns) -> Result<wit::Outcome, wit::ProcessError> {
        let batch = Batch::try_new(
            &records.arena,
            &records.lengths,
            &records.sub_sequence_numbers,
            &records.approximate_arrivals,
        )
        .map_err(|error| to_wit_error(error.into()))?;
        let outcome = with_processor::<C, _>(|processor| process(processor, &shard.into(), &batch))?;
        Ok(outcome.into())
    }
}

/// A function of its own: as a part of the export, which converts back and forth, the processor's loops would have to
/// share the registers with all of that.
#[inline(never)]
fn process<P: Processor>(processor: &mut P, shard: &ShardContext, batch: &Batch<'_>) -> Result<Outcome, Error> {
    processor.process(shard, batch)
}

impl<C: Component> wit_hooks::Guest for C
where
    C::Processor: Hooks,
{
    fn assigned(id: u64, shard: types::ShardContext) -> Result<wit_hooks::HookOutcome, types::ProcessError> {
        hook::<C>(id, |processor, outcome| processor.assigned(&shard.into(), outcome))
    }

    fn revoked(
        id: u64,
        shard: types::ShardContext,
        time_left_ms: u64,
    ) -> Result<wit_hooks::HookOutcome, types::ProcessError> {
        let time_left = Duration::from_millis(time_left_ms);
        hook::<C>(id, |processor, outcome| processor.revoked(&shard.into(), time_left, outcome))
    }

    fn shard_ended(id: u64, shard: types::ShardContext) -> Result<wit_hooks::HookOutcome, types::ProcessError> {
        hook::<C>(id, |processor, outcome| processor.shard_ended(&shard.into(), outcome))
    }

    fn idle(id: u64, shard: types::ShardContext) -> Result<wit_hooks::HookOutcome, types::ProcessError> {
        hook::<C>(id, |processor, outcome| processor.idle(&shard.into(), outcome))
    }

    fn given_up(
        id: u64,
        shard: types::ShardContext,
        records: Vec<wit_hooks::GivenUpRecord>,
    ) -> Result<wit_hooks::HookOutcome, types::ProcessError> {
        let records: Vec<GivenUpRecord> = records
            .into_iter()
            .map(|record| GivenUpRecord {
                position: record.position.into(),
                reason: record.reason,
                attempts: record.attempts,
            })
            .collect();
        hook::<C>(id, |processor, outcome| processor.given_up(&shard.into(), &records, outcome))
    }

    fn shutdown() -> Result<(), String> {
        // An instance that was never made has nothing to shut down.
        C::slot().with(|slot| match slot.0.borrow_mut().as_mut() {
            Some(processor) => processor.shutdown().map_err(|error| error.to_string()),
            None => Ok(()),
        })
    }
}

fn with_processor<C: Component, T>(
    call: impl FnOnce(&mut C::Processor) -> Result<T, Error>,
) -> Result<T, types::ProcessError> {
    C::slot()
        .with(|slot| match slot.0.borrow_mut().as_mut() {
            Some(processor) => call(processor),
            None => Err(Error::retry("the instance was called before its init")),
        })
        .map_err(to_wit_error)
}

fn hook<C: Component>(
    id: u64,
    call: impl FnOnce(&mut C::Processor, &mut HookOutcome) -> Result<(), Error>,
) -> Result<wit_hooks::HookOutcome, types::ProcessError> {
    let mut outcome = HookOutcome::new(id);
    with_processor::<C, _>(|processor| call(processor, &mut outcome))?;
    let outputs = outcome.outputs.rows().map(|row| types::Output {
        name: row.name.to_owned(),
        partition_key: row.partition_key.to_owned(),
        explicit_hash_key: row.explicit_hash_key.map(str::to_owned),
        data: row.data.to_owned(),
        cause: row.cause.into(),
    });
    Ok(wit_hooks::HookOutcome { outputs: outputs.collect(), checkpoint: outcome.checkpoint.map(Into::into) })
}

// === conversions ===

impl From<types::ShardContext> for ShardContext {
    fn from(shard: types::ShardContext) -> ShardContext {
        ShardContext {
            application: shard.application,
            processor: shard.processor,
            stream: shard.stream,
            shard_id: shard.shard_id,
            worker: shard.worker,
            lease_epoch: shard.lease_epoch,
            attempt: shard.attempt,
            millis_behind_latest: shard.millis_behind_latest,
            last_batch: shard.last_batch,
        }
    }
}

impl From<types::Position> for Position {
    fn from(position: types::Position) -> Position {
        Position { sequence_number: position.sequence_number, sub_sequence_number: position.sub_sequence_number }
    }
}

impl From<Position> for types::Position {
    fn from(position: Position) -> types::Position {
        types::Position { sequence_number: position.sequence_number, sub_sequence_number: position.sub_sequence_number }
    }
}

impl From<Cause> for types::Cause {
    fn from(cause: Cause) -> types::Cause {
        match cause {
            Cause::Record(index) => types::Cause::Record(index),
            Cause::Batch => types::Cause::Batch,
            Cause::Hook(id) => types::Cause::Hook(id),
        }
    }
}

impl From<Columns> for wit::OutputColumns {
    fn from(columns: Columns) -> wit::OutputColumns {
        wit::OutputColumns {
            names: columns.names,
            name_indexes: columns.name_indexes,
            arena: columns.arena,
            lengths: columns.lengths,
            causes: columns.causes.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<Outcome> for wit::Outcome {
    fn from(outcome: Outcome) -> wit::Outcome {
        let done = match outcome.done {
            Done::All => types::DoneRecords::Others,
            Done::Before(count) => types::DoneRecords::Before(count),
            // The interface takes each index once, in whatever role.
            Done::Only(records) => types::DoneRecords::Listed(
                records.into_iter().filter(|index| !outcome.exceptions.contains_key(index)).collect(),
            ),
        };
        let mut failed = Vec::new();
        let mut skipped = Vec::new();
        for (index, exception) in outcome.exceptions {
            match exception {
                Exception::Failed { reason, retry } => failed.push(types::FailedRecord { index, reason, retry }),
                Exception::Skipped { reason } => skipped.push(types::SkippedRecord { index, reason }),
            }
        }
        wit::Outcome {
            done,
            failed,
            skipped,
            checkpoint: outcome.checkpoint.map(Into::into),
            outputs: outcome.outputs.into(),
        }
    }
}

fn to_wit_error(error: Error) -> types::ProcessError {
    match error {
        Error::Retry { message, after } => {
            let after_ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
            types::ProcessError::Retry(types::RetryError { message, after_ms })
        }
        Error::Reject { message } => types::ProcessError::Reject(message),
        Error::StopShard { message } => types::ProcessError::StopShard(message),
    }
}

// === imports ===

pub(crate) fn log_enabled(level: Level) -> bool {
    logging::enabled(level.into())
}

pub(crate) fn log(level: Level, message: &str, fields: Vec<(String, String)>) {
    logging::log(level.into(), message, &fields);
}

impl From<Level> for logging::Level {
    fn from(level: Level) -> logging::Level {
        match level {
            Level::Trace => logging::Level::Trace,
            Level::Debug => logging::Level::Debug,
            Level::Info => logging::Level::Info,
            Level::Warn => logging::Level::Warn,
            Level::Error => logging::Level::Error,
        }
    }
}

pub(crate) fn metric_add(name: &str, labels: &[(&str, &str)], by: u64) {
    metrics::add(name, &owned(labels), by);
}

pub(crate) fn metric_set(name: &str, labels: &[(&str, &str)], value: f64) {
    metrics::set(name, &owned(labels), value);
}

pub(crate) fn metric_observe(name: &str, labels: &[(&str, &str)], value: f64) {
    metrics::observe(name, &owned(labels), value);
}

fn owned(labels: &[(&str, &str)]) -> Vec<(String, String)> {
    labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}
