//! What a worker does at every round: it shows that it lives, seeks the posts, and takes what it should have.

use std::collections::HashMap;
use std::time::Duration;

use rand::Rng;
use shardmill_cause::{Coded, with_causes};

use super::acquire::{Order, Reason};
use super::member::{Beat, Membership};
use super::scanner::{Assignments, Scan, scan};
use super::{Coordinator, RunError, TableTrouble};
use crate::fence::Lost;
use crate::fleet::{Planned, WorkerRow, plan_key, read};
use crate::store::Error;
use crate::twin::Verdict;
use crate::{Lease, LeaseKey, Moment, WorkerId};

/// How much sooner or later than its interval a round comes.
const JITTER: f64 = 0.25;
/// How much more often a worker looks that has just started, or is leaving.
const HASTE: u32 = 4;
/// How much longer than a round a leader may be silent before a worker that has just started looks at the table itself.
const SILENCE: f64 = 1.5;
/// A leader that cannot read the table for an expiry leaves the post to others for so many expiries.
const REST: u32 = 3;

/// What is remembered from round to round.
#[derive(Debug)]
pub(super) struct Rounds {
    pub(super) joined_at: Moment,
    /// Whether it is known that no other system works on the table.
    pub(super) is_vetted: bool,
    /// Whether a round has come to its end.
    has_worked: bool,
    /// Since when rounds fail, and why.
    pub(super) failing: Option<TableTrouble>,
    /// Whether the log tells of it.
    told: bool,
    /// Until when this worker seeks no post.
    resting: Option<Moment>,
    /// When the posts were last looked at by a worker that has none.
    sought: Option<Moment>,
    /// When this worker last read the whole table.
    pub(super) scanned: Option<Moment>,
    /// When the next lease expires unless it moves before.
    next_expiry: Option<Moment>,
    pub(super) was_leader: bool,
    /// Whether a leader that lives has had the time to plan for this worker.
    is_planned: bool,
    twins: crate::twin::Watch,
}

// === impl Rounds ===

impl Rounds {
    pub(super) fn new(now: Moment) -> Self {
        Self {
            joined_at: now,
            is_vetted: false,
            has_worked: false,
            failing: None,
            told: false,
            resting: None,
            sought: None,
            scanned: None,
            next_expiry: None,
            was_leader: false,
            is_planned: false,
            twins: crate::twin::Watch::default(),
        }
    }

    pub(super) fn fails(&self) -> bool {
        self.failing.is_some()
    }
}

// === impl Coordinator ===

impl Coordinator {
    /// One round. Returns whether the next one should follow at once.
    pub(super) async fn round(&mut self) -> Result<bool, RunError> {
        match self.try_round().await {
            Ok(again_soon) => {
                self.rounds.failing = None;
                if std::mem::take(&mut self.rounds.told) {
                    tracing::info!(application = self.options.application, "the lease table is used again");
                }
                self.rounds.has_worked = true;
                Ok(again_soon)
            }
            Err(RunError::Store(error)) => self.round_failed(error).await,
            Err(error) => Err(error),
        }
    }

    async fn round_failed(&mut self, error: Error) -> Result<bool, RunError> {
        self.surroundings.recorder.scan_failed();
        if !self.rounds.has_worked && error.is_final() {
            return Err(error.into());
        }
        let now = self.surroundings.clock.now();
        let since = self.rounds.failing.as_ref().map_or(now, |trouble| trouble.since);
        self.rounds.failing = Some(TableTrouble { since, reason: with_causes(&error) });
        // A throttle or an answer that is lost passes; before anything has worked it is all that there is to tell.
        let lasts = !self.rounds.has_worked || now.saturating_since(since) >= self.options.scan_interval / 2;
        if lasts && !std::mem::replace(&mut self.rounds.told, true) {
            let (application, code, error) = (&self.options.application, error.code(), with_causes(&error));
            tracing::warn!(application, error, %code, "the lease table cannot be used; held leases are kept, none is taken");
        }
        // What this worker may not do or cannot reach, another one may.
        if now.saturating_since(since) >= self.options.expiry && self.is_scanner() {
            self.rounds.resting = Some(now + self.options.expiry * REST);
            let Self { leader, deputy, surroundings, .. } = self;
            tokio::join!(leader.resign(surroundings), deputy.resign(surroundings));
        }
        Ok(false)
    }

