//! `shardmill stream scale`

use aws_sdk_kinesis::types::ScalingType;
use clap::Args;
use shardmill_record::StreamArn;

use super::description::{Description, Mode};
use super::refusal::{Order, refused};
use super::split_merge::on_demand;
use super::{Change, interruptible};
use crate::cli::{Failure, access, output, text};

pub(super) const EXAMPLES: &str = "\
Examples:
  shardmill stream scale orders 8
  shardmill stream scale orders 4 --no-wait

The service splits and merges until there are so many open shards of the same size (UpdateShardCount). AWS takes no more than
twice and no less than half as many at a time, 10 times in 24 hours. It can take minutes; the stream is read and written
meanwhile.";

/// What one UpdateShardCount takes (API reference).
const MOST_SHARDS: i64 = 100_000;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The stream, by its name or ARN.
    #[arg(value_name = "STREAM", value_parser = access::stream)]
    stream: String,
    /// How many open shards it is to have.
    #[arg(value_name = "SHARDS", value_parser = clap::value_parser!(i32).range(1..=MOST_SHARDS))]
    shards: i32,
    #[command(flatten)]
    change: Change,
}

pub(super) async fn scale(arguments: &Arguments) -> Result<(), Failure> {
    let Arguments { stream, shards, change } = arguments;
    let access = change.access.open(stream).await?;
    let before = interruptible(&access, Description::of(&access)).await?;
    if before.mode == Mode::OnDemand {
        return Err(on_demand(&before.name));
    }
    let open = before.open().count();
    if usize::try_from(*shards) == Ok(open) && before.status == "ACTIVE" {
        if change.json {
            output::line(text::json(&before.json(true)));
        } else {
            output::line(format_args!("{} has {} already.", before.name, text::counted(open as u64, "open shard")));
        }
        return Ok(());
    }
    let request = access.client.update_shard_count().target_shard_count(*shards);
    let request = request.scaling_type(ScalingType::UniformScaling);
    let request = if StreamArn::is_meant(stream) { request.stream_arn(stream) } else { request.stream_name(stream) };
    let asked = async { request.send().await.map_err(|error| refused(&access, Order::Scale, &error)) };
    interruptible(&access, asked).await?;
    let what =
        format!("the change of {stream} from {open} to {}", text::counted(u64::from(shards.unsigned_abs()), "shard"));
    let done = |after: &Description| {
        format!(
            "{} has {}, before it had {open}.",
            after.name,
            text::counted(after.open().count() as u64, "open shard")
        )
    };
    change.settle(&access, &what, done).await
}
