//! From the configuration to the options and parts of every room.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash as _, Hasher as _};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use shardmill_engine::{
    Backoff, BatchOptions, Batcher, Destination, Destinations, FailurePolicy, Flow, Input, PartitionBy, Stage, Status,
    Target, Window,
};
use shardmill_lease::balance::{Balance, Even, Throughput};
use shardmill_lease::store::dynamodb::{DynamoDb, Timeouts};
use shardmill_plugin::{LoadLimits, Module, Plugin, Pool, Runtime, RuntimeOptions};
use shardmill_producer::BatchSender;
use shardmill_record::BatchLimits;
use shardmill_stream::{Kinesis, polling};
use tokio::io::AsyncReadExt as _;

use super::Error;
use crate::aws::Clients;
use crate::config::{self, Config};
use crate::deploy::{self, Deployer};
use crate::destination::StreamDestination;
use crate::fleet::board::Board;
use crate::fleet::fetch::Fetcher;
use crate::fleet::follower::{self, Follower};
use crate::fleet::shelf::Shelf;
use crate::fleet::{self, home};

/// The numbers of every room, in one registry.
pub(super) struct AllMetrics {
    pub(super) engine: shardmill_engine::Metrics,
    pub(super) lease: shardmill_lease::Metrics,
    pub(super) stream: shardmill_stream::Metrics,
    pub(super) producer: shardmill_producer::Metrics,
    pub(super) plugin: shardmill_plugin::Metrics,
    pub(super) dead_letters: crate::dead_letters::Metrics,
    pub(super) deploy: deploy::Metrics,
    pub(super) fleet: crate::fleet::metrics::Metrics,
}

// === impl AllMetrics ===

impl AllMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        Self {
            engine: shardmill_engine::Metrics::register(registry),
            lease: shardmill_lease::Metrics::register(registry),
            stream: shardmill_stream::Metrics::register(registry),
            producer: shardmill_producer::Metrics::register(registry),
            plugin: shardmill_plugin::Metrics::register(registry),
            dead_letters: crate::dead_letters::Metrics::register(registry),
            deploy: deploy::Metrics::register(registry),
            fleet: crate::fleet::metrics::Metrics::register(registry),
        }
    }
}

pub(crate) fn runtime(config: &Config, metrics: shardmill_plugin::Metrics) -> Result<Runtime, Error> {
    let options = RuntimeOptions {
        cache_dir: config.cache_dir.clone(),
        max_instances: max_instances(config),
        threads: Some(config.guest_threads),
        compiler: crate::compile::compiler(),
    };
    Ok(Runtime::new(options, metrics)?)
}

/// Every processor can have all the instances that it may have and those that take others' places, as many of the version
/// before, and one that is being tried.
fn max_instances(config: &Config) -> u32 {
    let instances: usize = config.processors.values().map(|processor| Pool::reserve(processor.limits.instances)).sum();
    u32::try_from(instances).unwrap_or(u32::MAX)
}

/// A write takes no longer than the configuration says; a read may take longer, nothing waits for it.
pub(super) fn store_timeouts(config: &Config) -> Timeouts {
    let attempt = config.leases.write_timeout;
    let default = Timeouts::default();
    Timeouts { attempt, read: default.read.max(attempt), ..default }
}

async fn load(runtime: &Runtime, processor: &config::Processor) -> Result<Module, Error> {
    let (path, limits) = (&processor.plugin, &processor.limits.load);
    let bytes = read_plugin(path, limits).await.map_err(|source| Error::ReadPlugin {
        processor: processor.name.clone(),
        path: path.clone(),
        source,
    })?;
    runtime
        .load_within(&path.display().to_string(), bytes, limits)
        .await
        .map_err(|source| Error::Plugin { processor: processor.name.clone(), source })
}

