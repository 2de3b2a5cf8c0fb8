//! Fills in the defaults and checks what types alone cannot.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use shardmill_lease::WorkerId;
use shardmill_record::ShardId;
use shardmill_stream::StartPosition;
use shardmill_stream::start::Start;

use super::file::{self, CacheDir, File};
use super::units::{Size, Time};
use super::{Admin, Aws, Batch, Config, Grants, Leases, Limits, Log, Output, Processor, Retry, Stream};

/// The most records of one GetRecords.
const MAX_BATCH_RECORDS: usize = 10_000;
const MIB: u64 = 1 << 20;

/// A mistake and the key that it is about.
pub(super) struct Wrong {
    pub(super) path: Vec<String>,
    pub(super) message: String,
    pub(super) help: Option<String>,
}

type Checked<T> = Result<T, Wrong>;

fn wrong<T>(path: &[&str], message: impl Into<String>) -> Checked<T> {
    let path = path.iter().map(|key| (*key).to_owned()).collect();
    Err(Wrong { path, message: message.into(), help: None })
}

fn helped<T>(checked: Checked<T>, help: impl Into<String>) -> Checked<T> {
    checked.map_err(|wrong| Wrong { help: Some(help.into()), ..wrong })
}

fn time(given: Option<Time>, default: Duration) -> Duration {
    given.map_or(default, |time| time.0)
}

fn size(given: Option<Size>, default: u64) -> u64 {
    given.map_or(default, |size| size.0)
}

fn within<T: PartialOrd + std::fmt::Debug>(path: &[&str], value: T, lowest: T, highest: T) -> Checked<T> {
    if value < lowest || value > highest {
        return wrong(path, format!("{value:?} is out of bounds: {lowest:?} to {highest:?} is allowed"));
    }
    Ok(value)
}

pub(super) fn resolve(file: File, folder: &Path) -> Checked<Config> {
    name(&["application"], &file.application)?;
    let leases = leases(&file.leases)?;
    let memory = within(&["memory"], size(file.memory, 256 * MIB), 32 * MIB, 1 << 40)?;
    let shutdown_timeout = within(
        &["shutdown-timeout"],
        time(file.shutdown_timeout, Duration::from_secs(25)),
        Duration::from_millis(100),
        Duration::from_secs(3600),
    )?;
    let mut processors = BTreeMap::new();
    for (name, section) in &file.processors {
        processors.insert(name.clone(), processor(&file, name, section, folder)?);
    }
    if processors.is_empty() {
        let no_processor = wrong(&["processors"], "there is no processor, so there is nothing to run");
        return helped(no_processor, "add a table [processors.NAME] with `stream` and `plugin`");
    }
    separate_tables(&processors)?;
    Ok(Config {
        worker: worker(file.worker_id.as_deref())?,
        worker_runs_once: worker_runs_once(&file)?,
        aws: aws(file.aws),
        admin: admin(&file.admin)?,
        log: Log {
            format: file.log.format.unwrap_or_default(),
            filter: file.log.filter.unwrap_or_else(|| "info".to_owned()),
        },
        leases,
        memory,
        shutdown_timeout,
        cache_dir: cache_dir(file.cache_dir, folder)?,
        application: file.application,
        processors,
    })
}

/// Names become parts of table names, metrics labels and log fields.
fn name(path: &[&str], name: &str) -> Checked<()> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    if name.is_empty() || name.len() > 100 || !name.bytes().all(allowed) {
        return wrong(path, format!("`{name}` is not a name: 1 to 100 letters, digits, `_`, `.` or `-` are allowed"));
    }
    Ok(())
}

/// The rule of the Kinesis API.
fn stream_name(path: &[&str], name: &str) -> Checked<()> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    if name.is_empty() || name.len() > 128 || !name.bytes().all(allowed) {
        return wrong(path, format!("`{name}` is not a stream's name: 1 to 128 letters, digits, `_`, `.` or `-`"));
    }
    Ok(())
}

