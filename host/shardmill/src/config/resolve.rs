//! Fills in the defaults and checks what types alone cannot.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use shardmill_cause::Coded;
use shardmill_cause::code::config as code;
use shardmill_engine::{CheckpointBy, Delivery, Prefetch, watchdog};
use shardmill_lease::WorkerId;
use shardmill_lease::store::SIDECAR_SUFFIX;
use shardmill_plugin::LoadLimits;
use tracing_subscriber::EnvFilter;

use super::check::{Checked, HOUR, MIB, Wrong, count, endpoint, helped, line, name, size, table_name, time, wrong};
use super::failure::{checkpoint_by, failure, retry};
use super::file::{self, CacheDir, File};
use super::outputs::{outputs, targets};
use super::streams::{inputs, stream};
use super::units::Count;
use super::{Admin, Aws, Config, Leases, Limits, Log, MAX_PLUGIN, Processor, Reload, Stream, TokenSource};
use super::{batches, dead_letters, grants, pipelines};

/// No machine runs as many at a time.
const MAX_GUEST_THREADS: u32 = 1024;
const MILLISECOND: Duration = Duration::from_millis(1);
const MINUTE: Duration = Duration::from_secs(60);
/// As durations are written: 365 days and a quarter.
const YEAR: Duration = Duration::from_secs(31_557_600);

/// What every processor is resolved against.
pub(super) struct Written<'a> {
    pub(super) file: &'a File,
    /// By their names in the file.
    pub(super) streams: BTreeMap<&'a str, Stream>,
    /// The processors that outputs lead to.
    pub(super) targets: BTreeSet<&'a str>,
    folder: &'a Path,
}

pub(super) fn resolve(file: File, folder: &Path) -> Checked<Config> {
    name(&["application"], &file.application)?;
    let memory = size(&["memory"], file.memory, 256 * MIB, [32 * MIB, MIB * MIB])?;
    let shutdown_timeout = time(
        &["shutdown-timeout"],
        file.shutdown_timeout,
        Duration::from_secs(25),
        [Duration::from_millis(100), HOUR],
    )?;
    let leases = leases(&file.leases, shutdown_timeout)?;
    // Those that nobody uses as well: what is wrong today must not lie in wait.
    let mut streams = BTreeMap::new();
    for (name, section) in &file.streams {
        streams.insert(name.as_str(), stream(&file, name, section)?);
    }
    let written = Written { file: &file, streams, targets: targets(&file)?, folder };
    let mut processors = BTreeMap::new();
    for (name, section) in &file.processors {
        processors.insert(name.clone(), processor(&written, name, section)?);
    }
    if processors.is_empty() {
        let no_processor = wrong(code::MISSING, &["processors"], "there is no processor, so there is nothing to run");
        return helped(no_processor, "add a table [processors.NAME] with `stream` and `plugin`");
    }
    separate_tables(&processors)?;
    let max_hops = count(&["max-hops"], file.max_hops, 16, [1, 1000])?;
    pipelines::check(&processors, max_hops)?;
    Ok(Config {
        worker: worker(file.worker_id.as_deref())?,
        worker_runs_once: worker_runs_once(&file)?,
        aws: aws(&file.aws)?,
        admin: admin(&file.admin, folder)?,
        watchdog: watchdog(&file.watchdog)?,
        log: log(&file.log)?,
        leases,
        reload: Reload { watch: file.reload.watch.unwrap_or(true) },
        memory,
        guest_threads: guest_threads(file.guest_threads)?,
        shutdown_timeout,
        cache_dir: cache_dir(file.cache_dir, folder)?,
        application: file.application,
        max_hops,
        processors,
        warnings: Vec::new(),
    })
}

/// As many as can run at a time, unless told otherwise.
fn guest_threads(given: Option<Count>) -> Checked<NonZeroUsize> {
    let processors = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let default = u32::try_from(processors.get()).unwrap_or(u32::MAX).min(MAX_GUEST_THREADS);
    let threads = count(&["guest-threads"], given, default, [1, MAX_GUEST_THREADS])?;
    Ok(NonZeroUsize::new(threads as usize).unwrap_or(NonZeroUsize::MIN))
}

