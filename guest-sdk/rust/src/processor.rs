//! The two traits to implement, one or the other.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::outcome::Exception;
use crate::output::{Emit, Mark};
use crate::{Batch, Error, Outcome, Record, RecordError, ShardContext};

/// A processor that takes a batch at a time.
///
/// An instance gets one call at a time. Instances are interchangeable and disposable: what one keeps in memory is
/// not promised to be there in the next call, so it may only be a help, such as a cache.
pub trait Processor: Sized + 'static {
    /// The `config` table of the configuration. Put `#[serde(deny_unknown_fields)]` on it, so that a misspelt key
    /// is refused; [`NoConfig`] if there is nothing to set.
    type Config: DeserializeOwned;

    /// Called once for each instance, before anything else.
    ///
    /// # Errors
    /// An error refuses the instance, and its message is the operator's.
    fn new(config: Self::Config) -> Result<Self, Error>;

    /// Processes records of one shard, in order.
    ///
    /// # Errors
    /// The call as a whole failed. Where one record is to blame, report that record in the outcome instead.
    fn process(&mut self, shard: &ShardContext, batch: &Batch<'_>) -> Result<Outcome, Error>;
}

/// A processor that takes a record at a time: an error fails just that record, and leaves none of its outputs.
///
/// What is said of instances at [`Processor`] holds here too. Every such type is a `Processor`.
pub trait RecordProcessor: Sized + 'static {
    /// As [`Processor::Config`].
    type Config: DeserializeOwned;

    /// As [`Processor::new`].
    ///
    /// # Errors
    /// An error refuses the instance, and its message is the operator's.
    fn new(config: Self::Config) -> Result<Self, Error>;

    /// Processes one record. Without an error and without [`RecordOutcome::skip`] it is done.
    ///
    /// # Errors
    /// The record failed, to be tried again or for good: see [`RecordError`].
    fn process_record(
        &mut self,
        shard: &ShardContext,
        record: Record<'_>,
        outcome: &mut RecordOutcome<'_, '_>,
    ) -> Result<(), RecordError>;
}

/// For processors that have nothing to configure: refuses every key.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoConfig {}

/// What becomes of one record.
#[derive(Debug)]
pub struct RecordOutcome<'o, 'r> {
    outcome: &'o mut Outcome,
    record: Record<'r>,
}

// === impl RecordOutcome ===

impl RecordOutcome<'_, '_> {
    /// Begins an output, caused by this record. It has the record's partition key and explicit hash key unless it
    /// is told otherwise.
    ///
    /// `name` is the output's name in the configuration, not the stream's name.
    pub fn emit<'k>(&'k mut self, name: &'k str) -> Emit<'k, 'k> {
        self.outcome.emit(name, self.record)
    }

    /// The record is passed over on purpose. It counts as done, and is counted and logged as skipped.
    pub fn skip(&mut self, reason: impl std::fmt::Display) {
        self.outcome.skip(self.record, reason);
    }
}

// === impl Processor ===

impl<P: RecordProcessor> Processor for P {
    type Config = P::Config;

    fn new(config: P::Config) -> Result<P, Error> {
        <P as RecordProcessor>::new(config)
    }

    fn process(&mut self, shard: &ShardContext, batch: &Batch<'_>) -> Result<Outcome, Error> {
        let mut outcome = batch.outcome();
        for record in batch {
            let before: Mark = outcome.outputs.mark();
            let result = self.process_record(shard, record, &mut RecordOutcome { outcome: &mut outcome, record });
            let failed = match result {
                Ok(()) => continue,
                Err(RecordError::Retry { reason }) => Exception::Failed { reason, retry: true },
                Err(RecordError::ForGood { reason }) => Exception::Failed { reason, retry: false },
                Err(RecordError::Call(error)) => return Err(error),
            };
            outcome.outputs.go_back(before);
            outcome.exceptions.insert(record.index_in_columns(), failed);
        }
        Ok(outcome)
    }
}

/// What `init` does: reads the configuration and makes the processor.
pub(crate) fn configure<P: Processor>(config: &str) -> Result<P, String> {
    let config = serde_json::from_str(config).map_err(|error| format!("the processor's config: {error}"))?;
    P::new(config).map_err(|error| error.to_string())
}
