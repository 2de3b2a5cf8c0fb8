//! A driver whose producer has a spool.

use std::time::Duration;

use tokio::time::Instant;

use super::Driver;
use crate::plan::Item;
use crate::producer::spooling::{Spooled, Spooling};
use crate::{Acknowledged, MessageId, Reason};

/// How long the disk may take when the time for everything else is over.
const DISK_WITHIN: Duration = Duration::from_secs(10);

// === impl Driver ===

impl Driver {
    /// Until when the disk may take in what is left.
    pub(super) fn spool_deadline(&self) -> Option<Instant> {
        let closing = self.closing.as_ref().filter(|closing| closing.is_over)?;
        self.spooling.is_some().then_some(closing.deadline? + DISK_WITHIN)
    }

    /// Gives up what the spool has not taken in.
    pub(super) fn leave_spool(&mut self, now: Instant) {
        let Some(spooling) = self.spooling.take() else { return };
        let lost = spooling.into_left();
        self.release(&lost);
        lost.iter().for_each(|item| self.flushes.resolved(item.id));
        self.give_up(lost.into_iter().map(|item| (item, Reason::Stopped)).collect(), now);
    }

    /// Looks whether the stream is gone. When it will be, if nothing changes.
    pub(super) fn turn_to_spool(&mut self, now: Instant) -> Option<Instant> {
        let spooling = self.spooling.as_mut()?;
        if self.shared.pending().0 == 0 {
            spooling.idles();
        }
        let gone_at = spooling.gone_at()?;
        if gone_at > now {
            return Some(gone_at);
        }
        spooling.turn("the stream cannot be reached");
        None
    }

    /// Puts into the spool what goes there. Whether that resolved something.
    pub(super) fn spool(&mut self, now: Instant) -> bool {
        let Some(spooling) = &mut self.spooling else { return false };
        let turns = spooling.turns();
        if turns && self.plan.is_waiting_for_answers() {
            return false;
        }
        if turns {
            self.plan.give_up(&Reason::Stopped);
            self.resolve(now);
            self.spooling.as_mut().map(Spooling::turned);
        }
        self.spooling.as_mut().map(Spooling::store);
        turns
    }

    /// What the spool has taken, and what it has not.
    pub(super) fn spooled(&mut self, spooled: Spooled, now: Instant) {
        let Spooled { kept, lost, back } = spooled;
        for item in back {
            self.plan.push(item);
        }
        if self.closing.as_ref().is_some_and(|closing| closing.is_over) {
            // There is no time to send them.
            self.plan.give_up(&Reason::Stopped);
        }
        self.release(&kept);
        self.shared.metrics.spooled(kept.len());
        for Item { id, attempts, accepted, ticket, .. } in kept {
            self.shared.metrics.retried(attempts.saturating_sub(1));
            self.flushes.resolved(id);
            if let Some(ticket) = ticket {
                let latency = now.saturating_duration_since(accepted);
                // Who asked may have gone.
                let _ = ticket.send(Ok(Acknowledged::Spooled { message_id: MessageId(id), attempts, latency }));
            }
        }
        self.release(lost.iter().map(|(item, _)| item));
        for (item, _) in &lost {
            self.shared.metrics.retried(item.attempts.saturating_sub(1));
            self.flushes.resolved(item.id);
        }
        self.give_up(lost, now);
        self.flushes.tell();
    }

    /// Lets the task that empties the spool end, within the deadline.
    pub(super) async fn end_drain(&mut self) {
        let deadline = self.closing.as_ref().and_then(|closing| closing.deadline);
        if let Some(drain) = &mut self.drain {
            match deadline {
                Some(deadline) => _ = tokio::time::timeout_at(deadline, drain.end()).await,
                None => drain.end().await,
            }
        }
        if let (Some(spooling), Some(closing)) = (&self.spooling, &mut self.closing) {
            closing.left.spooled = spooling.depth();
        }
    }
}
