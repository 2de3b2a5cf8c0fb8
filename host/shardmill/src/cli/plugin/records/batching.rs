//! Which records go into which batch, by the rules of a processor. Pure.

use std::sync::Arc;
use std::time::Duration;

use shardmill_filter::{Action, Filter, Metadata, Verdict};
use shardmill_record::{Batch, BatchBuilder, Position, ShardId};

use super::Given;
use crate::cli::put::Place;
use crate::config::{self, Processor};

/// Puts records into batches: each shard and each batcher has its own.
#[derive(Debug)]
pub(crate) struct Batching {
    filter: Option<Filter>,
    /// The batchers in their order, and last what takes all other records.
    kinds: Vec<Kind>,
    stream: Arc<str>,
    /// In the order in which they were begun.
    open: Vec<Open>,
}

#[derive(Debug)]
struct Kind {
    /// The batcher's name; `None` of the processor's own batches.
    name: Option<Arc<str>>,
    when: Option<Filter>,
    records: usize,
    bytes: usize,
    window: Option<Duration>,
}

/// A batch that is not full.
#[derive(Debug)]
struct Open {
    shard: ShardId,
    kind: usize,
    window: Option<u128>,
    builder: BatchBuilder,
    places: Vec<Place>,
    last: Option<Position>,
}

/// Records to hand over together.
#[derive(Debug)]
pub(crate) struct Handed {
    pub(crate) shard: ShardId,
    /// The batcher, if one has taken them.
    pub(crate) batcher: Option<Arc<str>>,
    pub(crate) batch: Batch,
    /// Where each was read.
    pub(crate) places: Vec<Place>,
    /// Whether nothing of the shard comes after it.
    pub(crate) is_last: bool,
}

/// What becomes of a record.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    InBatch,
    /// The filter keeps it out.
    FilteredOut,
    /// It fails before the plugin sees it.
    Failed(String),
}

// === impl Batching ===

impl Batching {
    /// As a processor says it; `records` takes the place of what it says of a batch's size.
    pub(crate) fn new(processor: &Processor, stream: &str, records: Option<usize>) -> Self {
        let kind = |name: Option<&str>, when: Option<&config::Filter>, batch: &config::Batch| Kind {
            name: name.map(Into::into),
            when: when.map(|when| when.rules.clone()),
            records: records.unwrap_or(batch.records),
            bytes: batch.bytes,
            window: batch.window,
        };
        let batchers = processor.flow.batchers.iter();
        let kinds = batchers.map(|batcher| kind(Some(&batcher.name), batcher.when.as_ref(), &batcher.batch));
        Self {
            filter: processor.flow.filter.as_ref().map(|filter| filter.rules.clone()),
            kinds: kinds.chain([kind(None, None, &processor.batch)]).collect(),
            stream: stream.into(),
            open: Vec::new(),
        }
    }

