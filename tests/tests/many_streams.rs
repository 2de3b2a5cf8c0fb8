//! Many streams in one consumer, streams named by their ARNs, and consumers that share a stream's limits.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use shardmill_tests::{
    Config, Leases, Proxy, Services, Tail, Worker, Writer, assert_each_once, assert_says, leases, numbers,
};

const FIRST: &str = "shardId-000000000000";

/// The streams `orders` and `returns` besides `output`.
async fn services() -> Services {
    let services = Services::start().await;
    services.create_stream("orders", 2).await;
    services.create_stream("returns", 1).await;
    services.create_stream("output", 2).await;
    services
}

/// `account:stream:creationEpoch`, as a KCL makes it.
async fn stream_key(services: &Services, stream: &str) -> String {
    let described = services.kinesis.describe_stream_summary().stream_name(stream).send().await;
    let summary = described.expect("a description").stream_description_summary.expect("a summary");
    let account = summary.stream_arn.split(':').nth(4).expect("an account").to_owned();
    format!("{account}:{stream}:{}", summary.stream_creation_timestamp.secs())
}

#[tokio::test]
async fn one_consumer_reads_many_streams_with_the_lease_keys_of_a_kcl() {
    let services = services().await;
    let config = Config::copy().streams(&["orders", "returns"]);
    let mut orders = Writer::new(&services, "orders", 40);
    let mut returns = Writer::new(&services, "returns", 40);
    orders.put(600).await;
    returns.put(300).await;
    let mut worker = Worker::start_ready(&services, &config).await;
    worker.until_records_of("orders", 600).await;
    worker.until_records_of("returns", 300).await;

    let (orders_key, returns_key) = (stream_key(&services, "orders").await, stream_key(&services, "returns").await);
    let expected: BTreeSet<String> = [
        format!("{orders_key}:{FIRST}"),
        format!("{orders_key}:shardId-000000000001"),
        format!("{returns_key}:{FIRST}"),
    ]
    .into();
    let (_, status) = worker.get("/status").await;
    let status: Value = serde_json::from_str(&status).expect("JSON");
    let shards = status["copy"]["shards"].as_object().expect("shards");
    assert_eq!(shards.keys().cloned().collect::<BTreeSet<_>>(), expected, "{status}");
    for (key, shard) in shards {
        let stream = if key.starts_with(&orders_key) { "orders" } else { "returns" };
        assert_eq!((&shard["stream"], &shard["state"]), (&stream.into(), &"running".into()), "{status}");
    }
    for (stream, shards) in [("orders", 2.0), ("returns", 1.0)] {
        let labels = format!("stream=\"{stream}\"");
        assert_eq!(worker.metric("shardmill_shards", &labels).await, shards);
        assert!(worker.metric("shardmill_stream_reads_total", &labels).await > 0.0);
    }

    // A split of one stream, whose shard ids the other has as well.
    services.split("orders", FIRST).await;
    orders.put(300).await;
    worker.until_records_of("orders", 900).await;
    worker
        .until("the parent's end", async |_| {
            let rows = leases::rows(&services, config.lease_table()).await;
            rows[&format!("{orders_key}:{FIRST}")].checkpoint.is_shard_end().then_some(())
        })
        .await;
    worker.stop().await;

    let rows = leases::rows(&services, config.lease_table()).await;
    assert_eq!(rows.len(), 5, "{rows:?}");
    assert!(
        !rows[&format!("{returns_key}:{FIRST}")].checkpoint.is_shard_end(),
        "the other stream's first shard is open"
    );
    let item = services.dynamodb.scan().table_name(config.lease_table()).send().await.expect("a scan");
    for item in item.items() {
        let text = |name: &str| item[name].as_s().expect("a text").clone();
        assert_eq!(text("leaseKey"), format!("{}:{}", text("streamName"), text("shardId")));
    }
    let of_stream = |key: &str| -> BTreeMap<String, leases::Row> {
        let own = rows.iter().filter_map(|(row, lease)| Some((row.strip_prefix(key)?.strip_prefix(':')?, lease)));
        own.map(|(shard, lease)| (shard.to_owned(), lease.clone())).collect()
    };
    leases::assert_lineage(&of_stream(&orders_key), &services.shards("orders").await, &[FIRST]);
    for (stream, key) in [("orders", &orders_key), ("returns", &returns_key)] {
        leases::assert_released_at_the_end(&of_stream(key), &Tail::all(&services, stream).await);
    }
    // Nothing is repeated, and the order of each stream's keys is kept.
    let output = Tail::all(&services, "output").await;
    assert_eq!(output.len(), 1_200);
    assert_eq!(numbers(&output), (0..900).collect());
}

