use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::{Clock, Moment, WorkerId};

/// Timers stand still while the machine is suspended; the fence's clock does not. Sleeping in slices bounds how long
/// after waking up [`Fence::lost`] still sleeps.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// Tells whether a lease is still held. Cheap to clone; ask it before every request for the shard.
///
/// The deadline is the moment of *sending* the last successful renewal plus the expiry: everybody else counts the
/// expiry from a later moment, when the renewal was seen. Past the deadline [`check`](Fence::check) fails, also if
/// nobody has noticed that renewals have stopped. A fence that failed once stays so.
#[derive(Clone)]
pub struct Fence {
    shared: Arc<Shared>,
}

struct Shared {
    clock: Arc<dyn Clock>,
    /// Nanoseconds since the clock's origin.
    deadline: AtomicU64,
    /// The first reason stays.
    reason: OnceLock<Lost>,
    /// Cancelled when there is a reason: wakes those who wait.
    tripped: CancellationToken,
}

/// Why a lease is no longer held.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// No renewal got through in time (a slow store, a suspended or overloaded machine).
    #[error("the lease was not renewed before its deadline")]
    Expired,
    /// Somebody else has it: the holder in the table.
    #[error("the lease was taken by {by}")]
    Taken {
        /// The new holder.
        by: WorkerId,
    },
    /// Somebody ended the holding, and nobody has it.
    #[error("the lease was taken away and has no holder")]
    Evicted,
    /// The row is gone from the table.
    #[error("the lease was deleted from its table")]
    Deleted,
    /// Its holder let go.
    #[error("the lease was released")]
    Released,
    /// The shard is done.
    #[error("the lease is complete")]
    Completed,
}

// === impl Lost ===

impl Lost {
    /// Whether this end was the holder's own will.
    pub fn is_wanted(&self) -> bool {
        matches!(self, Self::Released | Self::Completed)
    }

    /// A short name for logs and metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Taken { .. } => "taken",
            Self::Evicted => "evicted",
            Self::Deleted => "deleted",
            Self::Released => "released",
            Self::Completed => "completed",
        }
    }
}

// === impl Fence ===

impl Fence {
    pub(crate) fn new(clock: Arc<dyn Clock>, deadline: Moment) -> Self {
        let deadline = AtomicU64::new(to_nanos(deadline));
        let shared = Shared { clock, deadline, reason: OnceLock::new(), tripped: CancellationToken::new() };
        Self { shared: Arc::new(shared) }
    }

    /// Whether the lease is held at this moment.
    pub fn check(&self) -> Result<(), Lost> {
        if self.shared.reason.get().is_none() && self.shared.clock.now() >= self.deadline() {
            self.trip(Lost::Expired);
        }
        match self.shared.reason.get() {
            Some(lost) => Err(lost.clone()),
            None => Ok(()),
        }
    }

    /// When the lease ends unless it is renewed before.
    pub fn deadline(&self) -> Moment {
        Moment::since_origin(Duration::from_nanos(self.shared.deadline.load(Ordering::Acquire)))
    }

    /// Waits until the lease is no longer held.
    pub async fn lost(&self) -> Lost {
        loop {
            if let Err(lost) = self.check() {
                return lost;
            }
            let left = self.deadline().saturating_since(self.shared.clock.now());
            tokio::select! {
                biased;
                () = self.shared.tripped.cancelled() => {}
                () = tokio::time::sleep(left.min(LONGEST_SLEEP)) => {}
            }
        }
    }

    /// Ends the holding; the first reason stays.
    pub(crate) fn trip(&self, lost: Lost) {
        // A reason that is there already stays, which is what is wanted.
        let _ = self.shared.reason.set(lost);
        self.shared.tripped.cancel();
    }

    /// Moves the deadline, never back.
    pub(crate) fn extend(&self, deadline: Moment) {
        self.shared.deadline.fetch_max(to_nanos(deadline), Ordering::AcqRel);
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = formatter.debug_struct("Fence");
        debug.field("deadline", &self.deadline()).field("lost", &self.shared.reason.get()).finish()
    }
}

/// 2^64 nanoseconds are 584 years of uptime.
fn to_nanos(moment: Moment) -> u64 {
    u64::try_from(moment.to_duration().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TokioClock;

    const EXPIRY: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn fails_at_the_deadline_although_nobody_tripped_it_and_stays_failed() {
        let clock = Arc::new(TokioClock::default());
        let fence = Fence::new(clock.clone(), clock.now() + EXPIRY);
        tokio::time::advance(EXPIRY - Duration::from_millis(1)).await;
        assert_eq!(fence.check(), Ok(()));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(fence.check(), Err(Lost::Expired));
        fence.extend(clock.now() + EXPIRY);
        assert_eq!(fence.check(), Err(Lost::Expired));
    }

    #[tokio::test(start_paused = true)]
    async fn lost_waits_for_an_extended_deadline_and_wakes_when_tripped() {
        let clock = Arc::new(TokioClock::default());
        let fence = Fence::new(clock.clone(), clock.now() + EXPIRY);
        let waiting = tokio::spawn({
            let (fence, clock) = (fence.clone(), clock.clone());
            async move { (fence.lost().await, clock.now()) }
        });
        tokio::time::sleep(EXPIRY / 2).await;
        fence.extend(clock.now() + EXPIRY);
        let (lost, at) = waiting.await.unwrap();
        assert_eq!(lost, Lost::Expired);
        assert_eq!(at, fence.deadline());

        let fence = Fence::new(clock.clone(), clock.now() + EXPIRY);
        let before = clock.now();
        let waiting = tokio::spawn({
            let fence = fence.clone();
            async move { fence.lost().await }
        });
        tokio::task::yield_now().await;
        fence.trip(Lost::Evicted);
        assert_eq!(waiting.await.unwrap(), Lost::Evicted);
        assert_eq!(clock.now(), before);
    }
}
