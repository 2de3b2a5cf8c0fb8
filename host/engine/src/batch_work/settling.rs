//! The end of a batch: dead letters, outputs, checkpoint.

use shardmill_plugin::OutcomeLimits;
use shardmill_record::Batch;

use super::failing::Given;
use super::{BatchWork, Leave, Ledger};
use crate::destination::Sent;
use crate::invariant::Invariant;
use crate::live::Activity;
use crate::{BatchProgress, Caused, Decision, Front, GivenUp, Passed};

/// Why records are given up that are handed over at most once.
const LEFT: &str = "the shard was left while the record was in hand";
/// The same of records that were processed.
const UNSENT: &str = "the record was processed, and what it has caused was not acknowledged";

// === impl BatchWork ===

impl BatchWork {
    /// Deals with the records that are given up, sends the outputs, and lets the checkpoint pass what is dealt with.
    /// `leave`: why the batch is left before its end.
    pub(super) async fn conclude(
        &self,
        batch: &Batch,
        mut progress: BatchProgress,
        leave: Option<Leave>,
        ledger: &dyn Ledger,
    ) -> Result<(), Leave> {
        if leave.is_some() && self.is_once() {
            progress.give_up_rest(LEFT);
        }
        let concluded = self.settle(batch, &mut progress, leave, ledger, true).await;
        self.lose(batch, progress);
        concluded?.map_or(Ok(()), Err)
    }

    /// Accounts for a batch that is not begun any more, where nobody comes back to it.
    pub(crate) async fn abandon(
        &self,
        batch: &Batch,
        refused: &[(usize, String)],
        leave: Leave,
        ledger: &dyn Ledger,
    ) -> Result<(), Leave> {
        self.conclude(batch, self.begin(batch, refused), Some(leave), ledger).await
    }

    /// Accounts for what is dealt with at the front while the batch goes on, if what waits for its end has become much: a
    /// batch that is split may return a lot in each part. A reason to leave if there is one now.
    pub(super) async fn relieve(
        &self,
        batch: &Batch,
        progress: &mut BatchProgress,
        ledger: &dyn Ledger,
    ) -> Result<Option<Leave>, Leave> {
        let OutcomeLimits { bytes, outputs, .. } = self.options.outcome;
        if progress.waiting_bytes() <= bytes && progress.waiting_outputs() <= outputs {
            return Ok(None);
        }
        match self.settle(batch, progress, None, ledger, false).await? {
            // What was taken out and not sent comes again with its records: nobody may account for these now.
            Some(leave) if !self.is_once() => Err(leave),
            leave => Ok(leave),
        }
    }

    /// `is_end`: whether nothing more of the batch comes. Returns why the batch is left, if it is.
    async fn settle(
        &self,
        batch: &Batch,
        progress: &mut BatchProgress,
        mut leave: Option<Leave>,
        ledger: &dyn Ledger,
        is_end: bool,
    ) -> Result<Option<Leave>, Leave> {
        let given_up: Vec<GivenUp> = progress.given_up().collect();
        let given = match given_up.is_empty() {
            true => None,
            false => self.deal_with(batch, &given_up, progress.given_up_count(), &mut leave, is_end).await?,
        };
        if given.is_some_and(|given| !matches!(given, Given::Stopped(_))) || self.is_once() && is_end {
            // At most once, what is done behind what has stopped is done for good.
            progress.pass_given_up();
        }
        let Front { mut through, outputs } = progress.take_front(is_end);
        let caused = outputs.len();
        let mut sent = self.send(outputs, batch).await;
        let left = sent.leave.take();
        let is_left = left.is_some();
        if self.is_once() {
            progress.lose(&sent.unsent, UNSENT);
            // Nobody comes back to them, however the batch ends.
            if let Some(given) = given {
                self.show_given_up(batch, &given_up, given);
            }
        }
        if let Some(why) = left {
            if self.is_unaccounted(&why) {
                return Err(why);
            }
            leave = Some(with(leave, why));
            if !self.is_once() {
                // A processor behind this one may have got further than nowhere: whoever goes on does not repeat that.
                through = sent.first_undone.map_or(through, |first| through.min(first));
            }
        } else {
            // Done is what has been processed and whose outputs are where they belong.
            Invariant::OutputsBeforeCheckpoint
                .check(sent.count == caused, || format!("{} of {caused} outputs are acknowledged", sent.count));
        }
        if let Some(given) = given {
            // What is behind comes again, and is given up then.
            let stays = |given_up: &&GivenUp| self.is_once() || !is_left || given_up.index < through;
            let told: Vec<GivenUp> = given_up.iter().filter(stays).cloned().collect();
            through = through.min(self.account_for(batch, &given_up, told, given, &mut leave).await?);
        }
        let Passed { through, done, skipped, records } = progress.pass(through);
        self.metrics.records_done.get_or_create(&self.labels).inc_by(done as u64);
        self.metrics.records_skipped.get_or_create(&self.labels).inc_by(skipped as u64);
        ledger.passed(batch, through, records, is_end);
        Ok(leave)
    }

