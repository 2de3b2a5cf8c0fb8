//! GetRecords as it is on the wire: [`protocol`] takes the body of an answer out of the SDK's hands, which keeps
//! credentials, signatures, endpoints, retries and errors; [`json`] and [`cbor`] decode it where it lies, so that a
//! page is spans over the bytes that came in. [`walk`] is what the formats have in common.
//!
//! Both decoders take what the SDK's takes, and refuse what it refuses; `tests/differential.rs` and the fuzz target
//! hold them to it. Shared rules:
//!
//! - Of a field that comes twice the last one counts. Unknown fields are skipped, up to a depth of 128.
//! - A field that is `null` is one that is not there.
//! - A time of arrival that is none, or is before 1970, is 0.
//!
//! One difference is on purpose: an answer without `Records` is refused, and the SDK takes it, an empty body
//! included, for a last page without records.

mod cbor;
mod json;
mod one_piece;
mod protocol;
mod walk;

use std::borrow::Cow;
use std::fmt;

use bytes::{Bytes, BytesMut};
use shardmill_record::KinesisRecord;

pub(crate) use self::one_piece::TooLarge;
pub(crate) use self::protocol::{Exchange, Protocol};
use super::decode::{Answer, Decoded, NotUtf8, too_large};
use crate::ReadFrom;

/// How deep containers may lie in each other, the answer itself included. The SDK's limit.
const MAX_DEPTH: u32 = 128;
/// What a page may keep of a buffer besides the answer: more is given back by copying the answer once.
const SPARE: usize = 4096;

/// How large an answer with so many records at most may be, so that the page that it becomes takes no more than `bytes`.
pub(crate) fn body_within(bytes: u64, records: u32) -> u64 {
    bytes.saturating_sub(SPARE as u64 + u64::from(records) * size_of::<KinesisRecord>() as u64)
}

/// How an answer is written. Its content type tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    Cbor,
}

/// The body of an answer that nobody has decoded.
#[derive(Debug)]
pub(crate) struct Body {
    pub(crate) format: Format,
    pub(crate) bytes: Bytes,
}

/// What is wrong with an answer, and where. Small, because results that hold it are returned for each field.
#[derive(Debug)]
struct Malformed(Box<Fault>);

#[derive(Debug)]
struct Fault {
    /// In bytes from the answer's beginning.
    at: usize,
    what: Cow<'static, str>,
}

// === impl Body ===

impl Body {
    /// The error says what is wrong with the answer.
    pub(crate) fn decode(self, from: &ReadFrom) -> Result<Decoded, String> {
        if u32::try_from(self.bytes.len()).is_err() {
            return Err(too_large(self.bytes.len()));
        }
        let mut buffer = own(self.bytes);
        let mut answer = Answer::new(from);
        let (read, format) = match self.format {
            Format::Json => (walk::read(&mut json::Json::new(&mut buffer), &mut answer), "JSON"),
            Format::Cbor => (walk::read(&mut cbor::Cbor::new(&mut buffer), &mut answer), "CBOR"),
        };
        match read {
            Ok(()) => answer.finish(buffer),
            Err(Malformed(fault)) => {
                Err(format!("byte {} of its {} bytes of {format}: {}", fault.at, buffer.len(), fault.what))
            }
        }
    }
}

/// The bytes, to be changed in place. They are copied if somebody else holds them, or if they are a small part of a
/// buffer, as a short answer is of its connection's.
fn own(bytes: Bytes) -> BytesMut {
    match bytes.try_into_mut() {
        Ok(buffer) if buffer.capacity() - buffer.len() <= SPARE => buffer,
        Ok(buffer) => BytesMut::from(&buffer[..]),
        Err(shared) => BytesMut::from(&shared[..]),
    }
}

// === impl Malformed ===

impl Malformed {
    #[cold]
    fn new(at: usize, what: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Fault { at, what: what.into() }))
    }

    /// Something else was expected here.
    #[cold]
    fn expected(body: &[u8], at: usize, expected: &str) -> Self {
        let found = match body.get(at) {
            None => "the answer ends".into(),
            Some(byte) if byte.is_ascii_graphic() || *byte == b' ' => format!("`{}` is there", *byte as char),
            Some(byte) => format!("the byte 0x{byte:02x} is there"),
        };
        Self::new(at, format!("{expected} is expected, and {found}"))
    }
}

