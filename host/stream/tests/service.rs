//! What the service tells of streams and shards.

mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use aws_sdk_kinesis::primitives::Blob;
use serde_json::json;
use shardmill_stream::lineage::{LeaseState, children_of, missing_leases};
use shardmill_stream::{Error, Kind, Kinesis, StartPosition, StreamStatus};
use support::{Backend, Fault, client};

#[tokio::test]
async fn a_stream_is_described() {
    let backend = Backend::start().await;
    let info = backend.create("flights", 3).await;
    assert_eq!(
        (&*info.name, info.status, info.open_shards, info.retention_hours),
        ("flights", StreamStatus::Active, 3, 24)
    );
    assert!(info.arn.ends_with("stream/flights"), "{}", info.arn);
    assert!(info.creation_time_ms > 1_700_000_000_000);
}

#[tokio::test]
async fn a_stream_that_is_being_created_is_waited_for() {
    let backend = Backend::start().await;
    backend.client.create_stream().stream_name("flights").shard_count(1).send().await.unwrap();
    let creating: fn(&mut serde_json::Value) =
        |answer| answer["StreamDescriptionSummary"]["StreamStatus"] = json!("CREATING");
    backend.layer.fail("DescribeStreamSummary", [Fault::Refused("LimitExceededException"), Fault::Changed(creating)]);
    let info = backend.kinesis.wait_until_created("flights").await.unwrap();
    assert_eq!(info.status, StreamStatus::Active);
    assert_eq!(backend.layer.calls("DescribeStreamSummary").len(), 3);
}

#[tokio::test]
async fn a_missing_stream_is_named_with_its_region() {
    let backend = Backend::start().await;
    let error = backend.kinesis.wait_until_created("flights").await.unwrap_err();
    assert_eq!((error.kind(), error.is_transient()), (Kind::NotFound, false));
    let text = error.to_string();
    assert!(text.contains("no stream `flights` in region eu-central-1"), "{text}");
    assert_eq!(backend.kinesis.list_shards("flights").await.unwrap_err().kind(), Kind::NotFound);
}

#[tokio::test]
async fn errors_are_sorted_by_what_to_do() {
    let backend = Backend::start().await;
    backend.create("flights", 1).await;
    let cases = [
        (Fault::Refused("LimitExceededException"), Kind::Throttled, true),
        (Fault::Refused("AccessDeniedException"), Kind::NotPermitted, false),
        (Fault::Refused("KMSAccessDeniedException"), Kind::Kms, false),
        (Fault::Refused("UnrecognizedClientException"), Kind::Credentials, false),
        (Fault::Refused("ExpiredTokenException"), Kind::Credentials, true),
        (Fault::Refused("ResourceInUseException"), Kind::Unavailable, true),
        (Fault::Refused("InvalidArgumentException"), Kind::Rejected, false),
        (Fault::Broken, Kind::Unavailable, true),
        (Fault::Cut, Kind::Unavailable, true),
        (Fault::Half, Kind::InvalidAnswer, false),
        (Fault::Changed(|answer| answer["Shards"] = json!([])), Kind::InvalidAnswer, false),
        (Fault::Changed(|answer| answer["Shards"][0]["ShardId"] = json!("no id!")), Kind::InvalidAnswer, false),
        (Fault::Silent(Duration::from_secs(3)), Kind::Unavailable, true),
    ];
    for (fault, kind, transient) in cases {
        backend.layer.fail("ListShards", [fault.clone()]);
        let error = backend.kinesis.list_shards("flights").await.unwrap_err();
        assert_eq!((error.kind(), error.is_transient()), (kind, transient), "{fault:?}: {error:?}");
        assert!(error.to_string().contains("ListShards of stream `flights`"), "{error}");
    }
}

#[tokio::test]
async fn what_does_not_answer_is_unavailable_and_missing_credentials_are_named() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = Kinesis::new(client(address)).describe("flights").await.unwrap_err();
    assert_eq!((error.kind(), error.is_transient()), (Kind::Unavailable, true), "{error}");

    let config = client(address).config().to_builder().credentials_provider(NoCredentials).build();
    let error = Kinesis::new(aws_sdk_kinesis::Client::from_conf(config)).describe("flights").await.unwrap_err();
    assert!(matches!(error, Error::Credentials { passing: false, .. }), "{error:?}");
}

#[derive(Debug)]
struct NoCredentials;

