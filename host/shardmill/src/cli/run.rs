//! `shardmill run`

use std::path::Path;

use super::{Failure, signals};
use crate::{Host, config, telemetry};

pub(super) const EXAMPLES: &str = "\
Examples:
  shardmill run --config shardmill.toml
  RUST_LOG=debug shardmill run --config shardmill.toml
  AWS_PROFILE=staging shardmill run -c staging.toml";

pub(super) async fn run(path: &Path) -> Result<(), Failure> {
    let config = config::load(path)?;
    telemetry::init(&config.log)?;
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    let stop = signals::stop_at_signal()?;
    let host = Host::builder(config).build().await?;
    host.run(stop).await?;
    Ok(())
}
