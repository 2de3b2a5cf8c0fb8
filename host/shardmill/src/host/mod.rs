//! The host: a configuration becomes consumers, an admin server, and their end.

mod error;
mod grants;
pub(crate) mod parts;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_config::SdkConfig;
use prometheus_client::registry::Registry;
use shardmill_engine::{Allowance, Budget, Consumer, Guest, Parts, Stage, StageParts, Status};
use shardmill_lease::SystemClock;
use shardmill_lease::store::dynamodb::DynamoDb;
use shardmill_plugin::{Module, Runtime};
use shardmill_stream::polling::ReadLimits;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::admin::{Server, Sources, Token};
use crate::aws::{self, Clients};
use crate::config::{self, Config};
use crate::dead_letters;
use crate::deploy::{self, CLOSE_WITHIN, Deployer, Reloader, Setup, Slot};
use crate::fleet::board::Board;
use crate::fleet::follower::{self, Follower};
use crate::guest::{Lent, PluginGuest};

pub(crate) use error::Class;
pub use error::Error;
pub(crate) use grants::{Error as GrantError, read as read_grants};
use parts::AllMetrics;
// `shardmill plugin test` and `bench` run plugins as a worker does.
pub(crate) use parts::{does_not_start, plugin, runtime};

/// How often a bounded run looks whether it is to end.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Makes a [`Host`].
pub struct Builder {
    config: Config,
    source: Option<config::Source>,
    sdk_config: Option<SdkConfig>,
    bounds: Bounds,
}

/// When a run ends by itself, besides a failure. Whichever comes first; by default never.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bounds {
    /// When everything that this worker has is done up to the tips of its shards, and has been for so long; a second or
    /// more. Shards that are stopped and streams that are gone are waited for no longer, and make the run a failure.
    pub until_idle: Option<Duration>,
    /// When so many user records are processed; no more are.
    pub max_records: Option<u64>,
}

/// Everything of one process, ready to run.
pub struct Host {
    consumers: Vec<(String, Consumer)>,
    /// Processors that others lead to, with their guests, which are closed when nobody calls them any more.
    stages: Vec<(Arc<Stage>, Arc<dyn Guest>)>,
    admin: Option<Server>,
    sources: Sources,
    reloader: Reloader,
    followers: Vec<Follower>,
    progress: Progress,
    bounds: Bounds,
    allowance: Allowance,
    // The epochs that bound guests' time are ticked for as long as this lives.
    _runtime: Runtime,
}

/// What a host has done so far, for whoever runs one as a library.
#[derive(Clone)]
pub struct Progress {
    engine: shardmill_engine::Metrics,
    status: Status,
}

/// Sees whether a module is one that a processor may run: its contract, and what it is granted. It is not started, because
/// what it needs for that may be with the workers alone.
pub(crate) async fn check_module(
    config: &Config,
    processor: &config::Processor,
    name: &str,
    bytes: Vec<u8>,
) -> Result<(), Error> {
    let runtime = parts::runtime(config, shardmill_plugin::Metrics::default())?;
    let refused = |source| Error::Plugin { processor: processor.name.clone(), source };
    let module = runtime.load_within(name, bytes, &processor.limits.load).await.map_err(refused)?;
    module.check_grants(&processor.name, &grants::without_values(&processor.grants)).map_err(refused)
}

// === impl Builder ===

impl Builder {
    /// Uses this configuration of the AWS SDK in place of the one that the environment gives.
    #[must_use]
    pub fn sdk_config(mut self, sdk_config: SdkConfig) -> Self {
        self.sdk_config = Some(sdk_config);
        self
    }

    /// Names the file that the configuration came from. It is read again when it changes, and when somebody asks for it.
    #[must_use]
    pub fn source(mut self, source: config::Source) -> Self {
        self.source = Some(source);
        self
    }

    /// Lets the run end by itself.
    #[must_use]
    pub fn bounds(mut self, bounds: Bounds) -> Self {
        self.bounds = bounds;
        self
    }