    /// Takes a record, and gives the batch that has no room for it. A full one waits for the next record, which says
    /// whether it was its shard's last.
    pub(crate) fn push(&mut self, given: &Given) -> (Fate, Option<Handed>) {
        let hash_key = given.record.explicit_hash_key.map(|key| key.to_string());
        let record = given.as_record(hash_key.as_deref());
        let metadata = Metadata {
            partition_key: record.partition_key,
            explicit_hash_key: record.explicit_hash_key,
            sequence_number: record.sequence_number,
            sub_sequence_number: record.sub_sequence_number,
            approximate_arrival: record.approximate_arrival,
            shard_id: given.shard.as_str(),
            stream: &self.stream,
        };
        if let Some(filter) = &self.filter {
            match filter.action(filter.decide(&metadata, record.data)) {
                Action::Deliver => {}
                Action::Drop => return (Fate::FilteredOut, None),
                Action::Fail => return (Fate::Failed(filter.invalid_json(record.data).unwrap_or_default()), None),
            }
        }
        let matches =
            |kind: &Kind| kind.when.as_ref().is_none_or(|when| when.decide(&metadata, record.data) == Verdict::Matched);
        let number = self.kinds.iter().position(matches).unwrap_or(self.kinds.len() - 1);
        let kind = &self.kinds[number];
        let window = kind.window.map(|window| u128::from(given.arrived_at) / window.as_millis().max(1));
        let found = self.open.iter().position(|open| open.shard == given.shard && open.kind == number);
        let size = [record.sequence_number.len(), record.partition_key.len(), record.data.len()].iter().sum::<usize>()
            + record.explicit_hash_key.map_or(0, str::len);
        let has_room = |open: &Open| {
            let builder = &open.builder;
            builder.len() < kind.records && builder.bytes() + size <= kind.bytes && open.window == window
        };
        let full = match found {
            Some(at) if !has_room(&self.open[at]) => Some(self.open.remove(at)),
            _room => None,
        };
        let at = match (found, &full) {
            (Some(at), None) => at,
            _begun => {
                let (builder, places) = (BatchBuilder::default(), Vec::new());
                self.open.push(Open { shard: given.shard.clone(), kind: number, window, builder, places, last: None });
                self.open.len() - 1
            }
        };
        let open = &mut self.open[at];
        open.builder.push(record);
        open.places.push(given.place);
        open.last = Some(Position::new(given.sequence_number.clone(), given.sub_sequence_number));
        (Fate::InBatch, full.map(|full| self.hand_over(full, false)))
    }

    /// What is left at the end, in the order in which it was begun.
    pub(crate) fn finish(mut self) -> Vec<Handed> {
        let open = std::mem::take(&mut self.open);
        let shards: Vec<ShardId> = open.iter().map(|open| open.shard.clone()).collect();
        let is_last = |at: usize| !shards[at + 1..].contains(&shards[at]);
        open.into_iter().enumerate().map(|(at, open)| self.hand_over(open, is_last(at))).collect()
    }

