//! Where a tail begins.

use shardmill_record::{Position, SequenceNumber};
use shardmill_stream::{ReadFrom, StartPosition, start};

use crate::cli::when;

/// Longer numbers are sequence numbers, shorter ones milliseconds since 1970.
const DIGITS_OF_A_TIME: usize = 19;

/// Where a tail begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Start {
    /// With the oldest record that is kept.
    TrimHorizon,
    /// With what comes from now on, which is this time in milliseconds since 1970.
    Latest(u64),
    /// With what has arrived since this time, in milliseconds since 1970.
    Time(u64),
    /// With this record of one shard.
    At(Position),
    /// With the record after this one.
    After(Position),
}

/// Why a text is no start, with what is to be said of it.
enum NoStart {
    /// A time in seconds, where milliseconds are expected.
    Seconds(String),
    /// The position of a record, and that is wrong.
    Position(String),
    /// Something else.
    Other,
}

/// Where the reading of one shard begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Begin {
    /// What the reader is told.
    pub(super) from: ReadFrom,
    /// What is at or before this position is left out.
    pub(super) after: Option<Position>,
}

// === impl Start ===

impl Start {
    /// Of `--from`, at this time, in milliseconds since 1970.
    pub(super) fn parse(text: &str, now: u64) -> Result<Self, String> {
        match Self::any(text, now) {
            Ok(Self::Time(at)) if at > now => {
                Err("this time is still to come; without --from a tail begins now".to_owned())
            }
            Ok(start) => Ok(start),
            Err(NoStart::Seconds(said) | NoStart::Position(said)) => Err(said),
            Err(NoStart::Other) => Err("\"trim-horizon\", \"latest\", how long ago (2h), a day, a time such as \
                 2026-07-01T12:00:00Z, or the position of a record is expected"
                .to_owned()),
        }
    }

    /// Also what is still to come.
    fn any(text: &str, now: u64) -> Result<Self, NoStart> {
        let digits = text.split('/').next().unwrap_or_default();
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        if is_number && (text.contains('/') || digits.len() > DIGITS_OF_A_TIME) {
            return position(text).map(Self::At).map_err(NoStart::Position);
        }
        if let (false, Some(at)) = (is_number, when::ago(text, now)) {
            return Ok(Self::Time(at));
        }
        match StartPosition::parse(&when::beginning(text)) {
            Ok(StartPosition::TrimHorizon) => Ok(Self::TrimHorizon),
            Ok(StartPosition::Latest) => Ok(Self::Latest(now)),
            Ok(StartPosition::AtTimestamp(at)) => Ok(Self::Time(at)),
            Err(error @ start::Error::Seconds(_)) => Err(NoStart::Seconds(error.to_string())),
            Err(_other) => Err(NoStart::Other),
        }
    }

    /// Whether it is a place in one shard.
    pub(super) fn is_position(&self) -> bool {
        matches!(self, Self::At(_) | Self::After(_))
    }

    /// Whether shards that were closed before need not be looked at.
    pub(super) fn passes_over_closed(&self) -> bool {
        matches!(self, Self::Latest(_))
    }

    /// For a shard that the stream has at the start.
    pub(super) fn begin(&self) -> Begin {
        match self {
            Self::TrimHorizon => Begin::whole(),
            Self::Latest(at) | Self::Time(at) => Begin { from: ReadFrom::AtTimestamp(*at), after: None },
            // Both at the record: it may be an aggregate, of which a part is left out.
            Self::At(position) => Begin {
                from: ReadFrom::At(position.sequence_number.clone()),
                after: position
                    .sub_sequence_number
                    .checked_sub(1)
                    .map(|before| Position::new(position.sequence_number.clone(), before)),
            },
            Self::After(position) => {
                Begin { from: ReadFrom::At(position.sequence_number.clone()), after: Some(position.clone()) }
            }
        }
    }
}

// === impl Begin ===

impl Begin {
    /// With everything that the shard keeps.
    pub(super) fn whole() -> Self {
        Self { from: ReadFrom::TrimHorizon, after: None }
    }
}

