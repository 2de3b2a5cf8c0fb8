use crate::condition::{Kind, Scalar};
use crate::number::Number;

/// What is known of a record besides its body.
#[derive(Debug, Clone, Copy, Default)]
pub struct Metadata<'a> {
    /// `partitionKey` in a pattern.
    pub partition_key: &'a str,
    /// `explicitHashKey` in a pattern: in decimal. Known of records that came in an aggregate only.
    pub explicit_hash_key: Option<&'a str>,
    /// `sequenceNumber` in a pattern: decimal digits, as the service wrote them, compared as text.
    pub sequence_number: &'a str,
    /// `subSequenceNumber` in a pattern, a number: the place in the aggregate, 0 for a record that came alone.
    pub sub_sequence_number: u64,
    /// `approximateArrivalTimestamp` in a pattern, where it is in seconds with a fraction, as in Lambda's events. Here in
    /// milliseconds since 1970.
    pub approximate_arrival: u64,
    /// `shardId` in a pattern.
    pub shard_id: &'a str,
    /// `stream` in a pattern: what the configuration calls it by, a name or an ARN.
    pub stream: &'a str,
}

/// A field of the metadata, as a pattern names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    PartitionKey,
    ExplicitHashKey,
    SequenceNumber,
    SubSequenceNumber,
    ApproximateArrival,
    ShardId,
    Stream,
}

// === impl Field ===

impl Field {
    pub(crate) const ALL: [Self; 7] = [
        Self::PartitionKey,
        Self::ExplicitHashKey,
        Self::SequenceNumber,
        Self::SubSequenceNumber,
        Self::ApproximateArrival,
        Self::ShardId,
        Self::Stream,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::PartitionKey => "partitionKey",
            Self::ExplicitHashKey => "explicitHashKey",
            Self::SequenceNumber => "sequenceNumber",
            Self::SubSequenceNumber => "subSequenceNumber",
            Self::ApproximateArrival => "approximateArrivalTimestamp",
            Self::ShardId => "shardId",
            Self::Stream => "stream",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.name() == name)
    }

    /// What can be asked of it.
    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::SubSequenceNumber | Self::ApproximateArrival => Kind::Number,
            _ => Kind::Text,
        }
    }

    /// What a record has there.
    pub(crate) fn of<'a>(self, metadata: &Metadata<'a>) -> Option<Scalar<'a>> {
        let text = match self {
            Self::SubSequenceNumber => return Some(Scalar::Number(metadata.sub_sequence_number.into())),
            Self::ApproximateArrival => return Some(Scalar::Number(seconds(metadata.approximate_arrival))),
            Self::PartitionKey => metadata.partition_key,
            Self::ExplicitHashKey => metadata.explicit_hash_key?,
            Self::SequenceNumber => metadata.sequence_number,
            Self::ShardId => metadata.shard_id,
            Self::Stream => metadata.stream,
        };
        Some(Scalar::Text(text.as_bytes()))
    }
}

/// The double that a pattern's decimal gives as well: both are the one nearest to it.
fn seconds(millis: u64) -> Number {
    if millis.is_multiple_of(1000) { Number::from(millis / 1000) } else { Number::double(millis as f64 / 1000.0) }
}
