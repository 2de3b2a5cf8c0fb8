//! The promises that the engine checks while it runs. One that is broken is a defect of this program: it panics where
//! debug assertions are on, and is counted and logged in a release.

use std::sync::LazyLock;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

/// A promise by its name in ARCHITECTURE.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Invariant {
    /// No checkpoint passes a record whose outputs are not acknowledged by their destination.
    OutputsBeforeCheckpoint,
    /// A checkpoint never goes back.
    Monotonic,
    /// No record leaves without being processed, or given up by the failure policy and counted.
    NothingLost,
}

/// Which promise a number is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Labels {
    invariant: &'static str,
}

/// Of the whole process: it is this program that is broken, whichever consumer shows it.
static BROKEN: LazyLock<Family<Labels, Counter>> = LazyLock::new(|| {
    let broken = Family::<Labels, Counter>::default();
    for invariant in [Invariant::OutputsBeforeCheckpoint, Invariant::Monotonic, Invariant::NothingLost] {
        // An alarm wants a number before the first one is broken.
        let _zero = broken.get_or_create(&invariant.labels());
    }
    broken
});

/// How often each was broken since the process started.
pub(crate) fn broken() -> Family<Labels, Counter> {
    BROKEN.clone()
}

// === impl Invariant ===

impl Invariant {
    /// The name in ARCHITECTURE.md and in metrics.
    fn name(self) -> &'static str {
        match self {
            Self::OutputsBeforeCheckpoint => "outputs-before-checkpoint",
            Self::Monotonic => "monotonic",
            Self::NothingLost => "nothing-lost",
        }
    }

    fn labels(self) -> Labels {
        Labels { invariant: self.name() }
    }

    /// Checks a condition that must hold.
    #[track_caller]
    pub(crate) fn check(self, holds: bool, what: impl FnOnce() -> String) {
        if holds {
            return;
        }
        BROKEN.get_or_create(&self.labels()).inc();
        let what = what();
        tracing::error!(invariant = self.name(), "a promise of this program is broken, please report it: {what}");
        debug_assert!(false, "invariant {} is broken: {what}", self.name());
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;
    use crate::Metrics;

    #[test]
    fn a_promise_that_is_broken_is_shown_by_its_name() {
        let mut registry = Registry::default();
        let _metrics = Metrics::register(&mut registry);
        let shown = || {
            let mut text = String::new();
            encode(&mut text, &registry).unwrap();
            let lines = text.lines().filter(|line| line.starts_with("shardmill_invariants_broken_total"));
            let mut lines: Vec<String> = lines.map(str::to_owned).collect();
            lines.sort();
            lines
        };
        let line =
            |name: &str, count: u32| format!("shardmill_invariants_broken_total{{invariant=\"{name}\"}} {count}");
        let [lost, outputs] = [line("nothing-lost", 0), line("outputs-before-checkpoint", 0)];
        assert_eq!(shown(), [line("monotonic", 0), lost.clone(), outputs.clone()]);
        Invariant::Monotonic.check(true, || unreachable!("it holds"));
        let broken = std::panic::catch_unwind(|| Invariant::Monotonic.check(false, || "1 after 2".to_owned()));
        assert_eq!(broken.is_err(), cfg!(debug_assertions));
        assert_eq!(shown(), [line("monotonic", 1), lost, outputs]);
    }
}