    fn hand_over(&self, open: Open, is_last: bool) -> Handed {
        let Open { shard, kind, mut builder, places, last, .. } = open;
        if let Some(last) = last {
            builder.set_through(last);
        }
        Handed { shard, batcher: self.kinds[kind].name.clone(), batch: builder.build(), places, is_last }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;
    use shardmill_record::{SequenceNumber, UserRecord};

    use super::*;

    fn processor(lines: &str) -> Processor {
        let text = format!("application = \"a\"\n[processors.p]\nstream = \"s\"\nplugin = \"p\"\n{lines}");
        let config = crate::config::parse("test", &text, Path::new("")).unwrap_or_else(|error| panic!("{error:?}"));
        config.processors["p"].clone()
    }

    fn given(number: u64, shard: &str, data: &str, arrived_at: u64) -> Given {
        Given {
            place: Place { file: 0, line: number },
            shard: ShardId::parse(shard).unwrap(),
            sequence_number: SequenceNumber::parse(&number.to_string()).unwrap(),
            sub_sequence_number: 0,
            arrived_at,
            record: UserRecord {
                partition_key: "k".into(),
                explicit_hash_key: None,
                data: data.to_owned().into_bytes().into(),
            },
        }
    }

    /// Each batch as its shard, its batcher, its lines, and whether it is the shard's last; then fates of those in none.
    fn all(processor: &Processor, records: Option<usize>, given: &[Given]) -> (Vec<String>, Vec<Fate>) {
        let mut batching = Batching::new(processor, "s", records);
        let (mut handed, mut fates) = (Vec::new(), Vec::new());
        for given in given {
            let (fate, full) = batching.push(given);
            handed.extend(full);
            fates.extend((fate != Fate::InBatch).then_some(fate));
        }
        handed.extend(batching.finish());
        let shown = handed.iter().map(|handed| {
            let lines: Vec<String> = handed.places.iter().map(|place| place.line.to_string()).collect();
            let through = handed.batch.through().unwrap().sequence_number.as_str();
            assert_eq!((handed.batch.len(), Some(through)), (lines.len(), lines.last().map(String::as_str)));
            let batcher = handed.batcher.as_deref().unwrap_or("-");
            format!("{} {batcher} {}{}", handed.shard, lines.join(","), if handed.is_last { " last" } else { "" })
        });
        (shown.collect(), fates)
    }

    #[test]
    fn shards_have_batches_of_their_own_and_the_last_one_is_known() {
        let given: Vec<Given> =
            [(1, "a"), (2, "b"), (3, "a"), (4, "a"), (5, "b")].map(|(n, shard)| given(n, shard, "x", 0)).into();
        let (handed, _) = all(&processor(""), Some(2), &given);
        assert_eq!(handed, ["a - 1,3", "b - 2,5 last", "a - 4 last"]);
        let (handed, _) = all(&processor("batch = { records = 3 }"), None, &given);
        assert_eq!(handed, ["a - 1,3,4 last", "b - 2,5 last"]);
    }

    #[test]
    fn bytes_windows_filters_and_batchers_are_those_of_the_processor() {
        let large = "x".repeat(900);
        let by_bytes: Vec<Given> =
            [&large, "y", &large, &large].iter().zip(1..).map(|(data, n)| given(n, "a", data, 0)).collect();
        let (handed, _) = all(&processor("batch = { bytes = \"1 KiB\" }"), None, &by_bytes);
        assert_eq!(handed, ["a - 1,2", "a - 3", "a - 4 last"]);

        let by_time: Vec<Given> = [0, 999, 1000, 2500].iter().zip(1..).map(|(at, n)| given(n, "a", "x", *at)).collect();
        let (handed, _) = all(&processor("batch = { window = \"1s\" }"), None, &by_time);
        assert_eq!(handed, ["a - 1,2", "a - 3", "a - 4 last"]);

        let processor = processor(
            r#"filter = { patterns = [{ data = { n = [{ exists = true }] } }], on-invalid-json = "fail" }
            batchers = [{ name = "ones", when = [{ data = { n = [1] } }] }]"#,
        );
        let bodies = [r#"{"n":1}"#, r#"{"n":2}"#, r#"{"m":1}"#, "oops", r#"{"n":1}"#];
        let given: Vec<Given> = bodies.iter().zip(1..).map(|(data, n)| given(n, "a", data, 0)).collect();
        let (handed, fates) = all(&processor, None, &given);
        assert_eq!(handed, ["a ones 1,5", "a - 2 last"]);
        assert_eq!(fates[0], Fate::FilteredOut);
        assert!(matches!(&fates[1], Fate::Failed(reason) if !reason.is_empty()), "{fates:?}");
    }

    proptest! {
        #[test]
        fn every_record_is_in_one_batch_in_its_order(
            shards in prop::collection::vec(0..3_u8, 0..60),
            records in 1..7_usize,
        ) {
            let given: Vec<Given> =
                shards.iter().zip(1..).map(|(shard, n)| given(n, &format!("s-{shard}"), "x", 0)).collect();
            let mut batching = Batching::new(&processor(""), "s", Some(records));
            let mut handed: Vec<Handed> = given.iter().filter_map(|given| batching.push(given).1).collect();
            handed.extend(batching.finish());
            for shard in 0..3_u8 {
                let name = format!("s-{shard}");
                let of_shard: Vec<&Handed> = handed.iter().filter(|handed| handed.shard.as_str() == name).collect();
                let lines: Vec<u64> = of_shard.iter().flat_map(|handed| &handed.places).map(|place| place.line).collect();
                let expected: Vec<u64> =
                    (1..).zip(&shards).filter(|(_, of)| **of == shard).map(|(n, _)| n).collect();
                prop_assert_eq!(lines, expected);
                let (last, others) = match of_shard.split_last() { Some(split) => split, None => continue };
                prop_assert!(last.is_last && last.batch.len() <= records);
                prop_assert!(others.iter().all(|handed| !handed.is_last && handed.batch.len() == records));
            }
        }
    }
}