fn worker(given: Option<&str>) -> Checked<WorkerId> {
    let Some(id) = given else { return worker_id(&generated_worker_id()) };
    line(&["worker-id"], id)?;
    worker_id(id)
}

fn worker_id(id: &str) -> Checked<WorkerId> {
    WorkerId::parse(id).or_else(|error| wrong(error.code(), &["worker-id"], error.to_string()))
}

fn worker_runs_once(file: &File) -> Checked<bool> {
    if file.worker_runs_once && file.worker_id.is_none() {
        let nameless =
            wrong(code::MISSING, &["worker-runs-once"], "without `worker-id` every run has an id of its own");
        return helped(
            nameless,
            "set `worker-id` to the name that the platform gives, such as a StatefulSet's pod name",
        );
    }
    Ok(file.worker_runs_once)
}

/// Unlike any other's, and yet telling where the worker runs.
fn generated_worker_id() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{host}-{}-{:08x}", std::process::id(), rand::random::<u32>())
}

fn aws(file: &file::Aws) -> Checked<Aws> {
    for (key, text) in [("region", &file.region), ("profile", &file.profile)] {
        text.as_deref().map_or(Ok(()), |text| line(&["aws", key], text))?;
    }
    for (key, text) in [("kinesis-endpoint", &file.kinesis_endpoint), ("dynamodb-endpoint", &file.dynamodb_endpoint)] {
        text.as_deref().map_or(Ok(()), |text| endpoint(&["aws", key], text))?;
    }
    Ok(Aws {
        region: file.region.clone(),
        profile: file.profile.clone(),
        kinesis_endpoint: file.kinesis_endpoint.clone(),
        dynamodb_endpoint: file.dynamodb_endpoint.clone(),
    })
}

fn watchdog(file: &file::Watchdog) -> Checked<watchdog::Options> {
    let default = watchdog::Options::default();
    let bounds = [Duration::from_secs(1), 24 * HOUR];
    Ok(watchdog::Options {
        stall_after: time(&["watchdog", "stall-after"], file.stall_after, default.stall_after, bounds)?,
        lag_alarm: count(&["watchdog", "lag-alarm"], file.lag_alarm, default.lag_alarm, [1, 100])?,
    })
}

fn admin(file: &file::Admin, folder: &Path) -> Checked<Admin> {
    let text = file.listen.as_deref().unwrap_or("127.0.0.1:9465");
    let Ok(address) = text.parse() else {
        return helped(
            wrong(code::NOT_A_NAME, &["admin", "listen"], format!("`{text}` is not an address with a port")),
            "write \"127.0.0.1:9465\", or \"[::1]:9465\"; port 0 takes any free one",
        );
    };
    let token = match (&file.token_file, &file.token_env) {
        (None, None) => None,
        (Some(path), None) if path.as_os_str().is_empty() => {
            return wrong(code::MISSING, &["admin", "token-file"], "it names no file");
        }
        (Some(path), None) => Some(TokenSource::File(folder.join(path))),
        (None, Some(name)) => {
            line(&["admin", "token-env"], name)?;
            Some(TokenSource::Variable(name.clone()))
        }
        (Some(_), Some(_)) => {
            let both = wrong(code::TOGETHER, &["admin", "token-env"], "there is `token-file` already");
            return helped(both, "the token is in a file or in an environment variable: name one of them");
        }
    };
    Ok(Admin { listen: file.enabled.unwrap_or(true).then_some(address), token })
}

fn log(file: &file::Log) -> Checked<Log> {
    let filter = file.filter.clone().unwrap_or_else(|| "info".to_owned());
    if EnvFilter::try_new(&filter).is_err() {
        return helped(
            wrong(code::LOG_FILTER, &["log", "filter"], format!("`{filter}` is not a log filter")),
            "a level (error, warn, info, debug, trace) or directives such as \"info,shardmill_lease=debug\"",
        );
    }
    Ok(Log { format: file.format.unwrap_or_default(), filter })
}

