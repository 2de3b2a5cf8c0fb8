//! `shardmill local`

use clap::Args;
use shardmill_cause::{Coded, with_causes};

use super::{Failure, output, signals};
use crate::local::{Local, Options};

pub(super) const EXAMPLES: &str = "\
Examples:
  shardmill local                                    any free ports
  shardmill local --kinesis-port 4567 --dynamodb-port 8000

Everything is in memory and gone at the end.";

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The port of Kinesis; 0 takes any free one.
    #[arg(long, default_value_t = 0, value_name = "PORT")]
    kinesis_port: u16,
    /// The port of DynamoDB; 0 takes any free one.
    #[arg(long, default_value_t = 0, value_name = "PORT")]
    dynamodb_port: u16,
    /// Refuse writes beyond a shard's 1,000 records/s and 1 MiB/s, as AWS does.
    #[arg(long)]
    enforce_limits: bool,
    /// Print the settings as JSON, one line.
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(arguments: &Arguments) -> Result<(), Failure> {
    let stop = signals::stop_at_signal()?;
    let options = Options {
        kinesis_port: arguments.kinesis_port,
        dynamodb_port: arguments.dynamodb_port,
        enforce_limits: arguments.enforce_limits,
        ..Options::default()
    };
    let local =
        Local::start(options).await.map_err(|error| Failure::unavailable(with_causes(&error)).code(error.code()))?;
    let environment = local.endpoints().environment();
    if arguments.json {
        let object: serde_json::Map<_, _> =
            environment.into_iter().map(|(name, value)| (name, serde_json::Value::from(value))).collect();
        output::line(format_args!("{}", serde_json::Value::from(object)));
    } else {
        output::line(format_args!("# Kinesis and DynamoDB run on this machine, in memory, until Ctrl-C."));
        output::line(format_args!("# In another terminal:"));
        for (name, value) in environment {
            output::line(format_args!("export {name}={value}"));
        }
    }
    stop.cancelled().await;
    local.stop().await;
    Ok(())
}
