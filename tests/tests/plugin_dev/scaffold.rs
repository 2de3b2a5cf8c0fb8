//! `shardmill plugin new`: what it writes builds wherever it is, does what it should, and runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use shardmill_tests::{Services, assert_says, command, isolated, paths, run, within};
use tokio::process::Command;

use crate::cli::{Folder, text};

/// A compiler may wait for other tests.
const LIMIT: Duration = Duration::from_secs(300);

/// What a person types, but for where it is put: the crates that the tests' guests are made of are taken from where these are
/// built, with the same versions, features and settings, so that of a new crate nothing but itself and its kit is compiled.
async fn cargo(folder: &Path, arguments: &[&str], rustc: &Path) {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut child = isolated(cargo);
    child.args(arguments).args(["--offline", "--profile", "guest", "--config", "profile.guest.inherits=\"release\""]);
    child.arg("--target-dir").arg(paths::target().join("guests")).current_dir(folder).env("RUSTC", rustc);
    // As scripts/build-guests.sh has it.
    child.env_remove("RUSTC_WORKSPACE_WRAPPER");
    let output =
        within(LIMIT, &format!("the end of cargo {arguments:?}"), child.output()).await.expect("cargo can be run");
    let told = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "cargo {arguments:?}: {told}");
    assert!(!told.contains("warning"), "{told}");
}

/// The compiler that has the target.
async fn rustc() -> PathBuf {
    let mut script = Command::new(paths::repository().join("scripts/wasm-toolchain.sh"));
    let output = within(LIMIT, "the compiler", script.output()).await.expect("the script can be run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    PathBuf::from(String::from_utf8(output.stdout).expect("a path").trim_end())
}

/// Builds a crate, all within this machine; where its component is. Its unit tests are run with those of the kit
/// (guest-sdk/rust/tests/templates.rs), where all that they need is compiled already.
async fn build(folder: &Path, name: &str) -> PathBuf {
    // It asks rustup for a toolchain by its name, and this machine's has any.
    fs::remove_file(folder.join("rust-toolchain.toml")).expect("a file");
    let here = paths::repository().canonicalize().expect("this repository");
    assert!(
        !folder.canonicalize().expect("a folder").starts_with(here),
        "nothing of the repository is found from there"
    );
    let locked = fs::read_to_string(folder.join("Cargo.lock")).expect("versions");
    cargo(folder, &["build", "--target", "wasm32-wasip2"], &rustc().await).await;
    let built = fs::read_to_string(folder.join("Cargo.lock")).expect("versions");
    for line in built.lines().filter(|line| line.starts_with("checksum")) {
        assert!(locked.contains(line), "it was built with other versions than are written: {line}");
    }
    let built = paths::target().join("guests/wasm32-wasip2/guest").join(name).with_extension("wasm");
    // Where the configuration looks for what `cargo build --release` makes.
    let component = folder.join("target/wasm32-wasip2/release").join(name).with_extension("wasm");
    fs::create_dir_all(component.parent().expect("a folder")).expect("a folder");
    fs::copy(built, &component).expect("a component");
    component
}

#[tokio::test]
async fn a_new_crate_builds_does_what_it_should_and_runs_on_streams() {
    let folder = Folder::new();
    let new = folder.join("scaffold-orders");
    let said = folder.stdout(0, &["new", "scaffold-orders"]).await;
    for words in ["scaffold-orders: a processor in Rust", "the folder sdk", "cargo test", "plugin test --config"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    build(&new, "scaffold_orders").await;
    let test = |more: &[&str]| {
        let mut child = command();
        child.args(["plugin", "test", "--config", "shardmill.toml", "--records", "records.jsonl"]).args(more);
        child.current_dir(&new).env("XDG_CACHE_HOME", paths::target().join("test-cache"));
        child
    };
    let finished = run(test(&["--expect", "expected.jsonl"])).await;
    assert_eq!(finished.code, Some(0), "{finished:?}");
    let shown =
        ["5 records", "4 done, 1 skipped, 0 failed", "the order has no amount", "large_orders_total 3", "outputs as"];
    assert_says("its test", &finished.stdout, &shown);

    // As its README has it, on the services of this machine.
    let services = Services::start().await;
    services.create_stream("orders", 1).await;
    services.create_stream("large-orders", 1).await;
    let config = fs::read_to_string(new.join("shardmill.toml")).expect("a configuration");
    fs::write(new.join("shardmill.toml"), format!("{config}\n[admin]\nlisten = \"127.0.0.1:0\"\n")).expect("a file");
    let on_services = async |arguments: &[&str]| {
        let mut child = command();
        child.args(arguments).current_dir(&new).envs(services.environment());
        let finished = run(child).await;
        assert_eq!(finished.code, Some(0), "{arguments:?}: {finished:?}");
        finished.stdout
    };
    on_services(&["put", "orders", "records.jsonl", "--key-field", "/customer"]).await;
    on_services(&["run", "--config", "shardmill.toml", "--until-idle", "1s"]).await;
    let all = ["tail", "large-orders", "--from", "trim-horizon", "--until-idle", "0s", "--output", "data"];
    let tailed = on_services(&all).await;
    assert_eq!(tailed.lines().count(), 3, "{tailed}");
    assert!(tailed.contains(r#"{"order":1,"customer":"ada","amount":250.0}"#), "{tailed}");
}

#[tokio::test]
async fn a_crate_for_batches_builds_with_the_kit_of_a_checkout() {
    let folder = Folder::new();
    let kit = paths::repository().join("guest-sdk/rust");
    let new = folder.join("scaffold-totals");
    folder.stdout(0, &["new", "scaffold-totals", "--batch", "--path", text(&new), "--sdk", text(&kit)]).await;
    assert!(!new.join("sdk").exists());
    build(&new, "scaffold_totals").await;
    let [config, records, expected] = ["shardmill.toml", "records.jsonl", "expected.jsonl"].map(|name| new.join(name));
    let arguments = ["--config", text(&config), "--records", text(&records), "--expect", text(&expected)];
    let events = folder.events(0, &arguments).await;
    assert_eq!((&events.end()["outputs"]["totals"], &events.end()["ok"]), (&2.into(), &true.into()));
}

#[tokio::test]
async fn nothing_is_written_over_and_names_are_names_of_crates() {
    let folder = Folder::new();
    folder.write("full/file", "mine");
    folder.fails(2, &["new", "full"], &["the folder full has something in it", "nothing was written", "--path"]).await;
    assert_eq!(fs::read_dir(folder.join("full")).expect("a folder").count(), 1);
    folder
        .fails(
            2,
            &["new", "LateFlights"],
            &["no name for a crate", "`L` cannot be in it", "write it as `late-flights`"],
        )
        .await;
    folder.fails(2, &["new", "serde"], &["means something else"]).await;
    folder.fails(2, &["new", "../up"], &["no name for a crate"]).await;
    folder.fails(2, &["new", "late", "--sdk", "full"], &["no kit for processors in full", "guest-sdk/rust"]).await;
    assert!(!folder.join("late").exists());
    // By default in a folder of its name; a repository with nothing in it is empty.
    fs::create_dir_all(folder.join("late/.git")).expect("a folder");
    folder.stdout(0, &["new", "late"]).await;
    assert!(folder.join("late/src/lib.rs").is_file() && folder.join("late/sdk/wit/v0.1/types.wit").is_file());
}
