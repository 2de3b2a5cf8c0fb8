//! Where the reading of a shard begins.

use std::collections::BTreeMap;
use std::fmt;

use aws_smithy_types::DateTime;
use aws_smithy_types::date_time::Format;
use serde::de::{self, Deserialize, Deserializer};
use serde::ser::{Serialize, Serializer};
use shardmill_record::{Checkpoint, Position, SequenceNumber, ShardId};

/// Where a consumer without checkpoints starts, for all shards of a stream.
///
/// In configuration: `"trim-horizon"`, `"latest"`, a time in RFC 3339 in quotes, or milliseconds since 1970. A time
/// in the future is waited for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StartPosition {
    /// With the oldest record that is kept.
    TrimHorizon,
    /// With what comes after the first start. The time of the first start is kept with the leases, so that a restart
    /// before the first checkpoint skips nothing.
    #[default]
    Latest,
    /// With the first record that arrived at this time or later, in milliseconds since 1970.
    AtTimestamp(u64),
}

/// Where one shard without a checkpoint starts, instead of the stream's start position.
///
/// In configuration: `{ at = "4957…" }` or `{ after = "4957…" }`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShardStart {
    /// With this record.
    At(SequenceNumber),
    /// With the record after this one.
    After(SequenceNumber),
}

/// The configured start of a stream: a position for all shards, and others for single shards.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Start {
    /// For every shard that is not named below.
    pub position: StartPosition,
    /// For single shards.
    pub shards: BTreeMap<ShardId, ShardStart>,
}

/// What a reader is told about where to begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadFrom {
    /// With the oldest record that is kept.
    TrimHorizon,
    /// With the first record that arrived at this time or later, in milliseconds since 1970.
    AtTimestamp(u64),
    /// With this record.
    At(SequenceNumber),
    /// With the record after this one.
    After(SequenceNumber),
}

/// How the reading of a leased shard is taken up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resume {
    /// Where the reader begins.
    pub from: ReadFrom,
    /// What is at or before this position was done already, and is left out when pages are taken apart
    /// ([`shardmill_record::Unpacker::new`]): an aggregate may have been done in part.
    pub done: Option<Position>,
    /// A time, in milliseconds since 1970, that has to be stored with the lease before the first read, because from
    /// now on it is where this shard starts.
    pub remember: Option<u64>,
}

/// Why a text or a number is not a start position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Neither a name nor a time.
    #[error("`{0}` is not a start position: {EXPECTED}")]
    Unknown(String),
    /// Seconds instead of milliseconds, most likely.
    #[error("{0} is before 1973 in milliseconds since 1970: if these are seconds, multiply by 1000")]
    Seconds(u64),
    /// Before 1970.
    #[error("`{0}` is before 1970")]
    TooEarly(String),
}

const EXPECTED: &str =
    "\"trim-horizon\", \"latest\", a time such as \"2026-07-01T00:00:00Z\" in quotes, or milliseconds since 1970";

/// In March 1973 milliseconds since 1970 got their twelfth digit; seconds will in the year 5138.
const FEWEST_MILLISECONDS: u64 = 100_000_000_000;

// === impl StartPosition ===

impl StartPosition {
    /// Reads a name, a time in RFC 3339, or milliseconds since 1970.
    pub fn parse(text: &str) -> Result<Self, Error> {
        match text {
            "trim-horizon" => return Ok(Self::TrimHorizon),
            "latest" => return Ok(Self::Latest),
            _ => {}
        }
        if let Ok(milliseconds) = text.parse() {
            return Self::at_milliseconds(milliseconds);
        }
        let time = DateTime::from_str(text, Format::DateTimeWithOffset);
        let milliseconds = time.ok().and_then(|time| time.to_millis().ok());
        let milliseconds = milliseconds.ok_or_else(|| Error::Unknown(text.chars().take(64).collect()))?;
        u64::try_from(milliseconds).map(Self::AtTimestamp).map_err(|_| Error::TooEarly(text.into()))
    }

    fn at_milliseconds(milliseconds: u64) -> Result<Self, Error> {
        if milliseconds < FEWEST_MILLISECONDS {
            return Err(Error::Seconds(milliseconds));
        }
        Ok(Self::AtTimestamp(milliseconds))
    }
}

impl fmt::Display for StartPosition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TrimHorizon => formatter.write_str("trim-horizon"),
            Self::Latest => formatter.write_str("latest"),
            Self::AtTimestamp(milliseconds) => write_time(*milliseconds, formatter),
        }
    }
}

