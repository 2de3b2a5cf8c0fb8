use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

/// Kinesis' own numbers have 56 digits, and its API allows 129. Whoever stands in its place may have longer ones; this
/// only keeps a number that is none from taking memory.
const MAX_DIGITS: usize = 512;
/// How much of a text is shown that is no number.
const SHOWN: usize = 128;

/// The sequence number of a Kinesis record: a whole number of more than 128 bits, kept as its decimal digits.
///
/// Ordered and equal as a number. Its text stays as it was read: Kinesis writes no leading zeros, but services that
/// stand in for it do, and find a record only by the text that they gave it. Without its zeros a checkpoint there is
/// behind every record, and a restart skips all that is left.
#[derive(Clone)]
pub struct SequenceNumber(Box<str>);

/// Why a text is not a sequence number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a sequence number: 1 to {MAX_DIGITS} decimal digits are expected")]
pub struct InvalidSequenceNumber {
    text: String,
}

// === impl InvalidSequenceNumber ===

impl InvalidSequenceNumber {
    pub(crate) fn new(text: &[u8]) -> Self {
        // No character has more than four bytes.
        let shown = &text[..text.len().min(SHOWN * 4)];
        Self { text: String::from_utf8_lossy(shown).chars().take(SHOWN).collect() }
    }
}

// === impl SequenceNumber ===

impl SequenceNumber {
    /// Takes 1 to 512 decimal digits.
    pub fn parse(text: &str) -> Result<Self, InvalidSequenceNumber> {
        if is_number(text.as_bytes()) {
            Ok(Self(text.into()))
        } else {
            Err(InvalidSequenceNumber::new(text.as_bytes()))
        }
    }

    /// The decimal digits, as they were read.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Compares with a number that is given as digits, as the columns of a batch hold it.
    pub fn cmp_digits(&self, digits: &[u8]) -> Ordering {
        compare_digits(self.0.as_bytes(), digits)
    }
}

/// Whether this is a number of acceptable length.
pub(crate) fn is_number(text: &[u8]) -> bool {
    // Without an early end, so that the compiler looks at many digits at once: this is done for every record read.
    (1..=MAX_DIGITS).contains(&text.len()) && text.iter().fold(true, |digits, byte| digits & byte.is_ascii_digit())
}

/// Compares sequence numbers that are given as digits: leading zeros count for nothing.
pub fn compare_digits(left: &[u8], right: &[u8]) -> Ordering {
    let [left, right] = [left, right].map(significant);
    left.len().cmp(&right.len()).then_with(|| left.cmp(right))
}

/// Nothing is left of zero.
fn significant(digits: &[u8]) -> &[u8] {
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    &digits[zeros..]
}

impl Ord for SequenceNumber {
    fn cmp(&self, other: &Self) -> Ordering {
        self.cmp_digits(other.0.as_bytes())
    }
}

impl PartialEq for SequenceNumber {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for SequenceNumber {}

impl Hash for SequenceNumber {
    fn hash<H: Hasher>(&self, state: &mut H) {
        significant(self.0.as_bytes()).hash(state);
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
    use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

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
    fn numbers_of_every_length_that_the_api_allows_and_longer_ones_are_kept_and_ordered() {
        // At 64, 128 and 256 bits, at the 129 digits of the API's pattern, and far beyond.
        let highest = u128::MAX.to_string();
        let powers = ["18446744073709551615", "18446744073709551616", highest.as_str()];
        let longer = [40, 56, 78, 128, 129, 130, 300, 511].map(|digits| format!("9{}", "0".repeat(digits - 1)));
        let mut last: Option<SequenceNumber> = None;
        for text in powers.into_iter().chain(longer.iter().map(String::as_str)) {
            let number = SequenceNumber::parse(text).unwrap();
            assert_eq!(number.as_str(), text);
            assert_eq!(number.cmp_digits(text.as_bytes()), Ordering::Equal);
            assert!(last.is_none_or(|last| last < number), "{text}");
            last = Some(number);
        }
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in ["", "-1", "+1", "1.0", "0x1", "LATEST", "١", &"1".repeat(MAX_DIGITS + 1)] {
            assert!(SequenceNumber::parse(text).is_err(), "{text}");
        }
    }

    fn hash(number: &SequenceNumber) -> u64 {
        BuildHasherDefault::<DefaultHasher>::default().hash_one(number)
    }

    proptest! {
        #[test]
        fn a_number_is_a_number_with_or_without_leading_zeros(a: u128, b: u128, zeros in (0usize..4, 0usize..4)) {
            let write = |n: u128, zeros| format!("{}{n}", "0".repeat(zeros));
            let parse = |n: u128, zeros| SequenceNumber::parse(&write(n, zeros)).unwrap();
            prop_assert_eq!(parse(a, zeros.0).cmp(&parse(b, zeros.1)), a.cmp(&b));
            prop_assert_eq!(parse(a, zeros.0).cmp_digits(write(b, zeros.1).as_bytes()), a.cmp(&b));
            prop_assert_eq!(parse(a, zeros.0), parse(a, zeros.1));
            prop_assert_eq!(hash(&parse(a, zeros.0)), hash(&parse(a, zeros.1)));
            prop_assert_eq!(parse(a, zeros.0).to_string(), write(a, zeros.0));
        }

        #[test]
        fn positions_order_by_sequence_then_sub_sequence(a: (u64, u64), b: (u64, u64)) {
            let position = |(n, sub): (u64, u64)| Position::new(SequenceNumber::parse(&n.to_string()).unwrap(), sub);
            prop_assert_eq!(position(a).cmp(&position(b)), a.cmp(&b));
        }
    }
}
