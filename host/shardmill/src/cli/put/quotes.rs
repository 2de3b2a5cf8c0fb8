//! Quotes in CSV: where one is open, and where one is closed in the middle of something.
//!
//! A parser takes both as they come. Behind a quote that somebody has forgotten to close, all rows up to the next quote are
//! one field; who sees a row that is wrong in such a way has to say so.

use std::collections::VecDeque;

use super::read::BYTE_ORDER_MARK;

/// Follows the quotes of what is read.
#[derive(Debug)]
pub(super) struct Quotes {
    delimiter: u8,
    state: State,
    /// How many bytes have been read.
    read: u64,
    line: u64,
    /// The line on which the last quote was opened.
    opened: u64,
    /// Fields of several lines whose quote is closed in front of more text: in front of which byte, and the line on which
    /// the quote was opened.
    suspects: VecDeque<(u64, u64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// A field begins.
    Start,
    /// In a field without quotes, or behind those of one.
    Plain,
    Quoted,
    /// Behind a quote that closes the field, or is the first of two that stand for one.
    Closing,
}

// === impl Quotes ===

impl Quotes {
    pub(super) fn new(delimiter: u8) -> Self {
        Self { delimiter, state: State::Start, read: 0, line: 1, opened: 0, suspects: VecDeque::new() }
    }

    pub(super) fn read(&mut self, bytes: &[u8]) {
        let mark = if self.read == 0 && bytes.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
        self.read += mark as u64;
        for byte in &bytes[mark..] {
            let is_end = matches!(byte, b'\n' | b'\r');
            self.state = match (self.state, byte) {
                (State::Start, b'"') => {
                    self.opened = self.line;
                    State::Quoted
                }
                (State::Quoted, b'"') => State::Closing,
                (State::Quoted, _) | (State::Closing, b'"') => State::Quoted,
                _other if is_end || *byte == self.delimiter => State::Start,
                (State::Closing, _) => {
                    if self.opened < self.line {
                        self.suspects.push_back((self.read, self.opened));
                    }
                    State::Plain
                }
                (State::Start | State::Plain, _) => State::Plain,
            };
            self.line += u64::from(*byte == b'\n');
            self.read += 1;
        }
    }

    /// Where everything has been read: on which line a quote was opened that is not closed.
    pub(super) fn open(&self) -> Option<u64> {
        (self.state == State::Quoted).then_some(self.opened)
    }

    /// Whether a row that ends in front of this byte has a field of several lines with more behind its quotes, and on which
    /// line that begins. Rows are asked for in their order.
    pub(super) fn take_suspect(&mut self, end: u64) -> Option<u64> {
        let mut found = None;
        while let Some((_, opened)) = self.suspects.pop_front_if(|(at, _)| *at < end) {
            found = found.or(Some(opened));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn quotes(text: &[u8]) -> Quotes {
        let mut quotes = Quotes::new(b',');
        quotes.read(text);
        quotes
    }

    #[test]
    fn a_quote_is_open_where_nothing_closes_it() {
        for (text, open) in [
            ("k,v\na,1\nb,\"2\nc,3\nd,4\n", Some(3)),
            ("\"a\"\"\nb", Some(1)),
            ("\u{feff}\"a", Some(1)),
            ("\"a\"", None),
            ("\"a\"\"\"\n", None),
            ("a\"b\n", None),
            ("", None),
        ] {
            assert_eq!(quotes(text.as_bytes()).open(), open, "{text:?}");
        }
    }

    #[test]
    fn a_field_of_lines_with_more_behind_its_quotes_is_suspect() {
        let mut found = quotes(b"a,\"x\nb,\"y\nc,\"z\"\n");
        assert_eq!((found.take_suspect(10), found.take_suspect(11)), (Some(1), None));
        assert_eq!(quotes(b"a,\"x\" y\nb,\"x\ny\"\n").take_suspect(100), None, "in one line it is one row's business");
    }

    fn rows(text: &[u8]) -> usize {
        let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text);
        reader.byte_records().count()
    }

    proptest! {
        /// Where a quote is open another row makes the last one longer, else there is one more.
        #[test]
        fn a_quote_is_open_where_a_parser_has_one_open(
            text in prop::collection::vec(prop::sample::select(b"a\",\n\r".to_vec()), 0..16),
            at_once in 1..5_usize,
        ) {
            let mut quotes = Quotes::new(b',');
            text.chunks(at_once).for_each(|part| quotes.read(part));
            let longer = [&text[..], b"\nx"].concat();
            prop_assert_eq!(quotes.open().is_some(), rows(&longer) == rows(&text), "{:?}", String::from_utf8_lossy(&text));
        }
    }
}
