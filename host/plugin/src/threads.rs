//! The threads on which guests' calls run, so that a guest that computes takes no thread from the rest of the process.
//!
//! Calls take turns. One that computes gives way at each [`TICK`](crate::runtime::TICK), and goes to the end of the queue
//! of those that have given way. Those that have just come, or whose wait is over, have a queue of their own, and each
//! thread serves the two in turns, so that long calls get on however many short ones come. There is one thread more than
//! may run calls that have given way: guests that spin cannot have them all, and a short call does not wait for the end
//! of a turn of theirs, which is a hundred times as long as itself.
//!
//! This is no second runtime of tokio's, because turns are long here. A worker of tokio's that always has something to
//! do looks at its timers after 61 turns, which would be more than half a second, and what is woken on it goes before
//! all that waits; and a runtime must not be dropped in async code. These threads have no timers: what a guest waits for
//! is a timer of the runtime that its caller is on.

use std::collections::VecDeque;
use std::io;
use std::num::NonZeroUsize;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use async_task::{Builder, Runnable, ScheduleInfo, WithInfo};
use tokio::runtime::Handle;
use tokio_util::context::TokioContext;
use tracing::Instrument as _;
use tracing::instrument::WithSubscriber as _;

/// Where guests' calls run: on threads of their own, which end when this is dropped and nothing is left to do, or where
/// they are awaited.
#[derive(Debug)]
pub(crate) struct Threads {
    queue: Option<Arc<Queue>>,
}

/// What the threads have to do.
#[derive(Debug)]
struct Queue {
    waiting: Mutex<Waiting>,
    /// Rung when there is something to do, and at the end.
    bell: Condvar,
}

#[derive(Debug)]
struct Waiting {
    turns: Turns<Runnable>,
    is_closed: bool,
}

/// Who is next.
#[derive(Debug)]
struct Turns<T> {
    /// Those that have come, or whose wait is over.
    come: VecDeque<T>,
    /// Those that have computed for as long as one may at a time.
    given_way: VecDeque<T>,
    /// How many of those may run at a time, and how many do.
    most: usize,
    running: usize,
    /// Whose turn it is, if both have somebody.
    is_for_given_way: bool,
}

/// What a turn is one of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Come,
    GivenWay,
}

// === impl Threads ===

impl Threads {
    /// None: everything runs where it is awaited.
    pub(crate) fn none() -> Self {
        Self { queue: None }
    }

    /// Starts so many, and one more that takes none of the calls that have given way.
    ///
    /// # Errors
    /// If the operating system does not give them; then there are none.
    pub(crate) fn start(count: NonZeroUsize) -> io::Result<Self> {
        let waiting = Waiting { turns: Turns::new(count.get()), is_closed: false };
        let queue = Arc::new(Queue { waiting: Mutex::new(waiting), bell: Condvar::new() });
        // Dropped early it ends those that have been started.
        let threads = Self { queue: Some(Arc::clone(&queue)) };
        for number in 0..=count.get() {
            let queue = Arc::clone(&queue);
            thread::Builder::new().name(format!("guest-{number}")).spawn(move || queue.work())?;
        }
        Ok(threads)
    }

    /// Runs a future to its end, in the caller's span, and with the timers of the caller's runtime. If the returned one is
    /// dropped before that, so is this one: when it gives way, if it computes just now.
    ///
    /// # Panics
    /// If the future does, with the same panic; or outside of a runtime of tokio's.
    pub(crate) async fn run<F>(&self, future: F) -> F::Output
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let Some(queue) = &self.queue else { return future.await };
        let future = TokioContext::new(future.in_current_span().with_current_subscriber(), Handle::current());
        let queue = Arc::clone(queue);
        let schedule = WithInfo(move |runnable, info: ScheduleInfo| {
            queue.push(runnable, if info.woken_while_running { Kind::GivenWay } else { Kind::Come });
        });
        let (runnable, task) = Builder::new().propagate_panic(true).spawn(|()| future, schedule);
        runnable.schedule();
        // Nobody closes the queue meanwhile: that takes dropping what is borrowed here.
        task.await
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // Nobody waits for the threads: this may be one of them, whose call was the last to hold it.
        if let Some(queue) = &self.queue {
            queue.close();
        }
    }
}

// === impl Queue ===

impl Queue {
    fn push(&self, runnable: Runnable, kind: Kind) {
        let mut waiting = self.waiting();
        if waiting.is_closed {
            // Its caller has gone, and the threads may have. Its future is dropped here, without the lock: it may be
            // the last to hold what wakes others.
            drop(waiting);
            return drop(runnable);
        }
        waiting.turns.push(runnable, kind);
        // Otherwise it is for one of the threads that are busy with such, this one as a rule.
        let can_begin = kind == Kind::Come || waiting.turns.has_room_for_given_way();
        drop(waiting);
        if can_begin {
            self.bell.notify_one();
        }
    }

    fn work(&self) {
        let mut ended = None;
        while let Some((runnable, kind)) = self.next(ended) {
            // Panics go to whoever awaits the call.
            runnable.run();
            ended = Some(kind);
        }
    }

    /// Waits for something to do. What is left at the end is what was given up; taking its turn ends it.
    fn next(&self, ended: Option<Kind>) -> Option<(Runnable, Kind)> {
        let mut waiting = self.waiting();
        if let Some(kind) = ended {
            waiting.turns.end(kind);
        }
        loop {
            if let Some(next) = waiting.turns.begin() {
                let has_room = waiting.turns.has_room_for_given_way();
                drop(waiting);
                if has_room {
                    // This thread leaves one to others that it could have taken.
                    self.bell.notify_one();
                }
                return Some(next);
            }
            if waiting.is_closed {
                return None;
            }
            waiting = self.bell.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn close(&self) {
        self.waiting().is_closed = true;
        self.bell.notify_all();
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // Pushing and popping leaves the queues whole, whatever panics elsewhere.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Turns ===

impl<T> Turns<T> {
    /// At most so many that have given way run at a time.
    fn new(most: usize) -> Self {
        Self { come: VecDeque::new(), given_way: VecDeque::new(), most, running: 0, is_for_given_way: false }
    }

    fn push(&mut self, one: T, kind: Kind) {
        match kind {
            Kind::Come => self.come.push_back(one),
            Kind::GivenWay => self.given_way.push_back(one),
        }
    }

    /// Whoever is next, whose turn is to be [ended](Self::end).
    fn begin(&mut self) -> Option<(T, Kind)> {
        let can_be_given_way = self.has_room_for_given_way();
        let is_for_given_way = self.is_for_given_way;
        self.is_for_given_way = !is_for_given_way;
        if can_be_given_way && (is_for_given_way || self.come.is_empty()) {
            self.running += 1;
            return self.given_way.pop_front().map(|one| (one, Kind::GivenWay));
        }
        self.come.pop_front().map(|one| (one, Kind::Come))
    }

    /// Whether one that has given way waits and could begin.
    fn has_room_for_given_way(&self) -> bool {
        self.running < self.most && !self.given_way.is_empty()
    }

    fn end(&mut self, kind: Kind) {
        if kind == Kind::GivenWay {
            self.running -= 1;
        }
    }
}

#[cfg(test)]
mod tests;
