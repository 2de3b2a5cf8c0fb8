//! The unpacker against a model that takes every Kinesis record apart at once.

use proptest::prelude::*;
use shardmill_record::aggregate::Aggregator;
use shardmill_record::{
    Batch, BatchBuilder, BatchLimits, HashKey, HashKeyRange, InvalidRecord, KinesisRecord, OutOfRange, Page,
    PageBuilder, Position, SequenceNumber, Span, Unpacked, Unpacker, UserRecord,
};

/// A Kinesis record as a producer wrote it.
#[derive(Debug, Clone)]
enum Written {
    Alone(String, Vec<u8>),
    Aggregate(Vec<UserRecord>),
    Broken(Vec<u8>),
}

/// A user record as it should come out.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Expected {
    position: Position,
    partition_key: String,
    explicit_hash_key: Option<String>,
    data: Vec<u8>,
    outside: bool,
}

const MAGIC: [u8; 4] = [0xF3, 0x89, 0x9A, 0xC2];
/// The MD5 of nothing: an aggregate without records.
const EMPTY: [u8; 20] = [
    0xF3, 0x89, 0x9A, 0xC2, 0xD4, 0x1D, 0x8C, 0xD9, 0x8F, 0x00, 0xB2, 0x04, 0xE9, 0x80, 0x09, 0x98, 0xEC, 0xF8, 0x42,
    0x7E,
];
const UNLIMITED: BatchLimits = BatchLimits { records: usize::MAX, bytes: usize::MAX };

fn sequence_number(index: usize) -> SequenceNumber {
    // Crosses a number of digits, where text order would be wrong.
    SequenceNumber::parse(&(95 + index).to_string()).unwrap()
}

// === impl Written ===

impl Written {
    fn payload(&self) -> (String, Vec<u8>) {
        match self {
            Self::Alone(key, data) => (key.clone(), data.clone()),
            Self::Broken(tail) => ("broken".to_owned(), [&MAGIC[..], &[0; 16], tail].concat()),
            Self::Aggregate(records) => {
                let mut aggregator = Aggregator::default();
                records.iter().for_each(|record| aggregator.push(record));
                ("a".to_owned(), aggregator.finish().map_or(EMPTY.to_vec(), |(payload, _)| payload.to_vec()))
            }
        }
    }

    fn expected(&self, index: usize, range: &HashKeyRange) -> Vec<Expected> {
        let alone = |(partition_key, data)| {
            let position = Position::new(sequence_number(index), 0);
            vec![Expected { position, partition_key, explicit_hash_key: None, data, outside: false }]
        };
        let Self::Aggregate(records) = self else { return alone(self.payload()) };
        let each = records.iter().enumerate().map(|(sub, record)| Expected {
            position: Position::new(sequence_number(index), sub as u64),
            partition_key: record.partition_key.clone(),
            explicit_hash_key: record.explicit_hash_key.map(|key| key.to_string()),
            data: record.data.to_vec(),
            outside: !range.contains(record.hash_key()),
        });
        each.collect()
    }

    fn last_position(&self, index: usize) -> Position {
        let sub = match self {
            Self::Aggregate(records) => records.len().saturating_sub(1) as u64,
            _ => 0,
        };
        Position::new(sequence_number(index), sub)
    }
}

fn any_user_record() -> impl Strategy<Value = UserRecord> {
    let hash_key = prop_oneof![3 => Just(None), 1 => any::<u128>().prop_map(|number| Some(HashKey::new(number)))];
    ("[a-e]{1,2}", hash_key, prop::collection::vec(any::<u8>(), 0..12)).prop_map(
        |(partition_key, explicit_hash_key, data)| UserRecord { partition_key, explicit_hash_key, data: data.into() },
    )
}

fn any_written() -> impl Strategy<Value = Written> {
    prop_oneof![
        3 => ("[a-e]", prop::collection::vec(any::<u8>(), 0..30)).prop_map(|(key, data)| Written::Alone(key, data)),
        4 => prop::collection::vec(any_user_record(), 0..8).prop_map(Written::Aggregate),
        1 => prop::collection::vec(any::<u8>(), 0..10).prop_map(Written::Broken),
    ]
}

fn any_range() -> impl Strategy<Value = HashKeyRange> {
    prop_oneof![
        1 => Just(HashKeyRange::ALL),
        3 => (any::<u128>(), any::<u128>())
            .prop_map(|(a, b)| HashKeyRange { start: HashKey::new(a.min(b)), end: HashKey::new(a.max(b)) }),
    ]
}

