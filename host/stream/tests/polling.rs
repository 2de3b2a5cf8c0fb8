//! Reading shards by polling, from an emulated service that also fails.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use aws_sdk_kinesis::Client;
use aws_smithy_types::retry::RetryConfig;
use ferrokinesis::store::StoreOptions;
use futures::FutureExt;
use serde_json::{Value, json};
use shardmill_record::{BatchBuilder, BatchLimits, Checkpoint, HashKeyRange, OutOfRange, Position, Unpacker};
use shardmill_stream::lineage::children_of;
use shardmill_stream::polling::{Decoder, Options, Phase, ReadLimits};
use shardmill_stream::start::{Start, resume};
use shardmill_stream::{Demand, Error, Kind, Kinesis, PollingReader, ReadFrom, Reader, WHOLE_PAGE};
use support::{Backend, Fault, WIDE, numbers, read, sequence_numbers, source};
use tokio::time::Instant;

/// The test with each decoder.
macro_rules! with_each_decoder {
    ($($test:ident)*) => { $(
        mod $test {
            use shardmill_stream::polling::Decoder;

            #[tokio::test]
            async fn json() {
                super::$test(Decoder::Json).await;
            }

            #[tokio::test]
            async fn cbor() {
                super::$test(Decoder::Cbor).await;
            }

            #[tokio::test]
            async fn sdk() {
                super::$test(Decoder::Sdk).await;
            }
        }
    )* };
}

with_each_decoder! {
    all_records_of_four_shards_come_once_and_in_order_of_their_shard
    reading_resumes_exactly_after_a_checkpoint_and_after_a_lost_reader
    a_page_fits_the_demand_as_soon_as_record_sizes_are_known
    what_is_larger_than_was_demanded_is_left_and_asked_for_again_once
    failures_that_pass_are_waited_out_and_lose_nothing
    a_reader_that_is_cancelled_at_any_moment_loses_nothing
    a_closed_shard_ends_after_its_last_record_and_its_children_follow
    what_needs_an_operator_comes_out_and_reading_goes_on_after_it
    every_payload_and_key_comes_as_it_was_put
}

