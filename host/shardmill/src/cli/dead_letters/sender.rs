//! Sends records of dead letters to streams, in order and no faster than asked, and notes what has been sent.

use std::collections::{BTreeMap, BTreeSet};

use shardmill_cause::{code, with_causes};
use shardmill_producer::{BatchSender, Error, InvalidRecord, Ordering, Permit, Stopped};
use shardmill_record::UserRecord;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::places::{Book, Places};
use crate::cli::pace::Pace;
use crate::cli::{Failure, text};
use crate::dead_letters::identity::{Identity, LetterId};

/// What goes into one call of the producer, after which it is noted.
const CHUNK_RECORDS: usize = 500;
const CHUNK_BYTES: usize = 4 << 20;

/// A record that is to be sent, and the places of the letters that it is from.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) identity: Identity,
    pub(super) places: BTreeSet<usize>,
    pub(super) record: UserRecord,
}

/// Sends to any number of streams. One that does not take records keeps nothing from the others.
pub(super) struct Sender<'a> {
    places: &'a Places,
    pub(super) book: Book,
    ordering: Ordering,
    pace: Pace,
    stop: CancellationToken,
    targets: BTreeMap<String, Target>,
    /// Records that had been sent before, and are not yet noted in each place; each with where it would go.
    unnoted: Vec<(Identity, BTreeSet<usize>, String)>,
    /// Records that cannot be sent, and why.
    pub(super) failed: Vec<(LetterId, InvalidRecord)>,
}

struct Target {
    producer: BatchSender,
    chunk: Chunk,
    sent: u64,
    refused: Option<Refused>,
}

/// Records that go together.
#[derive(Debug, Default)]
struct Chunk {
    queued: Vec<Queued>,
    bytes: usize,
}

/// What a stream says that does not take records until somebody has mended something.
#[derive(Debug, Clone)]
pub(super) struct Refused {
    pub(super) reason: String,
    /// Whether this identity may not.
    is_denied: bool,
    /// How many records have not been sent to it.
    pub(super) left: u64,
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

// === impl Chunk ===

impl Chunk {
    fn push(&mut self, queued: Queued) {
        self.bytes += queued.record.partition_key.len() + queued.record.data.len();
        self.queued.push(queued);
    }

    /// Whether it is to go, where so many records may go at once.
    fn is_full(&self, at_once: usize) -> bool {
        self.queued.len() >= at_once || self.bytes >= CHUNK_BYTES
    }
}

// === impl Sender ===

impl<'a> Sender<'a> {
    pub(super) fn new(places: &'a Places, book: Book, ordering: Ordering, pace: Pace, stop: CancellationToken) -> Self {
        let (targets, unnoted, failed) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self { places, book, ordering, pace, stop, targets, unnoted, failed }
    }

    /// How many records each stream has taken.
    pub(super) fn sent(&self) -> impl Iterator<Item = (&str, u64)> {
        self.targets.iter().map(|(stream, target)| (stream.as_str(), target.sent))
    }

    /// The streams that do not take records, and why.
    pub(super) fn refused(&self) -> impl Iterator<Item = (&str, &Refused)> {
        self.targets.iter().filter_map(|(stream, target)| Some((stream.as_str(), target.refused.as_ref()?)))
    }

    /// Sends a record to a stream, when there are enough of them.
    pub(super) async fn add(&mut self, stream: &str, queued: Queued) -> Result<(), Ended> {
        if !self.targets.contains_key(stream) {
            // As they were: readers need not take aggregates apart that were none.
            let options =
                shardmill_producer::BatchOptions { ordering: self.ordering, aggregate: false, ..Default::default() };
            let producer = self.places.producer(stream, options).await?;
            let target = Target { producer, chunk: Chunk::default(), sent: 0, refused: None };
            self.targets.insert(stream.to_owned(), target);
        }
        let Some(target) = self.targets.get_mut(stream) else { return Ok(()) };
        if let Some(refused) = &mut target.refused {
            refused.left += 1;
            return Ok(());
        }
        target.chunk.push(queued);
        if target.chunk.is_full(self.pace.at_once(CHUNK_RECORDS)) {
            self.send(stream).await?;
        }
        Ok(())
    }

    /// Sees to it that a record that has been sent before is noted in each place with its letters.
    pub(super) fn sent_before(&mut self, identity: Identity, places: BTreeSet<usize>, to: &str) -> Result<(), Failure> {
        if self.book.lacks(&identity, &places) {
            self.unnoted.push((identity, places, to.to_owned()));
        }
        if self.unnoted.len() >= CHUNK_RECORDS { self.note_unnoted() } else { Ok(()) }
    }

    /// Sends what is left.
    pub(super) async fn finish(&mut self) -> Result<(), Ended> {
        let streams: Vec<String> = self.targets.keys().cloned().collect();
        for stream in streams {
            self.send(&stream).await?;
        }
        Ok(self.note_unnoted()?)
    }

