//! Numbers, as the SDK reads them, oddities included: what it takes is a record's time, and what it refuses is not.

use aws_smithy_types::DateTime;
use aws_smithy_types::date_time::Format;

use super::super::Malformed;
use super::super::walk::Source;
use super::Json;
use crate::polling::decode::{self, arrival};

/// Powers of ten that are exact in an `f64`, as are all whole numbers of 15 digits.
const POWERS: [f64; 16] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];
const EXACT_DIGITS: usize = 15;
/// Times up to here have milliseconds in an `i64`.
const MOST_SECONDS: f64 = 9e15;

// === impl Json ===

impl Json<'_> {
    /// A time of arrival in milliseconds since 1970, from seconds or a text in RFC 3339.
    #[inline]
    pub(super) fn timestamp(&mut self) -> Result<u64, Malformed> {
        match plain_seconds(self.rest()) {
            Some((milliseconds, length)) => {
                self.at += length;
                Ok(milliseconds)
            }
            None => self.odd_timestamp(),
        }
    }

    #[cold]
    #[inline(never)]
    fn odd_timestamp(&mut self) -> Result<u64, Malformed> {
        let start = self.at;
        let wrong = |what: &dyn std::fmt::Display| Malformed::new(start, format!("a time is expected: {what}"));
        let time = match self.token() {
            Some(b'"') => {
                let text = self.text()?;
                let text = decode::utf8(self.body, text)?;
                DateTime::from_str(text, Format::DateTimeWithOffset).map_err(|error| wrong(&error))?
            }
            Some(b'-' | b'0'..=b'9') => {
                let text = self.number_text(|byte| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E'));
                if text.contains(['.', 'e', 'E']) {
                    DateTime::from_secs_f64(text.parse::<f64>().map_err(|error| wrong(&error))?)
                } else if text.starts_with('-') {
                    DateTime::from_secs(text.parse::<i64>().map_err(|error| wrong(&error))?)
                } else {
                    let seconds = text.parse::<u64>().map_err(|error| wrong(&error))?;
                    DateTime::from_secs(i64::try_from(seconds).map_err(|error| wrong(&error))?)
                }
            }
            _ => return Err(self.expected("a time")),
        };
        Ok(arrival(time))
    }

    /// A whole number.
    pub(super) fn whole_number(&mut self) -> Result<i64, Malformed> {
        let start = self.at;
        let wrong = |what: &dyn std::fmt::Display| Malformed::new(start, format!("a whole number is expected: {what}"));
        let text = self.number_text(|byte| matches!(byte, b'0'..=b'9' | b'-' | b'+'));
        let number = text.parse::<i64>().map_err(|error| wrong(&error))?;
        match self.rest().first() {
            Some(b'.' | b'e' | b'E') => Err(wrong(&"it has a fraction or an exponent")),
            _ => Ok(number),
        }
    }

    /// Passes the characters of a number.
    fn number_text(&mut self, belongs: fn(&u8) -> bool) -> &str {
        let length = self.rest().iter().take_while(|byte| belongs(byte)).count();
        self.at += length;
        std::str::from_utf8(&self.body[self.at - length..self.at]).expect("these characters are ASCII")
    }
}

