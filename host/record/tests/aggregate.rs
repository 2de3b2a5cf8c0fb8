//! The KPL's aggregates: the bytes that other implementations write, and what no input may do to the reader.

use md5::{Digest, Md5};
use proptest::prelude::*;
use shardmill_record::aggregate::{Aggregator, NotAnAggregate, decode, is_framed};
use shardmill_record::{HashKey, UserRecord};

/// What the `aws-kinesis-agg` packages of PyPI and npm both write for [`golden_records`].
const GOLDEN: &str = "f3899ac20a03706b310a03706b32120531323334351a0908001a0568656c6c6f1a0908001a05776f726c64\
                      1a0b080110001a0574686972643ac00630e65b77af8195ccbb30d3d74c";

fn golden() -> Vec<u8> {
    (0..GOLDEN.len()).step_by(2).map(|at| u8::from_str_radix(&GOLDEN[at..at + 2], 16).unwrap()).collect()
}

fn record(partition_key: &str, explicit_hash_key: Option<u128>, data: &[u8]) -> UserRecord {
    UserRecord {
        partition_key: partition_key.to_owned(),
        explicit_hash_key: explicit_hash_key.map(HashKey::new),
        data: data.to_vec().into(),
    }
}

fn golden_records() -> Vec<UserRecord> {
    vec![record("pk1", None, b"hello"), record("pk1", None, b"world"), record("pk2", Some(12345), b"third")]
}

fn write(records: &[UserRecord]) -> (Vec<u8>, HashKey) {
    let mut aggregator = Aggregator::default();
    for record in records {
        aggregator.push(record);
    }
    let (payload, hash_key) = aggregator.finish().unwrap();
    (payload.to_vec(), hash_key)
}

fn read(payload: &[u8]) -> Result<Vec<UserRecord>, NotAnAggregate> {
    let aggregate = decode(payload)?;
    let records: Vec<_> = aggregate
        .records(payload)
        .map(|sub| {
            assert!(sub.partition_key_index < aggregate.partition_key_count());
            record(sub.partition_key, sub.explicit_hash_key.map(HashKey::get), sub.data)
        })
        .collect();
    assert_eq!(records.len(), aggregate.len());
    assert_eq!(records.is_empty(), aggregate.is_empty());
    Ok(records)
}

/// A message in a frame that fits it.
fn seal(message: &[u8]) -> Vec<u8> {
    [&[0xF3, 0x89, 0x9A, 0xC2], message, &Md5::digest(message)[..]].concat()
}

fn any_record() -> impl Strategy<Value = UserRecord> {
    let key = prop_oneof![4 => "[a-c]", 2 => "\\PC{1,40}", 1 => "x{120,256}"];
    let hash_key = prop_oneof![3 => Just(None), 1 => (0..3u128).prop_map(Some), 1 => any::<u128>().prop_map(Some)];
    let data =
        prop_oneof![4 => prop::collection::vec(any::<u8>(), 0..40), 1 => prop::collection::vec(any::<u8>(), 120..300)];
    (key, hash_key, data).prop_map(|(key, hash_key, data)| record(&key, hash_key, &data))
}

#[test]
fn other_implementations_aggregates_are_read() {
    assert_eq!(golden().len(), 72);
    assert_eq!(read(&golden()).unwrap(), golden_records());
}

#[test]
fn aggregates_are_written_as_other_implementations_write_them() {
    let (payload, hash_key) = write(&golden_records());
    assert_eq!(payload, golden());
    assert_eq!(hash_key, HashKey::of_partition_key("pk1"));
}

/// What both packages write for more records, see `golden`: some keys again and again, keys of several bytes a
/// character, two hundred keys, explicit hash keys of which some are shared, payloads of 0 to 96 bytes.
fn many_records() -> Vec<UserRecord> {
    let of = |number: u32| {
        let key = if number.is_multiple_of(10) {
            format!("ключ-{}-😀", number % 3)
        } else {
            format!("key-{}", number % 150)
        };
        let hash_key = number.is_multiple_of(5).then(|| (1 << 64) + u128::from(number % 40));
        let data: Vec<u8> = (0..number % 97).map(|at| (number * 31 + at) as u8).collect();
        record(&key, hash_key, &data)
    };
    (0..400).map(of).collect()
}

/// And for the longest keys, the highest hash key, and lengths of three bytes.
fn wide_records() -> Vec<UserRecord> {
    vec![
        record(&"k".repeat(256), Some(u128::MAX), &[0; 17_000]),
        record(&"ü".repeat(256), Some(1 << 127), &[0xFF; 200]),
        record(&"k".repeat(256), None, &[0xF3, 0x89, 0x9A, 0xC2]),
    ]
}

#[test]
fn golden_files_of_other_implementations_are_read_and_written_byte_for_byte() {
    let many = include_bytes!("golden/many.bin");
    let wide = include_bytes!("golden/wide.bin");
    for (golden, records) in [(&many[..], many_records()), (&wide[..], wide_records())] {
        assert_eq!(read(golden).unwrap(), records);
        let (payload, hash_key) = write(&records);
        assert!(payload == golden, "the bytes are the same");
        assert_eq!(hash_key, records[0].hash_key());
    }
}