impl<'de> Deserialize<'de> for StartPosition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = StartPosition;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(EXPECTED)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<StartPosition, E> {
                StartPosition::parse(text).map_err(E::custom)
            }

            fn visit_u64<E: de::Error>(self, milliseconds: u64) -> Result<StartPosition, E> {
                StartPosition::at_milliseconds(milliseconds).map_err(E::custom)
            }

            fn visit_i64<E: de::Error>(self, milliseconds: i64) -> Result<StartPosition, E> {
                match u64::try_from(milliseconds) {
                    Ok(milliseconds) => self.visit_u64(milliseconds),
                    Err(_) => Err(E::custom(Error::TooEarly(milliseconds.to_string()))),
                }
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

impl Serialize for StartPosition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

// === impl ShardStart ===

impl<'de> Deserialize<'de> for ShardStart {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "kebab-case")]
        enum Written {
            At(String),
            After(String),
        }

        let number = |text: String| SequenceNumber::parse(&text).map_err(de::Error::custom);
        Ok(match Written::deserialize(deserializer)? {
            Written::At(text) => Self::At(number(text)?),
            Written::After(text) => Self::After(number(text)?),
        })
    }
}

impl From<&ShardStart> for ReadFrom {
    fn from(start: &ShardStart) -> Self {
        match start {
            ShardStart::At(number) => Self::At(number.clone()),
            ShardStart::After(number) => Self::After(number.clone()),
        }
    }
}

// === impl ReadFrom ===

impl fmt::Display for ReadFrom {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TrimHorizon => formatter.write_str("the trim horizon"),
            Self::AtTimestamp(milliseconds) => write_time(*milliseconds, formatter),
            Self::At(number) => write!(formatter, "record {number}"),
            Self::After(number) => write!(formatter, "after record {number}"),
        }
    }
}

pub(crate) fn write_time(milliseconds: u64, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
    let time = i64::try_from(milliseconds).ok().map(DateTime::from_millis);
    match time.and_then(|time| time.fmt(Format::DateTime).ok()) {
        Some(text) => formatter.write_str(&text),
        // A year that RFC 3339 cannot write.
        None => write!(formatter, "{milliseconds}"),
    }
}

