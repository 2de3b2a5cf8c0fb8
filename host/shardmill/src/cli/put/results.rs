//! Where the result of each record goes.

use std::fs::{self, File};
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use shardmill_cause::code;

use super::read::Input;
use crate::cli::{Failure, output};

/// Lines of JSON, in the order of the input. When they cannot be written any more, that is kept: what becomes of the records
/// has to be known all the same.
#[derive(Debug)]
pub(super) struct Results {
    to: To,
    failure: Option<Failure>,
}

#[derive(Debug)]
enum To {
    Nowhere,
    /// With what is not printed yet.
    Printed(Vec<u8>),
    Written(PathBuf, BufWriter<File>),
}

/// Whether results may be written there: not over what is read, and over what was written before only if that is wanted.
pub(super) fn check(path: Option<&Path>, input: &Input, overwrite: bool) -> Result<(), Failure> {
    let Some(path) = path.filter(|path| *path != Path::new("-")) else { return Ok(()) };
    // What is wrong with it is seen when it is made.
    let Ok(found) = fs::metadata(path) else { return Ok(()) };
    if let Some(input) = input.name_of(&found) {
        let message = format!("the results would take the place of the input {input}");
        return Err(Failure::usage(message)
            .code(code::input::RESULTS)
            .help("name another file for --results; nothing was sent"));
    }
    if found.is_file() && found.len() > 0 && !overwrite {
        let message = format!("{} has something in it, and may be the results of an earlier run", path.display());
        return Err(Failure::usage(message)
            .code(code::input::RESULTS)
            .help("name another file for --results, or say --overwrite; nothing was sent"));
    }
    Ok(())
}

// === impl Results ===

impl Results {
    /// A file is made anew; `-` stands for standard output.
    pub(super) fn open(path: Option<&Path>) -> Result<Self, Failure> {
        let to = match path {
            None => To::Nowhere,
            Some(path) if path == Path::new("-") => To::Printed(Vec::new()),
            Some(path) => match File::create(path) {
                Ok(file) => To::Written(path.to_owned(), BufWriter::new(file)),
                Err(error) => return Err(unwritten(path, &error).help("nothing was sent")),
            },
        };
        Ok(Self { to, failure: None })
    }

    pub(super) fn are_wanted(&self) -> bool {
        !matches!(self.to, To::Nowhere) && self.failure.is_none()
    }

    pub(super) fn are_printed(&self) -> bool {
        matches!(self.to, To::Printed(_))
    }

    /// Whether they cannot be written any more.
    pub(super) fn have_failed(&self) -> bool {
        self.failure.is_some()
    }

    pub(super) fn into_failure(self) -> Option<Failure> {
        self.failure
    }

    pub(super) fn add(&mut self, line: &str) {
        if self.failure.is_some() {
            return;
        }
        let written = match &mut self.to {
            To::Nowhere => Ok(()),
            To::Printed(lines) => writeln!(lines, "{line}"),
            To::Written(_, file) => writeln!(file, "{line}"),
        };
        self.note(written);
    }

    /// Lets everything be seen.
    pub(super) fn flush(&mut self) {
        if self.failure.is_some() {
            return;
        }
        let written = match &mut self.to {
            To::Nowhere => Ok(()),
            To::Printed(lines) => output::try_bytes(&std::mem::take(lines)),
            To::Written(_, file) => file.flush(),
        };
        self.note(written);
    }

    fn note(&mut self, written: std::io::Result<()>) {
        let Err(error) = written else { return };
        self.failure = Some(match &self.to {
            To::Written(path, _) => unwritten(path, &error),
            _printed if error.kind() == ErrorKind::BrokenPipe => {
                Failure::running("nobody reads the results any more on standard output").code(code::input::RESULTS)
            }
            _printed => unwritten(Path::new("standard output"), &error),
        });
    }
}

fn unwritten(path: &Path, error: &std::io::Error) -> Failure {
    Failure::running(format!("results cannot be written to {}: {error}", path.display())).code(code::input::RESULTS)
}
