//! `shardmill run`

use std::time::Duration;

use clap::Args;

use super::{ConfigArguments, Failure, signals};
use crate::deploy::Why;
use crate::{Bounds, Host, config, telemetry};

pub(super) const EXAMPLES: &str = "\
Examples:
  shardmill run --config shardmill.toml
  shardmill run --config shardmill.toml --until-idle     a job: what is there, then the end
  shardmill run -c shardmill.toml --until-idle 30s --max-records 1000000
  RUST_LOG=debug shardmill run --config shardmill.toml
  AWS_PROFILE=staging shardmill run -c staging.toml

SIGHUP, or a change of the files, lets it read its configuration and its plugins again: other
versions of plugins take over between two batches, and what needs a restart is named in the log.
A run that ends by itself checkpoints and releases its leases as one does that is told to stop.
Its exit status is 70 if shards are stopped then, or a stream is gone.";

/// A shard at its tip is asked again after this time or so, and leases change hands in less.
const SHORTEST: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    config: ConfigArguments,
    /// End when each shard that this worker has is done up to its tip, with nothing in flight, and has been for so long
    /// (5s if no time is named; 1s at least). Shards of workers that live are not waited for, those of workers that are gone
    /// are.
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "5s", value_parser = grace)]
    until_idle: Option<Duration>,
    /// End when so many user records are processed, of all processors together; no more are. Records that are passed over
    /// count, and one that is processed again after a failure counts once.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_records: Option<u64>,
}

fn grace(text: &str) -> Result<Duration, String> {
    let grace = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if grace < SHORTEST { Err(format!("{SHORTEST:?} is the shortest")) } else { Ok(grace) }
}

pub(super) async fn run(arguments: &Arguments) -> Result<(), Failure> {
    let (config, source) = config::load_with_source(&arguments.config.config)?;
    telemetry::init(&config.log)?;
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    let (stop, mut hangup) = signals::stop_or_hang_up()?;
    let bounds = Bounds { until_idle: arguments.until_idle, max_records: arguments.max_records };
    let host = Host::builder(config).source(source).bounds(bounds).build().await?;
    let reloader = host.reloader();
    let reloading = async {
        while hangup.recv().await.is_some() {
            reloader.reload(Why::Signal).await;
        }
        std::future::pending().await
    };
    tokio::select! {
        ended = host.run(stop) => ended?,
        () = reloading => {}
    }
    Ok(())
}
