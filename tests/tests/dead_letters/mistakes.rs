//! Mistakes: each has its exit status, and says what to do.

use shardmill_tests::{Finished, Services, assert_says, command, run};
use tempfile::TempDir;

use crate::letters::{arn, dead_letters, letters, write};

fn assert_told(finished: &Finished, code: i32, said: &[&str]) {
    assert_eq!(finished.code, Some(code), "{finished:?}");
    assert_says("dead-letters", &finished.stderr, said);
    assert!(!finished.stderr.contains("panicked"), "{}", finished.stderr);
}

#[tokio::test]
async fn what_is_wrong_is_said_with_its_exit_status() {
    let services = Services::start().await;
    let home = TempDir::new().expect("a temporary folder");
    let path = home.path().to_str().expect("a path in UTF-8");
    let mut all = letters(1..=3);
    all[2].stream = "gone";
    write(home.path(), "a.jsonl", &all);
    let tell = async |arguments: &[&str], code: i32, said: &[&str]| {
        assert_told(&dead_letters(&services, arguments).await, code, said);
    };
    tell(&["list"], 2, &["--config", "--folder", "--stream"]).await;
    tell(&["list", "--folder", path, "--stream", "s"], 2, &["cannot be used with"]).await;
    tell(&["list", "--folder", path, "--since", "soon"], 2, &["soon", "2026-07-01T12:00:00Z", "2h"]).await;
    tell(&["show", "xyz", "--folder", path], 2, &["xyz", "first 4 digits"]).await;
    tell(&["show", "00000000", "--folder", path], 1, &["no dead letter", "00000000", "dead-letters list"]).await;
    tell(&["replay", "00000000", "--folder", path], 1, &["no dead letter", "00000000"]).await;
    tell(&["list", "--folder", "/nowhere/at/all"], 78, &["/nowhere/at/all", "No such file", "workers write to"]).await;
    tell(&["replay", "--folder", "/nowhere/at/all"], 78, &["/nowhere/at/all", "No such file"]).await;
    tell(&["list", "--stream", "nowhere"], 69, &["nowhere"]).await;
    tell(&["list", "--config", "/nowhere.toml"], 78, &["/nowhere.toml", "--config FILE"]).await;
    // The streams that the records came from.
    tell(&["replay", "--folder", path], 69, &["1 records", "stream/gone`", "2 records", "stream/orders`", "create"])
        .await;
    tell(&["replay", "--folder", path, "--marks", "/nowhere/marks"], 78, &["/nowhere/marks", "--marks FILE"]).await;

    let config = home.path().join("shardmill.toml");
    let text = "application = \"tests\"\n[processors.copy]\nstream = \"input\"\nplugin = \"p.wasm\"\n";
    std::fs::write(&config, text).expect("a configuration file");
    let config = config.to_str().expect("a path in UTF-8");
    tell(&["list", "-c", config], 78, &["no processor of the configuration keeps", "[processors.NAME.dead-letters]"])
        .await;
    tell(&["list", "-c", config, "--processor", "other"], 78, &["no processor `other`", "copy"]).await;
    tell(&["list", "-c", config, "--processor", "copy"], 78, &["`copy` keeps no dead letters"]).await;
    std::fs::write(config, format!("{text}dead-letters = {{ stream = \"input\" }}\n")).expect("a configuration file");
    tell(&["list", "-c", config], 78, &["shardmill.toml:5:", "would come back"]).await;
}

#[tokio::test]
async fn a_folder_needs_no_aws_and_a_stream_needs_a_region() {
    let folder = TempDir::new().expect("a temporary folder");
    write(folder.path(), "a.jsonl", &letters(1..=3));
    let without = async |arguments: &[&str]| {
        let mut child = command();
        // Nothing of a profile in somebody's home either.
        child.arg("dead-letters").args(arguments).env("HOME", folder.path());
        run(child).await
    };
    let path = folder.path().to_str().expect("a path in UTF-8");
    let listed = without(&["list", "--folder", path]).await;
    assert!(listed.code == Some(0) && listed.stdout.contains("3 dead letters"), "{listed:?}");
    let said = format!("3 records would be sent to {} (a dry run).", arn("orders"));
    let dry = without(&["replay", "--folder", path, "--dry-run"]).await;
    assert!(dry.code == Some(0) && dry.stdout.contains(&said), "{dry:?}");
    assert_told(&without(&["replay", "--folder", path]).await, 78, &["no AWS region is set"]);
    assert_told(&without(&["list", "--stream", "failed"]).await, 78, &["no AWS region is set"]);
}

#[tokio::test]
async fn help_has_examples() {
    for (command_line, said) in [
        (&["dead-letters", "--help"][..], "replay"),
        (&["dead-letters", "list", "--help"], "--since 2h"),
        (&["dead-letters", "show", "--help"], "--payload > record.bin"),
        (&["dead-letters", "replay", "--help"], "A stream cannot be marked"),
    ] {
        let mut child = command();
        child.args(command_line);
        let finished = run(child).await;
        assert_eq!(finished.code, Some(0), "{finished:?}");
        assert_says("help", &finished.stdout, &[said]);
    }
}
