//! Letters through the places that a configuration names, on the local backend.

use std::time::Duration;

use shardmill_engine::{DeadLetter, DeadLetterError};
use shardmill_lease::store::memory::Memory;
use shardmill_lease::{HeldLease, one_lease};
use shardmill_producer::Permit;
use shardmill_record::{
    BatchBuilder, BatchLimits, HashKey, HashKeyRange, OutOfRange, PageBuilder, Unpacker, UserRecord,
};
use shardmill_stream::Kinesis;

use super::letter::tests::letter;
use super::read::{Filter, Letters, Place};
use super::*;
use crate::aws;
use crate::local::{Local, Options};

/// A lease that is held until it is let go.
pub(super) async fn lease() -> HeldLease {
    one_lease::hold(&Memory::new(), shardmill_lease::Metrics::default()).await
}

/// What the command line finds in a place.
pub(super) async fn read_back(place: Place) -> Vec<DeadLetter> {
    wanted(place, Filter::default(), 1_000_000_000_000_000).await
}

async fn wanted(place: Place, filter: Filter, now: u64) -> Vec<DeadLetter> {
    let mut letters = Letters::open(&[place], filter, now).await.unwrap();
    std::iter::from_fn(|| letters.next()).flatten().map(|found| found.letter).collect()
}

struct Services {
    local: Local,
    clients: Clients,
}

impl Services {
    async fn start(streams: &[&str]) -> Self {
        let local = Local::start(Options::default()).await.unwrap();
        let aws = config::Aws { kinesis_endpoint: Some(local.endpoints().kinesis.clone()), ..Default::default() };
        let clients = Clients::new(&aws::local(), &aws);
        for stream in streams {
            clients.kinesis.create_stream().stream_name(*stream).shard_count(4).send().await.unwrap();
            Kinesis::new(clients.kinesis.clone()).wait_until_created(stream).await.unwrap();
        }
        Self { local, clients }
    }

