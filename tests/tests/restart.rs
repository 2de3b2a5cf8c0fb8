//! A shard that was stopped starts again in the same process, from its last checkpoint.

use std::path::Path;
use std::time::Duration;

use shardmill::{Host, aws, config};
use shardmill_tests::{Config, Services, Tail, Writer, assert_each_once, assert_order_of_keys, eventually};
use tokio_util::sync::CancellationToken;

const LIMIT: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_stopped_shard_goes_on_when_it_is_started_again_and_nothing_is_lost_or_repeated() {
    let services = Services::start().await;
    services.create_stream("input", 2).await;
    let mut writer = Writer::new(&services, "input", 100);
    writer.put(1_000).await;
    let text = Config::copy().processor(r#"checkpoint-interval = "1h""#).text();
    let mut config = config::parse("test.toml", &text, Path::new("")).expect("a good configuration");
    let endpoint = |name: &str| services.environment().get(name).cloned();
    config.aws.kinesis_endpoint = endpoint("AWS_ENDPOINT_URL_KINESIS");
    config.aws.dynamodb_endpoint = endpoint("AWS_ENDPOINT_URL_DYNAMODB");
    let host = Host::builder(config).sdk_config(aws::local()).build().await.expect("a host");
    let (progress, stop) = (host.progress(), CancellationToken::new());
    let running = tokio::spawn(host.run(stop.clone()));

    // There is no output stream, so both shards stop.
    eventually(LIMIT, "two stopped shards", async || (progress.stopped_shards().len() == 2).then_some(())).await;
    let reasons = progress.stopped_shards();
    assert!(reasons.iter().all(|reason| reason.contains("output `copies` cannot be sent")), "{reasons:?}");
    assert!(!progress.status().restart("copy", "shardId-000000000009"));
    let shards: Vec<String> = progress.status().snapshot()["copy"].shards.keys().cloned().collect();
    assert_eq!(shards.len(), 2);

    // Before anything is mended, it comes to the same end.
    let restart = || progress.status().restart("copy", &shards[0]);
    assert!(restart());
    eventually(LIMIT, "the same end, from which it can start again", async || restart().then_some(())).await;
    eventually(LIMIT, "the same end", async || (progress.stopped_shards() == reasons).then_some(())).await;
    services.create_stream("output", 2).await;
    writer.put(1_000).await;
    let mut output = Tail::new(&services, "output").await;
    eventually(LIMIT, "all outputs", async || {
        for shard in &shards {
            // If it is stopped.
            progress.status().restart("copy", shard);
        }
        (output.count().await as u64 >= writer.count()).then_some(())
    })
    .await;
    assert!(progress.stopped_shards().is_empty());
    stop.cancel();
    running.await.expect("it does not panic").expect("it ends well");
    let output = Tail::all(&services, "output").await;
    assert_each_once(&output, 0..writer.count());
    assert_order_of_keys(&output);
}
