use std::time::Duration;

use crate::clear::Delays;
use crate::{Note, WorkerId};

/// How a worker holds leases. All workers of an application must agree on `expiry`.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// The application's name, for logs and metrics.
    pub application: String,
    /// Who this worker is; unlike every other live one.
    pub worker: WorkerId,
    /// Whether the platform promises that no two processes with this worker id run at a time (a Kubernetes
    /// StatefulSet does). Then leases that an earlier run left behind are taken back at once; else after the expiry,
    /// because that run may be alive.
    pub worker_runs_once: bool,
    /// From one renewal of a lease to the next. 3.3 s, the KCL's third of the expiry.
    pub renew_interval: Duration,
    /// How long a lease lives after its last renewal. 10 s, the KCL's failover time.
    pub expiry: Duration,
    /// When this worker started, in milliseconds since 1970. Orders workers: in a deploy, leases go to the younger ones.
    pub joined: u64,
    /// What this worker runs: one number for each build and configuration. In a deploy, leases go to the next one.
    pub generation: u64,
    /// Between scans of the table, with a quarter more or less at random. 2 s. Only the fleet's leader and its deputy
    /// scan.
    pub scan_interval: Duration,
    /// Between looks at the stream for shards without a lease. 60 s, as the KCL.
    pub sync_interval: Duration,
    /// How long a holder may take to let go of a lease that goes to another worker; then it is taken from it. 30 s.
    pub hand_off_timeout: Duration,
    /// How long a worker that leaves goes on working for others to take its leases over. 10 s.
    pub leave_timeout: Duration,
    /// How long a fleet that is being deployed must stand still before leases move for the sake of balance alone. 30 s.
    pub settle_time: Duration,
    /// The most leases that move from one living worker to another at a time.
    pub moves: usize,
    /// What to do about a worker of another system, a KCL, that lives on the same table.
    pub takeover: Takeover,
    /// When leases that have served their time are deleted.
    pub clearing: Delays,
    /// How long a write may take. 2 s.
    pub write_timeout: Duration,
    /// How long a worker leaves a lease alone that it let go itself: others go first, and a shard that nobody gets on
    /// with is not restarted in a tight loop. 10 s.
    pub retake_delay: Duration,
    /// The most leases that this worker holds. At least 1.
    pub max_leases_per_worker: Option<usize>,
    /// The most renewals at a time, and takes at a time. At least 1. 64.
    pub parallelism: usize,
    /// The most leases that wait to be received by the user. At least 1. 1024.
    pub events: usize,
    /// What this worker says of itself to whoever looks at the fleet. Nothing.
    pub note: Note,
}

/// What to do about a worker of another system that lives on the same table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Takeover {
    /// Do not start: two systems that both balance would take leases from each other.
    #[default]
    Refuse,
    /// Go on beside it: take what it lets go or does not renew.
    Force,
}

/// Why options are not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// A lease would expire between two renewals.
    #[error(
        "the lease expiry ({expiry:?}) must be longer than the renew interval ({renew_interval:?}) plus the write timeout ({write_timeout:?})"
    )]
    ExpiryTooShort {
        /// [`Options::expiry`].
        expiry: Duration,
        /// [`Options::renew_interval`].
        renew_interval: Duration,
        /// [`Options::write_timeout`].
        write_timeout: Duration,
    },
    /// An interval of nothing would never let anything else run.
    #[error("the {0} must be longer than zero")]
    Zero(&'static str),
}

// === impl Options ===

impl Options {
    /// The defaults for a worker of an application.
    pub fn new(application: impl Into<String>, worker: WorkerId) -> Self {
        Self {
            application: application.into(),
            worker,
            worker_runs_once: false,
            joined: 0,
            generation: 0,
            renew_interval: Duration::from_millis(3300),
            expiry: Duration::from_secs(10),
            scan_interval: Duration::from_secs(2),
            sync_interval: Duration::from_secs(60),
            hand_off_timeout: Duration::from_secs(30),
            leave_timeout: Duration::from_secs(10),
            settle_time: Duration::from_secs(30),
            moves: 1000,
            takeover: Takeover::Refuse,
            clearing: Delays::default(),
            write_timeout: Duration::from_secs(2),
            retake_delay: Duration::from_secs(10),
            max_leases_per_worker: None,
            parallelism: 64,
            events: 1024,
            note: Note::default(),
        }
    }

    /// Checks that the values go together.
    pub fn validate(&self) -> Result<(), Invalid> {
        let positive = [
            ("renew interval", !self.renew_interval.is_zero()),
            ("scan interval", !self.scan_interval.is_zero()),
            ("shard sync interval", !self.sync_interval.is_zero()),
            ("write timeout", !self.write_timeout.is_zero()),
            ("hand-off timeout", !self.hand_off_timeout.is_zero()),
            ("number of moves at a time", self.moves > 0),
            ("number of leases per worker", self.max_leases_per_worker != Some(0)),
            ("parallelism of renewals", self.parallelism > 0),
            ("capacity for events", self.events > 0),
        ];
        if let Some((name, _)) = positive.into_iter().find(|(_, is_positive)| !is_positive) {
            return Err(Invalid::Zero(name));
        }
        if self.expiry <= self.renew_interval.saturating_add(self.write_timeout) {
            return Err(Invalid::ExpiryTooShort {
                expiry: self.expiry,
                renew_interval: self.renew_interval,
                write_timeout: self.write_timeout,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_that_expires_between_renewals_is_refused_with_both_values() {
        let mut options = Options::new("orders", WorkerId::parse("w").unwrap());
        assert_eq!(options.validate(), Ok(()));
        options.expiry = Duration::from_secs(3);
        let text = options.validate().unwrap_err().to_string();
        assert!(text.contains("(3s)") && text.contains("(3.3s)"), "{text}");
        options.events = 0;
        assert_eq!(options.validate(), Err(Invalid::Zero("capacity for events")));
    }
}