    async fn try_round(&mut self) -> Result<bool, RunError> {
        if !self.rounds.is_vetted && !self.vet().await? {
            return Ok(false);
        }
        self.beat().await?;
        self.seek_posts().await?;
        let mut orders = Vec::new();
        let mut again_soon = false;
        let plan = if self.is_scan_due() {
            let scan = scan(&self.surroundings, &*self.source).await?;
            self.rounds.scanned = Some(scan.now);
            let assignments = self.look_through(&scan);
            let plan = if self.is_leader() {
                again_soon = assignments.is_unconfirmed;
                self.publish(&scan, &assignments).await?;
                self.clear(&scan.listing.leases).await?;
                assignments.plans.get(&self.options.worker).cloned().unwrap_or_default()
            } else {
                let own = scan.documents.get(&plan_key(&self.options.worker));
                own.and_then(read).unwrap_or_default()
            };
            let rows = scan.listing.leases.iter().map(|lease| (&lease.key, lease)).collect();
            orders.extend(plan.take.iter().filter_map(|planned| ordered(planned, &rows)));
            self.show(scan);
            plan
        } else {
            let plan = Membership::plan(&self.surroundings, &self.me).await?;
            orders.extend(plan.take.iter().filter_map(|planned| ordered(planned, &HashMap::new())));
            self.view.send_if_modified(|view| !std::mem::replace(&mut view.is_ready, true));
            plan
        };
        // What was planned before this plan was read is in it.
        self.rounds.is_planned = self.leader.is_led();
        if plan.is_last && self.leaving.is_cancelled() && !self.draining.is_cancelled() {
            // Nobody is there to take over: the sooner this worker ends, the sooner its successor starts.
            self.drain();
        }
        // First what is planned: it may be what is in doubt.
        for order in orders {
            let own_epochs = self.epochs.get(&order.key).cloned().unwrap_or_default();
            self.start_acquiring(Order { own_epochs, ..order });
        }
        for order in self.doubts() {
            self.start_acquiring(order);
        }
        Ok(again_soon)
    }

    /// Shows that this worker lives, and finds another process that shows the same of itself.
    async fn beat(&mut self) -> Result<(), Error> {
        let (now, is_leaving) = (self.surroundings.clock.now(), self.leaving.is_cancelled());
        if !self.membership.is_due(now, self.options.renew_interval.mul_f64(1.0 - JITTER), is_leaving) {
            return Ok(());
        }
        let row = WorkerRow {
            run: self.me.run.clone(),
            joined: self.options.joined,
            generation: self.options.generation,
            is_leaving,
            max: self.options.max_leases_per_worker,
            runs_once: self.options.worker_runs_once,
            note: self.options.note.taken(),
        };
        let beat = self.membership.beat(&self.surroundings, &self.me, &row).await?;
        let found = if let Beat::Foreign(found) = &beat { Some(found) } else { None };
        let (application, worker) = (&self.options.application, &self.options.worker);
        match self.rounds.twins.observe(now, self.options.expiry, worker, &row, found) {
            Verdict::Alone | Verdict::Known => {}
            Verdict::Gone => tracing::info!(application, %worker, "no other process uses this worker's id any more"),
            Verdict::Found(twin) => tracing::error!(
                application, %worker, started_ms = twin.joined, code = %twin.code(),
                "another process uses this worker's id; one of the two will stop: give each worker a `worker-id` of its own, or leave the key out"
            ),
            Verdict::Yield(twin) => {
                self.twin = Some(twin);
                self.leave();
                self.drain();
            }
        }
        Ok(())
    }

