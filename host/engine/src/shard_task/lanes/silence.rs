//! When the guest of a batcher is told that nothing has come. Pure; time is handed in.

use std::time::Duration;

use tokio::time::Instant;

use crate::BatchOptions;

/// How long a batcher has had nothing to hand over, in none of its lanes.
#[derive(Debug)]
pub(super) struct Silence {
    /// After how long it is told, and again; `None` if it is not.
    every: Option<Duration>,
    /// When something was handed over last, or a silence was told.
    last: Instant,
}

// === impl Silence ===

impl Silence {
    pub(super) fn new(options: &BatchOptions, now: Instant) -> Self {
        let every = options.window.map_or(options.wait, |window| window.length);
        Self { every: (options.empty && !every.is_zero()).then_some(every), last: now }
    }

    /// Something is handed over, a batch without records included.
    pub(super) fn broken(&mut self, now: Instant) {
        self.last = now;
    }

    /// When it is to be told, if nothing comes until then.
    pub(super) fn told_at(&self) -> Option<Instant> {
        self.every.map(|every| self.last + every)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Window;

    #[test]
    fn it_is_told_after_a_window_or_else_after_the_wait_and_only_where_it_is_asked_for() {
        let now = Instant::now();
        let (wait, length) = (Duration::from_secs(1), Duration::from_secs(60));
        let waits = BatchOptions { wait, empty: true, ..BatchOptions::default() };
        let windows = BatchOptions { window: Some(Window { length }), ..waits };
        for (options, told) in [
            (waits, Some(wait)),
            (windows, Some(length)),
            (BatchOptions { empty: false, ..waits }, None),
            (BatchOptions { wait: Duration::ZERO, ..waits }, None),
        ] {
            let mut silence = Silence::new(&options, now);
            assert_eq!(silence.told_at(), told.map(|told| now + told), "{options:?}");
            silence.broken(now + wait);
            assert_eq!(silence.told_at(), told.map(|told| now + wait + told), "{options:?}");
        }
    }
}
