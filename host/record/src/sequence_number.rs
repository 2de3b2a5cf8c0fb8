use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// More digits than any number of 384 bits has; Kinesis' own numbers have 56.
const MAX_DIGITS: usize = 116;

/// The sequence number of a Kinesis record: a whole number of more than 128 bits, kept as its decimal digits.
///
/// Ordered as a number. Leading zeros are dropped when it is read, so that equal numbers are equal values.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SequenceNumber(Box<str>);

/// Why a text is not a sequence number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a sequence number: 1 to {MAX_DIGITS} decimal digits are expected")]
pub struct InvalidSequenceNumber {
    text: String,
}

// === impl SequenceNumber ===

impl SequenceNumber {
    /// Takes 1 to 116 decimal digits.
    pub fn parse(text: &str) -> Result<Self, InvalidSequenceNumber> {
        match significant_digits(text.as_bytes()) {
            Some(digits) => Ok(Self(text[text.len() - digits.len()..].into())),
            None => Err(InvalidSequenceNumber { text: text.chars().take(MAX_DIGITS).collect() }),
        }
    }

    /// The decimal digits, without leading zeros.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Compares with a number that is given as digits without leading zeros, as the columns of a batch hold it.
    pub fn cmp_digits(&self, digits: &[u8]) -> Ordering {
        compare_digits(self.0.as_bytes(), digits)
    }
}

/// The digits without leading zeros, if this is a number of acceptable length.
pub(crate) fn significant_digits(text: &[u8]) -> Option<&[u8]> {
    if text.is_empty() || text.len() > MAX_DIGITS || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let zeros = text.iter().take_while(|digit| **digit == b'0').count().min(text.len() - 1);
    Some(&text[zeros..])
}

pub(crate) fn compare_digits(left: &[u8], right: &[u8]) -> Ordering {
    left.len().cmp(&right.len()).then_with(|| left.cmp(right))
}

impl Ord for SequenceNumber {
    fn cmp(&self, other: &Self) -> Ordering {
        compare_digits(self.0.as_bytes(), other.0.as_bytes())
    }
}

impl PartialOrd for SequenceNumber {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl FromStr for SequenceNumber {
    type Err = InvalidSequenceNumber;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl fmt::Display for SequenceNumber {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Debug for SequenceNumber {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SequenceNumber({})", self.0)
    }
}

/// Where a user record stands in its shard: its Kinesis record's sequence number, then its place in the aggregate.
///
/// A record that came alone has sub-sequence number 0 (the KCL's convention, so checkpoints mean the same to both).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The Kinesis record's sequence number.
    pub sequence_number: SequenceNumber,
    /// The place among the user records of that Kinesis record, from 0.
    pub sub_sequence_number: u64,
}

// === impl Position ===

impl Position {
    /// A position from its two parts.
    pub fn new(sequence_number: SequenceNumber, sub_sequence_number: u64) -> Self {
        Self { sequence_number, sub_sequence_number }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.sequence_number, self.sub_sequence_number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn order_is_numeric_where_text_order_would_be_wrong() {
        let nine = SequenceNumber::parse("9").unwrap();
        let ten = SequenceNumber::parse("10").unwrap();
        assert!(nine < ten);
        assert!("9" > "10");
    }

    #[test]
    fn more_than_128_bits_is_kept_exactly() {
        let text = "49590338271490256608559692538361571095921575989136588898";
        assert_eq!(SequenceNumber::parse(text).unwrap().to_string(), text);
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in ["", "-1", "+1", "1.0", "0x1", "LATEST", "١", &"1".repeat(MAX_DIGITS + 1)] {
            assert!(SequenceNumber::parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn order_agrees_with_u128(a: u128, b: u128, zeros in 0usize..4) {
            let parse = |n: u128| SequenceNumber::parse(&format!("{}{n}", "0".repeat(zeros))).unwrap();
            prop_assert_eq!(parse(a).cmp(&parse(b)), a.cmp(&b));
            prop_assert_eq!(parse(a).to_string(), a.to_string());
        }

        #[test]
        fn positions_order_by_sequence_then_sub_sequence(a: (u64, u64), b: (u64, u64)) {
            let position = |(n, sub): (u64, u64)| Position::new(SequenceNumber::parse(&n.to_string()).unwrap(), sub);
            prop_assert_eq!(position(a).cmp(&position(b)), a.cmp(&b));
        }
    }
}
