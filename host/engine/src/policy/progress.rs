//! What has become of the records of one batch, over all its attempts.

use std::sync::Arc;
use std::time::Duration;

use shardmill_plugin::{Cause, Settled, Verdict};

use super::{Caused, Outputs, Parts};

/// The records of one batch and the outputs that they have caused so far.
#[derive(Debug)]
pub struct BatchProgress {
    records: Vec<RecordProgress>,
    parts: Parts,
    outputs: Outputs,
    /// How many records at the front are passed.
    passed: usize,
    attempts_allowed: u32,
    bisect: bool,
    /// The plugin that the call was handed to that is being taken over.
    plugin: Option<Arc<str>>,
}

/// One record that will not be handed over again, though it is not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenUp {
    /// Its place in the batch.
    pub index: usize,
    /// What was said of it last.
    pub reason: String,
    /// How many attempts of it have failed: how often it was handed over, but for calls that failed with other records
    /// and were split.
    pub attempts: u32,
    /// Why it gets no further attempt.
    pub why: Why,
    /// The digest of the plugin that it was handed to last; `None` if that is nobody.
    pub plugin: Option<Arc<str>>,
}

/// Why a record gets no further attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It has had all that it may have.
    Attempts,
    /// The guest says that none can help.
    Final,
    /// It is too old.
    Age,
    /// The shard is left, and records are handed over at most once.
    Left,
}

#[derive(Debug, Clone)]
struct RecordProgress {
    standing: Standing,
    /// How often it was handed over.
    handed_over: u32,
    /// How many attempts have failed.
    attempts: u32,
    /// What was said of it last, if it has failed.
    reason: Option<Arc<str>>,
    /// The plugin that it was handed to last.
    plugin: Option<Arc<str>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Pending,
    Done,
    Skipped,
    GivenUp(Why),
    /// It is given up, and nothing waits for it.
    Passed(Why),
}

/// Records at a batch's front that are dealt with.
#[derive(Debug)]
pub struct Front {
    /// How many records of the batch are dealt with up to here, and nothing that they have caused waits behind these outputs.
    pub through: usize,
    /// What they have caused, in order, but for what was taken before.
    pub outputs: Vec<Caused>,
}

/// Records that the checkpoint may pass, behind those that it might before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passed {
    /// How many records of the batch may be passed by now.
    pub through: usize,
    /// How many are done.
    pub done: usize,
    /// How many are skipped.
    pub skipped: usize,
    /// How many there are in all: the others are given up and passed over.
    pub records: usize,
}

/// What one attempt changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Applied {
    /// Records that are done now.
    pub done: usize,
    /// Records that are skipped now.
    pub skipped: usize,
    /// Records that failed, whether or not they get another attempt.
    pub failed: usize,
    /// Whether the part was split: then the call failed, and no record has.
    pub split: bool,
    /// The first record that was skipped, and why.
    pub first_skip: Option<(usize, String)>,
    /// What was said of the first record that failed, or of the call.
    pub first_reason: Option<String>,
}

// === impl Why ===

impl Why {
    /// One word for the metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Attempts => "attempts",
            Self::Final => "final",
            Self::Age => "age",
            Self::Left => "left",
        }
    }
}

// === impl BatchProgress ===

impl BatchProgress {
    /// For a batch of so many records, each with so many attempts (1 or more). `bisect`: whether parts with which a call
    /// fails as a whole are split.
    pub fn new(records: usize, attempts_allowed: u32, bisect: bool) -> Self {
        let record =
            RecordProgress { standing: Standing::Pending, handed_over: 0, attempts: 0, reason: None, plugin: None };
        Self {
            records: vec![record; records],
            parts: Parts::new(records),
            outputs: Outputs::default(),
            passed: 0,
            attempts_allowed: attempts_allowed.max(1),
            bisect,
            plugin: None,
        }
    }

    /// Says, before what came of a call is taken over, which plugin the call was handed to, by its digest.
    pub(crate) fn handed_to(&mut self, plugin: Arc<str>) {
        self.plugin = Some(plugin);
    }

    /// The records to hand over next, in order; none when all are dealt with.
    pub fn next_part(&mut self) -> &[usize] {
        self.parts.next_part()
    }

    /// How often the records to hand over next have been handed over: the most of any of them.
    pub fn handed_over(&self) -> u32 {
        self.most(|record| record.handed_over)
    }

    /// How many attempts of the records to hand over next have failed: the most of any of them.
    pub fn attempts(&self) -> u32 {
        self.most(|record| record.attempts)
    }