/// How to take up a shard, from its lease (checkpoint, and the start time kept with it), the configured start, and
/// the present time in milliseconds since 1970. `None` if the shard is done.
///
/// A checkpoint is always stronger than the configuration. A position is resumed at its own record, because that may
/// be an aggregate of which only the first part was done. A lease that the KCL made with `LATEST` or `AT_TIMESTAMP`
/// carries no time: the configuration's is taken, or the present one, and is remembered.
pub fn resume(
    checkpoint: &Checkpoint,
    start_at: Option<u64>,
    shard: &ShardId,
    configured: &Start,
    now_ms: u64,
) -> Option<Resume> {
    let begin = |from| Some(Resume { from, done: None, remember: None });
    let begin_now = || Some(Resume { from: ReadFrom::AtTimestamp(now_ms), done: None, remember: Some(now_ms) });
    match (checkpoint, configured.shards.get(shard)) {
        (Checkpoint::ShardEnd, _) => None,
        (Checkpoint::Position(position), _) => Some(Resume {
            from: ReadFrom::At(position.sequence_number.clone()),
            done: Some(position.clone()),
            remember: None,
        }),
        (_, Some(start)) => begin(start.into()),
        (Checkpoint::TrimHorizon, None) => begin(ReadFrom::TrimHorizon),
        (Checkpoint::Latest, None) => start_at.map_or_else(begin_now, |at| begin(ReadFrom::AtTimestamp(at))),
        (Checkpoint::AtTimestamp, None) => match (start_at, configured.position) {
            (Some(at), _) => begin(ReadFrom::AtTimestamp(at)),
            (None, StartPosition::AtTimestamp(at)) => {
                Some(Resume { from: ReadFrom::AtTimestamp(at), done: None, remember: Some(at) })
            }
            (None, StartPosition::TrimHorizon) => begin(ReadFrom::TrimHorizon),
            (None, StartPosition::Latest) => begin_now(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_790_000_000_000;

    fn number(text: &str) -> SequenceNumber {
        SequenceNumber::parse(text).unwrap()
    }

    fn shard() -> ShardId {
        ShardId::parse("shardId-000000000000").unwrap()
    }

    fn of(checkpoint: &Checkpoint, start_at: Option<u64>, position: StartPosition) -> Option<Resume> {
        resume(checkpoint, start_at, &shard(), &Start { position, ..Start::default() }, NOW)
    }

    fn from_json(text: &str) -> Result<StartPosition, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_checkpoint_is_stronger_than_the_configuration() {
        let position = Position::new(number("4957"), 3);
        let expected = Resume { from: ReadFrom::At(number("4957")), done: Some(position.clone()), remember: None };
        let checkpoint = Checkpoint::Position(position);
        let shards = BTreeMap::from([(shard(), ShardStart::After(number("7")))]);
        for position in [StartPosition::TrimHorizon, StartPosition::Latest, StartPosition::AtTimestamp(NOW)] {
            let configured = Start { position, shards: shards.clone() };
            assert_eq!(resume(&checkpoint, Some(1), &shard(), &configured, NOW).as_ref(), Some(&expected));
            assert_eq!(resume(&Checkpoint::ShardEnd, None, &shard(), &configured, NOW), None);
        }
    }

    #[test]
    fn latest_is_a_time_that_is_remembered_once() {
        let first = of(&Checkpoint::Latest, None, StartPosition::Latest).unwrap();
        assert_eq!((first.from, first.remember), (ReadFrom::AtTimestamp(NOW), Some(NOW)));
        let again = of(&Checkpoint::Latest, Some(NOW - 5), StartPosition::TrimHorizon).unwrap();
        assert_eq!((again.from, again.remember), (ReadFrom::AtTimestamp(NOW - 5), None));
    }

    #[test]
    fn a_childs_trim_horizon_stays_one_whatever_is_configured() {
        for position in [StartPosition::TrimHorizon, StartPosition::Latest, StartPosition::AtTimestamp(NOW)] {
            let resumed = of(&Checkpoint::TrimHorizon, None, position).unwrap();
            assert_eq!((resumed.from, resumed.remember), (ReadFrom::TrimHorizon, None));
        }
    }

    #[test]
    fn a_timestamp_comes_from_the_lease_then_from_the_configuration() {
        let configured = StartPosition::AtTimestamp(7);
        let from = |start_at| of(&Checkpoint::AtTimestamp, start_at, configured).unwrap();
        assert_eq!(from(Some(9)), Resume { from: ReadFrom::AtTimestamp(9), done: None, remember: None });
        assert_eq!(from(None), Resume { from: ReadFrom::AtTimestamp(7), done: None, remember: Some(7) });
    }

    #[test]
    fn a_single_shards_start_holds_until_its_first_checkpoint() {
        let shards = BTreeMap::from([(shard(), ShardStart::After(number("7")))]);
        let configured = Start { position: StartPosition::Latest, shards };
        for checkpoint in [Checkpoint::TrimHorizon, Checkpoint::Latest, Checkpoint::AtTimestamp] {
            let resumed = resume(&checkpoint, Some(3), &shard(), &configured, NOW).unwrap();
            assert_eq!(resumed, Resume { from: ReadFrom::After(number("7")), done: None, remember: None });
        }
    }

    #[test]
    fn configuration_takes_names_times_and_milliseconds() {
        let expected = [
            (r#""trim-horizon""#, StartPosition::TrimHorizon),
            (r#""latest""#, StartPosition::Latest),
            (r#""2026-07-01T00:00:00Z""#, StartPosition::AtTimestamp(1_782_864_000_000)),
            (r#""2026-07-01T02:00:00.250+02:00""#, StartPosition::AtTimestamp(1_782_864_000_250)),
            ("1782864000000", StartPosition::AtTimestamp(1_782_864_000_000)),
            (r#""1782864000000""#, StartPosition::AtTimestamp(1_782_864_000_000)),
        ];
        for (text, position) in expected {
            assert_eq!(from_json(text).as_ref(), Ok(&position), "{text}");
            let written = serde_json::to_string(&position).unwrap();
            assert_eq!(from_json(&written), Ok(position), "{written}");
        }
        let after: ShardStart = serde_json::from_str(r#"{ "after": "0049" }"#).unwrap();
        assert_eq!(after, ShardStart::After(number("49")));
    }

    #[test]
    fn errors_say_what_is_allowed() {
        for text in [r#""LATEST""#, r#""yesterday""#, "true", "{}"] {
            let error = from_json(text).unwrap_err();
            assert!(error.contains("trim-horizon"), "{error}");
        }
        assert!(from_json("1782864000").unwrap_err().contains("multiply by 1000"));
        assert!(from_json("-1").unwrap_err().contains("before 1970"));
        assert!(serde_json::from_str::<ShardStart>(r#"{ "at": "x" }"#).unwrap_err().to_string().contains("digits"));
    }
}
