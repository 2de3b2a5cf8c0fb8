//! Reads a configuration and says what is wrong with it.

use std::path::{Path, PathBuf};

use miette::Diagnostic;

use super::Config;
use super::file::File;
use super::report::{Mistake, span_of};
use super::resolve;

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error, Diagnostic)]
pub enum Error {
    /// The file cannot be read.
    #[error("cannot read the configuration {}", path.display())]
    #[diagnostic(help("name a readable TOML file with --config FILE"))]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Something in it is wrong.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Mistake(Box<Mistake>),
}

/// Reads and checks a file. Paths in it are relative to its folder.
pub fn load(path: &Path) -> Result<Config, Error> {
    let source = std::fs::read_to_string(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
    parse(&path.display().to_string(), &source, path.parent().unwrap_or(Path::new("")))
}

/// Checks a configuration's text. `name` stands for the file in errors; paths in it are relative to `folder`.
pub fn parse(name: &str, source: &str, folder: &Path) -> Result<Config, Error> {
    let mistake = |span, message, label: &str, help| {
        Error::Mistake(Box::new(Mistake::at(name, source, span, message, label, help)))
    };
    let file: File = toml::from_str(source).map_err(|error| {
        let message = error.message().to_owned();
        mistake(error.span().unwrap_or(0..0), message, "here", None)
    })?;
    resolve::resolve(file, folder).map_err(|wrong| {
        let path: Vec<&str> = wrong.path.iter().map(String::as_str).collect();
        let message = format!("{}: {}", wrong.path.join("."), wrong.message);
        mistake(span_of(source, &path), message, "here", wrong.help)
    })
}
