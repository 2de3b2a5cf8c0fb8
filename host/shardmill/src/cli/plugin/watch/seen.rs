//! What is known of files at a look at them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};

use shardmill_plugin::Digest;

use crate::watching::Identity;

/// What builds make, in folders of sources.
const BUILT: &str = "target";
/// A file up to this size is another one if something else is in it. A larger one, if it was written.
const READ: u64 = 16 << 20;

/// Which files there are, and how each was left when it was written last.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    /// Those that are not there are known as that.
    files: BTreeMap<PathBuf, Option<Stamp>>,
    /// Those that were looked through.
    folders: BTreeSet<PathBuf>,
}

#[derive(Debug, Clone)]
struct Stamp {
    identity: Identity,
    /// Of what is in it, where that was read.
    digest: Option<Digest>,
}

// === impl Seen ===

impl Seen {
    /// Looks at files, and at all files in folders but for what is hidden or built.
    pub(super) fn of(paths: &[PathBuf]) -> Self {
        Self::default().again(paths)
    }

    /// Looks again. What has not been written since is not read.
    pub(super) fn again(&self, paths: &[PathBuf]) -> Self {
        let mut seen = Self::default();
        paths.iter().for_each(|path| seen.add(path, self));
        seen
    }

    /// Whether something else is in the files, or there are others.
    pub(super) fn differs_from(&self, other: &Self) -> bool {
        let mut pairs = self.files.iter().zip(&other.files);
        self.files.len() != other.files.len()
            || !pairs.all(|((path, stamp), (other_path, other))| {
                path == other_path
                    && match (stamp, other) {
                        (Some(stamp), Some(other)) => stamp.is_as(other),
                        (stamp, other) => stamp.is_none() && other.is_none(),
                    }
            })
    }

    pub(super) fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.keys().map(PathBuf::as_path)
    }

    pub(super) fn folders(&self) -> impl Iterator<Item = &Path> {
        self.folders.iter().map(PathBuf::as_path)
    }

    fn add(&mut self, path: &Path, before: &Self) {
        let found = fs::metadata(path).ok();
        if !found.as_ref().is_some_and(Metadata::is_dir) {
            let before = before.files.get(path).and_then(Option::as_ref);
            let stamp = found.map(|found| Stamp::of(path, &found, before));
            self.files.insert(path.to_owned(), stamp);
            return;
        }
        self.folders.insert(path.to_owned());
        let Ok(entries) = fs::read_dir(path) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let is_passed_over = name == BUILT || name.as_encoded_bytes().starts_with(b".");
            // A link to a folder may lead back here.
            let leads_away = entry.file_type().is_ok_and(|kind| kind.is_symlink()) && entry.path().is_dir();
            if !is_passed_over && !leads_away {
                self.add(&entry.path(), before);
            }
        }
    }
}

// === impl Stamp ===

impl Stamp {
    fn of(path: &Path, found: &Metadata, before: Option<&Self>) -> Self {
        let identity = Identity::of(found);
        if let Some(before) = before.filter(|before| before.identity == identity) {
            return before.clone();
        }
        // A pipe would be waited for, and emptied.
        let is_read = found.is_file() && found.len() <= READ;
        let bytes = is_read.then(|| fs::read(path).ok()).flatten();
        Self { identity, digest: bytes.map(|bytes| Digest::of(&bytes)) }
    }

    fn is_as(&self, other: &Self) -> bool {
        match (&self.digest, &other.digest) {
            (Some(digest), Some(other)) => digest == other,
            _unread => self.identity == other.identity,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;

    #[test]
    fn what_is_in_a_file_counts_and_not_when_it_was_read_or_written() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("a");
        let paths = [path.clone()];
        let look = |before: &Seen| (before.again(&paths), before.clone());
        let differs = |(now, before): &(Seen, Seen)| now.differs_from(before);
        let none = Seen::of(&paths);
        assert!(!differs(&look(&none)));
        fs::write(&path, "1").unwrap();
        let one = look(&none);
        assert!(differs(&one));
        fs::read(&path).unwrap();
        assert!(!differs(&look(&one.0)));
        // As builds write files that they make of others.
        fs::write(&path, "1").unwrap();
        assert!(!differs(&look(&one.0)));
        fs::write(&path, "12").unwrap();
        let two = look(&one.0);
        assert!(differs(&two));
        // Another file of the same size, as editors put it in the place of the old one.
        let other = folder.path().join("b");
        fs::write(&other, "34").unwrap();
        fs::rename(&other, &path).unwrap();
        assert!(differs(&look(&two.0)));
        fs::remove_file(&path).unwrap();
        assert!(!look(&none).0.differs_from(&none) && differs(&look(&two.0)));
    }

    #[test]
    fn a_large_file_is_another_one_when_it_was_written() {
        let folder = TempDir::new().unwrap();
        let paths = [folder.path().join("a")];
        let file = fs::File::create(&paths[0]).unwrap();
        file.set_len(READ + 1).unwrap();
        let before = Seen::of(&paths);
        assert!(!before.again(&paths).differs_from(&before));
        file.set_len(READ + 2).unwrap();
        assert!(before.again(&paths).differs_from(&before));
    }

    #[test]
    fn folders_are_looked_through_but_for_what_is_built_hidden_or_leads_back() {
        let folder = TempDir::new().unwrap();
        let root = folder.path();
        for name in ["src/deep", "target/debug", ".git"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        symlink(root, root.join("src/loop")).unwrap();
        for name in ["src/deep/a.rs", "target/debug/b", ".git/c", "d", ".e"] {
            fs::write(root.join(name), "x").unwrap();
        }
        let seen = Seen::of(&[root.to_owned()]);
        assert_eq!(seen.files().collect::<Vec<_>>(), [root.join("d"), root.join("src/deep/a.rs")]);
        assert_eq!(seen.folders().collect::<Vec<_>>(), [root.to_owned(), root.join("src"), root.join("src/deep")]);
    }
}
