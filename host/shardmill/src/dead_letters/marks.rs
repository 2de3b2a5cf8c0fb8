//! Which letters have been sent again: a file of JSON lines, so that a second replay passes over them, and one that was
//! interrupted goes on.

use std::collections::{BTreeSet, HashSet};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::folder::{MODE, sync_folder};
use super::identity::Identity;

/// Beside the letters of a folder.
const FILE_NAME: &str = ".replayed";

/// What has been sent again.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    known: HashSet<Identity>,
    /// Where more is noted; held alone.
    file: Option<(PathBuf, File)>,
}

/// A line.
#[derive(Debug, Serialize, Deserialize)]
struct Mark {
    id: String,
    payload: String,
    /// The stream that it was sent to.
    to: String,
    /// In milliseconds since 1970.
    at: u64,
}

// === impl Marks ===

impl Marks {
    /// The file for the letters of a folder.
    pub(crate) fn of_folder(folder: &Path) -> PathBuf {
        folder.join(FILE_NAME)
    }

    /// Reads a file, which need not be there.
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        match std::fs::read(path) {
            Ok(text) => Ok(Self { known: known(&text), file: None }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    /// Reads a file and holds it, to note more. An error of the kind [`io::ErrorKind::ResourceBusy`] if somebody else does.
    pub(crate) fn hold(path: &Path) -> io::Result<Self> {
        let mut file = OpenOptions::new().read(true).append(true).create(true).mode(MODE).open(path)?;
        // Or a crash leaves what has been noted in a file without a name.
        sync_folder(path.parent().unwrap_or(Path::new("")))?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => {
                let reason = "another replay is under way there";
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, reason));
            }
            // Some network disks know no locks.
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        if text.last().is_some_and(|last| *last != b'\n') {
            // Half a line, of a replay that was killed.
            file.write_all(b"\n")?;
        }
        Ok(Self { known: known(&text), file: Some((path.to_owned(), file)) })
    }

    pub(crate) fn contains(&self, identity: &Identity) -> bool {
        self.known.contains(identity)
    }

    /// Notes what has been sent, and returns when that is durable.
    ///
    /// # Errors
    /// With the file's name.
    pub(crate) fn add(&mut self, sent: &BTreeSet<Identity>, to: &str, at: u64) -> Result<(), String> {
        self.known.extend(sent);
        let Some((path, file)) = &mut self.file else { return Ok(()) };
        let mut lines = String::new();
        for identity in sent {
            let mark = Mark { id: identity.id.to_string(), payload: identity.payload(), to: to.to_owned(), at };
            lines.push_str(&serde_json::to_string(&mark).expect("texts and numbers can be written"));
            lines.push('\n');
        }
        let written = file.write_all(lines.as_bytes()).and_then(|()| file.sync_data());
        written.map_err(|error| format!("{}: {error}", path.display()))
    }
}

/// Lines that are none of ours are passed over: the worst that comes of it is a record that is sent twice.
fn known(text: &[u8]) -> HashSet<Identity> {
    let marks = text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice::<Mark>(line).ok());
    marks.filter_map(|mark| Identity::parse(&mark.id, &mark.payload)).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::super::folder::synced;
    use super::super::letter::tests::letter;
    use super::*;

    #[test]
    fn what_was_noted_is_known_later_also_after_half_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = Marks::of_folder(folder.path());
        let [first, second, third] = [1, 2, 3].map(|number| Identity::of(&letter(number)));
        assert!(!Marks::read(&path).unwrap().contains(&first));
        let mut marks = Marks::hold(&path).unwrap();
        marks.add(&BTreeSet::from([first, second]), "orders", 7).unwrap();
        assert!(marks.contains(&second));
        assert_eq!(Marks::hold(&path).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        drop(marks);
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"id\":\"12").unwrap();
        Marks::hold(&path).unwrap().add(&BTreeSet::from([third]), "orders", 8).unwrap();
        let marks = Marks::read(&path).unwrap();
        assert!([first, second, third].iter().all(|identity| marks.contains(identity)));
        assert!(!marks.contains(&Identity::of(&letter(4))));
    }

    #[test]
    fn a_new_file_has_a_durable_name_and_is_not_for_everybody() {
        let folder = tempfile::tempdir().unwrap();
        let path = Marks::of_folder(folder.path());
        let (_marks, synced) = synced(|| Marks::hold(&path).unwrap());
        assert_eq!(synced, [folder.path()]);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o137, 0);
    }
}
