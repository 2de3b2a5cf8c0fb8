//! What has become of the records of an input.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use shardmill_cause::{Code, code};
use shardmill_producer::{Acknowledged, Failed, InvalidRecord, Reason, Receipt, Refusal};

use super::parse::Bad;
use super::sending::Ended;
use super::source::Place;
use crate::cli::{Failure, text};

/// What is not stored is told one by one so often, and counted then.
const TOLD: u64 = 10;

/// When so many are refused and not one is stored, it is not for what is in them.
const REFUSED: u64 = 1_000;

/// What it answers when a record is wrong, and not the stream or who sends it.
const OF_A_RECORD: [&str; 3] = ["ValidationException", "InvalidArgumentException", "SerializationException"];

/// What stands for an answer where there is none.
const UNANSWERED: [&str; 2] = ["connection", "timeout"];

/// The word for lines that are no records.
const UNREADABLE: &str = "unreadable";

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
    /// The end came before it was accepted.
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
    /// Whether the service did not answer in a record's whole time, and what came in place of an answer, if anything did.
    unanswered: Option<Option<Arc<Refusal>>>,
}

// === impl Fate ===

impl Fate {
    /// Why it is not stored, in a word and in a sentence.
    fn reason(&self) -> Option<(&'static str, String)> {
        match self {
            Self::Stored(_) | Self::Spooled(_) => None,
            Self::Failed(failed) => Some((failed.reason.word(), sentence(&failed.reason))),
            Self::Invalid(reason) => Some(("invalid", reason.to_string())),
            Self::Bad(bad) => Some((UNREADABLE, bad.to_string())),
            Self::Unsent => Some(("stopped", "it was not sent any more".to_owned())),
        }
    }
}

/// Why a record is not stored. What there is to do is said in the words of a command.
fn sentence(reason: &Reason) -> String {
    match reason {
        Reason::Refused(refusal) => {
            let Refusal { code, message, .. } = &**refusal;
            format!("the service refuses it ({code}): {message}; {}", advice(refusal))
        }
        other => other.to_string(),
    }
}

