//! `shardmill demo`: real flights into a stream, through a processor, out to another stream, on this machine.

mod flights;
mod report;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use shardmill_cause::{Coded, code, with_causes};
use shardmill_producer::{BatchSender, Ordering, Permit};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::aws::Clients;
use crate::cli::{Failure, output, stop_at_signal};
use crate::config::{self, Config};
use crate::local::{self, Local};
use crate::{Host, telemetry};

const CONFIG: &str = include_str!("../../../../../demo/shardmill.toml");
const CONFIG_NAME: &str = "demo/shardmill.toml";
const PROCESSOR: &str = "flight-delays";
const INPUT: &str = "flights";
const INPUT_SHARDS: i32 = 4;
const OUTPUT: &str = "delays";
const OUTPUT_SHARDS: i32 = 2;
/// How many records go into one call of the producer: progress is shown between calls.
const PUT_AT_ONCE: usize = 250;

/// What `shardmill demo` takes.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  shardmill demo\n  shardmill demo --minutes 60 --json\n  shardmill demo --follow")]
pub(super) struct Arguments {
    /// Keep flights that left more than so many minutes late.
    #[arg(long, default_value_t = 15)]
    minutes: u32,
    /// Run on at the end, for more records of your own, until Ctrl-C.
    #[arg(long)]
    follow: bool,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    /// The processor, if it is not where `make plugins` puts it.
    #[arg(long, value_name = "FILE.wasm")]
    plugin: Option<PathBuf>,
}

/// Runs the demo to its end.
pub(super) async fn run(arguments: Arguments) -> Result<(), Failure> {
    let config = configuration(&arguments)?;
    telemetry::init(&config.log)?;
    let stop = stop_at_signal()?;
    let local = Local::start(local::Options::default())
        .await
        .map_err(|error| Failure::unavailable(with_causes(&error)).code(error.code()))?;
    let result = tokio::select! {
        result = demonstrate(&arguments, config, &local, &stop) => result,
        () = stop.cancelled(), if !arguments.follow => Err(Failure::running("the demo was interrupted").code(code::command::INTERRUPTED)),
    };
    local.stop().await;
    result
}

