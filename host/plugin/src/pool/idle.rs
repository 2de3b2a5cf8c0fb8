//! Instances that wait for a call, and who looks after them.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{Instant, sleep_until};

use super::Inner;
use crate::Instance;
use crate::instance::Identity;
use crate::machine::End;

/// The instances that wait for a call.
#[derive(Default)]
pub(super) struct Idle {
    /// The last one that was used is used first: its memory is warm, and the others' may be swapped out. So the first one
    /// has waited longest.
    pub(super) instances: VecDeque<Waiting>,
    /// This one's successor has come, and it could not end: it was on loan, or there was no room for it. It ends when that
    /// changes, and no other successor is started before.
    pub(super) owing: Option<Identity>,
    /// Who looks after those that wait too long.
    pub(super) watch: Option<Watch>,
    /// Another pool has taken this one's places: nothing is started here to be used later.
    pub(super) is_followed: bool,
}

/// A task that ends with this: it sleeps for as long as an instance may wait, and would outlive its pool by that.
pub(super) struct Watch(AbortHandle);

pub(super) struct Waiting {
    pub(super) instance: Instance,
    pub(super) since: Instant,
}

// === impl Idle ===

impl Idle {
    /// Whether an instance whose successor has come is still there.
    pub(super) fn is_owing(&mut self) -> bool {
        self.owing.take_if(|owing| owing.is_gone());
        self.owing.is_some()
    }
}

// === impl Watch ===

impl Watch {
    pub(super) fn new(task: &JoinHandle<()>) -> Self {
        Self(task.abort_handle())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Lets go of instances that have waited too long, until there is one.
pub(super) async fn let_go(pool: Weak<Inner>) {
    loop {
        let Some(due) = next_due(&pool) else { return };
        sleep_until(due).await;
        let Some(pool) = pool.upgrade() else { return };
        // One after another, so that they do not count beside those that take their places.
        let Ok(room) = Arc::clone(&pool.ending).acquire_owned().await else { return };
        let instance = {
            let mut idle = pool.idle();
            let keep = pool.plugin.limits().keep_idle;
            let is_due = |waiting: &mut Waiting| waiting.since.elapsed() >= keep;
            if idle.instances.len() > 1 { idle.instances.pop_front_if(is_due) } else { None }
        };
        if let Some(Waiting { mut instance, .. }) = instance {
            instance.ends_as(End::Idle);
            pool.plugin.end(instance).await;
        }
        drop(room);
        pool.settle();
    }
}

/// When the next instance has waited too long; `None` ends the watch.
fn next_due(pool: &Weak<Inner>) -> Option<Instant> {
    let pool = pool.upgrade()?;
    let mut idle = pool.idle();
    if idle.instances.len() < 2 {
        idle.watch = None;
        return None;
    }
    let since = idle.instances.front()?.since;
    // A time that never comes is not waited for.
    let due = since.checked_add(pool.plugin.limits().keep_idle);
    if due.is_none() {
        idle.watch = None;
    }
    due
}
