//! Getting hold of one lease that this worker should have: at once if it is free, else by a hand-off.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::take::{Attempt, take};
use crate::balance::Why;
use crate::change::Change;
use crate::store;
use crate::writer::{Surroundings, Writer};
use crate::{Lease, LeaseEpoch, LeaseKey, Moment, WorkerId};

/// How often a lease that is on its way is looked at: the gap between its two holders is about this.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How often a lease that is not wanted any more is tried to be given back.
const ABANDON_ATTEMPTS: usize = 3;

/// A lease to get hold of.
#[derive(Debug, Clone)]
pub(super) struct Order {
    pub(super) key: LeaseKey,
    pub(super) reason: Reason,
    /// Who owned it when it was assigned.
    pub(super) from: Option<WorkerId>,
    /// The epochs at which a row of this worker's is one that it took itself, and does not run.
    pub(super) own_epochs: HashSet<LeaseEpoch>,
    /// The row, if it has just been read.
    pub(super) row: Option<Lease>,
}

/// Why this worker should have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// The leader says so, of the row as it was then.
    Assigned { why: Why, counter: u64, epoch: LeaseEpoch },
    /// It may be this worker's already: an answer was lost, or (if ids run once) an earlier run left it.
    Reclaimed { any_epoch: bool },
    /// Its parents are done, and this worker did the last of them.
    Child,
}

/// What surrounds an acquisition.
#[derive(Clone)]
pub(super) struct Acquirer {
    pub(super) surroundings: Surroundings,
    pub(super) worker: WorkerId,
    pub(super) renew_interval: Duration,
    pub(super) hand_off_timeout: Duration,
    pub(super) draining: CancellationToken,
    /// Bounds what all acquisitions ask of the store at a time.
    pub(super) takes: Arc<Semaphore>,
}

/// What to do about a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Take,
    /// Ask its holder to let go.
    HandOff,
    /// Its holder has been asked.
    Wait,
    /// It is not as it was when it was ordered.
    Drop,
}

// === impl Reason ===

impl Reason {
    fn name(self) -> &'static str {
        match self {
            Self::Assigned { why, .. } => why.name(),
            Self::Reclaimed { .. } => "reclaimed",
            Self::Child => "child",
        }
    }
}

/// `handed_at`: the epoch of the row while it was seen on its way to this worker.
fn step(row: &Lease, me: &WorkerId, order: &Order, handed_at: Option<LeaseEpoch>) -> Step {
    if row.is_complete() {
        return Step::Drop;
    }
    let Some(owner) = &row.owner else {
        // What was this worker's and is nobody's now is the leader's to assign.
        let is_doubt = matches!(order.reason, Reason::Reclaimed { .. });
        return if is_doubt { Step::Drop } else { Step::Take };
    };
    if owner == me {
        if row.checkpoint_owner.is_some() {
            return Step::Wait;
        }
        let is_own = match order.reason {
            _ if handed_at == Some(row.epoch) || order.own_epochs.contains(&row.epoch) => true,
            Reason::Reclaimed { any_epoch } => any_epoch,
            Reason::Assigned { why: Why::Expired, counter, epoch } => (counter, epoch) == (row.counter, row.epoch),
            Reason::Assigned { .. } | Reason::Child => false,
        };
        return if is_own { Step::Take } else { Step::Drop };
    }
    match order.reason {
        Reason::Assigned { epoch, .. } if epoch != row.epoch => Step::Drop,
        // Nobody renews it, whoever was asked for it. It may have been this worker, which lost it.
        Reason::Assigned { why: Why::Expired, counter, .. } if counter == row.counter => Step::Take,
        // Another process of this id holds it: to ask that one for it would be to take back what it is asked for.
        _ if row.checkpoint_owner.as_ref() == Some(me) => Step::Drop,
        // Its owner was handed it and has gone without having taken it.
        Reason::Assigned { why: Why::Unowned, counter, .. } if counter == row.counter => Step::Take,
        // From its owner as the leader saw it only: where two are planned for one lease, the first is not asked in turn.
        Reason::Assigned { why: Why::Leaving | Why::Balance, .. } if order.from.as_ref() == Some(owner) => {
            Step::HandOff
        }
        _ => Step::Drop,
    }
}

