//! What has become of the records of one batch, over all its attempts.

use shardmill_plugin::{Cause, Output, Settled, Verdict};

/// The records of one batch and the outputs that they have caused so far.
///
/// Outputs are kept until the batch is over and then go out in the order of the records that caused them: a record
/// that succeeds at its second attempt does not lose its place to a later one of its key.
#[derive(Debug)]
pub struct BatchProgress {
    records: Vec<RecordProgress>,
    outputs: Vec<Collected>,
    attempts_allowed: u32,
}

/// One record that will not be handed over again, though it is not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenUp {
    /// Its place in the batch.
    pub index: usize,
    /// What was said of it last.
    pub reason: String,
    /// How often it was handed over.
    pub attempts: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum RecordProgress {
    Pending { attempts: u32 },
    Done,
    Skipped,
    GivenUp { attempts: u32, reason: String },
}

#[derive(Debug)]
struct Collected {
    /// The record that the output must wait for; the batch's length for outputs of the batch as a whole.
    after: usize,
    output: Output,
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
    /// The first record that was skipped, and why.
    pub first_skip: Option<(usize, String)>,
    /// What was said of the first record that failed.
    pub first_reason: Option<String>,
}

// === impl BatchProgress ===

impl BatchProgress {
    /// For a batch of so many records, each handed over at most so often (1 or more).
    pub fn new(records: usize, attempts_allowed: u32) -> Self {
        Self {
            records: vec![RecordProgress::Pending { attempts: 0 }; records],
            outputs: Vec::new(),
            attempts_allowed: attempts_allowed.max(1),
        }
    }

    /// The records to hand over next, in order.
    pub fn pending(&self) -> Vec<usize> {
        let is_pending = |record: &RecordProgress| matches!(record, RecordProgress::Pending { .. });
        (0..self.records.len()).filter(|index| is_pending(&self.records[*index])).collect()
    }

    /// Takes over what a guest said of the records that it was handed.
    ///
    /// # Panics
    /// If `settled` is not about exactly the records `handed`; [`shardmill_plugin::Outcome::settle`] sees to that.
    pub fn apply(&mut self, handed: &[usize], settled: Settled) -> Applied {
        assert_eq!(handed.len(), settled.verdicts.len(), "one verdict for each record that was handed over");
        let mut applied = Applied::default();
        for (index, verdict) in handed.iter().copied().zip(settled.verdicts) {
            match verdict {
                Verdict::Done => {
                    applied.done += 1;
                    self.records[index] = RecordProgress::Done;
                }
                Verdict::Skipped { reason } => {
                    applied.skipped += 1;
                    applied.first_skip.get_or_insert((index, reason));
                    self.records[index] = RecordProgress::Skipped;
                }
                Verdict::Failed { reason, retry } => self.fail(index, reason, retry, &mut applied),
                Verdict::Unacknowledged => {
                    self.fail(index, "the guest did not acknowledge the record".to_owned(), true, &mut applied);
                }
            }
        }
        for output in settled.outputs {
            let after = match output.cause {
                Cause::Record(index) => handed[index as usize],
                Cause::Batch | Cause::Hook(_) => self.records.len(),
            };
            self.outputs.push(Collected { after, output });
        }
        applied
    }

    /// Counts a failed attempt of all the records that were handed over.
    pub fn fail_all(&mut self, handed: &[usize], reason: &str, retry: bool) -> Applied {
        let mut applied = Applied::default();
        for index in handed {
            self.fail(*index, reason.to_owned(), retry, &mut applied);
        }
        applied
    }

    fn fail(&mut self, index: usize, reason: String, retry: bool, applied: &mut Applied) {
        let RecordProgress::Pending { attempts } = &self.records[index] else { return };
        let attempts = attempts + 1;
        applied.failed += 1;
        if applied.first_reason.is_none() {
            applied.first_reason = Some(reason.clone());
        }
        self.records[index] = if retry && attempts < self.attempts_allowed {
            RecordProgress::Pending { attempts }
        } else {
            RecordProgress::GivenUp { attempts, reason }
        };
    }

    /// How many records at the front are done or skipped: the checkpoint may pass these.
    pub fn settled_prefix(&self) -> usize {
        let settled = |record: &&RecordProgress| matches!(record, RecordProgress::Done | RecordProgress::Skipped);
        self.records.iter().take_while(settled).count()
    }

    /// The first record that is given up.
    pub fn first_given_up(&self) -> Option<GivenUp> {
        self.given_up().next()
    }

    /// How many records at the front are done, and how many skipped.
    pub fn settled_counts(&self) -> (usize, usize) {
        let prefix = &self.records[..self.settled_prefix()];
        let done = prefix.iter().filter(|record| **record == RecordProgress::Done).count();
        (done, prefix.len() - done)
    }

    /// The records that are given up, in order.
    pub fn given_up(&self) -> impl Iterator<Item = GivenUp> {
        self.records.iter().enumerate().filter_map(|(index, record)| match record {
            RecordProgress::GivenUp { attempts, reason } => {
                Some(GivenUp { index, reason: reason.clone(), attempts: *attempts })
            }
            _other => None,
        })
    }

