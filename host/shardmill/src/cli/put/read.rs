//! Reads the input, on a thread of its own, because reading waits.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::{self, error::TryRecvError};
use tokio::time::sleep;

use super::columns::WrongColumns;
use super::parse::{self, Bad, Format, Key};
use super::rows::rows;
use super::source::{Gate, Item, LONGEST, Line, Outlet, Place, Source, read_line};

/// What is read at a time, and handed on.
pub(super) const BUFFER: usize = 64 << 10;
/// So many hand-overs wait to be taken.
const WAITING: usize = 4;
/// How often it is looked whether the reader has come to its end.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// What some programs put before a text.
pub(super) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// How to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) struct Rules {
    pub(in crate::cli) format: Format,
    pub(in crate::cli) key: Key,
    pub(in crate::cli) has_header: bool,
    pub(in crate::cli) delimiter: u8,
    pub(in crate::cli) has_quotes: bool,
}

/// The input, whose files are there. Each is opened when its turn comes: there may be more of them than a process may have
/// open.
#[derive(Debug)]
pub(in crate::cli) struct Input {
    files: Vec<Named>,
}

#[derive(Debug)]
struct Named {
    /// In messages.
    name: String,
    /// `None` for standard input.
    path: Option<PathBuf>,
    bytes: Option<u64>,
    /// The device and the number of a file that keeps what is written to it.
    id: Option<(u64, u64)>,
}

/// An input that is being read.
#[derive(Debug)]
pub(in crate::cli) struct Reading {
    received: mpsc::Receiver<Result<Vec<Item>, Error>>,
    gate: Arc<Gate>,
}

/// Why nothing more can be read.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum Error {
    #[error("{name} cannot be read")]
    Io { name: String, place: Place, source: io::Error },
    #[error("{name}: {wrong}")]
    Columns { name: String, place: Place, wrong: WrongColumns },
    #[error("{name}, line {}: a row of more than {} MiB begins here: is a quote not closed?", .place.line, LONGEST >> 20)]
    TooLong { name: String, place: Place },
}

// === impl Error ===

impl Error {
    /// Where what is not read begins.
    pub(super) fn place(&self) -> Place {
        match self {
            Self::Io { place, .. } | Self::Columns { place, .. } | Self::TooLong { place, .. } => *place,
        }
    }
}

// === impl Input ===

impl Input {
    /// Looks at files; `-`, and no file at all, stand for standard input.
    pub(in crate::cli) fn open(files: &[PathBuf]) -> Result<Self, Error> {
        if files.is_empty() {
            return Ok(Self { files: vec![Named::standard()] });
        }
        let open = |(file, path): (usize, &PathBuf)| {
            if path == Path::new("-") {
                return Ok(Named::standard());
            }
            let name = path.display().to_string();
            let place = Place { file, line: 1 };
            Named::of(name.clone(), path).map_err(|source| Error::Io { name, place, source })
        };
        Ok(Self { files: files.iter().enumerate().map(open).collect::<Result<_, _>>()? })
    }

    /// What each file is called, in messages.
    pub(in crate::cli) fn names(&self) -> Vec<String> {
        self.files.iter().map(|file| file.name.clone()).collect()
    }

