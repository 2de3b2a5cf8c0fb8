//! `shardmill plugin rollback`

use std::time::Duration;

use clap::Args;
use shardmill_cause::Coded;

use super::deploy::{self, Telling};
use super::{Place, failed};
use crate::cli::{ConfigArguments, Failure};
use crate::fleet::deployment::Order;
use crate::fleet::documents;
use crate::fleet::share::Share;

#[derive(Debug, Args)]
pub(in crate::cli) struct Arguments {
    /// The processor's name.
    #[arg(value_name = "PROCESSOR")]
    processor: String,
    /// The version to go back to: its SHA-256, or the beginning of it. Without it, what was there before; and once more,
    /// what was there before that.
    #[arg(long, value_name = "DIGEST")]
    to: Option<String>,
    #[command(flatten)]
    config: ConfigArguments,
    /// Wait until each worker runs it, at most so long (5m if no time is named).
    #[arg(
        long,
        value_name = "TIME",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "5m",
        value_parser = humantime::parse_duration
    )]
    wait: Option<Duration>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Workers check what they fetch; here nothing is loaded, because it was run before.
pub(in crate::cli) async fn rollback(arguments: &Arguments) -> Result<(), Failure> {
    let Arguments { processor, to, config, wait, json } = arguments;
    let place = Place::open(&config.config).await?;
    let tables = place.home(processor)?;
    let rolled = async {
        let before = documents::read(&tables, processor).await.map_err(failed)?;
        let history = before.deployment.history();
        let entry = match to {
            Some(digits) => history.find(digits),
            None => history.before(),
        };
        let entry = entry.map_err(|error| {
            Failure::usage(format!("{processor}: {error}"))
                .code(error.code())
                .help(format!("`shardmill plugin history {processor}` shows what there is"))
        })?;
        let (digest, source) = (entry.digest, entry.source.clone());
        let order = Order { digest, source, share: Share::ALL, is_rollback: true };
        deploy::carry_out(&place, processor, &tables, &before, &order, Telling { wait: *wait, json: *json }).await
    };
    place.unless_stopped(rolled).await
}