    async fn seek_posts(&mut self) -> Result<(), Error> {
        let (now, expiry) = (self.surroundings.clock.now(), self.options.expiry);
        let is_resting = self.rounds.resting.is_some_and(|until| now < until);
        let stays = !self.leaving.is_cancelled() && !is_resting;
        // Who has a post writes it at every round; who has none looks less often whether it is free.
        let rarely = self.options.renew_interval.mul_f64(1.0 - JITTER);
        let is_due = self.rounds.sought.is_none_or(|sought| now.saturating_since(sought) >= rarely);
        let looks = stays && (is_due || self.is_hurried(now) || self.is_deputy());
        if self.leader.is_held(now, expiry) || looks {
            self.leader.seek(&self.surroundings, &self.me).await?;
        }
        if self.is_leader() {
            self.deputy.resign(&self.surroundings).await;
        } else if stays && (looks || self.deputy.is_held(now, expiry)) {
            self.deputy.seek(&self.surroundings, &self.me).await?;
        }
        if looks {
            self.rounds.sought = Some(now);
        }
        self.note_leadership();
        Ok(())
    }

    pub(super) fn is_leader(&self) -> bool {
        self.leader.is_held(self.surroundings.clock.now(), self.options.expiry)
    }

    fn is_deputy(&self) -> bool {
        self.deputy.is_held(self.surroundings.clock.now(), self.options.expiry)
    }

    /// The leader and its deputy look at the whole table.
    fn is_scanner(&self) -> bool {
        self.is_leader() || self.is_deputy()
    }

    /// Whether the table is to be read in this round: by the leader; by its deputy, so that nothing that it has seen
    /// stand still has to be waited for again when the leader is gone; and by a worker that has just started and finds no
    /// leader that lives: when it becomes the leader itself, it should have been looking all the time.
    fn is_scan_due(&self) -> bool {
        let now = self.surroundings.clock.now();
        let is_new = now.saturating_since(self.rounds.joined_at) < self.options.expiry * 2;
        let is_orphan = is_new
            && self.leader.silence(now).is_some_and(|silence| silence >= self.options.scan_interval.mul_f64(SILENCE))
            // It is in a hurry with other things.
            && self.rounds.scanned.is_none_or(|scanned| now.saturating_since(scanned) >= self.options.scan_interval);
        self.is_scanner() || is_orphan
    }

    /// Shows what is not seen by scans alone: what this worker has, and whether it should have more.
    pub(super) fn show_standing(&mut self) {
        let now = self.surroundings.clock.now();
        // What is not tried any more, because another worker has it, fails no more.
        if self.take_fails.as_ref().is_some_and(|(_, last)| now.saturating_since(*last) >= self.options.expiry) {
            self.take_fails = None;
        }
        let renewals = self.surroundings.trouble.worst().map(|failing| {
            let since = now.to_duration().saturating_sub(failing.lasted);
            TableTrouble { since: Moment::since_origin(since), reason: failing.reason }
        });
        let takes = self.take_fails.as_ref().map(|(trouble, _)| trouble.clone());
        let failing = [self.rounds.failing.clone(), takes, renewals].into_iter().flatten().min_by_key(|it| it.since);
        let claims = self.held.len() + self.acquiring.len();
        let silence = self.leader.silence(now);
        let is_planned = !self.rounds.fails()
            && match self.is_leader() {
                true => self.view.borrow().leads && self.sync.listed.is_some(),
                false => self.rounds.is_planned && silence.is_some_and(|silence| silence < self.options.expiry),
            };
        self.view.send_if_modified(|view| {
            let before = (view.claims, view.is_planned, std::mem::replace(&mut view.failing, failing));
            (view.claims, view.is_planned) = (claims, is_planned);
            before != (claims, is_planned, view.failing.clone())
        });
    }