async fn demonstrate(
    arguments: &Arguments,
    mut config: Config,
    local: &Local,
    stop: &CancellationToken,
) -> Result<(), Failure> {
    config.aws.kinesis_endpoint = Some(local.endpoints().kinesis.clone());
    config.aws.dynamodb_endpoint = Some(local.endpoints().dynamodb.clone());
    let sdk = crate::aws::local();
    let clients = Clients::new(&sdk, &config.aws);
    let say = |text: &str| {
        if !arguments.json {
            output::say(text);
        }
    };

    say("Kinesis and DynamoDB are running inside this process, in memory.");
    create_stream(&clients, INPUT, INPUT_SHARDS).await?;
    create_stream(&clients, OUTPUT, OUTPUT_SHARDS).await?;

    let records = flights::records();
    let total = records.len() as u64;
    say(&format!(
        "Putting {total} flights out of New York, 1–3 January 2013, into the stream `{INPUT}`, {INPUT_SHARDS} shards."
    ));
    put(&clients, records, arguments.json).await?;

    let lease_table =
        config.processors.get(PROCESSOR).and_then(|processor| processor.lease_table.clone()).unwrap_or_default();
    let host = Host::builder(config).sdk_config(sdk).build().await?;
    let progress = host.progress();
    let admin = host.admin_address();
    let drain = CancellationToken::new();
    let running = tokio::spawn(host.run(drain.clone()));
    say(&format!("Processing them with `{PROCESSOR}`: more than {} minutes late.", arguments.minutes));
    let began = Instant::now();
    let bar = bar(total, arguments.json);
    let waited = async {
        loop {
            let done = progress.records_done(PROCESSOR, INPUT);
            bar.set_position(done.min(total));
            if done >= total {
                return Ok(());
            }
            if running.is_finished() {
                return Err(Failure::running("the host stopped before all flights were processed"));
            }
            if let Some(reason) = progress.stopped_shards().into_iter().next() {
                return Err(Failure::running(reason));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    .await;
    bar.finish_and_clear();
    let seconds = began.elapsed().as_secs_f64();
    if waited.is_ok() && arguments.follow {
        show(arguments, &clients, total, seconds, &lease_table, local).await?;
        say("\nRunning on; Ctrl-C ends it. Health and metrics:");
        if let Some(address) = admin {
            say(&format!("  http://{address}/readyz and http://{address}/metrics"));
        }
        // The host may end by itself as well.
        while !stop.is_cancelled() && !running.is_finished() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    drain.cancel();
    // The drain waits for outputs to be acknowledged and writes the last checkpoints.
    match running.await {
        Ok(result) => result?,
        Err(panic) => {
            return Err(Failure::running(format!("the host broke down: {panic}")).code(code::process::BROKE_DOWN));
        }
    }
    waited?;
    if !arguments.follow {
        show(arguments, &clients, total, seconds, &lease_table, local).await?;
    }
    Ok(())
}

fn configuration(arguments: &Arguments) -> Result<Config, Failure> {
    let mut config = config::parse(CONFIG_NAME, CONFIG, std::path::Path::new("demo"))?;
    config.log.filter = "warn".to_owned();
    let free_port = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    config.admin.listen = Some(free_port);
    let plugin = match &arguments.plugin {
        Some(path) => path.clone(),
        None => find_plugin()?,
    };
    if let Some(processor) = config.processors.get_mut(PROCESSOR) {
        processor.plugin = plugin;
        processor.config["minutes"] = arguments.minutes.into();
        // The reader is at the tip for a moment only.
        for stream in &mut processor.streams {
            stream.idle = Duration::from_millis(200);
            stream.idle_max = stream.idle;
        }
    }
    Ok(config)
}

fn find_plugin() -> Result<PathBuf, Failure> {
    let beside_binary = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.parent()?.join("plugins")));
    let folders = [Some(PathBuf::from("target/plugins")), beside_binary];
    let candidates = folders.into_iter().flatten().map(|folder| folder.join("flight_delays.wasm"));
    candidates.into_iter().find(|path| path.is_file()).ok_or_else(|| {
        Failure::configuration("the processor flight_delays.wasm is not there")
            .code(code::config::FILE)
            .help("build it with `make plugins`, or name it with --plugin FILE.wasm")
    })
}

async fn create_stream(clients: &Clients, name: &str, shards: i32) -> Result<(), Failure> {
    let created = clients.kinesis.create_stream().stream_name(name).shard_count(shards).send().await;
    created
        .map_err(|error| Failure::running(format!("the stream {name} cannot be created: {}", with_causes(&error))))?;
    shardmill_stream::Kinesis::new(clients.kinesis.clone())
        .wait_until_created(name)
        .await
        .map_err(|error| Failure::running(with_causes(&error)))?;
    Ok(())
}

async fn put(clients: &Clients, records: Vec<shardmill_record::UserRecord>, quiet: bool) -> Result<(), Failure> {
    let options = shardmill_producer::BatchOptions {
        ordering: Ordering::None,
        aggregate: false,
        ..shardmill_producer::BatchOptions::default()
    };
    let producer = BatchSender::new(
        clients.producer.clone(),
        INPUT.to_owned(),
        options,
        shardmill_producer::Metrics::default(),
        rand::random(),
    );
    let bar = bar(records.len() as u64, quiet);
    for chunk in records.chunks(PUT_AT_ONCE) {
        producer
            .send(chunk.to_vec(), &Permit::always())
            .await
            .map_err(|error| Failure::running(with_causes(&error)))?;
        bar.inc(chunk.len() as u64);
    }
    bar.finish_and_clear();
    Ok(())
}

/// A progress bar on a terminal, nothing elsewhere.
fn bar(total: u64, quiet: bool) -> ProgressBar {
    let bar = ProgressBar::new(total);
    if quiet {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    let style = ProgressStyle::with_template("  {bar:40} {pos}/{len} records  {per_sec}  {elapsed}");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

async fn show(
    arguments: &Arguments,
    clients: &Clients,
    total: u64,
    seconds: f64,
    lease_table: &str,
    local: &Local,
) -> Result<(), Failure> {
    let delays = report::read(clients, OUTPUT).await?;
    let report = report::Report::new(&delays, arguments.minutes, total, seconds);
    if arguments.json {
        output::line(format_args!("{:#}", report.json()));
        return Ok(());
    }
    output::line(format_args!("{}", report.table()));
    output::line(format_args!("{}", report.summary()));
    output::line(format_args!(
        "Where things are: input in the stream `{INPUT}`, results in the stream `{OUTPUT}`, leases and checkpoints in the"
    ));
    output::line(format_args!(
        "DynamoDB table `{lease_table}` (all in memory at {} and {}).",
        local.endpoints().kinesis,
        local.endpoints().dynamodb
    ));
    output::line(format_args!(
        "Next: the processor is plugins/flight-delays/src/lib.rs, the configuration demo/shardmill.toml; with your own streams"
    ));
    output::line(format_args!(
        "and AWS credentials `shardmill run --config FILE` does the same on AWS. `shardmill demo --follow` runs on."
    ));
    Ok(())
}
