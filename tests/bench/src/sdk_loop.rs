//! What a program does that reads a stream with the AWS SDK and nothing else: a task for each shard, GetRecords after
//! GetRecords, and a look at every byte.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::types::ShardIteratorType;
use aws_smithy_http_client::tls;
use tokio::sync::Notify;

/// The pause at the tip of a shard: five reads a second.
const IDLE: Duration = Duration::from_millis(200);

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[arg(long)]
    stream: String,
    #[arg(long)]
    records: u64,
}

#[derive(Debug, Default)]
struct Counted {
    records: AtomicU64,
    /// Bytes that are the one that is looked for.
    bytes: AtomicU64,
    changed: Notify,
}

/// Says `first` and `done` on standard output, then waits to be killed, so that its use of the machine can be read.
pub(crate) async fn run(arguments: &Arguments) {
    let client = client().await;
    let counted = Arc::new(Counted::default());
    let listed = client.list_shards().stream_name(&arguments.stream).send().await.expect("a listing of shards");
    for shard in listed.shards() {
        let (client, counted) = (client.clone(), Arc::clone(&counted));
        tokio::spawn(read(client, arguments.stream.clone(), shard.shard_id().to_owned(), counted));
    }
    until(&counted, 1).await;
    say("first");
    until(&counted, arguments.records).await;
    say("done");
    std::hint::black_box(counted.bytes.load(Ordering::Relaxed));
    std::future::pending().await
}

/// As an application makes one that takes its settings from its environment. The SDK's own default for HTTP is the
/// same client with another cryptography, which no request here needs.
async fn client() -> Client {
    let http = aws_smithy_http_client::Builder::new()
        .tls_provider(tls::Provider::Rustls(tls::rustls_provider::CryptoMode::Ring))
        .build_https();
    let config = aws_config::defaults(aws_config::BehaviorVersion::latest()).http_client(http).load().await;
    Client::new(&config)
}

async fn read(client: Client, stream: String, shard: String, counted: Arc<Counted>) {
    let iterator = client.get_shard_iterator().stream_name(stream).shard_id(shard);
    let iterator = iterator.shard_iterator_type(ShardIteratorType::TrimHorizon).send().await.expect("an iterator");
    let mut iterator = iterator.shard_iterator;
    while let Some(from) = iterator {
        let page = client.get_records().shard_iterator(from).limit(10_000).send().await.expect("a page");
        let count = |data: &[u8]| data.iter().filter(|byte| **byte == b'a').count() as u64;
        let bytes: u64 = page.records().iter().map(|record| count(record.data().as_ref())).sum();
        counted.bytes.fetch_add(bytes, Ordering::Relaxed);
        counted.records.fetch_add(page.records().len() as u64, Ordering::Relaxed);
        counted.changed.notify_one();
        if page.records().is_empty() {
            tokio::time::sleep(IDLE).await;
        }
        iterator = page.next_shard_iterator;
    }
}

async fn until(counted: &Counted, records: u64) {
    while counted.records.load(Ordering::Relaxed) < records {
        counted.changed.notified().await;
    }
}

fn say(word: &str) {
    let mut output = std::io::stdout().lock();
    let said = writeln!(output, "{word}").and_then(|()| output.flush());
    said.expect("whoever has started this listens");
}