fn leases(file: &file::Leases, shutdown_timeout: Duration) -> Checked<Leases> {
    let bounds = [Duration::from_millis(50), HOUR];
    let keep = [Duration::ZERO, YEAR];
    let seconds = Duration::from_secs;
    let leases = Leases {
        renew: time(&["leases", "renew"], file.renew, Duration::from_millis(3300), bounds)?,
        expiry: time(&["leases", "expiry"], file.expiry, seconds(10), bounds)?,
        scan: time(&["leases", "scan"], file.scan, seconds(2), bounds)?,
        sync: time(&["leases", "sync"], file.sync, MINUTE, bounds)?,
        write_timeout: time(
            &["leases", "write-timeout"],
            file.write_timeout,
            // What is left for a write between the last renewal that can be in time and the expiry, 2 s at most.
            write_timeout(file),
            [Duration::from_millis(10), HOUR],
        )?,
        max_per_worker: match file.max_per_worker {
            None => None,
            given => Some(count(&["leases", "max-per-worker"], given, 1, [1, 1_000_000])? as usize),
        },
        balance: file.balance,
        settle: time(&["leases", "settle"], file.settle, seconds(30), [Duration::ZERO, HOUR])?,
        moves: count(&["leases", "moves"], file.moves, 1000, [1, 1_000_000])? as usize,
        hand_off: time(&["leases", "hand-off"], file.hand_off, seconds(30), bounds)?,
        leave: time(&["leases", "leave"], file.leave, seconds(10).min(shutdown_timeout / 2), [Duration::ZERO, HOUR])?,
        keep_completed: time(&["leases", "keep-completed"], file.keep_completed, 5 * MINUTE, keep)?,
        keep_garbage: time(&["leases", "keep-garbage"], file.keep_garbage, HOUR, keep)?,
        takeover: file.takeover,
    };
    if leases.leave > shutdown_timeout {
        let message = format!(
            "others may take leases over for {:?}, and the stop may take {shutdown_timeout:?} in all: leave must not be longer than shutdown-timeout",
            leases.leave
        );
        return helped(
            wrong(code::TOGETHER, &["leases", "leave"], message),
            "half of `shutdown-timeout` leaves time to finish what is in flight",
        );
    }
    if leases.expiry <= leases.renew + leases.write_timeout {
        let message = format!(
            "a lease would expire ({:?}) before it is renewed ({:?}, and the write may take {:?}): expiry must be longer than both together",
            leases.expiry, leases.renew, leases.write_timeout
        );
        return helped(
            wrong(code::TOGETHER, &["leases", "expiry"], message),
            "three times `renew` survives two lost renewals",
        );
    }
    Ok(leases)
}

fn write_timeout(file: &file::Leases) -> Duration {
    let expiry = file.expiry.map_or(Duration::from_secs(10), |time| time.0);
    let renew = file.renew.map_or(Duration::from_millis(3300), |time| time.0);
    let left = expiry.saturating_sub(renew) / 2;
    left.clamp(Duration::from_millis(10), Duration::from_secs(2))
}

fn cache_dir(given: Option<CacheDir>, folder: &Path) -> Checked<Option<PathBuf>> {
    Ok(match given {
        Some(CacheDir::Off(false)) => None,
        Some(CacheDir::Off(true)) => {
            return wrong(code::WRONG_TYPE, &["cache-dir"], "a folder in quotes, or false, is expected");
        }
        Some(CacheDir::Folder(path)) if path.as_os_str().is_empty() => {
            return helped(wrong(code::MISSING, &["cache-dir"], "it names no folder"), "false keeps no compiled code");
        }
        Some(CacheDir::Folder(path)) => Some(folder.join(path)),
        None => default_cache_dir(),
    })
}

fn default_cache_dir() -> Option<PathBuf> {
    let absolute = |variable| std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")))?;
    Some(base.join("shardmill").join("compiled"))
}

