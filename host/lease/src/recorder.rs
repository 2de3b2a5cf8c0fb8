use std::time::Duration;

use crate::fence::Lost;
use crate::metrics::{Application, Metrics, WithReason, Write};

/// The metrics of one application.
#[derive(Debug, Clone)]
pub(crate) struct Recorder {
    metrics: Metrics,
    application: String,
}

// === impl Recorder ===

impl Recorder {
    pub(crate) fn new(metrics: Metrics, application: &str) -> Self {
        Self { metrics, application: application.to_owned() }
    }

    pub(crate) fn application(&self) -> &str {
        &self.application
    }

    pub(crate) fn taken(&self, why: &'static str) {
        self.metrics.held.get_or_create(&self.labels()).inc();
        self.metrics.taken.get_or_create(&self.because(why)).inc();
    }

    /// The end of every lease that was taken, whatever ended it.
    pub(crate) fn ended(&self, lost: &Lost) {
        self.metrics.held.get_or_create(&self.labels()).dec();
        match lost {
            Lost::Released => self.metrics.released.get_or_create(&self.labels()).inc(),
            Lost::Completed => self.metrics.completed.get_or_create(&self.labels()).inc(),
            lost => self.metrics.lost.get_or_create(&self.because(lost.name())).inc(),
        };
    }

    pub(crate) fn created(&self) {
        self.metrics.created.get_or_create(&self.labels()).inc();
    }

    pub(crate) fn wrote(&self, change: &'static str, result: &'static str) {
        let labels = Write { application: self.application.clone(), change, result };
        self.metrics.writes.get_or_create(&labels).inc();
    }

    pub(crate) fn renewed(&self, late: Duration) {
        self.metrics.renew_late_seconds.get_or_create(&self.labels()).observe(late.as_secs_f64());
    }

    pub(crate) fn scanned(&self, time: Duration, incomplete: usize, invalid: usize, live_workers: usize) {
        let labels = self.labels();
        self.metrics.scans.get_or_create(&labels).inc();
        self.metrics.scan_seconds.get_or_create(&labels).observe(time.as_secs_f64());
        self.metrics.incomplete.get_or_create(&labels).set(to_gauge(incomplete));
        self.metrics.invalid_rows.get_or_create(&labels).set(to_gauge(invalid));
        self.metrics.live_workers.get_or_create(&labels).set(to_gauge(live_workers));
    }

    pub(crate) fn scan_failed(&self) {
        self.metrics.scan_errors.get_or_create(&self.labels()).inc();
    }

    /// Whether this worker leads the fleet.
    pub(crate) fn leads(&self, leads: bool) {
        self.metrics.leader.get_or_create(&self.labels()).set(i64::from(leads));
        if !leads {
            // Another one shows it now.
            self.unattended(0);
        }
    }

    /// Open shards that nobody gets on with.
    pub(crate) fn unattended(&self, shards: usize) {
        self.metrics.unattended.get_or_create(&self.labels()).set(to_gauge(shards));
    }

    pub(crate) fn cleared(&self, why: &'static str) {
        self.metrics.cleared.get_or_create(&self.because(why)).inc();
    }

    pub(crate) fn sync_failed(&self) {
        self.metrics.sync_errors.get_or_create(&self.labels()).inc();
    }

    fn labels(&self) -> Application {
        Application { application: self.application.clone() }
    }

    fn because(&self, reason: &'static str) -> WithReason {
        WithReason { application: self.application.clone(), reason }
    }
}

fn to_gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
