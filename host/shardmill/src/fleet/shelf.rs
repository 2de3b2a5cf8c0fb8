//! Modules that this machine has run, kept there, so that a worker need not ask for them when it starts again or goes
//! back to them: where they came from may be gone by then. They are WebAssembly and no compiled code, and are held
//! against their digest when they are taken, so whoever can write here can do no more than have them fetched again.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use shardmill_plugin::Digest;

/// Modules that are kept; the one that was not used for longest goes first.
const MODULES: usize = 32;
/// What is this old and unfinished will not be finished.
const UNFINISHED: std::time::Duration = std::time::Duration::from_secs(3600);

/// The folder of these modules, if there is one.
#[derive(Debug, Clone)]
pub(crate) struct Shelf(Option<PathBuf>);

// === impl Shelf ===

impl Shelf {
    /// Beside the compiled code of plugins.
    pub(crate) fn beside(cache_dir: Option<&Path>) -> Self {
        Self(cache_dir.map(|folder| folder.join("modules")))
    }

    pub(crate) fn is_there(&self) -> bool {
        self.0.is_some()
    }

    /// The module, if it is here and whole.
    pub(crate) fn take(&self, digest: &Digest) -> Option<Vec<u8>> {
        let mut file = File::open(self.0.as_ref()?.join(name(digest))).ok()?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).ok()?;
        if Digest::of(&bytes) != *digest {
            return None;
        }
        // Where this is not permitted, the module goes a little sooner.
        let _ = file.set_modified(SystemTime::now());
        Some(bytes)
    }

    /// Keeps a module. What cannot be kept is fetched again some day.
    pub(crate) fn put(&self, digest: &Digest, bytes: &[u8]) {
        let Some(folder) = &self.0 else { return };
        if let Err(error) = put(folder, digest, bytes) {
            tracing::debug!(folder = %folder.display(), %error, "a module cannot be kept");
        }
    }
}

fn name(digest: &Digest) -> String {
    format!("{digest}.wasm")
}

fn put(folder: &Path, digest: &Digest, bytes: &[u8]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let unfinished = folder.join(format!("{digest}.{}-{:08x}", std::process::id(), rand::random::<u32>()));
    let written = fs::write(&unfinished, bytes).and_then(|()| fs::rename(&unfinished, folder.join(name(digest))));
    if written.is_err() {
        let _gone = fs::remove_file(&unfinished);
    }
    written?;
    prune(folder)
}

fn prune(folder: &Path) -> io::Result<()> {
    let now = SystemTime::now();
    let mut whole: Vec<(SystemTime, PathBuf)> = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        // Other workers of this machine may do the same.
        let Ok(written) = entry.metadata().and_then(|metadata| metadata.modified()) else { continue };
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "wasm") {
            whole.push((written, path));
        } else if now.duration_since(written).is_ok_and(|age| age >= UNFINISHED) {
            let _gone = fs::remove_file(path);
        }
    }
    whole.sort();
    for (_, path) in whole.iter().take(whole.len().saturating_sub(MODULES)) {
        let _gone = fs::remove_file(path);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_kept_whole_and_not_more_than_a_few() {
        let folder = tempfile::tempdir().unwrap();
        let shelf = Shelf::beside(Some(folder.path()));
        let digest = Digest::of(b"a");
        assert_eq!(shelf.take(&digest), None);
        shelf.put(&digest, b"a");
        assert_eq!(shelf.take(&digest).as_deref(), Some(&b"a"[..]));
        // Cut short, or put there by somebody else.
        fs::write(folder.path().join("modules").join(name(&digest)), b"b").unwrap();
        assert_eq!(shelf.take(&digest), None);
        for number in 0..MODULES as u8 + 4 {
            shelf.put(&Digest::of(&[number]), &[number]);
        }
        let modules = folder.path().join("modules");
        assert_eq!(fs::read_dir(&modules).unwrap().count(), MODULES);
        // Of two that have been there for long the one stays that was used.
        let [used, unused] = [0, 1].map(|number| Digest::of(&[MODULES as u8 + number]));
        for digest in [&used, &unused] {
            let file = File::open(modules.join(name(digest))).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        }
        assert!(shelf.take(&used).is_some());
        shelf.put(&digest, b"a");
        assert!(shelf.take(&used).is_some() && shelf.take(&unused).is_none());
        Shelf::beside(None).put(&digest, b"a");
        assert_eq!(Shelf::beside(None).take(&digest), None);
    }
}
