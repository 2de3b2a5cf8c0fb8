//! CBOR (RFC 8949), as the service speaks it with the Java SDK: byte strings in place of base64, and times as whole
//! milliseconds. Texts and payloads that come in chunks are put together in place.

mod error;
mod head;
mod request;
mod time;

use shardmill_record::Span;

pub(super) use self::error::read_error;
use self::head::{Head, Major};
pub(super) use self::request::write;
use super::walk::{RECORD, RecordField, Source, known};
use super::{MAX_DEPTH, Malformed};
use crate::polling::decode;

/// Ends a container or a string whose length was not told.
const BREAK: u8 = 0xff;
/// Goes before data that say so of themselves that they are CBOR: tag 55799.
const SELF_DESCRIBED: [u8; 3] = [0xd9, 0xd9, 0xf7];

/// Where a reader stands in an answer in CBOR.
#[derive(Debug)]
pub(super) struct Cbor<'a> {
    body: &'a mut [u8],
    at: usize,
}

/// What is left of a map or a list.
#[derive(Debug)]
pub(super) enum Items {
    /// So many elements.
    Left(u64),
    /// Elements up to a break.
    UpToBreak,
}

// === impl Cbor ===

impl<'a> Cbor<'a> {
    /// At the beginning of a body of less than 4 GiB: spans have 32 bits.
    pub(super) fn new(body: &'a mut [u8]) -> Self {
        let at = if body.starts_with(&SELF_DESCRIBED) { SELF_DESCRIBED.len() } else { 0 };
        Self { body, at }
    }

    #[inline]
    fn rest(&self) -> &[u8] {
        &self.body[self.at..]
    }

    /// The next item's head, which is passed.
    #[inline]
    fn head(&mut self, expected: &str) -> Result<Head, Malformed> {
        match Head::read(self.rest()) {
            Some((head, length)) => {
                self.at += length;
                Ok(head)
            }
            None => Err(self.expected(expected)),
        }
    }

    fn container(&mut self, major: Major, expected: &str) -> Result<Items, Malformed> {
        let start = self.at;
        match self.head(expected)? {
            Head { major: found, argument } if found == major => Ok(argument.map_or(Items::UpToBreak, Items::Left)),
            _ => Err(Malformed::new(start, self.instead(start, expected))),
        }
    }

    /// A text or a byte string.
    #[inline]
    fn string(&mut self, major: Major, expected: &str) -> Result<Span, Malformed> {
        let start = self.at;
        match self.head(expected)? {
            Head { major: found, argument: Some(length) } if found == major => self.take(length),
            Head { major: found, argument: None } if found == major => self.chunks(major),
            _ => Err(Malformed::new(start, self.instead(start, expected))),
        }
    }

    /// So many bytes, which are passed.
    #[inline]
    fn take(&mut self, length: u64) -> Result<Span, Malformed> {
        if length > self.rest().len() as u64 {
            let what = format!("a string of {length} bytes begins here, and the answer ends before it does");
            return Err(Malformed::new(self.at, what));
        }
        let span = Span { start: self.at as u32, length: length as u32 };
        self.at += length as usize;
        Ok(span)
    }

    /// The chunks of a string of this type, put together where the first one is.
    #[cold]
    #[inline(never)]
    fn chunks(&mut self, major: Major) -> Result<Span, Malformed> {
        let start = self.at;
        let mut end = start;
        while self.body.get(self.at) != Some(&BREAK) {
            let chunk = self.at;
            let head = self.head("a chunk of a string, or its end")?;
            let (true, Some(length)) = (head.major == major, head.argument) else {
                return Err(Malformed::new(chunk, self.instead(chunk, "a chunk of the string, or its end")));
            };
            let piece = self.take(length)?;
            self.body.copy_within(piece.start as usize..self.at, end);
            end += length as usize;
        }
        self.at += 1;
        Ok(Span { start: start as u32, length: (end - start) as u32 })
    }

    /// What stands where something else is expected.
    #[cold]
    fn instead(&self, at: usize, expected: &str) -> String {
        match self.body.get(at) {
            None => format!("{expected} is expected, and the answer ends"),
            Some(byte) => format!("{expected} is expected, and {} (0x{byte:02x}) is there", head::describe(*byte)),
        }
    }

