//! What two configurations have in common, key by key, and which keys can be changed while everything runs.
//!
//! Files are compared as they are written: a key that nobody has thought of here differs, and needs a restart. So nothing can
//! be forgotten, and a size that is written in another way counts as another one.

use std::collections::BTreeSet;

use toml::{Table, Value};

/// A key whose value differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    /// Such as `["processors", "flights", "config"]`.
    pub(crate) path: Vec<String>,
    /// Whether it can be applied while everything runs.
    pub(crate) is_live: bool,
}

/// Every key whose value differs, in the order of the keys. Of a table that is there or not it is each key in it; but a
/// processor, a stream or an output that comes or goes is named by itself, and so is the guest's own configuration.
pub(crate) fn diff(old: &Table, new: &Table) -> Vec<Change> {
    let mut changes = Vec::new();
    compare(&mut Vec::new(), old, new, &mut changes);
    changes
}

fn compare(path: &mut Vec<String>, old: &Table, new: &Table, changes: &mut Vec<Change>) {
    let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    for key in keys {
        path.push(key.clone());
        let empty = Table::new();
        match (old.get(key), new.get(key)) {
            (Some(old), Some(new)) if old == new => {}
            (Some(Value::Table(old)), Some(Value::Table(new))) if !is_whole(path) => compare(path, old, new, changes),
            (None, Some(Value::Table(new))) if !is_named(path) && !is_whole(path) => {
                compare(path, &empty, new, changes)
            }
            (Some(Value::Table(old)), None) if !is_named(path) && !is_whole(path) => {
                compare(path, old, &empty, changes)
            }
            _differ => changes.push(Change { path: path.clone(), is_live: is_live(path) }),
        }
        path.pop();
    }
}

fn keys(path: &[String]) -> Vec<&str> {
    path.iter().map(String::as_str).collect()
}

/// Whether this is a section that has a name.
fn is_named(path: &[String]) -> bool {
    matches!(keys(path)[..], ["processors" | "streams", _] | ["processors", _, "outputs", _])
}

/// Whether this is a value as a whole, whatever is in it.
fn is_whole(path: &[String]) -> bool {
    matches!(keys(path)[..], ["processors", _, "config"])
}

/// What can be applied while everything runs: what makes another version of a plugin, what is asked for each time that it is
/// needed, and nothing that a shard, a lease or a connection was made with.
fn is_live(path: &[String]) -> bool {
    match keys(path)[..] {
        // Of a limit that the engine knows as well, the two must be one; instances have places that were reserved.
        ["processors", _, "limits", limit] | ["defaults", "processor", "limits", limit] => {
            !matches!(limit, "instances" | "outcome" | "outputs")
        }
        ["processors", _, "plugin" | "config"]
        | ["processors", _, "grants" | "reload", ..]
        | ["defaults", "processor", "grants", ..]
        | ["log", "filter"]
        | ["watchdog" | "reload", ..] => true,
        _ => false,
    }
}

// === impl Change ===

impl Change {
    /// The key as it is written.
    pub(crate) fn key(&self) -> String {
        self.path.join(".")
    }

    /// The processor whose section it is in.
    pub(crate) fn processor(&self) -> Option<&str> {
        match keys(&self.path)[..] {
            ["processors", name, ..] => Some(name),
            _ => None,
        }
    }

