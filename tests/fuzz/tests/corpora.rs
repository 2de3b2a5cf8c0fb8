//! Bytes that were of interest once are taken as they must be, without libFuzzer: those that somebody wrote for a target
//! (`seeds`), and those that were found (`corpora`), among them all that were taken wrongly.

use std::collections::BTreeSet;
use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use shardmill_fuzz::targets::{ALL, Target};

/// A corpus is small enough to go through it with each test.
const MAX_FILES: usize = 400;
const MAX_BYTES: u64 = 400 << 10;

fn here(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)
}

/// In the order of their names.
fn entries(folder: &Path) -> BTreeSet<PathBuf> {
    let listed = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    listed.map(|entry| entry.expect("an entry").path()).collect()
}

fn names(folder: &str) -> BTreeSet<String> {
    let name = |path: &PathBuf| path.file_stem().expect("a name").to_string_lossy().into_owned();
    entries(&here(folder)).iter().map(name).collect()
}

/// The files that a target has to take.
fn inputs(target: &Target) -> BTreeSet<PathBuf> {
    let folders = ["seeds", "corpora"].map(|folder| here(folder).join(target.name));
    folders.iter().filter(|folder| folder.exists()).flat_map(|folder| entries(folder)).collect()
}

#[test]
fn each_target_takes_all_that_was_of_interest_once() {
    let mut failed = Vec::new();
    for target in ALL {
        for path in inputs(&target) {
            let bytes = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            if catch_unwind(|| (target.run)(&bytes)).is_err() {
                failed.push(format!("{}: {}", target.name, path.display()));
            }
        }
    }
    assert!(failed.is_empty(), "taken wrongly, see above:\n{}", failed.join("\n"));
}

#[test]
fn each_target_has_a_program_and_a_small_corpus() {
    let targets: BTreeSet<String> = ALL.iter().map(|target| target.name.to_owned()).collect();
    let programs = names("src/bin").iter().map(|name| name.replace('_', "-")).collect();
    assert_eq!(targets, programs, "in src/bin");
    assert_eq!(targets, names("corpora"), "in corpora");
    assert!(names("seeds").is_subset(&targets) && names("dictionaries").is_subset(&targets));
    for target in ALL {
        let inputs = inputs(&target);
        let bytes: u64 = inputs.iter().map(|path| fs::metadata(path).map_or(0, |metadata| metadata.len())).sum();
        assert!((1..=MAX_FILES).contains(&inputs.len()), "{}: {} files", target.name, inputs.len());
        assert!(bytes <= MAX_BYTES, "{}: {bytes} bytes", target.name);
    }
}