    /// How many bytes there are, if that is known.
    pub(super) fn bytes(&self) -> Option<u64> {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// What this file of the input is called, if it is one.
    pub(super) fn name_of(&self, file: &fs::Metadata) -> Option<&str> {
        let id = Some((file.dev(), file.ino()));
        self.files.iter().find(|input| input.id == id).map(|input| input.name.as_str())
    }

    /// Reads from now on; what is read comes out, until the end, or one error.
    pub(in crate::cli) fn start(self, rules: Rules) -> io::Result<Reading> {
        let (out, received) = mpsc::channel(WAITING);
        let gate = Arc::new(Gate::default());
        let outlet = Outlet::new(out.clone(), Arc::clone(&gate));
        let read = move || {
            let outlet = Rc::new(RefCell::new(outlet));
            if let Err(error) = self.read(&rules, &outlet) {
                // Nobody may want to know of it any more.
                let _ = outlet.borrow_mut().hand_on();
                let _ = out.blocking_send(Err(error));
            }
        };
        std::thread::Builder::new().name("input".to_owned()).spawn(read)?;
        Ok(Reading { received, gate })
    }

    fn read(self, rules: &Rules, outlet: &Rc<RefCell<Outlet<Error>>>) -> Result<(), Error> {
        for (file, named) in self.files.into_iter().enumerate() {
            let name = named.name.clone();
            let first = Place { file, line: 1 };
            let failed = |source| Error::Io { name: name.clone(), place: first, source };
            let source = Source::new(named.open().map_err(failed)?, Rc::clone(outlet));
            match rules.format {
                Format::Csv => rows(source, &name, file, rules, outlet)?,
                Format::Lines | Format::Jsonl | Format::TailJson => lines(source, &name, file, rules, outlet)?,
            }
            outlet.borrow_mut().hand_on().map_err(failed)?;
        }
        Ok(())
    }
}

// === impl Named ===

impl Named {
    fn standard() -> Self {
        let found = io::stdin().as_fd().try_clone_to_owned().and_then(|stdin| File::from(stdin).metadata());
        let id = found.ok().filter(fs::Metadata::is_file).map(|found| (found.dev(), found.ino()));
        Self { name: "standard input".to_owned(), path: None, bytes: None, id }
    }

    fn of(name: String, path: &Path) -> io::Result<Self> {
        let found = fs::metadata(path)?;
        if found.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        if found.is_file() {
            // Others must not be opened and closed again: who writes into a pipe would see its end.
            File::open(path)?;
        }
        let (bytes, id) = (found.is_file().then_some(found.len()), found.is_file().then(|| (found.dev(), found.ino())));
        Ok(Self { name, path: Some(path.to_owned()), bytes, id })
    }

    fn open(&self) -> io::Result<Box<dyn Read>> {
        Ok(match &self.path {
            Some(path) => Box::new(File::open(path)?),
            None => Box::new(io::stdin()),
        })
    }
}

// === impl Reading ===

impl Reading {
    /// What was read next; `None` at the end.
    pub(in crate::cli) async fn next(&mut self) -> Option<Result<Vec<Item>, Error>> {
        self.received.recv().await
    }

