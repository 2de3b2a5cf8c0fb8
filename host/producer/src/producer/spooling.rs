//! What a producer puts into its spool, and when.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use shardmill_spool::{Refused, Sender, StoreError};
use tokio::time::Instant;

use super::pending::Ticket;
use crate::Reason;
use crate::plan::{Item, Resolved};

/// A producer's way into its spool.
///
/// A spool gives back in the order in which it took in, so what goes into it must go in order: when the first record has to,
/// nothing more is sent, what is on its way is waited for, and then everything that is not stored goes, in the order in which
/// it was accepted. What comes later goes there at once, until the spool has nothing of the stream any more.
pub(super) struct Spooling {
    sender: Arc<Sender>,
    /// How long nothing may have been stored, although it was tried, before the stream counts as gone.
    after: Duration,
    mode: Mode,
    /// Records that go into the spool, by their order when the mode is [`Mode::Spooling`].
    held: Vec<Item<Ticket>>,
    /// What is being stored.
    storing: Option<Storing>,
    /// Since when everything has failed that was tried.
    failing_since: Option<Instant>,
    /// Records that went into the spool since it was empty.
    stored: u64,
}

/// A call of the spool, and its records.
struct Storing {
    items: Vec<Item<Ticket>>,
    result: BoxFuture<'static, Result<(), StoreError>>,
}

/// Where records go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// To the stream.
    Direct,
    /// Nowhere: what is on its way is waited for.
    Turning,
    /// Into the spool.
    Spooling,
    /// To the stream: the spool is gone.
    Without,
}

/// What one call of the spool brought.
pub(super) struct Spooled {
    /// These are durable.
    pub(super) kept: Vec<Item<Ticket>>,
    /// These are not, for these reasons.
    pub(super) lost: Vec<(Item<Ticket>, Reason)>,
    /// These are not either, because the spool is gone, and have to be sent.
    pub(super) back: Vec<Item<Ticket>>,
}

// === impl Spooling ===

impl Spooling {
    pub(super) fn new(sender: Arc<Sender>, after: Duration) -> Self {
        // What is there from an earlier time comes first.
        let is_some = sender.spool().holds(sender.stream());
        Self {
            sender,
            after,
            mode: if is_some { Mode::Spooling } else { Mode::Direct },
            held: Vec::new(),
            storing: None,
            failing_since: None,
            stored: 0,
        }
    }

    /// Whether records may be sent.
    pub(super) fn sends(&self) -> bool {
        matches!(self.mode, Mode::Direct | Mode::Without)
    }

    /// Whether what comes in goes into the spool.
    pub(super) fn spools(&self) -> bool {
        self.mode == Mode::Spooling
    }

    /// Whether what is on its way is waited for.
    pub(super) fn turns(&self) -> bool {
        self.mode == Mode::Turning
    }

    /// Something was tried: whether it was stored, or failed in such a way that the stream may be gone.
    pub(super) fn tried(&mut self, is_stored: bool, is_unreachable: bool, now: Instant) {
        if is_stored {
            self.failing_since = None;
        } else if is_unreachable {
            self.failing_since.get_or_insert(now);
        }
    }

    /// Nothing waits, so nothing fails.
    pub(super) fn idles(&mut self) {
        self.failing_since = None;
    }

    /// When the stream counts as gone, if nothing is stored before.
    pub(super) fn gone_at(&self) -> Option<Instant> {
        self.failing_since.filter(|_| self.mode == Mode::Direct).map(|since| since + self.after)
    }

    /// From now on records go into the spool.
    pub(super) fn turn(&mut self, why: &str) {
        if self.mode == Mode::Direct {
            self.mode = Mode::Turning;
            self.failing_since = None;
            let (stream, folder) = (self.sender.stream(), self.sender.spool().folder().display());
            tracing::warn!(stream, %folder, why, "records go into the spool until the stream takes them again");
        }
    }

