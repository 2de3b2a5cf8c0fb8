//! Guests that attack the host, each in one way: which limit holds, what the error says, that nothing is left of the
//! instance, and that the next call works.

mod guest;
mod memory;
mod outcome;
mod speech;
mod start;
mod time;

use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::json;
use shardmill_plugin::{
    Failure, Grants, Instance, Limits, Metrics, Outcome, Plugin, Pool, Runtime, RuntimeOptions, Settings,
};
use shardmill_record::{Batch, BatchBuilder};

use crate::support::{batch, shard};
pub(crate) use guest::{BAD, Bytes, Guest};

/// No wait of a test is as long as this.
const LONG: Duration = Duration::from_secs(60);

/// A processor with a hostile guest.
pub(crate) struct Host {
    pub(crate) pool: Pool,
    pub(crate) metrics: Metrics,
    registry: Registry,
}

fn runtime(metrics: Metrics) -> Runtime {
    Runtime::new(RuntimeOptions { max_instances: 16, ..RuntimeOptions::default() }, metrics).unwrap()
}

impl Host {
    pub(crate) async fn of(guest: &Guest) -> Self {
        Self::within(guest, Limits::default()).await
    }

    pub(crate) async fn within(guest: &Guest, limits: Limits) -> Self {
        Self::of_component(guest.component(), limits).await
    }

    pub(crate) async fn of_component(component: Vec<u8>, limits: Limits) -> Self {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let runtime = runtime(metrics.clone());
        let module = runtime.load("hostile.wasm", component).await.unwrap_or_else(|error| panic!("{error}"));
        let settings = Settings {
            processor: "hostile".into(),
            config: json!({ "key": "value" }),
            limits,
            grants: Grants { clocks: true, random: true, metrics: true, ..Grants::default() },
        };
        let plugin = Plugin::new(&runtime, module, settings).unwrap();
        Self { pool: plugin.pool(1), metrics, registry }
    }

    pub(crate) async fn instance(&self) -> Result<Instance, Failure> {
        self.pool.plugin().instance().await
    }

    /// Lets it attack once, and does not let it get away with that.
    pub(crate) async fn attacked(&self) -> Failure {
        let broken = self.metrics.instances_retired("hostile", "failed");
        let mut instance = self.pool.get().await.unwrap();
        let failure = instance.process_batch(&shard(), &batch()).await.expect_err("it gets away with it");
        assert!(!instance.is_usable(), "{failure}");
        assert!(instance.memory() <= instance_limit(&self.pool), "{} bytes", instance.memory());
        drop(instance);
        assert_eq!(self.metrics.instances("hostile"), 0, "{failure}");
        assert_eq!(self.metrics.instances_retired("hostile", "failed"), broken + 1, "{failure}");
        self.counted("process-batch", &failure, broken + 1);
        assert_eq!(self.works().await, Outcome::default());
        failure
    }

    /// Lets it attack once, which may do what it likes to itself and nothing else.
    pub(crate) async fn survived(&self) -> Outcome {
        let outcome = self.pool.get().await.unwrap().process_batch(&shard(), &batch()).await;
        let outcome = outcome.unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(self.works().await, Outcome::default());
        outcome
    }

    /// What it makes of a batch to which it does nothing.
    pub(crate) async fn works(&self) -> Outcome {
        let mut instance = self.pool.get().await.unwrap();
        instance.process_batch(&shard(), &nothing()).await.unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// The metrics name the processor, the call and the kind of a failure.
    #[track_caller]
    pub(crate) fn counted(&self, call: &str, failure: &Failure, times: u64) {
        let labels = format!(r#"{{processor="hostile",call="{call}",kind="{}"}}"#, failure.kind());
        let line = format!("shardmill_plugin_call_failures_total{labels} {times}");
        let text = self.text();
        assert!(text.lines().any(|found| found == line), "{line} is not in:\n{text}");
    }

    /// What `/metrics` says.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        text
    }
}

fn instance_limit(pool: &Pool) -> usize {
    pool.plugin().limits().memory_bytes
}

fn nothing() -> Batch {
    BatchBuilder::default().build()
}