    /// Loads every plugin without touching any service: what `shardmill check` does.
    pub async fn load_modules(&self) -> Result<BTreeMap<String, Module>, Error> {
        let runtime = parts::runtime(&self.config, shardmill_plugin::Metrics::default())?;
        let mut modules = BTreeMap::new();
        let loaded = parts::load_all(&runtime, &self.config.processors).await?;
        for (processor, module) in self.config.processors.values().zip(loaded) {
            // `init` says whether it takes its configuration.
            let plugin = parts::plugin(&runtime, module.clone(), processor).await?;
            parts::start(&plugin, processor).await?;
            modules.insert(processor.name.clone(), module);
        }
        Ok(modules)
    }

    /// Loads the plugins, takes the admin port and makes the consumers; no shard is read yet.
    pub async fn build(self) -> Result<Host, Error> {
        let config = self.config;
        let mut registry = Registry::default();
        let metrics = AllMetrics::register(&mut registry);
        let token = config.admin.token.as_ref().map(Token::read).transpose()?;
        let admin = match config.admin.listen {
            Some(address) => Some(Server::bind(address).await?),
            None => None,
        };
        let runtime = parts::runtime(&config, metrics.plugin.clone())?;
        let sdk = async {
            match self.sdk_config {
                Some(sdk) => sdk,
                None => aws::load(&config.aws).await,
            }
        };
        // At once: the one reads files and may ask for a region over the network, the other reads or compiles code.
        let (sdk, modules) = tokio::join!(sdk, parts::load_all(&runtime, &config.processors));
        if sdk.region().is_none() {
            return Err(Error::NoRegion);
        }
        let clients = Clients::new(&sdk, &config.aws).for_streams(config.stream_ids(), &sdk, &config.aws);
        let read_limits = ReadLimits::default();
        let status = Status::default();
        let budget = Budget::new(config.memory).shown_in(&metrics.engine);
        let allowance = self.bounds.max_records.map_or_else(Allowance::default, Allowance::of);
        let joined = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        let led_to = parts::stage_names(&config);
        let (mut consumers, mut stages, mut guests, mut loaded) = (Vec::new(), BTreeMap::new(), Vec::new(), Vec::new());
        let (mut slots, mut digests) = (BTreeMap::new(), BTreeMap::new());
        let watchdog = watch::Sender::new(config.watchdog);
        let board = Board::default();
        for (processor, module) in config.processors.values().zip(modules?) {
            tracing::info!(
                processor = processor.name, streams = processor.stream_ids().collect::<Vec<_>>().join(", "),
                lease_table = processor.lease_table,
                plugin = %processor.plugin.display(), digest = %module.digest(), worker = %config.worker,
                "processor loaded"
            );
            let digest = module.digest().to_string();
            let setup = Setup::of(&config, processor)
                .await
                .map_err(|source| Error::Grants { processor: processor.name.clone(), source })?;
            let plugin = parts::plugin_with(&runtime, module, setup.settings.clone())?;
            let pool = plugin.pool(processor.limits.instances);
            // The first instance is made now, so that a configuration which `init` refuses is known at once.
            drop(pool.get().await.map_err(|source| parts::does_not_start(processor, source))?);
            let outputs = parts::outputs(processor, &clients, &metrics.producer);
            let surroundings = dead_letters::Surroundings {
                worker: config.worker.as_str(),
                clients: &clients,
                producer_metrics: &metrics.producer,
                metrics: &metrics.dead_letters,
            };
            let dead_letters = dead_letters::place(processor, &outputs, &surroundings)?;
            let slot = Arc::new(Slot::new(pool, setup));
            slots.insert(processor.name.clone(), Arc::clone(&slot));
            let mut guest: Arc<dyn Guest> = Arc::new(PluginGuest::new(slot));
            if led_to.contains(processor.name.as_str()) {
                let stage = Stage::new(StageParts {
                    options: Arc::new(parts::engine_options(&config, processor, None)),
                    guest: Arc::clone(&guest),
                    worker: config.worker.as_str().into(),
                    dead_letters: dead_letters.clone(),
                    metrics: metrics.engine.clone(),
                    max_hops: config.max_hops,
                });
                guests.push(Arc::clone(&guest));
                guest = Arc::new(Lent(guest));
                stages.insert(processor.name.clone(), Arc::new(stage));
            }
            digests.insert(processor.name.clone(), digest);
            loaded.push((processor, outputs, dead_letters, guest));
        }
        // All stages are there now, whoever leads to them.
        for (processor, outputs, dead_letters, guest) in loaded {
            let destinations = parts::targets(processor, outputs, &stages);
            if let Some(stage) = stages.get(&processor.name) {
                stage.lead_to(destinations.clone());
            }
            // A stage alone is no consumer.
            let Some(lease_table) = &processor.lease_table else { continue };
            let parts = Parts {
                inputs: parts::inputs(&config, processor, &clients),
                key_form: processor.key_form,
                lease_options: shardmill_lease::Options {
                    note: parts::note(&config, &processor.name, &board, &status),
                    ..parts::lease_options(&config, processor, joined, &digests)
                },
                balance: parts::balance(&config),
                read_limits: read_limits.clone(),
                store: Arc::new(DynamoDb::new(clients.dynamodb.clone(), lease_table, parts::store_timeouts(&config))),
                clock: Arc::new(SystemClock),
                guest,
                destinations,
                dead_letters,
                budget: budget.clone(),
                allowance: allowance.clone(),
                watchdog: watchdog.subscribe(),
                status: status.clone(),
                metrics: metrics.engine.clone(),
                lease_metrics: metrics.lease.clone(),
                stream_metrics: metrics.stream.of_processor(&processor.name),
                seed: rand::random(),
            };
            consumers.push((processor.name.clone(), Consumer::new(parts)));
        }
        let progress = Progress { engine: metrics.engine, status: status.clone() };
        let stopping = CancellationToken::new();
        let deployer = Deployer::new(runtime.clone(), slots, status.clone(), metrics.deploy, stopping.clone());
        let followers = parts::followers(&config, &clients, &deployer, &board, &metrics.fleet, &status);
        let live = deploy::Live { watchdog, is_watching: watch::Sender::new(config.reload.watch) };
        let worker = config.worker.as_str().into();
        let reloader = Reloader::new(deployer, config, self.source, live);
        let sources = Sources {
            status,
            registry: Arc::new(registry),
            stopping,
            token,
            worker,
            reloader: reloader.clone(),
            fleet: board,
        };
        let stages = stages.into_values().zip(guests).collect();
        let bounds = self.bounds;
        Ok(Host {
            consumers,
            stages,
            admin,
            sources,
            reloader,
            followers,
            progress,
            bounds,
            allowance,
            _runtime: runtime,
        })
    }
}

