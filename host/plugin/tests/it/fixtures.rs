//! Guests that were built once and are kept as they are: whatever becomes of the host, they run as on their first day.
//! `tests/fixtures/README.md` says what each is and how it was built; none is ever built again.

use serde_json::{Value, json};
use shardmill_plugin::{
    Abi, Cause, Done, Failure, Form, GivenUpRecord, Grants, HookOutcome, Instance, Limits, Metrics, Outcome,
    OutcomeLimits, Plugin, ProcessError, Runtime, RuntimeOptions, Settings, Verdict,
};

use crate::support::{Log, World, batch, shard};

const ROWS: &[u8] = include_bytes!("../fixtures/v0.1/rows.wasm");
const COLUMNS: &[u8] = include_bytes!("../fixtures/v0.1/columnar.wasm");
const ROWS_BARE: &[u8] = include_bytes!("../fixtures/v0.1/rows-bare.wasm");
const COLUMNS_BARE: &[u8] = include_bytes!("../fixtures/v0.1/columnar-bare.wasm");

async fn instance(bytes: &[u8], form: Form, hooks: bool, config: Value) -> Instance {
    let options = RuntimeOptions { cache_dir: World::cache_dir(), max_instances: 2, ..RuntimeOptions::default() };
    let runtime = Runtime::new(options, Metrics::default()).unwrap();
    let module = runtime.load("fixture", bytes).await.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((module.abi(), module.form(), module.hooks()), (Abi::V0_1, form, hooks));
    let (limits, grants) =
        (Limits::default(), Grants { clocks: true, random: true, metrics: true, ..Grants::default() });
    let settings = Settings { processor: "flights".into(), config, limits, grants };
    Plugin::new(&runtime, module, settings).unwrap().instance().await.unwrap_or_else(|failure| panic!("{failure}"))
}

fn assert_echo(outcome: Outcome) {
    let records = batch();
    assert_eq!(outcome.outputs.len(), 4);
    for (index, (output, record)) in outcome.outputs.iter().zip(records.iter()).enumerate() {
        assert_eq!((&*output.name, output.cause), ("out", Cause::Record(index as u32)));
        assert_eq!((&*output.record.partition_key, &*output.record.data), (record.partition_key, record.data));
        let key = output.record.explicit_hash_key.map(|key| key.to_string());
        assert_eq!(key.as_deref(), record.explicit_hash_key);
    }
    let settled = outcome.settle(4, &|name| name == "out", &OutcomeLimits::default()).unwrap();
    assert_eq!(settled.verdicts, [const { Verdict::Done }; 4]);
}

async fn process(instance: &mut Instance) -> Result<Outcome, Failure> {
    instance.process_batch(&shard(), &batch()).await
}

#[tokio::test]
async fn rows_of_0_1_are_processed() {
    let mut echo = instance(ROWS, Form::Rows, true, json!({ "do": "echo" })).await;
    let outcome = process(&mut echo).await.unwrap();
    assert_eq!(outcome.checkpoint, Some(batch().position(3)));
    assert_echo(outcome);
    assert_echo(process(&mut echo).await.unwrap());
    let mut rows = instance(ROWS, Form::Rows, true, json!({ "do": "failed-and-skipped" })).await;
    let outcome = process(&mut rows).await.unwrap();
    assert_eq!((outcome.done, outcome.failed[0].index, outcome.skipped[0].index), (Done::Before(2), 0, 2));
    let mut rows = instance(ROWS, Form::Rows, true, json!({ "do": "stop-shard" })).await;
    let stop = ProcessError::StopShard { message: "look at this".into() };
    assert_eq!(process(&mut rows).await, Err(Failure::Guest(stop)));
}

#[tokio::test]
async fn what_rows_of_0_1_import_is_there() {
    let (log, _guard) = Log::capture();
    process(&mut instance(ROWS, Form::Rows, true, json!({ "do": "log" })).await).await.unwrap();
    assert!(log.lines()[0].contains("WARN guest: a late flight"), "{:?}", log.lines());
    let config = json!({ "do": "configuration", "nested": { "key": [1] } });
    let outcome = process(&mut instance(ROWS, Form::Rows, true, config).await).await.unwrap();
    assert_eq!(&*outcome.outputs[1].record.data, b"[1]");
    process(&mut instance(ROWS, Form::Rows, true, json!({ "do": "measure" })).await).await.unwrap();
    // Standard output and error, clocks and waiting, as a standard library uses WASI.
    process(&mut instance(ROWS, Form::Rows, true, json!({ "do": "print" })).await).await.unwrap();
    process(&mut instance(ROWS, Form::Rows, true, json!({ "do": "nap" })).await).await.unwrap();
}

#[tokio::test]
async fn hooks_of_0_1_are_called() {
    let mut rows = instance(ROWS, Form::Rows, true, json!({})).await;
    let shard = shard();
    let given_up = GivenUpRecord { position: batch().position(0), reason: "bad".into(), attempts: 5 };
    let told = [
        rows.assigned(1, &shard).await,
        rows.revoked(2, &shard, 900).await,
        rows.shard_ended(3, &shard).await,
        rows.given_up(4, &shard, &[given_up]).await,
    ];
    for (id, told) in (1..).zip(told) {
        assert_eq!(told.unwrap().outputs[0].cause, Cause::Hook(id));
    }
    assert!(matches!(rows.idle(5, &shard).await, Err(Failure::Guest(ProcessError::Reject { .. }))));
    assert_eq!(rows.shutdown().await, Ok(()));
}

#[tokio::test]
async fn columns_of_0_1_are_processed() {
    let mut columns = instance(COLUMNS, Form::Columnar, false, json!({ "do": "retry-unless-whole" })).await;
    assert_echo(process(&mut columns).await.unwrap());
    assert_echo(process(&mut columns).await.unwrap());
    assert_eq!(columns.assigned(1, &shard()).await, Ok(HookOutcome::default()));
}

/// All of the contract and nothing of anybody's library.
#[tokio::test]
async fn guests_of_0_1_without_a_library_are_called() {
    for (bytes, form) in [(ROWS_BARE, Form::Rows), (COLUMNS_BARE, Form::Columnar)] {
        let mut bare = instance(bytes, form, true, json!({})).await;
        assert_eq!(process(&mut bare).await, Ok(Outcome::default()));
        assert_eq!(bare.assigned(1, &shard()).await, Ok(HookOutcome::default()));
        assert_eq!(bare.revoked(2, &shard(), 900).await, Ok(HookOutcome::default()));
        assert_eq!(bare.shutdown().await, Ok(()));
    }
}
