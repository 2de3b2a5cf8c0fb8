//! From a configuration to everything of one process, ready to run.

use std::collections::BTreeMap;
use std::sync::Arc;

use aws_config::SdkConfig;
use prometheus_client::registry::Registry;
use shardmill_engine::{Allowance, Budget, Consumer, Guest, Parts, Stage, StageParts, Status};
use shardmill_lease::SystemClock;
use shardmill_lease::store::dynamodb::DynamoDb;
use shardmill_plugin::Module;
use shardmill_stream::polling::ReadLimits;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::parts::{self, AllMetrics};
use super::{Bounds, Error, Host, Progress};
use crate::admin::{Server, Sources, Token};
use crate::aws::{self, Clients};
use crate::config::{self, Config};
use crate::dead_letters;
use crate::deploy::{self, Deployer, Reloader, Setup, Slot};
use crate::fleet::board::Board;
use crate::guest::{Lent, PluginGuest};
use crate::unix_ms;

/// Makes a [`Host`].
pub struct Builder {
    config: Config,
    source: Option<config::Source>,
    sdk_config: Option<SdkConfig>,
    bounds: Bounds,
}

// === impl Builder ===

impl Builder {
    pub(super) fn new(config: Config) -> Self {
        Self { config, source: None, sdk_config: None, bounds: Bounds::default() }
    }

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
        let joined = unix_ms::now();
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
    module.check_grants(&processor.name, &deploy::without_values(&processor.grants)).map_err(refused)
}