    fn look_through(&mut self, scan: &Scan) -> Assignments {
        self.scanner.observe(scan, &self.options);
        self.scanner.report_stranger(scan, &self.options.application);
        self.trip_passed(&scan.listing.leases);
        self.rounds.next_expiry = self.scanner.next_expiry(&scan.listing.leases, scan.now, self.options.expiry);
        let assignments = self.scanner.assign(scan, self.sync.listed.as_deref(), &*self.balance, &self.options);
        let incomplete = scan.listing.leases.iter().filter(|lease| !lease.is_complete()).count();
        let invalid = scan.listing.invalid.len();
        self.surroundings.recorder.scanned(scan.took, incomplete, invalid, assignments.members);
        assignments
    }

    /// Closes the fences of leases that others were seen to have taken, sooner than the next renewal would.
    fn trip_passed(&self, leases: &[Lease]) {
        for lease in leases {
            let Some(writer) = self.held.get(&lease.key) else { continue };
            // A scan may be older than the last write, and newer than the last answer; and epochs only grow.
            if lease.epoch > writer.reached() {
                writer.fence().trip(lease.writer().map_or(Lost::Evicted, |by| Lost::Taken { by: by.clone() }));
            }
        }
    }

    /// Leases that may be this worker's without it knowing.
    fn doubts(&self) -> Vec<Order> {
        let reason = Reason::Reclaimed { any_epoch: false };
        let in_doubt = self.epochs.iter().filter(|(key, _)| !self.held.contains_key(*key));
        in_doubt
            .map(|(key, epochs)| Order { from: None, key: key.clone(), reason, own_epochs: epochs.clone(), row: None })
            .collect()
    }

    /// Leases that an earlier run of this worker left.
    pub(super) fn left_behind(&self, leases: &[Lease]) -> Vec<Order> {
        let is_own = |lease: &&Lease| lease.writer() == Some(&self.options.worker) && !lease.is_complete();
        let reason = Reason::Reclaimed { any_epoch: true };
        let order = |lease: &Lease| Order {
            key: lease.key.clone(),
            reason,
            from: None,
            own_epochs: Default::default(),
            row: Some(lease.clone()),
        };
        leases.iter().filter(is_own).map(order).collect()
    }

    /// Whether this worker waits for others or others for it, so that it should look often.
    fn is_hurried(&self, now: Moment) -> bool {
        let has_just_started = now.saturating_since(self.rounds.joined_at) < self.options.expiry * 2;
        self.leaving.is_cancelled() || !self.rounds.is_vetted || (has_just_started && self.held.is_empty())
    }

    /// How long to wait before the next round.
    pub(super) fn pause(&mut self) -> Duration {
        let now = self.surroundings.clock.now();
        let interval = self.options.scan_interval;
        let interval = if self.is_hurried(now) { interval / HASTE } else { interval };
        let pause = interval.mul_f64(self.random.random_range(1.0 - JITTER..=1.0 + JITTER));
        // A lease that is about to expire is looked at when it does, and so is the leader's post.
        let lease = self.rounds.next_expiry.filter(|_| self.is_leader()).map(|at| at.saturating_since(now));
        let silence = self.leader.silence(now).filter(|_| self.is_deputy());
        let post = silence.and_then(|silence| self.options.expiry.checked_sub(silence));
        let due = [lease, post].into_iter().flatten().min();
        due.map_or(pause, |due| pause.min(due + Duration::from_millis(1)))
    }
}

/// What a plan says, with the row if it has just been read.
fn ordered(planned: &Planned, rows: &HashMap<&LeaseKey, &Lease>) -> Option<Order> {
    let Planned { key, counter, epoch, from, why } = planned;
    let reason = Reason::Assigned { why: *why, counter: *counter, epoch: *epoch };
    let key = LeaseKey::parse(key).ok()?;
    let row = rows.get(&key).copied().cloned();
    let from = from.as_deref().and_then(|from| WorkerId::parse(from).ok());
    Some(Order { key, reason, from, own_epochs: Default::default(), row })
}
