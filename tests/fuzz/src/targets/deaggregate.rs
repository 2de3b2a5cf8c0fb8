//! A KPL aggregate: the bytes as a payload, and as a message in a frame that fits it.
//!
//! It is taken apart or delivered as it is, keeps no more memory than is promised, is written again as what was read, and comes
//! out of an [`Unpacker`] once, in order, within the limits of batches, wherever reading begins.

use md5::{Digest as _, Md5};
use shardmill_record::aggregate::{Aggregator, decode, is_framed};
use shardmill_record::{
    Batch, BatchBuilder, BatchLimits, HashKey, HashKeyRange, OutOfRange, PageBuilder, Position, SequenceNumber,
    Unpacked, Unpacker, UserRecord,
};

const NUMBER: &str = "100";
/// Memory of an aggregate for each byte of its payload, as [`shardmill_record::aggregate::Aggregate`] promises.
const GROWTH: usize = 8;
const UNLIMITED: BatchLimits = BatchLimits { records: usize::MAX, bytes: usize::MAX };

/// A user record as it should come out.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Found {
    place: u64,
    record: UserRecord,
}

/// See the module.
pub fn run(bytes: &[u8]) {
    check(bytes);
    check(&seal(bytes));
}

fn seal(message: &[u8]) -> Vec<u8> {
    [&[0xF3, 0x89, 0x9A, 0xC2], message, &Md5::digest(message)[..]].concat()
}

fn check(payload: &[u8]) {
    let Ok(aggregate) = decode(payload) else {
        let alone = Found { place: 0, record: record("key", None, payload) };
        let (found, met) = unpack(payload, None, HashKeyRange::ALL, OutOfRange::Deliver, UNLIMITED);
        assert_eq!(found, [alone]);
        assert_eq!((met.aggregates, met.broken_aggregates), (0, u64::from(is_framed(payload))));
        return;
    };
    assert!(aggregate.memory() <= GROWTH * payload.len(), "{} of {}", aggregate.memory(), payload.len());
    let found: Vec<Found> = (0..)
        .zip(aggregate.records(payload))
        .map(|(place, sub)| {
            assert!(sub.partition_key_index < aggregate.partition_key_count());
            Found { place, record: record(sub.partition_key, sub.explicit_hash_key, sub.data) }
        })
        .collect();
    assert_eq!((found.len(), found.is_empty()), (aggregate.len(), aggregate.is_empty()));
    is_written_again(&found);
    comes_out(payload, &found);
}

fn is_written_again(found: &[Found]) {
    let mut aggregator = Aggregator::default();
    for Found { record, .. } in found {
        let expected = aggregator.size_with(record);
        aggregator.push(record);
        assert_eq!(aggregator.size(), expected);
    }
    let size = aggregator.size();
    let Some((payload, hash_key)) = aggregator.finish() else { return assert!(found.is_empty()) };
    assert_eq!((payload.len(), hash_key), (size, found[0].record.hash_key()));
    let aggregate = decode(&payload).expect("what was written is an aggregate");
    let again = aggregate.records(&payload).map(|sub| record(sub.partition_key, sub.explicit_hash_key, sub.data));
    assert!(again.eq(found.iter().map(|found| found.record.clone())), "another one was written");
}

fn comes_out(payload: &[u8], found: &[Found]) {
    let (all, met) = unpack(payload, None, HashKeyRange::ALL, OutOfRange::Drop, UNLIMITED);
    assert_eq!(all, found);
    assert_eq!((met.aggregates, met.out_of_range), (1, 0));
    let half = HashKeyRange { start: HashKey::MIN, end: HashKey::new(u128::MAX / 2) };
    let limits = BatchLimits { records: 1 + payload.len() % 5, bytes: 64 };
    let within: Vec<Found> = found.iter().filter(|found| half.contains(found.record.hash_key())).cloned().collect();
    let outside = (found.len() - within.len()) as u64;
    for (out_of_range, expected) in [(OutOfRange::Deliver, found), (OutOfRange::Drop, &within[..])] {
        let (some, met) = unpack(payload, None, half, out_of_range, limits);
        assert_eq!(some, expected);
        assert_eq!((met.aggregates, met.out_of_range), (1, outside));
    }
    let middle = found.len() as u64 / 2;
    let (rest, _) = unpack(payload, Some(middle), HashKeyRange::ALL, OutOfRange::Deliver, limits);
    assert!(rest.iter().eq(found.iter().filter(|found| found.place > middle)), "after {middle}: {rest:?}");
}

/// What comes out of the Kinesis record after this place in it.
fn unpack(
    payload: &[u8],
    after: Option<u64>,
    range: HashKeyRange,
    out_of_range: OutOfRange,
    limits: BatchLimits,
) -> (Vec<Found>, Unpacked) {
    let number = SequenceNumber::parse(NUMBER).expect("a number");
    let mut page = PageBuilder::default();
    page.push(NUMBER, "key", payload, 1_000).expect("a number");
    let after = after.map(|place| Position::new(number.clone(), place));
    let mut unpacker = Unpacker::new(after, range, out_of_range);
    unpacker.push(page.build());
    let (mut found, mut met) = (Vec::new(), Unpacked::default());
    loop {
        let mut builder = BatchBuilder::default();
        let filled = unpacker.fill(&mut builder, &limits);
        let batch = builder.build();
        is_within(&batch, &limits);
        found.extend(batch.iter().map(|record| {
            assert_eq!((record.sequence_number, record.approximate_arrival), (NUMBER, 1_000));
            let hash_key = record.explicit_hash_key.map(|digits| digits.parse().expect("a hash key"));
            let record_of = self::record(record.partition_key, hash_key, record.data);
            Found { place: record.sub_sequence_number, record: record_of }
        }));
        if let (Some(through), Some(last)) = (batch.through(), batch.len().checked_sub(1)) {
            assert!(*through >= batch.position(last), "{through}");
        }
        met.aggregates += filled.aggregates;
        met.broken_aggregates += filled.broken_aggregates;
        met.out_of_range += filled.out_of_range;
        if !filled.full {
            assert!(unpacker.is_empty());
            return (found, met);
        }
        assert!(!batch.is_empty(), "a batch without records is not full");
    }
}

fn is_within(batch: &Batch, limits: &BatchLimits) {
    assert!(batch.len() <= limits.records && (batch.len() <= 1 || batch.arena().len() <= limits.bytes));
    assert_eq!(batch.lengths().iter().map(|length| *length as usize).sum::<usize>(), batch.arena().len());
}

fn record(partition_key: &str, explicit_hash_key: Option<HashKey>, data: &[u8]) -> UserRecord {
    UserRecord { partition_key: partition_key.to_owned(), explicit_hash_key, data: data.to_vec().into() }
}