#[test]
fn an_aggregate_carries_the_explicit_hash_key_of_its_first_record() {
    let (_, hash_key) = write(&[record("a", Some(7), b""), record("b", Some(9), b"")]);
    assert_eq!(hash_key, HashKey::new(7));
    assert!(Aggregator::default().finish().is_none());
}

#[test]
fn a_message_may_be_empty_have_its_tables_last_and_hold_fields_of_later_versions() {
    assert_eq!(read(&seal(b"")).unwrap(), []);
    let tables_last = b"\x1A\x07\x08\x00\x10\x00\x1A\x01d\x0A\x01k\x12\x019";
    assert_eq!(read(&seal(tables_last)).unwrap(), [record("k", Some(9), b"d")]);
    // A tag in the record, and of the message field 15 in each wire type that there is.
    let unknown = b"\x0A\x01k\x78\x05\x79\x01\x02\x03\x04\x05\x06\x07\x08\x7A\x01z\x7D\x01\x02\x03\x04\
                    \x1A\x0A\x08\x00\x1A\x01d\x22\x03\x0A\x01t";
    assert_eq!(read(&seal(unknown)).unwrap(), [record("k", None, b"d")]);
}

#[test]
fn an_explicit_hash_key_that_is_none_counts_as_absent() {
    assert_eq!(read(&seal(b"\x0A\x01k\x12\x01x\x1A\x07\x08\x00\x10\x00\x1A\x01d")).unwrap(), [record("k", None, b"d")]);
}

#[test]
fn a_sealed_message_that_breaks_the_format_is_refused_whole() {
    let good = b"\x0A\x01k\x1A\x05\x08\x00\x1A\x01d";
    assert_eq!(read(&seal(good)).unwrap().len(), 1);
    let bad: &[(&str, &[u8])] = &[
        ("a partition key's index past the table", b"\x1A\x05\x08\x01\x1A\x01d"),
        ("an explicit hash key's index past the table", b"\x1A\x07\x08\x00\x10\x00\x1A\x01d"),
        ("an index of 64 bits", b"\x1A\x0E\x08\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01\x1A\x01d"),
        ("the index 2^32 - 1", b"\x1A\x0B\x08\x00\x10\xFF\xFF\xFF\xFF\x0F\x1A\x01d"),
        ("no partition key", b"\x1A\x03\x1A\x01d"),
        ("no data", b"\x1A\x02\x08\x00"),
        ("data longer than its record", b"\x1A\x05\x08\x00\x1A\x02d"),
        ("a record longer than the message", b"\x1A\x06\x08\x00\x1A\x01d"),
        ("a length of 64 bits", b"\x1A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01"),
        ("a number of 11 bytes", b"\x78\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01"),
        ("a key that is not UTF-8", b"\x0A\x01\xFF"),
        ("a group", b"\x7B"),
        ("field number 0", b"\x00\x00"),
        ("a number that breaks off", b"\x78\x80"),
    ];
    for (what, message) in bad {
        let payload = seal(&[&good[..], message].concat());
        assert!(matches!(decode(&payload), Err(NotAnAggregate::Malformed(_))), "{what}");
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_back_and_its_size_was_known(records in prop::collection::vec(any_record(), 1..30)) {
        let mut aggregator = Aggregator::default();
        for record in &records {
            let expected = aggregator.size_with(record);
            let before = (aggregator.len(), aggregator.size());
            prop_assert!(!aggregator.push_within(record, expected - 1));
            prop_assert_eq!((aggregator.len(), aggregator.size()), before, "what does not fit leaves no trace");
            prop_assert!(aggregator.push_within(record, expected));
            prop_assert_eq!(aggregator.size(), expected);
        }
        prop_assert_eq!(aggregator.len(), records.len());
        let size = aggregator.size();
        let (payload, hash_key) = aggregator.finish().unwrap();
        prop_assert_eq!(payload.len(), size);
        prop_assert_eq!(hash_key, records[0].hash_key());
        prop_assert_eq!(read(&payload).unwrap(), records);
    }

    #[test]
    fn an_aggregate_that_was_cut_or_changed_is_no_aggregate(
        records in prop::collection::vec(any_record(), 1..5),
        at: prop::sample::Index,
        change in 1u8..,
    ) {
        let (payload, _) = write(&records);
        let at = at.index(payload.len());
        prop_assert!(decode(&payload[..at]).is_err());
        let mut changed = payload;
        changed[at] ^= change;
        prop_assert!(decode(&changed).is_err());
        prop_assert_eq!(is_framed(&changed), at >= 4);
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&bytes);
        let _ = read(&[&[0xF3, 0x89, 0x9A, 0xC2], &bytes[..]].concat());
    }

    /// The checksum keeps accidents out, not somebody who computes it.
    #[test]
    fn no_sealed_message_makes_the_reader_panic(
        records in prop::collection::vec(any_record(), 1..4),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        noise in prop::collection::vec(prop_oneof![Just(0x0Au8), Just(0x1A), Just(0x08), Just(0x12), 0u8..8, any::<u8>()], 0..30),
    ) {
        let (payload, _) = write(&records);
        let mut message = payload[4..payload.len() - 16].to_vec();
        for (at, value) in changes {
            let at = at.index(message.len());
            message[at] = value;
        }
        let _ = read(&seal(&message));
        let _ = read(&seal(&noise));
        message.extend(noise);
        let _ = read(&seal(&message));
    }
}
