use std::sync::{Arc, OnceLock};
use std::time::Duration;

use shardmill_cause::{Coded, Tell, with_causes};
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
    if lost == Lost::Expired {
        // As late as can be, and the last that is seen of it.
        let late = writer.surroundings().clock.now().saturating_since(writer.renewed_at() + pace.interval);
        writer.surroundings().recorder.renewed(late);
    }
    works(&writer);
    let key = &writer.lease().key;
    let epoch = writer.lease().epoch;
    match &lost {
        Lost::Released => match writer.release().await {
            Ok(()) => tracing::info!(lease = %key, %epoch, "lease released"),
            Err(error) => {
                let (code, error) = (error.code(), with_causes(&error));
                tracing::warn!(lease = %key, %epoch, error, %code, "lease let go, and not released: it is free when it has expired");
            }
        },
        Lost::Completed => tracing::info!(lease = %key, %epoch, "lease completed: its shard is done"),
        lost => tracing::warn!(lease = %key, %epoch, reason = %lost, code = %lost.code(), "lease lost"),
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
        match writer.renew(pace.interval() / 2).await {
            Ok(renewed) => {
                // Otherwise another write has renewed it meanwhile.
                if let Some(before) = renewed {
                    let late = clock.now().saturating_since(before + pace.interval);
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
    let (code, error) = (error.code(), with_causes(error));
    if let Tell::Lasts { failing } = surroundings.trouble.fails_because(&lease.key, lasted, error.clone()) {
        let application = surroundings.recorder.application();
        tracing::warn!(application, lease = %lease.key, leases = failing, error, %code, "leases cannot be renewed; trying until they expire");
    }
}

fn works(writer: &Writer) {
    let surroundings = writer.surroundings();
    if surroundings.trouble.works(&writer.lease().key) == Tell::Over {
        tracing::info!(application = surroundings.recorder.application(), "leases are renewed again");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use prometheus_client::registry::Registry;
    use shardmill_record::Checkpoint;
    use tokio::time::sleep;

    use super::*;
    use crate::change::Change;
    use crate::store::memory::{Call, Fault, Memory};
    use crate::{HeldLease, Metrics, one_lease};

    /// A lease that is held on this table, and how many renewals were how late, in all.
    async fn held(store: &Memory) -> (HeldLease, impl Fn() -> (usize, f64) + use<>) {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let lease = one_lease::hold(store, metrics).await;
        let late = move || {
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
            let value = |name: &str| {
                let name = format!("shardmill_lease_renew_late_seconds_{name}{{application=\"orders\"}} ");
                text.lines().find_map(|line| line.strip_prefix(name.as_str())?.parse::<f64>().ok())
            };
            (value("count").unwrap_or(0.0) as usize, value("sum").unwrap_or(0.0))
        };
        (lease, late)
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_expires_is_seen_as_late_as_it_was() {
        let is_down = Arc::new(AtomicBool::new(false));
        let down = Arc::clone(&is_down);
        let store = Memory::new().with_faults(move |call| match call {
            Call::Write(..) if down.load(Ordering::SeqCst) => Fault::Throttle,
            _ => Fault::None,
        });
        let (lease, late) = held(&store).await;
        sleep(Duration::from_secs(30)).await;
        let (renewals, seconds) = late();
        assert!(renewals >= 8 && seconds < 0.1, "{renewals} renewals, together {seconds} s late");
        is_down.store(true, Ordering::SeqCst);
        assert_eq!(lease.fence().lost().await, Lost::Expired);
        sleep(Duration::from_secs(1)).await;
        let (after, seconds) = late();
        assert_eq!(after, renewals + 1);
        // An expiry of 10 s, less a fiftieth, and renewals each 3.3 s.
        assert!((6.0..7.0).contains(&seconds), "{seconds} s late");
    }

    #[tokio::test(start_paused = true)]
    async fn what_another_write_has_renewed_is_no_renewal() {
        let store = Memory::recording().with_faults(|call| match call {
            Call::Write(_, Change::Checkpoint { .. }) => Fault::Delay(Duration::from_secs(2)),
            _ => Fault::None,
        });
        let (lease, late) = held(&store).await;
        let is_renewal = |change: &Option<Change>| matches!(change, Some(Change::Renew | Change::Measure { .. }));
        let mut renewals = 0;
        for number in 1..=40 {
            // At any moment between two renewals: some have the lock when a renewal is due.
            sleep(Duration::from_millis(700 * (number % 5))).await;
            lease.checkpoint(Checkpoint::parse(&number.to_string(), 0).unwrap()).await.unwrap();
            sleep(Duration::from_millis(10)).await;
            renewals += store.take_history().iter().filter(|applied| is_renewal(&applied.change)).count();
            assert_eq!(late().0, renewals);
        }
        assert!(renewals > 0);
    }
}
