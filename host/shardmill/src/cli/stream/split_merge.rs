//! `shardmill stream split` and `shardmill stream merge`

use clap::Args;
use shardmill_cause::{Coded, code};
use shardmill_record::{HashKey, ShardId, StreamArn};
use shardmill_stream::Shard;

use super::description::{Description, Mode};
use super::refusal::{Order, refused};
use super::{Change, interruptible, reshard};
use crate::cli::access::Access;
use crate::cli::{Failure, access};

pub(super) const SPLIT_EXAMPLES: &str = "\
Examples:
  shardmill stream split orders shardId-000000000000
  shardmill stream split orders shardId-000000000000 --at 42535295865117307932921825928971026432

The shard is closed, and two others take its hash keys from then on. Its records stay where they are.";

pub(super) const MERGE_EXAMPLES: &str = "\
Examples:
  shardmill stream merge orders shardId-000000000002 shardId-000000000003

Their ranges of hash keys must lie beside each other. Both are closed, and one shard takes their hash keys from then on.";

#[derive(Debug, Args)]
pub(crate) struct SplitArguments {
    /// The stream, by its name or ARN.
    #[arg(value_name = "STREAM", value_parser = access::stream)]
    stream: String,
    /// The shard.
    #[arg(value_name = "SHARD", value_parser = shard_id)]
    shard: ShardId,
    /// The first hash key of the upper half, in place of the middle.
    #[arg(long, value_name = "HASH-KEY", value_parser = hash_key)]
    at: Option<HashKey>,
    #[command(flatten)]
    change: Change,
}

#[derive(Debug, Args)]
pub(crate) struct MergeArguments {
    /// The stream, by its name or ARN.
    #[arg(value_name = "STREAM", value_parser = access::stream)]
    stream: String,
    /// One shard.
    #[arg(value_name = "SHARD", value_parser = shard_id)]
    shard: ShardId,
    /// The shard that lies below or above it.
    #[arg(value_name = "SHARD", value_parser = shard_id)]
    other: ShardId,
    #[command(flatten)]
    change: Change,
}

pub(super) async fn split(arguments: &SplitArguments) -> Result<(), Failure> {
    let SplitArguments { stream, shard, at, change } = arguments;
    let access = change.access.open(stream).await?;
    let shards = changeable(&access).await?;
    let at = reshard::split(stream, &shards, shard, *at).map_err(refusal)?;
    let request = access.client.split_shard().shard_to_split(shard.as_str()).new_starting_hash_key(at.to_string());
    let request = if StreamArn::is_meant(stream) { request.stream_arn(stream) } else { request.stream_name(stream) };
    let asked = async { request.send().await.map_err(|error| refused(&access, Order::Split, &error)) };
    interruptible(&access, asked).await?;
    let what = format!("the split of {shard}");
    change.settle(&access, &what, |after| done(after, &[shard])).await
}

pub(super) async fn merge(arguments: &MergeArguments) -> Result<(), Failure> {
    let MergeArguments { stream, shard, other, change } = arguments;
    let access = change.access.open(stream).await?;
    let shards = changeable(&access).await?;
    let [lower, upper] = reshard::merge(stream, &shards, shard, other).map_err(refusal)?;
    let request = access.client.merge_shards().shard_to_merge(lower.as_str()).adjacent_shard_to_merge(upper.as_str());
    let request = if StreamArn::is_meant(stream) { request.stream_arn(stream) } else { request.stream_name(stream) };
    let asked = async { request.send().await.map_err(|error| refused(&access, Order::Merge, &error)) };
    interruptible(&access, asked).await?;
    let what = format!("the merge of {lower} and {upper}");
    change.settle(&access, &what, |after| done(after, &[lower, upper])).await
}

/// The shards of a stream whose shards may be changed.
async fn changeable(access: &Access) -> Result<Vec<Shard>, Failure> {
    let description = interruptible(access, Description::of(access)).await?;
    if description.mode == Mode::OnDemand {
        return Err(on_demand(&description.name));
    }
    Ok(description.shards)
}

/// Nobody but AWS changes the shards of such a stream.
pub(super) fn on_demand(stream: &str) -> Failure {
    Failure::running(format!("stream {stream} is on-demand: AWS decides how many shards it has")).code(code::command::STREAM_CHANGE).help(
        "to decide yourself, make it provisioned: `aws kinesis update-stream-mode --stream-mode-details StreamMode=PROVISIONED`",
    )
}

fn done(after: &Description, parents: &[&ShardId]) -> String {
    let is_child = |shard: &&Shard| parents.iter().all(|parent| shard.parents.contains(parent));
    let children: Vec<String> =
        after.shards.iter().filter(is_child).map(|shard| format!("{} ({})", shard.id, shard.range)).collect();
    let verb = if parents.len() == 1 { "is" } else { "are" };
    let parents = parents.iter().map(|parent| parent.as_str()).collect::<Vec<_>>().join(" and ");
    if children.is_empty() {
        return format!("{parents} {verb} closed.");
    }
    format!("{parents} {verb} closed; from now on there is {}.", children.join(" and "))
}

fn refusal(error: reshard::Error) -> Failure {
    Failure::running(error.to_string())
        .code(error.code())
        .help("`shardmill stream describe STREAM` shows the shards with their hash keys")
}

fn shard_id(text: &str) -> Result<ShardId, String> {
    ShardId::parse(text).map_err(|error| error.to_string())
}

fn hash_key(text: &str) -> Result<HashKey, String> {
    text.parse().map_err(|error: shardmill_record::InvalidHashKey| error.to_string())
}
