//! JSON, read in place: escapes and base64 are undone where they stand.

mod number;
mod skip;

use memchr::memchr2;
use shardmill_record::Span;

use super::Malformed;
use super::walk::{RECORD, RecordField, Source, known};
use crate::polling::decode;

/// Where a reader stands in an answer in JSON.
#[derive(Debug)]
pub(super) struct Json<'a> {
    body: &'a mut [u8],
    at: usize,
}

/// A place in an object or a list.
#[derive(Debug)]
pub(super) struct Items {
    close: u8,
    first: bool,
}

// === impl Json ===

impl<'a> Json<'a> {
    /// At the beginning of a body of less than 4 GiB: spans have 32 bits.
    pub(super) fn new(body: &'a mut [u8]) -> Self {
        Self { body, at: 0 }
    }

    #[inline]
    fn rest(&self) -> &[u8] {
        &self.body[self.at..]
    }

    /// The next byte behind white space.
    #[inline]
    fn token(&mut self) -> Option<u8> {
        loop {
            match self.body.get(self.at) {
                Some(b' ' | b'\t' | b'\n' | b'\r') => self.at += 1,
                other => return other.copied(),
            }
        }
    }

    #[inline]
    fn open(&mut self, bracket: u8, close: u8, what: &str) -> Result<Items, Malformed> {
        if self.token() != Some(bracket) {
            return Err(self.expected(what));
        }
        self.at += 1;
        Ok(Items { close, first: true })
    }

    /// The colon behind a field's name, and the white space around it.
    #[inline]
    fn colon(&mut self) -> Result<(), Malformed> {
        if self.token() != Some(b':') {
            return Err(self.expected("a colon behind a field's name"));
        }
        self.at += 1;
        self.token();
        Ok(())
    }

    #[cold]
    fn pass_null(&mut self) -> bool {
        let rest = self.rest();
        let null = rest.starts_with(b"null") && !rest.get(4).is_some_and(u8::is_ascii_alphanumeric);
        if null {
            self.at += 4;
        }
        null
    }

    #[cold]
    fn unterminated(&self, start: usize) -> Malformed {
        Malformed::new(start, "the string that begins here has no end")
    }

    /// The rest of a string that begins at `start` and whose first escape is known: what follows an escape moves
    /// forward to where the escape was.
    #[cold]
    #[inline(never)]
    fn escaped(&mut self, start: usize, first: usize) -> Result<Span, Malformed> {
        let (mut read, mut write) = (first, first);
        while self.body[read] == b'\\' {
            let (character, length) = self.escape(read)?;
            write += character.encode_utf8(&mut self.body[write..]).len();
            read += length;
            let Some(run) = memchr2(b'"', b'\\', &self.body[read..]) else { return Err(self.unterminated(start)) };
            self.body.copy_within(read..read + run, write);
            write += run;
            read += run;
        }
        self.at = read + 1;
        Ok(span(start, write - start))
    }

    /// What an escape stands for, and its length. No character is longer in UTF-8 than its escape.
    fn escape(&self, at: usize) -> Result<(char, usize), Malformed> {
        let simple = match self.body.get(at + 1) {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(at),
            _ => return Err(Malformed::new(at, "there is no such escape in JSON")),
        };
        Ok((simple, 2))
    }

    fn unicode_escape(&self, at: usize) -> Result<(char, usize), Malformed> {
        let unit = |at: usize| {
            let digits = self.body.get(at..at + 6)?.strip_prefix(b"\\u")?;
            // Ahead of parsing, which takes a sign.
            if !digits.iter().all(u8::is_ascii_hexdigit) {
                return None;
            }
            u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
        };
        let Some(high) = unit(at) else {
            return Err(Malformed::new(at, "four hexadecimal digits are expected behind `\\u`"));
        };
        if !(0xD800..0xDC00).contains(&high) {
            let lone = || Malformed::new(at, "the second half of a surrogate pair has no first one");
            return char::from_u32(high).map(|character| (character, 6)).ok_or_else(lone);
        }
        let Some(low) = unit(at + 6).filter(|low| (0xDC00..0xE000).contains(low)) else {
            return Err(Malformed::new(at, "the first half of a surrogate pair has no second one"));
        };
        let point = 0x1_0000 + ((high - 0xD800) << 10) + (low - 0xDC00);
        Ok((char::from_u32(point).expect("a surrogate pair names a character"), 12))
    }
}

