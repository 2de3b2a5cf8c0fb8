//! Compiled code on disk: compiling a Python or JavaScript guest takes seconds, loading it milliseconds.
//!
//! Whoever can write such a file can run native code as this process, so nothing is read that anybody else could have
//! written: the directory and each file must belong to this user and be writable by nobody else, and a file must carry
//! the digest of its contents, which a torn write or a failing disk does not leave. A guest's file, on the other hand,
//! is always WebAssembly: compiled code that somebody hands over is never accepted.

mod seal;

use std::fs::{DirBuilder, File};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, open, openat, renameat, statat, unlinkat};
use rustix::io::Errno;
use wasmtime::Engine;
use wasmtime::component::Component;

use crate::Digest;
pub(crate) use seal::{Compatibility, Sealed};

/// Files that are kept; the oldest go first.
const FILES: usize = 64;
/// A file that is older than the newest one by so much, and still unfinished, never will be.
const UNFINISHED_SECONDS: i64 = 3600;

/// The directory of compiled code, if there is one that can be trusted.
#[derive(Debug)]
pub(crate) struct Cache {
    directory: Option<Directory>,
}

#[derive(Debug)]
struct Directory {
    path: PathBuf,
    /// Everything is opened relative to the directory that was checked, even if another takes its name.
    handle: OwnedFd,
    compatibility: Compatibility,
    has_warned: AtomicBool,
    /// Names of files that are being written are nobody else's: another process on the same directory may have the same
    /// id, in a container of its own.
    temporary: AtomicU64,
}

// === impl Cache ===

impl Cache {
    pub(crate) fn none() -> Self {
        Self { directory: None }
    }

    /// Makes the directory if there is none. What cannot be trusted or used is a warning, and no cache.
    pub(crate) fn open(path: &Path, engine: &Engine) -> Self {
        let directory = Directory::open(path, engine)
            .inspect_err(|reason| {
                tracing::warn!(directory = %path.display(), reason, "compiled guests are not cached: each start compiles");
            })
            .ok();
        Self { directory }
    }

    pub(crate) fn load(&self, engine: &Engine, guest: &Digest) -> Option<Component> {
        let directory = self.directory.as_ref()?;
        let sealed = directory.read(guest)?;
        let component = sealed.component(engine);
        component
            .inspect_err(|error| tracing::debug!(guest = %guest, %error, "compiled code is not for this engine"))
            .ok()
    }

    pub(crate) fn store(&self, guest: &Digest, code: &Sealed) {
        let Some(directory) = &self.directory else { return };
        if let Err(reason) = directory.write(guest, code)
            && !directory.has_warned.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(
                directory = %directory.path.display(),
                %reason,
                "compiled code cannot be kept: the next start compiles again",
            );
        }
        directory.prune();
    }
}

// === impl Directory ===

impl Directory {
    fn open(path: &Path, engine: &Engine) -> Result<Self, String> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(|error| format!("the directory cannot be made: {error}"))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = open(path, flags, Mode::empty()).map_err(|error| format!("it cannot be opened: {error}"))?;
        let stat = fstat(&handle).map_err(|error| error.to_string())?;
        if !is_ours_alone(&stat) {
            return Err("it belongs to somebody else or others can write it: `chmod 700` it, or name another".into());
        }
        let compatibility = Compatibility::of(engine);
        let (has_warned, temporary) = (AtomicBool::new(false), AtomicU64::new(RandomState::new().hash_one(path)));
        Ok(Self { path: path.to_owned(), handle, compatibility, has_warned, temporary })
    }

    fn name(&self, guest: &Digest) -> String {
        format!("{guest}-{}.code", self.compatibility.short())
    }

    /// The whole file, once it is known to be as it was written.
    fn read(&self, guest: &Digest) -> Option<Sealed> {
        let name = self.name(guest);
        self.try_read(&name, guest).unwrap_or_else(|reason| {
            tracing::warn!(
                directory = %self.path.display(), name, reason,
                "compiled code is not used: the guest is compiled again"
            );
            None
        })
    }

    /// `None` if there is no such file.
    fn try_read(&self, name: &str, guest: &Digest) -> Result<Option<Sealed>, String> {
        let cannot_be_read = |error: std::io::Error| format!("it cannot be read: {error}");
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = match openat(&self.handle, name, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(cannot_be_read(error.into())),
        };
        let stat = fstat(&file).map_err(|error| cannot_be_read(error.into()))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || !is_ours_alone(&stat) {
            return Err("others could have written it".to_owned());
        }
        let mut bytes = Vec::new();
        File::from(file).read_to_end(&mut bytes).map_err(cannot_be_read)?;
        self.compatibility.open(guest, bytes).map(Some).ok_or_else(|| "it is damaged".to_owned())
    }

    /// Under its name the file is complete or not there at all.
    fn write(&self, guest: &Digest, code: &Sealed) -> std::io::Result<()> {
        let number = self.temporary.fetch_add(1, Ordering::Relaxed);
        let temporary = format!(".{}-{number:016x}.tmp", std::process::id());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(openat(&self.handle, &temporary, flags, Mode::RUSR | Mode::WUSR)?);
        let written = file
            .write_all(code.bytes())
            .and_then(|()| Ok(renameat(&self.handle, &temporary, &self.handle, self.name(guest))?));
        if written.is_err() {
            let _ = unlinkat(&self.handle, &temporary, AtFlags::empty());
        }
        written
    }

    /// Keeps the newest files; what cannot be removed stays.
    fn prune(&self) {
        let Ok(entries) = Dir::read_from(&self.handle) else { return };
        let mut files = Vec::new();
        let mut unfinished = Vec::new();
        for name in entries.filter_map(|entry| Some(entry.ok()?.file_name().to_owned())) {
            let kind = match name.to_bytes() {
                name if name.ends_with(b".code") => &mut files,
                name if name.ends_with(b".tmp") => &mut unfinished,
                _ => continue,
            };
            let Ok(stat) = statat(&self.handle, &name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            kind.push(((stat.st_mtime, stat.st_mtime_nsec), name));
        }
        files.sort_by(|left, right| right.cmp(left));
        // What a process has left that was killed while it wrote.
        let newest = files.first().map_or(0, |((seconds, _), _)| *seconds);
        unfinished.retain(|((seconds, _), _)| seconds.saturating_add(UNFINISHED_SECONDS) < newest);
        for (_, name) in files.iter().skip(FILES).chain(&unfinished) {
            let _ = unlinkat(&self.handle, name, AtFlags::empty());
        }
    }
}

fn is_ours_alone(stat: &Stat) -> bool {
    stat.st_uid == rustix::process::geteuid().as_raw() && stat.st_mode & 0o022 == 0
}

#[cfg(test)]
mod tests;
