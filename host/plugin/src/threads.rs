//! The threads on which guests' calls run, so that a guest that computes takes no thread from the rest of the process.
//!
//! Calls take turns. One that computes gives way at each [`TICK`](crate::runtime::TICK) or so, and goes to the end of the
//! queue of those that have given way. Those that have just come, or whose wait for something is over, have a queue of
//! their own, and each thread serves the two in turns, so that long calls get on however many short ones come. In each
//! of the two processors are served in turns, so that one with many shards takes no more from the others than one with a
//! few (`threads/turns.rs`). There is one thread more than may run calls that have given way: guests that spin cannot
//! have them all, and a short call does not wait for the end of a turn of theirs, which is a hundred times as long as
//! itself.
//!
//! Where a call waits for its turn follows from what it has computed lately (`threads/pace.rs`). How long it waited there
//! is no part of the time that it may take.
//!
//! What is left of a call that was given up, or of an instance that nobody needs, is dropped here too, before any turn
//! (`threads/kept.rs`).
//!
//! This is no second runtime of tokio's, because turns are long here. A worker of tokio's that always has something to
//! do looks at its timers after 61 turns, which would be more than half a second, and what is woken on it goes before
//! all that waits; and a runtime must not be dropped in async code. These threads have no timers: what a guest waits for
//! is a timer of the runtime that its caller is on.

mod kept;
mod pace;
mod queue;
mod turns;

use std::io;
use std::num::NonZeroUsize;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{self, Poll, ready};
use std::thread;

use async_task::{Builder, Runnable, Task};
use tokio::time::error::Elapsed;
use tokio::time::timeout_at;
use tracing::Instrument as _;

use self::kept::Guarded;
use self::queue::{IS_OF_GUESTS, Queue, Queued};
use crate::metrics::Waits;

pub(crate) use self::kept::Kept;
pub(crate) use self::pace::{Allowance, Computed, Kind, Pace};

/// Where guests' calls run: on threads of their own, which end when nobody has this or a [`Line`] and nothing is left to
/// do; or where they are awaited. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Threads {
    open: Option<Arc<Open>>,
}

/// A processor's calls among those of all. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    place: Option<Arc<Place>>,
}

/// Keeps the threads for as long as somebody has it.
#[derive(Debug)]
struct Open {
    queue: Arc<Queue>,
}

#[derive(Debug)]
struct Place {
    open: Arc<Open>,
    /// Of the processor, among those that there are now.
    number: usize,
    waits: Waits,
}

#[derive(Debug)]
struct Call {
    place: Arc<Place>,
    number: u64,
    pace: Arc<Pace>,
    is_given_up: AtomicBool,
}

/// A call as its caller awaits it.
struct Running<T> {
    /// Until it has come to an end.
    task: Option<Task<T>>,
    call: Arc<Call>,
}

/// A future that tells when each turn of it begins and ends, and that is polled and dropped in its caller's context.
struct Paced<F> {
    future: Guarded<Pin<Box<F>>>,
    pace: Arc<Pace>,
    place: Option<Arc<Place>>,
}

// === impl Threads ===

impl Threads {
    /// None: everything runs where it is awaited.
    pub(crate) fn none() -> Self {
        Self { open: None }
    }

    /// Starts so many, and one more that takes none of the calls that have given way.
    ///
    /// # Errors
    /// If the operating system does not give them; then there are none.
    pub(crate) fn start(count: NonZeroUsize) -> io::Result<Self> {
        let queue = Arc::new(Queue::new(count));
        // Dropped early it ends those that have been started.
        let threads = Self { open: Some(Arc::new(Open { queue: Arc::clone(&queue) })) };
        for number in 0..=count.get() {
            let queue = Arc::clone(&queue);
            thread::Builder::new().name(format!("guest-{number}")).spawn(move || queue.work())?;
        }
        Ok(threads)
    }

    /// A place for the calls of a processor. All of its places are one line.
    pub(crate) fn line(&self, processor: &str, waits: Waits) -> Line {
        let place = |open: &Arc<Open>| {
            let number = open.queue.enter(processor);
            Arc::new(Place { open: Arc::clone(open), number, waits })
        };
        Line { place: self.open.as_ref().map(place) }
    }
}

