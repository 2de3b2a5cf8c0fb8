use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use shardmill_record::UserRecord;
use tokio::sync::Notify;

use super::Producer;
use super::losses::Quiet;
use crate::PutError;

/// What a full queue does with another record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Overflow {
    /// Whoever offers it waits.
    #[default]
    Wait,
    /// It is dropped.
    DropNewest,
    /// The record that has been in the queue for longest is dropped.
    DropOldest,
    /// It is refused.
    Fail,
}

/// What became of a record that was offered to a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Offered {
    /// It is in the queue.
    Queued,
    /// The queue was full and its policy dropped this record: the one that was offered, or the oldest, whose place it has
    /// taken.
    Dropped(UserRecord),
}

/// A bounded queue in front of a [`Producer`], for those who send for long and must not be held up: what happens when
/// it is full is up to them. Records leave it in order, and what becomes of them then is nobody's, as with
/// [`put`](Producer::put). Cheap to clone; all clones are one. When the last one is gone, what is in it is still handed
/// over; what cannot be, because the producer is closed or the runtime ends, counts as [given up](Producer::failures).
/// Its bound is in records, up to [`Options::record_max_bytes`](crate::Options::record_max_bytes) each.
#[derive(Debug, Clone)]
pub struct Queue(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    producer: Producer,
    capacity: usize,
    overflow: Overflow,
    state: Mutex<State>,
    /// For the task: there is something, or there will be nothing more.
    filled: Notify,
    /// For those who wait: there is room, or the queue is empty, or closed.
    emptied: Notify,
}

#[derive(Debug)]
struct State {
    records: VecDeque<UserRecord>,
    is_closed: bool,
    /// Whether the task is over, and hands over nothing more.
    is_over: bool,
    dropped: u64,
    drops: Quiet,
}

// === impl Queue ===

impl Queue {
    pub(super) fn start(producer: Producer, capacity: usize, overflow: Overflow) -> Self {
        let state =
            State { records: VecDeque::new(), is_closed: false, is_over: false, dropped: 0, drops: Quiet::default() };
        let shared = Arc::new(Shared {
            producer,
            capacity: capacity.max(1),
            overflow,
            state: Mutex::new(state),
            filled: Notify::new(),
            emptied: Notify::new(),
        });
        tokio::spawn(hand_over(Over(Arc::clone(&shared))));
        Self(Arc::new(Handle { shared }))
    }

    /// Puts a record into the queue, or does what its policy says. Only [`Overflow::Wait`] waits.
    ///
    /// # Errors
    /// [`PutError::Full`] under [`Overflow::Fail`]; [`PutError::Invalid`]; [`PutError::Closed`] if the queue or its producer
    /// is closed. All of them give the record back.
    ///
    /// # Cancellation
    /// If this is dropped, the record is not in the queue.
    pub async fn offer(&self, record: UserRecord) -> Result<Offered, PutError> {
        let shared = &self.0.shared;
        let (mut record, _) = shared.producer.shared().check(record)?;
        // Whoever offers without a pause lets others run now and then, the producer among them.
        tokio::task::coop::consume_budget().await;
        loop {
            // Before it is tried: room that is made in between counts.
            let emptied = shared.emptied.notified();
            match shared.offer(record) {
                Err(PutError::Full(back)) if shared.overflow == Overflow::Wait => record = back,
                done => return done,
            }
            emptied.await;
        }
    }

