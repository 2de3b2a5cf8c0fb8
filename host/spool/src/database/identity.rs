//! Whose file it is, by what stands at its beginning: read without the database, which changes files when it opens them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use super::schema;
use crate::Error;
use crate::folder::{Folder, Witness};
use crate::layout::PAGE;

const MAGIC: &[u8] = b"SQLite format 3\0";
/// Of a database file (`SQLite`'s file format, "The Database Header").
const HEAD: usize = 100;

/// Refuses a file that is not ours or of a later version, and an empty one that was not empty. What it lets pass may be
/// anything still.
pub(super) fn check(folder: &Folder, database: &File, witness: Witness) -> Result<(), Error> {
    let path = folder.database();
    let reading = |error: io::Error| Error::io(&path, "reading the file", &error);
    let length = database.metadata().map_err(reading)?.len();
    let log_length = folder.log_length();
    if length == 0 && (log_length > 0 || matches!(witness, Witness::Number(1..))) {
        return Err(Error::damaged(&path, "it is empty, and records were accepted"));
    }
    let mut head = [0; HEAD];
    if length < HEAD as u64 {
        return Ok(());
    }
    database.read_exact_at(&mut head, 0).map_err(reading)?;
    let foreign = |reason: String| Err(Error::Foreign { file: path.clone(), reason });
    match judge(&head, length > PAGE, log_length > 0) {
        Verdict::Pass => Ok(()),
        Verdict::Unmarked => foreign(schema::NOT_MARKED.to_owned()),
        Verdict::Version(version) => foreign(schema::other_version(version)),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// It may be ours, or is damaged.
    Pass,
    /// Its mark is none, or another program's.
    Unmarked,
    /// Ours, with tables of another version.
    Version(i64),
}

fn judge(head: &[u8; HEAD], is_long: bool, has_log: bool) -> Verdict {
    let number = |at: usize| {
        let bytes = [head[at], head[at + 1], head[at + 2], head[at + 3]];
        i64::from(u32::from_be_bytes(bytes))
    };
    let (version, application) = (number(60), number(68));
    if !head.starts_with(MAGIC) {
        return Verdict::Pass;
    }
    if application == schema::APPLICATION {
        return if version == schema::VERSION { Verdict::Pass } else { Verdict::Version(version) };
    }
    // Ours is without a mark for the moment between its first page and its tables, and these may be in the log.
    let is_new = application == 0 && (!is_long || has_log);
    if is_new { Verdict::Pass } else { Verdict::Unmarked }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_told_apart() {
        let head = |application: i64, version: u32| {
            let mut head = [0; HEAD];
            head[..MAGIC.len()].copy_from_slice(MAGIC);
            head[60..64].copy_from_slice(&version.to_be_bytes());
            head[68..72].copy_from_slice(&u32::try_from(application).unwrap().to_be_bytes());
            head
        };
        let ours = schema::APPLICATION;
        assert_eq!(judge(&head(ours, 1), true, true), Verdict::Pass);
        assert_eq!(judge(&head(ours, 2), true, false), Verdict::Version(2));
        assert_eq!(judge(&head(0, 0), true, false), Verdict::Unmarked);
        assert_eq!(judge(&head(0, 0), false, false), Verdict::Pass);
        assert_eq!(judge(&head(0, 0), true, true), Verdict::Pass);
        assert_eq!(judge(&head(7, 1), false, true), Verdict::Unmarked);
        // What is no database at all, the database says.
        assert_eq!(judge(&[7; HEAD], true, false), Verdict::Pass);
    }
}
