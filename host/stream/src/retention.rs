//! Whether a checkpoint's record can still be read.
//!
//! Kinesis gives an iterator at a sequence number whose record was trimmed, and begins with the oldest record there is,
//! without a word. So a shard is resumed at the checkpoint's own record: if that is not the first one to come, it fell out
//! of the stream's retention, and what followed it may have been trimmed with it unread.

use std::cmp::Ordering;

use shardmill_record::{Page, SequenceNumber};

/// What to do where a checkpoint fell out of the stream's retention.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reset {
    /// Go on with the oldest record that is kept.
    #[default]
    Earliest,
    /// Go on with what comes from now on.
    Latest,
    /// Stop the shard: nothing is passed over.
    Fail,
}

/// What a resumed shard holds where its checkpoint's record is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Left {
    /// Records that came later.
    Records,
    /// Nothing: whether anything came after the checkpoint cannot be known.
    Nothing,
}

/// What a page says about the checkpoint at which the shard was resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing yet: it is empty, and the shard's tip is not reached.
    Undecided,
    /// The checkpoint's record is there.
    Kept,
    /// It is not.
    Gone(Left),
}

/// So many pages in a row must say that the tip is reached: services that lag behind themselves say so too soon.
const TIPS: u32 = 2;

/// Judges the pages of a shard that was resumed at its checkpoint's record, until one decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retention {
    checkpoint: SequenceNumber,
    tips: u32,
}

// === impl Left ===

impl Left {
    /// The name in metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Records => "records",
            Self::Nothing => "nothing",
        }
    }
}

// === impl Retention ===

impl Retention {
    /// Of a shard that is resumed at this record, which was processed.
    pub fn new(checkpoint: SequenceNumber) -> Self {
        Self { checkpoint, tips: 0 }
    }

    /// The checkpoint's record.
    pub fn checkpoint(&self) -> &SequenceNumber {
        &self.checkpoint
    }

    /// Takes a page in: its records, how far it is behind the tip, and whether the closed shard ends with it.
    pub fn judge(&mut self, page: &Page, millis_behind: Option<u64>, end: bool) -> Verdict {
        if !page.is_empty() {
            let first = page.sequence_number_digits(0);
            return match self.checkpoint.cmp_digits(first.as_bytes()) {
                Ordering::Less => Verdict::Gone(Left::Records),
                Ordering::Equal | Ordering::Greater => Verdict::Kept,
            };
        }
        self.tips = if millis_behind == Some(0) { self.tips + 1 } else { 0 };
        if end || self.tips >= TIPS { Verdict::Gone(Left::Nothing) } else { Verdict::Undecided }
    }
}

#[cfg(test)]
mod tests {
    use shardmill_record::PageBuilder;

    use super::*;

    fn page(numbers: &[&str]) -> Page {
        let mut page = PageBuilder::default();
        for number in numbers {
            page.push(number, "key", b"data", 0).unwrap();
        }
        page.build()
    }

    fn at(checkpoint: &str) -> Retention {
        Retention::new(SequenceNumber::parse(checkpoint).unwrap())
    }

    #[test]
    fn the_first_record_decides_as_a_number() {
        for (checkpoint, first, verdict) in [
            ("9", "9", Verdict::Kept),
            ("009", "9", Verdict::Kept),
            ("9", "10", Verdict::Gone(Left::Records)),
            ("10", "9", Verdict::Kept),
        ] {
            let mut retention = at(checkpoint);
            assert_eq!(retention.judge(&page(&[]), Some(86_400_000), false), Verdict::Undecided);
            assert_eq!(retention.judge(&page(&[first, "11"]), Some(5), false), verdict, "{checkpoint}, {first}");
        }
    }

    #[test]
    fn an_empty_shard_is_one_whose_tip_is_seen_again_or_whose_end_is_reached() {
        let mut retention = at("9");
        for (millis_behind, verdict) in [
            (Some(0), Verdict::Undecided),
            (Some(7), Verdict::Undecided),
            (None, Verdict::Undecided),
            (Some(0), Verdict::Undecided),
            (Some(0), Verdict::Gone(Left::Nothing)),
        ] {
            assert_eq!(retention.judge(&page(&[]), millis_behind, false), verdict);
        }
        assert_eq!(at("9").judge(&page(&[]), None, true), Verdict::Gone(Left::Nothing));
    }
}
