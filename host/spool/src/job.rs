//! What the handles ask of the thread.

use std::collections::BTreeMap;
use std::sync::Arc;

use shardmill_record::UserRecord;
use tokio::sync::oneshot;

use crate::database::{Aside, Selection, Spooled};
use crate::{Error, Id};

pub(crate) type Reply<T> = oneshot::Sender<Result<T, Error>>;

pub(crate) enum Job {
    Store(Store),
    Front { stream: String, records: usize, bytes: u64, done: Reply<Vec<Spooled>> },
    Remove { ids: Vec<Id>, done: Reply<u64> },
    SetAside { id: Id, reason: String, done: Reply<bool> },
    TakeBack { stream: Option<String>, after: u64, done: Reply<Option<u64>> },
    Aside { after: u64, limit: usize, done: Reply<Vec<Aside>> },
    Count { selection: Selection, done: Reply<BTreeMap<String, (u64, u64)>> },
    Discard { selection: Selection, done: Reply<BTreeMap<String, u64>> },
    Close { done: Reply<()> },
}

/// Records that are to be stored.
pub(crate) struct Store {
    pub(crate) stream: Arc<str>,
    /// Shared with the caller, who gets back what is not stored whatever happens.
    pub(crate) records: Arc<Vec<UserRecord>>,
    /// How many of them are stored.
    pub(crate) next: usize,
    /// What came of it; with an error, how many are stored all the same.
    pub(crate) done: oneshot::Sender<Result<(), (usize, Error)>>,
}