/// A file that is too large is not read further than needs be to tell so.
async fn read_plugin(path: &Path, limits: &LoadLimits) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = (limits.file_bytes as u64).saturating_add(1);
    crate::file::open_async(path).await?.take(most).read_to_end(&mut bytes).await?;
    Ok(bytes)
}

/// Loads the plugins of all processors at once. Of several errors it is the first processor's that counts.
pub(super) async fn load_all(
    runtime: &Runtime,
    processors: &BTreeMap<String, config::Processor>,
) -> Result<Vec<Module>, Error> {
    let loads = processors.values().map(|processor| load(runtime, processor));
    futures::future::join_all(loads).await.into_iter().collect()
}

/// Ties a module to a processor. Secrets and variables that it is granted are looked up.
pub(crate) async fn plugin(runtime: &Runtime, module: Module, processor: &config::Processor) -> Result<Plugin, Error> {
    let settings = deploy::settings(processor).await;
    let settings = settings.map_err(|source| Error::Grants { processor: processor.name.clone(), source })?;
    plugin_with(runtime, module, settings)
}

pub(super) fn plugin_with(
    runtime: &Runtime,
    module: Module,
    settings: shardmill_plugin::Settings,
) -> Result<Plugin, Error> {
    let processor = settings.processor.clone();
    Plugin::new(runtime, module, settings).map_err(|source| Error::Plugin { processor, source })
}

pub(super) async fn start(plugin: &Plugin, processor: &config::Processor) -> Result<(), Error> {
    plugin.instance().await.map(drop).map_err(|source| does_not_start(processor, source))
}

pub(crate) fn does_not_start(processor: &config::Processor, source: shardmill_plugin::Failure) -> Error {
    Error::StartPlugin { processor: processor.name.clone(), path: processor.plugin.clone(), source }
}

fn polling(stream: &config::Stream) -> polling::Options {
    polling::Options {
        idle_ms: u64::try_from(stream.idle.as_millis()).unwrap_or(u64::MAX),
        idle_max_ms: u64::try_from(stream.idle_max.as_millis()).unwrap_or(u64::MAX),
        reads_per_second: stream.reads_per_second,
        bytes_per_second: stream.bytes_per_second,
        decoder: stream.decoder,
        ..polling::Options::default()
    }
}

/// The rule by which leases are shared out.
pub(super) fn balance(config: &Config) -> Arc<dyn Balance> {
    let moves = config.leases.moves;
    match config.leases.balance {
        config::Balance::Leases => Arc::new(Even { moves }),
        config::Balance::Throughput => {
            let default = Throughput::default();
            Arc::new(Throughput { moves: moves.min(default.moves), ..default })
        }
    }
}

/// One number for what a worker was started with: this build, the plugin and its configuration, and those of all processors
/// behind it. In a deploy, leases go to
/// workers with another one than those that leave have. It stays as it is when a plugin is another version later: nobody
/// leaves for that, and where workers are replaced afterwards, those that come are still the ones to prefer.
fn generation(config: &Config, processor: &config::Processor, modules: &BTreeMap<String, String>) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    env!("CARGO_PKG_VERSION").hash(&mut hasher);
    for name in config.reached(&processor.name) {
        (modules.get(name), config.processors.get(name).map(|processor| format!("{processor:?}"))).hash(&mut hasher);
    }
    // JSON's numbers are whole up to here in every reader.
    hasher.finish() >> 11
}

/// The streams that a processor reads, each with its region's client.
pub(super) fn inputs(config: &Config, processor: &config::Processor, clients: &Clients) -> Vec<Input> {
    let input = |stream: &config::Stream| Input {
        options: Arc::new(engine_options(config, processor, Some(stream))),
        kinesis: Kinesis::new(clients.kinesis_of(&stream.id).clone()),
        polling: polling(stream),
        reset: stream.reset,
    };
    processor.streams.iter().map(input).collect()
}

