//! `docs/errors.md`: made of the cases and the codes, and compared with what is there.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use shardmill_cause::Code;
use shardmill_cause::code::ROOMS;
use shardmill_tests::paths;

use crate::row::{Row, assert_right};

const HEAD: &str = "\
# Errors

Every error has a code. A command that fails names it in its last line, lines of the log have it in the field `code`, and
the reason of a shard that stands still ends with it. `shardmill explain CODE` says what it means, what is kept where it
happens, and what there is to do; that is the second part of this page. The first part is what the tests give to the binary: what
it says, with which code and exit status, and what the tests have seen to be kept.

This page is written by `tests/tests/errors`, with `SHARDMILL_BLESS=1`.

";

/// At least so many cases.
const LEAST: usize = 100;

/// Compares the document with what was seen; writes it anew where `SHARDMILL_BLESS` is set.
pub(crate) fn assert_up_to_date(groups: &[(&str, &[Row])]) {
    let cases: usize = groups.iter().map(|(_, rows)| rows.len()).sum();
    assert!(cases >= LEAST, "{cases} cases");
    let mut names = BTreeSet::new();
    for (title, rows) in groups {
        assert_right(rows);
        for row in *rows {
            assert!(names.insert((title, &row.given)), "{title}: {:?} stands there twice", row.given);
        }
    }
    let (path, made) = (paths::repository().join("docs/errors.md"), text(groups));
    if std::env::var_os("SHARDMILL_BLESS").is_some() {
        std::fs::write(&path, made).expect("the document can be written");
        return;
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = found.lines().zip(made.lines()).find(|(found, made)| found != made);
    assert!(
        found == made,
        "docs/errors.md is not what the binary says: it has {} lines and {} are made; the first that differs: {differs:#?}\n\
         look whether that is as it should be, and write it anew with SHARDMILL_BLESS=1 cargo test --release --locked \
         --workspace --test errors",
        found.lines().count(),
        made.lines().count(),
    );
}

fn text(groups: &[(&str, &[Row])]) -> String {
    let mut text = HEAD.to_owned();
    for (title, rows) in groups {
        push(&mut text, format_args!("## {title}\n\n"));
        push(
            &mut text,
            format_args!("| what was given | what it says | code | exit | what is kept |\n|---|---|---|---|---|\n"),
        );
        for Row { given, says, code, exit, kept, .. } in *rows {
            let exit = exit.map_or_else(|| "runs on".to_owned(), |exit| exit.to_string());
            let (says, link) = (cell(says), link(*code));
            push(&mut text, format_args!("| {given} | {says} | {link} | {exit} | {kept} |\n"));
        }
        text.push('\n');
    }
    text.push_str("# Codes\n\n");
    for room in ROOMS {
        push(&mut text, format_args!("## {}\n\n", room.title));
        for code in room.codes {
            push(&mut text, format_args!("### {code}\n\n**{}.** {}\n\n", code.title(), code.means()));
            push(&mut text, format_args!("*Kept:* {}\n\n*To do:* {}\n\n", code.kept(), code.next()));
        }
    }
    text.truncate(text.trim_end().len());
    text + "\n"
}

fn push(text: &mut String, more: std::fmt::Arguments<'_>) {
    text.write_fmt(more).expect("a text takes more text");
}

/// A text in a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;")
}

fn link(code: Code) -> String {
    format!("[{code}](#{})", code.name().to_lowercase())
}
