//! Reads a configuration and says what is wrong with it.

use std::fs::File as OpenFile;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use miette::Diagnostic;
use shardmill_cause::Code;
use shardmill_cause::code::config as code;
use toml::de::DeTable;

use super::check::Wrong;
use super::file::File;
use super::report::{Mistake, line_of, place_of};
use super::warnings::{self, Warning};
use super::{Config, TokenSource, resolve};
use crate::admin::Token;

/// No configuration is as large as this; a device is.
const MAX_BYTES: u64 = 4 << 20;

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
        source: io::Error,
    },
    /// Something in it is wrong.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Mistake(Box<Mistake>),
}

/// A configuration's file, as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Where it is.
    pub path: PathBuf,
    /// What was in it.
    pub text: String,
}

/// Reads and checks a file, and sees whether the plugins that it names can be read. Paths in it are relative to its
/// folder.
pub fn load(path: &Path) -> Result<Config, Error> {
    load_with_source(path).map(|(config, _source)| config)
}

/// As [`load`], with the file's text: what a host needs that reads it again while it runs.
pub fn load_with_source(path: &Path) -> Result<(Config, Source), Error> {
    let (name, source, config) = read_and_parse(path)?;
    if let Some(token) = &config.admin.token {
        Token::read(token).map_err(|error| {
            let key = match token {
                TokenSource::File(_) => "token-file",
                TokenSource::Variable(_) => "token-env",
            };
            let path = ["admin", key].map(str::to_owned).into();
            mistake(
                &name,
                &source,
                Wrong { path, message: error.to_string(), help: None, code: shardmill_cause::Coded::code(&error) },
            )
        })?;
    }
    for processor in config.processors.values() {
        readable(&processor.plugin).map_err(|error| {
            let wrong = Wrong {
                path: ["processors", &processor.name, "plugin"].map(str::to_owned).into(),
                message: format!("the plugin {} cannot be read: {error}", processor.plugin.display()),
                help: Some("build it, or correct the path, which is relative to this file's folder".to_owned()),
                code: code::FILE,
            };
            mistake(&name, &source, wrong)
        })?;
        let Some(trial) = &processor.trial else { continue };
        readable(trial).map_err(|error| {
            let wrong = Wrong {
                path: ["processors", &processor.name, "reload", "trial"].map(str::to_owned).into(),
                message: format!("the trial records {} cannot be read: {error}", trial.display()),
                help: Some("`shardmill tail STREAM --json` prints such records".to_owned()),
                code: code::FILE,
            };
            mistake(&name, &source, wrong)
        })?;
    }
    Ok((config, Source { path: path.to_owned(), text: source }))
}

impl Error {
    /// What is wrong, with file, line and key, in one line.
    pub(crate) fn sentence(&self) -> String {
        match self {
            Self::Read { .. } => shardmill_cause::with_causes(self),
            Self::Mistake(mistake) => mistake.sentence(),
        }
    }
}

/// Reads and checks a file as [`load`] does, for commands that run no plugin: they may be on a machine that has none.
pub fn load_without_plugins(path: &Path) -> Result<Config, Error> {
    read_and_parse(path).map(|(_name, _source, config)| config)
}

fn read_and_parse(path: &Path) -> Result<(String, String, Config), Error> {
    let name = path.display().to_string();
    let source = read(path, &name)?;
    let config = parse(&name, &source, path.parent().unwrap_or(Path::new("")))?;
    Ok((name, source, config))
}

/// Checks a configuration's text. `name` stands for the file in errors; paths in it are relative to `folder`.
pub fn parse(name: &str, source: &str, folder: &Path) -> Result<Config, Error> {
    let file: File = toml::from_str(source).map_err(|error| {
        let message = error.message().to_owned();
        let code = of_toml(source, &message);
        let span = error.span().unwrap_or(0..0);
        Error::Mistake(Box::new(Mistake::at(name, source, span, message, "here", (code, None))))
    })?;
    let mut warnings = warnings::unused_streams(&file);
    let mut config = resolve::resolve(file, folder).map_err(|wrong| mistake(name, source, wrong))?;
    warnings.extend(warnings::loops(&config));
    warnings.extend(warnings::idle_tolerances(&config));
    warnings.extend(warnings::idle_lanes(&config));
    config.warnings = warnings.into_iter().map(|warning| told(name, source, &warning)).collect();
    Ok(config)
}

/// Of a mistake that the reader of TOML tells in words alone.
fn of_toml(source: &str, message: &str) -> Code {
    if DeTable::parse(source).is_err() {
        code::SYNTAX
    } else if message.starts_with("unknown field") {
        code::UNKNOWN_KEY
    } else if message.starts_with("missing field") {
        code::MISSING
    } else {
        code::WRONG_TYPE
    }
}

fn mistake(name: &str, source: &str, wrong: Wrong) -> Error {
    let place = place_of(source, &wrong.path);
    let message = format!("{}: {}", place.key, wrong.message);
    Error::Mistake(Box::new(Mistake::at(name, source, place.span, message, "here", (wrong.code, wrong.help))))
}

fn told(name: &str, source: &str, warning: &Warning) -> String {
    let place = place_of(source, &warning.path);
    format!("{name}:{}: {}: {}", line_of(source, &place.span), place.key, warning.message)
}

fn read(path: &Path, name: &str) -> Result<String, Error> {
    let failed = |source| Error::Read { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = OpenFile::open(path).map_err(failed)?;
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(failed(io::Error::new(io::ErrorKind::FileTooLarge, "it is larger than 4 MiB")));
    }
    String::from_utf8(bytes).map_err(|error| {
        let start = error.utf8_error().valid_up_to();
        let bytes = error.into_bytes();
        let text = String::from_utf8_lossy(&bytes);
        let end = start + char::REPLACEMENT_CHARACTER.len_utf8();
        let message = format!("it is not UTF-8: the byte 0x{:02x} cannot stand here", bytes[start]);
        let help = Some("save it as UTF-8".to_owned());
        Error::Mistake(Box::new(Mistake::at(name, &text, start..end, message, "here", (code::NOT_UTF8, help))))
    })
}

/// Whether a plugin's file can be read: what is in it is judged when it is loaded.
fn readable(path: &Path) -> io::Result<()> {
    crate::file::open(path).map(drop)
}
