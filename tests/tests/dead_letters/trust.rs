//! Letters that somebody else wrote: whoever can write to a place can write any letter.

use shardmill_tests::Services;
use tempfile::TempDir;

use crate::letters::{Letter, assert_holds, ends, json_line, json_line_of, letters, write};

/// A folder with letters and a configuration that names it.
fn set_up(letters: &[Letter]) -> (TempDir, String) {
    let home = TempDir::new().expect("a temporary folder");
    let folder = home.path().join("letters");
    std::fs::create_dir(&folder).expect("a folder");
    write(&folder, "a.jsonl", letters);
    let config = home.path().join("shardmill.toml");
    let text = "application = \"tests\"\n[processors.enrich]\nstream = \"orders\"\nplugin = \"p.wasm\"\n\
                dead-letters = { folder = \"letters\" }\n";
    std::fs::write(&config, text).expect("a configuration file");
    let config = config.to_str().expect("a path in UTF-8").to_owned();
    (home, config)
}

#[tokio::test]
async fn with_a_configuration_records_go_back_to_streams_that_their_processor_reads_and_nowhere_else() {
    let services = Services::start().await;
    for stream in ["orders", "payments", "elsewhere"] {
        services.create_stream(stream, 1).await;
    }
    let mut all = letters(1..=5);
    // What a producer might have written into a record that came through to an output with letters.
    all[1].stream = "payments";
    // Another application in the same folder has a processor of the same name.
    all[2].application = "bank";
    all[3].processor = "audit";
    let (_home, config) = set_up(&all);
    let own = [all[0].clone(), all[4].clone()];

    let replayed = json_line_of(&services, 1, &["replay", "-c", &config, "--json"]).await;
    let counts = ["sent", "not_read", "of_others"].map(|key| replayed[key].as_u64());
    assert_eq!(counts, [Some(2), Some(2), Some(1)], "{replayed}");
    assert_holds(&services, "orders", &own).await;
    assert_holds(&services, "payments", &[]).await;
    let told = ends(&services, 1, &["replay", "-c", &config]).await;
    assert!(told.contains("1 letter of another application is passed over."), "{told}");
    let listed = ends(&services, 0, &["list", "-c", &config]).await;
    assert!(listed.contains("4 dead letters, 2 of them sent again. 1 letter of another"), "{listed}");

    // Where somebody says where, all of the application's go there.
    let replayed = json_line(&services, &["replay", "-c", &config, "--to", "elsewhere", "--json"]).await;
    assert_eq!((&replayed["sent"], &replayed["sent_before"]), (&2.into(), &2.into()), "{replayed}");
    assert_holds(&services, "elsewhere", &[all[1].clone(), all[3].clone()]).await;
}

#[tokio::test]
async fn what_letters_say_is_no_command_to_a_terminal() {
    let services = Services::start().await;
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().to_str().expect("a path in UTF-8");
    let obeyed = "\u{1b}]0;owned\u{7}\u{9b}2J\u{202e}";
    write(folder.path(), "a.jsonl", &[Letter { arn: Some(obeyed.to_owned()), reason: obeyed, ..Letter::new(1) }]);
    for arguments in [
        &["list", "--folder", path][..],
        &["list", "--folder", path, "--json"],
        &["replay", "--folder", path, "--dry-run"],
        &["replay", "--folder", path, "--dry-run", "--json"],
    ] {
        let told = ends(&services, 0, arguments).await;
        assert!(!told.contains(['\u{1b}', '\u{7}', '\u{9b}', '\u{202e}']), "{told:?}");
        assert!(told.contains("202e"), "{told:?}");
    }
}
