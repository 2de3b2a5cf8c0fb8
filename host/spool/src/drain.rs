//! Sending what is in a spool: what becomes of a batch.

use shardmill_record::UserRecord;

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
    /// Why.
    pub error: Option<E>,
}

/// What to do with the records of a batch.
#[derive(Debug, PartialEq, Eq)]
struct Settled<E> {
    remove: Vec<Id>,
    set_aside: Vec<(Id, String)>,
    kept: usize,
    error: Option<E>,
}

/// Sends the first records of a stream once. What is stored in the stream is removed from the spool, what the stream will
/// never take is set aside, and the rest stays where it is. Without records, `send` is not called, and everything that
/// comes back is 0.
///
/// `send` has to keep the order of records of a key: where one is not sent, no later one of its key is.
///
/// # Errors
/// If the spool cannot be read or written. What was sent and could not be removed is not sent again by this process.
///
/// # Cancellation
/// If this is dropped while `send` is at work, what it sends stays in the spool and is sent again.
pub async fn drain_once<E, A: Into<Answer<E>>>(
    spool: &Spool,
    stream: &str,
    batch: Batch,
    send: impl AsyncFnOnce(Vec<UserRecord>) -> A,
) -> Result<Drained<E>, Error> {
    let front = spool.front(stream, batch.records, batch.bytes).await?;
    if front.is_empty() {
        return Ok(Drained { sent: 0, set_aside: 0, kept: 0, error: None });
    }
    let (ids, records): (Vec<Id>, Vec<UserRecord>) =
        front.into_iter().map(|spooled| (spooled.id, spooled.record)).unzip();
    let settled = settle(ids, send(records).await.into());
    let sent = settled.remove.len();
    spool.remove(settled.remove).await?;
    let set_aside = settled.set_aside.len();
    for (id, reason) in settled.set_aside {
        spool.set_aside(id, reason).await?;
    }
    Ok(Drained { sent, set_aside, kept: settled.kept, error: settled.error })
}

fn settle<E>(ids: Vec<Id>, answer: Answer<E>) -> Settled<E> {
    let (fates, error) = match answer {
        Answer::Sent => return Settled { remove: ids, set_aside: Vec::new(), kept: 0, error: None },
        Answer::Partly(fates, error) => (fates, error),
    };
    let mut settled = Settled { remove: Vec::new(), set_aside: Vec::new(), kept: 0, error };
    let missing = std::iter::repeat_with(|| Fate::Kept);
    for (id, fate) in ids.into_iter().zip(fates.into_iter().chain(missing)) {
        match fate {
            Fate::Sent => settled.remove.push(id),
            Fate::Kept => settled.kept += 1,
            Fate::Refused(reason) => settled.set_aside.push((id, reason)),
        }
    }
    settled
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
        assert_eq!(settled, Settled { remove: ids(1..=3), set_aside: Vec::new(), kept: 0, error: None });
        let settled = settle(ids(1..=3), Err("no").into());
        assert_eq!(settled, Settled { remove: Vec::new(), set_aside: Vec::new(), kept: 3, error: Some("no") });
        let fates = vec![Fate::Sent, Fate::Refused("too large".to_owned()), Fate::Kept, Fate::Sent];
        let settled = settle(ids(1..=6), Answer::Partly(fates, Some("no")));
        let set_aside = vec![(ids([2])[0], "too large".to_owned())];
        assert_eq!(settled, Settled { remove: ids([1, 4]), set_aside, kept: 3, error: Some("no") });
        // More fates than records say nothing.
        let settled = settle(ids([1]), Answer::<&str>::Partly(vec![Fate::Kept, Fate::Sent], None));
        assert_eq!((settled.remove.len(), settled.kept), (0, 1));
    }
}