fn any_limits() -> impl Strategy<Value = BatchLimits> {
    (prop_oneof![0..6usize, Just(usize::MAX)], prop_oneof![0..120usize, Just(usize::MAX)])
        .prop_map(|(records, bytes)| BatchLimits { records, bytes })
}

/// Pages of the given sizes, over and over.
fn pages(written: &[Written], sizes: &[usize]) -> Vec<Page> {
    let mut sizes = sizes.iter().copied().cycle();
    let mut pages = Vec::new();
    let mut index = 0;
    while index < written.len() {
        let mut page = PageBuilder::default();
        for _ in 0..sizes.next().unwrap() {
            let Some(record) = written.get(index) else { break };
            let (key, data) = record.payload();
            page.push(sequence_number(index).as_str(), &key, &data, 1_000 + index as u64).unwrap();
            index += 1;
        }
        pages.push(page.build());
    }
    pages
}

fn content(batch: &Batch, range: &HashKeyRange) -> Vec<Expected> {
    let each = batch.iter().enumerate().map(|(index, record)| {
        let position = batch.position(index);
        assert_eq!(position.sequence_number.as_str(), record.sequence_number);
        let hash_key = match record.explicit_hash_key {
            Some(key) => key.parse().unwrap(),
            None => HashKey::of_partition_key(record.partition_key),
        };
        Expected {
            position,
            partition_key: record.partition_key.to_owned(),
            explicit_hash_key: record.explicit_hash_key.map(str::to_owned),
            data: record.data.to_vec(),
            outside: !range.contains(hash_key),
        }
    });
    each.collect()
}

fn check_columns(batch: &Batch) {
    assert_eq!(batch.lengths().len(), batch.len() * 4);
    assert_eq!(batch.sub_sequence_numbers().len(), batch.len());
    assert_eq!(batch.approximate_arrivals().len(), batch.len());
    let mut rest = batch.arena();
    for (record, lengths) in batch.iter().zip(batch.lengths().chunks(4)) {
        let hash_key = record.explicit_hash_key.unwrap_or("");
        let spans = [record.sequence_number, record.partition_key, hash_key].map(str::as_bytes);
        for (span, length) in spans.into_iter().chain([record.data]).zip(lengths) {
            let (head, tail) = rest.split_at(*length as usize);
            assert_eq!(head, span);
            rest = tail;
        }
    }
    assert!(rest.is_empty());
}

/// Takes everything out, pages coming in as the unpacker runs dry; the batches and the sum of what was met.
fn drain(unpacker: &mut Unpacker, pages: Vec<Page>, limits: &BatchLimits) -> (Vec<Batch>, Unpacked) {
    let (mut batches, mut sum) = (Vec::new(), Unpacked::default());
    let mut pages = pages.into_iter();
    let mut builder = BatchBuilder::default();
    loop {
        let met = unpacker.fill(&mut builder, limits);
        sum.aggregates += met.aggregates;
        sum.broken_aggregates += met.broken_aggregates;
        sum.out_of_range += met.out_of_range;
        if met.full {
            batches.push(std::mem::take(&mut builder).build());
            continue;
        }
        assert!(unpacker.is_empty(), "not full, so the pages are used up");
        match pages.next() {
            Some(page) => unpacker.push(page),
            None => break,
        }
    }
    assert_eq!(unpacker.memory(), 0);
    batches.push(builder.build());
    (batches, sum)
}

