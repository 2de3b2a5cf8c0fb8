//! Where the things are that `make` has built.

use std::path::{Path, PathBuf};

use tokio::process::Command;

/// The repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests are in a folder of the repository").to_owned()
}

/// The folder that holds `release/` and `plugins/`.
pub fn target() -> PathBuf {
    // A test is `target/release/deps/NAME-HASH`, the benchmarks are `target/release/NAME`.
    let program = std::env::current_exe().expect("a program knows where it is");
    let mut folders = program.ancestors().skip(1).skip_while(|folder| folder.ends_with("deps"));
    folders.nth(1).expect("programs are built in a folder of the target folder").to_owned()
}

/// The binary under test; `SHARDMILL_BIN` names another one.
pub fn binary() -> PathBuf {
    let path = std::env::var_os("SHARDMILL_BIN").map_or_else(|| target().join("release/shardmill"), PathBuf::from);
    assert!(path.is_file(), "{} is not there: run `make build`, or set SHARDMILL_BIN", path.display());
    path
}

/// A plugin by its file's name without `.wasm`.
pub fn plugin(name: &str) -> PathBuf {
    let path = target().join("plugins").join(name).with_extension("wasm");
    assert!(path.is_file(), "{} is not there: run `make plugins`", path.display());
    path
}

/// Where compiled plugins are kept, so that each is compiled once for all tests.
pub fn compiled() -> PathBuf {
    target().join("test-compiled")
}

/// The folder of an emulator; it is set up if `make emulators` has not done it.
pub(crate) async fn emulator(name: &str) -> PathBuf {
    let script = repository().join("scripts/emulators.sh");
    let output = Command::new(&script).arg(name).kill_on_drop(true).output().await;
    let output = output.unwrap_or_else(|error| panic!("{error}: {}", script.display()));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    PathBuf::from(String::from_utf8(output.stdout).expect("a path in UTF-8").trim_end())
}