    /// Takes those of the records that were given up which a spool is for; the others come back.
    pub(super) fn hold(&mut self, resolved: Vec<Resolved<Ticket>>) -> Vec<Resolved<Ticket>> {
        if self.mode == Mode::Without {
            return resolved;
        }
        let mut others = Vec::with_capacity(resolved.len());
        for resolved in resolved {
            match &resolved.result {
                // It may take them later.
                Err(reason @ (Reason::Expired { .. } | Reason::Refused(_) | Reason::Stopped)) => {
                    self.turn(&reason.to_string());
                    self.held.push(resolved.item);
                }
                // It will not, or it is not wanted to.
                Err(Reason::Throttled(_) | Reason::Invalid(_) | Reason::NotSpooled(_)) | Ok(_) => others.push(resolved),
            }
        }
        others
    }

    /// Takes a record that is sent by the spool only.
    pub(super) fn take(&mut self, item: Item<Ticket>) {
        self.held.push(item);
    }

    /// Nothing is on its way any more.
    pub(super) fn turned(&mut self) {
        self.mode = Mode::Spooling;
    }

    /// Puts what is held into the spool, in order: one call at a time, so that no record is stored behind which an
    /// earlier one was refused that somebody puts again.
    pub(super) fn store(&mut self) {
        if self.mode != Mode::Spooling || self.held.is_empty() || self.storing.is_some() {
            return;
        }
        let mut items = std::mem::take(&mut self.held);
        items.sort_unstable_by_key(|item| item.id);
        // Kept here as well: one that is not stored is given back.
        let records = items.iter().map(|item| item.record.clone()).collect();
        let result = Box::pin(self.sender.spool().store(self.sender.stream(), records));
        self.storing = Some(Storing { items, result });
    }

    /// What the call of the spool brought; never, if there is none.
    pub(super) async fn stored(&mut self) -> Spooled {
        let Some(storing) = &mut self.storing else { return std::future::pending().await };
        let result = (&mut storing.result).await;
        let items = self.storing.take().map(|storing| storing.items).unwrap_or_default();
        let (mut kept, mut lost, mut back) = (Vec::new(), Vec::new(), Vec::new());
        let refused = result.err().map(|StoreError { refused }| refused).unwrap_or_default();
        let mut refused = refused.into_iter().peekable();
        for (index, item) in items.into_iter().enumerate() {
            match refused.next_if(|refused| refused.index == index) {
                None => kept.push(item),
                Some(Refused { reason, .. }) if matches!(*reason, shardmill_spool::Error::Closed(_)) => {
                    if self.mode != Mode::Without {
                        let stream = self.sender.stream();
                        tracing::error!(stream, %reason, "records are sent without the spool from now on");
                        self.mode = Mode::Without;
                    }
                    back.push(item);
                }
                Some(Refused { reason, .. }) => lost.push((item, Reason::NotSpooled(reason.to_string().into()))),
            }
        }
        if self.mode == Mode::Without {
            back.append(&mut self.held);
        }
        self.stored += kept.len() as u64;
        Spooled { kept, lost, back }
    }

    /// Sends records to the stream again if the spool has nothing of it any more.
    pub(super) fn turn_back(&mut self) {
        let is_empty = self.held.is_empty() && self.storing.is_none();
        if self.mode == Mode::Spooling && is_empty && !self.sender.spool().holds(self.sender.stream()) {
            self.mode = Mode::Direct;
            let (stream, records) = (self.sender.stream(), std::mem::take(&mut self.stored));
            tracing::info!(stream, records, "the spool has nothing of the stream any more; records go to it again");
        }
    }

    /// Records of the stream that wait in the spool.
    pub(super) fn depth(&self) -> u64 {
        self.sender.spool().depth_of(self.sender.stream()).records
    }

    /// Everything that is not known to be durable.
    pub(super) fn into_left(mut self) -> Vec<Item<Ticket>> {
        // It may be on the disk already, and be sent from there.
        let mut left = self.storing.take().map(|storing| storing.items).unwrap_or_default();
        left.iter_mut().for_each(|item| item.was_lost = true);
        left.append(&mut self.held);
        left
    }
}

impl std::fmt::Debug for Spooling {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Spooling")
            .field("sender", &self.sender)
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}