/// The time of `--to`, at this time, in milliseconds since 1970.
pub(super) fn end(text: &str, now: u64) -> Result<u64, String> {
    match Start::any(text, now) {
        _any if text == "now" => Ok(now),
        Ok(Start::Time(at)) => Ok(at),
        Err(NoStart::Seconds(said)) => Err(said),
        _other => {
            Err("\"now\", how long ago (2h), a day, or a time such as 2026-07-01T12:00:00Z is expected".to_owned())
        }
    }
}

/// A position as `--json` prints it; without its second part, that of the first record.
pub(super) fn position(text: &str) -> Result<Position, String> {
    let (number, sub) = text.split_once('/').unwrap_or((text, "0"));
    let number = SequenceNumber::parse(number).map_err(|error| error.to_string())?;
    let is_number = sub.bytes().all(|byte| byte.is_ascii_digit());
    match sub.parse() {
        Ok(sub) if is_number => Ok(Position::new(number, sub)),
        _other => Err(format!("`{sub}` is not a place in an aggregate: a number from 0 is expected behind the `/`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBER: &str = "49590338271490256608559692538361571095921575989136588898";

    fn number() -> SequenceNumber {
        SequenceNumber::parse(NUMBER).unwrap()
    }

    fn parse(text: &str) -> Result<Start, String> {
        Start::parse(text, 1_790_000_000_000)
    }

    #[test]
    fn a_start_is_a_name_a_time_or_a_position() {
        for (text, start) in [
            ("trim-horizon", Start::TrimHorizon),
            ("latest", Start::Latest(1_790_000_000_000)),
            ("2h", Start::Time(1_790_000_000_000 - 7_200_000)),
            ("90000days", Start::Time(0)),
            ("2026-09-21", Start::Time(1_789_948_800_000)),
            ("2026-09-21T14:13:20Z", Start::Time(1_790_000_000_000)),
            ("2026-09-21T16:13:20+02:00", Start::Time(1_790_000_000_000)),
            ("1789948800000", Start::Time(1_789_948_800_000)),
            (NUMBER, Start::At(Position::new(number(), 0))),
            (&format!("{NUMBER}/7"), Start::At(Position::new(number(), 7))),
            ("17/0", Start::At(Position::new(SequenceNumber::parse("17").unwrap(), 0))),
        ] {
            assert_eq!(parse(text), Ok(start), "{text}");
        }
    }

    #[test]
    fn what_is_none_is_refused_with_what_is_expected() {
        for (text, said) in [
            ("", "is expected"),
            ("yesterday", "how long ago"),
            ("2026-13-01", "a time such as"),
            ("éééééé", "position of a record"),
            ("1790000000", "multiply by 1000"),
            ("2026-09-22", "still to come"),
            (&format!("{NUMBER}/x"), "behind the `/`"),
            (&format!("{NUMBER}/"), "behind the `/`"),
            (&format!("{NUMBER}/-1"), "behind the `/`"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn an_end_is_a_time_that_may_be_still_to_come() {
        let end = |text: &str| end(text, 1_790_000_000_000);
        assert_eq!((end("now"), end("1h")), (Ok(1_790_000_000_000), Ok(1_790_000_000_000 - 3_600_000)));
        assert_eq!(end("2026-09-22"), Ok(1_790_035_200_000));
        for text in ["latest", "trim-horizon", NUMBER, "", "soon"] {
            assert!(end(text).unwrap_err().contains("\"now\", how long ago"), "{text}");
        }
        assert!(end("1790000000").unwrap_err().contains("multiply by 1000"));
    }

    #[test]
    fn a_position_within_an_aggregate_begins_at_its_record_and_leaves_out_what_is_before() {
        let at = |sub| Begin { from: ReadFrom::At(number()), after: Some(Position::new(number(), sub)) };
        assert_eq!(Start::At(Position::new(number(), 3)).begin(), at(2));
        assert_eq!(Start::After(Position::new(number(), 3)).begin(), at(3));
        let whole = Begin { from: ReadFrom::At(number()), after: None };
        assert_eq!(Start::At(Position::new(number(), 0)).begin(), whole);
    }
}
