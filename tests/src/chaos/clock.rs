//! A wall clock that can be wrong: each worker process has its own.
//!
//! A library that is loaded before all others adds to the time of day what a file says, so that a clock jumps forward or
//! back while its process runs. The clocks that only count up, which leases go by, stay as they are: a machine whose time
//! of day is set has no others.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::paths;

/// The library, for as long as its folder is there.
#[derive(Debug)]
pub(super) struct Library(PathBuf);

/// The wall clock of one process.
#[derive(Debug)]
pub(super) struct Clock {
    file: File,
    environment: [(String, String); 2],
}

// === impl Library ===

impl Library {
    /// Builds it with the C compiler without which nothing else of this project is built.
    pub(super) fn build(folder: &Path) -> Library {
        let library = folder.join("clock.so");
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let source = paths::repository().join("tests/src/chaos/clock.c");
        let built = Command::new(&compiler)
            .args(["-shared", "-fPIC", "-O2", "-o"])
            .args([&library, &source])
            .output()
            .unwrap_or_else(|error| panic!("{}: {error}", compiler.display()));
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        Library(library)
    }

    /// A clock that is right, with a file in this folder.
    pub(super) fn clock(&self, folder: &Path) -> Clock {
        let path = folder.join("clock");
        let file = File::create(&path).expect("a file for a clock");
        let text = |path: &Path| path.to_str().expect("a path in UTF-8").to_owned();
        let environment = [("LD_PRELOAD".to_owned(), text(&self.0)), ("WRONG_CLOCK".to_owned(), text(&path))];
        let clock = Clock { file, environment };
        clock.set(0);
        clock
    }
}

// === impl Clock ===

impl Clock {
    /// The variables of the process that has it.
    pub(super) fn environment(&self) -> &[(String, String)] {
        &self.environment
    }

    /// From now on it is wrong by so many seconds.
    pub(super) fn set(&self, seconds: i64) {
        self.file.write_all_at(&seconds.to_ne_bytes(), 0).expect("a clock is set");
    }
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use tempfile::TempDir;

    use super::*;

    /// What a process with this clock takes for the time of day, in seconds since 1970.
    fn told(clock: &Clock) -> i64 {
        let environment = clock.environment().iter().map(|(name, value)| (name, value));
        let date = Command::new("date").arg("+%s").envs(environment).output().expect("date runs");
        String::from_utf8_lossy(&date.stdout).trim().parse().expect("seconds")
    }

    #[test]
    fn a_clock_is_wrong_by_what_it_was_set_to_and_others_are_right() {
        let home = TempDir::new().expect("a temporary folder");
        let library = Library::build(home.path());
        let clocks = ["first", "second"].map(|name| {
            let folder = home.path().join(name);
            std::fs::create_dir(&folder).expect("a folder");
            library.clock(&folder)
        });
        for wrong in [3_600, -7_200, 0] {
            clocks[0].set(wrong);
            let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970").as_secs().cast_signed();
            let by = clocks.each_ref().map(|clock| told(clock) - now);
            // The process takes its time.
            assert!((wrong..wrong + 60).contains(&by[0]), "{wrong}: {by:?}");
            assert!((0..60).contains(&by[1]), "{by:?}");
        }
    }
}
