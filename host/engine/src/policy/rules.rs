//! What the configuration says about failures.

use std::fmt;
use std::time::Duration;

/// The parts of a hundred percent in which tolerances are counted.
const WHOLE: u64 = 1_000_000;

/// What becomes of records that fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailurePolicy {
    /// How often a record is handed over before it is given up, 1 or more. Splitting uses up none.
    pub attempts: u32,
    /// Whether a part of a batch with which a call fails as a whole is split until the record to blame stands alone.
    pub bisect: bool,
    /// A record that has failed and is older than this, by its arrival in the stream, is given up at once.
    pub max_age: Option<Duration>,
    /// How many given-up records of a batch are passed over where [`FailurePolicy::then`] would stop.
    pub tolerance: Tolerance,
    /// What happens when records are given up.
    pub then: Then,
}

/// What happens when records are given up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Then {
    /// Their shard stops, with its lease held.
    #[default]
    StopShard,
    /// They are passed over.
    Skip,
    /// They are stored as dead letters, and passed over.
    DeadLetter,
    /// The consumer lets all its leases go and ends; the process' other consumers go on.
    StopWorker,
    /// All consumers of the process end, and the process with them.
    StopProcess,
}

/// How much stops when the failure policy stops; what stops more is greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// The shard.
    Shard,
    /// The consumer.
    Worker,
    /// The process.
    Process,
}

/// What becomes of a batch of which records are given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// They are passed over, the others are done.
    Pass {
        /// Whether they are stored first.
        store: bool,
        /// Whether this is so because they are few.
        tolerated: bool,
    },
    /// Nothing after the first of them is done.
    Stop(Scope),
}

/// A share of a batch, from 0 % to 100 %, to a ten thousandth of a percent.
///
/// In configuration: a percentage in quotes, such as `"0.25%"`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tolerance(u32);

/// Why a text is no tolerance.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not {EXPECTED}")]
pub struct InvalidTolerance(String);

const EXPECTED: &str =
    "a percentage in quotes from \"0%\" to \"100%\", with at most four digits after the point, such as \"0.25%\"";

// === impl FailurePolicy ===

impl FailurePolicy {
    /// What becomes of a batch of `records` when `given_up` of them (1 or more) are given up. `place`: whether there is
    /// one for dead letters.
    pub fn decide(&self, given_up: usize, records: usize, place: bool) -> Decision {
        let scope = match self.then {
            Then::Skip => return Decision::Pass { store: false, tolerated: false },
            Then::DeadLetter => return Decision::Pass { store: true, tolerated: false },
            Then::StopShard => Scope::Shard,
            Then::StopWorker => Scope::Worker,
            Then::StopProcess => Scope::Process,
        };
        if given_up <= self.tolerance.of(records) {
            return Decision::Pass { store: place, tolerated: true };
        }
        Decision::Stop(scope)
    }
}

// === impl Then ===

impl Then {
    /// The word in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::StopShard => "stop-shard",
            Self::Skip => "skip",
            Self::DeadLetter => "dead-letter",
            Self::StopWorker => "stop-worker",
            Self::StopProcess => "stop-process",
        }
    }
}

// === impl Tolerance ===

impl Tolerance {
    /// Reads a percentage with its sign.
    pub fn parse(text: &str) -> Result<Self, InvalidTolerance> {
        let invalid = || InvalidTolerance(text.chars().take(64).collect());
        let number = text.strip_suffix('%').ok_or_else(invalid)?.trim_end();
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !are_digits(whole) || !are_digits(fraction) || fraction.len() > 4 {
            return Err(invalid());
        }
        let whole: u32 = whole.parse().map_err(|_| invalid())?;
        let fraction: u32 = format!("{fraction:0<4}").parse().map_err(|_| invalid())?;
        let parts = whole.checked_mul(10_000).and_then(|whole| whole.checked_add(fraction)).ok_or_else(invalid)?;
        if u64::from(parts) > WHOLE { Err(invalid()) } else { Ok(Self(parts)) }
    }

    /// How many of so many records: rounded down, so that of a small batch it is none.
    pub fn of(self, records: usize) -> usize {
        usize::try_from(u128::from(self.0) * records as u128 / u128::from(WHOLE)).unwrap_or(usize::MAX)
    }
}

impl fmt::Display for Tolerance {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:04}", self.0 / 10_000, self.0 % 10_000);
        write!(formatter, "{}%", text.trim_end_matches('0').trim_end_matches('.'))
    }
}

impl<'de> serde::Deserialize<'de> for Tolerance {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl serde::de::Visitor<'_> for Visitor {
            type Value = Tolerance;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(EXPECTED)
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Tolerance, E> {
                Tolerance::parse(text).map_err(E::custom)
            }
        }

        // Not `deserialize_str`: a bare number shall be told what it lacks.
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tolerance(text: &str) -> Tolerance {
        Tolerance::parse(text).unwrap()
    }

    #[test]
    fn a_tolerance_is_rounded_down_and_exact() {
        assert_eq!(tolerance("0.25%").of(500), 1);
        assert_eq!(tolerance("0.25%").of(399), 0);
        assert_eq!(tolerance("0.25%").of(400), 1);
        assert_eq!(tolerance("29%").of(100), 29, "in fractions of two this would be 28.999…");
        assert_eq!((tolerance("0%").of(10_000), tolerance("100%").of(10_000)), (0, 10_000));
        assert_eq!(tolerance("0.0001%").of(1_000_000), 1);
        assert_eq!(tolerance("100%").of(usize::MAX), usize::MAX);
    }

    #[test]
    fn only_percentages_are_tolerances() {
        for text in ["0%", "0.25%", "1%", "12.5%", "99.9999%", "100%"] {
            assert_eq!(tolerance(text).to_string(), text);
        }
        assert_eq!(tolerance("0.50 %"), tolerance("0.5%"));
        for text in ["", "%", "1", "0.25", "-1%", "+1%", "101%", "100.0001%", "1e1%", ".5%", "1.%", "0.00001%", "1%%"] {
            assert!(Tolerance::parse(text).is_err(), "{text}");
        }
        assert!(Tolerance::parse("99999999999999999999%").is_err());
    }

    #[test]
    fn what_stops_stops_beyond_the_tolerance_alone() {
        let policy =
            |then| FailurePolicy { attempts: 1, bisect: false, max_age: None, tolerance: tolerance("1%"), then };
        for (then, scope) in
            [(Then::StopShard, Scope::Shard), (Then::StopWorker, Scope::Worker), (Then::StopProcess, Scope::Process)]
        {
            let policy = policy(then);
            assert_eq!(policy.decide(5, 500, false), Decision::Pass { store: false, tolerated: true });
            assert_eq!(policy.decide(5, 500, true), Decision::Pass { store: true, tolerated: true });
            assert_eq!(policy.decide(6, 500, true), Decision::Stop(scope));
            assert_eq!(policy.decide(1, 99, true), Decision::Stop(scope));
        }
        let passed = Decision::Pass { store: false, tolerated: false };
        assert_eq!(policy(Then::Skip).decide(500, 500, true), passed);
        let stored = Decision::Pass { store: true, tolerated: false };
        assert_eq!(policy(Then::DeadLetter).decide(500, 500, false), stored);
    }
}