    fn note_unnoted(&mut self) -> Result<(), Failure> {
        let mut by_stream: BTreeMap<&str, Vec<(&Identity, &BTreeSet<usize>)>> = BTreeMap::new();
        for (identity, places, to) in &self.unnoted {
            by_stream.entry(to).or_default().push((identity, places));
        }
        by_stream.into_iter().try_for_each(|(to, sent)| self.book.note(sent.into_iter(), to))?;
        self.unnoted.clear();
        Ok(())
    }

    async fn send(&mut self, stream: &str) -> Result<(), Ended> {
        let Some(target) = self.targets.get_mut(stream) else { return Ok(()) };
        let mut chunk = std::mem::take(&mut target.chunk).queued;
        let stop = self.stop.clone();
        let permit = Permit::new(move || if stop.is_cancelled() { Err(Stopped) } else { Ok(()) });
        while !chunk.is_empty() {
            let now = Instant::now();
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Err(Ended::Stopped),
                () = tokio::time::sleep_until(self.pace.wait(now).unwrap_or(now)) => {}
            }
            let began = Instant::now();
            let records = chunk.iter().map(|queued| queued.record.clone()).collect();
            let error = match target.producer.send(records, &permit).await {
                Ok(_sent) => None,
                // Nothing was sent; the others can be, and at once.
                Err(Error::Refused { index, reason }) => {
                    let refused = chunk.remove(index);
                    self.failed.push((refused.identity.id, reason));
                    continue;
                }
                Err(error) => Some(error),
            };
            self.pace.goes(chunk.len(), began);
            let is_sent =
                |index: usize| error.as_ref().is_none_or(|error| error.sent().get(index).is_some_and(Option::is_some));
            let sent: Vec<&Queued> =
                chunk.iter().enumerate().filter(|(index, _)| is_sent(*index)).map(|(_, queued)| queued).collect();
            target.sent += sent.len() as u64;
            self.book.note(sent.iter().map(|queued| (&queued.identity, &queued.places)), stream)?;
            match error {
                None => return Ok(()),
                Some(Error::Stopped { .. }) => return Err(Ended::Stopped),
                Some(error) => {
                    let (reason, left) = (text::line(&with_causes(&error)), (chunk.len() - sent.len()) as u64);
                    target.refused = Some(Refused { reason, is_denied: error.is_denied(), left });
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// Streams that did not take records, as a failure.
pub(super) fn failure<'r>(refused: impl Iterator<Item = (&'r str, &'r Refused)>) -> Option<Failure> {
    let (mut lines, mut all_denied) = (Vec::new(), true);
    for (stream, Refused { reason, is_denied, left }) in refused {
        lines.push(format!("{left} records were not sent to {}: {reason}", text::line(stream)));
        all_denied &= is_denied;
    }
    if lines.is_empty() {
        return None;
    }
    let message = lines.join("\n");
    let failure = if all_denied {
        Failure::not_permitted(message).code(code::producer::DENIED)
    } else {
        Failure::unavailable(message).code(code::producer::REFUSED)
    };
    Some(failure.help("records of other streams were sent; the same command comes back to these"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queued(bytes: usize) -> Queued {
        let record =
            UserRecord { partition_key: "key".to_owned(), explicit_hash_key: None, data: vec![0; bytes].into() };
        let identity = Identity::parse(&"0".repeat(20), &"0".repeat(32)).unwrap();
        Queued { identity, places: BTreeSet::new(), record }
    }

    #[test]
    fn a_chunk_goes_when_it_has_many_records_or_many_bytes() {
        let mut chunk = Chunk::default();
        for _ in 0..3 {
            chunk.push(queued(1 << 20));
        }
        assert!(!chunk.is_full(4) && chunk.is_full(3));
        chunk.push(queued((1 << 20) - 12));
        assert!(chunk.is_full(CHUNK_RECORDS), "with its keys it has 4 MiB");
    }

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_sent_takes_no_time_of_what_can() {
        let places = Places::of_region("eu-west-1");
        let now = Instant::now();
        let pace = Pace::new(Some(1), now);
        let mut sender = Sender::new(&places, Book::default(), Ordering::Key, pace, CancellationToken::new());
        for _ in 0..3 {
            sender.add("orders", queued(2 << 20)).await.unwrap();
        }
        assert_eq!((sender.failed.len(), sender.pace.wait(now)), (3, None));
    }

    #[test]
    fn streams_that_refuse_are_told_together_and_denials_alone_are_not_permitted() {
        let refused = |is_denied| Refused { reason: "because".to_owned(), is_denied, left: 2 };
        let (denied, gone) = (refused(true), refused(false));
        let told = |refused: &[(&'static str, &Refused)]| format!("{:?}", failure(refused.iter().copied()));
        assert_eq!(told(&[]), "None");
        assert!(told(&[("a", &denied), ("b", &denied)]).contains("NotPermitted"));
        let both = told(&[("a\u{1b}", &denied), ("b", &gone)]);
        assert!(both.contains("Unavailable") && !both.contains('\u{1b}'), "{both}");
    }
}
