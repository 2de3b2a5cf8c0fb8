use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use shardmill_record::Batch;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use wasmtime::{Store, WasmBacktrace};
use wasmtime_wasi::I32Exit;

use crate::abi::{Event, Exports, Returned};
use crate::backtrace::frames;
use crate::host::{Configuration, Host};
use crate::machine::{End, Machine};
use crate::metrics::ProcessorMetrics;
use crate::threads::{Allowance, Kept, Pace};
use crate::{
    Failure, GivenUpRecord, HookOutcome, InvalidOutcome, Limits, Mask, Outcome, Plugin, ShardContext, Timeout, Trap,
};

/// What wasmtime says when a guest hands over more than it may.
/// The error's type is private to wasmtime; a test pins its text.
const FUEL_IS_USED_UP: &str = "fuel allocated for hostcalls has been exhausted";

/// How much of an error's text and of a call stack is kept.
const TEXT_BYTES: usize = 2000;

/// A guest that has been started. It gets one call at a time. After a crash, a timeout, or a call whose future was
/// dropped, it is not usable any more and must be dropped.
pub struct Instance {
    /// It is away during a call, and for good if it cannot be called again.
    machine: Option<Kept<Machine>>,
    plugin: Plugin,
    metrics: ProcessorMetrics,
    /// As it was after the latest call.
    memory: usize,
    /// As it was when it had started.
    memory_at_first: usize,
    /// Calls since it has started.
    calls: u64,
    /// Gone when it is.
    identity: Arc<()>,
}

/// Which instance something is about, which may be gone.
#[derive(Debug, Clone)]
pub(crate) struct Identity(Weak<()>);

/// A call of one of the guest's functions.
type Calling<'a, T> = Pin<Box<dyn Future<Output = wasmtime::Result<T>> + Send + 'a>>;

/// What comes back from where a call ran.
struct Ended<T> {
    result: Result<T, Failure>,
    memory: usize,
    /// If another call can be made.
    machine: Option<Kept<Machine>>,
}

// === impl Instance ===

impl Instance {
    pub(crate) fn new(machine: Kept<Machine>, plugin: Plugin, metrics: ProcessorMetrics) -> Self {
        let memory = machine.memory();
        let (machine, identity) = (Some(machine), Arc::new(()));
        Self { memory, memory_at_first: memory, calls: 0, machine, plugin, metrics, identity }
    }

    /// What it does from now on counts.
    pub(crate) fn started(&mut self) {
        (self.memory_at_first, self.calls) = (self.memory, 0);
    }

    pub(crate) fn identity(&self) -> Identity {
        Identity(Arc::downgrade(&self.identity))
    }

    /// Why another one should take its place, if one should.
    pub(crate) fn spent(&self) -> Option<End> {
        let limits = self.plugin.limits();
        if limits.instance_calls.is_some_and(|most| self.calls >= most) {
            return Some(End::Calls);
        }
        has_grown(self.memory_at_first, self.memory, limits).then_some(End::Memory)
    }

    /// Whether the next call is the last one that it may have.
    pub(crate) fn is_at_last_call(&self) -> bool {
        self.plugin.limits().instance_calls.is_some_and(|most| self.calls.saturating_add(1) >= most)
    }

    /// What it counts as when it is gone.
    pub(crate) fn ends_as(&mut self, end: End) {
        if let Some(machine) = &mut self.machine {
            machine.ends_as(end);
        }
    }

    /// Whether it can be called.
    pub fn is_usable(&self) -> bool {
        self.machine.is_some()
    }

    /// Bytes of all its memories and tables together, after the latest call that came to an end.
    pub fn memory(&self) -> usize {
        self.memory
    }

    /// Takes a place in its pool, until it is vacated or nothing is left of the instance: the end of a call that is given
    /// up may take a moment.
    pub(crate) fn occupy(&mut self, permit: OwnedSemaphorePermit) {
        if let Some(machine) = &mut self.machine {
            machine.occupy(permit);
        }
    }

    pub(crate) fn vacate(&mut self) -> Option<OwnedSemaphorePermit> {
        self.machine.as_mut()?.vacate()
    }

