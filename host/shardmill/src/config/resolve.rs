//! Fills in the defaults and checks what types alone cannot.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use shardmill_engine::watchdog;
use shardmill_lease::WorkerId;
use shardmill_lease::store::KeyForm;
use shardmill_record::ShardId;
use shardmill_stream::StartPosition;
use shardmill_stream::start::{ShardStart, Start};
use tracing_subscriber::EnvFilter;

use super::check::{
    self, Checked, HOUR, MIB, Wrong, count, endpoint, helped, line, name, size, stream_arn, stream_id, stream_name,
    table_name, time, wrong,
};
use super::failure::{checkpoint_by, failure, retry};
use super::file::{self, CacheDir, File};
use super::outputs::outputs;
use super::{Admin, Aws, Batch, Config, Grants, Leases, Limits, Log, Processor, Stream, TokenSource, dead_letters};

/// The most records of one GetRecords.
const MAX_BATCH_RECORDS: u32 = 10_000;
const MILLISECOND: Duration = Duration::from_millis(1);
const MINUTE: Duration = Duration::from_secs(60);
/// As durations are written: 365 days and a quarter.
const YEAR: Duration = Duration::from_secs(31_557_600);

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
    let mut processors = BTreeMap::new();
    for (name, section) in &file.processors {
        processors.insert(name.clone(), processor(&file, &streams, name, section, folder)?);
    }
    if processors.is_empty() {
        let no_processor = wrong(&["processors"], "there is no processor, so there is nothing to run");
        return helped(no_processor, "add a table [processors.NAME] with `stream` and `plugin`");
    }
    separate_tables(&processors)?;
    Ok(Config {
        worker: worker(file.worker_id.as_deref())?,
        worker_runs_once: worker_runs_once(&file)?,
        aws: aws(&file.aws)?,
        admin: admin(&file.admin, folder)?,
        watchdog: watchdog(&file.watchdog)?,
        log: log(&file.log)?,
        leases,
        memory,
        shutdown_timeout,
        cache_dir: cache_dir(file.cache_dir, folder)?,
        application: file.application,
        processors,
        warnings: Vec::new(),
    })
}

fn worker(given: Option<&str>) -> Checked<WorkerId> {
    let Some(id) = given else { return worker_id(&generated_worker_id()) };
    line(&["worker-id"], id)?;
    worker_id(id)
}

fn worker_id(id: &str) -> Checked<WorkerId> {
    WorkerId::parse(id).or_else(|error| wrong(&["worker-id"], error.to_string()))
}

fn worker_runs_once(file: &File) -> Checked<bool> {
    if file.worker_runs_once && file.worker_id.is_none() {
        let nameless = wrong(&["worker-runs-once"], "without `worker-id` every run has an id of its own");
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
            wrong(&["admin", "listen"], format!("`{text}` is not an address with a port")),
            "write \"127.0.0.1:9465\", or \"[::1]:9465\"; port 0 takes any free one",
        );
    };
    let token = match (&file.token_file, &file.token_env) {
        (None, None) => None,
        (Some(path), None) if path.as_os_str().is_empty() => {
            return wrong(&["admin", "token-file"], "it names no file");
        }
        (Some(path), None) => Some(TokenSource::File(folder.join(path))),
        (None, Some(name)) => {
            line(&["admin", "token-env"], name)?;
            Some(TokenSource::Variable(name.clone()))
        }
        (Some(_), Some(_)) => {
            let both = wrong(&["admin", "token-env"], "there is `token-file` already");
            return helped(both, "the token is in a file or in an environment variable: name one of them");
        }
    };
    Ok(Admin { listen: file.enabled.unwrap_or(true).then_some(address), token })
}

