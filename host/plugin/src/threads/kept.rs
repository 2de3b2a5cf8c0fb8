use std::any::Any;
use std::fmt::{self, Write as _};
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::runtime::{EnterGuard, Handle};
use tracing::Dispatch;
use tracing::dispatcher::{self, DefaultGuard};

use super::Line;

/// Where something was made: what it reaches there, it reaches on other threads too.
#[derive(Debug, Clone)]
pub(super) struct Context {
    runtime: Option<Handle>,
    /// Where its log goes, unless that is where all goes.
    log: Option<Dispatch>,
}

/// Is dropped in the context in which it was made, and ends nobody else by a panic in that.
#[derive(Debug)]
pub(super) struct Guarded<T> {
    value: Option<T>,
    context: Context,
}

/// What is dropped on a thread of guests, wherever it is let go of: to free a guest's memory takes time.
#[derive(Debug)]
pub(crate) struct Kept<T: Send + 'static> {
    guarded: Option<Guarded<T>>,
    line: Line,
}

/// Finds a text at the beginning of another.
struct Beginning {
    rest: &'static str,
    is_other: bool,
}

// === impl Context ===

impl Context {
    pub(super) fn current() -> Self {
        // One that is set for a thread takes the fast path away from every line of the process's log while it is set.
        let log = dispatcher::get_default(|log| (!is_global(log)).then(|| log.clone()));
        Self { runtime: Handle::try_current().ok(), log }
    }

    pub(super) fn enter(&self) -> (Option<EnterGuard<'_>>, Option<DefaultGuard>) {
        (self.runtime.as_ref().map(Handle::enter), self.log.as_ref().map(dispatcher::set_default))
    }
}

/// Whether a dispatcher is the one that threads have for which none is set. Nothing but its text says so; a test pins
/// that, and with another one it would only be slower.
fn is_global(log: &Dispatch) -> bool {
    let mut beginning = Beginning { rest: "Dispatch::Global(", is_other: false };
    // It ends with an error where there is no need to write more.
    let _ = write!(beginning, "{log:?}");
    beginning.rest.is_empty() && !beginning.is_other
}

// === impl Beginning ===

impl fmt::Write for Beginning {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let common = self.rest.len().min(text.len());
        self.is_other |= self.rest.as_bytes()[..common] != text.as_bytes()[..common];
        self.rest = &self.rest[common..];
        if self.is_other || self.rest.is_empty() { Err(fmt::Error) } else { Ok(()) }
    }
}

// === impl Guarded ===

impl<T> Guarded<T> {
    pub(super) fn new(value: T) -> Self {
        Self { value: Some(value), context: Context::current() }
    }

    /// It, and where it was made.
    pub(super) fn parts(&mut self) -> (&mut T, &Context) {
        (self.value.as_mut().expect("it is taken out in drop only"), &self.context)
    }
}

impl<T> Drop for Guarded<T> {
    fn drop(&mut self) {
        let value = self.value.take();
        let _entered = self.context.enter();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
            tell(&*panic);
        }
    }
}

/// Once: whatever is the matter with one guest's remains is with the next one's.
fn tell(panic: &(dyn Any + Send)) {
    static IS_TOLD: AtomicBool = AtomicBool::new(false);
    if IS_TOLD.swap(true, Ordering::Relaxed) {
        return;
    }
    let text = panic.downcast_ref::<&str>().copied();
    let reason = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("it does not say why");
    tracing::error!(reason, "what was left of a guest's call panicked when it was dropped, please report it");
}

// === impl Kept ===

impl<T: Send + 'static> Kept<T> {
    pub(crate) fn new(value: T, line: Line) -> Self {
        Self { guarded: Some(Guarded::new(value)), line }
    }
}

impl<T: Send + 'static> Deref for Kept<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.guarded.as_ref().and_then(|guarded| guarded.value.as_ref()).expect("it is taken out in drop only")
    }
}

impl<T: Send + 'static> DerefMut for Kept<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.guarded.as_mut().expect("it is taken out in drop only").parts().0
    }
}

impl<T: Send + 'static> Drop for Kept<T> {
    fn drop(&mut self) {
        if let Some(guarded) = self.guarded.take() {
            self.line.leave(guarded);
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing::subscriber::NoSubscriber;

    use super::*;

    #[test]
    fn the_global_dispatcher_is_told_from_one_that_is_set_for_a_thread() {
        assert!(is_global(&Dispatch::none()));
        let scoped = Dispatch::new(NoSubscriber::new());
        assert!(!is_global(&scoped));
        assert!(Context::current().log.is_none());
        let _set = dispatcher::set_default(&scoped);
        let context = Context::current();
        assert!(context.log.is_some());
        std::thread::spawn(move || {
            let _entered = context.enter();
            assert!(Context::current().log.is_some());
        })
        .join()
        .unwrap();
    }
}
