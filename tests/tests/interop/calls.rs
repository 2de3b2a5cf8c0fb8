//! The built-in Kinesis answers as independent ones do, where those answer as AWS.

use std::time::{Duration, SystemTime};

use aws_sdk_kinesis::operation::get_records::GetRecordsOutput;
use aws_sdk_kinesis::primitives::{Blob, DateTime};
use aws_sdk_kinesis::types::{ShardFilter, ShardFilterType, ShardIteratorType};
use shardmill_tests::Services;

const STREAM: &str = "calls";
const FIRST: &str = "shardId-000000000000";
const SECOND: &str = "shardId-000000000001";
/// The built-in Kinesis keeps times in whole seconds.
const NEXT_SECOND: Duration = Duration::from_millis(1_100);

async fn with_stream(services: Services, shards: i32) -> Services {
    services.create_stream(STREAM, shards).await;
    services
}

/// Services that know how resharding goes.
async fn resharding(shards: i32) -> Vec<(&'static str, Services)> {
    let independent = Services::kinesis_local_and_dynalite().await;
    vec![
        ("the built-in Kinesis", with_stream(Services::start().await, shards).await),
        ("kinesis-local", with_stream(independent, shards).await),
    ]
}

/// All services.
async fn all(shards: i32) -> Vec<(&'static str, Services)> {
    let mut all = resharding(shards).await;
    all.push(("ministack", with_stream(Services::ministack().await, shards).await));
    all
}

async fn put(services: &Services, partition_key: &str) {
    let put = services.kinesis.put_record().stream_name(STREAM).partition_key(partition_key).data(Blob::new("data"));
    put.send().await.expect("a record is taken");
}

async fn oldest(services: &Services, shard: &str) -> String {
    let oldest = services.kinesis.get_shard_iterator().stream_name(STREAM).shard_id(shard);
    let oldest = oldest.shard_iterator_type(ShardIteratorType::TrimHorizon).send().await.expect("an iterator");
    oldest.shard_iterator.expect("an iterator")
}

async fn read(services: &Services, iterator: &str, limit: i32) -> GetRecordsOutput {
    services.kinesis.get_records().shard_iterator(iterator).limit(limit).send().await.expect("a page")
}

/// Reads a closed shard; how many records there were, and what came with the end.
async fn read_to_end(services: &Services, shard: &str) -> (usize, GetRecordsOutput) {
    let mut page = read(services, &oldest(services, shard).await, 10_000).await;
    let mut records = page.records().len();
    for _ in 0..10 {
        let Some(next) = page.next_shard_iterator().map(str::to_owned) else { return (records, page) };
        page = read(services, &next, 10_000).await;
        records += page.records().len();
    }
    panic!("{shard} does not end: {page:?}");
}

async fn listed(services: &Services, filter: ShardFilter) -> Vec<String> {
    let list = services.kinesis.list_shards().stream_name(STREAM).shard_filter(filter).send().await;
    list.expect("a listing").shards().iter().map(|shard| shard.shard_id().to_owned()).collect()
}

fn filter(kind: ShardFilterType) -> aws_sdk_kinesis::types::builders::ShardFilterBuilder {
    ShardFilter::builder().r#type(kind)
}

/// Not `ministack`: it wants the stream's name beside `NextToken`, which AWS refuses.
#[tokio::test]
async fn shards_are_listed_page_by_page() {
    for (name, services) in resharding(5).await {
        let list = || services.kinesis.list_shards();
        let mut page = list().stream_name(STREAM).max_results(2).send().await.expect("the first page");
        let mut pages = vec![page.shards().len()];
        let mut ids: Vec<_> = page.shards().iter().map(|shard| shard.shard_id().to_owned()).collect();
        let first = page.next_token().map(str::to_owned);
        while let Some(token) = page.next_token() {
            page = list().next_token(token).max_results(2).send().await.expect("the next page");
            pages.push(page.shards().len());
            ids.extend(page.shards().iter().map(|shard| shard.shard_id().to_owned()));
        }
        assert_eq!(pages, [2, 2, 1], "{name}");
        assert_eq!(ids, (0..5).map(|index| format!("shardId-{index:012}")).collect::<Vec<_>>(), "{name}");
        let both = list().stream_name(STREAM).set_next_token(first).send().await;
        let both = both.expect_err("a name beside a token").into_service_error();
        assert!(both.is_invalid_argument_exception(), "{both:?}");
    }
}

