//! What all guests of a process share: the compiler, its cache, and the clock that interrupts them.

use std::fmt;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;
use wasmtime::component::Component;
use wasmtime::{Engine, EngineWeak};

use crate::cache::{Cache, Compatibility, Sealed};
use crate::compiler::{self, Compiler, Stopped};
use crate::http::Shared;
use crate::interface::{Contract, Interface};
use crate::text::clean;
use crate::threads::Threads;
use crate::{Digest, LoadLimits, Metrics, Module, engine, module, plugin};

/// How often a guest that computes is interrupted, to give way to others if its turn has lasted so long, or to be stopped.
pub const TICK: Duration = Duration::from_millis(10);

/// How many guests are compiled at a time. Each takes as many threads as there are processors; a second one gets on while the
/// first is stuck.
const COMPILING: usize = 2;
/// How much is kept of why a component does not fit.
const REASON_BYTES: usize = 1 << 10;

/// How a [`Runtime`] is made.
#[derive(Debug, Clone)]
pub struct RuntimeOptions {
    /// Where compiled code is kept; without, every start compiles. The directory is made, for its owner alone.
    pub cache_dir: Option<PathBuf>,
    /// Instances that may exist at once, of all processors together. Default 256.
    pub max_instances: u32,
    /// On how many threads guests run, which are started with the runtime and end with whatever was made with it; one more
    /// takes calls that have just come, until they have computed for a tick or two. Without, a call runs where it is
    /// awaited, as tests on paused time need it. Default none.
    pub threads: Option<NonZeroUsize>,
    /// The program that compiles guests, in a process of its own for each. Without, they are compiled in this process, and
    /// the memory that it takes is not bounded. Default none.
    pub compiler: Option<Compiler>,
}

/// What all guests of a process share. Cheap to clone.
#[derive(Clone)]
pub struct Runtime(Arc<Inner>);

struct Inner {
    engine: Engine,
    cache: Cache,
    metrics: Metrics,
    http: Shared,
    threads: Threads,
    compiler: Option<Compiler>,
    /// One for each guest that may be compiled at a time.
    compiling: Arc<Semaphore>,
}

/// What is known of a component before it is compiled.
struct Found {
    checked: (Interface, Contract),
    digest: Digest,
    component: Option<Component>,
}

/// Why there is no runtime.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The compiler does not work on this machine.
    #[error("WebAssembly cannot be run on this machine: {0}")]
    Engine(String),
    /// The operating system gives no thread.
    #[error("no thread for the clock that interrupts guests: {0}")]
    Clock(String),
    /// The operating system gives fewer threads than are wanted.
    #[error("there are not {wanted} threads for guests: {reason}; configure fewer, or raise the limit on threads")]
    Threads {
        /// How many are wanted.
        wanted: NonZeroUsize,
        /// What the operating system says.
        reason: String,
    },
}

// === impl RuntimeOptions ===

impl Default for RuntimeOptions {
    fn default() -> Self {
        Self { cache_dir: None, max_instances: 256, threads: None, compiler: None }
    }
}

// === impl Runtime ===

impl Runtime {
    /// Makes the runtime and its clock, which ticks for as long as anything that was made with the runtime exists.
    ///
    /// # Errors
    /// If code cannot be compiled or run here at all, or if there are no threads for it. A cache that cannot be used is
    /// a warning.
    pub fn new(options: RuntimeOptions, metrics: Metrics) -> Result<Self, Error> {
        let engine = engine::with_pool(options.max_instances)?;
        start_clock(engine.weak())?;
        let cache = match &options.cache_dir {
            Some(directory) => Cache::open(directory, &engine),
            None => Cache::none(),
        };
        let threads = match options.threads {
            Some(wanted) => {
                Threads::start(wanted).map_err(|error| Error::Threads { wanted, reason: error.to_string() })?
            }
            None => Threads::none(),
        };
        let (http, compiling) = (Shared::default(), Arc::new(Semaphore::new(COMPILING)));
        Ok(Self(Arc::new(Inner { engine, cache, metrics, http, threads, compiler: options.compiler, compiling })))
    }

    /// Checks and compiles a component, or takes its compiled code from the cache, within limits that suit most guests.
    /// `name` is what errors call it.
    ///
    /// # Errors
    /// As [`load_within`](Self::load_within).
    pub async fn load(&self, name: &str, bytes: impl Into<Vec<u8>>) -> Result<Module, module::Error> {
        self.load_within(name, bytes, &LoadLimits::default()).await
    }