    /// Lets nothing more be read. What has been read, and was not taken, comes out.
    pub(super) async fn stop(&mut self) -> Vec<Item> {
        self.gate.shut();
        let mut rest = Vec::new();
        loop {
            // Before it is looked: what is handed on afterwards was not read before.
            let is_waiting = self.gate.is_waiting();
            match self.received.try_recv() {
                Ok(Ok(items)) => rest.extend(items),
                // Nobody reads any further.
                Ok(Err(_end)) => {}
                Err(TryRecvError::Disconnected) => return rest,
                Err(TryRecvError::Empty) if is_waiting => return rest,
                Err(TryRecvError::Empty) => sleep(LOOK_EVERY).await,
            }
        }
    }
}

fn lines(
    source: Source<impl Read, Error>,
    name: &str,
    file: usize,
    rules: &Rules,
    outlet: &RefCell<Outlet<Error>>,
) -> Result<(), Error> {
    let mut input = BufReader::with_capacity(BUFFER, source);
    let mut text = Vec::new();
    for line in 1.. {
        text.clear();
        let place = Place { file, line };
        let read = read_line(&mut input, &mut text, LONGEST);
        let read = read.map_err(|source| Error::Io { name: name.to_owned(), place, source })?;
        let Some(read) = read else { return Ok(()) };
        let begin = if line == 1 && text.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
        let record = match read {
            Line::Whole => parse::line(&text[begin..], rules.format, &rules.key),
            Line::TooLong => Some(Err(Bad::TooLong)),
        };
        if let Some(record) = record {
            outlet.borrow_mut().push(place, record);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use tempfile::TempDir;

    use super::*;

    fn rules(format: Format, key: Key) -> Rules {
        Rules { format, key, has_header: true, delimiter: b',', has_quotes: true }
    }

    /// Of each record its place, its key and its payload, or what is wrong; then why it ended early, if it did.
    fn all(files: &[&[u8]], rules: Rules) -> (Vec<(usize, u64, String)>, Option<String>) {
        let folder = TempDir::new().unwrap();
        let paths: Vec<PathBuf> = (0..files.len()).map(|index| folder.path().join(format!("{index}.in"))).collect();
        for (path, content) in paths.iter().zip(files) {
            File::create(path).unwrap().write_all(content).unwrap();
        }
        let input = Input::open(&paths).unwrap();
        assert_eq!(input.bytes(), Some(files.iter().map(|content| content.len() as u64).sum()));
        let mut received = input.start(rules).unwrap();
        let (mut found, mut error) = (Vec::new(), None);
        while let Some(items) = received.received.blocking_recv() {
            match items {
                Ok(items) => found.extend(items.into_iter().map(|item| {
                    let said = match item.record {
                        Ok(record) => format!("{}={}", record.partition_key, String::from_utf8_lossy(&record.data)),
                        Err(bad) => bad.to_string(),
                    };
                    (item.place.file, item.place.line, said)
                })),
                Err(failed) => error = Some(shardmill_cause::with_causes(&failed)),
            }
        }
        (found, error)
    }

    fn at(file: usize, line: u64, said: &str) -> (usize, u64, String) {
        (file, line, said.to_owned())
    }

    #[test]
    fn lines_of_files_follow_each_other_with_their_places() {
        let key = Key::Field("/k".into());
        let (found, error) =
            all(&[b"\xef\xbb\xbf{\"k\":1}\r\n\n{\"k\":2}", b"oops\n{\"k\":3}\n"], rules(Format::Jsonl, key));
        assert_eq!(error, None);
        assert_eq!(found[..2], [at(0, 1, "1={\"k\":1}"), at(0, 3, "2={\"k\":2}")]);
        assert!(found[2].2.starts_with("it is not JSON"), "{found:?}");
        assert_eq!(found[3], at(1, 2, "3={\"k\":3}"));
    }

    #[test]
    fn rows_have_the_lines_on_which_they_begin_and_each_file_its_own_header() {
        let key = Key::Column("k".into());
        let files: [&[u8]; 2] = [b"\xef\xbb\xbfk,v\r\na,\"x\ny\"\r\nb,2,3\nc,4\n", b"v,k\n1,d"];
        let (found, error) = all(&files, rules(Format::Csv, key.clone()));
        assert_eq!(error, None);
        assert_eq!(
            found,
            [
                at(0, 2, r#"a={"k":"a","v":"x\ny"}"#),
                at(0, 4, "it has 3 fields where 2 are expected"),
                at(0, 5, r#"c={"k":"c","v":"4"}"#),
                at(1, 2, r#"d={"v":"1","k":"d"}"#),
            ]
        );
        let (found, error) = all(&[b"k,v\na,1\n", b"x,y\n1,2\n"], rules(Format::Csv, key));
        assert_eq!(found, [at(0, 2, r#"a={"k":"a","v":"1"}"#)], "what is good before goes");
        assert!(error.unwrap().contains("1.in: there is no column `k`; the first row names x, y"));
    }

    #[test]
    fn a_quote_that_is_not_closed_is_told_and_does_not_fill_the_memory() {
        let mut file = b"k,v\na,1\nb,\"2\n".to_vec();
        file.resize((LONGEST as usize) * 2, b'x');
        let (found, error) = all(&[&file], rules(Format::Csv, Key::Random));
        assert_eq!(found.len(), 1);
        assert!(error.unwrap().contains("line 3: a row of more than 32 MiB begins here: is a quote not closed?"));
    }

    #[test]
    fn a_line_that_is_too_long_is_told_and_the_next_one_is_read() {
        let mut file = vec![b'x'; LONGEST as usize + 1];
        file.extend_from_slice(b"\nshort\n");
        let (found, error) = all(&[&file], rules(Format::Lines, Key::Fixed("k".into())));
        assert_eq!(error, None);
        assert_eq!(found, [at(0, 1, "it is longer than 32 MiB"), at(0, 2, "k=short")]);
    }

    #[test]
    fn a_quote_that_is_open_at_the_end_makes_no_row_of_all_that_follows() {
        let files: [&[u8]; 2] = [b"k,v\na,1\nb,\"2\nc,3\nd,4\n", b"k,v\ne,5\n"];
        let (found, error) = all(&files, rules(Format::Csv, Key::Column("k".into())));
        assert_eq!(error, None);
        let open = "a quote that was opened on line 3 is not closed, so that all that follows it would be one row";
        let expected = [at(0, 2, r#"a={"k":"a","v":"1"}"#), at(0, 3, open), at(1, 2, r#"e={"k":"e","v":"5"}"#)];
        assert_eq!(found, expected);
        // One that the next one seems to close.
        let (found, _) = all(&[b"k,v\na,\"1\nb,\"2\nc,3\n"], rules(Format::Csv, Key::Column("k".into())));
        assert_eq!((found[0].1, found[0].2.contains("opened on line 2 is closed in front of")), (2, true), "{found:?}");
        assert_eq!(found[1], at(0, 4, r#"c={"k":"c","v":"3"}"#));
        // Where quotes are characters like others.
        let rules = Rules {
            has_quotes: false,
            has_header: false,
            delimiter: b'\t',
            ..rules(Format::Csv, Key::Column("2".into()))
        };
        let (found, _) = all(&[b"\"hello\tx\r\n\n2\ty\n3\tz"], rules);
        assert_eq!(found, [at(0, 1, "x=\"hello\tx"), at(0, 3, "y=2\ty"), at(0, 4, "z=3\tz")]);
    }

    #[test]
    fn without_a_header_rows_stay_byte_for_byte() {
        let rules = Rules { has_header: false, ..rules(Format::Csv, Key::Fixed("k".into())) };
        let (found, _) = all(&[b"\xef\xbb\xbf\"a\",\"b c\",1\r\n\r\n x ,\"1\n2\"\n\"l\""], rules);
        assert_eq!(found, [at(0, 1, "k=\"a\",\"b c\",1"), at(0, 3, "k= x ,\"1\n2\""), at(0, 5, "k=\"l\"")]);
    }

    #[tokio::test]
    async fn what_has_been_read_when_it_is_stopped_comes_out() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("lines");
        let count = 300_000_u64;
        std::fs::write(&path, "x\n".repeat(count as usize)).unwrap();
        let mut reading = Input::open(&[path]).unwrap().start(rules(Format::Lines, Key::Random)).unwrap();
        let first = reading.next().await.unwrap().unwrap();
        let mut lines: Vec<u64> = first.into_iter().map(|item| item.place.line).collect();
        lines.extend(reading.stop().await.into_iter().map(|item| item.place.line));
        assert!((1..=lines.len() as u64).eq(lines.iter().copied()), "one after another");
        assert!((lines.len() as u64) < count, "{}: it was stopped on the way", lines.len());
        assert!(reading.next().await.is_none());
    }

    #[test]
    fn files_are_looked_at_before_anything_is_read_and_opened_one_at_a_time() {
        let folder = TempDir::new().unwrap();
        let error = Input::open(&[PathBuf::from("/dev/null"), folder.path().to_owned()]).unwrap_err();
        assert!(shardmill_cause::with_causes(&error).contains("directory"), "{error:?}");
        assert_eq!(error.place(), Place { file: 1, line: 1 });
        let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let path = folder.path().join("a");
        std::fs::write(&path, "x").unwrap();
        let before = open();
        let input = Input::open(&vec![path.clone(); 1_000]).unwrap();
        assert!(open() < before + 500, "others open files as well, but not so many");
        assert_eq!(input.name_of(&std::fs::metadata(&path).unwrap()), path.to_str());
        assert_eq!(input.name_of(&std::fs::metadata(folder.path()).unwrap()), None);
    }

    #[test]
    fn a_file_that_is_not_there_is_told_before_anything_is_read() {
        let error = Input::open(&[PathBuf::from("/dev/null"), PathBuf::from("/nowhere/at/all")]).unwrap_err();
        assert!(error.to_string().contains("/nowhere/at/all"));
        assert_eq!(Input::open(&[]).unwrap().bytes(), None);
    }
}
