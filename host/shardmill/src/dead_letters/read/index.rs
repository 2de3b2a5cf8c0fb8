//! Where each letter is: files of folders are looked through for it, and what streams bring is written to a file that has no
//! name.

use std::collections::{BTreeSet, HashMap};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, BufWriter, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shardmill_cause::code;
use shardmill_engine::DeadLetter;
use shardmill_record::{Position, ShardId};

use super::Filter;
use super::stream::StreamReader;
use crate::cli::Failure;
use crate::dead_letters::letter::{NotALetter, from_json, to_json};

/// Where a letter is and what places it among the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// Its shard, told apart from those of other streams.
    pub(super) shard: u32,
    /// Its place in the shard.
    pub(super) position: Position,
    /// When the record arrived.
    pub(super) arrived_at: u64,
    /// When it was given up.
    pub(super) given_up_at: u64,
    /// The file, by its number.
    pub(super) file: usize,
    /// Where its line begins.
    pub(super) offset: u64,
    /// The length of its line.
    pub(super) length: usize,
}

/// A file with letters.
#[derive(Debug)]
pub(super) struct LetterFile {
    /// The place that it belongs to, by its number.
    pub(super) place: usize,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Path(PathBuf),
    /// Of a stream.
    Kept(File),
}

/// Where letters are.
#[derive(Debug)]
pub(super) struct Index {
    filter: Filter,
    pub(super) files: Vec<LetterFile>,
    pub(super) entries: Vec<Entry>,
    shards: HashMap<(Arc<str>, ShardId), u32>,
    /// Files that could not be read, by their numbers.
    pub(super) unread: BTreeSet<usize>,
    /// How many letters are of other applications.
    pub(super) others: u64,
}

/// Lines of a file that hold no letter.
#[derive(Debug, PartialEq, Eq)]
struct Strange {
    lines: u64,
    /// The first of them, from 1, and what is wrong with it.
    first: (u64, NotALetter),
}

// === impl Entry ===

impl Entry {
    /// Whether another one is about a record in the same place.
    pub(super) fn is_at(&self, other: &Self) -> bool {
        self.shard == other.shard && self.position == other.position
    }
}

// === impl LetterFile ===

impl LetterFile {
    /// `open` is the file that was read last, with its number.
    pub(super) fn read(&self, entry: &Entry, open: &mut Option<(usize, File)>) -> io::Result<DeadLetter> {
        let file = match (&self.source, &*open) {
            (Source::Kept(file), _) => file,
            (Source::Path(_), Some((number, file))) if *number == entry.file => file,
            (Source::Path(path), _) => &open.insert((entry.file, File::open(path)?)).1,
        };
        let mut line = vec![0; entry.length];
        file.read_exact_at(&mut line, entry.offset)?;
        from_json(&line).map_err(io::Error::other)
    }
}

/// The log's line about a file that is left out.
pub(super) fn tell_unread(file: &LetterFile, error: &io::Error) {
    let path = match &file.source {
        Source::Path(path) => path.display().to_string(),
        Source::Kept(_) => "a temporary file".to_owned(),
    };
    tracing::warn!(file = path, %error, "a file cannot be read; its letters are left out");
}

// === impl Index ===

impl Index {
    pub(super) fn new(filter: Filter) -> Self {
        Self {
            filter,
            files: Vec::new(),
            entries: Vec::new(),
            shards: HashMap::new(),
            unread: BTreeSet::new(),
            others: 0,
        }
    }

