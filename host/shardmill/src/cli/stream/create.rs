//! `shardmill stream create`

use std::time::Duration;

use aws_sdk_kinesis::types::{StreamMode, StreamModeDetails};
use clap::{ArgGroup, Args};

use super::description::{Description, Mode};
use super::refusal::{Order, refused};
use super::{Change, interruptible};
use crate::cli::{Failure, access, text};

pub(super) const EXAMPLES: &str = "\
Examples:
  shardmill stream create orders --shards 4
  shardmill stream create orders --on-demand --retention 7days
  shardmill stream create flights --shards 2 --endpoint-url http://127.0.0.1:4567

A shard takes 1,000 records and 1 MiB a second. On-demand, AWS decides on the shards, beginning with four.";

const HOUR: Duration = Duration::from_secs(3600);
/// What a new stream has, and the least that there is (AWS limit).
const LEAST_HOURS: i32 = 24;
/// AWS limit: 365 days.
const MOST_HOURS: i32 = 8_760;
/// What one CreateStream takes (API reference).
const MOST_SHARDS: i64 = 100_000;

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("capacity").args(["shards", "on_demand"]).required(true))]
pub(crate) struct Arguments {
    /// Its name.
    #[arg(value_name = "NAME", value_parser = access::name)]
    name: String,
    /// How many shards it has.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=MOST_SHARDS))]
    shards: Option<i32>,
    /// Let AWS decide how many shards it has.
    #[arg(long)]
    on_demand: bool,
    /// How long records are kept, in whole hours from 24h to 365days; 24h unless this is named. A longer time can be set of
    /// a stream only that is active, so that it is waited for.
    #[arg(long, value_name = "TIME", value_parser = hours)]
    retention: Option<i32>,
    #[command(flatten)]
    change: Change,
}

pub(super) async fn create(arguments: &Arguments) -> Result<(), Failure> {
    let name = &arguments.name;
    let access = arguments.change.access.open(name).await?;
    let request = access.client.create_stream().stream_name(name).set_shard_count(arguments.shards);
    let request = if arguments.on_demand {
        let mode = StreamModeDetails::builder().stream_mode(StreamMode::OnDemand).build();
        request.stream_mode_details(mode.map_err(|error| Failure::running(error.to_string()))?)
    } else {
        request
    };
    let asked = async { request.send().await.map_err(|error| refused(&access, Order::Create, &error)) };
    interruptible(&access, asked).await?;
    let what = format!("the creation of {name}");
    if let Some(hours) = arguments.retention.filter(|hours| *hours > LEAST_HOURS) {
        // It is taken for a stream that is active only.
        super::wait::until_active(&access, &what, arguments.change.json).await?;
        let request = access.client.increase_stream_retention_period().stream_name(name).retention_period_hours(hours);
        let asked = async { request.send().await.map_err(|error| refused(&access, Order::Retain, &error)) };
        interruptible(&access, asked).await.map_err(|failure| {
            failure.help(format!("the stream {name} is there, and keeps records for {LEAST_HOURS} h"))
        })?;
    }
    let done = |description: &Description| {
        let mode = match description.mode {
            Mode::OnDemand => ", on-demand",
            Mode::Provisioned => "",
        };
        let shards = text::counted(description.open().count() as u64, "shard");
        format!("{name} is active: {shards}{mode}, records are kept for {} h.", description.retention_hours)
    };
    arguments.change.settle(&access, &what, done).await
}

fn hours(text: &str) -> Result<i32, String> {
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    let hours = i32::try_from(time.as_secs() / HOUR.as_secs()).unwrap_or(i32::MAX);
    let is_whole = time.subsec_nanos() == 0 && time.as_secs() % HOUR.as_secs() == 0;
    if is_whole && (LEAST_HOURS..=MOST_HOURS).contains(&hours) {
        return Ok(hours);
    }
    Err(format!("{LEAST_HOURS}h to {MOST_HOURS}h (365days) in whole hours is allowed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retention_is_whole_hours_within_what_aws_allows() {
        for (text, expected) in [("24h", 24), ("1day", 24), ("7days", 168), ("7d 1h", 169), ("365days", 8_760)] {
            assert_eq!(hours(text), Ok(expected), "{text}");
        }
        for text in ["", "23h", "366days", "24h 1s", "24h 1ms", "24", "99999999999days"] {
            assert!(hours(text).is_err(), "{text}");
        }
    }
}
