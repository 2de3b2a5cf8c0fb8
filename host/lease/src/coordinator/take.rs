use tokio::time::timeout;

use crate::change::{self, Change};
use crate::store;
use crate::writer::{Surroundings, Writer};
use crate::{Lease, LeaseEpoch, WorkerId};

/// How often a take whose answer was lost is followed by another.
const ATTEMPTS: usize = 3;

/// What became of an attempt to take a lease.
#[derive(Default)]
pub(super) struct Attempt {
    /// The lease, if it is held.
    pub(super) writer: Option<Writer>,
    /// The epochs at which the lease may be, or become, this worker's without it knowing.
    pub(super) in_doubt: Vec<LeaseEpoch>,
    /// The epoch that the row has reached, if nothing was tried because it is not as it was when it was ordered.
    pub(super) reached: Option<LeaseEpoch>,
    /// Why it is not held, unless another worker was first.
    pub(super) failed: Option<store::Error>,
}

/// Takes a lease that is as it was read.
///
/// A lease is held only by a take whose answer came: the deadline counts from when it was sent, and after a lost
/// answer nobody knows whether this request or an earlier one was applied. So a take that turns out to have been
/// applied is followed by another, which ends the doubt and moves the epoch on.
pub(super) async fn take(surroundings: &Surroundings, worker: &WorkerId, read: Lease, why: &'static str) -> Attempt {
    let change = Change::Take { worker: worker.clone() };
    let mut known = read;
    let mut in_doubt = Vec::new();
    let mut failed = None;
    for _ in 0..ATTEMPTS {
        let Ok(predicted) = change::apply(&known, &change) else { break };
        let sent = surroundings.clock.now();
        let result = timeout(surroundings.write_timeout, surroundings.store.write(&known, &change)).await;
        let name = match &result {
            Ok(Ok(_)) => "ok",
            Ok(Err(error)) => error.name(),
            Err(_) => "unknown",
        };
        surroundings.recorder.wrote(change.name(), name);
        match result {
            Ok(Ok(lease)) => {
                surroundings.recorder.taken(why);
                tracing::info!(
                    lease = %lease.key,
                    epoch = %lease.epoch,
                    why,
                    from = known.writer().map(WorkerId::as_str),
                    checkpoint = %lease.checkpoint,
                    "lease taken"
                );
                let writer = Writer::new(lease, worker.clone(), sent, surroundings.clone());
                return Attempt { writer: Some(writer), in_doubt, ..Attempt::default() };
            }
            Ok(Err(store::Error::Conflict { .. } | store::Error::Refused { .. })) => {
                failed = None;
                break;
            }
            Ok(Err(error @ store::Error::Unknown { .. })) => {
                in_doubt.push(predicted.epoch);
                failed = Some(error);
            }
            Ok(Err(error)) => {
                failed = Some(error);
                break;
            }
            Err(elapsed) => {
                in_doubt.push(predicted.epoch);
                failed = Some(store::Error::Unknown { table: "of leases".to_owned(), source: Box::new(elapsed) });
            }
        }
        match timeout(surroundings.write_timeout, surroundings.store.get(&known.key)).await {
            Ok(Ok(Some(row))) if row.epoch == predicted.epoch && row.writer() == Some(worker) => known = row,
            // It is looked at again in the next round.
            _ => break,
        }
    }
    Attempt { in_doubt, failed, ..Attempt::default() }
}