/// An attempt that has come to nothing for now. At this epoch the lease was another worker's: a row of this worker's at
/// the same epoch was handed to it, and nobody runs it.
fn still_wanted(epoch: LeaseEpoch) -> Attempt {
    Attempt { in_doubt: vec![epoch], ..Attempt::default() }
}

// === impl Acquirer ===

impl Acquirer {
    /// Gets hold of a lease, or gives up: then it is ordered again, if it still should be this worker's. `None` if
    /// nothing could be learnt of it.
    pub(super) async fn acquire(self, order: Order) -> Option<Attempt> {
        let own_epochs = order.own_epochs.clone();
        let mut attempt = self.try_to(order).await?;
        if attempt.writer.is_none() {
            // A request of an earlier attempt may still be on its way.
            let reached = attempt.reached;
            attempt
                .in_doubt
                .extend(own_epochs.into_iter().filter(|epoch| reached.is_none_or(|reached| *epoch > reached)));
        }
        Some(attempt)
    }

    async fn try_to(&self, mut order: Order) -> Option<Attempt> {
        let started = self.now();
        let mut read = order.row.take();
        let mut still: Option<(u64, Moment)> = None;
        let mut handed_at = None;
        loop {
            let takes = self.takes.clone();
            let permit = takes.acquire_owned().await.ok()?;
            if self.draining.is_cancelled() {
                drop(permit);
                self.abandon(&order.key, handed_at).await;
                return None;
            }
            let row = match read.take() {
                Some(row) => row,
                None => match self.read(&order.key).await {
                    Ok(Some(row)) => row,
                    Ok(None) => return Some(Attempt { reached: Some(LeaseEpoch(u64::MAX)), ..Attempt::default() }),
                    Err(_) => return handed_at.map(still_wanted),
                },
            };
            match step(&row, &self.worker, &order, handed_at) {
                Step::Drop => return Some(Attempt { reached: Some(row.epoch), ..Attempt::default() }),
                Step::Take => {
                    if order.reason == Reason::Child && !self.parents_are_done(&row).await? {
                        return None;
                    }
                    let mut attempt = take(&self.surroundings, &self.worker, row, order.reason.name()).await;
                    attempt.in_doubt.extend(handed_at);
                    return Some(attempt);
                }
                Step::HandOff => {
                    match self.ask_for(&row, order.reason).await {
                        Some(epoch) => handed_at = Some(epoch),
                        None => return Some(still_wanted(row.epoch)),
                    }
                    drop(permit);
                }
                Step::Wait => {
                    handed_at = Some(row.epoch);
                    let now = self.now();
                    let since = match still {
                        Some((counter, since)) if counter == row.counter => since,
                        _ => still.insert((row.counter, now)).1,
                    };
                    if now.saturating_since(since) >= self.surroundings.expiry {
                        return Some(take(&self.surroundings, &self.worker, row, Why::Expired.name()).await);
                    }
                    if now.saturating_since(started) >= self.hand_off_timeout {
                        return self.force(row).await;
                    }
                    drop(permit);
                    self.pause().await;
                }
            }
        }
    }

    /// Gives back what is on its way to this worker, which stops: to its holder, or to nobody if that has let go already.
    /// What cannot be given back now is free when it has expired.
    async fn abandon(&self, key: &LeaseKey, handed_at: Option<LeaseEpoch>) {
        for _ in 0..ABANDON_ATTEMPTS {
            let Ok(Some(row)) = self.read(key).await else { return };
            if row.owner.as_ref() != Some(&self.worker) || handed_at != Some(row.epoch) {
                return;
            }
            let change = match &row.checkpoint_owner {
                Some(holder) => Change::HandOff { to: holder.clone() },
                None => Change::Evict,
            };
            let written = self.write(&row, &change).await;
            if written.is_ok() {
                tracing::info!(lease = %key, to = row.checkpoint_owner.as_ref().map(WorkerId::as_str), "lease not taken over after all: this worker stops");
                return;
            }
        }
    }

