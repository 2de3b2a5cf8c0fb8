//! Sends what is read and waits for what becomes of it.

use std::collections::VecDeque;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use futures::stream::{FuturesOrdered, StreamExt};
use indicatif::ProgressBar;
use shardmill_producer::{Acknowledged, Pending, Producer, PutError};
use shardmill_spool::Spool;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::read::{self, Reading};
use super::results::Results;
use super::source::{Item, Place};
use super::tally::{Fate, Tally};
use crate::cli::output;
use crate::cli::pace::Pace;

/// Of so many records it may not be known yet what becomes of them: results are in the order of the input, and one that is
/// late keeps others waiting.
const UNSETTLED: usize = 100_000;
/// How long what has been read may take when somebody wants an end.
const CLOSE_WITHIN: Duration = Duration::from_secs(10);
/// How long it waits for the spool to get emptier.
const DRAIN_WITHIN: Duration = Duration::from_secs(10);

/// What is on its way from an input to a stream.
pub(super) struct Sending<'a> {
    pub(super) producer: Producer,
    pub(super) input: Reading,
    pub(super) pace: Pace,
    pub(super) stop: &'a CancellationToken,
    pub(super) tally: Tally,
    pub(super) results: Results,
    pub(super) bar: &'a ProgressBar,
    /// Read, and not put yet.
    pub(super) read: VecDeque<Item>,
    /// Where records wait that the stream does not take.
    pub(super) spool: Option<Spool>,
    /// In the order of the input.
    pub(super) unsettled: FuturesOrdered<BoxFuture<'static, (Place, Fate)>>,
}

/// Why sending came to its end.
#[derive(Debug)]
pub(super) enum Ended {
    /// Everything that there was has been sent, or cannot be.
    Whole,
    /// Somebody wants it.
    Interrupted,
    /// The stream takes nothing.
    Refused,
    /// Results cannot be written any more.
    Untold,
    /// The input cannot be read on.
    Input(read::Error),
}

// === impl Ended ===

impl Ended {
    /// For machines.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Interrupted => "interrupted",
            Self::Refused => "refused",
            Self::Untold => "results",
            Self::Input(_) => "input",
        }
    }
}