    /// Nothing is left of it when this ends.
    pub(crate) async fn dismantle(mut self) {
        if let Some(machine) = self.machine.take() {
            self.plugin.line().run(&Pace::new(), async move { drop(machine) }).await;
        }
    }

    pub(crate) async fn init(&mut self, config: Arc<Configuration>, allowance: &Allowance) -> Result<(), Failure> {
        self.call(
            "init",
            allowance,
            None,
            move |exports, store| Box::pin(async move { exports.init(store, config.text()).await }),
            |refused, mask| refused.map_err(|text| Failure::Refused(mask.reason(text))),
        )
        .await
    }

    /// Hands a batch over.
    ///
    /// # Errors
    /// See [`Failure`]; see [`is_usable`](Self::is_usable) for whether another call can be made.
    pub async fn process_batch(&mut self, shard: &ShardContext, records: &Batch) -> Result<Outcome, Failure> {
        let allowance = Allowance::new(self.plugin.limits().batch_timeout);
        let (context, records) = (shard.clone(), records.clone());
        self.call(
            "process-batch",
            &allowance,
            Some(shard),
            move |exports, store| Box::pin(async move { exports.process_batch(store, &context, &records).await }),
            returned,
        )
        .await
    }

    /// Tells that the shard's lease is held and its first batch comes next. Nothing happens if the guest has no hooks;
    /// so with all of them. `id` is the cause that the hook's outputs must name.
    ///
    /// # Errors
    /// As [`process_batch`](Self::process_batch); so with all hooks.
    pub async fn assigned(&mut self, id: u64, shard: &ShardContext) -> Result<HookOutcome, Failure> {
        self.hook(id, shard, Event::Assigned).await
    }

    /// Tells that the shard goes to another worker, or that this one stops. The call is ended after `time_left_ms`,
    /// waits for a thread included.
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
        self.hook(id, shard, Event::GivenUp(records.to_vec())).await
    }

    /// Tells that the instance will not be called again. The call is ended after `hook_timeout`, waits for a thread included.
    pub async fn shutdown(&mut self) -> Result<(), Failure> {
        if !self.plugin.module().hooks() {
            return Ok(());
        }
        // Waits for a thread included: nothing of it is tried again, and as long as it lasts it is one instance more.
        let allowance = Allowance::with_waits(self.plugin.limits().hook_timeout);
        self.call(
            "shutdown",
            &allowance,
            None,
            |exports, store| Box::pin(exports.shutdown(store)),
            |failed, mask| failed.map_err(|text| Failure::Refused(mask.reason(text))),
        )
        .await
    }

    async fn hook(&mut self, id: u64, shard: &ShardContext, event: Event) -> Result<HookOutcome, Failure> {
        if !self.plugin.module().hooks() {
            return Ok(HookOutcome::default());
        }
        let allowance = match event {
            // The lease goes when it goes.
            Event::Revoked { time_left_ms } => Allowance::with_waits(Duration::from_millis(time_left_ms)),
            _ => Allowance::new(self.plugin.limits().hook_timeout),
        };
        let (name, context) = (event.name(), shard.clone());
        self.call(
            name,
            &allowance,
            Some(shard),
            move |exports, store| Box::pin(async move { exports.hook(store, id, &context, event).await }),
            returned,
        )
        .await
    }

    /// Makes a call on the threads of guests, within the time that it may take. Until it has come to an end the instance
    /// counts as broken: if this future is dropped, it stays so.
    async fn call<T, R>(
        &mut self,
        name: &'static str,
        allowance: &Allowance,
        shard: Option<&ShardContext>,
        call: impl for<'a> FnOnce(&'a Exports, &'a mut Store<Host>) -> Calling<'a, T> + Send + 'static,
        read: fn(T, &Mask) -> Result<R, Failure>,
    ) -> Result<R, Failure>
    where
        T: Send + 'static,
        R: Send + 'static,
    {
        let Some(mut machine) = self.machine.take() else {
            let reason = "the instance broke down in an earlier call and cannot be called";
            return Err(Failure::Host(reason.to_owned()));
        };
        let started = Instant::now();
        self.calls += 1;
        machine.prepare(shard, allowance.pace());
        let log = machine.store.data().log.clone();
        let plugin = self.plugin.clone();
        let running = self.plugin.line().run_within(allowance, async move {
            machine.begin();
            let Machine { exports, store, .. } = &mut *machine;
            let result = call(exports, store).await;
            Ended::new(machine, result, plugin.limits(), read)
        });
        let result = match running.await {
            Ok(ended) => {
                self.memory = ended.memory;
                self.machine = ended.machine;
                ended.result
            }
            Err(_elapsed) => {
                log.end();
                Err(Failure::Timeout(Timeout::Wall(allowance.time())))
            }
        };
        self.metrics.called(name, started.elapsed(), &result);
        self.metrics.memory(self.memory);
        result
    }
}