    async fn write(&self, row: &Lease, change: &Change) -> Result<Lease, store::Error> {
        let written = timeout(self.surroundings.write_timeout, self.surroundings.store.write(row, change)).await;
        // Whether it was applied is not known; the row tells.
        let unknown = |elapsed| store::Error::Unknown { table: "of leases".to_owned(), source: Box::new(elapsed) };
        let written = written.unwrap_or_else(|elapsed| Err(unknown(elapsed)));
        self.surroundings.recorder.wrote(change.name(), written.as_ref().map_or_else(store::Error::name, |_| "ok"));
        written
    }

    /// Asks a lease's holder to let go. The epoch at which the lease is on its way; `None` if that is refused: the row has
    /// changed.
    async fn ask_for(&self, row: &Lease, reason: Reason) -> Option<LeaseEpoch> {
        match self.write(row, &Change::HandOff { to: self.worker.clone() }).await {
            Ok(lease) => {
                let from = lease.writer().map(WorkerId::as_str);
                tracing::info!(lease = %lease.key, from, why = reason.name(), "lease asked for");
                // A rewind may have been first.
                Some(lease.epoch)
            }
            // The row tells whether it was applied.
            Err(store::Error::Unknown { .. }) => {
                self.pause().await;
                Some(row.epoch)
            }
            Err(_) => None,
        }
    }

    /// Takes a lease from a holder that lives and does not let go. The holder's deadline has to pass before this
    /// worker may start.
    async fn force(&self, row: Lease) -> Option<Attempt> {
        tracing::warn!(
            lease = %row.key,
            from = row.writer().map(WorkerId::as_str),
            "the holder does not let go; the lease is taken from it, and its last batch may be repeated"
        );
        let attempt = take(&self.surroundings, &self.worker, row, "forced").await;
        let Some(writer) = &attempt.writer else { return Some(attempt) };
        let free = self.now() + self.surroundings.expiry;
        loop {
            let left = free.saturating_since(self.now());
            if left.is_zero() {
                return Some(attempt);
            }
            tokio::select! {
                biased;
                () = tokio::time::sleep(left.min(self.renew_interval)) => {}
                () = self.draining.cancelled() => {
                    // Let go or not, it is free when it has expired.
                    let _ = writer.release().await;
                    return self.ended(writer);
                }
            }
            // Also if it fails: the fence tells when it is over.
            let _ = writer.renew(self.renew_interval / 2).await;
            if writer.fence().check().is_err() {
                return self.ended(writer);
            }
        }
    }

    /// A lease that was taken has ended before anybody ran it.
    fn ended(&self, writer: &Writer) -> Option<Attempt> {
        if let Err(lost) = writer.fence().check() {
            self.surroundings.recorder.ended(&lost);
        }
        None
    }

    async fn parents_are_done(&self, row: &Lease) -> Option<bool> {
        for parent in row.parent_keys() {
            // A parent without a row may be gone for long, or not have one yet: the leader knows.
            if !self.read(&parent).await.ok()??.is_complete() {
                return Some(false);
            }
        }
        Some(true)
    }

    async fn read(&self, key: &LeaseKey) -> Result<Option<Lease>, store::Error> {
        let read = timeout(self.surroundings.write_timeout, self.surroundings.store.get(key)).await;
        read.map_err(|_| self.surroundings.no_answer())?
    }

    /// Waits, unless this worker stops.
    async fn pause(&self) {
        tokio::select! {
            biased;
            () = self.draining.cancelled() => {}
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }

    fn now(&self) -> Moment {
        self.surroundings.clock.now()
    }
}

#[cfg(test)]
mod tests {
    use shardmill_record::Checkpoint;

    use super::*;
    use crate::NewLease;
    use crate::change::apply;

    fn worker(id: &str) -> WorkerId {
        WorkerId::parse(id).unwrap()
    }