fn batch(batch: &config::Batch) -> BatchOptions {
    BatchOptions {
        limits: BatchLimits { records: batch.records, bytes: batch.bytes },
        wait: batch.wait,
        window: batch.window.map(|length| Window { length }),
        empty: batch.empty,
    }
}

fn flow(processor: &str, flow: &config::Flow) -> Flow {
    let batcher = |batcher: &config::Batcher| Batcher {
        name: batcher.name.as_str().into(),
        when: batcher.when.as_ref().map(|when| when.rules.clone()),
        batch: batch(&batcher.batch),
    };
    Flow {
        filter: flow.filter.as_ref().map(|filter| filter.rules.clone()),
        lanes: flow.parallelism,
        partition_by: match &flow.partition_by {
            None => PartitionBy::Key,
            Some(pointer) => PartitionBy::Pointer(pointer.names().collect()),
        },
        seed: processor.into(),
        batchers: flow.batchers.iter().map(batcher).collect(),
    }
}

/// `stream`: what a processor reads; a stage reads none.
pub(super) fn engine_options(
    config: &Config,
    processor: &config::Processor,
    stream: Option<&config::Stream>,
) -> shardmill_engine::Options {
    shardmill_engine::Options {
        application: config.application.as_str().into(),
        processor: processor.name.as_str().into(),
        stream: stream.map_or("", |stream| stream.id.as_str()).into(),
        start: stream.map(|stream| stream.start.clone()).unwrap_or_default(),
        batch: batch(&processor.batch),
        prefetch: processor.prefetch,
        flow: Arc::new(flow(&processor.name, &processor.flow)),
        failure: FailurePolicy {
            attempts: processor.retry.attempts,
            bisect: processor.failure.bisect,
            max_age: processor.failure.max_age,
            tolerance: processor.failure.tolerance,
            then: processor.failure.then,
        },
        delivery: processor.delivery,
        checkpoint: processor.checkpoint,
        checkpoint_count: processor.checkpoint_count,
        backoff: Backoff { first: processor.retry.backoff, longest: processor.retry.max_backoff },
        checkpoint_interval: processor.checkpoint_interval,
        out_of_range: processor.out_of_range,
        outcome: deploy::outcome_limits(processor),
        hook_timeout: (config.shutdown_timeout / 2).min(Duration::from_secs(10)),
        shutdown_timeout: config.shutdown_timeout,
    }
}

/// `joined`: when this process started, in milliseconds since 1970. `modules`: the digests of all plugins, by processor.
pub(super) fn lease_options(
    config: &Config,
    processor: &config::Processor,
    joined: u64,
    modules: &BTreeMap<String, String>,
) -> shardmill_lease::Options {
    let generation = generation(config, processor, modules);
    let leases = &config.leases;
    shardmill_lease::Options {
        renew_interval: leases.renew,
        expiry: leases.expiry,
        scan_interval: leases.scan,
        sync_interval: leases.sync,
        write_timeout: leases.write_timeout,
        max_leases_per_worker: leases.max_per_worker,
        moves: leases.moves,
        settle_time: leases.settle,
        hand_off_timeout: leases.hand_off,
        leave_timeout: leases.leave,
        clearing: shardmill_lease::clear::Delays { complete: leases.keep_completed, garbage: leases.keep_garbage },
        takeover: leases.takeover,
        joined,
        generation,
        worker_runs_once: config.worker_runs_once,
        ..shardmill_lease::Options::new(format!("{}-{}", config.application, processor.name), config.worker.clone())
    }
}

/// What a worker tells the fleet of itself in the row of a consumer.
pub(super) fn note(config: &Config, consumer: &str, board: &Board, status: &Status) -> shardmill_lease::Note {
    let here = home::at_home(config, consumer);
    let names: Vec<&str> = here.iter().map(|processor| processor.name.as_str()).collect();
    fleet::note::of_consumer(consumer, &names, board, status)
}