impl From<NotUtf8> for Malformed {
    #[cold]
    fn from(NotUtf8(span): NotUtf8) -> Self {
        Self::new(span.start as usize, "a text in UTF-8 is expected, and this one is not")
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "byte {}: {}", self.0.at, self.0.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_taken_over_unless_it_is_shared_or_much_larger_than_the_answer() {
        let body = Bytes::from(vec![7; 100_000]);
        let place = body.as_ptr();
        let owned = own(body);
        assert_eq!((owned.as_ptr(), owned.len()), (place, 100_000));

        let body = Bytes::from(vec![7; 100_000]);
        let held = body.clone();
        let mut copied = own(body);
        copied[0] = 8;
        assert_eq!(held[0], 7, "what somebody else holds is left as it is");

        let mut of_connection = BytesMut::with_capacity(400_000);
        of_connection.extend_from_slice(&[7; 10_000]);
        let short = own(of_connection.freeze());
        assert!(short.capacity() < 20_000, "{} bytes for 10,000", short.capacity());
    }

    /// However many and small its records are.
    #[test]
    fn a_page_of_an_answer_within_its_bound_takes_no_more_than_was_set_aside() {
        for records in [0, 1, 10, 10_000_u32] {
            let each = (1..=records)
                .map(|number| format!("{{\"SequenceNumber\":\"{number}\",\"PartitionKey\":\"k\",\"Data\":\"\"}}"));
            let text = format!("{{\"Records\":[{}]}}", each.collect::<Vec<_>>().join(","));
            let smallest = (0..).map(|more| text.len() as u64 + more);
            let set_aside =
                smallest.into_iter().find(|bytes| body_within(*bytes, records) >= text.len() as u64).unwrap();
            // With as much behind it as a page may keep, and with more.
            for spare in [0, SPARE, 100_000] {
                let mut buffer = BytesMut::with_capacity(text.len() + spare);
                buffer.extend_from_slice(text.as_bytes());
                let page =
                    Body { format: Format::Json, bytes: buffer.freeze() }.decode(&ReadFrom::TrimHorizon).unwrap().page;
                assert_eq!(page.len(), records as usize);
                assert!(page.memory() as u64 <= set_aside, "{} bytes of {set_aside}, {records} records", page.memory());
            }
        }
    }

    #[test]
    fn an_error_says_what_is_wrong_and_where() {
        let refused = |format, bytes: &'static [u8]| {
            Body { format, bytes: Bytes::from_static(bytes) }.decode(&ReadFrom::TrimHorizon).unwrap_err()
        };
        for (body, reason) in [
            (&b"<html>"[..], "byte 0 of its 6 bytes of JSON: an object is expected, and `<` is there"),
            (b"{\"Records\":[{\"Data\":7", "byte 20 of its 21 bytes of JSON: a string is expected, and `7` is there"),
            (
                b"{\"Records\":[",
                "byte 12 of its 12 bytes of JSON: a list's element or its end is expected, and the answer ends",
            ),
            (b"{\"Records\":[{\"Data\":\"A\"}]}", "byte 21 of its 26 bytes of JSON: `Data` is not base64"),
            (b"{}", "there are no `Records` in it, not even an empty list"),
            (b"", "there are no `Records` in it, not even an empty list"),
        ] {
            assert_eq!(refused(Format::Json, body), reason);
        }
        for (body, reason) in [
            (&b"{}"[..], "byte 0 of its 2 bytes of CBOR: a map is expected, and a text (0x7b) is there"),
            (b"\xa1\x67Records\x9f", "byte 10 of its 10 bytes of CBOR: a map is expected, and the answer ends"),
            (
                b"\xa1\x67Records\x81\xa1\x64Data\x42A",
                "byte 17 of its 18 bytes of CBOR: a string of 2 bytes begins here, and the answer ends before it does",
            ),
            (b"\xa0", "there are no `Records` in it, not even an empty list"),
        ] {
            assert_eq!(refused(Format::Cbor, body), reason);
        }
    }
}