    /// Whether it is about where a processor's outputs go. A version of a plugin that goes with it may name outputs that are
    /// not there yet.
    pub(crate) fn is_of_outputs(&self) -> bool {
        matches!(keys(&self.path)[..], ["processors", _, "outputs", ..])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn table(text: &str) -> Table {
        toml::from_str(text).unwrap()
    }

    fn told(old: &str, new: &str) -> Vec<(String, bool)> {
        diff(&table(old), &table(new)).into_iter().map(|change| (change.key(), change.is_live)).collect()
    }

    #[test]
    fn what_makes_another_version_of_a_plugin_is_live_and_what_a_shard_was_made_with_is_not() {
        let processor = |lines: &str| format!("[processors.a]\nstream = \"s\"\nplugin = \"a.wasm\"\n{lines}");
        for (lines, key, is_live) in [
            ("config = { minutes = 15 }", "processors.a.config", true),
            ("limits = { memory = \"1 MiB\" }", "processors.a.limits.memory", true),
            ("limits = { instances = 3 }", "processors.a.limits.instances", false),
            ("limits = { outcome = \"1 MiB\" }", "processors.a.limits.outcome", false),
            ("limits = { outputs = 5 }", "processors.a.limits.outputs", false),
            ("grants = { clocks = false }", "processors.a.grants.clocks", true),
            ("reload = { trial = \"a.jsonl\" }", "processors.a.reload.trial", true),
            ("batch = { records = 5 }", "processors.a.batch.records", false),
            ("delivery = \"at-most-once\"", "processors.a.delivery", false),
            ("[processors.a.outputs.o]\nstream = \"t\"", "processors.a.outputs.o", false),
            ("[[processors.a.batchers]]\nname = \"b\"", "processors.a.batchers", false),
        ] {
            assert_eq!(told(&processor(""), &processor(lines)), [(key.to_owned(), is_live)], "{lines}");
            assert_eq!(told(&processor(lines), &processor("")), [(key.to_owned(), is_live)], "without {lines}");
        }
        for (lines, key, is_live) in [
            ("memory = \"1 GiB\"", "memory", false),
            ("[log]\nfilter = \"debug\"", "log.filter", true),
            ("[log]\nformat = \"json\"", "log.format", false),
            ("[watchdog]\nlag-alarm = 3", "watchdog.lag-alarm", true),
            ("[reload]\nwatch = false", "reload.watch", true),
            ("[defaults.processor.limits]\nmemory = 5", "defaults.processor.limits.memory", true),
            ("[defaults.processor.retry]\nattempts = 5", "defaults.processor.retry.attempts", false),
            ("[leases]\nexpiry = \"3s\"", "leases.expiry", false),
        ] {
            assert_eq!(told("", lines), [(key.to_owned(), is_live)], "{lines}");
        }
    }

    #[test]
    fn sections_that_come_or_go_are_named_once_and_values_as_the_keys_that_hold_them() {
        let old = "[processors.a]\nplugin = \"a\"\nconfig = { x = 1, y = { z = 2 } }\n[streams.s]\nidle = \"1s\"";
        let new = "[processors.b]\nplugin = \"a\"\n[streams.s]\nidle = \"2s\"\n[processors.a]\nplugin = \"a2\"\nconfig = { x = 1, y = { z = 3 } }";
        let expected = [
            ("processors.a.config", true),
            ("processors.a.plugin", true),
            ("processors.b", false),
            ("streams.s.idle", false),
        ];
        assert_eq!(told(old, new), expected.map(|(key, is_live)| (key.to_owned(), is_live)));
        // A stream's retention is no live key because a processor's is called alike.
        assert_eq!(told("", "[streams.s]\nplugin = \"x\""), [("streams.s".to_owned(), false)]);
        assert_eq!(told("[log]\n", ""), [], "an empty table says nothing");
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![any::<i64>().prop_map(Value::Integer), "[a-c]{0,3}".prop_map(Value::String)];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::Array),
                prop::collection::btree_map("(processors|config|limits|a|b)", inner, 0..4)
                    .prop_map(|table| Value::Table(table.into_iter().collect())),
            ]
        })
    }

    fn tables() -> impl Strategy<Value = Table> {
        prop::collection::btree_map("(processors|streams|log|memory)", value(), 0..4)
            .prop_map(|table| table.into_iter().collect())
    }

    /// Without tables that hold nothing: they say nothing.
    fn pruned(table: &Table, path: &mut Vec<String>) -> Table {
        let mut kept = Table::new();
        for (key, value) in table {
            path.push(key.clone());
            match value {
                Value::Table(inner) if !is_whole(path) && !is_named(path) => {
                    let inner = pruned(inner, path);
                    if !inner.is_empty() {
                        kept.insert(key.clone(), Value::Table(inner));
                    }
                }
                Value::Table(inner) if !is_whole(path) => {
                    kept.insert(key.clone(), Value::Table(pruned(inner, path)));
                }
                other => _ = kept.insert(key.clone(), other.clone()),
            }
            path.pop();
        }
        kept
    }

    proptest! {
        #[test]
        fn two_files_differ_in_a_key_if_and_only_if_they_say_different_things(old in tables(), new in tables()) {
            let is_same = pruned(&old, &mut Vec::new()) == pruned(&new, &mut Vec::new());
            prop_assert_eq!(diff(&old, &new).is_empty(), is_same);
            prop_assert!(diff(&old, &old).is_empty());
        }

        #[test]
        fn a_key_that_differs_one_way_differs_the_other_way_too(old in tables(), new in tables()) {
            prop_assert_eq!(diff(&old, &new), diff(&new, &old));
        }
    }
}
