use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use shardmill_plugin::{
    Failure, Form, Grants, Instance, Limits, Metrics, Module, Outcome, Plugin, Runtime, RuntimeOptions, Settings,
    ShardContext,
};
use shardmill_record::{Batch, BatchBuilder, Record, ShardId};
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::MakeWriter;

/// The bytes of a guest that was built from `tests/guests`.
pub(crate) fn guest(form: Form) -> Vec<u8> {
    named_guest(&format!("guest_{form}"))
}

/// The bytes of a guest by its file's name.
pub(crate) fn named_guest(name: &str) -> Vec<u8> {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/guests/wasm32-wasip2/guest");
    let directory = std::env::var_os("SHARDMILL_GUESTS").map_or_else(|| PathBuf::from(default), PathBuf::from);
    let path = directory.join(format!("{name}.wasm"));
    std::fs::read(&path).unwrap_or_else(|error| {
        panic!(
            "{}: {error}. Build the guests first, for wasm32-wasip2 with the profile `guest`, or name their directory \
             in SHARDMILL_GUESTS",
            path.display()
        )
    })
}

/// A runtime and what it counts.
pub(crate) struct World {
    pub(crate) runtime: Runtime,
    pub(crate) metrics: Metrics,
    pub(crate) limits: Limits,
    /// What the guest in rows wants, at first.
    pub(crate) grants: Grants,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(RuntimeOptions { cache_dir: Self::cache_dir(), max_instances: 8, threads: None, compiler: None })
    }

    /// Guests are compiled once, not once a test.
    pub(crate) fn cache_dir() -> Option<PathBuf> {
        Some(PathBuf::from(concat!(env!("CARGO_TARGET_TMPDIR"), "/guest-code")))
    }

    pub(crate) fn with(options: RuntimeOptions) -> Self {
        let metrics = Metrics::default();
        let runtime = Runtime::new(options, metrics.clone()).unwrap();
        let grants = Grants { clocks: true, metrics: true, ..Grants::default() };
        Self { runtime, metrics, limits: Limits::default(), grants }
    }

    pub(crate) async fn module(&self, form: Form) -> Module {
        self.runtime.load("guest", guest(form)).await.unwrap()
    }

    pub(crate) fn plugin(&self, module: &Module, config: Value) -> Plugin {
        let (limits, grants) = (self.limits.clone(), self.grants.clone());
        let settings = Settings { processor: "flights".into(), config, limits, grants };
        Plugin::new(&self.runtime, module.clone(), settings).unwrap()
    }

    pub(crate) async fn instance(&self, form: Form, behaviour: &str) -> Instance {
        let plugin = self.plugin(&self.module(form).await, json!({ "do": behaviour }));
        plugin.instance().await.unwrap()
    }

    /// What a new instance makes of [`batch`], and whether it can go on.
    pub(crate) async fn process(&self, form: Form, behaviour: &str) -> (Result<Outcome, Failure>, bool) {
        let mut instance = self.instance(form, behaviour).await;
        let result = instance.process_batch(&shard(), &batch()).await;
        (result, instance.is_usable())
    }
}

pub(crate) fn shard() -> ShardContext {
    ShardContext {
        application: "air".into(),
        processor: "flights".into(),
        stream: "departures".into(),
        shard: ShardId::parse("shardId-000000000003").unwrap(),
        worker: "worker-1".into(),
        lease_epoch: 7,
        attempt: 1,
        millis_behind_latest: Some(1500),
        last_batch: false,
    }
}

pub(crate) fn record<'a>(sequence_number: &'a str, explicit_hash_key: Option<&'a str>, data: &'a [u8]) -> Record<'a> {
    Record {
        sequence_number,
        sub_sequence_number: 2,
        partition_key: "AA é",
        explicit_hash_key,
        approximate_arrival: 1_700_000_000_123,
        data,
    }
}

/// Four records.
pub(crate) fn batch() -> Batch {
    let mut builder = BatchBuilder::default();
    builder.push(record("49590338271490256608559692538361571095921575989136588898", None, b"one"));
    builder.push(record("49590338271490256608559692538361571095921575989136588899", Some("12"), b""));
    builder.push(record("49590338271490256608559692538361571095921575989136588900", None, b"\xff\0three"));
    builder.push(record("49590338271490256608559692538361571095921575989136588901", Some("0"), b"four"));
    builder.build()
}

/// What one thread logs, as text.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Takes this thread's log from now on, from level `INFO` up.
    pub(crate) fn capture() -> (Self, DefaultGuard) {
        let log = Self::default();
        let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).with_ansi(false).without_time().finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    /// The lines of guests.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.all_lines().into_iter().filter(|line| line.contains(" guest: ")).collect()
    }

    /// The lines of guests and of the host.
    pub(crate) fn all_lines(&self) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().map(|line| line.trim().to_owned()).collect()
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
