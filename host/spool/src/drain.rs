//! Sending what is in a spool: what becomes of a batch.

use shardmill_record::UserRecord;

use crate::job::Front;
use crate::{Error, Id, Spool};

/// How much is sent at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch {
    /// At most so many records.
    pub records: usize,
    /// At most so many bytes of partition keys and payloads, but one record at least.
    pub bytes: u64,
}

/// What became of one record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It is stored in its stream.
    Sent,
    /// It may be sent again.
    Kept,
    /// Its stream will never take it, for this reason.
    Refused(String),
}

/// What became of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer<E> {
    /// All of it is stored.
    Sent,
    /// One fate for each record, in their order; what is missing counts as kept. And why it is not all, where that is not
    /// the single records' fault.
    Partly(Vec<Fate>, Option<E>),
}

/// What came of one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drained<E> {
    /// Records that were sent, and removed from the spool.
    pub sent: usize,
    /// Records that were set aside.
    pub set_aside: usize,
    /// Records that were handed over to be sent and stay.
    pub kept: usize,
    /// The first of those.
    pub first_kept: Option<Id>,
    /// Why.
    pub error: Option<E>,
}

/// How many records go at a time: fewer where a service refuses what is sent because of what is in it, until the one is
/// found that is the cause. Pure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pacing {
    most: usize,
    at_once: usize,
}

/// What to do after an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The next one.
    Go,
    /// Nothing was handed over: wait until something is there.
    Wait,
    /// The service takes no request that has this record in it: set it aside, and go on.
    SetAside(Id),
    /// It failed, and not because of the records: somebody or time has to mend something.
    Pause,
}

/// What to do with the records of a batch.
#[derive(Debug, PartialEq, Eq)]
struct Settled<E> {
    remove: Vec<Id>,
    set_aside: Vec<(Id, String)>,
    kept: Vec<Id>,
    error: Option<E>,
}

/// What [`Sender::drain_once`](crate::Sender::drain_once) does.
pub(crate) async fn drain_once<E, A: Into<Answer<E>>>(
    spool: &Spool,
    stream: &str,
    batch: Batch,
    send: impl AsyncFnOnce(Vec<UserRecord>) -> A,
) -> Result<Drained<E>, Error> {
    let Front { records, damaged } = spool.whole_front(stream, batch.records, batch.bytes).await?;
    if records.is_empty() {
        return Ok(Drained { sent: 0, set_aside: damaged, kept: 0, first_kept: None, error: None });
    }
    let (ids, records): (Vec<Id>, Vec<UserRecord>) =
        records.into_iter().map(|spooled| (spooled.id, spooled.record)).unzip();
    let Settled { remove, set_aside: refused, kept, error } = settle(ids, send(records).await.into());
    let sent = remove.len();
    spool.remove(remove).await?;
    let set_aside = damaged + refused.len();
    for (id, reason) in refused {
        spool.set_aside(id, reason).await?;
    }
    Ok(Drained { sent, set_aside, kept: kept.len(), first_kept: kept.first().copied(), error })
}

fn settle<E>(ids: Vec<Id>, answer: Answer<E>) -> Settled<E> {
    let (fates, error) = match answer {
        Answer::Sent => return Settled { remove: ids, set_aside: Vec::new(), kept: Vec::new(), error: None },
        Answer::Partly(fates, error) => (fates, error),
    };
    let mut settled = Settled { remove: Vec::new(), set_aside: Vec::new(), kept: Vec::new(), error };
    let missing = std::iter::repeat_with(|| Fate::Kept);
    for (id, fate) in ids.into_iter().zip(fates.into_iter().chain(missing)) {
        match fate {
            Fate::Sent => settled.remove.push(id),
            Fate::Kept => settled.kept.push(id),
            Fate::Refused(reason) => settled.set_aside.push((id, reason)),
        }
    }
    settled
}

// === impl Pacing ===

impl Pacing {
    /// At most so many records at a time, and one at least.
    pub fn new(most: usize) -> Self {
        Self { most: most.max(1), at_once: most.max(1) }
    }

    /// How many records to send next.
    pub fn at_once(&self) -> usize {
        self.at_once
    }