impl aws_credential_types::provider::ProvideCredentials for NoCredentials {
    fn provide_credentials<'a>(&'a self) -> aws_credential_types::provider::future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        let none = aws_credential_types::provider::error::CredentialsError::not_loaded_no_source();
        aws_credential_types::provider::future::ProvideCredentials::ready(Err(none))
    }
}

#[tokio::test]
async fn a_listing_comes_in_pages_and_starts_again_when_its_token_expires() {
    let backend = Backend::start().await;
    backend.create("flights", 7).await;
    backend.layer.list_in_pages_of(2);
    let listing = backend.kinesis.list_shards("flights").await.unwrap();
    assert_eq!(listing.len(), 7);
    let calls = backend.layer.calls("ListShards");
    assert_eq!(calls.len(), 4);
    assert!(calls[1..].iter().all(|call| call["NextToken"].is_string() && call["StreamName"].is_null()));

    // The first answer passes, the second call meets an expired token.
    let untouched = Fault::Changed(|answer| answer["NextToken"] = json!("flights/shardId-000000000001"));
    backend.layer.fail("ListShards", [untouched, Fault::Refused("ExpiredNextTokenException")]);
    assert_eq!(backend.kinesis.list_shards("flights").await.unwrap(), listing);
    assert_eq!(backend.layer.calls("ListShards").len(), 4 + 2 + 4);

    let for_ever = || Fault::Refused("ExpiredNextTokenException");
    backend.layer.fail("ListShards", std::iter::repeat_with(for_ever).take(4));
    assert_eq!(backend.kinesis.list_shards("flights").await.unwrap_err().kind(), Kind::ExpiredToken);
}

#[tokio::test]
async fn a_listing_that_goes_round_is_an_error() {
    let backend = Backend::start().await;
    backend.create("flights", 2).await;
    backend.layer.list_in_pages_of(2);
    let again = || Fault::Changed(|answer| answer["NextToken"] = json!("flights/shardId-"));
    backend.layer.fail("ListShards", std::iter::repeat_with(again).take(100));
    let error = backend.kinesis.list_shards("flights").await.unwrap_err();
    assert!(error.to_string().contains("does not come to an end"), "{error}");
}

#[tokio::test]
async fn splits_and_merges_are_listed_with_their_parents() {
    let backend = Backend::start().await;
    backend.create("flights", 2).await;
    let before = backend.kinesis.list_shards("flights").await.unwrap();
    let middle = before[0].range.end.get() / 2;
    let split = backend.client.split_shard().stream_name("flights").shard_to_split(before[0].id.as_str());
    split.new_starting_hash_key(middle.to_string()).send().await.unwrap();
    backend.until_active("flights").await;
    let split = backend.kinesis.list_shards("flights").await.unwrap();
    let children = children_of(&before[0].id, &split);
    assert_eq!(children.len(), 2);
    assert!(children.iter().all(|child| child.is_open() && child.parents == [before[0].id.clone()]));
    assert_eq!((children[0].range.end.get() + 1, children[1].range.start.get()), (middle, middle));
    assert!(!split[0].is_open());

    let merge = backend.client.merge_shards().stream_name("flights").shard_to_merge(children[1].id.as_str());
    merge.adjacent_shard_to_merge(before[1].id.as_str()).send().await.unwrap();
    backend.until_active("flights").await;
    let merged = backend.kinesis.list_shards("flights").await.unwrap();
    let merged_child = children_of(&before[1].id, &merged);
    assert_eq!(merged_child.len(), 1);
    assert_eq!(merged_child[0].parents, [children[1].id.clone(), before[1].id.clone()]);

    // The lineage rule takes the listing as it comes.
    let all = missing_leases(&merged, &BTreeMap::new(), StartPosition::TrimHorizon, 1);
    assert_eq!(all.len(), 5);
    let open = missing_leases(&merged, &BTreeMap::new(), StartPosition::Latest, 1);
    assert_eq!(open.len(), merged.iter().filter(|shard| shard.is_open()).count());
    let leases = before.iter().map(|shard| (shard.id.clone(), LeaseState::default())).collect();
    let children = missing_leases(&merged, &leases, StartPosition::Latest, 1);
    assert_eq!(children.len(), 3);
    assert!(children.iter().all(|lease| lease.start_at.is_none()));

    // A record of the merged range arrives in the merged shard.
    let put = backend.client.put_record().stream_name("flights").partition_key("key").data(Blob::new("x"));
    let put = put.explicit_hash_key(u128::MAX.to_string()).send().await.unwrap();
    assert_eq!(put.shard_id(), merged_child[0].id.as_str());
}
