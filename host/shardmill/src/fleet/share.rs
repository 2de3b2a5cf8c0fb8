//! How many of the workers run a version: which ones is decided once, when somebody asks for a share, and each worker
//! knows by itself afterwards whether it is one of them.
//!
//! A worker's place is a number made of the version's digest and the worker's id. The workers that live when the share is
//! asked for are put in the order of their places, and the cut is set so that as many of them as are meant are at or below
//! it. A worker that comes later is in if its place is: nobody has to be asked, none that is in ever gets out because
//! others come and go, and a larger share has a higher cut, so that it only adds.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest as _, Sha256};
use shardmill_plugin::Digest;

/// A share of the workers in hundredths, 1 to 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub(crate) struct Share(u8);

/// Up to which place workers are in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cut(u64);

/// Where a worker stands in the order in which workers come to a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place(u64);

/// A number that is no share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a share of the workers is expected, from 1% to 100%")]
pub(crate) struct InvalidShare;

// === impl Share ===

impl Share {
    pub(crate) const ALL: Self = Self(100);

    pub(crate) fn is_all(self) -> bool {
        self == Self::ALL
    }

    /// How many of so many workers that is: no more than the share, and at least one.
    pub(crate) fn of(self, workers: usize) -> usize {
        (workers * usize::from(self.0) / 100).max(1).min(workers)
    }

    /// The cut by which that many of the workers that live are in, as near as that allows to the share of all workers
    /// there could be.
    pub(crate) fn cut(self, digest: &Digest, living: &[&str]) -> Cut {
        if self.is_all() {
            return Cut::ALL;
        }
        // The highest place of all is left to whole fleets.
        let even = u64::MAX / 100 * u64::from(self.0);
        let mut places: Vec<u64> = living.iter().map(|worker| Place::of(digest, worker).0).collect();
        places.sort_unstable();
        places.dedup();
        let Some(last_in) = self.of(places.len()).checked_sub(1) else { return Cut(even) };
        let lowest = places[last_in];
        let highest = places.get(last_in + 1).map_or(u64::MAX - 1, |first_out| first_out - 1);
        Cut(even.clamp(lowest, highest.max(lowest)))
    }
}

impl Default for Share {
    fn default() -> Self {
        Self::ALL
    }
}

impl TryFrom<u8> for Share {
    type Error = InvalidShare;

    fn try_from(hundredths: u8) -> Result<Self, InvalidShare> {
        if (1..=100).contains(&hundredths) { Ok(Self(hundredths)) } else { Err(InvalidShare) }
    }
}

impl From<Share> for u8 {
    fn from(share: Share) -> Self {
        share.0
    }
}

impl FromStr for Share {
    type Err = InvalidShare;

    /// `25%`, or `25`.
    fn from_str(text: &str) -> Result<Self, InvalidShare> {
        let digits = text.strip_suffix('%').unwrap_or(text).trim_end();
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(InvalidShare);
        }
        digits.parse::<u8>().map_err(|_| InvalidShare)?.try_into()
    }
}

impl fmt::Display for Share {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} %", self.0)
    }
}

// === impl Cut ===

impl Cut {
    pub(crate) const ALL: Self = Self(u64::MAX);

    /// The cut by which a worker at this place is the last that is in.
    pub(crate) fn at(place: Place) -> Self {
        Self(place.0)
    }

    pub(crate) fn takes(self, place: Place) -> bool {
        place.0 <= self.0
    }
}

impl Default for Cut {
    fn default() -> Self {
        Self::ALL
    }
}

/// As a text: in many readers of JSON such a number would not be whole.
impl Serialize for Cut {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:016x}", self.0))
    }
}

impl<'de> Deserialize<'de> for Cut {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        u64::from_str_radix(&text, 16).map(Self).map_err(|_| de::Error::custom("a cut is 16 hexadecimal digits"))
    }
}

// === impl Place ===

impl Place {
    pub(crate) fn of(digest: &Digest, worker: &str) -> Self {
        let hash = Sha256::new().chain_update(digest.as_bytes()).chain_update(worker.as_bytes()).finalize();
        Self(hash.iter().take(8).fold(0, |place, byte| place << 8 | u64::from(*byte)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::btree_set;
    use proptest::prelude::*;

    use super::*;

    fn taken<'a>(cut: Cut, digest: &Digest, workers: &[&'a str]) -> Vec<&'a str> {
        workers.iter().copied().filter(|worker| cut.takes(Place::of(digest, worker))).collect()
    }

    #[test]
    fn a_share_is_written_with_or_without_its_sign() {
        assert_eq!("25%".parse(), Ok(Share(25)));
        assert_eq!("100".parse(), Ok(Share::ALL));
        for text in ["", "%", "0", "101%", "-1", "+5", "2.5%", "1e1", "256", "25%%"] {
            assert_eq!(text.parse::<Share>(), Err(InvalidShare), "{text}");
        }
    }

    #[test]
    fn a_share_is_no_more_than_that_and_at_least_one() {
        let of = |share: u8, workers| Share::try_from(share).unwrap().of(workers);
        assert_eq!([of(34, 3), of(25, 10), of(1, 1000), of(1, 3), of(99, 2), of(100, 7)], [1, 2, 10, 1, 1, 7]);
        assert_eq!(of(50, 0), 0);
    }

    #[test]
    fn workers_that_come_later_are_in_as_often_as_the_share_says() {
        let digest = Digest::of(b"a");
        for share in [5, 25, 50, 90] {
            let cut = Share(share).cut(&digest, &[]);
            let later: Vec<String> = (0..4000).map(|number| format!("worker-{number}")).collect();
            let later: Vec<&str> = later.iter().map(String::as_str).collect();
            let counted = taken(cut, &digest, &later).len();
            assert!(counted.abs_diff(40 * usize::from(share)) < 120, "{counted} of 4000 for {share} %");
        }
    }

    proptest! {
        #[test]
        fn as_many_are_in_as_are_meant_more_only_adds_and_who_comes_and_goes_moves_nobody(
            bytes in any::<[u8; 4]>(),
            workers in btree_set("[a-z]{1,6}", 1..40),
            mut shares in [1_u8..=100, 1_u8..=100],
            others in btree_set("[A-Z]{1,6}", 0..10),
        ) {
            let digest = Digest::of(&bytes);
            let workers: Vec<&str> = workers.iter().map(String::as_str).collect();
            shares.sort_unstable();
            let [smaller, larger] = shares.map(Share);
            let [few, many] = [smaller, larger].map(|share| share.cut(&digest, &workers));
            for (share, cut) in [(smaller, few), (larger, many)] {
                prop_assert_eq!(taken(cut, &digest, &workers).len(), share.of(workers.len()));
            }
            prop_assert!(few <= many);
            let (few_in, many_in) = (taken(few, &digest, &workers), taken(many, &digest, &workers));
            prop_assert!(few_in.iter().all(|worker| many_in.contains(worker)));
            // Others beside them, and half of them gone: who is left is in or out as before.
            let mut changed: Vec<&str> = workers.iter().copied().step_by(2).collect();
            changed.extend(others.iter().map(String::as_str));
            for worker in taken(few, &digest, &changed) {
                prop_assert!(few_in.contains(&worker) || others.contains(worker));
            }
            let text = serde_json::to_string(&few).unwrap();
            prop_assert_eq!(serde_json::from_str::<Cut>(&text).unwrap(), few);
        }
    }
}
