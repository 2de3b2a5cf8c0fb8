//! The names of the fleet's metrics.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use shardmill_plugin::Digest;

/// Which versions run, by processor: two series for each, whatever is deployed. Cheap to clone; all clones are one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Metrics {
    running: Family<VersionLabels, Gauge>,
    as_wanted: Family<ProcessorLabels, Gauge>,
    failures: Family<ProcessorLabels, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VersionLabels {
    processor: String,
    /// The beginning of it.
    digest: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProcessorLabels {
    processor: String,
}

// === impl Metrics ===

impl Metrics {
    /// Metrics that the registry shows.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "shardmill_plugin_running_info",
            "1, with the beginning of the digest of the plugin that the processor runs on this worker",
            metrics.running.clone(),
        );
        registry.register(
            "shardmill_plugin_as_wanted",
            "Whether the processor runs on this worker what the fleet wants of it: 0 while it waits for that version or cannot have it",
            metrics.as_wanted.clone(),
        );
        registry.register(
            "shardmill_plugin_deploy_failures",
            "Attempts to have the version that the fleet wants which failed: it cannot be fetched, is another one, or is refused",
            metrics.failures.clone(),
        );
        metrics
    }

    /// Shows what a processor runs, in place of what it ran before.
    pub(crate) fn show(&self, processor: &str, before: Option<&Digest>, running: &Digest, is_as_wanted: bool) {
        let labels = |digest: &Digest| VersionLabels { processor: processor.to_owned(), digest: digest.short() };
        if let Some(before) = before.filter(|before| *before != running) {
            self.running.remove(&labels(before));
        }
        self.running.get_or_create_owned(&labels(running)).set(1);
        self.as_wanted.get_or_create_owned(&of(processor)).set(is_as_wanted.into());
    }

    pub(crate) fn failed(&self, processor: &str) {
        self.failures.get_or_create_owned(&of(processor)).inc();
    }
}

fn of(processor: &str) -> ProcessorLabels {
    ProcessorLabels { processor: processor.to_owned() }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn the_names_are_what_operators_were_told_and_a_version_that_is_gone_has_no_series() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let (one, two) = (Digest::of(b"one"), Digest::of(b"two"));
        metrics.show("copy", None, &one, true);
        metrics.show("copy", Some(&one), &one, false);
        metrics.failed("copy");
        metrics.show("copy", Some(&one), &two, true);
        let mut shown = String::new();
        encode(&mut shown, &registry).unwrap();
        for line in [
            &format!("shardmill_plugin_running_info{{processor=\"copy\",digest=\"{}\"}} 1", two.short()),
            "shardmill_plugin_as_wanted{processor=\"copy\"} 1",
            "shardmill_plugin_deploy_failures_total{processor=\"copy\"} 1",
        ] {
            assert!(shown.lines().any(|found| found == line), "{line} is not in\n{shown}");
        }
        assert!(!shown.contains(&one.short()), "{shown}");
    }
}
