//! Odd records: the largest and the emptiest, keys that no one expects, and aggregates that are none. Every one comes
//! out, in order, and as it is.

use md5::{Digest, Md5};
use proptest::prelude::*;
use shardmill_record::aggregate::Aggregator;
use shardmill_record::{
    BatchBuilder, BatchLimits, HashKey, HashKeyRange, OutOfRange, Page, PageBuilder, Position, SequenceNumber,
    Unpacked, Unpacker, UserRecord,
};

const MIB: usize = 1 << 20;
const MAGIC: [u8; 4] = [0xF3, 0x89, 0x9A, 0xC2];
/// The largest batch that the configuration allows.
const LIMITS: BatchLimits = BatchLimits { records: 10_000, bytes: 4 * MIB };

/// A user record that came out: sequence number, sub-sequence number, partition key, explicit hash key, data.
type Came = (String, u64, String, Option<String>, Vec<u8>);

/// A message in a frame that fits it.
fn seal(message: &[u8]) -> Vec<u8> {
    [&MAGIC[..], message, &Md5::digest(message)[..]].concat()
}

fn record(partition_key: &str, explicit_hash_key: Option<HashKey>, data: &[u8]) -> UserRecord {
    UserRecord { partition_key: partition_key.to_owned(), explicit_hash_key, data: data.to_vec().into() }
}

fn aggregate<'a>(records: impl IntoIterator<Item = &'a UserRecord>) -> Vec<u8> {
    let mut aggregator = Aggregator::default();
    records.into_iter().for_each(|record| aggregator.push(record));
    aggregator.finish().expect("there are records").0.to_vec()
}

/// Records that came alone, numbered from 1.
fn page<'a>(payloads: impl IntoIterator<Item = &'a [u8]>) -> Page {
    let mut page = PageBuilder::default();
    for (payload, number) in payloads.into_iter().zip(1..) {
        page.push(&u64::to_string(&number), "key", payload, 0).unwrap();
    }
    page.build()
}

/// Takes pages apart, and hands every record to `each`; the sum of what was met, and where the last batch ends.
fn unpack(pages: Vec<Page>, limits: &BatchLimits, mut each: impl FnMut(Came)) -> (Unpacked, Option<Position>) {
    let mut unpacker = Unpacker::new(None, HashKeyRange::ALL, OutOfRange::Deliver);
    pages.into_iter().for_each(|page| unpacker.push(page));
    let (mut sum, mut through) = (Unpacked::default(), None);
    loop {
        let mut builder = BatchBuilder::default();
        let met = unpacker.fill(&mut builder, limits);
        let batch = builder.build();
        assert!(batch.len() <= limits.records, "{} records in a batch", batch.len());
        assert!(batch.len() == 1 || batch.arena().len() <= limits.bytes, "{} bytes in a batch", batch.arena().len());
        sum.aggregates += met.aggregates;
        sum.broken_aggregates += met.broken_aggregates;
        for record in batch.iter() {
            let hash_key = record.explicit_hash_key.map(str::to_owned);
            let (sequence, key) = (record.sequence_number.to_owned(), record.partition_key.to_owned());
            each((sequence, record.sub_sequence_number, key, hash_key, record.data.to_vec()));
        }
        through = batch.through().cloned().or(through);
        if !met.full {
            assert!(unpacker.is_empty());
            return (sum, through);
        }
    }
}

fn unpacked(page: Page) -> (Vec<Came>, Unpacked) {
    let mut came = Vec::new();
    let (met, _) = unpack(vec![page], &LIMITS, |record| came.push(record));
    (came, met)
}

/// Asserts that each payload is delivered unchanged.
fn assert_as_they_are(payloads: &[Vec<u8>], broken: u64) {
    let (came, met) = unpacked(page(payloads.iter().map(Vec::as_slice)));
    assert_eq!(came.len(), payloads.len());
    for ((came, payload), number) in came.into_iter().zip(payloads).zip(1..) {
        assert_eq!(came, (u64::to_string(&number), 0, "key".to_owned(), None, payload.clone()));
    }
    assert_eq!((met.aggregates, met.broken_aggregates), (0, broken));
}