/// A record that waits for room.
type Putting = (Place, BoxFuture<'static, Result<Pending, PutError>>);

// === impl Sending ===

impl Sending<'_> {
    /// Sends everything. Afterwards what becomes of all that was read is known.
    pub(super) async fn run(&mut self) -> Ended {
        let mut putting = None;
        let ended = self.send(&mut putting).await;
        match &ended {
            // Interrupted or not, there is nothing more to send.
            Ended::Whole | Ended::Input(_) => {
                self.settle_all().await;
                self.drain().await;
            }
            Ended::Interrupted | Ended::Refused | Ended::Untold => self.leave(putting).await,
        }
        if let Ended::Input(error) = &ended {
            self.tally.leave(error.place());
        }
        self.close().await;
        ended
    }

    /// What has been read and is not put is not sent any more. A file could be read again, but not a pipe, so that each of
    /// these records is told.
    async fn leave(&mut self, putting: Option<Putting>) {
        if let Some((place, _given_up)) = putting {
            self.settles(place, Fate::Unsent);
        }
        let mut unsent = std::mem::take(&mut self.read);
        unsent.extend(self.input.stop().await);
        for Item { place, record, .. } in unsent {
            self.settles(place, record.map_or_else(Fate::Bad, |_| Fate::Unsent));
        }
    }

    async fn send(&mut self, putting: &mut Option<Putting>) -> Ended {
        loop {
            if self.tally.fatal.is_some() {
                return Ended::Refused;
            }
            if self.results.have_failed() {
                return Ended::Untold;
            }
            let wait = self.put_what_may_go(putting);
            let is_next_read = self.read.is_empty() && putting.is_none();
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ended::Interrupted,
                (place, accepted) = has_put(putting), if putting.is_some() => {
                    *putting = None;
                    self.accepted(place, accepted);
                }
                Some((place, fate)) = self.unsettled.next(), if !self.unsettled.is_empty() => self.settle(place, fate),
                () = sleep_until(wait.unwrap_or_else(Instant::now)), if wait.is_some() => {}
                items = self.input.next(), if is_next_read => match items {
                    Some(Ok(items)) => {
                        if let Some(last) = items.last() {
                            self.bar.set_position(last.read);
                        }
                        self.read.extend(items);
                    }
                    Some(Err(error)) => return Ended::Input(error),
                    None => return Ended::Whole,
                },
            }
        }
    }

    /// Puts records until one has to wait for room, or for its time, which is told, or none is left of what was read at once.
    fn put_what_may_go(&mut self, putting: &mut Option<Putting>) -> Option<Instant> {
        while putting.is_none() && self.unsettled.len() < UNSETTLED {
            let Some(item) = self.read.pop_front() else { break };
            if let Some(wait) = self.pace.wait(Instant::now()) {
                self.read.push_front(item);
                return Some(wait);
            }
            *putting = self.put(item);
        }
        None
    }

    /// Puts a record; if there is no room for it, it waits.
    fn put(&mut self, item: Item) -> Option<Putting> {
        let place = item.place;
        let record = match item.record {
            Ok(record) => record,
            Err(bad) => {
                self.settles(place, Fate::Bad(bad));
                return None;
            }
        };
        self.pace.goes(1, Instant::now());
        match self.producer.try_put_with_result(record) {
            Err(PutError::Full(record)) => {
                let producer = self.producer.clone();
                Some((place, async move { producer.put_with_result(record).await }.boxed()))
            }
            accepted => {
                self.accepted(place, accepted);
                None
            }
        }
    }

    fn accepted(&mut self, place: Place, accepted: Result<Pending, PutError>) {
        match accepted {
            Ok(pending) => self.unsettled.push_back(
                async move {
                    let fate = match pending.await {
                        Ok(Acknowledged::Stored(receipt)) => Fate::Stored(receipt),
                        Ok(spooled @ Acknowledged::Spooled { .. }) => Fate::Spooled(spooled),
                        Err(failed) => Fate::Failed(Box::new(failed)),
                    };
                    (place, fate)
                }
                .boxed(),
            ),
            Err(PutError::Invalid { reason, .. }) => self.settles(place, Fate::Invalid(reason)),
            Err(PutError::Full(_) | PutError::Closed(_)) => self.settles(place, Fate::Unsent),
        }
    }

    fn settles(&mut self, place: Place, fate: Fate) {
        self.unsettled.push_back(std::future::ready((place, fate)).boxed());
    }

    /// Notes what has become of a record, and of those behind it where that is known as well.
    fn settle(&mut self, place: Place, fate: Fate) {
        let mut next = Some((place, fate));
        while let Some((place, fate)) = next {
            if let Some(told) = self.tally.take(place, &fate) {
                self.bar.suspend(|| output::say(told));
            }
            if self.results.are_wanted() {
                let line = self.tally.result(place, &fate);
                self.results.add(&line);
            }
            next = self.unsettled.next().now_or_never().flatten();
        }
        self.bar.set_message(self.tally.stored.to_string());
        // A result does not wait for the next one of a slow input.
        self.results.flush();
    }

    /// Waits until it is known what has become of everything that was put, or somebody wants an end.
    async fn settle_all(&mut self) {
        while !self.unsettled.is_empty() {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                settled = self.unsettled.next() => {
                    let Some((place, fate)) = settled else { break };
                    self.settle(place, fate);
                }
            }
        }
    }

    /// Lets the spool be emptied, for as long as it gets emptier and nobody wants an end.
    async fn drain(&self) {
        let producer = &self.producer;
        let mut depth = u64::MAX;
        loop {
            let before = std::mem::replace(&mut depth, self.spooled());
            if depth == 0 || depth >= before {
                return;
            }
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = producer.drained() => return,
                () = sleep(DRAIN_WITHIN) => {}
            }
        }
    }

    /// Records of the stream in the spool.
    pub(super) fn spooled(&self) -> u64 {
        let depth = self.spool.as_ref().and_then(|spool| spool.depth().streams.get(self.producer.stream()).copied());
        depth.unwrap_or_default().records
    }

    /// Lets what was put be stored or given up, within a bound.
    async fn close(&mut self) {
        let producer = self.producer.clone();
        let settling = async {
            while let Some((place, fate)) = self.unsettled.next().await {
                self.settle(place, fate);
            }
        };
        // What is left is told record by record.
        let (_left, ()) = tokio::join!(producer.close(CLOSE_WITHIN), settling);
        self.results.flush();
    }
}

/// There is something that waits.
async fn has_put(putting: &mut Option<Putting>) -> (Place, Result<Pending, PutError>) {
    match putting {
        Some((place, accepted)) => (*place, accepted.await),
        None => std::future::pending().await,
    }
}
