//! The metrics of this room.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// What this room counts. Cheap to clone; clones count together.
#[derive(Debug, Clone, Default)]
pub(crate) struct Metrics {
    /// `shardmill_plugin_reloads_total`: plugins that were to be another version, by what came of it.
    reloads: Family<PluginLabels, Counter>,
    /// `shardmill_config_reloads_total`: configurations that were read again, by what came of it.
    configurations: Family<ConfigLabels, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PluginLabels {
    processor: String,
    /// `switched`, `unchanged` or `refused`.
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ConfigLabels {
    /// `applied`, `unchanged` or `refused`.
    result: &'static str,
}

// === impl Metrics ===

impl Metrics {
    /// Makes the metrics known to a registry.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let help = "Plugins that were to be another version";
        registry.register("shardmill_plugin_reloads", help, metrics.reloads.clone());
        let help = "Configurations that were read again";
        registry.register("shardmill_config_reloads", help, metrics.configurations.clone());
        metrics
    }

    pub(super) fn switched(&self, processor: &str) {
        self.plugin(processor, "switched");
    }

    pub(super) fn unchanged(&self, processor: &str) {
        self.plugin(processor, "unchanged");
    }

    pub(super) fn refused(&self, processor: &str) {
        self.plugin(processor, "refused");
    }

    pub(super) fn configuration(&self, result: &'static str) {
        self.configurations.get_or_create(&ConfigLabels { result }).inc();
    }

    fn plugin(&self, processor: &str, result: &'static str) {
        let processor = processor.to_owned();
        self.reloads.get_or_create(&PluginLabels { processor, result }).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_and_labels_are_these() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        metrics.switched("copy");
        metrics.refused("copy");
        metrics.unchanged("copy");
        metrics.configuration("applied");
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            r#"shardmill_plugin_reloads_total{processor="copy",result="switched"} 1"#,
            r#"shardmill_plugin_reloads_total{processor="copy",result="unchanged"} 1"#,
            r#"shardmill_plugin_reloads_total{processor="copy",result="refused"} 1"#,
            r#"shardmill_config_reloads_total{result="applied"} 1"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
    }
}