    /// Looks through a file of a place. One that is gone is one that is not there: a worker removes what it could not use.
    pub(super) fn scan(mut self, place: usize, path: PathBuf) -> Self {
        match self.scan_lines(&path) {
            Ok(None) => {}
            Ok(Some(Strange { lines, first: (line, reason) })) => tracing::warn!(
                file = %path.display(), lines, first = line, %reason,
                "lines that hold no dead letter are passed over"
            ),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                self.unread.insert(self.files.len());
                tell_unread(&LetterFile { place, source: Source::Path(path.clone()) }, &error);
            }
        }
        self.files.push(LetterFile { place, source: Source::Path(path) });
        self
    }

    fn scan_lines(&mut self, path: &Path) -> io::Result<Option<Strange>> {
        let mut reader = BufReader::with_capacity(1 << 20, File::open(path)?);
        let mut strange: Option<Strange> = None;
        let (mut line, mut offset, mut number) = (Vec::new(), 0, 0);
        loop {
            line.clear();
            let read = reader.read_until(b'\n', &mut line)?;
            if read == 0 {
                return Ok(strange);
            }
            number += 1;
            if line.pop_if(|last| *last == b'\n').is_none() {
                // A worker is writing it, or was killed at it: its letter was not acknowledged, and is given up again.
                return Ok(strange);
            }
            match from_json(&line) {
                Ok(letter) if self.takes(&letter) => self.add(letter, offset, line.len()),
                Ok(_unwanted) => {}
                Err(reason) => strange.get_or_insert(Strange { lines: 0, first: (number, reason) }).lines += 1,
            }
            offset += read as u64;
        }
    }

    /// Reads a stream to its tip, and keeps what is wanted until this process ends.
    pub(super) async fn keep(&mut self, place: usize, mut reader: StreamReader) -> Result<(), Failure> {
        let mut kept: Option<BufWriter<File>> = None;
        let mut offset = 0;
        while let Some(letter) = reader.next().await? {
            if !self.takes(&letter) {
                continue;
            }
            let line = to_json(&letter);
            let written = match &mut kept {
                Some(kept) => kept.write_all(line.as_bytes()),
                None => unnamed().and_then(|file| kept.insert(BufWriter::new(file)).write_all(line.as_bytes())),
            };
            written.map_err(|error| not_kept(&error))?;
            self.add(letter, offset, line.len());
            offset += line.len() as u64;
        }
        if let Some(kept) = kept {
            let file = kept.into_inner().map_err(|error| not_kept(error.error()))?;
            self.files.push(LetterFile { place, source: Source::Kept(file) });
        }
        Ok(())
    }

    fn takes(&mut self, letter: &DeadLetter) -> bool {
        let is_own = self.filter.is_of_application(letter);
        self.others += u64::from(!is_own);
        is_own && self.filter.wants(letter)
    }

    /// Of the file that comes next.
    fn add(&mut self, letter: DeadLetter, offset: u64, length: usize) {
        let count = u32::try_from(self.shards.len()).unwrap_or(u32::MAX);
        let shard = *self.shards.entry((letter.stream_arn, letter.shard)).or_insert(count);
        self.entries.push(Entry {
            shard,
            position: letter.position,
            arrived_at: letter.arrived_at,
            given_up_at: letter.given_up_at,
            file: self.files.len(),
            offset,
            length,
        });
    }
}

/// The files of a folder whose names end in `.jsonl`, in the order of their names.
pub(super) fn files(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let is_file = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "jsonl") && path.is_file();
    let entries = std::fs::read_dir(folder)
        .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>());
    let mut files: Vec<PathBuf> =
        entries.map_err(|error| unreadable_folder(folder, &error))?.into_iter().filter(is_file).collect();
    files.sort_unstable();
    Ok(files)
}

/// A folder that is not there, or that this process may not read.
pub(crate) fn unreadable_folder(folder: &Path, error: &io::Error) -> Failure {
    Failure::configuration(format!("dead letters cannot be read from the folder {}: {error}", folder.display()))
        .code(code::dead_letters::PLACE)
        .help("name the folder that workers write to, as this machine sees it")
}

/// A file that nobody else sees, and that is gone with this process.
fn unnamed() -> io::Result<File> {
    let path = std::env::temp_dir().join(format!("shardmill-{:032x}", rand::random::<u128>()));
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(path)?;
    Ok(file)
}

fn not_kept(error: &io::Error) -> Failure {
    let folder = std::env::temp_dir();
    let folder = folder.display();
    Failure::running(format!("letters of a stream are put in order in a temporary file in {folder}: {error}"))
        .code(code::command::NOT_WRITTEN)
        .help("make room there, name another folder with TMPDIR, or ask for fewer letters, with --since for example")
}

#[cfg(test)]
mod tests {
    use super::super::super::letter::tests::letter;
    use super::super::{Letters, Place};
    use super::*;

    fn lines(numbers: &[u64]) -> String {
        numbers.iter().map(|number| to_json(&letter(*number)) + "\n").collect()
    }

    async fn open(folder: &Path) -> Letters {
        Letters::open(&[Place::Folder(folder.to_owned())], Filter::default(), 0).await.unwrap()
    }