#[test]
fn every_truncation_and_every_changed_byte_of_an_aggregate_is_delivered_as_it_is() {
    let records = [record("a", None, b"one"), record("b", Some(HashKey::MAX), b""), record("a", None, b"three")];
    let whole = aggregate(&records);
    let cut: Vec<_> = (0..whole.len()).map(|length| whole[..length].to_vec()).collect();
    // From the length of a frame on it begins like an aggregate.
    assert_as_they_are(&cut, whole.len() as u64 - 20);
    let changed: Vec<_> = (0..whole.len())
        .map(|at| {
            let mut changed = whole.clone();
            changed[at] ^= 0x40;
            changed
        })
        .collect();
    assert_as_they_are(&changed, whole.len() as u64 - 4);
    let longer = [whole.clone(), vec![0]].concat();
    assert_as_they_are(&[longer], 1);
    assert_eq!(unpacked(page([whole.as_slice()])).0.len(), 3, "and the whole one is taken apart");
}

#[test]
fn a_sealed_message_that_breaks_the_format_is_delivered_as_it_is() {
    let broken: &[&[u8]] = &[
        // No table at all, an index past it, one of 64 bits.
        b"\x1A\x05\x08\x00\x1A\x01d",
        b"\x0A\x01k\x1A\x05\x08\x01\x1A\x01d",
        b"\x0A\x01k\x1A\x0E\x08\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01\x1A\x01d",
        // An explicit hash key that is not in its table.
        b"\x0A\x01k\x1A\x07\x08\x00\x10\x00\x1A\x01d",
        // No key, no data, a length past the end, a group, field 0.
        b"\x0A\x01k\x1A\x03\x1A\x01d",
        b"\x0A\x01k\x1A\x02\x08\x00",
        b"\x0A\x01k\x1A\x7F\x08\x00\x1A\x01d",
        b"\x0A\x01k\x7B",
        b"\x00\x00",
        b"\x0A\x01\xFF\x1A\x05\x08\x00\x1A\x01d",
    ];
    let payloads: Vec<_> = broken.iter().map(|message| seal(message)).collect();
    assert_as_they_are(&payloads, payloads.len() as u64);
}

#[test]
fn an_aggregate_of_no_records_is_passed_over_and_checkpointed() {
    for message in [&b""[..], b"\x0A\x01k", b"\x12\x011", b"\x78\x05"] {
        let payload = seal(message);
        let mut came = 0;
        let (met, through) = unpack(vec![page([payload.as_slice()])], &LIMITS, |_| came += 1);
        assert_eq!((came, met.aggregates, met.broken_aggregates), (0, 1, 0));
        assert_eq!(through, Some(Position::new(SequenceNumber::parse("1").unwrap(), 0)));
    }
}

#[test]
fn an_aggregate_within_an_aggregate_is_a_payload() {
    let inner = aggregate(&[record("i", None, b"inner")]);
    let outer = aggregate(&[record("o", None, &inner), record("p", None, b"beside")]);
    let (came, met) = unpacked(page([outer.as_slice()]));
    let of = |sub, key: &str, data: &[u8]| ("1".to_owned(), sub, key.to_owned(), None, data.to_vec());
    assert_eq!(came, [of(0, "o", &inner), of(1, "p", b"beside")]);
    assert_eq!((met.aggregates, met.broken_aggregates), (1, 0));
}

/// The most user records that a payload of this size can hold: empty ones under one key, six bytes each.
fn full_of_nothing(bytes: usize) -> (Vec<u8>, usize) {
    let count = (bytes - 23) / 6;
    let mut message = b"\x0A\x01k".to_vec();
    for _ in 0..count {
        message.extend_from_slice(b"\x1A\x04\x08\x00\x1A\x00");
    }
    (seal(&message), count)
}