    /// Tells of given-up records, `told` of which do not come again, and counts them. How far the checkpoint may go at most:
    /// what the guest returns when it is told may be all that is left of them.
    async fn account_for(
        &self,
        batch: &Batch,
        given_up: &[GivenUp],
        mut told: Vec<GivenUp>,
        given: Given,
        leave: &mut Option<Leave>,
    ) -> Result<usize, Leave> {
        let mut most = batch.len();
        if let Some(first) = told.first().map(|given_up| given_up.index)
            && let Err(why) = self.tell_given_up(batch, &told).await
        {
            if self.is_unaccounted(&why) {
                return Err(why);
            }
            *leave = Some(with(leave.take(), why));
            if !self.is_once() {
                most = first;
                told.clear();
            }
        }
        match (given, leave) {
            // They are counted by now.
            _ if self.is_once() => {}
            (Given::Stopped(_), Some(Leave::Stop(..))) => self.show_given_up(batch, given_up, given),
            // Whoever goes on with the shard stops there.
            (Given::Stopped(_), _) => {}
            _passed => self.show_given_up(batch, &told, given),
        }
        Ok(most)
    }

    /// What becomes of records that are given up, of which there are `count` in the batch by now. `None` while nothing is
    /// decided: whoever goes on with the shard tries them again, or more of the batch comes.
    async fn deal_with(
        &self,
        batch: &Batch,
        given_up: &[GivenUp],
        count: usize,
        leave: &mut Option<Leave>,
        is_end: bool,
    ) -> Result<Option<Given>, Leave> {
        let at_most_once = self.is_once();
        Ok(match self.decide(count, batch.len()) {
            Decision::Pass { tolerated: true, .. } if !is_end => None,
            Decision::Pass { store, tolerated } if leave.is_none() || at_most_once => {
                // Before any output: if they cannot be stored, the batch comes again.
                let stored = if store { self.store(batch, given_up).await } else { Ok(()) };
                match stored {
                    Ok(()) if tolerated => Some(Given::Tolerated { stored: store }),
                    Ok(()) => Some(Given::Passed(self.options.failure.then)),
                    Err(why) if why.is_at_once() => return Err(why),
                    Err(why) => {
                        *leave = Some(with(leave.take(), why));
                        at_most_once.then_some(Given::Lost)
                    }
                }
            }
            Decision::Stop(_) => match leave {
                Some(Leave::Stop(scope, _)) => Some(Given::Stopped(*scope)),
                // The rest was given up because the shard is left.
                _other => at_most_once.then_some(Given::Lost),
            },
            Decision::Pass { .. } => None,
        })
    }

    /// Whether nothing more is said of a batch that is left for this reason: whoever has the shard then begins at the
    /// checkpoint. At most once that is behind the batch.
    fn is_unaccounted(&self, leave: &Leave) -> bool {
        leave.is_at_once() && !self.is_once()
    }

    /// Sends what records of a batch have caused.
    pub(super) async fn send(&self, outputs: Vec<Caused>, batch: &Batch) -> Sent {
        if outputs.is_empty() {
            return Sent::default();
        }
        self.scene.doing(Activity::Sending);
        let spans = outputs.iter().map(Caused::span).collect();
        let sent = tokio::select! {
            biased;
            leave = self.scene.cut_off() => Sent::none(leave, spans),
            sent = self.destinations.send(outputs, batch, &self.scene) => sent,
        };
        self.metrics.outputs.get_or_create(&self.labels).inc_by(sent.count as u64);
        sent
    }

    /// Counts and tells what a batch that has come to no orderly end takes with it where nobody tries it again.
    pub(super) fn lose(&self, batch: &Batch, mut progress: BatchProgress) {
        if self.is_once() {
            progress.lose_waiting(UNSENT);
            progress.give_up_rest(LEFT);
            let lost: Vec<GivenUp> = progress.given_up().collect();
            self.show_given_up(batch, &lost, Given::Lost);
        }
        let dropped = progress.waiting_outputs() as u64;
        self.metrics.outputs_dropped.get_or_create(&self.labels).inc_by(dropped);
    }
}

/// There is one more reason to leave.
fn with(leave: Option<Leave>, more: Leave) -> Leave {
    match leave {
        Some(leave) => leave.or_worse(more),
        None => more,
    }
}