impl fmt::Debug for Instance {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Instance({:?})", self.plugin)
    }
}

// === impl Identity ===

impl Identity {
    pub(crate) fn is_of(&self, instance: &Instance) -> bool {
        std::ptr::eq(self.0.as_ptr(), Arc::as_ptr(&instance.identity))
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.0.strong_count() == 0
    }
}

// === impl Ended ===

impl<R> Ended<R> {
    /// What a call came to. A machine that broke down is dropped here, where the guest ran: freeing its memory takes time.
    fn new<T>(
        mut machine: Kept<Machine>,
        result: wasmtime::Result<T>,
        limits: &Limits,
        read: fn(T, &Mask) -> Result<R, Failure>,
    ) -> Self {
        let memory = machine.memory();
        let (result, machine) = match result {
            Ok(value) => {
                machine.end_call();
                (read(value, machine.store.data().mask()), Ok(machine))
            }
            Err(error) => (Err(explain(&mut machine.store, error, limits)), Err(machine)),
        };
        Self { result, memory, machine: machine.ok() }
    }
}

/// What an error of wasmtime means. It goes to logs, dead letters and whoever asks for the status, and some of it may be the
/// guest's own words.
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
    // Not the whole error: it writes the call stack out as wasmtime does (see `backtrace.rs`).
    let cause = error.root_cause().to_string();
    if cause.contains(FUEL_IS_USED_UP) {
        return Failure::InvalidOutcome(InvalidOutcome::TooLarge { limit: limits.outcome_bytes });
    }
    let mask = host.mask();
    let backtrace = error.downcast_ref::<WasmBacktrace>();
    let message = match (error.downcast_ref::<wasmtime::Trap>(), error.downcast_ref::<I32Exit>()) {
        (Some(trap), _) => trap.to_string(),
        (_, Some(I32Exit(status))) => format!("it exited with status {status}"),
        // The guest had returned, and the host could not read what.
        _ if backtrace.is_none() => {
            return InvalidOutcome::Malformed(mask.shown(&format!("{error:#}"), TEXT_BYTES)).into();
        }
        _ => mask.shown(&cause, TEXT_BYTES),
    };
    let backtrace = backtrace.map(|backtrace| cut(&mask.within(&frames(backtrace), TEXT_BYTES))).unwrap_or_default();
    Failure::Trap(Trap { message, backtrace, stderr })
}

/// Whether memory has come so far from what it was at first to the most that it may be that an instance is replaced.
fn has_grown(first: usize, now: usize, limits: &Limits) -> bool {
    let room = limits.memory_bytes.saturating_sub(first) as u128;
    let grown = now.saturating_sub(first) as u128;
    limits.retire_above < 100 && grown * 100 > room * u128::from(limits.retire_above)
}

fn returned<T>(returned: Returned<T>, _: &Mask) -> Result<T, Failure> {
    Ok(returned??)
}

fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(TEXT_BYTES)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_has_grown_by_what_it_has_taken_since_its_start() {
        let limits = |retire_above| Limits { memory_bytes: 1000, retire_above, ..Limits::default() };
        // A guest that is large from its start on is not replaced for it.
        assert!(!has_grown(800, 800, &limits(50)));
        assert!(!has_grown(800, 900, &limits(50)));
        assert!(has_grown(800, 901, &limits(50)));
        assert!(has_grown(0, 501, &limits(50)) && !has_grown(0, 500, &limits(50)));
        assert!(has_grown(0, 11, &limits(1)));
        assert!(!has_grown(0, 1000, &limits(100)));
        assert!(!has_grown(1000, 1000, &limits(1)));
    }
}
