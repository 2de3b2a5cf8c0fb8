//! What has become of the records of an input.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use shardmill_producer::{Acknowledged, Failed, InvalidRecord, Reason, Receipt, Refusal};

use super::parse::Bad;
use super::source::Place;
use crate::cli::{Failure, text};

/// What is not stored is told one by one so often, and counted then.
const TOLD: u64 = 10;

/// What the service answers when this identity may not.
const DENIED: [&str; 5] = [
    "AccessDeniedException",
    "AccessDenied",
    "KMSAccessDeniedException",
    "UnrecognizedClientException",
    "InvalidSignatureException",
];

/// What has become of one record.
#[derive(Debug)]
pub(super) enum Fate {
    Stored(Receipt),
    /// It is on the disk.
    Spooled(Acknowledged),
    Failed(Box<Failed>),
    /// It was not accepted.
    Invalid(InvalidRecord),
    /// It is no record.
    Bad(Bad),
    /// The producer was closed before it was accepted.
    Unsent,
}

/// Counts, and what is to be told.
#[derive(Debug)]
pub(super) struct Tally {
    /// What the files are called.
    names: Vec<String>,
    pub(super) read: u64,
    pub(super) stored: u64,
    /// On the disk when its result came.
    pub(super) spooled: u64,
    may_be_repeated: u64,
    /// By a word for the reason.
    not_stored: BTreeMap<&'static str, u64>,
    /// The first record that is not stored.
    first: Option<Place>,
    /// What nobody but the user can mend; nothing more is sent then.
    pub(super) fatal: Option<Arc<Refusal>>,
}

// === impl Fate ===

impl Fate {
    /// Why it is not stored, in a word and in a sentence.
    fn reason(&self) -> Option<(&'static str, String)> {
        match self {
            Self::Stored(_) | Self::Spooled(_) => None,
            Self::Failed(failed) => Some((failed.reason.word(), failed.reason.to_string())),
            Self::Invalid(reason) => Some(("invalid", reason.to_string())),
            Self::Bad(bad) => Some(("unreadable", bad.to_string())),
            Self::Unsent => Some(("stopped", "it was not sent any more".to_owned())),
        }
    }
}

// === impl Tally ===

impl Tally {
    pub(super) fn new(names: Vec<String>) -> Self {
        Self {
            names,
            read: 0,
            stored: 0,
            spooled: 0,
            may_be_repeated: 0,
            not_stored: BTreeMap::new(),
            first: None,
            fatal: None,
        }
    }

    /// Counts what has become of a record; what is to be told of it, if anything is.
    pub(super) fn take(&mut self, place: Place, fate: &Fate) -> Option<String> {
        self.read += 1;
        match fate {
            Fate::Stored(receipt) => {
                self.stored += 1;
                self.may_be_repeated += u64::from(receipt.may_be_repeated);
            }
            Fate::Spooled(_) => self.spooled += 1,
            _other => {}
        }
        let (word, reason) = fate.reason()?;
        let before = self.lost();
        *self.not_stored.entry(word).or_default() += 1;
        self.leave(place);
        if let Fate::Failed(failed) = fate
            && let Reason::Refused(refusal) = &failed.reason
        {
            // It is told at the end, once.
            self.fatal.get_or_insert_with(|| Arc::clone(refusal));
            return None;
        }
        match before {
            _ if matches!(fate, Fate::Unsent) => None,
            before if before < TOLD => Some(format!("{}: {}", self.name(place), text::line(&reason))),
            TOLD => Some("… and more; --results FILE tells of each".to_owned()),
            _many => None,
        }
    }

    /// Notes where records begin that are not sent any more.
    pub(super) fn leave(&mut self, place: Place) {
        self.first = Some(self.first.map_or(place, |first| first.min(place)));
    }

    /// A line of the results.
    pub(super) fn result(&self, place: Place, fate: &Fate) -> String {
        let mut object = json!({ "file": self.names.get(place.file), "line": place.line });
        let mut set = |name: &str, value: Value| object[name] = value;
        match fate {
            Fate::Stored(receipt) => {
                set("stored", true.into());
                set("message_id", receipt.message_id.get().into());
                set("stream", (*receipt.stream).into());
                set("shard", receipt.shard.as_str().into());
                set("sequence_number", receipt.sequence_number.as_str().into());
                set("sub_sequence_number", receipt.sub_sequence_number.into());
                set("attempts", receipt.attempts.into());
                set("latency_ms", u64::try_from(receipt.latency.as_millis()).unwrap_or(u64::MAX).into());
                set("may_be_repeated", receipt.may_be_repeated.into());
            }
            Fate::Spooled(Acknowledged::Spooled { message_id, attempts, latency }) => {
                set("stored", false.into());
                set("spooled", true.into());
                set("message_id", message_id.get().into());
                set("attempts", (*attempts).into());
                set("latency_ms", u64::try_from(latency.as_millis()).unwrap_or(u64::MAX).into());
            }
            other => {
                let (word, sentence) = other.reason().unwrap_or_default();
                set("stored", false.into());
                set("reason", word.into());
                set("error", sentence.into());
                if let Fate::Failed(failed) = other {
                    set("message_id", failed.message_id.get().into());
                    set("attempts", failed.attempts.into());
                    set("may_be_stored", failed.may_be_stored.into());
                }
            }
        }
        text::json(&object)
    }

