//! One processor's guest: a module with its configuration, limits and grants.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;
use shardmill_cause::Coded;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use wasmtime::Engine;
use wasmtime::component::{Component, InstancePre, Linker};

use crate::abi;
use crate::guest_log::{Budget, GuestLog};
use crate::host::{Configuration, Host, Reach};
use crate::http::Client;
use crate::instance::explain;
use crate::interface::Contract;
use crate::machine::{Machine, TICKS};
use crate::mask::Mask;
use crate::metrics::ProcessorMetrics;
use crate::text::clean;
use crate::threads::{Allowance, Kept, Line, Pace};
use crate::{Failure, Grants, Instance, InvalidOutcome, Limits, Module, Need, Pool, Runtime, Timeout, module, wasi};

/// How much is kept of why a component does not fit: it may name what the component has made up.
const REASON_BYTES: usize = 4 << 10;

/// What a configuration says of one processor's guest.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The processor's name.
    pub processor: String,
    /// What the guest gets as its configuration: an object; anything else counts as an empty one.
    pub config: Value,
    /// What it may use up.
    pub limits: Limits,
    /// What it may do.
    pub grants: Grants,
}

/// Makes instances of one processor's guest. Cheap to clone.
#[derive(Clone)]
pub struct Plugin(Arc<Inner>);

struct Inner {
    runtime: Runtime,
    line: Line,
    module: Module,
    pre: InstancePre<Host>,
    indices: abi::Indices,
    processor: Arc<str>,
    configuration: Arc<Configuration>,
    limits: Limits,
    reach: Arc<Reach>,
    log_budget: Arc<Budget>,
    metrics: ProcessorMetrics,
}

// === impl Plugin ===

impl Plugin {
    /// Ties a module to a processor.
    ///
    /// # Errors
    /// If the module imports what this processor is not granted, or has other types than the contract.
    pub fn new(runtime: &Runtime, module: Module, settings: Settings) -> Result<Self, module::Error> {
        let Settings { processor, grants, .. } = &settings;
        module.check_grants(processor, grants)?;
        let (pre, indices) = link(runtime.engine(), module.component(), module.contract(), |need| grants.cover(need))
            .map_err(|reason| module::Error::Types { name: module.name().to_owned(), reason })?;
        let processor: Arc<str> = processor.as_str().into();
        let metrics = runtime.metrics().of_processor(&processor);
        let mask = Mask::new(grants.secrets.values());
        let http = grants.http.clone().map(|grant| {
            Client::new(grant, Arc::clone(&processor), metrics.clone(), mask.clone(), runtime.http().clone())
        });
        let reach = Reach { variables: grants.variables(), mask, http, ..Reach::default() };
        let config = match settings.config {
            Value::Object(table) => table,
            _nothing => serde_json::Map::new(),
        };
        let metrics = runtime.metrics().of_processor(&settings.processor);
        Ok(Self(Arc::new(Inner {
            line: runtime.threads().line(&processor, metrics.waits()),
            metrics,
            log_budget: Arc::new(Budget::new(settings.limits.log_lines_per_second)),
            processor,
            reach: Arc::new(reach),
            configuration: Arc::new(Configuration::new(config)),
            limits: settings.limits,
            runtime: runtime.clone(),
            module,
            pre,
            indices,
        })))
    }

    /// The module.
    pub fn module(&self) -> &Module {
        &self.0.module
    }

    /// What instances may use up.
    pub fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// The processor's name.
    pub fn processor(&self) -> &str {
        &self.0.processor
    }

    /// How many instances of the processor there are, of all versions of its plugin together.
    pub fn instances_of_processor(&self) -> usize {
        let instances = self.0.runtime.metrics().instances(&self.0.processor);
        usize::try_from(instances).unwrap_or(0)
    }

    /// A pool of at most so many instances at once, at least 1.
    pub fn pool(&self, instances: usize) -> Pool {
        Pool::new(self.clone(), instances)
    }