    fn skip_within(&mut self, depth: u32) -> Result<(), Malformed> {
        let start = self.at;
        let mut head = self.head("a value")?;
        // What a tag means is not asked, but only a value may follow.
        while head.major == Major::Tag {
            head = self.head("a value behind a tag")?;
        }
        let items = match (head.major, head.argument) {
            (Major::Bytes | Major::Text, Some(length)) => return self.take(length).map(|_| ()),
            (Major::Bytes | Major::Text, None) => return self.chunks(head.major).map(|_| ()),
            (Major::List | Major::Map, argument) => argument.map_or(Items::UpToBreak, Items::Left),
            (Major::Other, None) => return Err(Malformed::new(start, self.instead(start, "a value"))),
            _ => return Ok(()),
        };
        if depth == MAX_DEPTH {
            return Err(Malformed::new(start, "containers lie too deep in each other"));
        }
        let mut items = items;
        while self.item(&mut items)? {
            self.skip_within(depth + 1)?;
            if head.major == Major::Map {
                self.skip_within(depth + 1)?;
            }
        }
        Ok(())
    }
}

impl Source for Cbor<'_> {
    type Items = Items;

    fn body(&self) -> &[u8] {
        self.body
    }

    fn position(&self) -> usize {
        self.at
    }

    fn is_at_end(&mut self) -> bool {
        self.rest().is_empty()
    }

    #[cold]
    fn expected(&self, expected: &str) -> Malformed {
        Malformed::new(self.at, self.instead(self.at, expected))
    }

    #[inline]
    fn map(&mut self) -> Result<Items, Malformed> {
        self.container(Major::Map, "a map")
    }

    #[inline]
    fn list(&mut self) -> Result<Items, Malformed> {
        self.container(Major::List, "a list")
    }

    #[inline]
    fn item(&mut self, items: &mut Items) -> Result<bool, Malformed> {
        match items {
            Items::Left(0) => Ok(false),
            Items::Left(left) => {
                *left -= 1;
                Ok(true)
            }
            Items::UpToBreak => {
                let ends = self.body.get(self.at) == Some(&BREAK);
                self.at += usize::from(ends);
                Ok(!ends)
            }
        }
    }

    fn field<F: Copy>(&mut self, fields: &[(&str, F)]) -> Result<Option<F>, Malformed> {
        let name = self.string(Major::Text, "a field's name")?;
        Ok(known(fields, decode::utf8(self.body, name)?))
    }

    /// Known by one letter and one comparison, head and name together; anything else goes the long way.
    #[inline]
    fn record_field(&mut self) -> Result<Option<RecordField>, Malformed> {
        let rest = self.rest();
        let (length, field) = match rest.get(1) {
            Some(b'S') if rest.starts_with(b"\x6eSequenceNumber") => (15, RecordField::SequenceNumber),
            Some(b'D') if rest.starts_with(b"\x64Data") => (5, RecordField::Data),
            Some(b'P') if rest.starts_with(b"\x6cPartitionKey") => (13, RecordField::PartitionKey),
            Some(b'E') if rest.starts_with(b"\x6eEncryptionType") => (15, RecordField::EncryptionType),
            // Its length, 27, has a byte of its own.
            Some(0x1b) if rest.starts_with(b"\x78\x1bApproximateArrivalTimestamp") => {
                (29, RecordField::ApproximateArrivalTimestamp)
            }
            _ => return self.field(&RECORD),
        };
        self.at += length;
        Ok(Some(field))
    }

    /// Null, or undefined.
    #[inline]
    fn null(&mut self) -> bool {
        let null = matches!(self.body.get(self.at), Some(0xf6 | 0xf7));
        self.at += usize::from(null);
        null
    }

    #[inline]
    fn text(&mut self) -> Result<Span, Malformed> {
        self.string(Major::Text, "a text")
    }

    #[inline]
    fn data(&mut self) -> Result<Span, Malformed> {
        self.string(Major::Bytes, "a byte string")
    }

    #[inline]
    fn time(&mut self) -> Result<u64, Malformed> {
        self.timestamp()
    }

    fn integer(&mut self) -> Result<i64, Malformed> {
        let start = self.at;
        let number = match self.head("a whole number")? {
            Head { major: Major::Unsigned, argument: Some(number) } => i64::try_from(number).ok(),
            Head { major: Major::Negative, argument: Some(number) } => i64::try_from(number).ok().map(|number| !number),
            _ => return Err(Malformed::new(start, self.instead(start, "a whole number"))),
        };
        number.ok_or_else(|| Malformed::new(start, "a whole number of 64 bits is expected, and this one is larger"))
    }

    /// Recursion is bounded by the depth.
    fn skip(&mut self, depth: u32) -> Result<(), Malformed> {
        self.skip_within(depth)
    }
}
