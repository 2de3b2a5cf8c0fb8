//! The names of the dead letters' metrics.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// What became of dead letters, by processor and kind of place. Cheap to clone; all clones are one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Metrics {
    stored: Family<PlaceLabels, Counter>,
    failures: Family<PlaceLabels, Counter>,
    waiting: Family<PlaceLabels, Gauge>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PlaceLabels {
    processor: String,
    place: &'static str,
}

/// One place's part of the metrics.
#[derive(Debug, Clone)]
pub(crate) struct PlaceMetrics {
    stored: Counter,
    failures: Counter,
    waiting: Gauge,
}

/// Letters that wait to be stored, for as long as this lives.
pub(crate) struct Waiting {
    gauge: Gauge,
    letters: i64,
}

// === impl Metrics ===

impl Metrics {
    /// Metrics that the registry shows.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "shardmill_dead_letters_stored",
            "Dead letters that are on the disk, or that their stream has acknowledged",
            metrics.stored.clone(),
        );
        registry.register(
            "shardmill_dead_letters_failures",
            "Attempts to store dead letters in a folder that failed, and refusals of a stream",
            metrics.failures.clone(),
        );
        registry.register(
            "shardmill_dead_letters_waiting",
            "Dead letters that are not stored yet; their shards wait for them",
            metrics.waiting.clone(),
        );
        metrics
    }

    /// `place` is a word for the kind of place.
    pub(crate) fn of_place(&self, processor: &str, place: &'static str) -> PlaceMetrics {
        let labels = PlaceLabels { processor: processor.to_owned(), place };
        PlaceMetrics {
            stored: self.stored.get_or_create_owned(&labels),
            failures: self.failures.get_or_create_owned(&labels),
            waiting: self.waiting.get_or_create_owned(&labels),
        }
    }
}

// === impl PlaceMetrics ===

impl PlaceMetrics {
    pub(crate) fn waiting(&self, letters: usize) -> Waiting {
        let letters = letters as i64;
        self.waiting.inc_by(letters);
        Waiting { gauge: self.waiting.clone(), letters }
    }

    pub(crate) fn stored(&self, letters: usize) {
        self.stored.inc_by(letters as u64);
    }

    pub(crate) fn failed(&self) {
        self.failures.inc();
    }

    #[cfg(test)]
    pub(crate) fn counts(&self) -> (u64, u64, i64) {
        (self.stored.get(), self.failures.get(), self.waiting.get())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.gauge.dec_by(self.letters);
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn the_names_are_what_operators_were_told() {
        let mut registry = Registry::default();
        let place = Metrics::register(&mut registry).of_place("enrich", "folder");
        place.stored(3);
        place.failed();
        let waiting = place.waiting(2);
        let text = |registry: &Registry| {
            let mut text = String::new();
            encode(&mut text, registry).unwrap();
            text
        };
        let shown = text(&registry);
        for line in [
            "shardmill_dead_letters_stored_total{processor=\"enrich\",place=\"folder\"} 3",
            "shardmill_dead_letters_failures_total{processor=\"enrich\",place=\"folder\"} 1",
            "shardmill_dead_letters_waiting{processor=\"enrich\",place=\"folder\"} 2",
        ] {
            assert!(shown.lines().any(|found| found == line), "{line} is not in\n{shown}");
        }
        drop(waiting);
        assert!(text(&registry).contains("shardmill_dead_letters_waiting{processor=\"enrich\",place=\"folder\"} 0"));
    }
}