    /// Takes what came of an attempt, and says what is next. `is_about_records` says of an error whether the service
    /// refused what was sent, and not the stream or who sends.
    pub fn taken<E>(&mut self, drained: &Drained<E>, is_about_records: impl FnOnce(&E) -> bool) -> Next {
        let Drained { sent, set_aside, kept, first_kept, error } = drained;
        match (error, first_kept) {
            (Some(error), Some(first)) if is_about_records(error) => {
                let handed = sent + set_aside + kept;
                if handed > 1 {
                    self.at_once = (handed / 2).max(1);
                    Next::Go
                } else {
                    Next::SetAside(*first)
                }
            }
            (Some(_), _) => Next::Pause,
            (None, _) if sent + set_aside + kept == 0 => Next::Wait,
            (None, _) => {
                self.at_once = self.at_once.saturating_mul(2).min(self.most);
                Next::Go
            }
        }
    }
}

// === impl Batch ===

impl Default for Batch {
    /// As much as one PutRecords takes in entries, and 4 MiB.
    fn default() -> Self {
        Self { records: 500, bytes: 4 << 20 }
    }
}

// === impl Answer ===

impl<E> From<Result<(), E>> for Answer<E> {
    /// All of it, or nothing.
    fn from(result: Result<(), E>) -> Self {
        match result {
            Ok(()) => Self::Sent,
            Err(error) => Self::Partly(Vec::new(), Some(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(numbers: impl IntoIterator<Item = u64>) -> Vec<Id> {
        numbers.into_iter().map(|number| Id { number, stream: 1, bytes: 10 }).collect()
    }

    #[test]
    fn each_record_has_its_fate_and_what_is_not_told_stays() {
        let settled = settle(ids(1..=3), Answer::<&str>::Sent);
        assert_eq!(settled, Settled { remove: ids(1..=3), set_aside: Vec::new(), kept: Vec::new(), error: None });
        let settled = settle(ids(1..=3), Err("no").into());
        let all_kept = Settled { remove: Vec::new(), set_aside: Vec::new(), kept: ids(1..=3), error: Some("no") };
        assert_eq!(settled, all_kept);
        let fates = vec![Fate::Sent, Fate::Refused("too large".to_owned()), Fate::Kept, Fate::Sent];
        let settled = settle(ids(1..=6), Answer::Partly(fates, Some("no")));
        let set_aside = vec![(ids([2])[0], "too large".to_owned())];
        assert_eq!(settled, Settled { remove: ids([1, 4]), set_aside, kept: ids([3, 5, 6]), error: Some("no") });
        // More fates than records say nothing.
        let settled = settle(ids([1]), Answer::<&str>::Partly(vec![Fate::Kept, Fate::Sent], None));
        assert_eq!((settled.remove.len(), settled.kept.len()), (0, 1));
    }

    /// A stream that refuses any request with one of these numbers in it loses nothing else, whatever the pacing.
    #[test]
    fn the_records_that_a_service_refuses_are_found_and_nothing_else_is_set_aside() {
        for poison in [vec![], vec![1], vec![100], vec![37, 38, 90], (1..=100).collect::<Vec<u64>>()] {
            let mut left: Vec<u64> = (1..=100).collect();
            let (mut pacing, mut aside, mut sent, mut attempts) = (Pacing::new(64), Vec::new(), 0, 0);
            loop {
                attempts += 1;
                assert!(attempts < 1000, "it comes to no end");
                let batch: Vec<u64> = left.iter().take(pacing.at_once()).copied().collect();
                let is_refused = batch.iter().any(|number| poison.contains(number));
                let first_kept = is_refused.then(|| ids([batch[0]])[0]);
                let (gone, kept) = if is_refused { (0, batch.len()) } else { (batch.len(), 0) };
                let error = is_refused.then_some("invalid");
                let drained = Drained { sent: gone, set_aside: 0, kept, first_kept, error };
                left.drain(..gone);
                sent += gone;
                match pacing.taken(&drained, |_error| true) {
                    Next::Go => {}
                    Next::SetAside(id) => {
                        aside.push(id.number);
                        left.retain(|number| *number != id.number);
                    }
                    Next::Wait => break,
                    Next::Pause => unreachable!("all errors are about records"),
                }
            }
            assert_eq!((aside, sent), (poison.clone(), 100 - poison.len()));
        }
    }

    #[test]
    fn other_failures_set_nothing_aside() {
        let first = ids([1])[0];
        let failed = Drained { sent: 0, set_aside: 0, kept: 1, first_kept: Some(first), error: Some("no permission") };
        let mut pacing = Pacing::new(8);
        assert_eq!((pacing.taken(&failed, |_error| false), pacing.at_once()), (Next::Pause, 8));
        let stopped = Drained { sent: 1, set_aside: 0, kept: 0, first_kept: None, error: Some("stopped") };
        assert_eq!(pacing.taken(&stopped, |_error| true), Next::Pause);
        assert_eq!(pacing.taken(&failed, |_error| true), Next::SetAside(first));
    }
}