    fn most(&self, count: impl Fn(&RecordProgress) -> u32) -> u32 {
        self.parts.in_hand().iter().map(|index| count(&self.records[*index])).max().unwrap_or(0)
    }

    /// Takes over what a guest said of the records that it was handed: those of [`next_part`](Self::next_part).
    ///
    /// # Panics
    /// If `settled` is not about exactly those records; [`shardmill_plugin::Outcome::settle`] sees to that.
    pub fn apply(&mut self, settled: Settled) -> Applied {
        let handed = self.hand_over();
        assert_eq!(handed.len(), settled.verdicts.len(), "one verdict for each record that was handed over");
        self.parts.is_sound();
        let mut applied = Applied::default();
        for (index, verdict) in handed.iter().copied().zip(settled.verdicts) {
            match verdict {
                Verdict::Done => {
                    applied.done += 1;
                    self.records[index].standing = Standing::Done;
                }
                Verdict::Skipped { reason } => {
                    applied.skipped += 1;
                    applied.first_skip.get_or_insert((index, reason));
                    self.records[index].standing = Standing::Skipped;
                }
                Verdict::Failed { reason, retry } => self.fail(index, &reason.into(), retry, &mut applied),
                Verdict::Unacknowledged => {
                    self.fail(index, &"the guest did not acknowledge the record".into(), true, &mut applied);
                }
            }
        }
        let is_done = |index: &&usize| matches!(self.records[**index].standing, Standing::Done | Standing::Skipped);
        // Where it deals with none, an output of the call goes the way of all of them.
        let first = handed.iter().find(is_done).or(handed.first()).copied().unwrap_or_default();
        let last = handed.iter().rfind(is_done).or(handed.last()).copied().unwrap_or_default();
        for output in settled.outputs {
            match output.cause {
                Cause::Record(index) => self.outputs.of_record(handed[index as usize], output),
                Cause::Batch | Cause::Hook(_) => self.outputs.of_call([first, last], output),
            }
        }
        self.retain_in_hand();
        applied
    }

    /// Takes over that the call failed as a whole: the records of [`next_part`](Self::next_part) are split if that is
    /// wanted and possible, and else an attempt of each has failed. `suspect`: the one to blame, by its place among
    /// them, where that is known.
    pub fn spoil(&mut self, reason: &str, retry: bool, suspect: Option<usize>) -> Applied {
        let handed = self.hand_over();
        self.parts.is_spoiled();
        if self.bisect && handed.len() > 1 {
            self.parts.split(suspect);
            return Applied { split: true, first_reason: Some(reason.to_owned()), ..Applied::default() };
        }
        let mut applied = Applied::default();
        let reason: Arc<str> = reason.into();
        for index in handed {
            self.fail(index, &reason, retry, &mut applied);
        }
        self.retain_in_hand();
        applied
    }

    /// Gives up a record that nobody is to see, for this reason.
    pub fn refuse(&mut self, index: usize, reason: &str) {
        let record = &mut self.records[index];
        (record.standing, record.reason) = (Standing::GivenUp(Why::Final), Some(reason.into()));
        self.parts.retain(|index| self.records[index].standing == Standing::Pending);
    }

    /// Gives up the records that have failed and are older than `max_age`. `age`: of the record at an index.
    pub fn expire(&mut self, max_age: Duration, age: impl Fn(usize) -> Duration) {
        for (index, record) in self.records.iter_mut().enumerate() {
            if record.standing == Standing::Pending && record.attempts > 0 && age(index) > max_age {
                let last = record.reason.take().unwrap_or_default();
                record.reason =
                    Some(format!("it is older than {max_age:?} (`max-age`), and has failed: {last}").into());
                record.standing = Standing::GivenUp(Why::Age);
            }
        }
        self.parts.retain(|index| self.records[index].standing == Standing::Pending);
    }

    fn hand_over(&mut self) -> Vec<usize> {
        let handed = self.parts.next_part().to_vec();
        for index in &handed {
            let record = &mut self.records[*index];
            record.handed_over += 1;
            record.plugin.clone_from(&self.plugin);
        }
        handed
    }

    fn fail(&mut self, index: usize, reason: &Arc<str>, retry: bool, applied: &mut Applied) {
        let record = &mut self.records[index];
        record.attempts += 1;
        record.reason = Some(Arc::clone(reason));
        applied.failed += 1;
        applied.first_reason.get_or_insert_with(|| reason.as_ref().to_owned());
        if !retry {
            record.standing = Standing::GivenUp(Why::Final);
        } else if record.attempts >= self.attempts_allowed {
            record.standing = Standing::GivenUp(Why::Attempts);
        }
    }

