use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use shardmill_record::{HashKey, UserRecord};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::Left;
use super::pending::{Pending, Ticket};
use super::room::Room;
use crate::limits::{MAX_ENTRIES, size, validate};
use crate::metrics::StreamMetrics;
use crate::plan::Item;
use crate::{MessageId, Options, PutError, Reason};

/// What handles and the driver have in common. The lock is held for a few instructions, and never while anything is
/// waited for.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) stream: Arc<str>,
    pub(super) metrics: Arc<StreamMetrics>,
    record_max_bytes: usize,
    /// How long a record may wait for others.
    buffer_time: Duration,
    /// When so much is in the inbox, there may be enough for an aggregate.
    enough: usize,
    state: Mutex<State>,
    /// For the driver: something was put, or is wanted.
    pub(super) work: Notify,
    /// For who waits for room: there is some, or there will be none any more.
    pub(super) room_made: Notify,
    failures: AtomicU64,
    /// What the driver has left, until somebody who closes is told.
    left: Mutex<Option<Left>>,
    /// Who waits for room waits here for the first of them, so that a large record is not overtaken by small ones for ever.
    turn: tokio::sync::Mutex<()>,
    waiting: AtomicUsize,
}

#[derive(Debug)]
struct State {
    room: Room,
    /// Accepted and not yet seen by the driver, in order.
    inbox: Vec<Item<Ticket>>,
    inbox_bytes: usize,
    /// Until when the driver rests, if it does; `None` inside if it waits for something to happen.
    rests: Option<Option<Instant>>,
    commands: Vec<Command>,
    next_id: u64,
    /// Records below it were hurried because there was no room.
    hurried_below: u64,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    /// Nothing is accepted any more.
    Closed,
    /// The driver is gone.
    Ended,
}

/// What handles want of the driver.
#[derive(Debug)]
pub(super) enum Command {
    /// That records below this id are sent at once, and to be told when all of them are resolved.
    Flush { below: u64, done: Option<oneshot::Sender<()>> },
    /// To end when everything is resolved, or at this time.
    Close { deadline: Option<Instant>, done: oneshot::Sender<()> },
}

/// What the driver finds.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) commands: Vec<Command>,
    /// Records that are accepted and not resolved.
    pub(super) pending: usize,
    /// Above all ids.
    pub(super) next_id: u64,
    pub(super) is_closed: bool,
}

/// The first of those who wait for room.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    shared: &'a Shared,
    guard: Option<tokio::sync::MutexGuard<'a, ()>>,
}

// === impl Turn ===

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.shared.waiting.fetch_sub(1, Relaxed);
        self.guard.take();
    }
}

// === impl Shared ===

