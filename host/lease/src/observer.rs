//! Which leases have expired, as one observer sees it: by its own clock, since it last saw the counter move.

use std::collections::HashMap;
use std::time::Duration;

use crate::{Lease, LeaseKey, Moment, WorkerId};

/// Remembers when each lease was last seen to change.
#[derive(Debug, Default)]
pub(crate) struct Observer {
    seen: HashMap<LeaseKey, Seen>,
    /// Counts calls of [`Observer::observe`], to forget what is gone.
    round: u64,
}

#[derive(Debug)]
struct Seen {
    counter: u64,
    /// A hand-off changes the owner and not the counter; the new one gets its full time.
    owner: Option<WorkerId>,
    since: Moment,
    first_round: u64,
    last_round: u64,
    has_moved: bool,
}

// === impl Observer ===

impl Observer {
    /// Takes in a scan whose answer came at `now`.
    pub(crate) fn observe(&mut self, now: Moment, leases: &[Lease]) {
        self.round += 1;
        for lease in leases {
            let first_round = self.seen.get(&lease.key).map_or(self.round, |seen| seen.first_round);
            let unchanged_since = self.seen.get(&lease.key).filter(|seen| seen.is(lease)).map(|seen| seen.since);
            let has_moved =
                self.seen.get(&lease.key).is_some_and(|seen| seen.has_moved || seen.counter != lease.counter);
            let seen = Seen {
                counter: lease.counter,
                owner: lease.owner.clone(),
                since: unchanged_since.unwrap_or(now),
                first_round,
                last_round: self.round,
                has_moved,
            };
            self.seen.insert(lease.key.clone(), seen);
        }
        let round = self.round;
        self.seen.retain(|_, seen| seen.last_round == round);
    }

    /// Whether the lease has stood still for at least the expiry.
    pub(crate) fn is_expired(&self, key: &LeaseKey, now: Moment, expiry: Duration) -> bool {
        self.seen.get(key).is_some_and(|seen| now.saturating_since(seen.since) >= expiry)
    }

    /// Whether the lease's counter was ever seen to move.
    pub(crate) fn has_moved(&self, key: &LeaseKey) -> bool {
        self.seen.get(key).is_some_and(|seen| seen.has_moved)
    }

    /// When the lease expires unless it moves before.
    pub(crate) fn expires_at(&self, key: &LeaseKey, expiry: Duration) -> Option<Moment> {
        self.seen.get(key).map(|seen| seen.since + expiry)
    }

    /// Whether the lease was in an earlier scan too. A scan is not a snapshot: it may show a child's new row and have
    /// read past the place of the parent's, which was created before; the next scan shows both.
    pub(crate) fn is_confirmed(&self, key: &LeaseKey) -> bool {
        self.seen.get(key).is_some_and(|seen| seen.first_round < self.round)
    }
}

// === impl Seen ===

impl Seen {
    fn is(&self, lease: &Lease) -> bool {
        self.counter == lease.counter && self.owner == lease.owner
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use shardmill_record::Checkpoint;

    use super::*;
    use crate::NewLease;

    const EXPIRY: Duration = Duration::from_secs(10);

    fn lease(counter: u64) -> Lease {
        let key = LeaseKey::parse("shardId-000000000000").unwrap();
        let new =
            NewLease { key, checkpoint: Checkpoint::TrimHorizon, start_at: None, parents: Vec::new(), range: None };
        Lease { counter, ..new.into_lease() }
    }

    proptest! {
        /// Against the definition: expired if and only if all scans in the last `EXPIRY` showed what the first of
        /// the unbroken run before showed.
        #[test]
        fn expired_means_seen_standing_still_for_the_expiry(scans in proptest::collection::vec((1..4000u64, 0..2u64), 1..40)) {
            let mut observer = Observer::default();
            let (mut now, mut counter, mut changed_at) = (0, 0, None);
            for (step, moved) in scans {
                now += step;
                counter += moved;
                if moved > 0 || changed_at.is_none() {
                    changed_at = Some(now);
                }
                let lease = lease(counter);
                let moment = Moment::since_origin(Duration::from_millis(now));
                observer.observe(moment, std::slice::from_ref(&lease));
                let still = Duration::from_millis(now - changed_at.unwrap());
                prop_assert_eq!(observer.is_expired(&lease.key, moment, EXPIRY), still >= EXPIRY);
            }
        }
    }

    #[test]
    fn a_lease_that_was_gone_starts_anew() {
        let mut observer = Observer::default();
        let lease = lease(1);
        let at = |seconds| Moment::since_origin(Duration::from_secs(seconds));
        observer.observe(at(0), std::slice::from_ref(&lease));
        assert!(!observer.is_confirmed(&lease.key));
        observer.observe(at(5), &[]);
        observer.observe(at(11), std::slice::from_ref(&lease));
        assert!(!observer.is_expired(&lease.key, at(11), EXPIRY));
        assert!(!observer.is_confirmed(&lease.key));
        observer.observe(at(12), std::slice::from_ref(&lease));
        assert!(observer.is_confirmed(&lease.key));
    }
}