/// What lets each processor run what the fleet wants of it.
pub(super) fn followers(
    config: &Config,
    clients: &Clients,
    deployer: &Deployer,
    board: &Board,
    metrics: &fleet::metrics::Metrics,
    status: &Status,
) -> Vec<Follower> {
    let fetcher = Fetcher::new();
    let shelf = Shelf::beside(config.cache_dir.as_deref());
    let follower = |processor: &config::Processor| {
        let home = home::home(config, &processor.name)?;
        let table = DynamoDb::new(clients.dynamodb.clone(), home.lease_table.as_ref()?, store_timeouts(config));
        let (consumer, status) = (home.name.clone(), status.clone());
        Follower::new(follower::Parts {
            processor: processor.name.clone(),
            worker: config.worker.to_string(),
            sidecar: Arc::new(table),
            switch: Arc::new(deployer.clone()),
            fetcher: fetcher.clone(),
            shelf: shelf.clone(),
            board: board.clone(),
            metrics: metrics.clone(),
            leads: Box::new(move || status.snapshot().get(&consumer).is_some_and(|consumer| consumer.leads)),
            pace: fleet::pace(&config.leases),
        })
    };
    config.processors.values().filter_map(follower).collect()
}

/// Processors to which outputs of others lead.
pub(super) fn stage_names(config: &Config) -> BTreeSet<&str> {
    let outputs = config.processors.values().flat_map(|processor| processor.outputs.values());
    outputs.filter_map(config::Output::processor).collect()
}

/// Where all outputs of a processor go.
pub(super) fn targets(
    processor: &config::Processor,
    streams: BTreeMap<String, Arc<dyn Destination>>,
    stages: &BTreeMap<String, Arc<Stage>>,
) -> Destinations {
    let away = streams.into_iter().map(|(name, destination)| (name, Target::Away(destination)));
    let led = processor.outputs.iter().filter_map(|(name, output)| {
        let stage = stages.get(output.processor()?)?;
        Some((name.clone(), Target::Stage(Arc::downgrade(stage))))
    });
    Destinations::new(away.chain(led).collect())
}

/// A processor's outputs to streams, by the name that its guest uses.
pub(super) fn outputs(
    processor: &config::Processor,
    clients: &Clients,
    metrics: &shardmill_producer::Metrics,
) -> BTreeMap<String, Arc<dyn Destination>> {
    let mut by_name: BTreeMap<String, Arc<dyn Destination>> = BTreeMap::new();
    for (name, output) in &processor.outputs {
        let config::Output::Stream(output) = output else { continue };
        let producer = BatchSender::new(
            clients.producer_of(&output.stream).clone(),
            output.stream.clone(),
            output.options.clone(),
            metrics.clone(),
            rand::random(),
        );
        by_name.insert(name.clone(), Arc::new(StreamDestination::new(name.clone(), producer)));
    }
    by_name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_another_one_with_another_plugin_of_a_stage_behind_its_processor() {
        let text = "application = \"a\"\n[processors.p]\nstream = \"in\"\nplugin = \"p.wasm\"\n[processors.p.outputs.on]\nto = \"processor:s\"\n[processors.s]\nplugin = \"s.wasm\"\n[processors.q]\nstream = \"x\"\nplugin = \"q.wasm\"\n";
        let config = config::parse("shardmill.toml", text, std::path::Path::new(".")).expect("a configuration");
        let modules = |of_stage: &str| {
            BTreeMap::from(
                [("p", "1"), ("q", "1"), ("s", of_stage)].map(|(name, digest)| (name.to_owned(), digest.to_owned())),
            )
        };
        let of = |name: &str, of_stage: &str| generation(&config, &config.processors[name], &modules(of_stage));
        assert_eq!(of("p", "1"), of("p", "1"));
        assert_ne!(of("p", "1"), of("p", "2"));
        assert_eq!(of("q", "1"), of("q", "2"), "nothing of it comes there");
    }
}
