//! What a worker tells of itself in its row of the fleet. Read with leniency: other workers may be of other versions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use shardmill_engine::Status;
use shardmill_plugin::Digest;

use super::board::Board;
use crate::unix_ms;

/// Shards whose lag a note names; the note is read by the leader at every scan.
const LAGS: usize = 20;
/// The most characters of a reason.
const REASON: usize = 300;

/// A worker's note, in the row of one consumer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Note {
    /// When it was written, by the worker's clock, in milliseconds since 1970.
    pub(crate) at: u64,
    /// The version of Shardmill.
    pub(crate) build: String,
    /// By the processors whose documents are in the table of the row.
    pub(crate) plugins: BTreeMap<String, PluginNote>,
    /// The largest lag of the consumer's shards on this worker, in milliseconds, if any is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lag: Option<u64>,
    /// By the keys of leases, those that are farthest behind.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) lags: BTreeMap<String, u64>,
}

/// What a worker says of a plugin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PluginNote {
    /// What it runs.
    #[serde(with = "super::hex")]
    pub(crate) running: Digest,
    /// Since when, in milliseconds since 1970.
    pub(crate) since: u64,
    /// The file that its configuration names.
    #[serde(with = "super::hex")]
    pub(crate) file: Digest,
    /// What it should run, as far as it has looked.
    #[serde(with = "super::hex")]
    pub(crate) aim: Digest,
    /// The number of the decision for that: what it says of another one is old.
    pub(crate) revision: u64,
    /// Why it does not run that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) trouble: Option<String>,
    /// Whether it runs something else because it was told so by itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_local: bool,
}

// === impl Note ===

impl Note {
    pub(crate) fn read(value: &Value) -> Self {
        let object = |name: &str| value.get(name).and_then(Value::as_object).into_iter().flatten();
        Self {
            at: value["at"].as_u64().unwrap_or_default(),
            build: value["build"].as_str().unwrap_or_default().to_owned(),
            plugins: object("plugins")
                .filter_map(|(name, plugin)| Some((name.clone(), PluginNote::deserialize(plugin).ok()?)))
                .collect(),
            lag: value["lag"].as_u64(),
            lags: object("lags").filter_map(|(key, lag)| Some((key.clone(), lag.as_u64()?))).collect(),
        }
    }
}

/// The note of a consumer's row, made anew at every beat.
pub(crate) fn of_consumer(
    consumer: &str,
    processors: &[&str],
    board: &Board,
    status: &Status,
) -> shardmill_lease::Note {
    let consumer = consumer.to_owned();
    let processors: Vec<String> = processors.iter().map(|name| (*name).to_owned()).collect();
    let (board, status) = (board.clone(), status.clone());
    shardmill_lease::Note::new(move || {
        let plugins = processors.iter().filter_map(|name| Some((name.clone(), plugin(&board, name)?))).collect();
        let snapshot = status.snapshot();
        let shards = snapshot.get(&consumer).into_iter().flat_map(|consumer| &consumer.shards);
        let lags = shards.filter_map(|(key, shard)| Some((key.clone(), shard.millis_behind_latest?)));
        let (lag, lags) = worst(lags.collect());
        let build = env!("CARGO_PKG_VERSION").to_owned();
        serde_json::to_value(Note { at: unix_ms::now(), build, plugins, lag, lags }).ok()
    })
}

fn plugin(board: &Board, name: &str) -> Option<PluginNote> {
    let standing = board.standing(name)?;
    Some(PluginNote {
        running: standing.running,
        since: unix_ms::of(standing.since),
        file: standing.file,
        aim: standing.aim,
        revision: standing.revision,
        trouble: standing.trouble.map(|reason| reason.chars().take(REASON).collect()),
        is_local: standing.is_local,
    })
}

/// The largest, and those that are largest.
fn worst(mut lags: Vec<(String, u64)>) -> (Option<u64>, BTreeMap<String, u64>) {
    lags.sort_by(|(left_key, left), (right_key, right)| right.cmp(left).then_with(|| left_key.cmp(right_key)));
    let largest = lags.first().map(|(_, lag)| *lag);
    lags.truncate(LAGS);
    (largest, lags.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_written_and_of_others_what_can_be_read() {
        let digest = Digest::of(b"a");
        let (since, revision, trouble, is_local) = (7, 1, None, false);
        let plugin = PluginNote { running: digest, since, file: digest, aim: digest, revision, trouble, is_local };
        let note = Note {
            at: 1,
            build: "0.1.0".to_owned(),
            plugins: BTreeMap::from([("copy".to_owned(), plugin)]),
            lag: Some(9),
            lags: BTreeMap::from([("shardId-0".to_owned(), 9)]),
        };
        let written = json!(note);
        assert_eq!(Note::read(&written), note);
        let mut later = written;
        later["plugins"]["odd"] = json!({ "running": 7 });
        later["lags"]["odd"] = json!("far");
        later["more"] = json!([1]);
        assert_eq!(Note::read(&later), note);
        assert_eq!(Note::read(&json!("a text")), Note::default());
    }

    #[test]
    fn the_lags_that_a_note_names_are_the_largest() {
        let lags = (0..100).map(|number| (format!("shardId-{number:03}"), number % 50)).collect();
        let (largest, named) = worst(lags);
        assert_eq!((largest, named.len(), named.values().min()), (Some(49), LAGS, Some(&40)));
        assert_eq!(worst(Vec::new()), (None, BTreeMap::new()));
    }
}
