//! `shardmill explain`: what the code of an error means, what is kept where it happens, and what there is to do.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _};

use clap::Args;
use serde_json::{Value, json};
use shardmill_cause::code::{Code, ROOMS};

use super::{Failure, output, text};

pub(super) const EXAMPLES: &str = "\
Examples:
  shardmill explain SM0303            what does it mean, what is kept, what is to be done?
  shardmill explain                   all codes
  shardmill explain SM0303 --json     for machines; without a code, all of them

Each failure of a command names its code, and so do lines of the log in the field `code`.
docs/errors.md has all of them, with examples.";

/// How long lines are, with their indent.
const WIDTH: usize = 96;
const INDENT: &str = "  ";

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// A code such as SM0303, in capital or small letters. Without it, all are listed.
    #[arg(value_name = "CODE")]
    code: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn explain(arguments: &Arguments) -> Result<(), Failure> {
    let colored = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    match (&arguments.code, arguments.json) {
        (Some(name), json) => {
            let code = find(name)?;
            output::line(if json { text::json(&as_json(code)) } else { told(code, colored) });
        }
        (None, true) => output::line(text::json(&Code::all().map(as_json).collect())),
        (None, false) => output::line(all(colored)),
    }
    Ok(())
}

fn find(name: &str) -> Result<Code, Failure> {
    Code::parse(name.trim()).ok_or_else(|| {
        let failure = Failure::usage(format!("there is no error `{}`", text::line(name)));
        match nearest(name) {
            Some(code) => {
                failure.help(format!("did you mean {code}, \"{}\"? `shardmill explain` lists all", code.title()))
            }
            None => failure.help("codes are SM and four digits; `shardmill explain` lists all"),
        }
    })
}

/// The code that was meant by a name that is none, if one is near.
fn nearest(name: &str) -> Option<Code> {
    /// A digit more, less or wrong.
    const FEW: usize = 1;
    let name = name.trim().to_ascii_uppercase();
    let name = if name.starts_with("SM") { name } else { format!("SM{name}") };
    let distance = |code: &Code| strsim::damerau_levenshtein(&name, code.name());
    Code::all().min_by_key(distance).filter(|code| distance(code) <= FEW)
}

fn told(code: Code, colored: bool) -> String {
    let mut told = format!("{}  {}", heading(code.name(), colored), code.title());
    for (title, part) in [("What it means", code.means()), ("What is kept", code.kept()), ("What to do", code.next())] {
        // A text takes all that is written to it.
        let _ = write!(told, "\n\n{}\n{}", heading(title, colored), wrapped(part));
    }
    told
}

fn all(colored: bool) -> String {
    let mut listed = String::new();
    for room in ROOMS {
        let _ = writeln!(listed, "{}", heading(room.title, colored));
        for code in room.codes {
            let _ = writeln!(listed, "{INDENT}{code}  {}", code.title());
        }
        listed.push('\n');
    }
    listed + "`shardmill explain CODE` says what one means, what is kept, and what to do."
}

fn as_json(code: Code) -> Value {
    json!({
        "code": code.name(),
        "title": code.title(),
        "means": code.means(),
        "kept": code.kept(),
        "do": code.next(),
    })
}

fn heading(text: &str, colored: bool) -> String {
    if colored { format!("\u{1b}[1m{text}\u{1b}[0m") } else { text.to_owned() }
}

/// A paragraph in indented lines. What stands in backticks stays on one, to be copied.
fn wrapped(paragraph: &str) -> String {
    let mut lines = String::new();
    let mut length = 0;
    for piece in pieces(paragraph) {
        let width = piece.chars().count();
        if length > 0 && length + 1 + width > WIDTH {
            lines.push('\n');
            length = 0;
        }
        lines.push_str(if length == 0 { INDENT } else { " " });
        lines.push_str(piece);
        length += width + if length == 0 { INDENT.len() } else { 1 };
    }
    lines
}

/// Words, and what stands between backticks as one.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    text.split(move |character| {
        in_code ^= character == '`';
        character == ' ' && !in_code
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_explained_keeps_its_words_and_fits_its_lines() {
        for code in Code::all() {
            let told = told(code, false);
            assert!(told.lines().all(|line| line.chars().count() <= WIDTH + INDENT.len()), "{told}");
            let words = told.split_whitespace().collect::<Vec<_>>().join(" ");
            for part in [code.title(), code.means(), code.kept(), code.next()] {
                assert!(words.contains(part), "{code}: {part} in {words}");
            }
        }
        assert_eq!(wrapped(&format!("{} `a b c d`", "x".repeat(90))), format!("  {}\n  `a b c d`", "x".repeat(90)));
    }

    #[test]
    fn a_code_that_is_none_is_told_with_the_one_that_was_meant() {
        for (name, meant) in [("0303", "SM0303"), ("sm0330", "SM0303"), ("SM03033", "SM0303")] {
            assert!(nearest(name).is_some_and(|code| code.name().starts_with(meant)), "{name}: {:?}", nearest(name));
        }
        assert_eq!(nearest("E0599"), None);
        assert_eq!(nearest("\u{1b}[2J"), None);
        let failure = find("SM9\u{1b}999").unwrap_err();
        assert_eq!(failure.message(), "there is no error `SM9\\u{1b}999`");
        assert_eq!(find(" sm0303 ").ok(), Code::parse("SM0303"));
    }
}
