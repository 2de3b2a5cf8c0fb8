use std::sync::Arc;

use shardmill_record::{HashKey, UserRecord};
use tokio::time::Instant;

use crate::Reason;
use crate::answer::{Failure, Stored};

/// A user record on its way. `T` is whom to tell what becomes of it.
#[derive(Debug)]
pub(crate) struct Item<T> {
    /// Grows from record to record: their order.
    pub(crate) id: u64,
    pub(crate) record: UserRecord,
    /// The record's, which has been computed already.
    pub(crate) hash_key: HashKey,
    pub(crate) accepted: Instant,
    /// In how many requests it has been.
    pub(crate) attempts: u32,
    /// Whether the answer to the last of them was lost.
    pub(crate) was_lost: bool,
    /// Whether it may be stored twice: an answer was lost and it was sent again, or an aggregate took it to another shard.
    pub(crate) may_be_repeated: bool,
    /// With whom it may be sent.
    pub(crate) company: Company,
    /// Why it was not stored at the last attempt.
    pub(crate) failure: Option<Arc<Failure>>,
    pub(crate) ticket: T,
}

/// With whom a record may be sent. What was in bad company once goes alone from then on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Company {
    /// In an aggregate with others.
    Any,
    /// In a Kinesis record of its own: where the shards are not known, an aggregate would take it to a wrong one again.
    OwnRecord,
    /// In a request of its own: the service has refused one that it was in, and it is to be seen whose fault that was.
    OwnRequest,
}

/// Where a user record is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// Its Kinesis record, which it shares with others.
    pub(crate) stored: Arc<Stored>,
    pub(crate) sub_sequence_number: u64,
}

/// A user record that is done with.
#[derive(Debug)]
pub(crate) struct Resolved<T> {
    pub(crate) item: Item<T>,
    pub(crate) result: Result<Place, Reason>,
}

// === impl Item ===

impl<T> Item<T> {
    pub(crate) fn new(id: u64, record: UserRecord, hash_key: HashKey, accepted: Instant, ticket: T) -> Self {
        Self {
            id,
            record,
            hash_key,
            accepted,
            attempts: 0,
            was_lost: false,
            may_be_repeated: false,
            company: Company::Any,
            failure: None,
            ticket,
        }
    }

    /// Whether the service may have it although nobody has said so.
    pub(crate) fn may_be_stored(&self) -> bool {
        self.was_lost || self.may_be_repeated
    }
}
