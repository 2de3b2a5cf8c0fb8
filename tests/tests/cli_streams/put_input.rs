//! What `shardmill put` takes for a record.

use serde_json::json;
use shardmill_tests::{Services, isolated, paths, run};
use tempfile::TempDir;

use crate::cli::{fails, finish, json_lines, lines, stdout, told};
use crate::put::{in_stream, text, with_input};

#[tokio::test]
async fn a_quote_that_is_not_closed_swallows_no_rows() {
    let services = Services::with_streams(1, 1).await;
    let arguments = ["put", "input", "--key-column", "k", "--json"];
    let finished = with_input(&services, &arguments, b"k,v\na,1\nb,\"2\nc,3\nd,4\n").await;
    told(&finished, &arguments, 1, &["line 3: a quote that was opened on line 3 is not closed", "1 of 2 records"]);
    assert_eq!(lines(&finished.stdout)[0]["first_not_stored"]["line"], 3);
    assert_eq!(in_stream(&services, "input").await.len(), 1);
    // Where quotes are no quotes.
    let arguments = ["put", "input", "--key-column", "2", "--no-header", "--no-quotes", "--delimiter", "\\t"];
    let finished = with_input(&services, &arguments, b"\"hello\ta\nx\tb\ny\tc\n").await;
    assert_eq!(finished.stdout, "3 records stored in input.\n", "{finished:?}");
}

#[tokio::test]
async fn the_name_of_a_file_says_how_it_is_written() {
    let services = Services::with_streams(1, 1).await;
    let folder = TempDir::new().expect("a temporary folder");
    let file = |name: &str, content: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).expect("a file");
        path
    };
    let (csv, tsv) = (file("a.csv", "k,v\na,1\n"), file("b.tsv", "k\tv\nb\t2\n"));
    stdout(&services, &["put", "input", text(&csv), "--key", "z"]).await;
    stdout(&services, &["put", "input", text(&tsv), "--key", "z"]).await;
    let data: Vec<_> = in_stream(&services, "input").await.iter().map(|line| line["data"].clone()).collect();
    assert_eq!(data, [json!(r#"{"k":"a","v":"1"}"#), json!(r#"{"k":"b","v":"2"}"#)]);
    fails(&services, &["put", "input", text(&csv), text(&tsv)], 2, &["say --format"]).await;
}

#[tokio::test]
async fn many_files_are_sent_and_the_place_of_what_cannot_be_read_is_told() {
    let services = Services::with_streams(1, 1).await;
    let folder = TempDir::new().expect("a temporary folder");
    let files: Vec<_> = (0..300).map(|number| folder.path().join(format!("{number:03}.csv"))).collect();
    for (number, path) in (0..).zip(&files) {
        std::fs::write(path, format!("k,v\n{number},1\n")).expect("a file");
    }
    let names: Vec<&str> = files.iter().map(|path| text(path)).collect();
    // With fewer that may be open.
    let mut child = isolated("sh");
    child.args(["-c", r#"ulimit -n 100; exec "$0" "$@""#]).arg(paths::binary()).envs(services.environment());
    let finished = run({
        child.args(["put", "input", "--key-column", "k"]).args(&names);
        child
    })
    .await;
    assert_eq!((finished.code, &*finished.stdout), (Some(0), "300 records stored in input.\n"), "{finished:?}");

    std::fs::write(&files[1], "x,v\n1,1\n").expect("a file");
    let arguments = [&["put", "input", "--key-column", "k", "--json"], &names[..3]].concat();
    let finished = finish(&services, &arguments).await;
    told(&finished, &arguments, 1, &["001.csv: there is no column `k`", "not read:", "002.csv", "001.csv, line 1"]);
    let sums = &lines(&finished.stdout)[0];
    assert_eq!((&sums["ended"], &sums["stored"]), (&json!("input"), &json!(1)), "{sums}");
    assert_eq!(sums["first_not_stored"], json!({ "file": names[1], "line": 1 }));
    assert_eq!(sums["files_not_read"], json!([names[2]]));
    let before = in_stream(&services, "input").await.len();
    let mixed = ["put", "input", names[0], text(folder.path()), "--key-column", "k"];
    fails(&services, &mixed, 1, &["cannot be read", "directory"]).await;
    assert_eq!(in_stream(&services, "input").await.len(), before, "it is seen before anything is sent");
}

#[tokio::test]
async fn keys_are_numbers_as_they_are_written_and_json_is_checked_to_its_texts() {
    let services = Services::with_streams(1, 1).await;
    let input = b"{\"k\":123456789012345678901234567890}\n{\"k\":123456789012345678901234567891}\n{\"k\":1e999}\n";
    let finished = with_input(&services, &["put", "input", "--key-field", "/k"], input).await;
    assert_eq!(finished.code, Some(0), "{finished:?}");
    let keys: Vec<_> = in_stream(&services, "input").await.iter().map(|line| line["partition_key"].clone()).collect();
    assert_eq!(
        keys,
        [json!("123456789012345678901234567890"), json!("123456789012345678901234567891"), json!("1e999")]
    );
    let arguments = ["put", "output", "--format", "jsonl"];
    let finished = with_input(&services, &arguments, b"{\"a\":\"\xff\"}\n{\"a\":\"\\ud800\"}\noops\n").await;
    told(
        &finished,
        &arguments,
        1,
        &[
            "line 1: it is not JSON: no UTF-8",
            "line 2: it is not JSON",
            "line 3: it is not JSON: expected value at column 1",
        ],
    );
    assert!(
        json_lines(&services, &["tail", "output", "--from", "trim-horizon", "--until-idle", "0s", "--json"])
            .await
            .is_empty()
    );
}

#[tokio::test]
async fn nothing_of_an_input_is_a_command_to_a_terminal() {
    let services = Services::with_streams(1, 1).await;
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("a\u{1b}]0;t\u{7}.csv");
    std::fs::write(&path, "a\u{1b}[2J\u{9b}2J\u{202e},b\n1,2\n").expect("a file");
    for arguments in [
        vec!["put", "input", text(&path), "--key-column", "k"],
        vec!["put", "input", "/nowhere/a\u{1b}[2J"],
        vec!["put", "input", text(&path), "--results", "/nowhere/a\u{1b}[2J"],
    ] {
        let finished = finish(&services, &arguments).await;
        assert_eq!(finished.code, Some(1), "{finished:?}");
        let obeyed = |character: char| character.is_control() && character != '\n' || character == '\u{202e}';
        assert!(!finished.stderr.chars().any(obeyed), "{:?}", finished.stderr);
        assert!(finished.stderr.contains("\\u{1b}"), "{:?}", finished.stderr);
    }
}
