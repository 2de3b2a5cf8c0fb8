//! In which table a processor's document is.

use crate::config::{Config, Processor};

/// The key of a processor's document.
pub(crate) fn key(processor: &str) -> String {
    format!("plugin/{processor}")
}

/// The processor in whose sidecar table the document is: its own if it reads a stream; of a stage, which has no table, the
/// alphabetically first that reads a stream and from which records come to it, through others or not. Nothing but the
/// configuration says so, so workers whose configurations agree look in one place. `None` for a stage to which nothing
/// leads.
pub(crate) fn home<'a>(config: &'a Config, name: &str) -> Option<&'a Processor> {
    let own = config.processors.get(name)?;
    if own.lease_table.is_some() {
        return Some(own);
    }
    let mut readers = config.processors.values().filter(|processor| processor.lease_table.is_some());
    readers.find(|reader| config.reached(&reader.name).contains(name))
}

/// The processors whose documents are in the table of this one.
pub(crate) fn at_home<'a>(config: &'a Config, consumer: &str) -> Vec<&'a Processor> {
    let is_here = |other: &&Processor| home(config, &other.name).is_some_and(|home| home.name == consumer);
    config.processors.values().filter(is_here).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config;

    #[test]
    fn a_document_is_with_the_processor_or_with_the_first_from_which_records_come_to_it() {
        let text = r#"
application = "shop"
[processors.orders]
stream = "orders"
plugin = "a.wasm"
[processors.orders.outputs.more]
to = "processor:parse"
[processors.audit]
stream = "audit"
plugin = "a.wasm"
lease-table = "audits"
[processors.audit.outputs.out]
to = "processor:enrich"
[processors.parse]
plugin = "b.wasm"
[processors.parse.outputs.out]
to = "processor:enrich"
[processors.parse.outputs.again]
to = "processor:parse"
[processors.enrich]
plugin = "c.wasm"
[processors.enrich.outputs.out]
stream = "done"
"#;
        let config = config::parse("shardmill.toml", text, Path::new("")).unwrap();
        let home = |name: &str| home(&config, name).map(|home| home.name.as_str());
        assert_eq!(
            ["orders", "audit", "parse", "enrich", "none"].map(home),
            [
                Some("orders"),
                Some("audit"),
                Some("orders"),
                // Also from `orders`, through `parse`; `audit` is first.
                Some("audit"),
                None
            ]
        );
        let names = |consumer: &str| -> Vec<&str> {
            at_home(&config, consumer).iter().map(|processor| processor.name.as_str()).collect()
        };
        assert_eq!((names("orders"), names("audit")), (vec!["orders", "parse"], vec!["audit", "enrich"]));
    }
}