    fn rest(letters: &mut Letters) -> Vec<DeadLetter> {
        std::iter::from_fn(|| letters.next()).flatten().map(|found| found.letter).collect()
    }

    #[tokio::test]
    async fn whole_lines_of_all_files_are_read_in_order_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let half = &to_json(&letter(9))[..50];
        std::fs::write(folder.path().join("b.jsonl"), lines(&[1, 4]) + "{\"order\":1}\n" + half + "\n" + &lines(&[6]))
            .unwrap();
        std::fs::write(folder.path().join("a.jsonl"), lines(&[2, 3, 5]) + half).unwrap();
        std::fs::write(folder.path().join("a.txt"), lines(&[7])).unwrap();
        std::fs::create_dir(folder.path().join("c.jsonl")).unwrap();
        let mut letters = open(folder.path()).await;
        assert_eq!(letters.left(), 6);
        assert_eq!(rest(&mut letters), [1, 2, 3, 4, 5, 6].map(letter));
        assert!(letters.all_read().is_ok());
        let mut index = Index::new(Filter::default());
        let strange = index.scan_lines(&folder.path().join("b.jsonl")).unwrap().unwrap();
        assert_eq!((strange, index.entries.len()), (Strange { lines: 2, first: (3, NotALetter::Other) }, 3));
        assert_eq!(index.shards.len(), 1);
    }

    #[tokio::test]
    async fn copies_and_letters_of_other_consumers_stand_together_with_all_their_places() {
        let home = tempfile::tempdir().unwrap();
        let folders = ["a", "b"].map(|name| home.path().join(name));
        let other = |number| DeadLetter { processor: "audit".into(), ..letter(number) };
        let foreign = DeadLetter { application: "bank".into(), ..letter(3) };
        for (folder, letters) in folders.iter().zip([
            vec![letter(5), letter(9), letter(3), letter(5), letter(9)],
            vec![other(9), letter(5), foreign, letter(7)],
        ]) {
            std::fs::create_dir(folder).unwrap();
            let lines: String = letters.iter().map(|letter| to_json(letter) + "\n").collect();
            std::fs::write(folder.join("a.jsonl"), lines).unwrap();
        }
        let places = folders.map(Place::Folder);
        let filter = Filter { application: Some("shop".to_owned()), ..Filter::default() };
        let mut letters = Letters::open(&places, filter, 0).await.unwrap();
        let mut found = Vec::new();
        while let Some(record) = letters.next() {
            let record = record.into_iter().map(|found| {
                let places: Vec<usize> = found.places.into_iter().collect();
                (found.letter.position.to_string(), found.letter.processor.to_string(), places, found.copies)
            });
            found.push(record.collect::<Vec<_>>());
        }
        let of = |number: u64, processor: &str, places: &[usize], copies| {
            (letter(number).position.to_string(), processor.to_owned(), places.to_vec(), copies)
        };
        let expected = [
            vec![of(3, "enrich", &[0], 1)],
            vec![of(5, "enrich", &[0, 1], 3)],
            vec![of(7, "enrich", &[1], 1)],
            vec![of(9, "enrich", &[0], 2), of(9, "audit", &[1], 1)],
        ];
        assert_eq!(found, expected);
        assert_eq!(letters.others(), 1);
    }

    #[tokio::test]
    async fn a_file_that_goes_meanwhile_is_left_out_and_the_others_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl");
        std::fs::write(&path, lines(&[1, 3])).unwrap();
        std::fs::write(folder.path().join("b.jsonl"), lines(&[2, 4])).unwrap();
        let mut letters = open(folder.path()).await;
        std::fs::remove_file(&path).unwrap();
        assert_eq!(rest(&mut letters), [2, 4].map(letter));
        assert!(letters.all_read().is_err());
        // A worker may remove a file that it could not use while the folder is looked through.
        let index = Index::new(Filter::default()).scan(0, path);
        assert!(index.unread.is_empty() && index.entries.is_empty());
        let index = Index::new(Filter::default()).scan(0, folder.path().to_owned());
        assert_eq!(index.unread, BTreeSet::from([0]), "it is no file");
        assert!(Letters::open(&[Place::Folder(folder.path().join("b.jsonl"))], Filter::default(), 0).await.is_err());
    }
}
