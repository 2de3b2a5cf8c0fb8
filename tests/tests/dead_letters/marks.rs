//! What has been sent is noted, in each place with letters about it.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use shardmill_tests::{Services, assert_says, isolated, paths, run};
use tempfile::TempDir;

use crate::letters::{Letter, assert_holds, dead_letters, ends, json_line, letters, write};

#[tokio::test]
async fn a_record_with_letters_in_several_folders_is_noted_once_in_each() {
    let services = Services::start().await;
    services.create_stream("orders", 1).await;
    let home = TempDir::new().expect("a temporary folder");
    let folders = ["a", "b"].map(|name| home.path().join(name));
    for folder in &folders {
        std::fs::create_dir(folder).expect("a folder");
    }
    let of_audit = |letter: &Letter| Letter { processor: "audit", ..letter.clone() };
    let all = letters(1..=8);
    write(&folders[0], "a.jsonl", &all[..4]);
    // Of another consumer, and copies of the same one's.
    write(&folders[1], "a.jsonl", &[vec![of_audit(&all[0]), all[1].clone()], all[4..].to_vec()].concat());
    let config = home.path().join("shardmill.toml");
    let processor = |name: &str, folder: &str| {
        format!("[processors.{name}]\nstream = \"orders\"\nplugin = \"p.wasm\"\ndead-letters.folder = {folder:?}\n")
    };
    let text = format!("application = \"tests\"\n{}{}", processor("enrich", "a"), processor("audit", "b"));
    std::fs::write(&config, text).expect("a configuration file");
    let config = config.to_str().expect("a path in UTF-8");
    let [a, b] = folders.each_ref().map(|folder| folder.to_str().expect("a path in UTF-8"));
    let noted = |folder: &Path| {
        let text = std::fs::read_to_string(folder.join(".replayed")).expect("the file of marks");
        text.lines().count()
    };

    // Sent from one place before, and sent now from both.
    let first = json_line(&services, &["replay", "--folder", a, "--limit", "1", "--json"]).await;
    assert_eq!(first["sent"], 1, "{first}");
    for (sent, before) in [(7, 1), (0, 8)] {
        let both = json_line(&services, &["replay", "-c", config, "--json"]).await;
        assert_eq!((&both["sent"], &both["sent_before"]), (&sent.into(), &before.into()), "{both}");
        assert_eq!((noted(&folders[0]), noted(&folders[1])), (4, 6));
    }
    let alone = json_line(&services, &["replay", "--folder", b, "--json"]).await;
    assert_eq!((&alone["sent"], &alone["sent_before"]), (&0.into(), &6.into()), "{alone}");
    assert_holds(&services, "orders", &all).await;
    let mode = std::fs::metadata(folders[0].join(".replayed")).expect("the file of marks").permissions().mode();
    assert_eq!(mode & 0o137, 0, "it is not for everybody: {mode:o}");
}

#[tokio::test]
async fn what_cannot_be_noted_is_told() {
    let services = Services::start().await;
    services.create_stream("orders", 1).await;
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().to_str().expect("a path in UTF-8");
    write(folder.path(), "a.jsonl", &letters(1..=3));
    // No file may grow.
    let mut child = isolated("sh");
    child.args(["-c", r#"ulimit -f 0; exec "$0" "$@""#]).arg(paths::binary());
    child.args(["dead-letters", "replay", "--folder", path]).envs(services.environment());
    let finished = run(child).await;
    assert_eq!(finished.code, Some(1), "{finished:?}");
    let said = ["3 records were sent, and that cannot be noted in", ".replayed", "sends them once more"];
    assert_says("replay", &finished.stderr, &said);
    assert_holds(&services, "orders", &letters(1..=3)).await;
}

#[tokio::test]
async fn letters_can_be_looked_at_where_marks_cannot_be_read() {
    let services = Services::start().await;
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().to_str().expect("a path in UTF-8");
    write(folder.path(), "a.jsonl", &letters(1..=3));
    std::fs::create_dir(folder.path().join(".replayed")).expect("a folder in place of the file");
    let listed = dead_letters(&services, &["list", "--folder", path]).await;
    assert!(listed.code == Some(0) && listed.stdout.contains("3 dead letters"), "{listed:?}");
    assert_says("list", &(listed.stdout + &listed.stderr), &["sent again cannot be read", ".replayed"]);
    ends(&services, 78, &["replay", "--folder", path, "--dry-run"]).await;
    ends(&services, 78, &["replay", "--folder", path]).await;
}