proptest! {
    #[test]
    fn every_record_comes_once_in_order_whatever_the_limits_and_the_pages(
        written in prop::collection::vec(any_written(), 0..20),
        sizes in prop::collection::vec(1..6usize, 1..4),
        limits in any_limits(),
        range in any_range(),
        drop: bool,
    ) {
        let out_of_range = if drop { OutOfRange::Drop } else { OutOfRange::Deliver };
        let all: Vec<_> = written.iter().enumerate().flat_map(|(index, record)| record.expected(index, &range)).collect();
        // A record that came alone is never looked at.
        let of_aggregate = |record: &&Expected| {
            let index = record.position.sequence_number.as_str().parse::<usize>().unwrap() - 95;
            matches!(written[index], Written::Aggregate(_))
        };
        let outside = all.iter().filter(of_aggregate).filter(|record| record.outside).count();
        let delivered: Vec<_> = all.iter().filter(|record| !(drop && record.outside)).cloned().collect();

        let mut unpacker = Unpacker::new(None, range, out_of_range);
        let (batches, met) = drain(&mut unpacker, pages(&written, &sizes), &limits);

        let mut got = Vec::new();
        for batch in &batches {
            check_columns(batch);
            prop_assert!(batch.len() <= limits.records.max(1));
            prop_assert!(batch.len() == 1 || batch.arena().len() <= limits.bytes);
            got.extend(content(batch, &range));
            if let Some(through) = batch.through() {
                prop_assert!(got.last().is_none_or(|last| last.position <= *through));
                prop_assert!(delivered.get(got.len()).is_none_or(|next| next.position > *through));
            } else {
                prop_assert!(batch.is_empty());
            }
        }
        for (got, expected) in got.iter().zip(&delivered) {
            prop_assert_eq!(
                (&got.position, &got.partition_key, &got.explicit_hash_key, &got.data),
                (&expected.position, &expected.partition_key, &expected.explicit_hash_key, &expected.data)
            );
        }
        prop_assert_eq!(got.len(), delivered.len());
        let last = written.len().checked_sub(1).map(|index| written[index].last_position(index));
        let through = batches.iter().filter_map(Batch::through).max().cloned();
        prop_assert_eq!(through, last);

        let count = |kind: fn(&&Written) -> bool| written.iter().filter(kind).count() as u64;
        prop_assert_eq!(met.aggregates, count(|record| matches!(record, Written::Aggregate(_))));
        prop_assert_eq!(met.broken_aggregates, count(|record| matches!(record, Written::Broken(_))));
        prop_assert_eq!(met.out_of_range, outside as u64);
    }

    #[test]
    fn going_on_after_any_position_gives_exactly_the_rest(
        written in prop::collection::vec(any_written(), 1..12),
        sizes in prop::collection::vec(1..6usize, 1..4),
        limits in any_limits(),
    ) {
        let range = HashKeyRange::ALL;
        let all: Vec<_> = written.iter().enumerate().flat_map(|(index, record)| record.expected(index, &range)).collect();
        let starts = (0..written.len()).flat_map(|index| (0..9).map(move |sub| Position::new(sequence_number(index), sub)));
        for after in starts {
            let mut unpacker = Unpacker::new(Some(after.clone()), range, OutOfRange::Deliver);
            let (batches, _) = drain(&mut unpacker, pages(&written, &sizes), &limits);
            let got: Vec<_> = batches.iter().flat_map(|batch| content(batch, &range)).collect();
            let rest: Vec<_> = all.iter().filter(|record| record.position > after).cloned().collect();
            prop_assert_eq!(got, rest);
            prop_assert!(batches.iter().filter_map(Batch::through).all(|through| *through > after));
        }
    }

    #[test]
    fn a_selection_is_a_batch_of_its_own(
        written in prop::collection::vec(any_written(), 1..12),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
    ) {
        let mut unpacker = Unpacker::new(None, HashKeyRange::ALL, OutOfRange::Deliver);
        let (batches, _) = drain(&mut unpacker, pages(&written, &[100]), &UNLIMITED);
        let batch = &batches[0];
        prop_assume!(!batch.is_empty());
        let picks: Vec<_> = picks.iter().map(|pick| pick.index(batch.len())).collect();
        let selected = batch.select(picks.iter().copied());
        check_columns(&selected);
        prop_assert_eq!(selected.len(), picks.len());
        prop_assert_eq!(selected.through(), batch.through());
        for (index, pick) in picks.iter().enumerate() {
            prop_assert_eq!(selected.record(index), batch.record(*pick));
            prop_assert_eq!(selected.position(index), batch.position(*pick));
        }
    }
}

fn aggregate(count: usize, record: impl Fn(usize) -> UserRecord) -> Written {
    Written::Aggregate((0..count).map(record).collect())
}

#[test]
fn an_aggregate_of_ten_thousand_records_comes_in_batches() {
    let written = [aggregate(10_000, |index| UserRecord {
        partition_key: format!("key-{}", index % 100),
        explicit_hash_key: None,
        data: index.to_string().into_bytes().into(),
    })];
    let limits = BatchLimits { records: 300, bytes: usize::MAX };
    let mut unpacker = Unpacker::new(None, HashKeyRange::ALL, OutOfRange::Deliver);
    let (batches, met) = drain(&mut unpacker, pages(&written, &[1]), &limits);
    assert_eq!(met.aggregates, 1);
    let data: Vec<_> = batches.iter().flat_map(|batch| batch.iter().map(|record| record.data.to_vec())).collect();
    assert_eq!(data, (0..10_000).map(|index| index.to_string().into_bytes()).collect::<Vec<_>>());
    assert_eq!(batches[0].through(), Some(&Position::new(sequence_number(0), 299)));
}

