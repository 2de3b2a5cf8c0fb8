use std::fmt;
use std::time::Duration;

use shardmill_record::Batch;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout};
use wasmtime::{Store, WasmBacktrace};
use wasmtime_wasi::I32Exit;

use crate::abi::{Event, Exports, Returned};
use crate::host::Host;
use crate::metrics::ProcessorMetrics;
use crate::{
    Failure, GivenUpRecord, HookOutcome, InvalidOutcome, Limits, Outcome, Plugin, ShardContext, Timeout, Trap,
};

/// What wasmtime says when a guest hands over more than it may.
/// The error's type is private to wasmtime; a test pins its text.
const FUEL_IS_USED_UP: &str = "fuel allocated for hostcalls has been exhausted";

/// How much of an error's text and of a call stack is kept.
const TEXT_CHARACTERS: usize = 2000;

/// A guest that has been started. It gets one call at a time. After a crash, a timeout, or a call whose future was
/// dropped, it is not usable any more and must be dropped.
pub struct Instance {
    store: Store<Host>,
    exports: Exports,
    plugin: Plugin,
    metrics: ProcessorMetrics,
    is_usable: bool,
}

// === impl Instance ===

impl Instance {
    pub(crate) fn new(store: Store<Host>, exports: Exports, plugin: Plugin, metrics: ProcessorMetrics) -> Self {
        metrics.instance_created();
        Self { store, exports, plugin, metrics, is_usable: true }
    }

    /// Whether it can be called.
    pub fn is_usable(&self) -> bool {
        self.is_usable
    }

    /// Bytes of all its memories and tables together.
    pub fn memory(&self) -> usize {
        self.store.data().limiter.used()
    }

    pub(crate) async fn init(&mut self, config: &str) -> Result<(), Failure> {
        let limit = self.plugin.limits().start_timeout;
        let started = self.begin(None)?;
        let result = timeout(limit, self.exports.init(&mut self.store, config)).await;
        let result = self.end(result, limit).and_then(|refused| refused.map_err(Failure::Refused));
        self.count("init", started, result)
    }

    /// Hands a batch over.
    ///
    /// # Errors
    /// See [`Failure`]; see [`is_usable`](Self::is_usable) for whether another call can be made.
    pub async fn process_batch(&mut self, shard: &ShardContext, records: &Batch) -> Result<Outcome, Failure> {
        let limit = self.plugin.limits().batch_timeout;
        let started = self.begin(Some(shard))?;
        let result = timeout(limit, self.exports.process_batch(&mut self.store, shard, records)).await;
        let result = self.end(result, limit).and_then(returned);
        self.count("process-batch", started, result)
    }

    /// Tells that the shard's lease is held and its first batch comes next. Nothing happens if the guest has no hooks;
    /// so with all of them. `id` is the cause that the hook's outputs must name.
    ///
    /// # Errors
    /// As [`process_batch`](Self::process_batch); so with all hooks.
    pub async fn assigned(&mut self, id: u64, shard: &ShardContext) -> Result<HookOutcome, Failure> {
        self.hook(id, shard, Event::Assigned).await
    }

    /// Tells that the shard goes to another worker, or that this one stops. The call is ended after `time_left_ms`.
    pub async fn revoked(&mut self, id: u64, shard: &ShardContext, time_left_ms: u64) -> Result<HookOutcome, Failure> {
        self.hook(id, shard, Event::Revoked { time_left_ms }).await
    }

    /// Tells that the shard is closed, and every record of it is done.
    pub async fn shard_ended(&mut self, id: u64, shard: &ShardContext) -> Result<HookOutcome, Failure> {
        self.hook(id, shard, Event::ShardEnded).await
    }

    /// Tells that the shard had nothing new.
    pub async fn idle(&mut self, id: u64, shard: &ShardContext) -> Result<HookOutcome, Failure> {
        self.hook(id, shard, Event::Idle).await
    }

    /// Tells which records the failure policy gave up. To be told once.
    pub async fn given_up(
        &mut self,
        id: u64,
        shard: &ShardContext,
        records: &[GivenUpRecord],
    ) -> Result<HookOutcome, Failure> {
        self.hook(id, shard, Event::GivenUp(records)).await
    }

