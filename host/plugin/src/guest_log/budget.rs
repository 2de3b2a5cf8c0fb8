use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

/// A token bucket of lines: as many at once as in a second.
#[derive(Debug)]
pub(crate) struct Budget {
    per_second: f64,
    tokens: Mutex<Tokens>,
}

#[derive(Debug)]
struct Tokens {
    left: f64,
    at: Instant,
    /// Lines that were dropped since the last one that was kept.
    dropped: u64,
}

// === impl Budget ===

impl Budget {
    pub(crate) fn new(per_second: u32) -> Self {
        let per_second = f64::from(per_second);
        Self { per_second, tokens: Mutex::new(Tokens { left: per_second, at: Instant::now(), dropped: 0 }) }
    }

    pub(super) fn has_some(&self, now: Instant) -> bool {
        self.at(now).left >= 1.0
    }

    /// Takes one line's token. Returns how many lines had none since the last one that had.
    pub(super) fn take(&self, now: Instant) -> Option<u64> {
        let mut tokens = self.at(now);
        if tokens.left < 1.0 {
            tokens.dropped += 1;
            return None;
        }
        tokens.left -= 1.0;
        Some(std::mem::take(&mut tokens.dropped))
    }

    fn at(&self, now: Instant) -> MutexGuard<'_, Tokens> {
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = now.saturating_duration_since(tokens.at);
        tokens.left = (tokens.left + passed.as_secs_f64() * self.per_second).min(self.per_second);
        tokens.at = tokens.at.max(now);
        tokens
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_budget_allows_a_second_at_once_and_counts_the_rest() {
        let budget = Budget::new(10);
        let start = Instant::now();
        let kept = (0..25).filter(|_| budget.take(start).is_some()).count();
        assert_eq!(kept, 10);
        assert!(!budget.has_some(start));
        let later = start + Duration::from_millis(250);
        assert_eq!(budget.take(later), Some(15));
        assert_eq!(budget.take(later), Some(0));
        assert_eq!(budget.take(later), None);
        let much_later = start + Duration::from_secs(3600);
        assert_eq!((0..25).filter(|_| budget.take(much_later).is_some()).count(), 10);
    }
}