    /// What is not stored of what was read.
    pub(super) fn lost(&self) -> u64 {
        self.not_stored.values().sum()
    }

    /// All of it, for machines.
    pub(super) fn json(&self, stream: &str, left: u64, is_interrupted: bool) -> Value {
        json!({
            "stream": stream,
            "read": self.read,
            "stored": self.stored,
            "spooled": self.spooled,
            "left_in_spool": left,
            "not_stored": self.lost(),
            "reasons": self.not_stored,
            "may_be_repeated": self.may_be_repeated,
            "first_not_stored": self.first.map(|place| json!({ "file": self.names.get(place.file), "line": place.line })),
            "interrupted": is_interrupted,
        })
    }

    /// All of it, for people.
    pub(super) fn sentence(&self, stream: &str, left: u64) -> String {
        let records = |count: u64| if count == 1 { "1 record".to_owned() } else { format!("{count} records") };
        let mut sentence = format!("{} stored in {stream}", records(self.stored));
        if self.spooled > 0 {
            sentence += &format!(", {} put into the spool", self.spooled);
        }
        if left > 0 || self.spooled > 0 {
            sentence += &format!(" ({left} wait there)");
        }
        match self.lost() {
            0 => {}
            lost => sentence += &format!(", {lost} not stored ({})", self.reasons()),
        }
        match self.may_be_repeated {
            0 => {}
            repeated => sentence += &format!("; {repeated} may be there more than once, because answers were lost"),
        }
        sentence + "."
    }

    /// What a command must say in the end of records that are not stored, with its exit status.
    pub(super) fn failure(&self, stream: &str) -> Option<Failure> {
        if let Some(refusal) = &self.fatal {
            let message = format!("stream {stream} refuses records ({}): {}", refusal.code, refusal.message);
            let is_denied = DENIED.contains(&refusal.code.as_str());
            let failure = if is_denied { Failure::not_permitted(message) } else { Failure::unavailable(message) };
            return Some(failure.help(self.help(refusal.advice)));
        }
        match self.lost() {
            0 => None,
            lost => {
                let message = format!("{lost} of {} records are not stored: {}", self.read, self.reasons());
                Some(Failure::running(message).help(self.help("--results FILE tells of each")))
            }
        }
    }

    /// Where to go on, and what else to do.
    pub(super) fn help(&self, advice: &str) -> String {
        let first = self.first.map(|place| format!("the first record that is not stored is {}", self.name(place)));
        let parts = first.into_iter().chain((!advice.is_empty()).then(|| advice.to_owned()));
        parts.collect::<Vec<_>>().join("; ")
    }

    fn reasons(&self) -> String {
        let reasons = self.not_stored.iter().map(|(word, count)| format!("{count} {word}"));
        reasons.collect::<Vec<_>>().join(", ")
    }

    fn name(&self, place: Place) -> String {
        let name = self.names.get(place.file).map_or("the input", String::as_str);
        format!("{}, line {}", text::line(name), place.line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(line: u64) -> Place {
        Place { file: 0, line }
    }

    #[test]
    fn what_is_not_stored_is_told_ten_times_and_counted() {
        let mut tally = Tally::new(vec!["a\u{1b}.jsonl".to_owned()]);
        let told: Vec<_> = (1..=20).filter_map(|line| tally.take(place(line), &Fate::Bad(Bad::TooLong))).collect();
        assert_eq!(told.len(), 11);
        assert_eq!(told[0], "a\\u{1b}.jsonl, line 1: it is longer than 32 MiB");
        assert_eq!(told[10], "… and more; --results FILE tells of each");
        assert_eq!(tally.take(place(21), &Fate::Unsent), None);
        assert_eq!((tally.read, tally.lost(), tally.stored), (21, 21, 0));
        assert_eq!(
            tally.sentence("orders", 0),
            "0 records stored in orders, 21 not stored (1 stopped, 20 unreadable)."
        );
        let json = tally.json("orders", 0, false);
        assert_eq!(json["reasons"], json!({ "stopped": 1, "unreadable": 20 }));
        assert_eq!(json["first_not_stored"]["line"], 1);
        assert!(tally.failure("orders").is_some());
        assert!(Tally::new(Vec::new()).failure("orders").is_none());
    }

    #[test]
    fn a_result_says_where_the_record_was_and_why_it_is_not_stored() {
        let tally = Tally::new(vec!["events".to_owned()]);
        let result: Value = serde_json::from_str(&tally.result(place(3), &Fate::Bad(Bad::TooLong))).unwrap();
        let expected = json!({
            "file": "events",
            "line": 3,
            "stored": false,
            "reason": "unreadable",
            "error": "it is longer than 32 MiB",
        });
        assert_eq!(result, expected);
    }
}