#[test]
fn an_aggregate_full_of_empty_records_loses_none_and_keeps_every_batch_within_its_limits() {
    // The sizes of the largest record by default, and of the largest that a stream can be set to.
    for (bytes, expected) in [(MIB, 174_758), (10 * MIB, 1_747_622)] {
        let (payload, count) = full_of_nothing(bytes);
        assert!(payload.len() <= bytes && count == expected, "{} bytes, {count} records", payload.len());
        for limits in [LIMITS, BatchLimits { records: 500, bytes: 3_000 }] {
            let mut next = 0;
            let (met, through) = unpack(vec![page([payload.as_slice()])], &limits, |(number, sub, key, hash, data)| {
                assert_eq!(
                    (number.as_str(), sub, key.as_str(), hash, data.as_slice()),
                    ("1", next, "k", None, &b""[..])
                );
                next += 1;
            });
            assert_eq!((next, met.aggregates), (count as u64, 1));
            assert_eq!(through.unwrap().sub_sequence_number, count as u64 - 1);
        }
    }
}

#[test]
fn the_index_of_an_aggregate_is_bounded_by_its_payload() {
    let (records, count) = full_of_nothing(MIB);
    let keys = seal(&b"\x0A\x00".repeat(MIB / 2));
    for (payload, expected) in [(records, count), (keys, 0)] {
        let aggregate = shardmill_record::aggregate::decode(&payload).unwrap();
        assert_eq!(aggregate.len(), expected);
        assert!(aggregate.memory() <= 8 * payload.len(), "{} bytes for {}", aggregate.memory(), payload.len());
    }
}

/// Partition keys that the service takes: 1 to 256 Unicode characters.
fn odd_keys() -> Vec<String> {
    let mut keys: Vec<String> = [
        "😀".repeat(256),
        "\u{10FFFF}".repeat(256),
        "ש".repeat(256),
        "\u{202E}right to left\u{202C}".to_owned(),
        "\0".to_owned(),
        "\0".repeat(256),
        "\u{1}\u{7F}\u{80}\u{9F}".to_owned(),
        "\u{FEFF}".to_owned(),
        "\u{FFFD}\u{FFFF}".to_owned(),
        "e\u{301}".to_owned(),
        "é".to_owned(),
        " ".to_owned(),
        "\"\\/\u{8}\u{C}\n\r\t".to_owned(),
        "a".to_owned(),
    ]
    .into();
    keys.extend((0..32).map(|control| char::from(control).to_string()));
    keys
}

#[test]
fn keys_of_any_characters_are_kept_and_hashed_as_utf_8() {
    let keys = odd_keys();
    let mut alone = PageBuilder::default();
    for (key, number) in keys.iter().zip(1..) {
        alone.push(&u64::to_string(&number), key, b"", 0).unwrap();
    }
    let records: Vec<_> = keys.iter().map(|key| record(key, None, b"x")).collect();
    let together = aggregate(&records);
    for (page, is_alone) in [(alone.build(), true), (page([together.as_slice()]), false)] {
        let (came, _) = unpacked(page);
        let got: Vec<_> = came.iter().map(|(_, _, key, _, _)| key.clone()).collect();
        assert_eq!(got, keys, "alone: {is_alone}");
    }
    for record in &records {
        let digest: [u8; 16] = Md5::digest(record.partition_key.as_bytes()).into();
        assert_eq!(record.hash_key(), HashKey::new(u128::from_be_bytes(digest)));
    }
}

#[test]
fn explicit_hash_keys_at_the_ends_of_the_ring_are_kept_and_in_their_shards() {
    let middle = HashKey::new(1 << 127);
    let ends = [HashKey::MIN, HashKey::new((1 << 127) - 1), middle, HashKey::MAX];
    let records: Vec<_> = ends.iter().map(|end| record("k", Some(*end), end.to_string().as_bytes())).collect();
    let payload = aggregate(&records);
    let (came, _) = unpacked(page([payload.as_slice()]));
    let keys: Vec<_> = came.iter().map(|(_, _, _, hash_key, _)| hash_key.clone().unwrap()).collect();
    assert_eq!(keys, ends.map(|end| end.to_string()));
    let lower = HashKeyRange { start: HashKey::MIN, end: HashKey::new((1 << 127) - 1) };
    let upper = HashKeyRange { start: middle, end: HashKey::MAX };
    for (range, inside) in [(lower, &ends[..2]), (upper, &ends[2..])] {
        let mut unpacker = Unpacker::new(None, range, OutOfRange::Drop);
        unpacker.push(page([payload.as_slice()]));
        let mut builder = BatchBuilder::default();
        let met = unpacker.fill(&mut builder, &LIMITS);
        let kept: Vec<_> = builder
            .build()
            .iter()
            .map(|record| record.explicit_hash_key.unwrap().parse::<HashKey>().unwrap())
            .collect();
        assert_eq!((kept.as_slice(), met.out_of_range), (inside, 2));
    }
}

