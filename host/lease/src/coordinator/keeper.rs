use std::sync::{Arc, OnceLock};
use std::time::Duration;

use shardmill_cause::{Tell, with_causes};
use tokio_util::sync::CancellationToken;

use crate::Moment;
use crate::fence::Lost;
use crate::writer::{Error, Writer};

/// A renewal that failed is repeated this many times before the next one would be due.
const RETRIES_PER_INTERVAL: u32 = 6;
/// How much more often a lease is renewed while its worker leaves: renewals are how a holder learns that it is asked to
/// let go.
const LEAVING: u32 = 4;

/// How a lease ended.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) lost: Lost,
}

/// How often a lease is renewed.
#[derive(Debug, Clone)]
pub(super) struct Pace {
    pub(super) interval: Duration,
    /// Cancelled when the worker leaves.
    pub(super) leaving: CancellationToken,
}

// === impl Pace ===

impl Pace {
    fn interval(&self) -> Duration {
        if self.leaving.is_cancelled() { self.interval / LEAVING } else { self.interval }
    }

    /// Waits, but not for long once the worker leaves.
    async fn pause(&self, time: Duration) {
        let leaving = async {
            self.leaving.cancelled().await;
            tokio::time::sleep(self.interval()).await;
        };
        tokio::select! {
            biased;
            () = tokio::time::sleep(time) => {}
            () = leaving => {}
        }
    }
}

/// How long another worker that asks for a lease waits for it.
pub(super) struct HandOff {
    pub(super) timeout: Duration,
    /// When it takes the lease without asking.
    pub(super) by: Arc<OnceLock<Moment>>,
}

impl HandOff {
    /// It was asked since the last renewal.
    fn begins(&self, now: Moment, interval: Duration) {
        // A lease is handed off once.
        let _first = self.by.set(now + self.timeout.saturating_sub(interval));
    }
}

/// Renews a lease until it ends, and waits until its user has let it go.
pub(super) async fn keep(
    writer: Arc<Writer>,
    pace: Pace,
    draining: CancellationToken,
    hand_off: HandOff,
    gone: CancellationToken,
) -> Kept {
    let lost = renew(&writer, &pace, &draining, &hand_off).await;
    works(&writer);
    let key = &writer.lease().key;
    let epoch = writer.lease().epoch;
    match &lost {
        Lost::Released => match writer.release().await {
            Ok(()) => tracing::info!(lease = %key, %epoch, "lease released"),
            Err(error) => {
                let error = with_causes(&error);
                tracing::warn!(lease = %key, %epoch, error, "lease let go, and not released: it is free when it has expired");
            }
        },
        Lost::Completed => tracing::info!(lease = %key, %epoch, "lease completed: its shard is done"),
        lost => tracing::warn!(lease = %key, %epoch, reason = %lost, "lease lost"),
    }
    writer.surroundings().recorder.ended(&lost);
    gone.cancelled().await;
    Kept { lost }
}

async fn renew(writer: &Writer, pace: &Pace, draining: &CancellationToken, hand_off: &HandOff) -> Lost {
    let clock = &writer.surroundings().clock;
    let mut failing: Option<Moment> = None;
    loop {
        let pause = if failing.is_some() {
            pace.interval / RETRIES_PER_INTERVAL
        } else {
            pace.interval().saturating_sub(clock.now().saturating_since(writer.renewed_at()))
        };
        tokio::select! {
            biased;
            lost = writer.fence().lost() => return lost,
            () = pace.pause(pause) => {}
        }
        let renewed_at = writer.renewed_at();
        match writer.renew(pace.interval() / 2).await {
            Ok(()) => {
                // Otherwise another write has renewed it meanwhile.
                if writer.renewed_at() > renewed_at {
                    let late = clock.now().saturating_since(renewed_at + pace.interval);
                    writer.surroundings().recorder.renewed(late);
                }
                if failing.take().is_some() {
                    works(writer);
                }
                if writer.is_handing_off() && !draining.is_cancelled() {
                    let lease = writer.lease();
                    let to = lease.owner.as_ref().map(crate::WorkerId::as_str);
                    tracing::info!(lease = %lease.key, epoch = %lease.epoch, to, "lease asked for: letting it go");
                    hand_off.begins(clock.now(), pace.interval);
                    draining.cancel();
                }
            }
            Err(Error::Lost(lost)) => return lost,
            Err(error) => {
                let since = *failing.get_or_insert_with(|| clock.now());
                fails(writer, clock.now().saturating_since(since), &error);
            }
        }
    }
}

fn fails(writer: &Writer, lasted: Duration, error: &Error) {
    let (surroundings, lease) = (writer.surroundings(), writer.lease());
    let error = with_causes(error);
    if let Tell::Lasts { failing } = surroundings.trouble.fails_because(&lease.key, lasted, error.clone()) {
        let application = surroundings.recorder.application();
        tracing::warn!(application, lease = %lease.key, leases = failing, error, "leases cannot be renewed; trying until they expire");
    }
}

fn works(writer: &Writer) {
    let surroundings = writer.surroundings();
    if surroundings.trouble.works(&writer.lease().key) == Tell::Over {
        tracing::info!(application = surroundings.recorder.application(), "leases are renewed again");
    }
}
