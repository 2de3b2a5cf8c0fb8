//! Sends records of dead letters to streams, in order and no faster than asked, and notes what has been sent.

use std::collections::BTreeMap;
use std::time::Duration;

use shardmill_cause::with_causes;
use shardmill_producer::{Error, InvalidRecord, Ordering, Permit, Producer, Stopped};
use shardmill_record::UserRecord;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::places::{Book, Places};
use crate::cli::Failure;
use crate::dead_letters::identity::{Identity, LetterId};

/// What goes into one call of the producer, after which it is noted.
const CHUNK_RECORDS: usize = 500;
const CHUNK_BYTES: usize = 4 << 20;

/// What the service answers when this identity may not.
const DENIED: [&str; 5] = [
    "AccessDeniedException",
    "AccessDenied",
    "KMSAccessDeniedException",
    "UnrecognizedClientException",
    "InvalidSignatureException",
];

/// A record that is to be sent, and the letter that it is from.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) identity: Identity,
    pub(super) place: usize,
    pub(super) record: UserRecord,
}

/// Sends to any number of streams.
pub(super) struct Sender<'a> {
    places: &'a Places,
    pub(super) book: Book,
    ordering: Ordering,
    pace: Pace,
    stop: CancellationToken,
    targets: BTreeMap<String, Target>,
    /// Records that cannot be sent, and why.
    pub(super) failed: Vec<(LetterId, InvalidRecord)>,
}

struct Target {
    producer: Producer,
    chunk: Vec<Queued>,
    bytes: usize,
    sent: u64,
}

/// When the next records may go.
#[derive(Debug)]
pub(super) struct Pace {
    /// `None` for no limit.
    per_second: Option<u32>,
    not_before: Instant,
}

/// Why sending ended early.
#[derive(Debug)]
pub(super) enum Ended {
    /// Somebody wants it.
    Stopped,
    /// Something is wrong.
    Failed(Failure),
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

// === impl Pace ===

impl Pace {
    pub(super) fn new(per_second: u32, now: Instant) -> Self {
        Self { per_second: (per_second > 0).then_some(per_second), not_before: now }
    }

    /// How many records may go at once.
    fn at_once(&self) -> usize {
        self.per_second.map_or(CHUNK_RECORDS, |rate| CHUNK_RECORDS.min(rate as usize))
    }

    /// Notes that so many go now.
    fn goes(&mut self, records: usize, now: Instant) {
        if let Some(rate) = self.per_second {
            self.not_before = self.not_before.max(now) + Duration::from_secs_f64(records as f64 / f64::from(rate));
        }
    }
}

// === impl Sender ===

impl<'a> Sender<'a> {
    pub(super) fn new(places: &'a Places, book: Book, ordering: Ordering, pace: Pace, stop: CancellationToken) -> Self {
        Self { places, book, ordering, pace, stop, targets: BTreeMap::new(), failed: Vec::new() }
    }

    /// How many records each stream has taken.
    pub(super) fn sent(&self) -> impl Iterator<Item = (&str, u64)> {
        self.targets.iter().map(|(stream, target)| (stream.as_str(), target.sent))
    }

    /// Sends a record to a stream, when there are enough of them.
    pub(super) async fn add(&mut self, stream: &str, queued: Queued) -> Result<(), Ended> {
        if !self.targets.contains_key(stream) {
            // As they were: readers need not take aggregates apart that were none.
            let options =
                shardmill_producer::Options { ordering: self.ordering, aggregate: false, ..Default::default() };
            let producer = self.places.producer(stream, options).await?;
            self.targets.insert(stream.to_owned(), Target { producer, chunk: Vec::new(), bytes: 0, sent: 0 });
        }
        let Some(target) = self.targets.get_mut(stream) else { return Ok(()) };
        target.bytes += queued.record.partition_key.len() + queued.record.data.len();
        target.chunk.push(queued);
        if target.chunk.len() >= self.pace.at_once() || target.bytes >= CHUNK_BYTES {
            self.send(stream).await?;
        }
        Ok(())
    }

    /// Sends what is left.
    pub(super) async fn finish(&mut self) -> Result<(), Ended> {
        let streams: Vec<String> = self.targets.keys().cloned().collect();
        for stream in streams {
            self.send(&stream).await?;
        }
        Ok(())
    }

    async fn send(&mut self, stream: &str) -> Result<(), Ended> {
        let Some(target) = self.targets.get_mut(stream) else { return Ok(()) };
        let mut chunk = std::mem::take(&mut target.chunk);
        target.bytes = 0;
        let stop = self.stop.clone();
        let permit = Permit::new(move || if stop.is_cancelled() { Err(Stopped) } else { Ok(()) });
        while !chunk.is_empty() {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Err(Ended::Stopped),
                () = tokio::time::sleep_until(self.pace.not_before) => {}
            }
            self.pace.goes(chunk.len(), Instant::now());
            let records = chunk.iter().map(|queued| queued.record.clone()).collect();
            match target.producer.send(records, &permit).await {
                Ok(_sent) => {
                    target.sent += chunk.len() as u64;
                    note(&mut self.book, &chunk, |_| true, stream)?;
                    return Ok(());
                }
                // Nothing was sent; the others can be.
                Err(Error::Refused { index, reason }) => {
                    let refused = chunk.remove(index);
                    self.failed.push((refused.identity.id, reason));
                }
                Err(error) => {
                    let is_sent = |index: usize| error.sent().get(index).is_some_and(Option::is_some);
                    target.sent += (0..chunk.len()).filter(|index| is_sent(*index)).count() as u64;
                    note(&mut self.book, &chunk, is_sent, stream)?;
                    return Err(ended(&error));
                }
            }
        }
        Ok(())
    }
}

/// Notes what has been sent of a chunk.
fn note(book: &mut Book, chunk: &[Queued], is_sent: impl Fn(usize) -> bool, to: &str) -> Result<(), Failure> {
    let mut by_place: BTreeMap<usize, Vec<Identity>> = BTreeMap::new();
    for (index, queued) in chunk.iter().enumerate() {
        if is_sent(index) {
            by_place.entry(queued.place).or_default().push(queued.identity);
        }
    }
    by_place.into_iter().try_for_each(|(place, sent)| book.add(place, &sent, to))
}

fn ended(error: &Error) -> Ended {
    let message = with_causes(error);
    Ended::Failed(match error {
        Error::Stopped { .. } => return Ended::Stopped,
        Error::Rejected { code, .. } if DENIED.contains(&code.as_str()) => Failure::not_permitted(message),
        Error::Rejected { .. } => Failure::unavailable(message),
        Error::Refused { .. } => Failure::running(message),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_pace_is_kept_also_after_a_pause() {
        let mut now = Instant::now();
        let mut pace = Pace::new(100, now);
        assert_eq!(pace.at_once(), 100);
        pace.goes(100, now);
        assert_eq!(pace.not_before - now, Duration::from_secs(1));
        pace.goes(50, now + Duration::from_secs(1));
        assert_eq!(pace.not_before - now, Duration::from_millis(1500));
        // What was not used in a pause is not made up for.
        now += Duration::from_secs(100);
        pace.goes(50, now);
        assert_eq!(pace.not_before - now, Duration::from_millis(500));
        assert_eq!(Pace::new(100_000, now).at_once(), CHUNK_RECORDS);
        let mut unlimited = Pace::new(0, now);
        unlimited.goes(1_000_000, now);
        assert_eq!((unlimited.not_before, unlimited.at_once()), (now, CHUNK_RECORDS));
    }
}
