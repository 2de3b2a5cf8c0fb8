//! `shardmill plugin new`: a crate to begin with.

mod lock;
mod name;
mod template;

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use clap::Args;
use shardmill_cause::code;

use self::template::{Choices, Kit};
use crate::cli::{Failure, output, text};

pub(super) const EXAMPLES: &str = "\
Examples:
  shardmill plugin new late-flights                       a record at a time
  shardmill plugin new totals --batch                     a whole batch at a time
  shardmill plugin new late-flights --path ~/work/late
  shardmill plugin new late-flights --sdk ~/shardmill/guest-sdk/rust     the kit of a checkout, instead of a copy

The crate has the kit for processors with it, in the folder `sdk`, as it goes with this program: nothing but what is on crates.io
has to be fetched. It needs Rust with the target wasm32-wasip2, which rustup gets by itself.";

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The crate's name, which is the processor's as well: lower-case letters, digits, `-` and `_`.
    #[arg(value_name = "NAME")]
    name: String,
    /// Write it to this folder, which is made if it is not there; by default one of the crate's name.
    #[arg(long, value_name = "DIR")]
    path: Option<PathBuf>,
    /// Take a batch at a time, for totals of a batch or one question about many records. Without it, a record at a time, which
    /// is good for nearly everything.
    #[arg(long)]
    batch: bool,
    /// Use the kit that is in this folder, such as `guest-sdk/rust` of a checkout, instead of a copy of this program's.
    #[arg(long, value_name = "DIR")]
    sdk: Option<PathBuf>,
}

pub(super) fn new(arguments: &Arguments) -> Result<(), Failure> {
    let name = arguments.name.as_str();
    name::check(name).map_err(|wrong| {
        let failure = Failure::usage(format!("`{}` is no name for a crate: {wrong}", text::line(name)));
        failure.help(name::suggestion(name).map(|better| format!("write it as `{better}`")).unwrap_or_default())
    })?;
    let folder = arguments.path.clone().unwrap_or_else(|| PathBuf::from(name));
    let kit = match &arguments.sdk {
        None => Kit::Copied,
        Some(path) => Kit::At(kit_at(path)?),
    };
    vacant(&folder)?;
    let choices = Choices { name, takes_batches: arguments.batch, kit };
    for (path, content) in template::files(&choices) {
        let path = folder.join(path);
        write(&path, &content).map_err(|error| {
            Failure::running(format!("{} cannot be written: {error}", path.display()))
                .code(code::command::NOT_WRITTEN)
                .help(format!("what is in {} is not the whole crate: remove it, and try again", folder.display()))
        })?;
    }
    output::line(said(&folder, &choices));
    Ok(())
}

fn write(path: &Path, content: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    // Never over what somebody has put there meanwhile.
    io::Write::write_all(&mut fs::File::create_new(path)?, content.as_bytes())
}

/// Nothing is written where something is already; a repository that is empty is nothing.
fn vacant(folder: &Path) -> Result<(), Failure> {
    let shown = folder.display();
    let is_something = |entry: io::Result<fs::DirEntry>| entry.is_ok_and(|entry| entry.file_name() != ".git");
    match fs::read_dir(folder).map(|mut entries| entries.any(is_something)) {
        Ok(false) => Ok(()),
        Ok(true) => Err(Failure::usage(format!("the folder {shown} has something in it, and nothing was written"))
            .code(code::command::EXISTS)
            .help("name another folder with --path, or empty this one")),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotADirectory => {
            Err(Failure::usage(format!("{shown} is no folder, and nothing was written"))
                .code(code::command::EXISTS)
                .help("name another folder with --path"))
        }
        Err(error) => {
            Err(Failure::running(format!("{shown} cannot be looked into: {error}")).code(code::command::NOT_WRITTEN))
        }
    }
}

/// The kit of a checkout, by a path that holds wherever the crate is.
fn kit_at(path: &Path) -> Result<PathBuf, Failure> {
    let wrong = |why: String| {
        let failure = Failure::usage(format!("there is no kit for processors in {}: {why}", path.display()))
            .code(code::command::KIT);
        failure.help("name the folder guest-sdk/rust of a checkout, or leave --sdk out")
    };
    let manifest = fs::read_to_string(path.join("Cargo.toml"))
        .map_err(|error| wrong(format!("its Cargo.toml cannot be read: {error}")))?;
    let manifest: toml::Table = toml::from_str(&manifest)
        .map_err(|error| wrong(format!("its Cargo.toml makes no sense: {}", error.message())))?;
    let found = manifest.get("package").and_then(|package| package.get("name")).and_then(toml::Value::as_str);
    if found != Some("shardmill-guest") {
        return Err(wrong(format!("its crate is `{}`, and not `shardmill-guest`", found.unwrap_or_default())));
    }
    let path = fs::canonicalize(path).map_err(|error| wrong(error.to_string()))?;
    match path.to_str() {
        Some(_) => Ok(path),
        None => Err(wrong("its path is not UTF-8, as paths in a Cargo.toml are".to_owned())),
    }
}

/// What is there now, and what comes next.
fn said(folder: &Path, choices: &Choices<'_>) -> String {
    let kit = match &choices.kit {
        Kit::Copied => format!("shardmill-guest {}, in the folder sdk", env!("CARGO_PKG_VERSION")),
        Kit::At(path) => format!("shardmill-guest, in {}", path.display()),
    };
    let folder = folder.display();
    let next = "  cargo test
  cargo build --release --target wasm32-wasip2
  shardmill plugin test --config shardmill.toml --records records.jsonl --expect expected.jsonl";
    let said = format!(
        "{folder}: a processor in Rust, with tests, records to try it with, and a configuration.\nThe kit: {kit}.\n\nNext:\n  cd {folder}\n{next}\n\nWithout the target: rustup target add wasm32-wasip2. README.md has the rest."
    );
    text::lines(&said)
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn told(result: Result<impl std::fmt::Debug, Failure>) -> String {
        result.unwrap_err().message()
    }

    #[test]
    fn nothing_is_written_where_something_is() {
        let folder = TempDir::new().unwrap();
        assert!(vacant(folder.path()).is_ok() && vacant(&folder.path().join("new")).is_ok());
        fs::create_dir(folder.path().join(".git")).unwrap();
        assert!(vacant(folder.path()).is_ok());
        let file = folder.path().join("file");
        fs::write(&file, "mine").unwrap();
        assert!(told(vacant(folder.path())).contains("has something in it"));
        assert!(told(vacant(&file)).contains("is no folder"));
        assert_eq!(write(&file, "ours").unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    }

    #[test]
    fn a_kit_is_one_by_the_name_of_its_crate() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert!(kit_at(&root.join("../../guest-sdk/rust")).unwrap().is_absolute());
        assert!(told(kit_at(root)).contains("its crate is `shardmill`"));
        assert!(told(kit_at(&root.join("src"))).contains("cannot be read"));
    }
}