/// Seconds as services write them: digits, perhaps a point and digits, 15 of them at most, perhaps an exponent. In
/// milliseconds, and the length of the text. The arithmetic is the SDK's on the same `f64`, or some would come out a
/// millisecond away.
#[inline]
fn plain_seconds(text: &[u8]) -> Option<(u64, usize)> {
    let mut number: u64 = 0;
    let mut digits = 0;
    let mut length = 0;
    let mut point = None;
    let after = loop {
        match text.get(length) {
            Some(digit @ b'0'..=b'9') => {
                digits += 1;
                if digits > EXACT_DIGITS {
                    return None;
                }
                number = number * 10 + u64::from(digit - b'0');
            }
            Some(b'.') if digits > 0 && point.is_none() => point = Some(digits),
            after => break after,
        }
        length += 1;
    };
    let fraction = (digits - point.unwrap_or(digits)) as i32;
    let scale = match after {
        _ if digits == 0 => return None,
        Some(b'e' | b'E') => {
            let (exponent, exponent_length) = plain_exponent(&text[length + 1..])?;
            length += 1 + exponent_length;
            exponent - fraction
        }
        Some(b'-' | b'+' | b'.') => return None,
        _ if point.is_none() => return Some((number * 1_000, length)),
        _ => -fraction,
    };
    // Both are exact, so that the result is the `f64` next to the number, which is what parsing gives.
    let power = *POWERS.get(scale.unsigned_abs() as usize)?;
    let seconds = if scale < 0 { number as f64 / power } else { number as f64 * power };
    if seconds > MOST_SECONDS {
        return None;
    }
    let whole = seconds as u64;
    let nanoseconds = ((seconds - whole as f64) * 1_000_000_000_f64) as u64;
    Some((whole * 1_000 + nanoseconds / 1_000_000, length))
}

/// One or two digits, perhaps with a sign, and the length of the text.
fn plain_exponent(text: &[u8]) -> Option<(i32, usize)> {
    let sign = usize::from(matches!(text.first(), Some(b'+' | b'-')));
    let digits = text[sign..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let end = sign + digits;
    if !(1..=2).contains(&digits) || matches!(text.get(end), Some(b'-' | b'+' | b'.' | b'e' | b'E')) {
        return None;
    }
    let exponent = text[sign..end].iter().fold(0, |exponent, digit| exponent * 10 + i32::from(digit - b'0'));
    Some((if text[0] == b'-' { -exponent } else { exponent }, end))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sdk(text: &str) -> u64 {
        arrival(DateTime::from_secs_f64(text.parse().unwrap()))
    }

    #[test]
    fn what_is_not_plain_is_left_to_the_long_way() {
        assert_eq!(plain_seconds(b"1782864000,"), Some((1_782_864_000_000, 10)));
        assert_eq!(plain_seconds(b"1782864000.123}"), Some((sdk("1782864000.123"), 14)));
        assert_eq!(plain_seconds(b"1.441215410867E9,"), Some((sdk("1441215410.867"), 16)));
        assert_eq!(plain_seconds(b"7."), Some((7_000, 2)));
        let odd = [
            "",
            "-1",
            ".5",
            "1e",
            "1e100",
            "1e30",
            "1.2.3",
            "1-2",
            "1+",
            "1e5e5",
            "1e5.5",
            "1e5-",
            "1e-16",
            "1234567890123456",
            "1.234567890123456",
        ];
        for odd in odd {
            assert_eq!(plain_seconds(odd.as_bytes()), None, "{odd}");
        }
    }

    proptest! {
        #[test]
        fn plain_seconds_are_the_sdk_s_milliseconds(
            whole in 0_u64..10_000_000_000,
            fraction in "[0-9]{0,5}",
            exponent in "([eE][+-]?[0-9]{1,2})?",
        ) {
            let text = format!("{whole}.{fraction}{exponent}");
            if let Some(read) = plain_seconds(text.as_bytes()) {
                prop_assert_eq!(read, (sdk(&text), text.len()));
            } else {
                prop_assert!(!exponent.is_empty());
            }
        }

        #[test]
        fn times_as_the_service_writes_them_are_plain(milliseconds in 1_300_000_000_000_u64..4_000_000_000_000) {
            let seconds = milliseconds as f64 / 1_000.0;
            let leading = milliseconds / 1_000_000_000_000;
            let rest = milliseconds % 1_000_000_000_000;
            for text in [format!("{seconds}"), format!("{seconds:e}"), format!("{leading}.{rest:012}E9")] {
                let read = plain_seconds(text.as_bytes());
                prop_assert_eq!(read, Some((sdk(&text), text.len())), "{}", text);
            }
        }
    }
}