    /// Tells that the instance will not be called again.
    pub async fn shutdown(&mut self) -> Result<(), Failure> {
        if !self.exports.has_hooks() {
            return Ok(());
        }
        let limit = self.plugin.limits().hook_timeout;
        let started = self.begin(None)?;
        let result = timeout(limit, self.exports.shutdown(&mut self.store)).await;
        let result = self.end(result, limit).and_then(|failed| failed.map_err(Failure::Refused));
        self.count("shutdown", started, result)
    }

    async fn hook(&mut self, id: u64, shard: &ShardContext, event: Event<'_>) -> Result<HookOutcome, Failure> {
        if !self.exports.has_hooks() {
            return Ok(HookOutcome::default());
        }
        let limit = match event {
            Event::Revoked { time_left_ms } => Duration::from_millis(time_left_ms),
            _other => self.plugin.limits().hook_timeout,
        };
        let started = self.begin(Some(shard))?;
        let result = timeout(limit, self.exports.hook(&mut self.store, id, shard, event)).await;
        let result = self.end(result, limit).and_then(returned);
        self.count(event.name(), started, result)
    }

    /// Until [`end`](Self::end) the instance counts as broken: if the call's future is dropped, it stays so.
    fn begin(&mut self, shard: Option<&ShardContext>) -> Result<Instant, Failure> {
        if !self.is_usable {
            return Err(Failure::Host("the instance broke down in an earlier call and cannot be called".to_owned()));
        }
        self.is_usable = false;
        let host = self.store.data_mut();
        host.cpu.begin();
        host.limiter.take_refused();
        host.log.begin(shard);
        self.store.set_epoch_deadline(1);
        Ok(Instant::now())
    }

    fn end<T>(&mut self, result: Result<wasmtime::Result<T>, Elapsed>, limit: Duration) -> Result<T, Failure> {
        match result {
            Ok(Ok(value)) => {
                self.is_usable = true;
                self.store.data().log.end();
                Ok(value)
            }
            Ok(Err(error)) => Err(Self::explain(&mut self.store, error, self.plugin.limits())),
            Err(_elapsed) => {
                self.store.data().log.end();
                Err(Failure::Timeout(Timeout::Wall(limit)))
            }
        }
    }

    fn count<T>(&self, call: &'static str, started: Instant, result: Result<T, Failure>) -> Result<T, Failure> {
        self.metrics.called(call, started.elapsed(), &result);
        self.metrics.memory(self.memory());
        result
    }

    /// What an error of wasmtime means.
    pub(crate) fn explain(store: &mut Store<Host>, error: wasmtime::Error, limits: &Limits) -> Failure {
        let host = store.data_mut();
        let stderr = host.log.end();
        if host.cpu.is_used_up() {
            return Failure::Timeout(Timeout::Cpu(host.cpu.limit()));
        }
        // A guest that is refused memory crashes in its own way, and that crash is not what an operator can mend.
        if let Some(wanted) = host.limiter.take_refused() {
            return Failure::Memory { wanted, limit: host.limiter.limit() };
        }
        let reason = format!("{error:#}");
        if reason.contains(FUEL_IS_USED_UP) {
            return Failure::InvalidOutcome(InvalidOutcome::TooLarge { limit: limits.outcome_bytes });
        }
        let backtrace = error.downcast_ref::<WasmBacktrace>();
        let message = match (error.downcast_ref::<wasmtime::Trap>(), error.downcast_ref::<I32Exit>()) {
            (Some(trap), _) => trap.to_string(),
            (_, Some(I32Exit(status))) => format!("it exited with status {status}"),
            // The guest had returned, and the host could not read what.
            _ if backtrace.is_none() => return InvalidOutcome::Malformed(cut(&reason)).into(),
            _ => cut(&error.root_cause().to_string()),
        };
        let backtrace = backtrace.map(|backtrace| cut(&backtrace.to_string())).unwrap_or_default();
        Failure::Trap(Trap { message, backtrace, stderr })
    }
}

impl fmt::Debug for Instance {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Instance({:?})", self.plugin)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.metrics.instance_dropped();
    }
}

fn returned<T>(returned: Returned<T>) -> Result<T, Failure> {
    Ok(returned??)
}

fn cut(text: &str) -> String {
    text.chars().take(TEXT_CHARACTERS).collect()
}
