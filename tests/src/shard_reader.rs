//! Reads one shard of a stream from its oldest record on, aggregates taken apart.

use aws_sdk_kinesis::types::ShardIteratorType;
use shardmill_record::{Batch, BatchBuilder, BatchLimits, HashKeyRange, OutOfRange, PageBuilder, Unpacker};

use crate::Services;

/// Where a reader of a shard is.
#[derive(Debug)]
pub(crate) struct ShardReader {
    /// The shard's id.
    pub(crate) shard: String,
    /// `None` at the shard's end.
    iterator: Option<String>,
    unpacker: Unpacker,
    /// Kinesis records up to now.
    pub(crate) kinesis_records: u64,
}

// === impl ShardReader ===

impl ShardReader {
    /// A reader for each shard that a stream has now, in the order of their ids.
    pub(crate) async fn of_all(services: &Services, stream: &str) -> Vec<ShardReader> {
        let mut readers = Vec::new();
        for shard in services.shards(stream).await {
            let iterator = services.kinesis.get_shard_iterator().stream_name(stream).shard_id(shard.shard_id());
            let iterator = iterator.shard_iterator_type(ShardIteratorType::TrimHorizon).send().await;
            let iterator = iterator.expect("an iterator").shard_iterator;
            let unpacker = Unpacker::new(None, HashKeyRange::ALL, OutOfRange::Deliver);
            readers.push(ShardReader { shard: shard.shard_id, iterator, unpacker, kinesis_records: 0 });
        }
        readers.sort_by(|one, other| one.shard.cmp(&other.shard));
        readers
    }

    /// Reads a page. Whether there may be more at once: not at the tip, nor at the shard's end.
    pub(crate) async fn read(&mut self, services: &Services) -> bool {
        let Some(iterator) = self.iterator.take() else { return false };
        let read = services.kinesis.get_records().shard_iterator(iterator).send().await.expect("records");
        let mut page = PageBuilder::default();
        for record in read.records() {
            let arrival = record.approximate_arrival_timestamp().expect("a time of arrival").to_millis();
            let arrival = u64::try_from(arrival.expect("a time in range")).expect("a time after 1970");
            let key = record.partition_key().expect("a key");
            page.push(record.sequence_number(), key, record.data().as_ref(), arrival).expect("a sequence number");
        }
        self.kinesis_records += read.records.len() as u64;
        self.unpacker.push(page.build());
        self.iterator = read.next_shard_iterator;
        self.iterator.is_some() && !(read.records.is_empty() && read.millis_behind_latest == Some(0))
    }

    /// Takes out the user records of all that was read.
    pub(crate) fn batch(&mut self) -> Batch {
        let mut batch = BatchBuilder::default();
        self.unpacker.fill(&mut batch, &BatchLimits { records: usize::MAX, bytes: usize::MAX });
        batch.build()
    }
}
