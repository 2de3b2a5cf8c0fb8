//! The bytes of the input on their way to who takes them apart, and records on their way from there.

use std::cell::RefCell;
use std::io::{self, Read};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use memchr::memchr;
use shardmill_record::UserRecord;
use tokio::sync::mpsc;

use super::parse::Bad;

/// A line or a row that is longer is not kept in memory: no record is as large as half of it.
pub(super) const LONGEST: u64 = 32 << 20;

/// A record of the input, or what it is instead.
#[derive(Debug)]
pub(in crate::cli) struct Item {
    /// Where it is.
    pub(in crate::cli) place: Place,
    pub(in crate::cli) record: Result<UserRecord, Bad>,
    /// How many bytes of the input have been read.
    pub(super) read: u64,
}

/// A place in the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::cli) struct Place {
    /// Which file, from 0.
    pub(in crate::cli) file: usize,
    /// From 1.
    pub(in crate::cli) line: u64,
}

/// What was read and is not handed on yet. It is handed on before more is waited for: a record does not wait for the next one
/// of a slow input.
#[derive(Debug)]
pub(super) struct Outlet<E> {
    items: Vec<Item>,
    out: mpsc::Sender<Result<Vec<Item>, E>>,
    read: u64,
    /// Since the last record.
    pending: u64,
    gate: Arc<Gate>,
}

/// Between who reads, on a thread of its own, and who takes what was read.
#[derive(Debug, Default)]
pub(super) struct Gate {
    is_shut: AtomicBool,
    is_waiting: AtomicBool,
}

/// An input that hands on what was made of it before it reads more.
#[derive(Debug)]
pub(super) struct Source<R, E> {
    input: R,
    outlet: Rc<RefCell<Outlet<E>>>,
}

/// A line, without its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    Whole,
    TooLong,
}

// === impl Gate ===

impl Gate {
    /// Nothing more is to be read.
    pub(super) fn shut(&self) {
        self.is_shut.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_shut(&self) -> bool {
        self.is_shut.load(Ordering::SeqCst)
    }

    /// Whether everything that has been read is handed on, and more is waited for.
    pub(super) fn is_waiting(&self) -> bool {
        self.is_waiting.load(Ordering::SeqCst)
    }

    fn wait(&self, is_waiting: bool) {
        self.is_waiting.store(is_waiting, Ordering::SeqCst);
    }
}

// === impl Outlet ===

impl<E> Outlet<E> {
    pub(super) fn new(out: mpsc::Sender<Result<Vec<Item>, E>>, gate: Arc<Gate>) -> Self {
        Self { items: Vec::new(), out, read: 0, pending: 0, gate }
    }

    pub(super) fn push(&mut self, place: Place, record: Result<UserRecord, Bad>) {
        self.pending = 0;
        self.items.push(Item { place, record, read: self.read });
    }

    /// Hands on what there is; an error if nobody wants it any more.
    pub(super) fn hand_on(&mut self) -> io::Result<()> {
        if self.items.is_empty() {
            return Ok(());
        }
        self.out.blocking_send(Ok(std::mem::take(&mut self.items))).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    /// How many bytes have been read since the last record.
    pub(super) fn pending(&self) -> u64 {
        self.pending
    }
}

// === impl Source ===

impl<R, E> Source<R, E> {
    pub(super) fn new(input: R, outlet: Rc<RefCell<Outlet<E>>>) -> Self {
        Self { input, outlet }
    }
}

impl<R: Read, E> Read for Source<R, E> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut outlet = self.outlet.borrow_mut();
        outlet.hand_on()?;
        if outlet.gate.is_shut() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        outlet.gate.wait(true);
        let read = self.input.read(buffer);
        outlet.gate.wait(false);
        let read = read?;
        outlet.read += read as u64;
        outlet.pending += read as u64;
        Ok(read)
    }
}

/// Reads a line into `line`, which is empty; `None` at the end. One that is too long is read over.
pub(super) fn read_line(input: &mut impl io::BufRead, line: &mut Vec<u8>, longest: u64) -> io::Result<Option<Line>> {
    let mut length: u64 = 0;
    loop {
        let found = match input.fill_buf() {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if found.is_empty() && length == 0 {
            return Ok(None);
        }
        let end = memchr(b'\n', found);
        let part = &found[..end.unwrap_or(found.len())];
        length += part.len() as u64;
        if length <= longest {
            line.extend_from_slice(part);
        } else {
            line.clear();
        }
        let is_whole = end.is_some() || found.is_empty();
        let used = part.len() + usize::from(end.is_some());
        input.consume(used);
        if is_whole {
            return Ok(Some(if length <= longest { Line::Whole } else { Line::TooLong }));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines(input: &[u8], buffer: usize, longest: u64) -> Vec<Option<Vec<u8>>> {
        let mut input = io::BufReader::with_capacity(buffer, input);
        let mut lines = Vec::new();
        let mut line = Vec::new();
        while let Some(read) = read_line(&mut input, &mut line, longest).unwrap() {
            let line = std::mem::take(&mut line);
            lines.push((read == Line::Whole).then_some(line));
        }
        lines
    }

    #[test]
    fn lines_are_read_whatever_their_length_and_the_last_one_needs_no_end() {
        let text = |text: &str| Some(text.as_bytes().to_vec());
        assert_eq!(lines(b"a\n\nbc", 2, 10), [text("a"), text(""), text("bc")]);
        assert_eq!(lines(b"a\n", 1, 10), [text("a")]);
        assert_eq!(lines(b"abcd\nef\nabcdef", 3, 3), [None, text("ef"), None]);
        assert!(lines(b"", 3, 3).is_empty());
    }

    #[test]
    fn what_was_made_is_handed_on_before_more_is_read() {
        /// Gives a byte at a time, and looks at what has come out before each.
        struct Slow {
            out: mpsc::Receiver<Result<Vec<Item>, ()>>,
            seen: Rc<RefCell<Vec<usize>>>,
        }
        impl Read for Slow {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let came = self.out.try_recv().map_or(0, |items| items.unwrap().len());
                self.seen.borrow_mut().push(came);
                buffer[0] = b'x';
                Ok(1)
            }
        }
        let (out, received) = mpsc::channel(8);
        let seen = Rc::new(RefCell::new(Vec::new()));
        let outlet = Rc::new(RefCell::new(Outlet::new(out, Arc::default())));
        let mut source = Source::new(Slow { out: received, seen: Rc::clone(&seen) }, Rc::clone(&outlet));
        let mut byte = [0];
        for records in [0, 2, 1] {
            for line in 0..records {
                outlet.borrow_mut().push(Place { file: 0, line }, Err(Bad::TooLong));
            }
            source.read_exact(&mut byte).unwrap();
        }
        assert_eq!(*seen.borrow(), [0, 2, 1]);
        drop(source);
        outlet.borrow_mut().push(Place { file: 0, line: 1 }, Err(Bad::TooLong));
        assert_eq!(outlet.borrow_mut().hand_on().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    proptest! {
        #[test]
        fn lines_are_what_a_split_at_their_ends_gives(
            input in prop::collection::vec(prop::sample::select(b"ab\n".to_vec()), 0..60),
            buffer in 1..9_usize,
            longest in 0..9_u64,
        ) {
            let mut expected: Vec<Option<Vec<u8>>> = input
                .split(|byte| *byte == b'\n')
                .map(|line| (line.len() as u64 <= longest).then(|| line.to_vec()))
                .collect();
            if input.is_empty() || input.ends_with(b"\n") {
                expected.pop();
            }
            prop_assert_eq!(lines(&input, buffer, longest), expected);
        }
    }
}