fn processor(written: &Written<'_>, processor: &str, own: &file::Processor) -> Checked<Processor> {
    let at = |key| ["processors", processor, key];
    let Written { file, streams, folder, .. } = written;
    name(&["processors", processor], processor)?;
    let defaults = &file.defaults.processor;
    let settings = own.settings(defaults);
    if own.plugin.as_os_str().is_empty() {
        return helped(
            wrong(code::MISSING, &at("plugin"), "it names no file"),
            "a WebAssembly component, such as \"route.wasm\"",
        );
    }
    let config =
        serde_json::to_value(&own.config).or_else(|error| wrong(code::WRONG_TYPE, &at("config"), error.to_string()))?;
    let (inputs, key_form) = inputs(written, processor, own)?;
    let is_stage = inputs.is_empty();
    let lease_table = if is_stage { None } else { Some(lease_table(file, processor, own)?) };
    let outputs = outputs(file, streams, processor, own)?;
    let dead_letters = match &settings.dead_letters {
        Some(table) => Some(dead_letters::resolve(table, processor, &inputs, &outputs, streams, folder)?),
        None => None,
    };
    // What the defaults say of reading is not about a processor that does not read.
    let (delivery, checkpoint) = if is_stage {
        (Delivery::default(), CheckpointBy::default())
    } else {
        let delivery = settings.delivery.unwrap_or_default();
        (delivery, checkpoint_by(processor, settings.checkpoint, delivery)?)
    };
    let batch_file = file::Batch::over(own.batch.as_ref(), defaults.batch.as_ref());
    let batch = batches::batch(processor, &batch_file)?;
    let flow = batches::flow(processor, own, &settings, &batch_file)?;
    batches::in_order(processor, &flow, delivery, checkpoint)?;
    Ok(Processor {
        name: processor.to_owned(),
        streams: inputs,
        key_form,
        plugin: folder.join(&own.plugin),
        config,
        lease_table,
        batch,
        prefetch: prefetch(processor, &file::Prefetch::over(own.prefetch.as_ref(), defaults.prefetch.as_ref()))?,
        flow,
        retry: retry(processor, &file::Retry::over(own.retry.as_ref(), defaults.retry.as_ref()), delivery)?,
        failure: failure(
            processor,
            &file::Failure::over(own.failure.as_ref(), defaults.failure.as_ref()),
            delivery,
            dead_letters.is_some(),
        )?,
        limits: limits(processor, &file::Limits::over(own.limits.as_ref(), defaults.limits.as_ref()))?,
        grants: grants::grants(
            processor,
            grants::Written::over(own.grants.as_ref(), defaults.grants.as_ref()),
            folder,
        )?,
        trial: trial(processor, own.reload.trial.as_deref(), folder)?,
        delivery,
        checkpoint,
        checkpoint_interval: time(
            &at("checkpoint-interval"),
            settings.checkpoint_interval,
            Duration::from_secs(2),
            [Duration::ZERO, HOUR],
        )?,
        checkpoint_count: match settings.checkpoint_count {
            None => None,
            given => Some(u64::from(count(&at("checkpoint-count"), given, 1, [1, 1_000_000_000])?)),
        },
        out_of_range: settings.out_of_range.unwrap_or_default(),
        outputs,
        dead_letters,
    })
}

fn lease_table(file: &File, processor: &str, own: &file::Processor) -> Checked<String> {
    let table = own.lease_table.clone().unwrap_or_else(|| format!("{}-{processor}", file.application));
    table_name(&["processors", processor, "lease-table"], &table)?;
    Ok(table)
}

fn prefetch(processor: &str, file: &file::Prefetch) -> Checked<Prefetch> {
    let at = |key| ["processors", processor, "prefetch", key];
    // Both are small numbers.
    let number = |default: u64| u32::try_from(default).unwrap_or(u32::MAX);
    let Prefetch { pages, records, bytes } = Prefetch::default();
    Ok(Prefetch {
        pages: count(&at("pages"), file.pages, number(pages), [1, 1000])?.into(),
        records: count(&at("records"), file.records, number(records), [1, 10_000_000])?.into(),
        bytes: size(&at("bytes"), file.bytes, bytes, [1, 1 << 40])?,
    })
}

