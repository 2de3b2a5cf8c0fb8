//! docs/promises.md: what the README says is said there word for word, and what shows it is there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Where this crate's parent is: the whole project.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is in the project").to_owned()
}

fn read(name: &str) -> String {
    let path = root().join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Lines are broken where they are full.
fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A row: what the README says, and the names of what shows it.
struct Promise {
    said: String,
    shown_by: Vec<String>,
}

fn promises(text: &str) -> Vec<Promise> {
    let rows = text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| README |"));
    rows.map(|row| {
        let (said, shown_by) = row.trim_matches('|').rsplit_once(" | ").expect("two columns");
        let names = shown_by.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        Promise { said: in_one_line(said), shown_by: names }
    })
    .collect()
}

/// Points, rows of tables and paragraphs of the README that promise something: what is under each heading but code.
fn points(readme: &str) -> Vec<String> {
    let mut points: Vec<String> = Vec::new();
    let (mut is_code, mut is_new) = (false, true);
    for line in readme.lines() {
        if line.starts_with("```") {
            (is_code, is_new) = (!is_code, true);
            continue;
        }
        let is_row = line.starts_with("| ");
        let is_between = line.trim().is_empty() || line.starts_with("| command |") || line.starts_with("|---");
        if is_code || is_between || line.starts_with('#') {
            is_new = true;
        } else if is_new || is_row || line.starts_with("- ") {
            points.push(line.to_owned());
            is_new = false;
        } else if let Some(last) = points.last_mut() {
            last.push(' ');
            last.push_str(line);
        }
    }
    points.iter().map(|point| in_one_line(point)).collect()
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// `folder/file::name` of every test function below these folders.
fn tests() -> BTreeSet<String> {
    let mut found = Vec::new();
    for folder in ["tests/tests", "host/lease/tests", "host/plugin/tests/it"] {
        files(&root().join(folder), &mut found);
    }
    let mut names = BTreeSet::new();
    for path in found {
        let text = fs::read_to_string(&path).expect("a file");
        let file = path.with_extension("");
        let parts: Vec<_> = file.iter().filter_map(|part| part.to_str()).collect();
        let [.., folder, name] = parts[..] else { continue };
        let place = match (folder, name) {
            (folder, "main" | "mod") => folder.to_owned(),
            ("tests" | "it", name) => name.to_owned(),
            (folder, name) => format!("{folder}/{name}"),
        };
        let mut is_test = false;
        for line in text.lines().map(str::trim) {
            if line.starts_with("#[tokio::test") || line == "#[test]" {
                is_test = true;
            } else if let Some(rest) = line.strip_prefix("async fn ").or_else(|| line.strip_prefix("fn "))
                && std::mem::take(&mut is_test)
            {
                let name = rest.split(['(', '<']).next().unwrap_or_default();
                names.insert(format!("{place}::{name}"));
            }
        }
    }
    names
}

#[test]
fn each_promise_is_in_the_readme_word_for_word_and_is_shown_by_what_there_is() {
    let (readme, promises) = (in_one_line(&read("README.md")), promises(&read("docs/promises.md")));
    let (tests, makefile) = (tests(), read("Makefile"));
    assert!(promises.len() > 50 && tests.len() > 300, "{} promises, {} tests", promises.len(), tests.len());
    let mut wrong = Vec::new();
    for Promise { said, shown_by } in &promises {
        if !readme.contains(said) {
            wrong.push(format!("the README does not say: {said}"));
        }
        if shown_by.is_empty() {
            wrong.push(format!("nothing shows: {said}"));
        }
        for name in shown_by {
            let is_there = match name.strip_prefix("make ") {
                Some(target) => makefile.lines().any(|line| line.starts_with(&format!("{target}:"))),
                None => tests.contains(name),
            };
            if !is_there {
                wrong.push(format!("there is no {name}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_point_of_the_readme_is_among_the_promises() {
    let promises = promises(&read("docs/promises.md"));
    // What is a remark and no promise.
    let remarks = [
        "One static binary",
        "On a machine with Rust",
        "It is a type with a function:",
        "Each processor is a consumer",
        "Which records a processor gets",
        "[ARCHITECTURE.md]",
    ];
    let untold: Vec<String> = points(&read("README.md"))
        .into_iter()
        .filter(|point| !remarks.iter().any(|remark| point.starts_with(remark)))
        .filter(|point| !promises.iter().any(|promise| point.contains(&promise.said)))
        .collect();
    assert!(untold.is_empty(), "docs/promises.md has nothing of:\n{}", untold.join("\n"));
}