    /// How many records are in it.
    pub fn len(&self) -> usize {
        self.0.shared.state().records.len()
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many records were dropped because it was full.
    pub fn dropped(&self) -> u64 {
        self.0.shared.state().dropped
    }

    /// Takes nothing more, hands over what is in it, and gives back what the producer had no room for `within` this time.
    /// The producer stays open: close it afterwards.
    pub async fn close(&self, within: Duration) -> Vec<UserRecord> {
        let shared = &self.0.shared;
        shared.close();
        // What is left is seen below.
        let _ = tokio::time::timeout(within, shared.until_over()).await;
        let mut state = shared.state();
        state.is_over = true;
        let left = std::mem::take(&mut state.records).into();
        drop(state);
        shared.filled.notify_one();
        left
    }
}

/// When the task ends, also with its runtime, nobody hands over anything more.
struct Over(Arc<Shared>);

impl Drop for Over {
    fn drop(&mut self) {
        let mut state = self.0.state();
        (state.is_closed, state.is_over) = (true, true);
        drop(state);
        self.0.emptied.notify_waiters();
    }
}

/// The queue's task.
async fn hand_over(over: Over) {
    let shared = &over.0;
    loop {
        let room_made = shared.producer.shared().room_made.notified();
        match shared.hand_over() {
            Next::Over => return,
            Next::WaitForRecords => shared.filled.notified().await,
            Next::WaitForRoom => tokio::select! {
                () = room_made => {}
                () = shared.filled.notified() => {}
            },
        }
    }
}

enum Next {
    WaitForRecords,
    WaitForRoom,
    Over,
}

// === impl Shared ===

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn offer(&self, record: UserRecord) -> Result<Offered, PutError> {
        let mut state = self.state();
        if state.is_closed {
            return Err(PutError::Closed(record));
        }
        let mut dropped = None;
        if state.records.len() >= self.capacity {
            match self.overflow {
                Overflow::Wait | Overflow::Fail => return Err(PutError::Full(record)),
                Overflow::DropNewest => {
                    self.drops(&mut state);
                    return Ok(Offered::Dropped(record));
                }
                Overflow::DropOldest => {
                    self.drops(&mut state);
                    dropped = state.records.pop_front();
                }
            }
        }
        state.records.push_back(record);
        drop(state);
        self.filled.notify_one();
        Ok(dropped.map_or(Offered::Queued, Offered::Dropped))
    }

    fn drops(&self, state: &mut State) {
        state.dropped += 1;
        self.producer.shared().metrics.dropped();
        if state.drops.begins(tokio::time::Instant::now()) {
            tracing::warn!(
                stream = self.producer.stream(),
                capacity = self.capacity,
                "the queue before the producer is full; records are dropped"
            );
        }
    }

    /// Hands over as much as there is room for. A record is in the queue or in the producer at any time.
    fn hand_over(&self) -> Next {
        let mut state = self.state();
        while let Some(record) = state.records.pop_front() {
            match self.producer.try_put(record) {
                Ok(_) => {}
                Err(PutError::Full(record)) => {
                    state.records.push_front(record);
                    drop(state);
                    self.emptied.notify_waiters();
                    return Next::WaitForRoom;
                }
                // Nobody hands over what is left.
                Err(PutError::Closed(record)) => {
                    state.records.push_front(record);
                    (state.is_closed, state.is_over) = (true, true);
                    break;
                }
                Err(PutError::Invalid { .. }) => unreachable!("it was checked when it was offered"),
            }
        }
        state.is_over |= state.is_closed;
        if let Some(records) = state.drops.ends(tokio::time::Instant::now()) {
            let stream = self.producer.stream();
            tracing::info!(stream, records, "the queue before the producer has room again; so many were dropped");
        }
        let next = if state.is_over { Next::Over } else { Next::WaitForRecords };
        drop(state);
        self.emptied.notify_waiters();
        next
    }

    fn close(&self) {
        self.state().is_closed = true;
        self.filled.notify_one();
        self.emptied.notify_waiters();
    }

    async fn until_over(&self) {
        loop {
            let emptied = self.emptied.notified();
            if self.state().is_over {
                return;
            }
            emptied.await;
        }
    }
}

impl Drop for Shared {
    /// Whoever wanted to have back what is left has it.
    fn drop(&mut self) {
        let left = std::mem::take(&mut self.state.get_mut().unwrap_or_else(PoisonError::into_inner).records);
        if left.is_empty() {
            return;
        }
        let producer = self.producer.shared();
        for _ in &left {
            producer.loses();
        }
        let (stream, records) = (self.producer.stream(), left.len());
        tracing::warn!(stream, records, "records of a queue are given up: its producer was closed before it had them");
    }
}

// === impl Handle ===

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.close();
    }
}
