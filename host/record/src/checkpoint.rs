use std::fmt;

use crate::{InvalidSequenceNumber, Position, SequenceNumber};

/// How far a shard has been processed, as the KCL's lease table keeps it: a sentinel or a position.
///
/// Ordered as the KCL orders: `AT_TIMESTAMP` < `TRIM_HORIZON` < `LATEST` < positions < `SHARD_END`. A checkpoint
/// never goes back in this order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Checkpoint {
    /// Nothing yet; start at the time that the lease or the configuration names.
    AtTimestamp,
    /// Nothing yet; start at the oldest record that is kept.
    TrimHorizon,
    /// Nothing yet; start with what comes after the first start.
    Latest,
    /// Everything up to and including this position.
    Position(Position),
    /// Everything: the shard is closed and its last record is done.
    ShardEnd,
}

/// Why a stored checkpoint cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a checkpoint: a sequence number, TRIM_HORIZON, LATEST, AT_TIMESTAMP or SHARD_END is expected")]
pub struct InvalidCheckpoint {
    text: String,
    source: InvalidSequenceNumber,
}

// === impl Checkpoint ===

impl Checkpoint {
    /// Reads the two attributes of a lease row.
    pub fn parse(text: &str, sub_sequence_number: u64) -> Result<Self, InvalidCheckpoint> {
        Ok(match text {
            "AT_TIMESTAMP" => Self::AtTimestamp,
            "TRIM_HORIZON" => Self::TrimHorizon,
            "LATEST" => Self::Latest,
            "SHARD_END" => Self::ShardEnd,
            _ => match SequenceNumber::parse(text) {
                Ok(number) => Self::Position(Position::new(number, sub_sequence_number)),
                Err(source) => return Err(InvalidCheckpoint { text: text.chars().take(128).collect(), source }),
            },
        })
    }

    /// The `checkpoint` attribute.
    pub fn as_str(&self) -> &str {
        match self {
            Self::AtTimestamp => "AT_TIMESTAMP",
            Self::TrimHorizon => "TRIM_HORIZON",
            Self::Latest => "LATEST",
            Self::Position(position) => position.sequence_number.as_str(),
            Self::ShardEnd => "SHARD_END",
        }
    }

    /// The `checkpointSubSequenceNumber` attribute; 0 with sentinels.
    pub fn sub_sequence_number(&self) -> u64 {
        match self {
            Self::Position(position) => position.sub_sequence_number,
            _ => 0,
        }
    }

    /// The position, if this is one.
    pub fn position(&self) -> Option<&Position> {
        match self {
            Self::Position(position) => Some(position),
            _ => None,
        }
    }

    /// Whether nothing of the shard has been checkpointed yet.
    pub fn is_start(&self) -> bool {
        matches!(self, Self::AtTimestamp | Self::TrimHorizon | Self::Latest)
    }

    /// Whether the shard is done for good.
    pub fn is_shard_end(&self) -> bool {
        matches!(self, Self::ShardEnd)
    }
}

impl fmt::Display for Checkpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Position(position) => position.fmt(formatter),
            sentinel => formatter.write_str(sentinel.as_str()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_the_kcls() {
        let order = ["AT_TIMESTAMP", "TRIM_HORIZON", "LATEST", "0", "9", "10", "SHARD_END"];
        let parsed: Vec<_> = order.iter().map(|text| Checkpoint::parse(text, 0).unwrap()).collect();
        assert!(parsed.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(Checkpoint::parse("9", 7).unwrap() < Checkpoint::parse("10", 0).unwrap());
        assert!(Checkpoint::parse("9", 0).unwrap() < Checkpoint::parse("9", 1).unwrap());
    }

    #[test]
    fn attributes_read_back() {
        for text in ["AT_TIMESTAMP", "TRIM_HORIZON", "LATEST", "SHARD_END", "4957"] {
            let checkpoint = Checkpoint::parse(text, 0).unwrap();
            assert_eq!(checkpoint.as_str(), text);
        }
        assert_eq!(Checkpoint::parse("4957", 3).unwrap().sub_sequence_number(), 3);
        assert!(Checkpoint::parse("latest", 0).is_err());
    }
}