    /// The outputs of the settled prefix, in the order of their causes; those of the batch as a whole come last, and
    /// only when every record is settled. The others are dropped: their records will be processed again.
    pub fn into_outputs(self) -> Vec<Output> {
        let prefix = self.settled_prefix();
        let whole = prefix == self.records.len();
        let mut outputs = self.outputs;
        outputs.retain(|collected| collected.after < prefix || whole);
        outputs.sort_by_key(|collected| collected.after);
        outputs.into_iter().map(|collected| collected.output).collect()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;
    use shardmill_record::UserRecord;

    use super::*;

    const ATTEMPTS: u32 = 4;

    fn output(name: &str, cause: Cause) -> Output {
        let record = UserRecord { partition_key: "k".into(), explicit_hash_key: None, data: Bytes::new() };
        Output { name: name.into(), record, cause }
    }

    fn names(progress: BatchProgress) -> Vec<String> {
        progress.into_outputs().iter().map(|output| output.name.to_string()).collect()
    }

    fn settled(verdicts: Vec<Verdict>, outputs: Vec<Output>) -> Settled {
        Settled { verdicts, checkpoint: None, outputs, dropped_outputs: 0 }
    }

    fn failed() -> Verdict {
        Verdict::Failed { reason: "no".into(), retry: true }
    }

    #[test]
    fn an_output_of_a_second_attempt_keeps_its_record_s_place() {
        let mut progress = BatchProgress::new(3, ATTEMPTS);
        let outputs = vec![output("first", Cause::Record(0)), output("third", Cause::Record(2))];
        progress.apply(&[0, 1, 2], settled(vec![Verdict::Done, failed(), Verdict::Done], outputs));
        assert_eq!((progress.pending(), progress.settled_prefix()), (vec![1], 1));
        progress.apply(&[1], settled(vec![Verdict::Done], vec![output("second", Cause::Record(0))]));
        assert_eq!(names(progress), ["first", "second", "third"]);
    }

    #[test]
    fn what_stands_behind_a_record_that_is_given_up_is_not_sent() {
        let mut progress = BatchProgress::new(3, 1);
        let outputs =
            vec![output("first", Cause::Record(0)), output("third", Cause::Record(2)), output("batch", Cause::Batch)];
        let applied = progress.apply(&[0, 1, 2], settled(vec![Verdict::Done, failed(), Verdict::Done], outputs));
        assert_eq!((applied.done, applied.failed), (2, 1));
        let given_up = progress.first_given_up().unwrap();
        assert_eq!(given_up, GivenUp { index: 1, reason: "no".into(), attempts: 1 });
        assert_eq!(names(progress), ["first"]);
    }

    #[test]
    fn a_record_that_cannot_be_helped_gets_no_further_attempt() {
        let mut progress = BatchProgress::new(1, ATTEMPTS);
        let verdict = Verdict::Failed { reason: "not JSON".into(), retry: false };
        progress.apply(&[0], settled(vec![verdict], vec![]));
        assert_eq!(progress.first_given_up().map(|given_up| given_up.attempts), Some(1));
    }

    fn verdict() -> impl Strategy<Value = Verdict> {
        prop_oneof![
            3 => Just(Verdict::Done),
            1 => Just(Verdict::Skipped { reason: String::new() }),
            1 => Just(Verdict::Unacknowledged),
            2 => any::<bool>().prop_map(|retry| Verdict::Failed { reason: "no".into(), retry }),
        ]
    }

    proptest! {
        /// Whatever a guest says, every record ends as settled or given up, is never handed over after that, and is
        /// handed over no more often than allowed; and the outputs are those of the settled front, in order.
        #[test]
        fn every_record_comes_to_an_end(
            records in 1usize..12,
            said in proptest::collection::vec(proptest::collection::vec(verdict(), 12), 1..8),
            whole_fails in proptest::collection::vec(any::<bool>(), 8),
        ) {
            let mut progress = BatchProgress::new(records, ATTEMPTS);
            let mut handed_over = vec![0u32; records];
            let mut round = 0;
            loop {
                let handed = progress.pending();
                if handed.is_empty() {
                    break;
                }
                for index in &handed {
                    handed_over[*index] += 1;
                }
                if whole_fails[round % whole_fails.len()] {
                    progress.fail_all(&handed, "crash", true);
                } else {
                    let verdicts: Vec<_> = said[round % said.len()][..handed.len()].to_vec();
                    let outputs = (0..handed.len())
                        .filter(|place| matches!(verdicts[*place], Verdict::Done))
                        .map(|place| output(&handed[place].to_string(), Cause::Record(place as u32)))
                        .collect();
                    progress.apply(&handed, settled(verdicts, outputs));
                }
                round += 1;
                prop_assert!(round <= ATTEMPTS as usize);
            }
            prop_assert!(handed_over.iter().all(|times| (1..=ATTEMPTS).contains(times)));
            let prefix = progress.settled_prefix();
            prop_assert_eq!(prefix == records, progress.first_given_up().is_none());
            prop_assert_eq!(progress.first_given_up().map_or(records, |given_up| given_up.index), prefix);
            let sent: Vec<usize> = names(progress).iter().map(|name| name.parse().unwrap()).collect();
            prop_assert!(sent.windows(2).all(|pair| pair[0] < pair[1]));
            prop_assert!(sent.iter().all(|index| *index < prefix));
        }
    }
}
