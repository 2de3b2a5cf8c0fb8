//! Letters of a folder: its files are looked through once for where each letter is, and then read in order.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shardmill_engine::DeadLetter;
use shardmill_record::{Position, ShardId};

use super::order::{Entry, in_order};
use crate::dead_letters::letter::{NotALetter, from_json};

type LetterEntry = Entry<(Arc<str>, ShardId), Position>;

/// Brings the letters of a folder.
pub(super) struct FolderReader {
    files: Vec<PathBuf>,
    entries: std::vec::IntoIter<LetterEntry>,
    open: Option<(u32, File)>,
}

/// Lines of a file that hold no letter.
#[derive(Debug, PartialEq, Eq)]
struct Strange {
    lines: u64,
    /// The first of them, from 1, and what is wrong with it.
    first: (u64, NotALetter),
}

// === impl FolderReader ===

impl FolderReader {
    /// Looks through the files whose names end in `.jsonl`.
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "jsonl") && path.is_file() {
                files.push(path);
            }
        }
        files.sort_unstable();
        let mut entries = Vec::new();
        for (path, file) in files.iter().zip(0..) {
            let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
            if let Some(Strange { lines, first: (line, reason) }) = scan(path, file, &mut entries).map_err(named)? {
                tracing::warn!(
                    file = %path.display(), lines, first = line, %reason,
                    "lines that hold no dead letter are passed over"
                );
            }
        }
        Ok(Self { files, entries: in_order(entries).into_iter(), open: None })
    }

    /// How many letters are left, repeats included.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The next one.
    pub(super) fn next(&mut self) -> io::Result<Option<DeadLetter>> {
        let Some(entry) = self.entries.next() else { return Ok(None) };
        let path = &self.files[entry.file as usize];
        match read(&mut self.open, path, &entry) {
            Ok(letter) => Ok(Some(letter)),
            Err(error) => Err(io::Error::new(error.kind(), format!("{}: {error}", path.display()))),
        }
    }
}

/// Keeps the file open: the next letter is most often in the same one.
fn read(open: &mut Option<(u32, File)>, path: &Path, entry: &LetterEntry) -> io::Result<DeadLetter> {
    let mut file = match open.take() {
        Some((number, file)) if number == entry.file => file,
        _other => File::open(path)?,
    };
    let mut line = vec![0; entry.length];
    file.seek(SeekFrom::Start(entry.offset))?;
    file.read_exact(&mut line)?;
    *open = Some((entry.file, file));
    from_json(&line).map_err(io::Error::other)
}

fn scan(path: &Path, file: u32, entries: &mut Vec<LetterEntry>) -> io::Result<Option<Strange>> {
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
            Ok(letter) => entries.push(Entry {
                group: (letter.stream, letter.shard),
                position: letter.position,
                arrived_at: letter.arrived_at,
                given_up_at: letter.given_up_at,
                file,
                offset,
                length: line.len(),
            }),
            Err(reason) => strange.get_or_insert(Strange { lines: 0, first: (number, reason) }).lines += 1,
        }
        offset += read as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::letter::tests::letter;
    use super::*;
    use crate::dead_letters::letter::to_json;

    #[test]
    fn whole_lines_of_all_files_are_read_in_order_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let lines = |numbers: &[u64]| numbers.iter().map(|number| to_json(&letter(*number)) + "\n").collect::<String>();
        let half = &to_json(&letter(9))[..50];
        std::fs::write(folder.path().join("b.jsonl"), lines(&[1, 4]) + "{\"order\":1}\n" + half + "\n" + &lines(&[6]))
            .unwrap();
        std::fs::write(folder.path().join("a.jsonl"), lines(&[2, 3, 5]) + half).unwrap();
        std::fs::write(folder.path().join("a.txt"), lines(&[7])).unwrap();
        std::fs::create_dir(folder.path().join("c.jsonl")).unwrap();
        let mut reader = FolderReader::open(folder.path()).unwrap();
        assert_eq!(reader.len(), 6);
        let mut found = Vec::new();
        while let Some(letter) = reader.next().unwrap() {
            found.push(letter);
        }
        assert_eq!(found, [1, 2, 3, 4, 5, 6].map(letter));
        let mut entries = Vec::new();
        let strange = scan(&folder.path().join("b.jsonl"), 0, &mut entries).unwrap().unwrap();
        assert_eq!((strange, entries.len()), (Strange { lines: 2, first: (3, NotALetter::Other) }, 3));
    }

    #[test]
    fn a_file_that_is_gone_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl");
        std::fs::write(&path, to_json(&letter(1)) + "\n").unwrap();
        let mut reader = FolderReader::open(folder.path()).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(reader.next().unwrap_err().to_string().contains("a.jsonl"));
        assert!(FolderReader::open(&path).is_err());
    }
}