    fn retain_in_hand(&mut self) {
        self.parts.retain_in_hand(|index| self.records[index].standing == Standing::Pending);
    }

    /// Lets the batch go on as if the records that are given up were done: the failure policy has dealt with them.
    pub fn pass_given_up(&mut self) {
        for record in &mut self.records {
            if let Standing::GivenUp(why) = record.standing {
                record.standing = Standing::Passed(why);
            }
        }
    }

    /// How many records at the front are dealt with: the checkpoint may pass these.
    pub(crate) fn settled_prefix(&self) -> usize {
        let settled = |record: &&RecordProgress| !matches!(record.standing, Standing::Pending | Standing::GivenUp(_));
        self.records.iter().take_while(settled).count()
    }

    /// How many records are given up, whether or not they are passed over.
    pub(crate) fn given_up_count(&self) -> usize {
        let given_up = |record: &&RecordProgress| matches!(record.standing, Standing::GivenUp(_) | Standing::Passed(_));
        self.records.iter().filter(given_up).count()
    }

    /// The records that are given up and not passed over, in order.
    pub fn given_up(&self) -> impl Iterator<Item = GivenUp> {
        self.records.iter().enumerate().filter_map(|(index, record)| match record.standing {
            Standing::GivenUp(why) => {
                let reason = record.reason.as_deref().unwrap_or_default().to_owned();
                Some(GivenUp { index, reason, attempts: record.attempts, why, plugin: record.plugin.clone() })
            }
            _other => None,
        })
    }

    /// Gives up what is not dealt with, because nobody will try it again.
    pub fn give_up_rest(&mut self, reason: &str) {
        let reason: Arc<str> = reason.into();
        for record in self.records.iter_mut().filter(|record| record.standing == Standing::Pending) {
            record.reason = Some(match &record.reason {
                Some(last) => format!("{reason}; it had failed: {last}").into(),
                None => Arc::clone(&reason),
            });
            record.standing = Standing::GivenUp(Why::Left);
        }
        self.parts.retain(|_| false);
    }

    /// Takes back that records are done, because nobody knows what has become of what they have caused: of each output, the
    /// first and the last record of it.
    pub(crate) fn lose(&mut self, spans: &[[usize; 2]], reason: &str) {
        let reason: Arc<str> = reason.into();
        // Many outputs of calls may span the same records.
        let mut open = vec![0_isize; self.records.len() + 1];
        for [first, last] in spans {
            open[*first] += 1;
            open[*last + 1] -= 1;
        }
        let mut depth = 0;
        for (record, change) in self.records.iter_mut().zip(open) {
            depth += change;
            // Of one that is given up it is said already.
            if depth > 0 && matches!(record.standing, Standing::Done | Standing::Skipped) {
                (record.standing, record.reason) = (Standing::GivenUp(Why::Left), Some(Arc::clone(&reason)));
            }
        }
    }

    /// The same of what waits and is not going to be sent.
    pub(crate) fn lose_waiting(&mut self, reason: &str) {
        self.lose(&self.outputs.spans().collect::<Vec<_>>(), reason);
    }

    /// Bytes of the outputs that wait.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.outputs.bytes()
    }

    /// How many outputs wait.
    pub(crate) fn waiting_outputs(&self) -> usize {
        self.outputs.len()
    }

    /// The records that are dealt with at the front, and what they have caused. `leaving`: whether what is behind them is
    /// handed over in another batch, if at all.
    pub fn take_front(&mut self, leaving: bool) -> Front {
        let settled = self.settled_prefix();
        let outputs = self.outputs.take(settled, leaving);
        // What a call has caused may wait for its later records. Were its first ones passed now, it would be missing after a
        // crash: they are not processed again.
        let through = self.outputs.spans().map(|[first, _]| first).chain([settled]).min().unwrap_or(settled);
        Front { through, outputs }
    }

    /// Takes over that what the first `through` records have caused is where it belongs; they are dealt with.
    pub fn pass(&mut self, through: usize) -> Passed {
        let records = self.records.get(self.passed..through).unwrap_or_default();
        let count = |standing| records.iter().filter(|record| record.standing == standing).count();
        let (done, skipped, records) = (count(Standing::Done), count(Standing::Skipped), records.len());
        self.passed = self.passed.max(through);
        Passed { through: self.passed, done, skipped, records }
    }
}
