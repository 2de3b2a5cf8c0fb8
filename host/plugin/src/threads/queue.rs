use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use async_task::Runnable;

use super::pace::Kind;
use super::turns::Turns;

/// What the threads have to do.
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    /// Rung when there is something to do, and at the end.
    bell: Condvar,
    /// How many calls there were.
    calls: AtomicU64,
}

struct Waiting {
    turns: Turns<Queued>,
    /// What nobody needs any more.
    left: VecDeque<Left>,
    /// The processors' names, each at its number, and how many places it has.
    processors: Vec<Option<(Box<str>, usize)>>,
    /// How many threads have nothing to do.
    sleeping: usize,
    is_closed: bool,
}

/// A call whose turn has not come.
pub(super) struct Queued {
    /// Its number.
    pub(super) call: u64,
    pub(super) runnable: Runnable,
}

/// Something that is to be dropped.
pub(super) type Left = Box<dyn Send>;

enum Work {
    Drop(Left),
    Turn(Runnable, Kind),
}

thread_local! {
    /// Whether this thread is one of guests.
    pub(super) static IS_OF_GUESTS: Cell<bool> = const { Cell::new(false) };
}

// === impl Queue ===

impl Queue {
    pub(super) fn new(count: NonZeroUsize) -> Self {
        let waiting = Waiting {
            turns: Turns::new(count.get()),
            left: VecDeque::new(),
            processors: Vec::new(),
            sleeping: 0,
            is_closed: false,
        };
        Self { waiting: Mutex::new(waiting), bell: Condvar::new(), calls: AtomicU64::new(0) }
    }

    /// A number that no other call has.
    pub(super) fn number_of_next_call(&self) -> u64 {
        self.calls.fetch_add(1, Ordering::Relaxed)
    }

    /// The number of a processor, until it has [exited](Self::exit) as often as it has entered.
    pub(super) fn enter(&self, processor: &str) -> usize {
        self.waiting().enter(processor)
    }

    pub(super) fn exit(&self, processor: usize) {
        self.waiting().exit(processor);
    }

    /// A call waits for its turn, or, if it is given up, to be dropped.
    pub(super) fn push(&self, processor: usize, queued: Queued, kind: Kind, is_given_up: impl Fn() -> bool) {
        // The threads are there: whoever has a number keeps them.
        let mut waiting = self.waiting();
        // Asked here: whoever gives it up looks for it here after that.
        if is_given_up() {
            waiting.left.push_back(Box::new(queued.runnable));
        } else {
            waiting.turns.push(processor, queued, kind);
        }
        self.ring(waiting);
    }

    /// Drops a call that waits for its turn before that; whether it did.
    pub(super) fn take_out(&self, processor: usize, call: u64) -> bool {
        let mut waiting = self.waiting();
        let Some(Queued { runnable, .. }) = waiting.turns.take_out(processor, |queued| queued.call == call) else {
            return false;
        };
        waiting.left.push_back(Box::new(runnable));
        self.ring(waiting);
        true
    }

    /// Has something dropped on one of the threads.
    pub(super) fn leave(&self, left: Left) {
        let mut waiting = self.waiting();
        waiting.left.push_back(left);
        self.ring(waiting);
    }

    /// Wakes a thread if there is something for it.
    fn ring(&self, waiting: MutexGuard<'_, Waiting>) {
        let is_wanted = waiting.sleeping > 0 && waiting.has_work();
        drop(waiting);
        if is_wanted {
            self.bell.notify_one();
        }
    }

    /// What a thread does all its life.
    pub(super) fn work(&self) {
        IS_OF_GUESTS.set(true);
        let mut ended = None;
        while let Some(work) = self.next(ended.take()) {
            match work {
                // Neither panics: what is dropped is guarded, and a call's panics go to whoever awaits it.
                Work::Drop(left) => drop(left),
                Work::Turn(runnable, kind) => {
                    runnable.run();
                    ended = Some(kind);
                }
            }
        }
    }

    /// Waits for something to do. What is left at the end is done first.
    fn next(&self, ended: Option<Kind>) -> Option<Work> {
        let mut waiting = self.waiting();
        if let Some(kind) = ended {
            waiting.turns.end(kind);
        }
        loop {
            if let Some(work) = waiting.next() {
                // This thread leaves to others what it could have taken.
                self.ring(waiting);
                return Some(work);
            }
            if waiting.is_closed {
                return None;
            }
            waiting.sleeping += 1;
            waiting = self.bell.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            waiting.sleeping -= 1;
        }
    }

    /// Nothing comes any more.
    pub(super) fn close(&self) {
        self.waiting().is_closed = true;
        self.bell.notify_all();
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // Pushing and popping leaves the queues whole, whatever panics elsewhere. Nothing of a call is dropped while it is
        // locked: that may be the last to hold what locks it.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Queue")
    }
}

// === impl Waiting ===

impl Waiting {
    fn has_work(&self) -> bool {
        !self.left.is_empty() || self.turns.can_begin()
    }

    fn next(&mut self) -> Option<Work> {
        match self.left.pop_front() {
            Some(left) => Some(Work::Drop(left)),
            None => self.turns.begin().map(|(queued, kind)| Work::Turn(queued.runnable, kind)),
        }
    }

    fn enter(&mut self, processor: &str) -> usize {
        let is_it = |known: &Option<(Box<str>, usize)>| known.as_ref().is_some_and(|(name, _)| **name == *processor);
        let number = self.processors.iter().position(is_it);
        let number = number.or_else(|| self.processors.iter().position(Option::is_none)).unwrap_or_else(|| {
            self.processors.push(None);
            self.processors.len() - 1
        });
        self.processors[number].get_or_insert_with(|| (processor.into(), 0)).1 += 1;
        number
    }

    fn exit(&mut self, number: usize) {
        let Some((_, places)) = &mut self.processors[number] else { return };
        *places -= 1;
        if *places == 0 {
            self.processors[number] = None;
            self.turns.forget(number);
        }
    }
}
