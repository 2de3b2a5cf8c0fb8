//! What the sources say of errors: each code is given by something, and each kind of error has one.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use shardmill_cause::code::ROOMS;
use shardmill_tests::paths;

/// Errors that nobody is shown: they say why something is tried otherwise, or stand beneath one that has a code.
const BENEATH: &[&str] = &[
    // host/lease: what the coordinator logs of its own tasks, and what lies beneath an error of the store.
    "lease/src/coordinator/sync.rs",
    "lease/src/store/dynamodb/error.rs",
    "lease/src/store/dynamodb/table.rs",
    "lease/src/store/memory.rs",
    "lease/src/writer.rs",
    // host/engine: what keeps a listing from being used.
    "engine/src/shard_source.rs",
    // host/stream: an answer that is asked for again with more room.
    "stream/src/polling/wire/one_piece.rs",
    // host/plugin: stands in `module::Error::TooMuch`.
    "plugin/src/shape.rs",
    // host/shardmill: what is shown of a failure.
    "shardmill/src/cli/exit.rs",
    // host/shardmill: stands in `put::read::Error`.
    "shardmill/src/cli/put/columns.rs",
    // host/cause: the tests' own.
    "cause/src/lib.rs",
];

fn sources() -> Vec<(PathBuf, String)> {
    let host = paths::repository().join("host");
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = entries(&host).into_iter().map(|room| room.join("src")).collect();
    while let Some(folder) = folders.pop() {
        for path in entries(&folder) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("a source");
                found.push((path.strip_prefix(&host).expect("a path in the folder").to_owned(), text));
            }
        }
    }
    found
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.map(|entry| entry.expect("an entry").path()).collect()
}

/// The names of codes as constants: `lease::TWIN`.
fn constants(file: &str) -> Vec<String> {
    let lines = file.lines().filter_map(|line| line.trim_start().split_once(" = \"SM"));
    lines.map(|(name, _)| name.to_owned()).collect()
}

#[test]
fn each_code_is_given_by_something() {
    let sources = sources();
    let codes = Path::new("cause/src/code");
    let mut count = 0;
    for (path, text) in sources.iter().filter(|(path, _)| path.starts_with(codes)) {
        for name in constants(text) {
            count += 1;
            let room = path.file_stem().and_then(|stem| stem.to_str()).expect("a room's name");
            // Where the configuration is checked, its codes are `code::NAME`.
            let names = [format!("{room}::{name}"), format!("code::{name}")];
            let is_given = sources.iter().any(|(other, text)| {
                let is_used = |name: &String| {
                    text.match_indices(name.as_str()).any(|(at, _)| {
                        !text[at + name.len()..].starts_with(|next: char| next.is_alphanumeric() || next == '_')
                    })
                };
                !other.starts_with(codes) && (is_used(&names[0]) || room == "config" && is_used(&names[1]))
            });
            assert!(is_given, "nothing gives the code {room}::{name}");
        }
    }
    assert_eq!(count, ROOMS.iter().map(|room| room.codes.len()).sum::<usize>());
}

#[test]
fn each_kind_of_error_has_a_code() {
    let mut kinds: BTreeMap<(String, String), usize> = BTreeMap::new();
    let mut coded = kinds.clone();
    for (path, text) in &sources() {
        let room = path.iter().next().and_then(|room| room.to_str()).expect("a room's name").to_owned();
        for rest in text.split("impl Coded for ").skip(1) {
            let name = rest.split([' ', '<']).next().and_then(|name| name.rsplit("::").next()).unwrap_or_default();
            *coded.entry((room.clone(), name.to_owned())).or_default() += 1;
        }
        if BENEATH.iter().any(|beneath| path == Path::new(beneath)) {
            continue;
        }
        for rest in text.split("thiserror::Error").skip(1) {
            let ends = [" enum ", " struct "].into_iter().filter_map(|kind| Some(rest.find(kind)? + kind.len()));
            let name = &rest[ends.min().expect("an error is an enum or a struct")..];
            let name = name.split(|next: char| !next.is_alphanumeric()).next().unwrap_or_default();
            *kinds.entry((room.clone(), shown_as(path, name).to_owned())).or_default() += 1;
        }
    }
    assert!(kinds.len() > 30, "{kinds:?}");
    for (kind, count) in &kinds {
        let found = coded.get(kind).copied().unwrap_or_default();
        assert!(found >= *count, "{count} errors of the room and name {kind:?}, and {found} have a code");
    }
}

/// Under which name a crate shows an error to the rest of itself.
fn shown_as<'a>(path: &Path, name: &'a str) -> &'a str {
    match (path.to_str(), name) {
        (Some("lease/src/options.rs"), "Invalid") => "InvalidOptions",
        (Some("stream/src/polling/options.rs"), "Error") => "OptionsError",
        (Some("shardmill/src/deploy/grants.rs"), "Error") => "GrantError",
        (Some("shardmill/src/admin/token.rs"), "Error") => "TokenError",
        (Some("shardmill/src/cli/put/read.rs"), "Error") => "InputError",
        (Some("shardmill/src/cli/stream/reshard.rs"), "Error") => "ReshardError",
        _as_it_is => name,
    }
}