// === impl Line ===

impl Line {
    /// [`run`](Self::run), for as long as it may take: if that is over first, the future is given up.
    pub(crate) async fn run_within<F>(&self, allowance: &Allowance, future: F) -> Result<F::Output, Elapsed>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let mut running = pin!(self.run(allowance.pace(), future));
        let mut end = allowance.end();
        // Timed here and not on the threads: none has to be free for the time to be over.
        loop {
            match timeout_at(end, &mut running).await {
                Ok(output) => return Ok(output),
                Err(elapsed) => end = allowance.look_again().ok_or(elapsed)?,
            }
        }
    }

    /// Runs a future to its end, in the caller's span, and with the timers of the caller's runtime. If the returned one is
    /// dropped before that, so is this one, on a thread of guests: when it gives way, if it computes just now.
    ///
    /// # Panics
    /// If the future does, with the same panic.
    pub(crate) async fn run<F>(&self, pace: &Arc<Pace>, future: F) -> F::Output
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let future = Guarded::new(Box::pin(future.in_current_span()));
        let paced = Paced { future, pace: Arc::clone(pace), place: self.place.clone() };
        let Some(place) = &self.place else { return paced.await };
        let number = place.open.queue.number_of_next_call();
        let (place, pace, is_given_up) = (Arc::clone(place), Arc::clone(pace), AtomicBool::new(false));
        let call = Arc::new(Call { place, number, pace, is_given_up });
        let queued = Arc::clone(&call);
        let (runnable, task) =
            Builder::new().propagate_panic(true).spawn(|()| paced, move |runnable| queued.push(runnable));
        runnable.schedule();
        Running { task: Some(task), call }.await
    }

    /// Has something dropped on a thread of guests; here, if this is one, or if there are none.
    fn leave(&self, left: impl Send + 'static) {
        match &self.place {
            Some(place) if !IS_OF_GUESTS.get() => place.open.queue.leave(Box::new(left)),
            _here => drop(left),
        }
    }
}

// === impl Open ===

impl Drop for Open {
    fn drop(&mut self) {
        // Nobody waits for the threads: this may be one of them, whose call was the last to hold it.
        self.queue.close();
    }
}

// === impl Place ===

impl Drop for Place {
    fn drop(&mut self) {
        self.open.queue.exit(self.number);
    }
}

// === impl Call ===

impl Call {
    fn push(&self, runnable: Runnable) {
        let kind = self.pace.queue();
        let queued = Queued { call: self.number, runnable };
        self.place.open.queue.push(self.place.number, queued, kind, || self.is_given_up.load(Ordering::Relaxed));
    }

    /// Nobody waits for it any more. If it is in a queue it does not stay there until its turn.
    fn give_up<T>(&self, task: Task<T>) {
        // Said before the task ends, which puts it into a queue if it is in none and does not run.
        self.is_given_up.store(true, Ordering::Relaxed);
        drop(task);
        if self.place.open.queue.take_out(self.place.number, self.number)
            && let Some((kind, waited)) = self.pace.begin()
        {
            self.place.waits.observe(kind, waited);
        }
    }
}

// === impl Running ===

impl<T> Future for Running<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut task::Context<'_>) -> Poll<T> {
        let task = self.task.as_mut().expect("it is not awaited again");
        let output = ready!(Pin::new(task).poll(context));
        self.task = None;
        Poll::Ready(output)
    }
}

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            self.call.give_up(task);
        }
    }
}

// === impl Paced ===

impl<F: Future> Future for Paced<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut task::Context<'_>) -> Poll<F::Output> {
        if let (Some((kind, waited)), Some(place)) = (self.pace.begin(), &self.place) {
            place.waits.observe(kind, waited);
        }
        let polled = {
            let (future, caller) = self.future.parts();
            let _entered = caller.enter();
            future.as_mut().poll(context)
        };
        self.pace.end();
        polled
    }
}

#[cfg(test)]
mod tests;