impl Source for Json<'_> {
    type Items = Items;

    fn body(&self) -> &[u8] {
        self.body
    }

    fn position(&self) -> usize {
        self.at
    }

    fn is_at_end(&mut self) -> bool {
        self.token().is_none()
    }

    #[cold]
    fn expected(&self, expected: &str) -> Malformed {
        Malformed::expected(self.body, self.at, expected)
    }

    #[inline]
    fn map(&mut self) -> Result<Items, Malformed> {
        self.open(b'{', b'}', "an object")
    }

    #[inline]
    fn list(&mut self) -> Result<Items, Malformed> {
        self.open(b'[', b']', "a list")
    }

    #[inline]
    fn item(&mut self, items: &mut Items) -> Result<bool, Malformed> {
        let mut token = self.token();
        if token == Some(items.close) {
            self.at += 1;
            return Ok(false);
        }
        if !std::mem::take(&mut items.first) {
            if token != Some(b',') {
                return Err(self.expected("a comma or the end of the object or list"));
            }
            self.at += 1;
            token = self.token();
            if token == Some(items.close) {
                return Err(self.expected("another element behind the comma"));
            }
        }
        match token {
            Some(_) => Ok(true),
            None if items.close == b'}' => Err(self.expected("a field's name or the object's end")),
            None => Err(self.expected("a list's element or its end")),
        }
    }

    fn field<F: Copy>(&mut self, fields: &[(&str, F)]) -> Result<Option<F>, Malformed> {
        if self.token() != Some(b'"') {
            return Err(self.expected("a field's name in quotes"));
        }
        let name = self.text()?;
        let field = known(fields, decode::utf8(self.body, name)?);
        self.colon()?;
        Ok(field)
    }

    /// Known by the first letter and one comparison, which is a few instructions; anything else goes the long way.
    #[inline]
    fn record_field(&mut self) -> Result<Option<RecordField>, Malformed> {
        let rest = self.rest();
        let (name, field): (&[u8], _) = match rest.get(1) {
            Some(b'S') if rest.starts_with(b"\"SequenceNumber\"") => (b"SequenceNumber", RecordField::SequenceNumber),
            Some(b'D') if rest.starts_with(b"\"Data\"") => (b"Data", RecordField::Data),
            Some(b'P') if rest.starts_with(b"\"PartitionKey\"") => (b"PartitionKey", RecordField::PartitionKey),
            Some(b'A') if rest.starts_with(b"\"ApproximateArrivalTimestamp\"") => {
                (b"ApproximateArrivalTimestamp", RecordField::ApproximateArrivalTimestamp)
            }
            Some(b'E') if rest.starts_with(b"\"EncryptionType\"") => (b"EncryptionType", RecordField::EncryptionType),
            _ => return self.field(&RECORD),
        };
        self.at += name.len() + 2;
        self.colon()?;
        Ok(Some(field))
    }

    #[inline]
    fn null(&mut self) -> bool {
        self.body.get(self.at) == Some(&b'n') && self.pass_null()
    }

    #[inline]
    fn text(&mut self) -> Result<Span, Malformed> {
        if self.token() != Some(b'"') {
            return Err(self.expected("a string"));
        }
        let start = self.at + 1;
        match memchr2(b'"', b'\\', &self.body[start..]) {
            Some(length) if self.body[start + length] == b'"' => {
                self.at = start + length + 1;
                Ok(span(start, length))
            }
            Some(length) => self.escaped(start, start + length),
            None => Err(self.unterminated(self.at)),
        }
    }

    #[inline]
    fn data(&mut self) -> Result<Span, Malformed> {
        let text = self.text()?;
        let (start, length) = (text.start as usize, text.length as usize);
        match base64_simd::STANDARD.decode_inplace(&mut self.body[start..start + length]) {
            Ok(data) => Ok(span(start, data.len())),
            Err(_) => Err(Malformed::new(start, "`Data` is not base64")),
        }
    }

    #[inline]
    fn time(&mut self) -> Result<u64, Malformed> {
        self.timestamp()
    }

    fn integer(&mut self) -> Result<i64, Malformed> {
        self.whole_number()
    }

    fn skip(&mut self, depth: u32) -> Result<(), Malformed> {
        self.skip_value(depth)
    }
}

#[inline]
fn span(start: usize, length: usize) -> Span {
    Span { start: start as u32, length: length as u32 }
}