impl Shared {
    pub(super) fn new(stream: Arc<str>, options: &Options, metrics: Arc<StreamMetrics>) -> Self {
        let state = State {
            room: Room::new(options.pending_max_records, options.pending_max_bytes),
            inbox: Vec::new(),
            inbox_bytes: 0,
            rests: None,
            commands: Vec::new(),
            next_id: 0,
            hurried_below: 0,
            phase: Phase::Open,
        };
        Self {
            stream,
            metrics,
            record_max_bytes: options.record_max_bytes,
            buffer_time: options.buffer_time,
            enough: options.aggregate_max_bytes,
            state: Mutex::new(state),
            work: Notify::new(),
            room_made: Notify::new(),
            failures: AtomicU64::new(0),
            left: Mutex::new(None),
            turn: tokio::sync::Mutex::new(()),
            waiting: AtomicUsize::new(0),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The record and its hash key, if it can be sent.
    pub(super) fn check(&self, record: UserRecord) -> Result<(UserRecord, HashKey), PutError> {
        match validate(&record, self.record_max_bytes) {
            Ok(()) => {
                let hash_key = record.hash_key();
                Ok((record, hash_key))
            }
            Err(reason) => Err(PutError::Invalid { record, reason }),
        }
    }

    /// Takes a record in whose result is nobody's.
    pub(super) fn accept(&self, record: UserRecord, hash_key: HashKey) -> Result<MessageId, PutError> {
        self.accept_with(record, hash_key, |_| ((), None)).map(|(id, ())| id)
    }

    /// Takes a record in whose result somebody waits for.
    pub(super) fn accept_pending(&self, record: UserRecord, hash_key: HashKey) -> Result<Pending, PutError> {
        self.accept_with(record, hash_key, Pending::new).map(|(_, pending)| pending)
    }

    fn accept_with<T>(
        &self,
        record: UserRecord,
        hash_key: HashKey,
        ticket: impl FnOnce(MessageId) -> (T, Ticket),
    ) -> Result<(MessageId, T), PutError> {
        let accepted = Instant::now();
        let mut state = self.state();
        if state.phase != Phase::Open {
            return Err(PutError::Closed(record));
        }
        let bytes = size(&record);
        if !state.room.take(bytes) {
            // There is room when something is acknowledged, so nothing waits for others any more.
            if state.hurried_below < state.next_id {
                state.hurried_below = state.next_id;
                let below = state.next_id;
                state.commands.push(Command::Flush { below, done: None });
                drop(state);
                self.work.notify_one();
            }
            return Err(PutError::Full(record));
        }
        let id = state.next_id;
        state.next_id += 1;
        let (waits, ticket) = ticket(MessageId(id));
        state.inbox.push(Item::new(id, record, hash_key, accepted, ticket));
        state.inbox_bytes += bytes;
        let is_urgent = self.is_urgent(&state, accepted);
        if is_urgent {
            state.rests = None;
        }
        drop(state);
        if is_urgent {
            self.work.notify_one();
        }
        Ok((MessageId(id), waits))
    }

    /// Whether the driver must not rest any more, now that a record is there. It need not be told of each one: a record may
    /// wait for others, and waking a task costs more than accepting a record.
    fn is_urgent(&self, state: &State, accepted: Instant) -> bool {
        let Some(until) = state.rests else { return false };
        let is_too_late = until.is_none_or(|until| until > accepted + self.buffer_time);
        is_too_late || state.inbox_bytes >= self.enough || state.inbox.len() >= MAX_ENTRIES
    }

    /// The driver has nothing to do before this time. Whether that is so: something may have come in meanwhile.
    pub(super) fn rest(&self, until: Option<Instant>) -> bool {
        let mut state = self.state();
        let is_idle = state.inbox.is_empty() && state.commands.is_empty();
        state.rests = is_idle.then_some(until);
        is_idle
    }

    /// Whether there is a driver that will do it.
    pub(super) fn command(&self, command: impl FnOnce(u64) -> Command) -> bool {
        let mut state = self.state();
        if state.phase == Phase::Ended {
            return false;
        }
        let command = command(state.next_id);
        let closes = matches!(command, Command::Close { .. });
        if closes {
            state.phase = Phase::Closed;
        }
        state.commands.push(command);
        drop(state);
        self.work.notify_one();
        if closes {
            // There will be no room any more.
            self.room_made.notify_waiters();
        }
        true
    }

    /// Nobody will put anything any more.
    pub(super) fn abandon(&self) {
        let mut state = self.state();
        if state.phase == Phase::Open {
            state.phase = Phase::Closed;
        }
        drop(state);
        self.work.notify_one();
    }

    /// Moves what was accepted into the driver's empty hands, and says what else there is.
    pub(super) fn take_work(&self, inbox: &mut Vec<Item<Ticket>>) -> Work {
        let mut state = self.state();
        std::mem::swap(inbox, &mut state.inbox);
        state.inbox_bytes = 0;
        state.rests = None;
        Work {
            commands: std::mem::take(&mut state.commands),
            pending: state.room.records(),
            next_id: state.next_id,
            is_closed: state.phase != Phase::Open,
        }
    }

    /// Makes room.
    pub(super) fn release(&self, records: usize, bytes: usize) {
        let is_reopened = self.state().room.give_back(records, bytes);
        if is_reopened {
            self.room_made.notify_waiters();
        }
    }

    /// What the driver has left.
    pub(super) fn leaves(&self, left: Left) {
        *self.left.lock().unwrap_or_else(PoisonError::into_inner) = Some(left);
    }

    /// The same, for the first who asks.
    pub(super) fn take_left(&self) -> Left {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default()
    }

    /// Whether somebody waits for room.
    pub(super) fn is_awaited(&self) -> bool {
        self.waiting.load(Relaxed) > 0
    }

    /// Waits until all are served who waited for room before.
    pub(super) async fn turn(&self) -> Turn<'_> {
        self.waiting.fetch_add(1, Relaxed);
        // From here on it is taken back whatever happens.
        let mut turn = Turn { shared: self, guard: None };
        turn.guard = Some(self.turn.lock().await);
        turn
    }

    /// The driver goes. Nothing is accepted any more, and no command.
    pub(super) fn end(&self) {
        self.state().phase = Phase::Ended;
        self.room_made.notify_waiters();
    }

    /// Records and bytes that are accepted and not resolved.
    pub(super) fn pending(&self) -> (usize, usize) {
        let state = self.state();
        (state.room.records(), state.room.bytes())
    }

    pub(super) fn failures(&self) -> u64 {
        self.failures.load(Relaxed)
    }

    /// A record is given up that was never accepted.
    pub(super) fn loses(&self) {
        self.fails();
        self.metrics.failed(Reason::Stopped.word());
    }

    pub(super) fn fails(&self) {
        self.failures.fetch_add(1, Relaxed);
    }
}
