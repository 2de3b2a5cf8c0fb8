//! What the handles ask of the thread.

use std::collections::BTreeMap;
use std::sync::Arc;

use shardmill_record::UserRecord;
use tokio::sync::oneshot;

use crate::database::{Aside, Selection, Spooled};
use crate::state::Storing;
use crate::{Error, Id};

pub(crate) type Reply<T> = oneshot::Sender<Result<T, Error>>;

pub(crate) enum Job {
    Store(Store),
    Front { stream: String, records: usize, bytes: u64, done: Reply<Front> },
    Remove { ids: Vec<Id>, done: Reply<u64> },
    SetAside { id: Id, reason: String, done: Reply<bool> },
    TakeBack { stream: Option<String>, after: u64, done: Reply<Option<TakenBack>> },
    Aside { after: u64, limit: usize, done: Reply<Vec<Aside>> },
    Count { selection: Selection, done: Reply<BTreeMap<String, (u64, u64)>> },
    Discard { selection: Selection, done: Reply<BTreeMap<String, u64>> },
    Close { done: Reply<()> },
}

/// What comes first of a stream.
#[derive(Debug)]
pub(crate) struct Front {
    pub(crate) records: Vec<Spooled>,
    /// Damaged records among them, which were set aside.
    pub(crate) damaged: usize,
}

/// Records that were set aside and wait again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TakenBack {
    pub(crate) records: u64,
    /// The number of the last one.
    pub(crate) last: u64,
}

/// Records that are to be stored.
pub(crate) struct Store {
    pub(crate) stream: Arc<str>,
    /// Shared with the caller, who gets back what is not stored whatever happens.
    pub(crate) records: Arc<Vec<UserRecord>>,
    /// How many of them are dealt with.
    pub(crate) next: usize,
    /// Which of those are not stored, and why.
    pub(crate) refused: Vec<Unstored>,
    /// Says that they are on their way, until they are stored or given back.
    pub(crate) storing: Option<Storing>,
    /// Which of them are not stored.
    pub(crate) done: oneshot::Sender<Vec<Unstored>>,
}

/// A record of a call, by its place there, and why it is not stored.
pub(crate) type Unstored = (usize, Arc<Error>);