// === impl Host ===

impl Host {
    /// Starts to make a host of a configuration.
    pub fn builder(config: Config) -> Builder {
        Builder { config, source: None, sdk_config: None, bounds: Bounds::default() }
    }

    /// Where the admin server listens, if there is one.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(Server::address)
    }

    /// A handle to follow what the host does.
    pub fn progress(&self) -> Progress {
        self.progress.clone()
    }

    /// What reads the configuration and the plugins again.
    pub(crate) fn reloader(&self) -> Reloader {
        self.reloader.clone()
    }

    /// Runs until `stop` is cancelled or a bound is reached, then finishes what is in flight, checkpoints and releases the
    /// leases; or until a consumer cannot go on, which stops the others in the same way and is returned. One that its
    /// failure policy has stopped alone (`stop-worker`) stops no other; it is returned when there is none left.
    pub async fn run(self, stop: CancellationToken) -> Result<(), Error> {
        let drain = stop.child_token();
        let stop_admin = CancellationToken::new();
        let admin = self.admin.map(|server| {
            let commands = if self.sources.token.is_some() { "with the token" } else { "none, there is no token" };
            tracing::info!(address = %server.address(), commands, "admin server: /healthz, /readyz, /metrics, /status");
            tokio::spawn(server.serve(self.sources.clone(), stop_admin.clone()))
        });
        // The first batches see what the fleet wants. They end with this function too.
        let _following = follower::start(self.followers, &drain).await;
        // Ends with this function, as everything that it delivers.
        let mut watching = JoinSet::new();
        watching.spawn(deploy::watch::run(self.reloader, drain.clone()));
        let mut running = JoinSet::new();
        let mut names = BTreeMap::new();
        for (name, consumer) in self.consumers {
            let handle = running.spawn(consumer.run(drain.clone()));
            names.insert(handle.id(), name);
        }
        let mut first_error = None;
        // Of a consumer that its failure policy has stopped, while the others go on.
        let mut stopped = None;
        let status = self.progress.status;
        let mut bound = std::pin::pin!(reached(self.bounds, self.allowance, status.clone()));
        loop {
            let ended = tokio::select! {
                () = &mut bound, if !drain.is_cancelled() => {
                    // Asked now: a shard that is let go does not say any more that it was stopped.
                    let undone = status.left_undone();
                    if !undone.is_empty() {
                        first_error.get_or_insert(Error::Undone(undone));
                    }
                    drain.cancel();
                    continue;
                }
                () = drain.cancelled(), if !self.sources.stopping.is_cancelled() => {
                    self.sources.stopping.cancel();
                    continue;
                }
                ended = running.join_next_with_id() => ended,
            };
            let Some(ended) = ended else { break };
            let error = match ended {
                Ok((_id, Ok(()))) => continue,
                Ok((id, Err(source @ shardmill_engine::Error::Stopped { process: false, .. }))) => {
                    let processor = names.remove(&id).unwrap_or_default();
                    tracing::warn!(processor, "the processor has stopped on this worker and has let its leases go");
                    stopped.get_or_insert(Error::Consumer { processor, source: Box::new(source) });
                    continue;
                }
                Ok((id, Err(source))) => {
                    Error::Consumer { processor: names.remove(&id).unwrap_or_default(), source: Box::new(source) }
                }
                Err(panic) => Error::Broken {
                    processor: names.remove(&panic.id()).unwrap_or_default(),
                    reason: panic.to_string(),
                },
            };
            first_error.get_or_insert(error);
            drain.cancel();
        }
        for (_stage, guest) in &self.stages {
            // One that hangs is not waited for.
            let _closed = tokio::time::timeout(CLOSE_WITHIN, guest.close()).await;
        }
        stop_admin.cancel();
        if let Some(admin) = admin {
            // An open keep-alive connection must not hold up the end of the process.
            let _closed = tokio::time::timeout(Duration::from_millis(500), admin).await;
        }
        // Without a consumer there is nothing left to run, and nobody has asked for that.
        match first_error.or(stopped.filter(|_| !stop.is_cancelled())) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

/// Returns when the run is to end.
async fn reached(bounds: Bounds, allowance: Allowance, status: Status) {
    let idle = async {
        let Some(grace) = bounds.until_idle else { return std::future::pending().await };
        let mut idle_since = None;
        loop {
            let now = Instant::now();
            if !status.is_idle() {
                idle_since = None;
            } else if now.saturating_duration_since(*idle_since.get_or_insert(now)) >= grace {
                return;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    tokio::select! {
        () = allowance.used_up() => {
            tracing::info!(records = bounds.max_records, "so many records are processed: ending");
        }
        () = idle => {
            tracing::info!(grace = ?bounds.until_idle.unwrap_or_default(), "everything is done and nothing comes: ending");
        }
    }
}

// === impl Progress ===

impl Progress {
    /// User records of a processor that are done, skipped ones included.
    pub fn records_done(&self, processor: &str, stream: &str) -> u64 {
        self.engine.records_settled(processor, stream)
    }

    /// Why shards are stopped, a sentence for each.
    pub fn stopped_shards(&self) -> Vec<String> {
        self.status.stopped()
    }

    /// What every shard is doing.
    pub fn status(&self) -> &Status {
        &self.status
    }
}
