//! Reads the input, on a thread of its own, because reading waits.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use csv::ByteRecord;
use tokio::sync::mpsc;

use super::parse::{self, Bad, Columns, Format, Key, WrongColumns};
use super::source::{Item, LONGEST, Line, Outlet, Place, Source, read_line};
use super::starts::Starts;

/// What is read at a time, and handed on.
const BUFFER: usize = 64 << 10;
/// So many hand-overs wait to be taken.
const WAITING: usize = 4;
/// What some programs put before a text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// How to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rules {
    pub(super) format: Format,
    pub(super) key: Key,
    pub(super) has_header: bool,
    pub(super) delimiter: u8,
}

/// The input, whose files are open.
#[derive(Debug)]
pub(super) struct Input {
    files: Vec<(String, Option<File>)>,
}

/// Why nothing more can be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("{0} cannot be read")]
    Io(String, #[source] io::Error),
    #[error("{0}: {1}")]
    Columns(String, WrongColumns),
    #[error("{name}, line {line}: a row of more than {} MiB begins here: is a quote not closed?", LONGEST >> 20)]
    TooLong { name: String, line: u64 },
}

// === impl Input ===

impl Input {
    /// Opens files; `-`, and no file at all, stand for standard input.
    pub(super) fn open(files: &[PathBuf]) -> Result<Self, Error> {
        let standard = || ("standard input".to_owned(), None);
        if files.is_empty() {
            return Ok(Self { files: vec![standard()] });
        }
        let open = |path: &PathBuf| {
            if path == Path::new("-") {
                return Ok(standard());
            }
            let name = path.display().to_string();
            match File::open(path) {
                Ok(file) => Ok((name, Some(file))),
                Err(error) => Err(Error::Io(name, error)),
            }
        };
        Ok(Self { files: files.iter().map(open).collect::<Result<_, _>>()? })
    }

    /// What each file is called, in messages.
    pub(super) fn names(&self) -> Vec<String> {
        self.files.iter().map(|(name, _)| name.clone()).collect()
    }

    /// How many bytes there are, if that is known.
    pub(super) fn bytes(&self) -> Option<u64> {
        let size = |(_, file): &(String, Option<File>)| {
            let metadata = file.as_ref()?.metadata().ok()?;
            metadata.is_file().then_some(metadata.len())
        };
        self.files.iter().map(size).sum()
    }

    /// Reads from now on; what is read comes out here, until the end, or one error.
    pub(super) fn start(self, rules: Rules) -> io::Result<mpsc::Receiver<Result<Vec<Item>, Error>>> {
        let (out, received) = mpsc::channel(WAITING);
        let read = move || {
            let outlet = Rc::new(RefCell::new(Outlet::new(out.clone())));
            if let Err(error) = self.read(&rules, &outlet) {
                // Nobody may want to know of it any more.
                let _ = outlet.borrow_mut().hand_on();
                let _ = out.blocking_send(Err(error));
            }
        };
        std::thread::Builder::new().name("input".to_owned()).spawn(read)?;
        Ok(received)
    }

    fn read(self, rules: &Rules, outlet: &Rc<RefCell<Outlet<Error>>>) -> Result<(), Error> {
        for (file, (name, opened)) in self.files.into_iter().enumerate() {
            let input: Box<dyn Read> = match opened {
                Some(file) => Box::new(file),
                None => Box::new(io::stdin()),
            };
            let source = Source::new(input, Rc::clone(outlet));
            match rules.format {
                Format::Csv => rows(source, &name, file, rules, outlet)?,
                Format::Lines | Format::Jsonl => {
                    lines(source, file, rules, outlet).map_err(|error| Error::Io(name.clone(), error))?;
                }
            }
            outlet.borrow_mut().hand_on().map_err(|error| Error::Io(name, error))?;
        }
        Ok(())
    }
}

fn lines(
    source: Source<impl Read, Error>,
    file: usize,
    rules: &Rules,
    outlet: &RefCell<Outlet<Error>>,
) -> io::Result<()> {
    let mut input = BufReader::with_capacity(BUFFER, source);
    let mut text = Vec::new();
    for line in 1.. {
        text.clear();
        let Some(read) = read_line(&mut input, &mut text, LONGEST)? else { return Ok(()) };
        let place = Place { file, line };
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

fn rows(
    source: Source<impl Read, Error>,
    name: &str,
    file: usize,
    rules: &Rules,
    outlet: &RefCell<Outlet<Error>>,
) -> Result<(), Error> {
    let wrong = |error| Error::Columns(name.to_owned(), error);
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .delimiter(rules.delimiter)
        .buffer_capacity(BUFFER)
        .from_reader(Capped { input: source, outlet, starts: RefCell::new(Starts::new()) });
    let failed = |error: csv::Error, line: u64| match error.into_kind() {
        csv::ErrorKind::Io(error) if error.kind() == io::ErrorKind::FileTooLarge => {
            Error::TooLong { name: name.to_owned(), line }
        }
        csv::ErrorKind::Io(error) => Error::Io(name.to_owned(), error),
        other => Error::Io(name.to_owned(), io::Error::other(format!("{other:?}"))),
    };
    let mut row = ByteRecord::new();
    let mut columns = match rules.has_header {
        true => None,
        false => Some(Columns::without_header(&rules.key, rules.delimiter).map_err(wrong)?),
    };
    loop {
        reader.get_ref().starts.borrow_mut().begin(reader.position().byte());
        let read = reader.read_byte_record(&mut row);
        let line = reader.get_ref().starts.borrow().line();
        match read {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(error) => return Err(failed(error, line)),
        }
        match &columns {
            None => columns = Some(Columns::of_header(&row, &rules.key, rules.delimiter).map_err(wrong)?),
            Some(columns) => {
                outlet.borrow_mut().push(Place { file, line }, columns.record(&row, &rules.key));
            }
        }
    }
}

/// Ends where a row does not: a quote that is not closed makes one row of all that follows.
struct Capped<'a, R> {
    input: R,
    outlet: &'a RefCell<Outlet<Error>>,
    starts: RefCell<Starts>,
}

impl<R: Read> Read for Capped<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.outlet.borrow().pending() > LONGEST {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let read = self.input.read(buffer)?;
        self.starts.borrow_mut().read(&buffer[..read]);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use tempfile::TempDir;

    use super::*;

    fn rules(format: Format, key: Key) -> Rules {
        Rules { format, key, has_header: true, delimiter: b',' }
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
        while let Some(items) = received.blocking_recv() {
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
    fn a_file_that_is_not_there_is_told_before_anything_is_read() {
        let error = Input::open(&[PathBuf::from("/dev/null"), PathBuf::from("/nowhere/at/all")]).unwrap_err();
        assert!(error.to_string().contains("/nowhere/at/all"));
        assert_eq!(Input::open(&[]).unwrap().bytes(), None);
    }
}