fn limits(processor: &str, file: &file::Limits) -> Checked<Limits> {
    let at = |key| ["processors", processor, "limits", key];
    let half_a_minute = Duration::from_secs(30);
    let batch_timeout = time(&at("batch-timeout"), file.batch_timeout, half_a_minute, [MILLISECOND, HOUR])?;
    let start_timeout = time(&at("start-timeout"), file.start_timeout, half_a_minute, [MILLISECOND, HOUR])?;
    // A guest may compute for as long as it may take.
    let cpu_time = batch_timeout.max(start_timeout);
    let load = LoadLimits::default();
    Ok(Limits {
        memory: size(&at("memory"), file.memory, 128 * MIB, [MIB, 4096 * MIB])?,
        batch_timeout,
        start_timeout,
        cpu_time: time(&at("cpu-time"), file.cpu_time, cpu_time, [MILLISECOND, HOUR])?,
        outcome: size(&at("outcome"), file.outcome, 32 * MIB, [1024, 1024 * MIB])?,
        instances: count(&at("instances"), file.instances, 64, [1, 10_000])? as usize,
        log_lines_per_second: count(&at("log-lines-per-second"), file.log_lines_per_second, 100, [0, 1_000_000])?,
        log_line: size(&at("log-line"), file.log_line, 4096, [64, MIB])?,
        outputs: count(&at("outputs"), file.outputs, 100_000, [1, 10_000_000])? as usize,
        metric_series: count(&at("metric-series"), file.metric_series, 1000, [0, 100_000])? as usize,
        instance_calls: match file.instance_calls {
            None => None,
            given => Some(count(&at("instance-calls"), given, 1, [1, 1_000_000_000])?.into()),
        },
        retire_above: count(&at("retire-above"), file.retire_above, 50, [1, 100])?,
        keep_idle: time(&at("keep-idle"), file.keep_idle, MINUTE, [Duration::from_secs(1), 24 * HOUR])?,
        load: LoadLimits {
            file_bytes: size(&at("plugin-size"), file.plugin_size, load.file_bytes as u64, [1024, MAX_PLUGIN])?
                as usize,
            compile_timeout: time(
                &at("compile-timeout"),
                file.compile_timeout,
                load.compile_timeout,
                [Duration::from_millis(100), HOUR],
            )?,
            compile_memory_bytes: size(
                &at("compile-memory"),
                file.compile_memory,
                load.compile_memory_bytes,
                [64 * MIB, MIB * MIB],
            )?,
        },
    })
}

fn trial(processor: &str, file: Option<&Path>, folder: &Path) -> Checked<Option<PathBuf>> {
    if file.is_some_and(|path| path.as_os_str().is_empty()) {
        return wrong(code::MISSING, &["processors", processor, "reload", "trial"], "it names no file");
    }
    Ok(file.map(|path| folder.join(path)))
}

/// Two consumers on one table would take each other's checkpoints for their own. Each has two tables: its leases, and
/// what is not a lease.
fn separate_tables(processors: &BTreeMap<String, Processor>) -> Checked<()> {
    let tables = || processors.iter().filter_map(|(name, processor)| Some((name, processor.lease_table.as_deref()?)));
    let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, table) in tables() {
        if let Some(other) = owners.insert(table, name) {
            return one_table(name, table, other, "is the lease table");
        }
    }
    for (name, table) in tables() {
        if let Some(other) = table.strip_suffix(SIDECAR_SUFFIX).and_then(|table| owners.get(table)) {
            return one_table(name, table, other, "is the table beside the leases");
        }
    }
    Ok(())
}

fn one_table(name: &str, table: &str, other: &str, what: &str) -> Checked<()> {
    let mistake: Checked<()> = wrong(
        code::TWICE,
        &["processors", name, "lease-table"],
        format!("`{table}` {what} of processor `{other}` already"),
    );
    let help = "each processor is a consumer of its own: give it a table of its own with `lease-table`";
    mistake.map_err(|wrong| Wrong { help: Some(help.to_owned()), ..wrong })
}
