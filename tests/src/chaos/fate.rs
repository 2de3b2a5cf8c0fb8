//! What is to become of each record, which its number says: whoever finds one knows whether it should be there.

/// The processor that reads the input.
pub(super) const FIRST: &str = "copy";
/// The processor behind it, which writes the output.
pub(super) const SECOND: &str = "finish";

/// Of so many records one is given up.
const ONE_OF: u64 = 97;
/// Which one of them.
const WHICH: u64 = 50;
/// How a record makes the first processor's guest go wrong, as the guest has it: by itself, for good or not; with its whole
/// batch; by a crash; and by an outcome that cannot be carried out.
const POISONS: [&str; 5] = ["final", "fail", "reject", "trap", "nowhere"];

/// What is to become of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It comes out.
    Out,
    /// The first processor gives it up: what makes its guest go wrong.
    Poison(&'static str),
    /// The first processor hands it on, and the second one gives it up, because it is no JSON as a whole.
    Torn,
}

// === impl Fate ===

impl Fate {
    /// That of a record by its number in the whole stream.
    pub fn of(number: u64) -> Fate {
        if number % ONE_OF != WHICH {
            return Fate::Out;
        }
        let nth = number / ONE_OF % (POISONS.len() as u64 + 1);
        POISONS.get(nth as usize).map_or(Fate::Torn, |poison| Fate::Poison(poison))
    }

    /// The processor that gives it up.
    pub fn given_up_by(self) -> Option<&'static str> {
        match self {
            Fate::Out => None,
            Fate::Poison(_) => Some(FIRST),
            Fate::Torn => Some(SECOND),
        }
    }
}

/// The payload of a record.
pub(super) fn payload(number: u64, key: &str) -> Vec<u8> {
    let text = match Fate::of(number) {
        Fate::Out => format!(r#"{{"n":{number},"key":"{key}"}}"#),
        Fate::Poison(poison) => format!(r#"{{"poison":"{poison}","n":{number},"key":"{key}"}}"#),
        Fate::Torn => format!(r#"{{"n":{number},"key":"{key}"}},"#),
    };
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_hundredth_of_the_records_is_given_up_in_every_way_and_its_payload_says_so() {
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        for number in 0..60_000 {
            let fate = Fate::of(number);
            *counts.entry(format!("{fate:?}")).or_default() += 1;
            let payload = payload(number, "key-1");
            let json: Result<serde_json::Value, _> = serde_json::from_slice(&payload);
            match fate {
                Fate::Torn => assert!(json.is_err() && fate.given_up_by() == Some(SECOND)),
                Fate::Poison(poison) => {
                    assert_eq!((json.unwrap()["poison"].as_str(), fate.given_up_by()), (Some(poison), Some(FIRST)))
                }
                Fate::Out => assert!(json.unwrap()["poison"].is_null() && fate.given_up_by().is_none()),
            }
        }
        let out = counts.remove("Out").unwrap();
        assert!((59_300..59_500).contains(&out), "{out}");
        assert!(counts.len() == 6 && counts.values().all(|count| (90..120).contains(count)), "{counts:?}");
    }
}
