//! Where the result of each record goes.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::cli::{Failure, output};

/// Lines of JSON, in the order of the input.
#[derive(Debug)]
pub(super) enum Results {
    Nowhere,
    /// With what is not printed yet.
    Printed(String),
    Written(PathBuf, BufWriter<File>),
}

// === impl Results ===

impl Results {
    /// A file is made anew; `-` stands for standard output.
    pub(super) fn open(path: Option<&Path>) -> Result<Self, Failure> {
        match path {
            None => Ok(Self::Nowhere),
            Some(path) if path == Path::new("-") => Ok(Self::Printed(String::new())),
            Some(path) => match File::create(path) {
                Ok(file) => Ok(Self::Written(path.to_owned(), BufWriter::new(file))),
                Err(error) => Err(unwritten(path, &error).help("nothing was sent")),
            },
        }
    }

    pub(super) fn are_wanted(&self) -> bool {
        !matches!(self, Self::Nowhere)
    }

    pub(super) fn are_printed(&self) -> bool {
        matches!(self, Self::Printed(_))
    }

    pub(super) fn add(&mut self, line: &str) -> Result<(), Failure> {
        match self {
            Self::Nowhere => Ok(()),
            Self::Printed(lines) => {
                lines.push_str(line);
                lines.push('\n');
                Ok(())
            }
            Self::Written(path, file) => writeln!(file, "{line}").map_err(|error| unwritten(path, &error)),
        }
    }

    /// Lets everything be seen.
    pub(super) fn flush(&mut self) -> Result<(), Failure> {
        match self {
            Self::Nowhere => Ok(()),
            Self::Printed(lines) => {
                if !lines.is_empty() {
                    output::lines(lines);
                    lines.clear();
                }
                Ok(())
            }
            Self::Written(path, file) => file.flush().map_err(|error| unwritten(path, &error)),
        }
    }
}

fn unwritten(path: &Path, error: &std::io::Error) -> Failure {
    Failure::running(format!("results cannot be written to {}: {error}", path.display()))
}