#[test]
fn one_long_key_named_many_times_keeps_every_batch_within_its_limit() {
    let written = [aggregate(5_000, |_| UserRecord {
        partition_key: "k".repeat(100_000),
        explicit_hash_key: None,
        data: Vec::new().into(),
    })];
    assert!(written[0].payload().1.len() < 300_000, "500 MB of keys in 300 kB");
    let limits = BatchLimits { records: 10_000, bytes: 1_000_000 };
    let mut unpacker = Unpacker::new(None, HashKeyRange::ALL, OutOfRange::Deliver);
    pages(&written, &[1]).into_iter().for_each(|page| unpacker.push(page));
    let mut count = 0;
    for _ in 0..50 {
        let mut builder = BatchBuilder::default();
        assert!(unpacker.fill(&mut builder, &limits).full);
        assert!(builder.bytes() <= limits.bytes);
        count += builder.len();
    }
    assert_eq!(count, 50 * 9);
}

fn span(start: u32, length: u32) -> Span {
    Span { start, length }
}

#[test]
fn a_record_is_looked_at_when_it_is_made() {
    let check = |buffer: &[u8], key| KinesisRecord::check(buffer, span(0, 3), key, span(3, 0), 0);
    // The service may know a number by its text alone.
    assert_eq!(check(b"007key", span(3, 3)).unwrap().sequence_number(), span(0, 3));
    assert_eq!(check(b"a07key", span(3, 3)).unwrap_err().to_string().split('`').nth(1), Some("a07"));
    assert!(check(b"\xff07key", span(3, 3)).unwrap_err().to_string().contains("not a sequence number"));
    let not_utf8 = check(b"007\xff", span(3, 1)).unwrap_err();
    assert_eq!(not_utf8, InvalidRecord::PartitionKey { sequence_number: "007".into() });
}

#[test]
#[should_panic(expected = "the data lie within the buffer")]
fn a_record_whose_data_lie_outside_the_buffer_is_not_made() {
    let _never = KinesisRecord::check(b"1k", span(0, 1), span(1, 1), span(1, u32::MAX), 0);
}

#[test]
#[should_panic(expected = "a record lies within the page's buffer")]
fn a_page_refuses_a_record_of_a_longer_buffer() {
    let record = KinesisRecord::check(b"1key", span(0, 1), span(1, 3), span(1, 0), 0).unwrap();
    Page::from_parts(b"1ke".as_slice().into(), vec![record]);
}

#[test]
fn a_page_counts_the_whole_buffer_that_it_keeps() {
    let mut buffer = bytes::BytesMut::with_capacity(100_000);
    buffer.extend_from_slice(b"1key");
    let record = KinesisRecord::check(&buffer, span(0, 1), span(1, 3), span(4, 0), 0).unwrap();
    let page = Page::from_parts(buffer, vec![record]);
    assert_eq!(page.memory(), 100_000 + size_of::<KinesisRecord>());
}

#[test]
fn a_page_made_of_parts_is_the_page_made_of_records() {
    let mut builder = PageBuilder::default();
    builder.push("0042", "schlüssel", b"data", 7).unwrap();
    assert!(builder.push("x", "key", b"data", 7).is_err(), "and it stays as it was");
    let built = builder.build();
    let buffer = "data0042schlüssel".as_bytes();
    let record = KinesisRecord::check(buffer, span(4, 4), span(8, 10), span(0, 4), 7).unwrap();
    let parts = Page::from_parts(buffer.into(), vec![record]);
    for page in [built, parts] {
        assert_eq!(page.len(), 1);
        assert_eq!((page.sequence_number_digits(0), page.partition_key(0)), ("0042", "schlüssel"));
        assert_eq!((page.data(0), page.approximate_arrival(0)), (&b"data"[..], 7));
        let last = page.last_sequence_number().unwrap();
        assert_eq!((last.as_str(), &last), ("0042", &SequenceNumber::parse("42").unwrap()));
    }
    assert_eq!(Page::default().last_sequence_number(), None);
}
