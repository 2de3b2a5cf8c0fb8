use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Map, Value};
use wasmtime::component::ResourceTable;
use wasmtime::{Engine, Store, UpdateDeadline};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtxView, WasiHttpView};

use crate::guest_log::GuestLog;
use crate::guest_metrics::{Dropped, Measurement};
use crate::http::{Client, Http};
use crate::limiter::Limiter;
use crate::mask::Mask;
use crate::metrics::ProcessorMetrics;
use crate::threads::{Computed, Pace};
use crate::told::{Tell, Told};
use crate::{Limits, wasi};

/// Handles of host resources that an instance may hold at once, standard streams and timers.
const HANDLES: usize = 1000;

/// What the host keeps for one instance, where the guest's imports find it.
pub(crate) struct Host {
    pub(crate) wasi: WasiCtx,
    pub(crate) table: ResourceTable,
    http: Http,
    pub(crate) limiter: Limiter,
    pub(crate) log: GuestLog,
    pub(crate) cpu: Cpu,
    /// The current call's.
    pub(crate) pace: Arc<Pace>,
    pub(crate) configuration: Arc<Configuration>,
    pub(crate) metrics: ProcessorMetrics,
    reach: Arc<Reach>,
    processor: Arc<str>,
    metric_series: usize,
}

/// What all instances of a processor reach.
#[derive(Default)]
pub(crate) struct Reach {
    /// What they find in their environment.
    pub(crate) variables: Vec<(String, String)>,
    /// Hides what of it is secret.
    pub(crate) mask: Mask,
    pub(crate) http: Option<Client>,
    /// Which of its metrics the operator has been told of that are not kept.
    pub(crate) told: Told,
    /// Whether the operator has been told of a metric whose name holds a secret.
    pub(crate) has_told_of_name: AtomicBool,
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

/// What a guest does next that has seen the clock tick.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    GoOn,
    GiveWay,
    Stop,
}

// === impl Host ===

impl Host {
    pub(crate) fn new(
        processor: Arc<str>,
        configuration: Arc<Configuration>,
        limits: &Limits,
        log: GuestLog,
        metrics: ProcessorMetrics,
        pace: Arc<Pace>,
        reach: Arc<Reach>,
    ) -> Self {
        let mut table = ResourceTable::new();
        table.set_max_capacity(HANDLES);
        Self {
            wasi: wasi::context(&log, &reach.variables),
            table,
            http: Http::new(reach.http.clone()),
            limiter: Limiter::new(limits.memory_bytes),
            log,
            cpu: Cpu::new(limits.cpu_time),
            pace,
            configuration,
            metrics,
            reach,
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
            let host = store.data_mut();
            Ok(match host.cpu.tick(host.pace.computed()) {
                Next::Stop => UpdateDeadline::Interrupt,
                Next::GoOn => UpdateDeadline::Continue(1),
                Next::GiveWay => UpdateDeadline::YieldCustom(1, Box::pin(tokio::task::yield_now())),
            })
        });
        store
    }

    pub(crate) fn mask(&self) -> &Mask {
        &self.reach.mask
    }

    pub(crate) fn measure(&self, name: &str, mut labels: Vec<(String, String)>, measurement: Measurement) {
        let guest = self.metrics.guest();
        let mask = self.mask();
        if mask.finds(name) || labels.iter().any(|(name, _)| mask.finds(name)) {
            // A name cannot hold a mask.
            self.tell_of_name();
            return self.metrics.guest_metric_dropped();
        }
        for (_, value) in &mut labels {
            mask.string(value);
        }
        let kept = guest.record(&self.processor, self.metric_series, name, labels, measurement);
        if let Err(dropped) = kept {
            self.metrics.guest_metric_dropped();
            if dropped == Dropped::OtherKind {
                self.tell_other_kind(name);
            }
        }
    }
}

impl Host {
    /// Nothing else says why the metric is missing, and it may be another processor that has its name.
    fn tell_other_kind(&self, name: &str) {
        let processor = &*self.processor;
        match self.reach.told.is_new(name) {
            Tell::This => tracing::warn!(
                processor,
                metric = name,
                "a guest's measurements are dropped: under this name something of another kind is measured, by this or another \
                 processor: give it another name"
            ),
            Tell::EnoughOfIt => tracing::warn!(
                processor,
                "measurements of more names are dropped than are told one by one: \
                 shardmill_plugin_guest_metrics_dropped_total counts them"
            ),
            Tell::Nothing => {}
        }
    }

    /// Once: who wonders where a metric is may find it here, and the secret may be a word that many names have.
    fn tell_of_name(&self) {
        if !self.reach.has_told_of_name.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                processor = &*self.processor,
                "a metric of the guest is dropped, because the value of one of its secrets occurs in the metric's name or in \
                 that of a label: give one of them another name, or the secret another value"
            );
        }
    }
}

impl WasiHttpView for Host {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        let Http { context, hooks } = &mut self.http;
        WasiHttpCtxView { ctx: context, table: &mut self.table, hooks }
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
    fn new(limit: Duration) -> Self {
        Self { limit, used: Duration::ZERO }
    }

    /// The clock has ticked since the guest looked at it last, which may have been before it waited for something.
    fn tick(&mut self, computed: Computed) -> Next {
        self.used = computed.all;
        if self.is_used_up() {
            Next::Stop
        } else if computed.is_turn_over() {
            Next::GiveWay
        } else {
            Next::GoOn
        }
    }

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
    fn a_guest_gives_way_when_its_turn_is_over_and_is_stopped_when_it_has_computed_for_too_long() {
        let ms = Duration::from_millis;
        let mut cpu = Cpu::new(ms(100));
        let mut tick = |turn, all| cpu.tick(Computed { turn: ms(turn), all: ms(all) });
        assert_eq!(tick(10, 10), Next::GiveWay);
        // It has waited for something, has just begun again, and meets a tick from long ago: that is not its computing.
        assert_eq!([tick(0, 10), tick(1, 11), tick(8, 18)], [Next::GoOn, Next::GoOn, Next::GoOn]);
        assert_eq!(tick(10, 100), Next::GiveWay);
        assert_eq!(tick(1, 101), Next::Stop);
        assert!(cpu.is_used_up());
        cpu.begin();
        assert!(!cpu.is_used_up());
    }

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
