//! The files of a new crate.

use std::borrow::Cow;
use std::path::PathBuf;

use super::lock::lock;

/// What the crate is to be.
#[derive(Debug)]
pub(super) struct Choices<'a> {
    /// A name that [can be](super::name::check).
    pub(super) name: &'a str,
    pub(super) takes_batches: bool,
    pub(super) kit: Kit,
}

/// Where its kit is.
#[derive(Debug)]
pub(super) enum Kit {
    /// With the crate: it goes with this program, and nobody has to find or to fetch it.
    Copied,
    /// In this folder.
    At(PathBuf),
}

macro_rules! template {
    ($path:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/templates/plugin/", $path))
    };
}

/// Files of the repository by their paths in the copy and in a folder of the repository.
macro_rules! copied {
    ($folder:literal: $($path:literal),* $(,)?) => {
        &[$(($path, include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../", $folder, "/", $path)))),*]
    };
}

/// The kit but for its manifest, which is one of this repository's workspace. A test sees that none is missing.
const KIT: &[(&str, &str)] = copied!("guest-sdk/rust":
    "README.md",
    "src/batch.rs",
    "src/bindings.rs",
    "src/component.rs",
    "src/error.rs",
    "src/export.rs",
    "src/hooks.rs",
    "src/lib.rs",
    "src/log.rs",
    "src/metrics.rs",
    "src/outcome.rs",
    "src/output.rs",
    "src/processor.rs",
    "src/shard.rs",
    "src/testing/inspect.rs",
    "src/testing/mod.rs",
    "src/testing/recorder.rs",
    "src/testing/records.rs",
);

/// The contract, in the folder where the copy of the kit looks for it.
const CONTRACT: &[(&str, &str)] =
    copied!("wit": "v0.1/host.wit", "v0.1/processor.wit", "v0.1/types.wit", "v0.1/worlds.wit");

/// Where the kit of the repository looks for the contract, and where its copy does.
const CONTRACT_AT: [&str; 2] = ["\"../../wit/", "\"wit/"];

const LICENSE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../LICENSE"));

/// Each file's path in the folder of the crate, and what is in it.
pub(super) fn files(choices: &Choices<'_>) -> Vec<(String, Cow<'static, str>)> {
    let name = choices.name;
    let (code, expected, output, stream) = if choices.takes_batches {
        (template!("batch/lib.rs"), template!("batch/expected.jsonl"), "totals", "customer-totals")
    } else {
        (template!("record/lib.rs"), template!("record/expected.jsonl"), "large", "large-orders")
    };
    let (kit_path, kit_comment) = match &choices.kit {
        Kit::Copied => ("sdk".to_owned(), "The kit for processors, as it comes with the host."),
        Kit::At(path) => (path.display().to_string(), "The kit for processors, of a checkout of Shardmill."),
    };
    let filled = |text: &str| {
        let values = [
            ("name", name),
            ("file", &name.replace('-', "_")),
            ("output", output),
            ("output-stream", stream),
            // A text of JSON is one of TOML.
            ("sdk-path", &serde_json::Value::from(kit_path.as_str()).to_string()),
            ("sdk-comment", kit_comment),
            ("version", env!("CARGO_PKG_VERSION")),
            ("rust-version", env!("CARGO_PKG_RUST_VERSION")),
        ];
        let fill = |text: String, (key, value): (&str, &str)| text.replace(&format!("{{{{{key}}}}}"), value);
        Cow::Owned(values.into_iter().fold(text.to_owned(), fill))
    };
    let mut files = vec![
        ("Cargo.toml".to_owned(), filled(template!("Cargo.toml.in"))),
        ("src/lib.rs".to_owned(), code.into()),
        ("shardmill.toml".to_owned(), filled(template!("shardmill.toml.in"))),
        ("records.jsonl".to_owned(), template!("records.jsonl").into()),
        ("expected.jsonl".to_owned(), expected.into()),
        ("README.md".to_owned(), filled(template!("README.md.in"))),
        ("rust-toolchain.toml".to_owned(), template!("rust-toolchain.toml").into()),
        (".cargo/config.toml".to_owned(), template!("cargo-config.toml").into()),
        ("Cargo.lock".to_owned(), lock(name, env!("CARGO_PKG_VERSION")).into()),
        (".gitignore".to_owned(), template!("gitignore").into()),
    ];
    if let Kit::Copied = choices.kit {
        files.push(("sdk/Cargo.toml".to_owned(), filled(template!("kit.Cargo.toml.in"))));
        files.push(("sdk/LICENSE".to_owned(), LICENSE.into()));
        let [here, there] = CONTRACT_AT;
        files.extend(KIT.iter().map(|(path, text)| (format!("sdk/{path}"), text.replace(here, there).into())));
        files.extend(CONTRACT.iter().map(|(path, text)| (format!("sdk/wit/{path}"), (*text).into())));
    }
    files
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    fn repository() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    /// The paths of all files beneath a folder.
    fn beneath(folder: &Path) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        let mut folders = vec![folder.to_owned()];
        while let Some(next) = folders.pop() {
            for entry in fs::read_dir(next).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    found.insert(path.strip_prefix(folder).unwrap().display().to_string());
                }
            }
        }
        found
    }

    fn all(takes_batches: bool, kit: Kit) -> Vec<(String, Cow<'static, str>)> {
        files(&Choices { name: "late-flights", takes_batches, kit })
    }

    #[test]
    fn the_copy_of_the_kit_is_whole() {
        let paths = |files: &[(&str, &str)]| files.iter().map(|(path, _)| (*path).to_owned()).collect::<BTreeSet<_>>();
        let kit = repository().join("guest-sdk/rust");
        let mut sources: BTreeSet<_> =
            beneath(&kit.join("src")).into_iter().map(|path| format!("src/{path}")).collect();
        sources.insert("README.md".to_owned());
        assert_eq!(paths(KIT), sources, "KIT names each file of guest-sdk/rust");
        assert_eq!(paths(CONTRACT), beneath(&repository().join("wit")), "CONTRACT names each file of wit");
        // And it finds the contract where it is.
        let files = all(false, Kit::Copied);
        let bindings = &files.iter().find(|(path, _)| path == "sdk/src/bindings.rs").unwrap().1;
        assert!(bindings.contains(CONTRACT_AT[1]) && !bindings.contains("../wit"), "{bindings}");
    }

    /// The dependencies of a manifest by the table that they are in, those of the workspace looked up.
    fn dependencies(manifest: &str) -> Vec<(String, toml::Value)> {
        let manifest: toml::Table = toml::from_str(manifest).unwrap();
        let workspace = fs::read_to_string(repository().join("Cargo.toml")).unwrap();
        let workspace: toml::Table = toml::from_str(&workspace).unwrap();
        let of_guests = manifest["target"].as_table().unwrap().values().next().unwrap();
        let mut found = Vec::new();
        for table in [&manifest["dependencies"], &of_guests["dependencies"]] {
            for (name, version) in table.as_table().unwrap() {
                let is_shared = version.get("workspace").is_some();
                let version = if is_shared { &workspace["workspace"]["dependencies"][name] } else { version };
                found.push((name.clone(), version.clone()));
            }
        }
        found
    }

    #[test]
    fn the_copy_of_the_kit_depends_on_what_the_kit_depends_on() {
        let kit = fs::read_to_string(repository().join("guest-sdk/rust/Cargo.toml")).unwrap();
        let files = all(false, Kit::Copied);
        let copy = &files.iter().find(|(path, _)| path == "sdk/Cargo.toml").unwrap().1;
        assert_eq!(dependencies(copy), dependencies(&kit));
        let copy: toml::Table = toml::from_str(copy).unwrap();
        assert_eq!(copy["package"]["version"].as_str(), Some(env!("CARGO_PKG_VERSION")));
    }

    #[test]
    fn a_crate_is_compiled_as_those_of_the_repository_are() {
        let own = fs::read_to_string(repository().join(".cargo/config.toml")).unwrap();
        let own: toml::Table = toml::from_str(&own).unwrap();
        let new: toml::Table = toml::from_str(template!("cargo-config.toml")).unwrap();
        assert_eq!(new, own);
        let manifest = fs::read_to_string(repository().join("Cargo.toml")).unwrap();
        let manifest: toml::Table = toml::from_str(&manifest).unwrap();
        let new: toml::Table = toml::from_str(&all(false, Kit::Copied)[0].1).unwrap();
        for (key, value) in new["profile"]["release"].as_table().unwrap() {
            assert_eq!(Some(value), manifest["profile"]["guest"].get(key), "{key}");
        }
    }

    #[test]
    fn the_lock_has_what_the_manifests_ask_for() {
        let files = all(false, Kit::Copied);
        let text = |wanted: &str| &*files.iter().find(|(path, _)| path == wanted).unwrap().1;
        let lock: toml::Table = toml::from_str(text("Cargo.lock")).unwrap();
        let asked_for = |name: &str| -> Vec<String> {
            let packages = lock["package"].as_array().unwrap();
            let package = packages.iter().find(|package| package["name"].as_str() == Some(name)).unwrap();
            let names = package["dependencies"].as_array().unwrap().iter();
            names.map(|name| name.as_str().unwrap().to_owned()).collect()
        };
        let manifest: toml::Table = toml::from_str(text("Cargo.toml")).unwrap();
        let of_crate: Vec<String> = manifest["dependencies"].as_table().unwrap().keys().cloned().collect();
        assert_eq!(asked_for("late-flights"), of_crate);
        let of_kit: BTreeSet<String> = dependencies(text("sdk/Cargo.toml")).into_iter().map(|(name, _)| name).collect();
        assert_eq!(asked_for("shardmill-guest"), of_kit.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn every_gap_is_filled_and_every_file_makes_sense() {
        for takes_batches in [false, true] {
            for kit in [Kit::Copied, Kit::At(PathBuf::from("/a \"b\"\\c"))] {
                let is_copied = matches!(kit, Kit::Copied);
                let files = all(takes_batches, kit);
                let text = |wanted: &str| {
                    let file = files.iter().find(|(path, _)| path == wanted);
                    file.map(|(_, text)| text.clone().into_owned()).unwrap_or_default()
                };
                for (path, text) in
                    files.iter().filter(|(path, _)| !path.starts_with("sdk/") || path.ends_with(".toml"))
                {
                    assert!(!text.contains("{{") && text.ends_with('\n'), "{path}:\n{text}");
                }
                let manifest: toml::Table = toml::from_str(&text("Cargo.toml")).unwrap();
                assert_eq!(manifest["package"]["name"].as_str(), Some("late-flights"));
                let kit_path = manifest["dependencies"]["shardmill-guest"]["path"].as_str();
                assert_eq!(kit_path, Some(if is_copied { "sdk" } else { "/a \"b\"\\c" }));
                assert_eq!(!text("sdk/src/lib.rs").is_empty(), is_copied);

                let config = crate::config::parse("shardmill.toml", &text("shardmill.toml"), Path::new("")).unwrap();
                let processor = &config.processors["late-flights"];
                assert_eq!(processor.plugin, Path::new("target/wasm32-wasip2/release/late_flights.wasm"));
                let output = processor.outputs.keys().next().unwrap();
                assert!(text("src/lib.rs").contains(&format!("\"{output}\"")));
                assert_eq!(config.warnings, Vec::<String>::new());
            }
        }
    }
}
