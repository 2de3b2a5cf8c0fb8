//! Rows of CSV, with the lines on which they begin.

use std::cell::RefCell;
use std::io::{self, Read};

use csv::ByteRecord;

use super::columns::{Columns, WrongColumns};
use super::parse::Bad;
use super::quotes::Quotes;
use super::read::{BUFFER, BYTE_ORDER_MARK, Error, Rules};
use super::source::{LONGEST, Outlet, Place, Source};
use super::starts::Starts;

pub(super) fn rows(
    source: Source<impl Read, Error>,
    name: &str,
    file: usize,
    rules: &Rules,
    outlet: &RefCell<Outlet<Error>>,
) -> Result<(), Error> {
    let place = |line| Place { file, line };
    let wrong = |wrong| Error::Columns { name: name.to_owned(), place: place(1), wrong };
    let seen = RefCell::new(Seen::new(rules));
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .delimiter(rules.delimiter)
        .quoting(rules.has_quotes)
        .buffer_capacity(BUFFER)
        .from_reader(Capped { input: source, outlet, seen: &seen });
    let failed = |error: csv::Error, line: u64| match error.into_kind() {
        csv::ErrorKind::Io(error) if error.kind() == io::ErrorKind::FileTooLarge => {
            Error::TooLong { name: name.to_owned(), place: place(line) }
        }
        csv::ErrorKind::Io(source) => Error::Io { name: name.to_owned(), place: place(line), source },
        other => {
            let source = io::Error::other(format!("{other:?}"));
            Error::Io { name: name.to_owned(), place: place(line), source }
        }
    };
    let mut row = ByteRecord::new();
    let mut columns = match rules.has_header {
        true => None,
        false => Some(Columns::without_header(&rules.key).map_err(wrong)?),
    };
    loop {
        let begin = reader.position().byte();
        seen.borrow_mut().begin(begin);
        let read = reader.read_byte_record(&mut row);
        let mut seen = seen.borrow_mut();
        let line = seen.starts.line();
        match read {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(error) => return Err(failed(error, line)),
        }
        let end = reader.position().byte();
        match (&columns, seen.mistake(end)) {
            (None, Some(bad)) => return Err(wrong(WrongColumns::Quotes(bad.to_string()))),
            (Some(_), Some(bad)) => outlet.borrow_mut().push(place(line), Err(bad)),
            (None, None) => columns = Some(Columns::of_header(&row, &rules.key).map_err(wrong)?),
            (Some(columns), None) => {
                let record = columns.record(&row, seen.row(begin, end), &rules.key);
                outlet.borrow_mut().push(place(line), record);
            }
        }
    }
}

/// What is known of the bytes that a parser is given, besides the rows that it makes of them.
struct Seen {
    starts: Starts,
    quotes: Option<Quotes>,
    /// What belongs to the row that is being read, if anybody wants it, and where that begins.
    kept: Option<Vec<u8>>,
    kept_from: u64,
    row: u64,
    is_over: bool,
}

// === impl Seen ===

impl Seen {
    fn new(rules: &Rules) -> Self {
        Self {
            starts: Starts::new(),
            quotes: rules.has_quotes.then(|| Quotes::new(rules.delimiter)),
            kept: (!rules.has_header).then(Vec::new),
            kept_from: 0,
            row: 0,
            is_over: false,
        }
    }

    /// The next row begins there or later.
    fn begin(&mut self, byte: u64) {
        self.starts.begin(byte);
        self.row = byte;
    }

    fn read(&mut self, bytes: &[u8]) {
        self.is_over = bytes.is_empty();
        self.starts.read(bytes);
        if let Some(quotes) = &mut self.quotes {
            quotes.read(bytes);
        }
        if let Some(kept) = &mut self.kept {
            let done = usize::try_from(self.row - self.kept_from).unwrap_or(usize::MAX).min(kept.len());
            kept.drain(..done);
            self.kept_from += done as u64;
            kept.extend_from_slice(bytes);
        }
    }

    /// What is wrong with a row that ends in front of this byte, though it can be read.
    fn mistake(&mut self, end: u64) -> Option<Bad> {
        let quotes = self.quotes.as_mut()?;
        // Behind the last byte there is nothing that could close it.
        let open = quotes.open().filter(|_| self.is_over).map(Bad::Open);
        open.or_else(|| quotes.take_suspect(end).map(Bad::Suspect))
    }

    /// The row between these bytes as it was read, without what is before it and without its end.
    fn row(&self, begin: u64, end: u64) -> &[u8] {
        let kept = self.kept.as_deref().unwrap_or_default();
        let index = |byte: u64| usize::try_from(byte - self.kept_from).unwrap_or(usize::MAX).min(kept.len());
        let mut row = &kept[index(begin)..index(end)];
        if begin == 0 {
            row = row.strip_prefix(BYTE_ORDER_MARK).unwrap_or(row);
        }
        let is_end = |byte: &u8| matches!(byte, b'\n' | b'\r');
        let from = row.iter().position(|byte| !is_end(byte)).unwrap_or(row.len());
        let row = &row[from..];
        let row = row.strip_suffix(b"\n").unwrap_or(row);
        row.strip_suffix(b"\r").unwrap_or(row)
    }
}

/// Ends where a row does not: a quote that is not closed makes one row of all that follows.
struct Capped<'a, R> {
    input: R,
    outlet: &'a RefCell<Outlet<Error>>,
    seen: &'a RefCell<Seen>,
}

impl<R: Read> Read for Capped<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.outlet.borrow().pending() > LONGEST {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let read = self.input.read(buffer)?;
        self.seen.borrow_mut().read(&buffer[..read]);
        Ok(read)
    }
}