    /// Makes an instance and runs its `init`.
    ///
    /// # Errors
    /// If it does not start within its limits, or `init` refuses the configuration.
    pub async fn instance(&self) -> Result<Instance, Failure> {
        self.start(None).await
    }

    /// [`instance`](Self::instance), with a permit that is given back when nothing is left of it.
    pub(crate) async fn start(&self, permit: Option<OwnedSemaphorePermit>) -> Result<Instance, Failure> {
        let Inner { line, configuration, limits, metrics, .. } = &*self.0;
        let started = Instant::now();
        // For both, what is made and its `init`.
        let allowance = Allowance::new(limits.start_timeout);
        let (plugin, pace) = (self.clone(), Arc::clone(allowance.pace()));
        let made = match line.run_within(&allowance, async move { plugin.make(permit, pace).await }).await {
            Ok(made) => made,
            Err(_elapsed) => Err(Failure::Timeout(Timeout::Wall(limits.start_timeout))),
        };
        if made.is_err() {
            metrics.called("start", started.elapsed(), &made);
        }
        let mut instance = Instance::new(made?, self.clone(), metrics.clone());
        instance.init(Arc::clone(configuration), &allowance).await?;
        instance.started();
        Ok(instance)
    }

    async fn make(&self, permit: Option<OwnedSemaphorePermit>, pace: Arc<Pace>) -> Result<Kept<Machine>, Failure> {
        let Inner { runtime, line, pre, indices, processor, configuration, limits, reach, log_budget, metrics, .. } =
            &*self.0;
        let log = GuestLog::new(
            Arc::clone(processor),
            Arc::clone(log_budget),
            limits.log_line_bytes,
            metrics.clone(),
            reach.mask.clone(),
        );
        let (configuration, reach) = (Arc::clone(configuration), Arc::clone(reach));
        let host = Host::new(Arc::clone(processor), configuration, limits, log, metrics.clone(), pace, reach);
        let mut store = host.into_store(runtime.engine(), limits);
        store.set_epoch_deadline(TICKS);
        let made = async {
            let instance = pre.instantiate_async(&mut store).await?;
            indices.load(&mut store, &instance)
        };
        match made.await {
            Ok(exports) => Ok(Kept::new(Machine::new(store, exports, metrics.clone(), permit), line.clone())),
            Err(error) => Err(match explain(&mut store, error, limits) {
                // No guest has returned anything yet: the host itself could not make the instance.
                Failure::InvalidOutcome(InvalidOutcome::Malformed(reason)) => {
                    Failure::Host(format!("no instance of the guest can be made: {reason}"))
                }
                failure => failure,
            }),
        }
    }

    pub(crate) fn line(&self) -> &Line {
        &self.0.line
    }

    /// Tells an instance that it will not be called again, and frees what it has, where that keeps nobody waiting.
    pub(crate) async fn end(&self, mut instance: Instance) {
        if let Err(failure) = instance.shutdown().await {
            let (processor, guest) = (self.processor(), self.module().name());
            tracing::warn!(processor, guest, %failure, code = %failure.code(), "a guest failed when it was shut down");
        }
        instance.dismantle().await;
    }
}

/// Gives a component what it imports, and finds what it exports; both only if the types are the contract's.
pub(crate) fn link(
    engine: &Engine,
    component: &Component,
    contract: Contract,
    has: impl Fn(Need) -> bool + Copy,
) -> Result<(InstancePre<Host>, abi::Indices), String> {
    let linked = || {
        let mut linker = Linker::new(engine);
        wasi::link(&mut linker, has)?;
        abi::link(&mut linker, has)?;
        let pre = linker.instantiate_pre(component)?;
        let indices = abi::Indices::find(&pre, contract)?;
        Ok((pre, indices))
    };
    linked().map_err(|error: wasmtime::Error| clean(&format!("{error:#}"), REASON_BYTES))
}

impl fmt::Debug for Plugin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Plugin({}, {:?})", self.0.processor, self.0.module)
    }
}
