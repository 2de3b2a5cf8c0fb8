//! What this worker runs and what the fleet wants of it, for its row, its admin server and its metrics.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use serde_json::{Value, json};
use shardmill_plugin::Digest;

use super::share::Share;
use crate::unix_ms;

/// Where each processor of this worker stands. Cheap to clone; all clones are one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Board(Arc<Mutex<BTreeMap<String, Standing>>>);

/// Where a processor stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Standing {
    /// What it runs.
    pub(crate) running: Digest,
    pub(crate) since: SystemTime,
    /// The file that the configuration names.
    pub(crate) file: Digest,
    /// What it should run.
    pub(crate) aim: Digest,
    /// The number of the decision for that.
    pub(crate) revision: u64,
    /// Where that is, as it is shown to people; `None` for the file.
    pub(crate) source: Option<String>,
    /// What an operator has asked for, and for how many workers.
    pub(crate) wanted: Option<(Digest, Share)>,
    /// Why it does not run what it should.
    pub(crate) trouble: Option<String>,
    /// Whether that is because it was refused, which is told with the plugin.
    pub(crate) is_refused: bool,
    /// Whether it runs something else because this worker was told so by itself.
    pub(crate) is_local: bool,
}

// === impl Board ===

impl Board {
    pub(crate) fn put(&self, processor: &str, standing: Standing) {
        self.with(|all| all.insert(processor.to_owned(), standing));
    }

    pub(crate) fn standing(&self, processor: &str) -> Option<Standing> {
        self.with(|all| all.get(processor).cloned())
    }

    /// What should be known and keeps nobody from being ready, a sentence for each.
    pub(crate) fn notes(&self) -> Vec<String> {
        self.with(|all| all.iter().filter_map(|(processor, standing)| standing.note(processor)).collect())
    }

    /// All of it, by processor.
    pub(crate) fn json(&self) -> Value {
        self.with(|all| all.iter().map(|(processor, standing)| (processor.clone(), standing.json())).collect())
    }

    fn with<T>(&self, change: impl FnOnce(&mut BTreeMap<String, Standing>) -> T) -> T {
        // Entries are plain values: a panic elsewhere cannot leave them half-changed.
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

// === impl Standing ===

impl Standing {
    /// Where nothing is wanted, what this worker was told by itself is nobody's affair.
    pub(crate) fn is_as_wanted(&self) -> bool {
        self.running == self.aim || self.is_local && self.wanted.is_none()
    }

    fn note(&self, processor: &str) -> Option<String> {
        let (aim, running) = (self.aim.short(), self.running.short());
        match &self.trouble {
            Some(_) if self.is_refused => None,
            Some(reason) => Some(format!(
                "processor {processor}: plugin {aim} is wanted and cannot be had: {reason}; {running} goes on meanwhile"
            )),
            None if !self.is_as_wanted() && self.is_local => Some(format!(
                "processor {processor}: this worker was told to run plugin {running}; the fleet wants {aim}"
            )),
            None => None,
        }
    }

    fn json(&self) -> Value {
        json!({
            "running": self.running.to_string(),
            "since": unix_ms::of(self.since),
            "file": self.file.to_string(),
            "should_run": self.aim.to_string(),
            "source": self.source,
            "wanted": self.wanted.map(|(wanted, _)| wanted.to_string()),
            "share": self.wanted.map(|(_, share)| u8::from(share)),
            "trouble": self.trouble,
            "is_local": self.is_local,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_as_wanted_is_said() {
        let board = Board::default();
        let [one, two] = ["one", "two"].map(|name| Digest::of(name.as_bytes()));
        let good = Standing {
            running: two,
            since: SystemTime::UNIX_EPOCH,
            file: one,
            aim: two,
            revision: 1,
            source: Some("/two.wasm".to_owned()),
            wanted: Some((two, Share::ALL)),
            trouble: None,
            is_refused: false,
            is_local: false,
        };
        board.put("good", good.clone());
        assert_eq!(board.notes(), Vec::<String>::new());
        let trouble = Some("/two.wasm is gone".to_owned());
        let bad = Standing { running: one, trouble, ..good.clone() };
        board.put("bad", bad.clone());
        board.put("refused", Standing { is_refused: true, ..bad });
        let local = Standing { running: one, is_local: true, ..good };
        board.put("local", local.clone());
        board.put("alone", Standing { wanted: None, ..local });
        let notes = board.notes();
        assert_eq!(notes.len(), 2, "what is refused is told elsewhere: {notes:?}");
        assert!(notes[0].contains("/two.wasm is gone") && notes[0].contains(&one.short()), "{notes:?}");
        assert!(notes[1].contains("this worker was told") && notes[1].contains(&two.short()), "{notes:?}");
        let shown = board.json();
        assert_eq!((&shown["good"]["share"], &shown["bad"]["trouble"]), (&json!(100), &json!("/two.wasm is gone")));
        assert_eq!(shown["local"]["running"], one.to_string());
    }
}