    /// Waits until the shards of a stream are not being changed any more.
    async fn until_active(&self, stream: &str) {
        for _ in 0..3_000 {
            let described = self.clients.kinesis.describe_stream_summary().stream_name(stream).send().await.unwrap();
            let status = described.stream_description_summary().unwrap().stream_status().clone();
            if status == aws_sdk_kinesis::types::StreamStatus::Active {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the shards of `{stream}` are changed for ever");
    }

    fn producer(&self, stream: &str, options: shardmill_producer::BatchOptions) -> BatchSender {
        let metrics = shardmill_producer::Metrics::default();
        BatchSender::new(self.clients.producer.clone(), stream.to_owned(), options, metrics, 7)
    }

    /// The place of the processor `p` of this configuration.
    fn place(&self, config: &str, metrics: &Metrics) -> Arc<dyn DeadLetters> {
        let head = "application = \"shop\"\n[processors.p]\nstream = \"orders\"\nplugin = \"p.wasm\"\n";
        let config = config::parse("test.toml", &format!("{head}{config}"), Path::new("")).unwrap();
        let processor = &config.processors["p"];
        let output = |(name, output): (&String, &config::Output)| {
            let config::Output::Stream(output) = output else { panic!("{name} leads to no stream") };
            let producer = self.producer(&output.stream, output.options.clone());
            let destination = Arc::new(StreamDestination::new(name.clone(), producer)) as Arc<dyn Destination>;
            (name.clone(), destination)
        };
        let outputs: BTreeMap<_, _> = processor.outputs.iter().map(output).collect();
        let surroundings = Surroundings {
            worker: "w",
            clients: &self.clients,
            producer_metrics: &shardmill_producer::Metrics::default(),
            metrics,
        };
        place(processor, &outputs, &surroundings).unwrap().expect("it has a place")
    }

    async fn read(&self, stream: &str) -> Vec<DeadLetter> {
        read_back(Place::Stream(stream.to_owned(), Kinesis::new(self.clients.kinesis.clone()))).await
    }

    /// The user records of a stream, shard by shard: key, hash key if it is told, payload.
    async fn user_records(&self, stream: &str) -> Vec<(String, Option<String>, Vec<u8>)> {
        use aws_sdk_kinesis::types::ShardIteratorType::TrimHorizon;
        let kinesis = &self.clients.kinesis;
        let mut found = Vec::new();
        let listed = kinesis.list_shards().stream_name(stream).send().await.unwrap();
        for shard in listed.shards() {
            let iterator = kinesis.get_shard_iterator().stream_name(stream).shard_id(shard.shard_id());
            let mut next = iterator.shard_iterator_type(TrimHorizon).send().await.unwrap().shard_iterator;
            let mut unpacker = Unpacker::new(None, HashKeyRange::ALL, OutOfRange::Deliver);
            while let Some(iterator) = next {
                let read = kinesis.get_records().shard_iterator(iterator).send().await.unwrap();
                let is_tip = read.records.is_empty();
                let mut page = PageBuilder::default();
                for record in read.records() {
                    page.push(record.sequence_number(), record.partition_key().unwrap(), record.data().as_ref(), 0)
                        .unwrap();
                }
                unpacker.push(page.build());
                next = read.next_shard_iterator.filter(|_| !is_tip);
            }
            let mut batch = BatchBuilder::default();
            unpacker.fill(&mut batch, &BatchLimits { records: usize::MAX, bytes: usize::MAX });
            found.extend(batch.build().iter().map(|record| {
                let hash_key = record.explicit_hash_key.map(str::to_owned);
                (record.partition_key.to_owned(), hash_key, record.data.to_vec())
            }));
        }
        found
    }
}

/// Ordinary letters, and all that is odd.
fn letters() -> Vec<DeadLetter> {
    let mut letters: Vec<DeadLetter> = (1..=60).map(letter).collect();
    letters[3].data = (0..1_048_000).map(|index| (index * 7 % 251) as u8).collect::<Vec<_>>().into();
    letters[10].data = letters[3].data.slice(..800_000);
    letters[17].partition_key = String::new();
    letters[24].partition_key = "é".repeat(300);
    letters[31].data = vec![0, 255, 10, 13].into();
    letters[38].data = Vec::new().into();
    letters[45].explicit_hash_key = Some(HashKey::MAX);
    letters
}

fn by_key(letters: &[DeadLetter]) -> BTreeMap<&str, Vec<&DeadLetter>> {
    let mut by_key: BTreeMap<&str, Vec<&DeadLetter>> = BTreeMap::new();
    for letter in letters {
        by_key.entry(&letter.partition_key).or_default().push(letter);
    }
    by_key
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_in_a_stream_come_back_in_the_order_of_their_keys_and_are_sent_again_byte_for_byte() {
    let services = Services::start(&["plain", "packed", "outputs", "again"]).await;
    let held = lease().await;
    let letters = letters();
    for (stream, kind, config) in [
        ("plain", "stream", "dead-letters = { stream = \"plain\" }\n"),
        ("packed", "stream", "dead-letters = { stream = \"packed\", aggregate = true }\n"),
        (
            "outputs",
            "output",
            "dead-letters = { output = \"out\" }\n[processors.p.outputs.out]\nstream = \"outputs\"\n",
        ),
    ] {
        let metrics = Metrics::default();
        let place = services.place(config, &metrics);
        if kind == "output" {
            // Among other records, of which some are JSON as well.
            let record = |data: &'static str| UserRecord {
                partition_key: "customer-1".to_owned(),
                explicit_hash_key: None,
                data: data.into(),
            };
            let producer = services.producer(stream, shardmill_producer::BatchOptions::default());
            let others = vec![record("{\"order\":7}"), record("{\"dead_letter\":\"no\"}"), record("text")];
            producer.send(others, &Permit::always()).await.unwrap();
        }
        for some in letters.chunks(25) {
            place.store(some.to_vec(), &held.fence()).await.unwrap();
        }
        // A successor that gives the last ones up again.
        let again = letters[50..].iter().map(|letter| DeadLetter { lease_epoch: 9, ..letter.clone() }).collect();
        place.store(again, &held.fence()).await.unwrap();
        let found = services.read(stream).await;
        assert_eq!(by_key(&found), by_key(&letters), "{stream}");
        let counts = metrics.of_place("p", kind).counts();
        assert_eq!(counts, (letters.len() as u64 + 10, 0, 0), "{stream}");
    }

    let options = shardmill_producer::BatchOptions { aggregate: false, ..Default::default() };
    let records = services.read("packed").await.iter().map(replay::record).collect();
    services.producer("again", options).send(records, &Permit::always()).await.unwrap();
    let found = services.user_records("again").await;
    assert_eq!(found.len(), letters.len());
    for (key, expected) in by_key(&letters) {
        let of_key = found.iter().filter(|(found, _, _)| found == key);
        let of_key: Vec<_> = of_key.map(|(_, hash_key, data)| (hash_key.clone(), data.as_slice())).collect();
        let hash_key = |letter: &DeadLetter| letter.explicit_hash_key.map(|key| key.to_string());
        let mut expected: Vec<_> = expected.iter().map(|letter| (hash_key(letter), &letter.data[..])).collect();
        // One record of its key has a hash key of its own, and is in another shard.
        let is_apart = expected.iter().any(|(hash_key, _)| hash_key.is_some());
        let mut found = of_key;
        if is_apart {
            expected.sort();
            found.sort();
        }
        assert_eq!(found, expected, "{key}");
    }
    services.local.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_come_back_in_the_order_of_their_records_and_not_in_that_in_which_they_were_stored() {
    let services = Services::start(&["failed"]).await;
    let held = lease().await;
    let place = services.place("dead-letters = { stream = \"failed\" }\n", &Metrics::default());
    // Of one key. The first worker died before its checkpoint, and its successor has had enough of one more record.
    for (given_up_at, numbers) in [(7, &[5, 12][..]), (8, &[5, 12, 19]), (9, &[1, 5])] {
        let partition_key = || "key".to_owned();
        let of_key =
            numbers.iter().map(|number| DeadLetter { given_up_at, partition_key: partition_key(), ..letter(*number) });
        place.store(of_key.collect(), &held.fence()).await.unwrap();
    }
    let found: Vec<_> = services.read("failed").await.into_iter().map(|letter| letter.position).collect();
    assert_eq!(found, [1, 5, 12, 19].map(|number| letter(number).position));
    services.local.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_does_not_take_them_is_named_and_a_lost_lease_sends_nothing() {
    let services = Services::start(&["failed"]).await;
    let metrics = Metrics::default();
    let held = lease().await;
    let nowhere = services.place("dead-letters = { stream = \"nowhere\" }\n", &metrics);
    let error = nowhere.store(vec![letter(1)], &held.fence()).await.unwrap_err();
    let DeadLetterError::Refused { place, reason } = error else { panic!("{error}") };
    assert_eq!(place, "the stream nowhere");
    assert!(reason.contains("create the stream"), "{reason}");
    assert_eq!(metrics.of_place("p", "stream").counts(), (0, 1, 0));

    let place = services.place("dead-letters = { stream = \"failed\" }\n", &metrics);
    held.release().await.unwrap();
    let error = place.store(vec![letter(1)], &held.fence()).await.unwrap_err();
    assert!(matches!(error, DeadLetterError::Fenced), "{error}");
    assert_eq!(services.read("failed").await, []);
    services.local.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_read_to_its_tip_over_a_reshard_and_by_the_time_of_letters() {
    let services = Services::start(&["failed"]).await;
    let held = lease().await;
    let place = services.place("dead-letters = { stream = \"failed\" }\n", &Metrics::default());
    let letters: Vec<DeadLetter> = (1..=40).map(letter).collect();
    place.store(letters[..20].to_vec(), &held.fence()).await.unwrap();
    for (shard, at) in [("shardId-000000000000", 1_u128 << 125), ("shardId-000000000001", 3 << 125)] {
        let split = services.clients.kinesis.split_shard().stream_name("failed").shard_to_split(shard);
        split.new_starting_hash_key(at.to_string()).send().await.unwrap();
        services.until_active("failed").await;
    }
    place.store(letters[20..].to_vec(), &held.fence()).await.unwrap();
    assert_eq!(by_key(&services.read("failed").await), by_key(&letters));

    let kinesis = Kinesis::new(services.clients.kinesis.clone());
    let filter = Filter { since: Some(letters[30].given_up_at), ..Filter::default() };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let found = wanted(Place::Stream("failed".to_owned(), kinesis), filter, now.as_millis() as u64).await;
    assert_eq!(by_key(&found), by_key(&letters[30..]));
    services.local.stop().await;
}
