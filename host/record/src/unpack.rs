use std::cmp::Ordering;
use std::collections::VecDeque;

use crate::aggregate::{self, Aggregate, NotAnAggregate, SubRecord};
use crate::batch::{HashKeyText, RawRecord};
use crate::{BatchBuilder, HashKey, HashKeyRange, Page, Position};

/// What becomes of a user record whose hash key is not in its shard's range, as happens after a split when a
/// producer's shard map was old. The KPL sends such a record again to the right shard; other writers do not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OutOfRange {
    /// Deliver and count it: at worst a KPL's record comes twice.
    #[default]
    Deliver,
    /// Leave it out and count it, as the KCL does (which leaves out its whole aggregate).
    Drop,
}

/// How much goes into one batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchLimits {
    /// Records; 0 counts as 1.
    pub records: usize,
    /// Bytes of texts and payloads, at most 1 GiB (more counts as that). A record that is larger than this comes alone.
    pub bytes: usize,
}

/// What one [`Unpacker::fill`] met.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unpacked {
    /// Whether a limit was reached, so that the batch is to be taken away; if not, the pages are used up.
    pub full: bool,
    /// Aggregates that were taken apart.
    pub aggregates: u64,
    /// Payloads that begin like an aggregate and are not one; delivered unchanged.
    pub broken_aggregates: u64,
    /// User records of aggregates outside the shard's hash key range, delivered or dropped. A record that came alone
    /// was put where the service wanted it.
    pub out_of_range: u64,
}

/// Takes pages apart into user records.
///
/// Works lazily, one batch at a time, because a hostile aggregate can name one long partition key a million times:
/// memory is bounded by the pages that came in, one aggregate's index and the batch that goes out.
#[derive(Debug)]
pub struct Unpacker {
    /// Leave out what is at or before this position: a shard is read again from the start of an aggregate.
    after: Option<Position>,
    range: HashKeyRange,
    out_of_range: OutOfRange,
    pages: VecDeque<Page>,
    /// The next Kinesis record of the first page.
    next: usize,
    /// What is in that Kinesis record, if a batch ended before all of it was taken: nothing is opened or counted
    /// twice.
    opened: Option<Content>,
}

/// What a Kinesis record holds.
#[derive(Debug)]
enum Content {
    /// One user record: the payload itself.
    Alone { broken_aggregate: bool },
    /// Any number of user records.
    Aggregate(Opened),
}

#[derive(Debug)]
struct Opened {
    aggregate: Aggregate,
    /// The next user record, as its sub-sequence number.
    next: usize,
    /// Whether each partition key is outside the range, as far as it has been asked: an MD5 costs more than the rest
    /// of a record. Empty if the range is the whole ring.
    key_outside: Vec<Option<bool>>,
}

/// What one `fill` works on.
struct Filling<'a> {
    batch: &'a mut BatchBuilder,
    limits: &'a BatchLimits,
    met: Unpacked,
    /// The last user record of the page that was taken or left out on purpose: Kinesis record, sub-sequence number.
    last: Option<(usize, u64)>,
}

// === impl BatchLimits ===

impl BatchLimits {
    /// A batch's offsets have 32 bits.
    const MAX_BYTES: usize = 1 << 30;

    fn are_reached(&self, batch: &BatchBuilder) -> bool {
        !batch.is_empty() && (batch.len() >= self.records || batch.bytes() >= self.max_bytes())
    }

    fn have_room(&self, batch: &BatchBuilder, size: usize) -> bool {
        batch.is_empty() || (batch.len() < self.records && batch.bytes() + size <= self.max_bytes())
    }

    fn max_bytes(&self) -> usize {
        self.bytes.min(Self::MAX_BYTES)
    }
}

// === impl Unpacker ===

impl Unpacker {
    /// For a shard with this range, going on after this position.
    pub fn new(after: Option<Position>, range: HashKeyRange, out_of_range: OutOfRange) -> Self {
        Self { after, range, out_of_range, pages: VecDeque::new(), next: 0, opened: None }
    }

    /// Adds the next page of the shard.
    pub fn push(&mut self, page: Page) {
        if !page.is_empty() {
            self.pages.push_back(page);
        }
    }

    /// Whether every record has been handed out.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// The bytes that pages keep in memory until their records are handed out.
    pub fn memory(&self) -> usize {
        self.pages.iter().map(Page::memory).sum()
    }

    /// Moves records into a batch until it is full or the pages are used up.
    pub fn fill(&mut self, batch: &mut BatchBuilder, limits: &BatchLimits) -> Unpacked {
        self.make_room(batch, limits);
        let mut through = None;
        let mut filling = Filling { batch, limits, met: Unpacked::default(), last: None };
        while let Some(page) = self.pages.front().cloned() {
            let used_up = self.fill_from(&page, &mut filling);
            if let Some((index, sub_sequence_number)) = filling.last.take() {
                through = Some((page.clone(), index, sub_sequence_number));
            }
            if !used_up {
                filling.met.full = true;
                break;
            }
            self.pages.pop_front();
            self.next = 0;
        }
        filling.met.full |= limits.are_reached(filling.batch);
        if let Some((page, index, sub_sequence_number)) = through {
            filling.batch.set_through(Position::new(page.sequence_number(index), sub_sequence_number));
        }
        filling.met
    }