fn log(file: &file::Log) -> Checked<Log> {
    let filter = file.filter.clone().unwrap_or_else(|| "info".to_owned());
    if EnvFilter::try_new(&filter).is_err() {
        return helped(
            wrong(&["log", "filter"], format!("`{filter}` is not a log filter")),
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
            wrong(&["leases", "leave"], message),
            "half of `shutdown-timeout` leaves time to finish what is in flight",
        );
    }
    if leases.expiry <= leases.renew + leases.write_timeout {
        let message = format!(
            "a lease would expire ({:?}) before it is renewed ({:?}, and the write may take {:?}): expiry must be longer than both together",
            leases.expiry, leases.renew, leases.write_timeout
        );
        return helped(wrong(&["leases", "expiry"], message), "three times `renew` survives two lost renewals");
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
        Some(CacheDir::Off(true)) => return wrong(&["cache-dir"], "a folder in quotes, or false, is expected"),
        Some(CacheDir::Folder(path)) if path.as_os_str().is_empty() => {
            return helped(wrong(&["cache-dir"], "it names no folder"), "false keeps no compiled code");
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

fn processor(
    file: &File,
    streams: &BTreeMap<&str, Stream>,
    processor: &str,
    own: &file::Processor,
    folder: &Path,
) -> Checked<Processor> {
    let at = |key| ["processors", processor, key];
    name(&["processors", processor], processor)?;
    let defaults = &file.defaults.processor;
    let settings = own.settings(defaults);
    if own.plugin.as_os_str().is_empty() {
        return helped(wrong(&at("plugin"), "it names no file"), "a WebAssembly component, such as \"route.wasm\"");
    }
    let lease_table = own.lease_table.clone().unwrap_or_else(|| format!("{}-{processor}", file.application));
    table_name(&at("lease-table"), &lease_table)?;
    let config = serde_json::to_value(&own.config).or_else(|error| wrong(&at("config"), error.to_string()))?;
    let (inputs, key_form) = inputs(file, streams, processor, own)?;
    let outputs = outputs(file, streams, processor, own)?;
    let dead_letters = match &settings.dead_letters {
        Some(table) => Some(dead_letters::resolve(table, processor, &inputs, &outputs, streams, folder)?),
        None => None,
    };
    let delivery = settings.delivery.unwrap_or_default();
    Ok(Processor {
        name: processor.to_owned(),
        streams: inputs,
        key_form,
        plugin: folder.join(&own.plugin),
        config,
        lease_table,
        batch: batch(processor, &file::Batch::over(own.batch.as_ref(), defaults.batch.as_ref()))?,
        retry: retry(processor, &file::Retry::over(own.retry.as_ref(), defaults.retry.as_ref()), delivery)?,
        failure: failure(
            processor,
            &file::Failure::over(own.failure.as_ref(), defaults.failure.as_ref()),
            delivery,
            dead_letters.is_some(),
        )?,
        limits: limits(processor, &file::Limits::over(own.limits.as_ref(), defaults.limits.as_ref()))?,
        grants: grants(&file::Grants::over(own.grants.as_ref(), defaults.grants.as_ref())),
        delivery,
        checkpoint: checkpoint_by(processor, settings.checkpoint, delivery)?,
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

/// The streams that a processor reads. One in `stream` or a list in `streams`, also of one, decides how lease keys are made.
fn inputs(
    file: &File,
    streams: &BTreeMap<&str, Stream>,
    processor: &str,
    own: &file::Processor,
) -> Checked<(Vec<Stream>, KeyForm)> {
    let at = |key| ["processors", processor, key];
    let (key, key_form) = match (&own.stream, &own.streams) {
        (Some(_), None) => ("stream", KeyForm::Shard),
        (None, Some(list)) if list.is_empty() => {
            return helped(wrong(&at("streams"), "it names no stream"), "a list such as [\"orders\", \"returns\"]");
        }
        (None, Some(_)) => ("streams", KeyForm::MultiStream),
        (Some(_), Some(_)) => {
            let both = wrong(&at("streams"), "there is `stream` already");
            return helped(
                both,
                "`stream` for a consumer of one stream, or `streams` for one of many: the lease table is another",
            );
        }
        (None, None) => {
            let neither = wrong(&["processors", processor], "no stream is named");
            return helped(neither, "set `stream`, or `streams` to a list");
        }
    };
    let mut inputs: Vec<Stream> = Vec::new();
    for named in own.inputs() {
        let input = match streams.get(named) {
            Some(defined) => defined.clone(),
            None => {
                stream_id(&at(key), named)?;
                stream(file, named, &file::Stream::default())?
            }
        };
        if inputs.iter().any(|other| other.id == input.id) {
            return wrong(&at(key), format!("`{}` is named twice", input.id));
        }
        inputs.push(input);
    }
    Ok((inputs, key_form))
}

fn stream(file: &File, name: &str, section: &file::Stream) -> Checked<Stream> {
    let id = match (&section.name, &section.arn) {
        (None, None) => {
            stream_id(&["streams", name], name)?;
            name
        }
        (Some(kinesis_name), None) => {
            line(&["streams", name], name)?;
            stream_name(&["streams", name, "name"], kinesis_name)?;
            kinesis_name
        }
        (kinesis_name, Some(text)) => {
            line(&["streams", name], name)?;
            let arn = stream_arn(&["streams", name, "arn"], text)?;
            if let Some(other) = kinesis_name.as_ref().filter(|other| *other != arn.name()) {
                let message = format!("it is the ARN of `{}`, while `name` is `{}`", arn.name(), check::shown(other));
                return helped(wrong(&["streams", name, "arn"], message), "leave `name` out: it follows from the ARN");
            }
            text
        }
    };
    let settings = section.settings(&file.defaults.stream);
    let idle = time(
        &["streams", name, "idle"],
        settings.idle,
        Duration::from_secs(1),
        // Kinesis answers five reads of a shard in a second.
        [Duration::from_millis(200), 5 * MINUTE],
    )?;
    let longest = idle.max(Duration::from_secs(2));
    let idle_max = time(&["streams", name, "idle-max"], settings.idle_max, longest, [idle, 5 * MINUTE]);
    Ok(Stream {
        id: id.to_owned(),
        start: Start {
            position: settings.start.unwrap_or(StartPosition::TrimHorizon),
            shards: start_shards(name, section)?,
        },
        reset: settings.reset.unwrap_or_default(),
        idle,
        idle_max: helped(idle_max, format!("it is the longest wait at the tip, and {idle:?} (`idle`) the shortest"))?,
        reads_per_second: count(&["streams", name, "reads-per-second"], settings.reads_per_second, 5, [1, 1000])?,
        bytes_per_second: size(
            &["streams", name, "bytes-per-second"],
            settings.bytes_per_second,
            2 * MIB,
            [16 * 1024, 1 << 40],
        )?,
        decoder: settings.decoder.unwrap_or_default(),
    })
}

fn start_shards(stream: &str, section: &file::Stream) -> Checked<BTreeMap<ShardId, ShardStart>> {
    let mut shards = BTreeMap::new();
    for (id, start) in &section.start_shards {
        let shard =
            ShardId::parse(id).or_else(|error| wrong(&["streams", stream, "start-shards", id], error.to_string()))?;
        shards.insert(shard, start.clone());
    }
    Ok(shards)
}

fn batch(processor: &str, file: &file::Batch) -> Checked<Batch> {
    let at = |key| ["processors", processor, "batch", key];
    Ok(Batch {
        records: count(&at("records"), file.records, 500, [1, MAX_BATCH_RECORDS])? as usize,
        bytes: size(&at("bytes"), file.bytes, 4 * MIB, [1, 64 * MIB])? as usize,
        wait: time(&at("wait"), file.wait, Duration::ZERO, [Duration::ZERO, 5 * MINUTE])?,
    })
}

fn limits(processor: &str, file: &file::Limits) -> Checked<Limits> {
    let at = |key| ["processors", processor, "limits", key];
    let half_a_minute = Duration::from_secs(30);
    Ok(Limits {
        memory: size(&at("memory"), file.memory, 128 * MIB, [MIB, 4096 * MIB])?,
        batch_timeout: time(&at("batch-timeout"), file.batch_timeout, half_a_minute, [MILLISECOND, HOUR])?,
        start_timeout: time(&at("start-timeout"), file.start_timeout, half_a_minute, [MILLISECOND, HOUR])?,
        outcome: size(&at("outcome"), file.outcome, 32 * MIB, [1024, 1024 * MIB])?,
        instances: count(&at("instances"), file.instances, 64, [1, 10_000])? as usize,
        log_lines_per_second: count(&at("log-lines-per-second"), file.log_lines_per_second, 100, [0, 1_000_000])?,
    })
}

fn grants(file: &file::Grants) -> Grants {
    Grants { clocks: file.clocks.unwrap_or(true), random: file.random.unwrap_or(true) }
}

/// Two consumers on one table would take each other's checkpoints for their own. Each has two tables: its leases, and
/// what is not a lease.
fn separate_tables(processors: &BTreeMap<String, Processor>) -> Checked<()> {
    let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, processor) in processors {
        if let Some(other) = owners.insert(&processor.lease_table, name) {
            return one_table(processors, name, other, "is the lease table");
        }
    }
    for (name, processor) in processors {
        let beside = processor.lease_table.strip_suffix(check::SIDECAR_SUFFIX);
        if let Some(other) = beside.and_then(|table| owners.get(table)) {
            return one_table(processors, name, other, "is the table beside the leases");
        }
    }
    Ok(())
}

fn one_table(processors: &BTreeMap<String, Processor>, name: &str, other: &str, what: &str) -> Checked<()> {
    let table = &processors[name].lease_table;
    let mistake: Checked<()> =
        wrong(&["processors", name, "lease-table"], format!("`{table}` {what} of processor `{other}` already"));
    let help = "each processor is a consumer of its own: give it a table of its own with `lease-table`";
    mistake.map_err(|wrong| Wrong { help: Some(help.to_owned()), ..wrong })
}
