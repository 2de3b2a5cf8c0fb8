//! Passing over what nobody asked for. Its grammar is checked all the same, as the SDK does, so that an unknown field
//! cannot hide where it ends.

use memchr::memchr2;

use super::super::walk::Source;
use super::super::{MAX_DEPTH, Malformed};
use super::{Items, Json};

// === impl Json ===

impl Json<'_> {
    /// Passes one value that lies in `depth` containers. No recursion: what is open is a bit each.
    pub(super) fn skip_value(&mut self, depth: u32) -> Result<(), Malformed> {
        // The innermost container is the lowest bit; 1 for an object.
        let mut open: u128 = 0;
        let mut opened = 0;
        loop {
            let mut first = false;
            match self.token() {
                Some(bracket @ (b'{' | b'[')) => {
                    if depth + opened == MAX_DEPTH {
                        return Err(Malformed::new(self.at, "containers lie too deep in each other"));
                    }
                    self.at += 1;
                    open = (open << 1) | u128::from(bracket == b'{');
                    opened += 1;
                    first = true;
                }
                _ => self.skip_scalar()?,
            }
            // To the next value, out of the containers that end here.
            loop {
                if opened == 0 {
                    return Ok(());
                }
                let object = open & 1 == 1;
                if self.item(&mut Items { close: if object { b'}' } else { b']' }, first })? {
                    if object {
                        self.skip_name()?;
                    }
                    break;
                }
                open >>= 1;
                opened -= 1;
                first = false;
            }
        }
    }

    fn skip_scalar(&mut self) -> Result<(), Malformed> {
        match self.token() {
            Some(b'"') => self.skip_string(),
            Some(b't') => self.skip_literal(b"true"),
            Some(b'f') => self.skip_literal(b"false"),
            Some(b'n') => self.skip_literal(b"null"),
            Some(b'-' | b'0'..=b'9') => self.skip_number(),
            _ => Err(self.expected("a value")),
        }
    }

    fn skip_name(&mut self) -> Result<(), Malformed> {
        if self.token() != Some(b'"') {
            return Err(self.expected("a field's name in quotes"));
        }
        self.skip_string()?;
        self.colon()
    }

    /// Escapes must be ones that exist; whether they are characters is not asked.
    fn skip_string(&mut self) -> Result<(), Malformed> {
        let start = self.at;
        self.at += 1;
        loop {
            let rest = self.rest();
            let Some(run) = memchr2(b'"', b'\\', rest) else {
                return Err(Malformed::new(start, "the string that begins here has no end"));
            };
            if rest[run] == b'"' {
                self.at += run + 1;
                return Ok(());
            }
            let hexadecimal = |digits: &[u8]| digits.iter().all(u8::is_ascii_hexdigit);
            let length = match rest.get(run + 1) {
                Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => 2,
                Some(b'u') if rest.get(run + 2..run + 6).is_some_and(hexadecimal) => 6,
                _ => return Err(Malformed::new(self.at + run, "there is no such escape in JSON")),
            };
            self.at += run + length;
        }
    }

    fn skip_literal(&mut self, literal: &[u8]) -> Result<(), Malformed> {
        if !self.rest().starts_with(literal) {
            return Err(self.expected("a value"));
        }
        self.at += literal.len();
        Ok(())
    }

    fn skip_number(&mut self) -> Result<(), Malformed> {
        let rest = self.rest();
        let digits = |from: usize| rest[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let mut length = usize::from(rest.first() == Some(&b'-'));
        let mut whole = digits(length);
        if rest.get(length) == Some(&b'0') {
            whole = 1;
        }
        let mut complete = whole > 0;
        length += whole;
        if rest.get(length) == Some(&b'.') {
            let fraction = digits(length + 1);
            complete &= fraction > 0;
            length += 1 + fraction;
        }
        if matches!(rest.get(length), Some(b'e' | b'E')) {
            length += 1 + usize::from(matches!(rest.get(length + 1), Some(b'+' | b'-')));
            let exponent = digits(length);
            complete &= exponent > 0;
            length += exponent;
        }
        if !complete {
            return Err(Malformed::new(self.at, "this number is not complete"));
        }
        self.at += length;
        Ok(())
    }
}