#[tokio::test]
async fn a_stream_that_joins_the_list_is_read_and_one_that_leaves_it_keeps_its_leases() {
    let services = services().await;
    let mut orders = Writer::new(&services, "orders", 40);
    let mut returns = Writer::new(&services, "returns", 40);
    let alone = Config::copy().streams(&["orders"]).leases(Leases::Brief);
    let both = Config::copy().streams(&["orders", "returns"]).leases(Leases::Brief);
    orders.put(100).await;
    returns.put(100).await;
    let mut worker = Worker::start_ready(&services, &alone).await;
    worker.until_records_of("orders", 100).await;
    worker.stop().await;
    let mut worker = Worker::start_ready(&services, &both).await;
    worker.until_records_of("returns", 100).await;
    worker.stop().await;
    let before = leases::rows(&services, alone.lease_table()).await;

    orders.put(100).await;
    returns.put(50).await;
    let mut worker = Worker::start_ready(&services, &alone).await;
    worker.until_records_of("orders", 100).await;
    // For longer than a lease lives without renewal.
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    let told = worker.logged("INFO", "not in the list");
    let [told] = &told[..] else { panic!("said once: {told:?}") };
    let key = stream_key(&services, "returns").await;
    assert_eq!((&told["stream"], &told["leases"]), (&key.as_str().into(), &1.into()));
    worker.stop().await;
    let after = leases::rows(&services, alone.lease_table()).await;
    let row = format!("{key}:{FIRST}");
    assert_eq!(before[&row], after[&row], "the leases of a stream that left the list are left alone");

    let mut worker = Worker::start_ready(&services, &both).await;
    worker.until_records_of("returns", 50).await;
    worker.stop().await;
    let output = Tail::all(&services, "output").await;
    assert_eq!(output.len(), 350, "nothing is lost, and nothing repeated");
}

#[tokio::test]
async fn a_table_of_the_other_form_is_refused() {
    let services = services().await;
    let one = Config::copy().reads("orders");
    let many = Config::copy().streams(&["orders"]);
    for (first, second, said) in
        [(&one, &many, "a consumer of one stream (`stream`)"), (&many, &one, "a consumer of many streams (`streams`)")]
    {
        for table in ["tests-copy", "tests-copy-shardmill"] {
            let _deleted_or_not_there = services.dynamodb.delete_table().table_name(table).send().await;
        }
        let mut worker = Worker::start_ready(&services, first).await;
        worker.stop().await;
        let mut worker = Worker::start(&services, second);
        let status = worker.wait(std::time::Duration::from_secs(40)).await;
        assert_eq!(status.code(), Some(78), "{}", worker.stderr());
        assert_says("a table of the other form", &worker.stderr(), &["tests-copy", said, "lease-table"]);
    }
}

#[tokio::test]
async fn streams_are_read_and_written_by_their_arns() {
    let services = services().await;
    let (orders, returns) = (services.arn("orders").await, services.arn("returns").await);
    // Another region: the built-in services are at one endpoint for all of them.
    let returns = returns.replace("us-east-1", "eu-west-1");
    let output = services.arn("output").await;
    for decoder in ["json", "cbor"] {
        let config = Config::copy()
            .streams(&[&orders, &returns])
            .output(&output)
            .top(&format!("defaults.stream.decoder = \"{decoder}\""))
            .processor(&format!("lease-table = \"arns-{decoder}\""));
        let mut writer = Writer::new(&services, "orders", 40);
        writer.put(200).await;
        let mut worker = Worker::start_ready(&services, &config).await;
        worker.until_records_of(&orders, 200).await;
        worker.stop().await;
    }
    let output = Tail::all(&services, "output").await;
    assert_eq!(numbers(&output), (0..200).collect());
}

/// Without what they share both would be throttled: they read twice as often as the service lets them.
#[tokio::test]
async fn two_consumers_of_a_stream_share_its_limits_and_neither_is_throttled() {
    let services = Services::start_limited().await;
    services.create_stream("input", 2).await;
    services.create_stream("output", 8).await;
    services.create_stream("asides", 8).await;
    // Four times a second together: a busy machine may be late with one and not with the next.
    let config = Config::copy().stream("reads-per-second = 4").and_guest(
        "second",
        "route",
        "",
        "field = \"/n\"\ndefault = \"out\"",
    );
    let mut writer = Writer::new(&services, "input", 60).padded(500);
    let proxy = Proxy::new(&services, 1);
    let link = proxy.link("worker");
    let mut worker = Worker::start_ready(&link, &config).await;
    for _ in 0..12 {
        writer.put(60).await;
        tokio::time::sleep(std::time::Duration::from_millis(400)).await;
    }
    let all = writer.count();
    for processor in ["copy", "second"] {
        let labels = format!("processor=\"{processor}\"");
        worker
            .until("all records", async |worker| {
                (worker.metric("shardmill_records_done_total", &labels).await as u64 >= all).then_some(())
            })
            .await;
        assert!(worker.metric("shardmill_stream_reads_total", &labels).await > 4.0, "{processor} reads");
    }
    assert_eq!(proxy.throttled_reads(), 0);
    worker.stop().await;
    for output in ["output", "asides"] {
        assert_each_once(&Tail::all(&services, output).await, 0..all);
    }
}
