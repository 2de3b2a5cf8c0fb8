use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use wasmtime::component::ResourceTable;
use wasmtime::{Engine, Store, UpdateDeadline};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

use crate::guest_log::GuestLog;
use crate::guest_metrics::Measurement;
use crate::limiter::Limiter;
use crate::metrics::ProcessorMetrics;
use crate::runtime::TICK;
use crate::{Limits, wasi};

/// Handles of host resources that an instance may hold at once, standard streams and timers.
const HANDLES: usize = 1000;

/// What the host keeps for one instance, where the guest's imports find it.
pub(crate) struct Host {
    pub(crate) wasi: WasiCtx,
    pub(crate) table: ResourceTable,
    pub(crate) limiter: Limiter,
    pub(crate) log: GuestLog,
    pub(crate) cpu: Cpu,
    pub(crate) configuration: Arc<Configuration>,
    pub(crate) metrics: ProcessorMetrics,
    processor: Arc<str>,
    metric_series: usize,
}

/// The processor's `config` table.
#[derive(Debug)]
pub(crate) struct Configuration {
    table: Value,
    /// The table as JSON, as `init` is given it.
    text: String,
}

/// How long the current call may still compute.
#[derive(Debug)]
pub(crate) struct Cpu {
    limit: Duration,
    used: Duration,
}

// === impl Host ===

impl Host {
    pub(crate) fn new(
        processor: Arc<str>,
        configuration: Arc<Configuration>,
        limits: &Limits,
        log: GuestLog,
        metrics: ProcessorMetrics,
    ) -> Self {
        let mut table = ResourceTable::new();
        table.set_max_capacity(HANDLES);
        Self {
            wasi: wasi::context(&log),
            table,
            limiter: Limiter::new(limits.memory_bytes),
            log,
            cpu: Cpu { limit: limits.cpu_time, used: Duration::ZERO },
            configuration,
            metrics,
            processor,
            metric_series: limits.metric_series,
        }
    }

    /// A store with all its limits in force.
    pub(crate) fn into_store(self, engine: &Engine, limits: &Limits) -> Store<Host> {
        let mut store = Store::new(engine, self);
        store.limiter(|host| &mut host.limiter);
        store.set_hostcall_fuel(limits.outcome_bytes);
        store.set_max_component_handles(HANDLES);
        store.epoch_deadline_callback(|mut store| {
            let cpu = &mut store.data_mut().cpu;
            cpu.used += TICK;
            if cpu.is_used_up() {
                return Ok(UpdateDeadline::Interrupt);
            }
            Ok(UpdateDeadline::YieldCustom(1, Box::pin(tokio::task::yield_now())))
        });
        store
    }

    pub(crate) fn measure(&self, name: &str, labels: Vec<(String, String)>, measurement: Measurement) {
        let guest = self.metrics.guest();
        if guest.record(&self.processor, self.metric_series, name, labels, measurement).is_err() {
            self.metrics.guest_metric_dropped();
        }
    }
}

impl WasiView for Host {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

// === impl Configuration ===

impl Configuration {
    pub(crate) fn new(table: Map<String, Value>) -> Self {
        let table = Value::Object(table);
        Self { text: table.to_string(), table }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// One value as JSON; a dot reaches into tables.
    pub(crate) fn get(&self, key: &str) -> Option<String> {
        let found = key.split('.').try_fold(&self.table, |table, part| table.as_object()?.get(part));
        // A key that has a dot itself, as TOML allows in quotes.
        found.or_else(|| self.table.get(key)).map(Value::to_string)
    }
}

// === impl Cpu ===

impl Cpu {
    pub(crate) fn begin(&mut self) {
        self.used = Duration::ZERO;
    }

    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    pub(crate) fn is_used_up(&self) -> bool {
        self.used > self.limit
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_dot_reaches_into_tables() {
        let Value::Object(table) = json!({ "a": { "b": [1, 2], "c": "x" }, "d.e": true }) else { unreachable!() };
        let configuration = Configuration::new(table);
        let get = |key| configuration.get(key);
        assert_eq!(get("a.b").as_deref(), Some("[1,2]"));
        assert_eq!(get("a.c").as_deref(), Some("\"x\""));
        assert_eq!(get("a").as_deref(), Some(r#"{"b":[1,2],"c":"x"}"#));
        assert_eq!(get("d.e").as_deref(), Some("true"));
        assert_eq!((get("a.b.0"), get("a.x"), get(""), get("a.")), (None, None, None, None));
    }
}
