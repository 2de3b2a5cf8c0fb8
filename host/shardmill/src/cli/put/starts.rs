//! On which lines of a file its rows begin.

use std::collections::VecDeque;

/// Where lines with something in them begin, as far as that is needed for the row that is being read: what a parser counts
/// itself is one too few behind a `\r\n`.
#[derive(Debug)]
pub(super) struct Starts {
    /// Each its place in bytes and its number, from 1.
    lines: VecDeque<(u64, u64)>,
    /// Where the row that is being read begins, or the empty lines before it.
    row: u64,
    read: u64,
    line: u64,
    /// Whether nothing but ends of lines has come since the last one began.
    is_empty: bool,
}

// === impl Starts ===

impl Starts {
    pub(super) fn new() -> Self {
        Self { lines: VecDeque::new(), row: 0, read: 0, line: 1, is_empty: true }
    }

    /// The next row begins there or later.
    pub(super) fn begin(&mut self, byte: u64) {
        self.row = byte;
        while self.lines.front().is_some_and(|(start, _)| *start < byte) {
            self.lines.pop_front();
        }
    }

    /// The line on which that row begins.
    pub(super) fn line(&self) -> u64 {
        self.lines.front().map_or(self.line, |(_, line)| *line)
    }

    /// More is read; what came before belongs to the row that is being read, whose own beginning alone is kept.
    pub(super) fn read(&mut self, bytes: &[u8]) {
        self.lines.truncate(1);
        for byte in bytes {
            match byte {
                b'\n' => {
                    self.line += 1;
                    self.is_empty = true;
                }
                b'\r' => self.is_empty = true,
                _content if self.is_empty => {
                    self.lines.push_back((self.read, self.line));
                    self.is_empty = false;
                }
                _content => {}
            }
            self.read += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::io::{self, Read};
    use std::rc::Rc;

    use proptest::prelude::*;

    use super::*;

    /// Hands on a few bytes at a time.
    struct Slow<'a>(&'a [u8], usize, Rc<RefCell<Starts>>);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let most = self.1.min(buffer.len());
            let read = self.0.read(&mut buffer[..most])?;
            self.2.borrow_mut().read(&buffer[..read]);
            Ok(read)
        }
    }

    proptest! {
        /// Each row names the line on which it begins, in quotes where it has more than one.
        #[test]
        fn rows_are_found_where_they_begin(
            rows in prop::collection::vec((0..3_usize, 0..3_usize, any::<bool>()), 0..20),
            at_once in 1..9_usize,
        ) {
            let (mut text, mut line, mut expected) = (String::new(), 1, Vec::new());
            for (empty_before, more_lines, is_crlf) in rows {
                let end = if is_crlf { "\r\n" } else { "\n" };
                text += &end.repeat(empty_before);
                line += empty_before;
                text += &format!("\"{line}{}\",x{end}", end.repeat(more_lines));
                expected.push(line as u64);
                line += more_lines + 1;
            }
            let starts = Rc::new(RefCell::new(Starts::new()));
            let slow = Slow(text.as_bytes(), at_once, Rc::clone(&starts));
            let mut reader = csv::ReaderBuilder::new().has_headers(false).buffer_capacity(7).from_reader(slow);
            let mut row = csv::StringRecord::new();
            let mut found = Vec::new();
            loop {
                starts.borrow_mut().begin(reader.position().byte());
                if !reader.read_record(&mut row).unwrap() {
                    break;
                }
                prop_assert_eq!(row[0].trim_end(), starts.borrow().line().to_string(), "{:?}", text);
                found.push(starts.borrow().line());
            }
            prop_assert_eq!(found, expected);
        }
    }
}