    fn free() -> Lease {
        let key = LeaseKey::parse("shardId-000000000000").unwrap();
        NewLease { key, checkpoint: Checkpoint::TrimHorizon, start_at: None, parents: Vec::new(), range: None }
            .into_lease()
    }

    fn held(id: &str) -> Lease {
        apply(&free(), &Change::Take { worker: worker(id) }).unwrap()
    }

    fn order(reason: Reason) -> Order {
        Order { key: free().key, reason, from: None, own_epochs: HashSet::new(), row: None }
    }

    fn assigned(why: Why, row: &Lease) -> Order {
        let reason = Reason::Assigned { why, counter: row.counter, epoch: row.epoch };
        Order { from: row.owner.clone(), ..order(reason) }
    }

    #[test]
    fn a_lease_is_taken_only_from_a_row_that_is_as_the_leader_saw_it() {
        let me = worker("me");
        let theirs = held("them");
        let renewed = apply(&theirs, &Change::Renew).unwrap();
        let taken = apply(&renewed, &Change::Take { worker: worker("another") }).unwrap();
        let expired = assigned(Why::Expired, &theirs);
        assert_eq!(step(&theirs, &me, &expired, None), Step::Take);
        assert_eq!(step(&renewed, &me, &expired, None), Step::Drop, "its holder lives");
        let balance = assigned(Why::Balance, &theirs);
        assert_eq!(step(&renewed, &me, &balance, None), Step::HandOff);
        assert_eq!(step(&taken, &me, &balance, None), Step::Drop, "it has moved already");
        let asked = apply(&theirs, &Change::HandOff { to: worker("another") }).unwrap();
        assert_eq!(step(&asked, &me, &balance, None), Step::Drop, "another was first");
        assert_eq!(step(&asked, &me, &assigned(Why::Leaving, &asked), None), Step::HandOff, "and has gone since");
        let mine = apply(&held("me"), &Change::HandOff { to: worker("another") }).unwrap();
        assert_eq!(step(&mine, &me, &assigned(Why::Leaving, &mine), None), Step::Drop, "a process of this id runs it");
        assert_eq!(step(&mine, &me, &assigned(Why::Expired, &mine), None), Step::Take, "nobody does any more");
        assert_eq!(step(&free(), &me, &balance, None), Step::Take);
        assert_eq!(step(&theirs, &me, &order(Reason::Child), None), Step::Drop);
    }

    #[test]
    fn a_lease_on_its_way_is_waited_for_and_taken_when_it_is_let_go() {
        let me = worker("me");
        let theirs = held("them");
        let order = assigned(Why::Leaving, &theirs);
        let asked = apply(&theirs, &Change::HandOff { to: me.clone() }).unwrap();
        assert_eq!(step(&asked, &me, &order, None), Step::Wait);
        let passed = apply(&asked, &Change::Release).unwrap();
        assert_eq!(step(&passed, &me, &order, Some(asked.epoch)), Step::Take);
        assert_eq!(step(&passed, &me, &order, None), Step::Drop, "another process of this id may run it");
        let seen = Order { own_epochs: HashSet::from([asked.epoch]), ..order.clone() };
        assert_eq!(step(&passed, &me, &seen, None), Step::Take, "it was seen on its way before");
        let done = apply(&asked, &Change::Complete { children: Vec::new() }).unwrap();
        assert_eq!(step(&done, &me, &order, Some(asked.epoch)), Step::Drop);
    }

    #[test]
    fn an_own_lease_is_taken_back_if_this_process_took_it_or_ids_run_once() {
        let me = worker("me");
        assert_eq!(step(&free(), &me, &order(Reason::Reclaimed { any_epoch: true }), None), Step::Drop);
        let mine = held("me");
        let mut doubt = order(Reason::Reclaimed { any_epoch: false });
        assert_eq!(step(&mine, &me, &doubt, None), Step::Drop);
        doubt.own_epochs.insert(mine.epoch);
        assert_eq!(step(&mine, &me, &doubt, None), Step::Take);
        assert_eq!(step(&mine, &me, &order(Reason::Reclaimed { any_epoch: true }), None), Step::Take);
    }
}
