//! Testing a processor natively, without WebAssembly and without a host.
//!
//! [`configured`] makes a processor as a host would, [`run`] hands it records, and [`Inspected`] is what the host
//! would make of its answer. What a host would refuse panics here.

mod inspect;
mod recorder;
mod records;

pub use inspect::{HookResult, Inspected, Output, Verdict};
pub use recorder::{LogLine, Metric, MetricValue, logs, metrics, set_log_level};
pub use records::{Records, TestRecord, batch_of, record};

pub(crate) use recorder::{log, log_enabled, metric};

use serde::Serialize;

use crate::{Error, HookOutcome, Processor, ShardContext};

/// Makes a processor from a `config` table, for example `json!({ "minutes": 15 })`.
///
/// # Errors
/// As a host would tell the operator: the table is not as the processor wants it, or the processor refuses it.
///
/// # Panics
/// If the value cannot be JSON.
#[track_caller]
pub fn configured<P: Processor>(config: impl Serialize) -> Result<P, String> {
    crate::processor::configure(&serde_json::to_string(&config).expect("a config table is JSON"))
}

/// Hands records over as one batch, the first attempt at it, of some shard. A record can be given as its data
/// alone: `run(&mut processor, ["one", "two"])`.
///
/// # Errors
/// The processor's, about the whole call.
///
/// # Panics
/// If a host would refuse the outcome.
#[track_caller]
pub fn run<P, I>(processor: &mut P, records: I) -> Result<Inspected, Error>
where
    P: Processor,
    I: IntoIterator<Item: Into<TestRecord>>,
{
    run_in(&shard(), processor, records)
}

/// As [`run`], of the shard and the attempt that `shard` says.
///
/// # Errors
/// The processor's, about the whole call.
///
/// # Panics
/// If a host would refuse the outcome.
#[track_caller]
pub fn run_in<P, I>(shard: &ShardContext, processor: &mut P, records: I) -> Result<Inspected, Error>
where
    P: Processor,
    I: IntoIterator<Item: Into<TestRecord>>,
{
    let records = batch_of(records);
    let batch = records.batch();
    Ok(Inspected::new(processor.process(shard, &batch)?, batch.len()))
}

/// Calls a hook: `run_hook(|outcome| processor.idle(&shard, outcome))`.
///
/// # Errors
/// The hook's.
pub fn run_hook(hook: impl FnOnce(&mut HookOutcome) -> Result<(), Error>) -> Result<HookResult, Error> {
    let mut outcome = HookOutcome::new(1);
    hook(&mut outcome)?;
    Ok(HookResult::new(&outcome))
}

/// Some shard, at the first attempt at a batch.
pub fn shard() -> ShardContext {
    ShardContext {
        application: "test".to_owned(),
        processor: "test".to_owned(),
        stream: "test".to_owned(),
        shard_id: "shardId-000000000000".to_owned(),
        worker: "test".to_owned(),
        lease_epoch: 1,
        attempt: 1,
        millis_behind_latest: Some(0),
        last_batch: false,
    }
}