#[test]
fn a_page_of_the_most_records_and_pages_of_the_most_bytes_come_whole() {
    let numbers: Vec<String> = (0..10_000).map(|number| number.to_string()).collect();
    let (came, _) = unpacked(page(numbers.iter().map(String::as_bytes)));
    assert!(came.iter().map(|(_, _, _, _, data)| data.as_slice()).eq(numbers.iter().map(String::as_bytes)));

    // One record of the largest size that a stream can be set to, ten of the default's, and empty ones around them.
    let pages = [vec![10 * MIB - 3], vec![MIB - 3; 10], vec![0; 10_000], vec![0, 10 * MIB - 3, 0]];
    for sizes in pages {
        let payloads: Vec<_> = sizes.iter().enumerate().map(|(index, size)| vec![index as u8; *size]).collect();
        let mut came = Vec::new();
        unpack(vec![page(payloads.iter().map(Vec::as_slice))], &LIMITS, |(_, _, _, _, data)| came.push(data));
        assert!(came == payloads, "{sizes:?}");
    }
}

#[test]
fn sequence_numbers_of_hundreds_of_digits_are_kept_in_order() {
    let numbers: Vec<String> = [1, 38, 39, 40, 56, 129, 300].map(|digits| "7".repeat(digits)).into();
    let mut builder = PageBuilder::default();
    for number in &numbers {
        builder.push(number, "k", number.as_bytes(), 0).unwrap();
    }
    let page = builder.build();
    assert_eq!(page.last_sequence_number().unwrap().as_str(), numbers.last().unwrap());
    let (came, _) = unpacked(page.clone());
    assert!(came.iter().map(|(number, _, _, _, _)| number).eq(&numbers));
    for done in 0..numbers.len() {
        let after = Position::new(SequenceNumber::parse(&numbers[done]).unwrap(), 0);
        let mut unpacker = Unpacker::new(Some(after), HashKeyRange::ALL, OutOfRange::Deliver);
        unpacker.push(page.clone());
        let mut rest = BatchBuilder::default();
        unpacker.fill(&mut rest, &LIMITS);
        let rest: Vec<_> = rest.build().iter().map(|record| record.sequence_number.to_owned()).collect();
        assert_eq!(rest, numbers[done + 1..]);
    }
}

proptest! {
    /// Whatever the payloads are, one that is no aggregate comes out as it went in, and the others whole.
    #[test]
    fn no_payload_is_lost(payloads in prop::collection::vec(any_payload(), 0..20)) {
        let mut expected = Vec::new();
        for (payload, number) in payloads.iter().zip(1..) {
            match shardmill_record::aggregate::decode(payload) {
                Ok(aggregate) => expected.extend(aggregate.records(payload).enumerate().map(|(sub, record)| {
                    (u64::to_string(&number), sub as u64, record.data.to_vec())
                })),
                Err(_) => expected.push((u64::to_string(&number), 0, payload.clone())),
            }
        }
        let (came, _) = unpacked(page(payloads.iter().map(Vec::as_slice)));
        let came: Vec<_> = came.into_iter().map(|(number, sub, _, _, data)| (number, sub, data)).collect();
        prop_assert_eq!(came, expected);
    }
}

fn any_payload() -> impl Strategy<Value = Vec<u8>> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..40);
    let record = ("\\PC{1,8}", bytes()).prop_map(|(key, data)| record(&key, None, &data));
    let whole = prop::collection::vec(record, 1..6).prop_map(|records| aggregate(&records));
    prop_oneof![
        2 => bytes(),
        2 => whole.clone(),
        2 => (whole, any::<prop::sample::Index>(), any::<u8>()).prop_map(|(mut payload, at, byte)| {
            let at = at.index(payload.len());
            payload[at] = byte;
            payload
        }),
        2 => bytes().prop_map(|message| seal(&message)),
    ]
}
