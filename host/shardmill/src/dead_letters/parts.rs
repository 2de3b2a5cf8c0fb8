//! A dead letter as records of a stream: one, or several where it is larger than a record may be.
//!
//! Base64 makes a payload a third larger, so that a letter about a record of 800 KiB does not fit into a record. Its text
//! is cut then, and each part says which one it is: nothing is left out, and no letter is too large.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use shardmill_engine::DeadLetter;
use shardmill_record::{HashKey, UserRecord};

use super::identity::{LetterId, hex};
use super::letter::{NotALetter, from_json, to_json};

/// What every stream takes as one record, its partition key included.
const MAX_RECORD_BYTES: usize = 1 << 20;
/// In Unicode characters.
const MAX_KEY_CHARACTERS: usize = 256;
/// The most parts that a reader puts together.
const MAX_PARTS: u32 = 10_000;

/// One part of a letter's text.
#[derive(Debug, Serialize, Deserialize)]
struct Part {
    /// The version of the form, as in a whole letter.
    dead_letter_part: u32,
    id: String,
    /// SHA-256 of the whole text: parts of one text belong together, whichever copy of it they are from.
    digest: String,
    /// From 1.
    part: u32,
    parts: u32,
    text: String,
}

/// Puts parts together again.
#[derive(Debug, Default)]
pub(crate) struct Joiner {
    /// By the digest of the whole text.
    open: HashMap<String, BTreeMap<u32, String>>,
    /// What has been put together: further copies of its parts are no news.
    joined: HashSet<String>,
}

/// What a record of a stream holds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// A letter, perhaps with its last part.
    Letter(Box<DeadLetter>),
    /// A part of a letter, of which others are missing.
    Part,
    /// No letter.
    Not(NotALetter),
}

/// The records that hold a letter, in order, all with one partition key: the letter's own, so that letters of a key stay
/// in order.
pub(crate) fn records(letter: &DeadLetter) -> Vec<UserRecord> {
    let partition_key = partition_key(letter);
    let text = to_json(letter);
    let room = MAX_RECORD_BYTES - partition_key.len();
    let texts = if text.len() <= room { vec![text] } else { cut(letter, &text, room) };
    let record = |text: String| UserRecord {
        partition_key: partition_key.clone(),
        // Not the letter's: records of one key may have several, and would leave their order.
        explicit_hash_key: None,
        data: text.into(),
    };
    texts.into_iter().map(record).collect()
}

/// The record's own key. A user record of an aggregate may have one that PutRecords does not take: then another one, the
/// same for all records of that key.
fn partition_key(letter: &DeadLetter) -> String {
    let key = &letter.partition_key;
    let is_taken = (1..=MAX_KEY_CHARACTERS).contains(&key.chars().count());
    if is_taken { key.clone() } else { HashKey::of_partition_key(key).to_string() }
}

fn cut(letter: &DeadLetter, text: &str, room: usize) -> Vec<String> {
    let mut part = Part {
        dead_letter_part: 1,
        id: LetterId::of(letter).to_string(),
        digest: hex(&Sha256::digest(text)),
        part: MAX_PARTS,
        parts: MAX_PARTS,
        text: String::new(),
    };
    let frame = serde_json::to_string(&part).expect("texts and numbers can be written").len();
    let slices = slices(text, room - frame);
    part.parts = u32::try_from(slices.len()).unwrap_or(u32::MAX);
    let parts = slices.into_iter().zip(1..).map(|(slice, number)| {
        part.part = number;
        slice.clone_into(&mut part.text);
        serde_json::to_string(&part).expect("texts and numbers can be written")
    });
    parts.collect()
}

/// A text in slices of which each has at most so many bytes (6 or more) as a JSON string.
fn slices(text: &str, room: usize) -> Vec<&str> {
    let mut slices = Vec::new();
    let (mut start, mut taken) = (0, 0);
    for (at, character) in text.char_indices() {
        let size = match character {
            '"' | '\\' => 2,
            '\u{0}'..'\u{20}' => 6,
            other => other.len_utf8(),
        };
        if taken + size > room {
            slices.push(&text[start..at]);
            (start, taken) = (at, 0);
        }
        taken += size;
    }
    slices.push(&text[start..]);
    slices
}

// === impl Joiner ===

impl Joiner {
    /// Takes the payload of a record.
    pub(crate) fn take(&mut self, data: &[u8]) -> Taken {
        match from_json(data) {
            Ok(letter) => Taken::Letter(Box::new(letter)),
            Err(NotALetter::Other) => match serde_json::from_slice::<Part>(data) {
                Ok(part) => self.join(part),
                Err(_) => Taken::Not(NotALetter::Other),
            },
            Err(other) => Taken::Not(other),
        }
    }

    /// How many letters are not whole.
    pub(crate) fn incomplete(&self) -> usize {
        self.open.len()
    }

