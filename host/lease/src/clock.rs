use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A moment on a [`Clock`]: the time since an origin that means nothing outside the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(Duration);

/// Tells how time goes by for leases. Not the wall clock, and never compared between machines.
pub trait Clock: Send + Sync + 'static {
    /// This moment. Never before an earlier answer.
    fn now(&self) -> Moment;
}

/// `CLOCK_BOOTTIME`: runs while the machine is suspended, so that a worker that wakes up knows that its leases are
/// gone.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

/// Tokio's clock, which tests pause and move.
#[derive(Debug, Clone, Copy)]
pub struct TokioClock {
    origin: tokio::time::Instant,
}

// === impl Moment ===

impl Moment {
    /// The moment this long after the clock's origin.
    pub const fn since_origin(time: Duration) -> Self {
        Self(time)
    }

    /// The time since the clock's origin.
    pub const fn to_duration(self) -> Duration {
        self.0
    }

    /// The time since an earlier moment; zero if that is later.
    pub fn saturating_since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl std::ops::Add<Duration> for Moment {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time))
    }
}

// === impl SystemClock ===

impl Clock for SystemClock {
    fn now(&self) -> Moment {
        let now = clock_gettime(ClockId::Boottime);
        // The clock counts up from the boot: neither part is negative, and there are fewer than 10^9 nanoseconds.
        Moment(Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0)))
    }
}

// === impl TokioClock ===

impl Default for TokioClock {
    fn default() -> Self {
        Self { origin: tokio::time::Instant::now() }
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Moment {
        Moment(self.origin.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_counts_up() {
        let before = SystemClock.now();
        std::thread::sleep(Duration::from_millis(20));
        let passed = SystemClock.now().saturating_since(before);
        assert!(passed >= Duration::from_millis(20) && passed < Duration::from_secs(20), "{passed:?}");
    }
}