    /// Room for what a new batch will most likely take of the first page. Aggregates may bring more, and it grows.
    fn make_room(&self, batch: &mut BatchBuilder, limits: &BatchLimits) {
        let Some(page) = self.pages.front().filter(|_| batch.is_empty()) else { return };
        let records = (page.len() - self.next).min(limits.records.max(1));
        let bytes = (page.content() / page.len() + 1).saturating_mul(records);
        batch.reserve(records, bytes.min(limits.max_bytes()));
    }

    /// Whether the page is used up.
    fn fill_from(&mut self, page: &Page, filling: &mut Filling<'_>) -> bool {
        while self.next < page.len() {
            if !self.is_wholly_done(page) {
                let mut content = match self.opened.take() {
                    Some(content) => content,
                    None => self.open(page.data(self.next), filling),
                };
                let used_up = match &mut content {
                    Content::Alone { broken_aggregate } => self.take_single(page, *broken_aggregate, filling),
                    Content::Aggregate(opened) => self.take_sub_records(page, opened, filling),
                };
                if !used_up {
                    self.opened = Some(content);
                    return false;
                }
            }
            self.next += 1;
        }
        true
    }

    fn is_wholly_done(&self, page: &Page) -> bool {
        self.after.as_ref().is_some_and(|after| self.compare(after, page) == Ordering::Greater)
    }

    /// The sub-sequence number up to which the Kinesis record's user records are done already.
    fn done_within(&self, page: &Page) -> Option<u64> {
        let after = self.after.as_ref()?;
        (self.compare(after, page) == Ordering::Equal).then_some(after.sub_sequence_number)
    }

    /// Where a position stands to the next Kinesis record.
    fn compare(&self, position: &Position, page: &Page) -> Ordering {
        position.sequence_number.cmp_digits(page.sequence_number_bytes(self.next))
    }

    fn open(&self, payload: &[u8], filling: &mut Filling<'_>) -> Content {
        match aggregate::decode(payload) {
            Ok(aggregate) => {
                filling.met.aggregates += 1;
                let keys = if self.range.is_all() { 0 } else { aggregate.partition_key_count() };
                Content::Aggregate(Opened { aggregate, next: 0, key_outside: vec![None; keys] })
            }
            Err(NotAnAggregate::NoMagic) => Content::Alone { broken_aggregate: false },
            Err(NotAnAggregate::Checksum | NotAnAggregate::Malformed(_)) => Content::Alone { broken_aggregate: true },
        }
    }

    /// Whether the Kinesis record is used up.
    fn take_sub_records(&self, page: &Page, opened: &mut Opened, filling: &mut Filling<'_>) -> bool {
        let payload = page.data(self.next);
        let done = self.done_within(page);
        if opened.aggregate.is_empty() && done.is_none() {
            filling.last = Some((self.next, 0));
        }
        while let Some(record) = opened.aggregate.record(payload, opened.next) {
            let sub_sequence_number = opened.next as u64;
            if done.is_none_or(|done| sub_sequence_number > done) {
                let outside = opened.is_outside(&self.range, &record);
                if !outside || self.out_of_range == OutOfRange::Deliver {
                    let hash_key = record.explicit_hash_key.map(HashKeyText::new);
                    let user_record = RawRecord {
                        sequence_number: page.sequence_number_bytes(self.next),
                        sub_sequence_number,
                        partition_key: record.partition_key.as_bytes(),
                        explicit_hash_key: hash_key.as_ref().map_or(&[][..], HashKeyText::as_bytes),
                        approximate_arrival: page.approximate_arrival(self.next),
                        data: record.data,
                    };
                    if !filling.push(&user_record) {
                        return false;
                    }
                }
                filling.met.out_of_range += u64::from(outside);
                filling.last = Some((self.next, sub_sequence_number));
            }
            opened.next += 1;
        }
        true
    }

    /// Whether the Kinesis record is used up.
    fn take_single(&self, page: &Page, broken_aggregate: bool, filling: &mut Filling<'_>) -> bool {
        if self.done_within(page).is_some() {
            return true;
        }
        let record = RawRecord {
            sequence_number: page.sequence_number_bytes(self.next),
            sub_sequence_number: 0,
            partition_key: page.partition_key_bytes(self.next),
            explicit_hash_key: &[],
            approximate_arrival: page.approximate_arrival(self.next),
            data: page.data(self.next),
        };
        if !filling.push(&record) {
            return false;
        }
        filling.met.broken_aggregates += u64::from(broken_aggregate);
        filling.last = Some((self.next, 0));
        true
    }
}

// === impl Opened ===

impl Opened {
    fn is_outside(&mut self, range: &HashKeyRange, record: &SubRecord<'_>) -> bool {
        let Some(known) = self.key_outside.get_mut(record.partition_key_index) else { return false };
        match record.explicit_hash_key {
            Some(key) => !range.contains(key),
            None => *known.get_or_insert_with(|| !range.contains(HashKey::of_partition_key(record.partition_key))),
        }
    }
}

// === impl Filling ===

impl Filling<'_> {
    /// Whether there was room.
    fn push(&mut self, record: &RawRecord<'_>) -> bool {
        let room = self.limits.have_room(self.batch, record.size());
        if room {
            self.batch.push_raw(record);
        }
        room
    }
}