    fn join(&mut self, part: Part) -> Taken {
        if part.dead_letter_part > 1 {
            return Taken::Not(NotALetter::Newer(part.dead_letter_part));
        }
        if !(1..=MAX_PARTS).contains(&part.parts) || !(1..=part.parts).contains(&part.part) {
            return Taken::Not(NotALetter::Damaged(format!("there is no part {} of {}", part.part, part.parts)));
        }
        if self.joined.contains(&part.digest) {
            return Taken::Part;
        }
        let open = self.open.entry(part.digest.clone()).or_default();
        open.insert(part.part, part.text);
        if open.len() < part.parts as usize {
            return Taken::Part;
        }
        let text: String = self.open.remove(&part.digest).unwrap_or_default().into_values().collect();
        if hex(&Sha256::digest(&text)) != part.digest {
            return Taken::Not(NotALetter::Damaged("its parts do not belong together".to_owned()));
        }
        self.joined.insert(part.digest);
        match from_json(text.as_bytes()) {
            Ok(letter) => Taken::Letter(Box::new(letter)),
            Err(other) => Taken::Not(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::letter::tests::{letter, letters};
    use super::*;

    fn assert_fits(records: &[UserRecord]) {
        for record in records {
            assert!((1..=MAX_KEY_CHARACTERS).contains(&record.partition_key.chars().count()), "{record:?}");
            let bytes = record.partition_key.len() + record.data.len();
            assert!(bytes <= MAX_RECORD_BYTES, "{bytes} bytes");
        }
    }

    /// What comes of the last record.
    fn joined(records: &[UserRecord]) -> Option<Taken> {
        let mut joiner = Joiner::default();
        records.iter().fold(None, |_, record| Some(joiner.take(&record.data)))
    }

    fn large(bytes: usize) -> DeadLetter {
        let mut letter = letter(1);
        letter.data = (0..bytes).map(|index| (index * 7 % 251) as u8).collect::<Vec<_>>().into();
        letter
    }

    #[test]
    fn a_letter_of_any_size_fits_into_records_and_comes_back() {
        let one = {
            // The largest payload that fits into one record.
            let frame = records(&large(0))[0].data.len() + letter(1).partition_key.len();
            (MAX_RECORD_BYTES - frame) / 4 * 3
        };
        for (bytes, expected) in [(0, 1), (one, 1), (one + 1, 2), (1 << 20, 2), (10 << 20, 14)] {
            let letter = large(bytes);
            let records = records(&letter);
            assert_eq!(records.len(), expected, "{bytes} bytes");
            assert_fits(&records);
            let mut joiner = Joiner::default();
            let (last, others) = records.split_last().unwrap();
            for record in others {
                assert_eq!(joiner.take(&record.data), Taken::Part);
                assert_eq!(joiner.incomplete(), 1);
            }
            assert_eq!(joiner.take(&last.data), Taken::Letter(Box::new(letter)));
            assert_eq!(joiner.incomplete(), 0);
        }
    }

    #[test]
    fn a_key_that_no_record_may_have_is_kept_in_the_letter_and_replaced_outside() {
        for key in [String::new(), "k".repeat(257), "é".repeat(300_000), "\u{1}".repeat(400_000)] {
            let mut letter = letter(1);
            letter.partition_key = key.clone();
            let records = records(&letter);
            assert_fits(&records);
            let keys: HashSet<_> = records.iter().map(|record| &record.partition_key).collect();
            assert_eq!(keys.len(), 1, "letters of one key are in one shard");
            assert_eq!(joined(&records), Some(Taken::Letter(Box::new(letter))));
        }
        let mut longest = letter(1);
        longest.partition_key = "é".repeat(256);
        assert_eq!(records(&longest)[0].partition_key, longest.partition_key);
    }

    #[test]
    fn parts_of_several_copies_in_any_order_make_one_letter() {
        let letter = large(2 << 20);
        let mut again = letter.clone();
        again.lease_epoch += 1;
        let (first, second) = (records(&letter), records(&again));
        let mut joiner = Joiner::default();
        // A crash after the first part, another copy by the successor, and a lost answer.
        let mixed = [&first[0], &second[2], &second[0], &second[2], &second[1], &second[1]];
        let taken: Vec<Taken> = mixed.iter().map(|record| joiner.take(&record.data)).collect();
        let letters = taken.iter().filter(|taken| matches!(taken, Taken::Letter(found) if **found == again)).count();
        assert_eq!((letters, joiner.incomplete()), (1, 1), "{:?}", taken.len());
        assert_eq!(joiner.take(&first[2].data), Taken::Part);
        assert_eq!(joiner.take(&first[1].data), Taken::Letter(Box::new(letter)));
        assert_eq!(joiner.incomplete(), 0);
    }

    #[test]
    fn what_is_no_part_is_told() {
        let mut joiner = Joiner::default();
        let record = &records(&large(1 << 20))[0];
        let text = std::str::from_utf8(&record.data).unwrap();
        for (good, bad) in
            [("\"parts\":2", "\"parts\":0"), ("\"parts\":2", "\"parts\":4000000000"), ("\"part\":1", "\"part\":3")]
        {
            let damaged = text.replacen(good, bad, 1);
            assert_ne!(damaged, text);
            assert!(matches!(joiner.take(damaged.as_bytes()), Taken::Not(NotALetter::Damaged(_))), "{bad}");
        }
        let newer = text.replacen("\"dead_letter_part\":1", "\"dead_letter_part\":2", 1);
        assert_eq!(joiner.take(newer.as_bytes()), Taken::Not(NotALetter::Newer(2)));
        assert_eq!(joiner.take(b"{\"order\":1}"), Taken::Not(NotALetter::Other));
        let alone = text.replacen("\"parts\":2", "\"parts\":1", 1);
        assert!(matches!(joiner.take(alone.as_bytes()), Taken::Not(NotALetter::Damaged(_))));
        assert_eq!(joiner.incomplete(), 0);
    }

    proptest! {
        #[test]
        fn any_letter_fits_and_comes_back(letter in letters()) {
            let records = records(&letter);
            assert_fits(&records);
            prop_assert_eq!(joined(&records), Some(Taken::Letter(Box::new(letter))));
        }

        #[test]
        fn slices_are_the_whole_text_and_none_is_too_long(text in "(?s).{0,300}", room in 6usize..40) {
            let slices = slices(&text, room);
            prop_assert_eq!(slices.concat(), text.as_str());
            for slice in slices {
                // Without the quotation marks.
                prop_assert!(serde_json::to_string(slice).unwrap().len() - 2 <= room);
            }
        }
    }
}