fn worker(given: Option<&str>) -> Checked<WorkerId> {
    let id = given.map_or_else(generated_worker_id, str::to_owned);
    WorkerId::parse(&id).or_else(|error| wrong(&["worker-id"], error.to_string()))
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

fn aws(file: file::Aws) -> Aws {
    Aws {
        region: file.region,
        profile: file.profile,
        kinesis_endpoint: file.kinesis_endpoint,
        dynamodb_endpoint: file.dynamodb_endpoint,
    }
}

fn admin(file: &file::Admin) -> Checked<Admin> {
    if file.enabled == Some(false) {
        return Ok(Admin { listen: None });
    }
    let text = file.listen.as_deref().unwrap_or("127.0.0.1:9465");
    match text.parse() {
        Ok(address) => Ok(Admin { listen: Some(address) }),
        Err(_) => helped(
            wrong(&["admin", "listen"], format!("`{text}` is not an address with a port")),
            "write \"127.0.0.1:9465\", or \"[::1]:9465\"; port 0 takes any free one",
        ),
    }
}

fn leases(file: &file::Leases) -> Checked<Leases> {
    let hour = Duration::from_secs(3600);
    let at_least = Duration::from_millis(50);
    let leases = Leases {
        renew: within(&["leases", "renew"], time(file.renew, Duration::from_millis(3300)), at_least, hour)?,
        expiry: within(&["leases", "expiry"], time(file.expiry, Duration::from_secs(10)), at_least, hour)?,
        scan: within(&["leases", "scan"], time(file.scan, Duration::from_secs(2)), at_least, hour)?,
        sync: within(&["leases", "sync"], time(file.sync, Duration::from_secs(60)), at_least, hour)?,
        write_timeout: within(
            &["leases", "write-timeout"],
            // What is left for a write between the last renewal that can be in time and the expiry, 2 s at most.
            time(file.write_timeout, write_timeout(file)),
            Duration::from_millis(10),
            hour,
        )?,
        max_per_worker: file.max_per_worker,
    };
    if leases.max_per_worker == Some(0) {
        return wrong(&["leases", "max-per-worker"], "0 leases would leave this worker without work: 1 or more");
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
    let expiry = time(file.expiry, Duration::from_secs(10));
    let renew = time(file.renew, Duration::from_millis(3300));
    let left = expiry.saturating_sub(renew) / 2;
    left.clamp(Duration::from_millis(10), Duration::from_secs(2))
}

fn cache_dir(given: Option<CacheDir>, folder: &Path) -> Checked<Option<PathBuf>> {
    Ok(match given {
        Some(CacheDir::Off(false)) => None,
        Some(CacheDir::Off(true)) => return wrong(&["cache-dir"], "a folder in quotes, or false, is expected"),
        Some(CacheDir::Folder(path)) => Some(folder.join(path)),
        None => default_cache_dir(),
    })
}

fn default_cache_dir() -> Option<PathBuf> {
    let absolute = |variable| std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")))?;
    Some(base.join("shardmill").join("compiled"))
}

fn processor(file: &File, name_: &str, section: &file::Processor, folder: &Path) -> Checked<Processor> {
    let path = |rest: &[&'static str]| -> Vec<String> {
        ["processors", name_].iter().chain(rest).map(|key| (*key).to_owned()).collect()
    };
    let at = |rest: &[&'static str]| path(rest);
    name(&["processors", name_], name_)?;
    let own = section;
    let defaults = &file.defaults.processor;
    let settings = section.settings(defaults);

    let lease_table = own.lease_table.clone().unwrap_or_else(|| format!("{}-{name_}", file.application));
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    // DynamoDB takes 3 to 255; the sidecar table's suffix takes ten of them.
    if !(3..=245).contains(&lease_table.len()) || !lease_table.bytes().all(allowed) {
        let message = format!("`{lease_table}` is not a table's name: 3 to 245 letters, digits, `_`, `.` or `-`");
        return Err(Wrong { path: at(&["lease-table"]), message, help: None });
    }

    let mut outputs = BTreeMap::new();
    for (output_name, output) in &own.outputs {
        let keys = ["processors", name_, "outputs", output_name];
        name(&keys, output_name)?;
        stream_name(&[&keys[..], &["stream"]].concat(), &output.stream)?;
        let settings = output.settings(&file.defaults.output);
        outputs.insert(
            output_name.clone(),
            Output {
                // An output may use the name that a stream has in this file, or Kinesis' own.
                stream: file
                    .streams
                    .get(&output.stream)
                    .and_then(|stream| stream.name.clone())
                    .unwrap_or_else(|| output.stream.clone()),
                ordering: settings.ordering.unwrap_or_default(),
                aggregate: settings.aggregate.unwrap_or(true),
            },
        );
    }

    let config = match serde_json::to_value(&own.config) {
        Ok(config) => config,
        Err(error) => return Err(Wrong { path: at(&["config"]), message: error.to_string(), help: None }),
    };
    Ok(Processor {
        name: name_.to_owned(),
        stream: stream(file, name_, &own.stream)?,
        plugin: folder.join(&own.plugin),
        config,
        lease_table,
        batch: batch(name_, &file::Batch::over(own.batch.as_ref(), defaults.batch.as_ref()))?,
        retry: retry(name_, &file::Retry::over(own.retry.as_ref(), defaults.retry.as_ref()))?,
        limits: limits(name_, &file::Limits::over(own.limits.as_ref(), defaults.limits.as_ref()))?,
        grants: grants(&file::Grants::over(own.grants.as_ref(), defaults.grants.as_ref())),
        checkpoint_interval: within(
            &["processors", name_, "checkpoint-interval"],
            time(settings.checkpoint_interval, Duration::from_secs(2)),
            Duration::ZERO,
            Duration::from_secs(3600),
        )?,
        out_of_range: settings.out_of_range.unwrap_or_default(),
        outputs,
    })
}

fn stream(file: &File, processor: &str, name: &str) -> Checked<Stream> {
    let keys = ["processors", processor, "stream"];
    let unnamed = file::Stream {
        name: None,
        start_shards: BTreeMap::new(),
        start: None,
        idle: None,
        reads_per_second: None,
        bytes_per_second: None,
        decoder: None,
    };
    let section = file.streams.get(name).unwrap_or(&unnamed);
    let kinesis_name = section.name.clone().unwrap_or_else(|| name.to_owned());
    match &section.name {
        Some(kinesis_name) => stream_name(&["streams", name, "name"], kinesis_name)?,
        None => stream_name(&keys, name)?,
    }
    let settings = section.settings(&file.defaults.stream);
    Ok(Stream {
        name: kinesis_name,
        start: Start {
            position: settings.start.unwrap_or(StartPosition::TrimHorizon),
            shards: start_shards(name, section)?,
        },
        idle: within(
            &["streams", name, "idle"],
            time(settings.idle, Duration::from_secs(1)),
            // Kinesis answers five reads of a shard in a second.
            Duration::from_millis(200),
            Duration::from_secs(300),
        )?,
        reads_per_second: within(
            &["streams", name, "reads-per-second"],
            settings.reads_per_second.unwrap_or(5),
            1,
            1000,
        )?,
        bytes_per_second: within(
            &["streams", name, "bytes-per-second"],
            size(settings.bytes_per_second, 2 * MIB),
            16 * 1024,
            1 << 40,
        )?,
        decoder: settings.decoder.unwrap_or_default(),
    })
}

fn start_shards(
    stream: &str,
    section: &file::Stream,
) -> Checked<BTreeMap<ShardId, shardmill_stream::start::ShardStart>> {
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
        records: within(&at("records"), file.records.unwrap_or(500), 1, MAX_BATCH_RECORDS)?,
        bytes: within(&at("bytes"), size(file.bytes, 4 * MIB), 1, 64 * MIB)? as usize,
        wait: within(&at("wait"), time(file.wait, Duration::ZERO), Duration::ZERO, Duration::from_secs(300))?,
    })
}

fn retry(processor: &str, file: &file::Retry) -> Checked<Retry> {
    let at = |key| ["processors", processor, "retry", key];
    let hour = Duration::from_secs(3600);
    let backoff = time(file.backoff, Duration::from_millis(200));
    Ok(Retry {
        attempts: within(&at("attempts"), file.attempts.unwrap_or(10), 1, 1_000_000)?,
        backoff: within(&at("backoff"), backoff, Duration::ZERO, hour)?,
        max_backoff: within(
            &at("max-backoff"),
            time(file.max_backoff, Duration::from_secs(30).max(backoff)),
            backoff,
            hour,
        )?,
    })
}

fn limits(processor: &str, file: &file::Limits) -> Checked<Limits> {
    let at = |key| ["processors", processor, "limits", key];
    let millisecond = Duration::from_millis(1);
    let hour = Duration::from_secs(3600);
    Ok(Limits {
        memory: within(&at("memory"), size(file.memory, 128 * MIB), MIB, 4096 * MIB)?,
        batch_timeout: within(
            &at("batch-timeout"),
            time(file.batch_timeout, Duration::from_secs(30)),
            millisecond,
            hour,
        )?,
        start_timeout: within(
            &at("start-timeout"),
            time(file.start_timeout, Duration::from_secs(30)),
            millisecond,
            hour,
        )?,
        outcome: within(&at("outcome"), size(file.outcome, 32 * MIB), 1024, 1024 * MIB)?,
        instances: within(&at("instances"), file.instances.unwrap_or(64), 1, 10_000)?,
        log_lines_per_second: within(
            &at("log-lines-per-second"),
            file.log_lines_per_second.unwrap_or(100),
            0,
            1_000_000,
        )?,
    })
}

fn grants(file: &file::Grants) -> Grants {
    Grants { clocks: file.clocks.unwrap_or(true), random: file.random.unwrap_or(true) }
}

/// Two consumers on one table would take each other's checkpoints for their own.
fn separate_tables(processors: &BTreeMap<String, Processor>) -> Checked<()> {
    let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, processor) in processors {
        if let Some(other) = owners.insert(&processor.lease_table, name) {
            return helped(
                wrong(
                    &["processors", name, "lease-table"],
                    format!("`{}` is the lease table of processor `{other}` already", processor.lease_table),
                ),
                "each processor is a consumer of its own and needs its own table",
            );
        }
    }
    Ok(())
}