#[tokio::test]
async fn calls_take_the_streams_arn_in_place_of_its_name() {
    for (name, services) in all(2).await {
        let kinesis = &services.kinesis;
        let summary = kinesis.describe_stream_summary().stream_name(STREAM).send().await.expect("a description");
        let arn = summary.stream_description_summary.expect("a summary").stream_arn;
        let summary = kinesis.describe_stream_summary().stream_arn(&arn).send().await.expect("a description");
        assert_eq!(summary.stream_description_summary.expect("a summary").stream_name, STREAM);
        let put = kinesis.put_record().stream_arn(&arn).partition_key("key").data(Blob::new("data"));
        let shard = put.send().await.expect("a record is taken").shard_id;
        let list = kinesis.list_shards().stream_arn(&arn).send().await.expect("a listing");
        assert_eq!(list.shards().len(), 2, "{name}");
        let iterator = kinesis.get_shard_iterator().stream_arn(&arn).shard_id(shard);
        let iterator = iterator.shard_iterator_type(ShardIteratorType::TrimHorizon).send().await.expect("an iterator");
        let read = kinesis.get_records().stream_arn(&arn).set_shard_iterator(iterator.shard_iterator).send().await;
        assert_eq!(read.expect("a page").records().len(), 1, "{name}");
    }
}

/// Not `AT_TRIM_HORIZON` and `FROM_TIMESTAMP`, which `kinesis-local` answers with all shards.
#[tokio::test]
async fn filters_tell_shards_apart() {
    for (name, services) in resharding(2).await {
        tokio::time::sleep(NEXT_SECOND).await;
        let before = DateTime::from(SystemTime::now());
        tokio::time::sleep(NEXT_SECOND).await;
        services.split(STREAM, FIRST).await;
        let [third, fourth] = ["shardId-000000000002", "shardId-000000000003"];
        for (filter, expected) in [
            (filter(ShardFilterType::AtLatest), &[SECOND, third, fourth][..]),
            (filter(ShardFilterType::FromTrimHorizon), &[FIRST, SECOND, third, fourth]),
            (filter(ShardFilterType::AfterShardId).shard_id(SECOND), &[third, fourth]),
            (filter(ShardFilterType::AtTimestamp).timestamp(before), &[FIRST, SECOND]),
        ] {
            let filter = filter.build().expect("a filter");
            assert_eq!(listed(&services, filter.clone()).await, expected, "{filter:?} of {name}");
        }
    }
}

/// Not `ministack`, whose resharding deletes the parent with what nobody has read yet. How far behind a reader is at the
/// end they tell differently: not at all, or by the time since the shard was closed.
#[tokio::test]
async fn a_closed_shard_ends_with_its_children_named() {
    for (name, services) in resharding(2).await {
        for number in 0..20 {
            put(&services, &number.to_string()).await;
        }
        services.split(STREAM, FIRST).await;
        services.merge(STREAM, "shardId-000000000003", SECOND).await;
        let mut found = 0;
        for (shard, expected) in [
            (FIRST, &[("shardId-000000000002", &[FIRST][..]), ("shardId-000000000003", &[FIRST])][..]),
            (SECOND, &[("shardId-000000000004", &["shardId-000000000003", SECOND])]),
        ] {
            let (records, end) = read_to_end(&services, shard).await;
            found += records;
            let children = end.child_shards();
            assert_eq!(children.len(), expected.len(), "{children:?} of {name}");
            for (child, (id, parents)) in children.iter().zip(expected) {
                let mut named: Vec<_> = child.parent_shards().iter().map(String::as_str).collect();
                let mut parents = parents.to_vec();
                named.sort_unstable();
                parents.sort_unstable();
                assert_eq!((child.shard_id(), named), (*id, parents), "{name}");
                assert!(child.hash_key_range().is_some(), "{name}");
            }
        }
        assert_eq!(found, 20, "{name}");
    }
}

#[tokio::test]
async fn a_reader_is_behind_while_records_wait_and_not_at_the_tip() {
    for (name, services) in all(1).await {
        put(&services, "key").await;
        tokio::time::sleep(NEXT_SECOND * 2).await;
        put(&services, "key").await;
        // `ministack` tells how long the next record has waited, `kinesis-local` how much younger the newest one is.
        tokio::time::sleep(NEXT_SECOND * 2).await;
        let first = read(&services, &oldest(&services, FIRST).await, 1).await;
        let behind = first.millis_behind_latest().expect("it is told");
        assert!(behind >= 1_000, "{behind} ms of {name}");
        let rest = read(&services, first.next_shard_iterator().expect("an iterator"), 10).await;
        assert_eq!((rest.records().len(), rest.millis_behind_latest()), (1, Some(0)), "{name}");
    }
}
