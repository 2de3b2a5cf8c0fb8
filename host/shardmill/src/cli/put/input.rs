//! What a command line says of records that are read from files.

use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args};
use shardmill_cause::code;

use super::parse::{Format, Key};
use super::read::Rules;
use crate::cli::Failure;

/// How records stand in files, for each command that reads some.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("keys").args(["key", "key_field", "key_column"]))]
pub(in crate::cli) struct InputArguments {
    /// How the input is written.
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// The partition key of all records.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Where in a JSON line the partition key is: a JSON pointer, such as /user/id.
    #[arg(long, value_name = "POINTER", value_parser = pointer)]
    key_field: Option<String>,
    /// Which column of CSV the partition key is: its name, or with --no-header its number, from 1.
    #[arg(long, value_name = "COLUMN")]
    key_column: Option<String>,
    /// The first row of CSV is a record as well. Payloads are rows then, byte for byte.
    #[arg(long)]
    no_header: bool,
    /// What separates the columns of CSV; \t for a tab. A comma unless this is named, for files named .tsv a tab.
    #[arg(long, value_name = "CHARACTER", value_parser = delimiter)]
    delimiter: Option<u8>,
    /// Take quotes in CSV for characters like others, as many programs do that write tabs.
    #[arg(long)]
    no_quotes: bool,
}

// === impl InputArguments ===

impl InputArguments {
    /// Whether nothing is said of how the input is written, nor of keys, so that its lines may say it.
    pub(in crate::cli) fn is_open(&self) -> bool {
        self.format.is_none() && self.key.is_none() && self.key_field.is_none() && self.key_column.is_none()
    }

    /// How files are to be read, `-` and none of them being standard input.
    pub(in crate::cli) fn rules(&self, files: &[PathBuf]) -> Result<Rules, Failure> {
        let key = match (&self.key, &self.key_field, &self.key_column) {
            (Some(key), _, _) => Key::Fixed(key.clone()),
            (_, Some(pointer), _) => Key::Field(pointer.clone()),
            (_, _, Some(column)) => Key::Column(column.clone()),
            (None, None, None) => Key::Random,
        };
        let named = named(files);
        let format = match (self.format, key.implies(), named) {
            (Some(format), _, _) | (None, Some(format), _) => format,
            (None, None, Some(Named { format, .. })) => format,
            (None, None, None) if files.iter().any(|file| extension(file).is_some()) => {
                return Err(Failure::usage("the names of the files say different things: say --format")
                    .code(code::input::FORMAT));
            }
            (None, None, None) => Format::Lines,
        };
        if !key.is_of(format) {
            let message =
                "--key-field is for --format jsonl, --key-column for --format csv, and --format tail-json has keys";
            return Err(Failure::usage(message).code(code::input::FORMAT));
        }
        for (is_said, option) in [
            (self.no_header, "--no-header"),
            (self.no_quotes, "--no-quotes"),
            (self.delimiter.is_some(), "--delimiter"),
        ] {
            if is_said && format != Format::Csv {
                return Err(Failure::usage(format!("{option} is for --format csv")).code(code::input::FORMAT));
            }
        }
        let delimiter = self.delimiter.or(named.map(|named| named.delimiter)).unwrap_or(b',');
        Ok(Rules { format, key, has_header: !self.no_header, delimiter, has_quotes: !self.no_quotes })
    }
}

/// What the name of a file says of what is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Named {
    format: Format,
    delimiter: u8,
}

/// What the names of all files say, if they say the same.
fn named(files: &[PathBuf]) -> Option<Named> {
    let (first, rest) = files.split_first()?;
    extension(first).filter(|named| rest.iter().all(|file| extension(file) == Some(*named)))
}

fn extension(file: &Path) -> Option<Named> {
    let (format, delimiter) = match file.extension()?.to_str()?.to_ascii_lowercase().as_str() {
        "csv" => (Format::Csv, b','),
        "tsv" => (Format::Csv, b'\t'),
        "jsonl" | "ndjson" => (Format::Jsonl, b','),
        _other => return None,
    };
    Some(Named { format, delimiter })
}

fn pointer(text: &str) -> Result<String, String> {
    if text.starts_with('/') || text.is_empty() {
        return Ok(text.to_owned());
    }
    Err(format!("a JSON pointer begins with a slash: write /{text}"))
}

fn delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        b"\\t" => Ok(b'\t'),
        [byte] if byte.is_ascii() && !b"\"\r\n".contains(byte) => Ok(*byte),
        _other => Err("one ASCII character is expected, or \\t for a tab".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        files: Vec<PathBuf>,
        #[command(flatten)]
        input: InputArguments,
    }

    fn rules(arguments: &[&str]) -> Result<Rules, String> {
        let line = Line::try_parse_from([&["put"], arguments].concat()).map_err(|error| error.to_string())?;
        line.input.rules(&line.files).map_err(|failure| failure.message())
    }

    #[test]
    fn the_names_of_files_say_how_they_are_written_where_nobody_does() {
        let found = |arguments: &[&str]| rules(arguments).map(|rules| (rules.format, rules.delimiter));
        assert_eq!(found(&["a.csv", "B.CSV", "--key", "z"]), Ok((Format::Csv, b',')));
        assert_eq!(found(&["a.tsv"]), Ok((Format::Csv, b'\t')));
        assert_eq!(found(&["a.tsv", "--delimiter", ";"]), Ok((Format::Csv, b';')));
        assert_eq!(found(&["a.jsonl", "b.ndjson"]), Ok((Format::Jsonl, b',')));
        assert_eq!(found(&["a.csv", "--format", "lines"]), Ok((Format::Lines, b',')));
        assert_eq!(found(&["a.log", "-"]), Ok((Format::Lines, b',')));
        assert_eq!(found(&["a.csv", "--key-field", "/k"]), Ok((Format::Jsonl, b',')));
        assert_eq!(found(&["a.txt", "--key-column", "k"]), Ok((Format::Csv, b',')));
        assert!(rules(&["a.csv", "a.tsv"]).unwrap_err().contains("say --format"));
        assert!(rules(&["a.csv", "-"]).unwrap_err().contains("say --format"));
        assert!(rules(&["--format", "tail-json", "--key", "k"]).unwrap_err().contains("tail-json has keys"));
        assert!(rules(&["a.log", "--no-quotes"]).unwrap_err().contains("--no-quotes is for --format csv"));
    }
}