fn advice(refusal: &Refusal) -> &'static str {
    match refusal.code.as_str() {
        "ResourceNotFoundException" => {
            "make the stream with `shardmill stream create`, or correct its name, its region or the endpoint"
        }
        code if OF_A_RECORD.contains(&code) => "check its size and its key, and what the stream takes",
        _code if refusal.is_denied() => refusal.advice,
        _other => "check what answers at the endpoint",
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
            unanswered: None,
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
        if let Fate::Failed(failed) = fate {
            match &failed.reason {
                Reason::Refused(refusal) if self.is_fatal(refusal) => {
                    // It is told at the end, once.
                    self.fatal.get_or_insert_with(|| Arc::clone(refusal));
                    return None;
                }
                Reason::Expired { last } if last.as_ref().is_none_or(|last| UNANSWERED.contains(&&*last.code)) => {
                    self.unanswered.get_or_insert_with(|| last.clone());
                }
                _other => {}
            }
        }
        match before {
            _ if matches!(fate, Fate::Unsent) => None,
            before if before < TOLD => Some(format!("{}: {}", self.name(place), text::line(&reason))),
            TOLD => Some("… and more; --results FILE tells of each".to_owned()),
            _many => None,
        }
    }

    /// Whether no record will be taken. One that is wrong by itself says nothing of others.
    fn is_fatal(&self, refusal: &Refusal) -> bool {
        let refused = self.not_stored.get("refused").copied().unwrap_or_default();
        !OF_A_RECORD.contains(&refusal.code.as_str()) || self.stored == 0 && refused >= REFUSED
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
    pub(super) fn json(&self, stream: &str, left: u64, ended: &Ended) -> Value {
        json!({
            "stream": stream,
            "ended": ended.word(),
            "read": self.read,
            "stored": self.stored,
            "spooled": self.spooled,
            "left_in_spool": left,
            "not_stored": self.lost(),
            "reasons": self.not_stored,
            "may_be_repeated": self.may_be_repeated,
            "first_not_stored": self.first.map(|place| json!({ "file": self.names.get(place.file), "line": place.line })),
            "files_not_read": self.unread(ended),
            "interrupted": matches!(ended, Ended::Interrupted),
        })
    }

    /// The files behind the one that could not be read.
    pub(super) fn unread(&self, ended: &Ended) -> &[String] {
        match ended {
            Ended::Input(error) => self.names.get(error.place().file + 1..).unwrap_or_default(),
            _other => &[],
        }
    }

    /// All of it, for people.
    pub(super) fn sentence(&self, stream: &str, left: u64) -> String {
        let mut sentence = format!("{} stored in {stream}", text::counted(self.stored, "record"));
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
            repeated => {
                sentence += &format!(
                    "; {repeated} may be there more than once, because answers were lost or the stream's shards changed"
                );
            }
        }
        sentence + "."
    }

    /// What a command must say in the end of records that are not stored, with its exit status.
    pub(super) fn failure(&self, stream: &str) -> Option<Failure> {
        if let Some(refusal) = &self.fatal {
            let message = format!("stream {stream} refuses records ({}): {}", refusal.code, refusal.message);
            let failure = if refusal.is_denied() {
                Failure::not_permitted(message).code(code::producer::DENIED)
            } else {
                Failure::unavailable(message).code(code::producer::REFUSED)
            };
            return Some(failure.help(self.help(advice(refusal))));
        }
        match self.lost() {
            0 => None,
            lost => {
                let message = format!("{lost} of {} records are not stored: {}", self.read, self.reasons());
                match &self.unanswered {
                    Some(last) if self.stored + self.spooled == 0 => {
                        let last = last.as_ref().map(|last| format!(" ({}): {}", last.code, last.message));
                        let message = format!("{message}; the service does not answer{}", last.unwrap_or_default());
                        Some(
                            Failure::unavailable(message)
                                .code(code::input::NOT_STORED)
                                .help(self.help("check the network and the endpoint")),
                        )
                    }
                    _other => Some(
                        Failure::running(message).code(self.code()).help(self.help("--results FILE tells of each")),
                    ),
                }
            }
        }
    }

    /// Where to go on, and what else to do.
    pub(super) fn help(&self, advice: &str) -> String {
        let first = self.first.map(|place| format!("the first record that is not stored is {}", self.name(place)));
        let parts = first.into_iter().chain((!advice.is_empty()).then(|| advice.to_owned()));
        parts.collect::<Vec<_>>().join("; ")
    }

    /// That of what is wrong, where all that is not stored could not be read; else that records were not taken.
    fn code(&self) -> Code {
        let is_unreadable = self.not_stored.keys().all(|word| *word == UNREADABLE);
        if is_unreadable { code::input::BAD_LINES } else { code::input::NOT_STORED }
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
        let json = tally.json("orders", 0, &Ended::Whole);
        assert_eq!(json["reasons"], json!({ "stopped": 1, "unreadable": 20 }));
        assert_eq!(json["first_not_stored"]["line"], 1);
        assert!(tally.failure("orders").is_some());
        assert!(Tally::new(Vec::new()).failure("orders").is_none());
    }

    #[test]
    fn a_record_that_is_refused_alone_is_told_and_is_not_the_end() {
        let refusal = |code: &str| Refusal { code: code.to_owned(), message: "m".to_owned(), advice: "configure" };
        let mut tally = Tally::new(vec!["a".to_owned()]);
        for code in OF_A_RECORD {
            assert!(!tally.is_fatal(&refusal(code)), "{code}");
        }
        let told = sentence(&Reason::Refused(Arc::new(refusal("ValidationException"))));
        assert!(told.starts_with("the service refuses it (ValidationException): m; check its size"), "{told}");
        tally.not_stored.insert("refused", REFUSED);
        assert!(tally.is_fatal(&refusal("ValidationException")), "of so many one would have been good");
        tally.stored = 1;
        assert!(!tally.is_fatal(&refusal("ValidationException")));
        for code in ["ResourceNotFoundException", "credentials", "UnknownOperationException"] {
            assert!(tally.is_fatal(&refusal(code)), "{code}");
        }
        tally.fatal = Some(Arc::new(refusal("credentials")));
        let failure = tally.failure("orders").expect("a failure");
        assert_eq!(failure.report(), std::process::ExitCode::from(77));
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
