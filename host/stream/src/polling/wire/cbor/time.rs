use aws_smithy_types::DateTime;

use super::super::Malformed;
use super::Cbor;
use super::head::{Head, Major};
use crate::polling::decode::arrival;

/// Times from here on are milliseconds, and smaller ones seconds: it is the year 5138 in seconds, and 1973 in
/// milliseconds, 40 years before there was a record in Kinesis.
const LEAST_MILLISECONDS: u64 = 100_000_000_000;

// === impl Cbor ===

impl Cbor<'_> {
    /// A time of arrival in milliseconds since 1970. Kinesis sends whole milliseconds with tag 1, which stands for
    /// seconds in RFC 8949; others send seconds, with the tag or without. Its size tells, and the tag does not.
    pub(super) fn timestamp(&mut self) -> Result<u64, Malformed> {
        let start = self.at;
        let mut first = self.body.get(start).copied();
        let mut head = self.head("a time")?;
        if (head.major, head.argument) == (Major::Tag, Some(1)) {
            first = self.body.get(self.at).copied();
            head = self.head("a time behind its tag")?;
        }
        let Head { major, argument: Some(argument) } = head else {
            return Err(Malformed::new(start, self.instead(start, "a time")));
        };
        Ok(match (major, first) {
            (Major::Unsigned, _) if argument < LEAST_MILLISECONDS => arrival(DateTime::from_secs(argument as i64)),
            (Major::Unsigned, _) => i64::try_from(argument).map_or(0, |time| arrival(DateTime::from_millis(time))),
            // Before 1970, however long.
            (Major::Negative, _) => 0,
            (Major::Other, Some(0xf9)) => float(half(argument as u16)),
            (Major::Other, Some(0xfa)) => float(f32::from_bits(argument as u32).into()),
            (Major::Other, Some(0xfb)) => float(f64::from_bits(argument)),
            _ => return Err(Malformed::new(start, self.instead(start, "a time"))),
        })
    }
}

fn float(number: f64) -> u64 {
    if number < LEAST_MILLISECONDS as f64 {
        arrival(DateTime::from_secs_f64(number))
    } else if number < i64::MAX as f64 {
        arrival(DateTime::from_millis(number as i64))
    } else {
        // Infinite, or no number.
        0
    }
}

/// A floating-point number of 16 bits (RFC 8949, appendix D).
fn half(bits: u16) -> f64 {
    let exponent = i32::from((bits >> 10) & 0x1f);
    let mantissa = f64::from(bits & 0x3ff);
    let size = match exponent {
        0 => mantissa * 2_f64.powi(-24),
        31 if mantissa == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        exponent => (mantissa + 1024.0) * 2_f64.powi(exponent - 25),
    };
    if bits & 0x8000 == 0 { size } else { -size }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(bytes: &[u8]) -> Result<u64, String> {
        Cbor::new(&mut bytes.to_vec()).timestamp().map_err(|error| error.to_string())
    }

    fn tagged(bytes: &[u8]) -> Vec<u8> {
        [&[0xc1][..], bytes].concat()
    }

    #[test]
    fn seconds_and_milliseconds_are_told_apart_by_their_size() {
        let milliseconds = [&[0x1b][..], &1_782_864_000_123_u64.to_be_bytes()].concat();
        let seconds = [&[0x1a][..], &1_782_864_000_u32.to_be_bytes()].concat();
        let fraction = [&[0xfb][..], &1_782_864_000.5_f64.to_be_bytes()].concat();
        for bytes in [milliseconds.clone(), tagged(&milliseconds)] {
            assert_eq!(time(&bytes), Ok(1_782_864_000_123));
        }
        for bytes in [seconds.clone(), tagged(&seconds)] {
            assert_eq!(time(&bytes), Ok(1_782_864_000_000));
        }
        for bytes in [fraction.clone(), tagged(&fraction)] {
            assert_eq!(time(&bytes), Ok(1_782_864_000_500));
        }
    }

    #[test]
    fn a_time_that_is_none_is_0_and_what_is_no_number_is_refused() {
        assert_eq!(time(&[0x20]), Ok(0));
        assert_eq!(time(&[&[0xfb][..], &f64::NAN.to_be_bytes()].concat()), Ok(0));
        assert_eq!(time(&[&[0xfb][..], &f64::INFINITY.to_be_bytes()].concat()), Ok(0));
        assert_eq!(time(&[0x1b, 0xff, 0, 0, 0, 0, 0, 0, 0]), Ok(0));
        assert_eq!(time(&[0xf9, 0x3e, 0x00]), Ok(1_500), "1.5 in 16 bits");
        assert_eq!(time(&[0xf9, 0xc0, 0x00]), Ok(0), "-2");
        for refused in [&[0x60][..], &[0xf4], &[0xff], &[0xc2, 0x01], &[0xc1], &[0xc1, 0xc1, 0x01], &[0x9f]] {
            assert!(time(refused).is_err(), "{refused:?}");
        }
    }
}