    /// Checks and compiles a component, or takes its compiled code from the cache. `name` is what errors call it.
    ///
    /// Compiling takes from milliseconds to seconds of one or more cores, in a process or on a thread of its own; some
    /// guests at a time are compiled, and others wait for their turn.
    ///
    /// # Errors
    /// If the bytes are not a component that fulfils the contract, its types included, if it imports what this host
    /// never grants, or if loading it takes more than these limits.
    pub async fn load_within(
        &self,
        name: &str,
        bytes: impl Into<Vec<u8>>,
        limits: &LoadLimits,
    ) -> Result<Module, module::Error> {
        let started = Instant::now();
        let bytes = Arc::new(bytes.into());
        if bytes.len() > limits.file_bytes {
            let (bytes, limit) = (bytes.len() as u64, limits.file_bytes as u64);
            return Err(module::Error::TooLarge { name: name.to_owned(), bytes, limit });
        }
        let (runtime, of, read) = (self.clone(), name.to_owned(), Arc::clone(&bytes));
        let found = blocking(name, move || runtime.find(&of, &read)).await?;
        let Found { checked, digest, component: cached } = found;
        let is_cached = cached.is_some();
        let component = match cached {
            Some(component) => component,
            None => {
                let code = self.compile(name, digest, &bytes, limits).await?;
                let (runtime, of, contract) = (self.clone(), name.to_owned(), checked.1);
                blocking(name, move || runtime.take_in(&of, &digest, &code, contract)).await?
            }
        };
        self.0.metrics.loaded(started.elapsed(), is_cached);
        Ok(Module::new(name.to_owned(), digest, checked, bytes.len(), component))
    }

    /// Whatever can be known of a component without compiling it, and its code if that is in the cache.
    fn find(&self, name: &str, bytes: &[u8]) -> Result<Found, module::Error> {
        let checked = Module::before_compiling(name, bytes)?;
        let digest = Digest::of(bytes);
        let component = self.0.cache.load(&self.0.engine, &digest);
        Ok(Found { checked, digest, component })
    }

    async fn compile(
        &self,
        name: &str,
        digest: Digest,
        bytes: &Arc<Vec<u8>>,
        limits: &LoadLimits,
    ) -> Result<Sealed, module::Error> {
        let Inner { engine, compiler, compiling, .. } = &*self.0;
        let stopped = |stopped| match stopped {
            Stopped::Invalid(reason) => module::Error::Compile { name: name.to_owned(), reason },
            Stopped::Time(limit) => module::Error::CompileTime { name: name.to_owned(), limit },
            Stopped::Ended(how) => {
                module::Error::CompileEnded { name: name.to_owned(), memory: limits.compile_memory_bytes, how }
            }
            Stopped::Code(limit) => module::Error::TooMuch {
                name: name.to_owned(),
                reason: format!(
                    "its compiled code has more than {limit} bytes, which is the most for a file of its size"
                ),
            },
            Stopped::NoProcess(reason) => module::Error::NoProcess { name: name.to_owned(), reason },
        };
        // Nobody closes it.
        let turn = Arc::clone(compiling).acquire_owned().await.ok();
        if let Some(compiler) = compiler
            && let Some(answer) = compiler.compile(bytes, limits).await
        {
            let answer = answer.map_err(stopped)?;
            // In this process nothing would bound it.
            let sealed = Compatibility::of(engine).open(&digest, answer);
            return sealed.ok_or_else(|| module::Error::OtherProgram { name: name.to_owned() });
        }
        compiler::compile_here(engine, digest, Arc::clone(bytes), limits, turn).await.map_err(stopped)
    }

    /// Makes a component of what was compiled, sees whether its types are the contract's, and keeps its code if they are.
    fn take_in(
        &self,
        name: &str,
        digest: &Digest,
        code: &Sealed,
        contract: Contract,
    ) -> Result<Component, module::Error> {
        let Inner { engine, cache, .. } = &*self.0;
        // It is this engine's code, so this says that it does not fit into an instance's share.
        let component = code.component(engine).map_err(|error| module::Error::TooMuch {
            name: name.to_owned(),
            reason: clean(&format!("{error:#}"), REASON_BYTES),
        })?;
        plugin::link(engine, &component, contract, |_any_grant| true)
            .map_err(|reason| module::Error::Types { name: name.to_owned(), reason })?;
        cache.store(digest, code);
        Ok(component)
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.0.engine
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    pub(crate) fn http(&self) -> &Shared {
        &self.0.http
    }

    pub(crate) fn threads(&self) -> &Threads {
        &self.0.threads
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Runtime")
    }
}

/// Work that takes a while, on a thread for such.
async fn blocking<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> Result<T, module::Error> + Send + 'static,
) -> Result<T, module::Error> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|stopped| Err(module::Error::Compile { name: name.to_owned(), reason: stopped.to_string() }))
}

/// Guests would never be interrupted without the clock, so it lives as long as any of them may run.
fn start_clock(engine: EngineWeak) -> Result<(), Error> {
    let clock = move || {
        while let Some(engine) = engine.upgrade() {
            engine.increment_epoch();
            drop(engine);
            thread::sleep(TICK);
        }
    };
    let started = thread::Builder::new().name("guest-clock".to_owned()).spawn(clock);
    started.map(drop).map_err(|error| Error::Clock(error.to_string()))
}