async fn all_records_of_four_shards_come_once_and_in_order_of_their_shard(decoder: Decoder) {
    let backend = Backend::start_for(decoder).await;
    let info = backend.create("flights", 4).await;
    backend.put("flights", 0..4_000).await;
    let mut all = BTreeSet::new();
    for shard in backend.kinesis.list_shards("flights").await.unwrap() {
        let mut reader = backend.reader(&info, &shard, ReadFrom::TrimHorizon);
        let mut of_shard = Vec::new();
        loop {
            let page = reader.next(Demand { records: 300, bytes: 1 << 20 }).await.unwrap();
            assert!(page.page.len() <= 300);
            if page.page.is_empty() {
                break;
            }
            of_shard.extend(numbers(&page.page));
        }
        assert!(of_shard.is_sorted(), "the numbers were put in this order");
        assert!(of_shard.len() > 500, "keys spread over the shards");
        assert!(of_shard.iter().all(|number| all.insert(*number)), "a record came twice");
    }
    assert_eq!(all, (0..4_000).collect());
    let shown = backend.shown();
    assert!(shown.contains(r#"shardmill_stream_records_total{processor="delays",stream="flights"} 4000"#), "{shown}");
    assert!(!shown.contains("shard="), "the readers are gone, and their shards' lags with them");
}

async fn reading_resumes_exactly_after_a_checkpoint_and_after_a_lost_reader(decoder: Decoder) {
    let backend = Backend::start_for(decoder).await;
    let info = backend.create("flights", 1).await;
    backend.put("flights", 0..100).await;
    let shard = &backend.kinesis.list_shards("flights").await.unwrap()[0];
    let mut reader = backend.reader(&info, shard, ReadFrom::TrimHorizon);
    let first = reader.next(Demand { records: 40, bytes: 1 << 20 }).await.unwrap();
    assert_eq!(numbers(&first.page), (0..40).collect::<Vec<_>>());

    let mut another = backend.reader(&info, shard, first.continuation.clone());
    assert_eq!(read(&mut another, 60, WIDE).await, (40..100).collect::<Vec<_>>());

    let done = sequence_numbers(&first.page)[24].clone();
    let checkpoint = Checkpoint::Position(Position::new(done.clone(), 0));
    let resumed = resume(&checkpoint, None, &shard.id, &Start::default(), 1).unwrap();
    assert_eq!(resumed.from, ReadFrom::At(done));
    let mut another = backend.reader(&info, shard, resumed.from);
    let page = another.next(WIDE).await.unwrap().page;
    assert_eq!(numbers(&page), (24..100).collect::<Vec<_>>());
    let mut unpacker = Unpacker::new(resumed.done, HashKeyRange::ALL, OutOfRange::Deliver);
    unpacker.push(page);
    let mut batch = BatchBuilder::default();
    unpacker.fill(&mut batch, &BatchLimits { records: 1_000, bytes: 1 << 20 });
    let batch = batch.build();
    assert_eq!((batch.len(), batch.record(0).data), (75, &b"25"[..]));
}

async fn a_page_fits_the_demand_as_soon_as_record_sizes_are_known(decoder: Decoder) {
    let backend = Backend::start_for(decoder).await;
    let info = backend.create("flights", 1).await;
    for number in 0..60 {
        let data = aws_sdk_kinesis::primitives::Blob::new(vec![number; 100_000]);
        backend.client.put_record().stream_name("flights").partition_key("key").data(data).send().await.unwrap();
    }
    let shard = &backend.kinesis.list_shards("flights").await.unwrap()[0];
    let mut reader = backend.reader(&info, shard, ReadFrom::TrimHorizon);
    reader.next(Demand { records: 5, bytes: 1 << 20 }).await.unwrap();
    // A page in JSON keeps the base64 that it came in, a third more.
    let fitting = if decoder == Decoder::Json { 7 } else { 10 };
    for _ in 0..5 {
        let page = reader.next(Demand { records: 10_000, bytes: 1 << 20 }).await.unwrap().page;
        assert_eq!(page.len(), fitting);
        assert!(page.memory() <= 1 << 20);
    }
    assert_eq!(reader.next(Demand { records: 10_000, bytes: 1 }).await.unwrap().page.len(), 1);
}

async fn what_is_larger_than_was_demanded_is_left_and_asked_for_again_once(decoder: Decoder) {
    let backend = Backend::start_for(decoder).await;
    let info = backend.create("flights", 1).await;
    for number in 0..5 {
        let data = aws_sdk_kinesis::primitives::Blob::new(vec![number; 100_000]);
        backend.client.put_record().stream_name("flights").partition_key("key").data(data).send().await.unwrap();
    }
    let shard = &backend.kinesis.list_shards("flights").await.unwrap()[0];
    let mut reader = backend.reader(&info, shard, ReadFrom::TrimHorizon).bounded();
    // Records are expected to be small: all are asked for.
    let demand = Demand { records: 10_000, bytes: 64 << 10 };
    let before = backend.layer.calls("GetRecords").len();
    reader.ready().await.unwrap();
    let first = reader.read(demand).await.unwrap();
    assert_eq!(reader.expects(), WHOLE_PAGE);
    let page = if decoder == Decoder::Sdk {
        first.expect("the SDK receives everything").page
    } else {
        assert!(first.is_none());
        reader.ready().await.unwrap();
        // Also from who does not set aside what is expected.
        let again = reader.read(demand).await.unwrap().expect("the same again").page;
        assert_eq!(backend.layer.calls("GetRecords").len(), before + 2);
        again
    };
    assert_eq!(page.len(), 5);
    // It is no failure.
    assert!(!backend.shown().contains("shardmill_stream_errors_total{"), "{}", backend.shown());
    if decoder != Decoder::Sdk {
        reader.ready().await.unwrap();
        reader.read(demand).await.unwrap().expect("nothing more, which is not large");
        assert!(reader.expects() < WHOLE_PAGE);
    }
}

#[tokio::test]
async fn a_reader_says_that_another_one_has_had_its_turn() {
    let backend = Backend::start_for(Decoder::default()).await;
    let info = backend.create("flights", 1).await;
    for number in 0..5 {
        let data = aws_sdk_kinesis::primitives::Blob::new(vec![number; 100_000]);
        backend.client.put_record().stream_name("flights").partition_key("key").data(data).send().await.unwrap();
    }
    let shard = &backend.kinesis.list_shards("flights").await.unwrap()[0];
    let (limits, options) = (ReadLimits::default(), Options::default());
    let reader = || backend.reader(&info, shard, ReadFrom::TrimHorizon).sharing(&limits, &info.arn, &options);
    let (mut late, mut prompt) = (reader(), reader());
    late.ready().await.unwrap();
    // While the one waits for memory, say, the other one reads, and what it has read counts for both.
    prompt.ready().await.unwrap();
    assert_eq!(prompt.read(WIDE).await.unwrap().expect("a page").page.len(), 5);
    assert!(late.read(WIDE).await.unwrap().is_none());
    assert!(late.lost_its_turn() && !prompt.lost_its_turn());
    late.ready().await.unwrap();
    assert_eq!(late.read(WIDE).await.unwrap().expect("its turn").page.len(), 5);
    assert!(!late.lost_its_turn());
}

async fn failures_that_pass_are_waited_out_and_lose_nothing(decoder: Decoder) {
    let backend = Backend::start_for(decoder).await;
    let info = backend.create("flights", 1).await;
    backend.put("flights", 0..1_000).await;
    let shard = &backend.kinesis.list_shards("flights").await.unwrap()[0];
    let swapped: fn(&mut Value) = |answer| {
        answer["Records"].as_array_mut().unwrap().swap(0, 1);
    };
    let no_number: fn(&mut Value) = |answer| answer["Records"][3]["SequenceNumber"] = json!("shard-end");
    backend.layer.fail(
        "GetShardIterator",
        [Fault::Refused("ProvisionedThroughputExceededException"), Fault::Broken, Fault::Half],
    );
    backend.layer.fail(
        "GetRecords",
        [
            Fault::Refused("ProvisionedThroughputExceededException"),
            Fault::Changed(|_| {}),
            Fault::Refused("ExpiredIteratorException"),
            Fault::Changed(|_| {}),
            Fault::Broken,
            Fault::Cut,
            Fault::Changed(|_| {}),
            Fault::Half,
            Fault::Changed(swapped),
            Fault::Changed(|_| {}),
            Fault::Changed(no_number),
            Fault::Refused("KMSThrottlingException"),
            Fault::Changed(|_| {}),
            Fault::Silent(Duration::from_secs(3)),
        ],
    );
    let mut reader = backend.reader(&info, shard, ReadFrom::TrimHorizon);
    let read = read(&mut reader, 1_000, Demand { records: 100, bytes: 1 << 20 }).await;
    assert_eq!(read, (0..1_000).collect::<Vec<_>>());

    let iterators = backend.layer.calls("GetShardIterator");
    let types: Vec<_> = iterators.iter().map(|call| call["ShardIteratorType"].as_str().unwrap()).collect();
    assert_eq!(types[..4], ["TRIM_HORIZON"; 4]);
    assert!(types[4..].iter().all(|from| *from == "AFTER_SEQUENCE_NUMBER"), "{types:?}");
    let shown = backend.shown();
    for line in [
        r#"shardmill_stream_throttles_total{processor="delays",stream="flights"} 3"#,
        r#"shardmill_stream_expired_iterators_total{processor="delays",stream="flights"} 1"#,
        r#"shardmill_stream_errors_total{processor="delays",stream="flights",kind="unavailable"} 4"#,
        r#"shardmill_stream_errors_total{processor="delays",stream="flights",kind="invalid-answer"} 4"#,
    ] {
        assert!(shown.contains(line), "{line} in {shown}");
    }
}

async fn every_payload_and_key_comes_as_it_was_put(decoder: Decoder) {
    let backend = Backend::start_for(decoder).await;
    let info = backend.create("flights", 1).await;
    let put: Vec<(String, Vec<u8>)> = (0..300_u32)
        .map(|number| {
            let key = ["a\"b\\c/d", "\u{1}\n\t\r", "schlüssel", "😀", "plain"][number as usize % 5];
            (format!("{key}{number}"), (0..number * 7).map(|byte| (byte * 31 + number) as u8).collect())
        })
        .collect();
    for (key, data) in &put {
        let data = aws_sdk_kinesis::primitives::Blob::new(data.clone());
        backend.client.put_record().stream_name("flights").partition_key(key).data(data).send().await.unwrap();
    }
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64;
    let shard = &backend.kinesis.list_shards("flights").await.unwrap()[0];
    let mut reader = backend.reader(&info, shard, ReadFrom::TrimHorizon);
    let mut read = Vec::new();
    while read.len() < put.len() {
        let page = reader.next(WIDE).await.unwrap().page;
        for index in 0..page.len() {
            read.push((page.partition_key(index).to_owned(), page.data(index).to_vec()));
            let arrival = page.approximate_arrival(index);
            assert!(arrival.abs_diff(now) < 600_000, "{arrival} ms, and it is {now}");
        }
    }
    assert_eq!(read, put);
}

#[tokio::test]
async fn an_iterator_that_really_expired_is_renewed_after_the_last_record() {
    let backend =
        Backend::start_with(StoreOptions { iterator_ttl_seconds: 1, ..StoreOptions::default() }, Decoder::default())
            .await;
    let info = backend.create("flights", 1).await;
    backend.put("flights", 0..20).await;
    let shard = &backend.kinesis.list_shards("flights").await.unwrap()[0];
    let mut reader = backend.reader(&info, shard, ReadFrom::TrimHorizon);
    let small = Demand { records: 10, bytes: 1 << 20 };
    assert_eq!(read(&mut reader, 10, small).await, (0..10).collect::<Vec<_>>());
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    assert_eq!(read(&mut reader, 10, small).await, (10..20).collect::<Vec<_>>());
    assert!(backend.shown().contains(r#"expired_iterators_total{processor="delays",stream="flights"} 1"#));
}

async fn a_reader_that_is_cancelled_at_any_moment_loses_nothing(decoder: Decoder) {
    let backend = Backend::start_for(decoder).await;
    let info = backend.create("flights", 1).await;
    backend.put("flights", 0..500).await;
    let shard = &backend.kinesis.list_shards("flights").await.unwrap()[0];
    let mut reader = backend.reader(&info, shard, ReadFrom::TrimHorizon);
    let mut read = Vec::new();
    let mut cancelled = 0;
    for attempt in 0_u64.. {
        let patience = Duration::from_micros(attempt * 97 % 4_000);
        match tokio::time::timeout(patience, reader.next(Demand { records: 10, bytes: 1 << 20 })).await {
            Ok(page) => read.extend(numbers(&page.unwrap().page)),
            Err(_) => cancelled += 1,
        }
        if read.len() >= 500 {
            break;
        }
    }
    assert_eq!(read, (0..500).collect::<Vec<_>>());
    assert!(cancelled > 10, "{cancelled} calls were cancelled");
}

async fn a_closed_shard_ends_after_its_last_record_and_its_children_follow(decoder: Decoder) {
    let backend = Backend::start_for(decoder).await;
    let info = backend.create("flights", 1).await;
    backend.put("flights", 0..50).await;
    let parent = backend.kinesis.list_shards("flights").await.unwrap().remove(0);
    let split = backend.client.split_shard().stream_name("flights").shard_to_split(parent.id.as_str());
    split.new_starting_hash_key((u128::MAX / 2).to_string()).send().await.unwrap();
    backend.until_active("flights").await;
    backend.put("flights", 50..100).await;

    let mut reader = backend.reader(&info, &parent, ReadFrom::TrimHorizon);
    let mut of_parent = Vec::new();
    let last = loop {
        let page = reader.next(WIDE).await.unwrap();
        of_parent.extend(numbers(&page.page));
        if page.end {
            break page;
        }
    };
    assert_eq!(of_parent, (0..50).collect::<Vec<_>>());
    assert_eq!(last.children, None, "the emulator names none");
    let again = reader.next(WIDE).await.unwrap();
    assert!(again.end && again.page.is_empty());
    assert_eq!(again.continuation, last.continuation);

    let listing = backend.kinesis.list_shards("flights").await.unwrap();
    let children = children_of(&parent.id, &listing);
    let mut of_children = BTreeMap::new();
    for child in children {
        let mut reader = backend.reader(&info, child, ReadFrom::TrimHorizon);
        let page = reader.next(WIDE).await.unwrap();
        of_children.insert(child.id.clone(), numbers(&page.page));
    }
    assert_eq!(of_children.len(), 2);
    let union: BTreeSet<_> = of_children.into_values().flatten().collect();
    assert_eq!(union, (50..100).collect());

    // A service that names them is believed.
    let named: fn(&mut Value) = |answer| {
        answer["Records"] = json!([]);
        answer.as_object_mut().unwrap().remove("NextShardIterator");
        answer["ChildShards"] = json!([{
            "ShardId": "shardId-000000000001",
            "ParentShards": ["shardId-000000000000"],
            "HashKeyRange": { "StartingHashKey": "0", "EndingHashKey": "7" },
        }]);
    };
    backend.layer.fail("GetRecords", [Fault::Changed(named)]);
    let mut reader = backend.reader(&info, &parent, ReadFrom::TrimHorizon);
    let page = reader.next(WIDE).await.unwrap();
    let children = page.children.unwrap();
    assert!(page.end);
    assert_eq!(children.iter().map(|child| child.id.as_str()).collect::<Vec<_>>(), ["shardId-000000000001"]);
}

#[tokio::test]
async fn a_shard_that_is_not_found_is_not_at_its_end() {
    let backend = Backend::start().await;
    let info = backend.create("flights", 2).await;
    backend.put("flights", 0..10).await;
    let shard = backend.kinesis.list_shards("flights").await.unwrap().remove(1);

    // Listed all the same: it passes.
    let not_found = || Fault::Refused("ResourceNotFoundException");
    backend.layer.fail("GetRecords", [not_found()]);
    let mut reader = backend.reader(&info, &shard, ReadFrom::TrimHorizon);
    assert!(!reader.next(WIDE).await.unwrap().page.is_empty());

    // Not listed any more.
    backend.layer.fail("GetRecords", [not_found()]);
    backend.layer.fail(
        "ListShards",
        [Fault::Changed(|answer| {
            answer["Shards"].as_array_mut().unwrap().remove(1);
        })],
    );
    let gone = reader.next(WIDE).await.unwrap_err();
    assert_eq!(gone, Error::ShardGone { stream: "flights".into(), shard: shard.id.clone() });

    // Deleted, then created again with the same shard ids.
    backend.client.delete_stream().stream_name("flights").send().await.unwrap();
    backend.until_gone("flights").await;
    let gone = reader.next(WIDE).await.unwrap_err();
    assert_eq!(gone, Error::StreamGone { stream: "flights".into(), shard: shard.id.clone() });
    tokio::time::sleep(Duration::from_millis(1_000)).await;
    let again = backend.create("flights", 2).await;
    backend.put("flights", 0..10).await;
    let error = reader.next(WIDE).await.unwrap_err();
    let (known, found) = (info.creation_time_ms, again.creation_time_ms);
    let (stream, shard) = ("flights".into(), shard.id.clone());
    assert_eq!(error, Error::StreamRecreated { stream, shard, known, found });
}

async fn what_needs_an_operator_comes_out_and_reading_goes_on_after_it(decoder: Decoder) {
    let backend = Backend::start_for(decoder).await;
    let info = backend.create("flights", 1).await;
    backend.put("flights", 0..10).await;
    let shard = &backend.kinesis.list_shards("flights").await.unwrap()[0];
    let mut reader = backend.reader(&info, shard, ReadFrom::TrimHorizon);
    for (code, kind) in [
        ("AccessDeniedException", Kind::NotPermitted),
        ("KMSDisabledException", Kind::Kms),
        ("InvalidSignatureException", Kind::Credentials),
    ] {
        backend.layer.fail("GetRecords", [Fault::Refused(code)]);
        let error = reader.next(WIDE).await.unwrap_err();
        assert_eq!(error.kind(), kind);
        assert!(error.to_string().contains("GetRecords of shardId-000000000000 of stream `flights`"), "{error}");
    }
    assert_eq!(read(&mut reader, 10, WIDE).await, (0..10).collect::<Vec<_>>());
}

/// The service's limits are kept by the reader, which must see each throttle; a client's own retries would hide them.
#[tokio::test]
async fn every_read_is_made_once_whatever_retries_the_client_has() {
    let backend = Backend::start().await;
    let info = backend.create("flights", 1).await;
    backend.put("flights", 0..10).await;
    let shard = &backend.kinesis.list_shards("flights").await.unwrap()[0];
    let throttled = || Fault::Refused("ProvisionedThroughputExceededException");
    backend.layer.fail("GetShardIterator", [throttled(), Fault::Broken]);
    backend.layer.fail("GetRecords", [throttled(), throttled(), Fault::Broken]);
    let retrying = backend.client.config().to_builder().retry_config(RetryConfig::standard()).build();
    let kinesis = Kinesis::new(Client::from_conf(retrying));
    let source = source(&info, &shard.id);
    let options = Options::unlimited();
    let mut reader = PollingReader::new(kinesis, source, ReadFrom::TrimHorizon, &options, &backend.metrics, 1);
    assert_eq!(read(&mut reader, 10, WIDE).await, (0..10).collect::<Vec<_>>());
    assert_eq!([backend.layer.calls("GetShardIterator").len(), backend.layer.calls("GetRecords").len()], [3, 4]);
    let shown = backend.shown();
    for line in [
        r#"shardmill_stream_throttles_total{processor="delays",stream="flights"} 3"#,
        r#"shardmill_stream_errors_total{processor="delays",stream="flights",kind="unavailable"} 2"#,
    ] {
        assert!(shown.contains(line), "{line} in {shown}");
    }
}

#[tokio::test]
async fn a_shard_that_is_listed_and_not_found_counts_as_a_wrong_answer() {
    let backend = Backend::start().await;
    let info = backend.create("flights", 1).await;
    backend.put("flights", 0..10).await;
    let shard = &backend.kinesis.list_shards("flights").await.unwrap()[0];
    backend.layer.fail("GetShardIterator", [Fault::Refused("ResourceNotFoundException")]);
    let mut reader = backend.reader(&info, shard, ReadFrom::TrimHorizon);
    assert_eq!(read(&mut reader, 10, WIDE).await, (0..10).collect::<Vec<_>>());
    let shown = backend.shown();
    let asked = r#"shardmill_stream_errors_total{processor="delays",stream="flights",kind="not-found"} 1"#;
    assert!(shown.contains(asked), "{shown}");
    let condition = backend.metrics.condition("flights", &shard.id);
    let mut reader = backend.reader(&info, shard, ReadFrom::TrimHorizon).observed(condition.clone());
    backend.layer.fail("GetShardIterator", vec![Fault::Refused("ResourceNotFoundException"); 100]);
    assert!(tokio::time::timeout(Duration::from_millis(500), reader.next(WIDE)).await.is_err());
    let trouble = condition.seen(Instant::now()).trouble.expect("what fails");
    assert_eq!(trouble.kind, Kind::InvalidAnswer, "which is bounded");
    for part in ["GetShardIterator of shardId-000000000000 of stream `flights`", "lists the shard", "not found"] {
        assert!(trouble.reason.contains(part), "{part} in {}", trouble.reason);
    }
}

#[tokio::test]
async fn a_reader_says_what_it_is_about_and_what_fails() {
    let backend = Backend::start().await;
    let info = backend.create("flights", 1).await;
    backend.put("flights", 0..10).await;
    let shard = &backend.kinesis.list_shards("flights").await.unwrap()[0];
    let condition = backend.metrics.condition("flights", &shard.id);
    let seen = || condition.seen(Instant::now());
    assert_eq!((seen().phase, seen().has_read, seen().millis_behind), (Phase::Starting, false, None));
    let mut reader = backend.reader(&info, shard, ReadFrom::TrimHorizon).observed(condition.clone());
    backend.layer.fail("GetShardIterator", vec![Fault::Broken; 100]);
    let waiting = tokio::time::timeout(Duration::from_millis(700), reader.next(WIDE)).await;
    assert!(waiting.is_err());
    let trouble = seen().trouble.expect("what fails");
    assert_eq!(trouble.kind, Kind::Unavailable);
    assert!(trouble.at_iterator && trouble.failures >= 1 && trouble.reason.contains("GetShardIterator"), "{trouble:?}");
    backend.layer.forget();
    read(&mut reader, 10, WIDE).await;
    assert_eq!((seen().trouble, seen().has_read, seen().millis_behind), (None, true, Some(0)));
    assert!(backend.shown().contains("shardmill_stream_millis_behind_latest{"));
    drop(reader);
    assert!(backend.shown().contains("shardmill_stream_millis_behind_latest{"), "the shard is held on");
    drop(condition);
    assert!(!backend.shown().contains("shardmill_stream_millis_behind_latest{"));
}

#[tokio::test]
async fn a_start_time_that_is_still_to_come_is_waited_for() {
    let backend = Backend::start().await;
    let info = backend.create("flights", 1).await;
    let shard = &backend.kinesis.list_shards("flights").await.unwrap()[0];
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64;
    let mut reader = backend.reader(&info, shard, ReadFrom::AtTimestamp(now + 700));
    let page = reader.next(WIDE).await.unwrap();
    let then = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64;
    assert!(then >= now + 700);
    assert_eq!((page.page.len(), page.continuation), (0, ReadFrom::AtTimestamp(now + 700)));
}

#[tokio::test]
async fn an_idle_shard_is_read_at_the_idle_interval_and_a_full_one_without_idling() {
    let backend = Backend::start().await;
    let info = backend.create("flights", 1).await;
    backend.put("flights", 0..50).await;
    let shard = &backend.kinesis.list_shards("flights").await.unwrap()[0];
    let options = Options { idle_ms: 400, reads_per_second: 20, ..Options::default() };
    let source = source(&info, &shard.id);
    let mut reader =
        PollingReader::new(backend.kinesis.clone(), source, ReadFrom::TrimHorizon, &options, &backend.metrics, 1);
    let started = Instant::now();
    read(&mut reader, 50, Demand { records: 10, bytes: 1 << 20 }).await;
    let full = started.elapsed();
    assert!(full >= Duration::from_millis(4 * 50) && full < Duration::from_millis(400 * 3), "{full:?}");

    reader.next(WIDE).await.unwrap();
    let started = Instant::now();
    let page = reader.next(WIDE).await.unwrap();
    assert!(started.elapsed() >= Duration::from_millis(395), "{:?}", started.elapsed());
    assert!(page.wait > Duration::from_millis(300), "{:?}", page.wait);
    assert!(reader.next(WIDE).now_or_never().is_none());
}
