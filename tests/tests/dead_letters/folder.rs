//! Letters of a folder, from the list to the second replay.

use std::process::Stdio;

use shardmill_tests::{Services, assert_says, command};
use tempfile::TempDir;

use crate::letters::{GIVEN_UP, Letter, arn, assert_holds, ends, id_of, json_line, json_lines, letters, write};

/// A folder with letters of two workers, of which some are there twice and some lines are none, and services with the stream
/// that their records came from.
async fn set_up() -> (Services, TempDir, Vec<Letter>) {
    let services = Services::start().await;
    services.create_stream("orders", 2).await;
    let folder = TempDir::new().expect("a temporary folder");
    let mut all = letters(1..=20);
    all[6].data = vec![0, 159, 146, 150, 10];
    all[7].data = "plain text, über alles".into();
    all[8].reason = "Timeout of the \u{1b}[31mdatabase";
    all[9].hash_key = Some("340282366920938463463374607431768211455".to_owned());
    all[9].key = "apart".to_owned();
    // The shard changed hands twice, and the successor gave up what had not been checkpointed once more.
    write(folder.path(), "enrich-1-worker-b.jsonl", &all[5..15]);
    write(folder.path(), "enrich-2-worker-a.jsonl", &[&all[..8], &all[12..]].concat());
    let half = &all[19].json()[..100];
    std::fs::write(folder.path().join("enrich-3-worker-c.jsonl"), half).expect("a file of a worker that was killed");
    std::fs::write(folder.path().join("notes.txt"), "not looked at\n").expect("a file of somebody else's");
    (services, folder, all)
}

#[tokio::test]
async fn letters_are_listed_once_in_order_and_filtered() {
    let (services, folder, _all) = set_up().await;
    let path = folder.path().to_str().expect("a path in UTF-8");
    let listed = json_lines(&services, &["list", "--folder", path, "--json"]).await;
    let numbers: Vec<u64> = listed
        .iter()
        .map(|line| line["sequence_number"].as_str().and_then(|text| text[4..].parse().ok()).expect("a number"))
        .collect();
    assert_eq!(numbers, (1..=20).collect::<Vec<_>>());
    let first = &listed[0];
    assert_eq!(
        (&first["processor"], &first["partition_key"], &first["attempts"], &first["given_up_at"], &first["replayed"]),
        (&"enrich".into(), &"key-1".into(), &3.into(), &(GIVEN_UP + 1000).into(), &false.into())
    );
    assert_eq!(first["explicit_hash_key"], serde_json::Value::Null);
    assert_eq!(listed[9]["explicit_hash_key"], "340282366920938463463374607431768211455");
    let count = async |arguments: &[&str]| {
        json_lines(&services, &[&["list", "--folder", path, "--json"], arguments].concat()).await.len()
    };
    assert_eq!(count(&["--reason", "timeout"]).await, 1);
    assert_eq!(count(&["--since", "2025-06-15T15:06:51Z"]).await, 10);
    assert_eq!(count(&["--since", "1s"]).await, 0, "the letters are older, or this machine's clock is wrong");
    assert_eq!(count(&["--processor", "other"]).await, 0);
    assert_eq!((count(&["--from", "orders"]).await, count(&["--from", &arn("order")]).await), (20, 0));
    assert_eq!(count(&["--limit", "7"]).await, 7);

    let table = ends(&services, 0, &["list", "--folder", path]).await;
    for text in [
        "20 dead letters, 0 of them sent again.",
        "Position",
        "enrich",
        "orders shardId-000000000000",
        "49570000000009/0",
        "2025-06-15T15:06:49Z",
        "Timeout of the \\u{1b}[31mdatabase",
        listed[8]["id"].as_str().expect("an id"),
    ] {
        assert!(table.contains(text), "{text:?} in\n{table}");
    }
    let some = ends(&services, 0, &["list", "--folder", path, "--limit", "3"]).await;
    assert!(some.contains("3 dead letters, and more (--limit)"), "{some}");
}

#[tokio::test]
async fn a_letter_is_shown_with_its_payload_as_it_is() {
    let (services, folder, all) = set_up().await;
    let path = folder.path().to_str().expect("a path in UTF-8");
    let listed = json_lines(&services, &["list", "--folder", path, "--json"]).await;
    let show = async |number: u64, arguments: &[&str]| {
        let id = id_of(&listed, number);
        ends(&services, 0, &[&["show", &id, "--folder", path], arguments].concat()).await
    };
    let text = show(8, &[]).await;
    for said in [
        "plain text, über alles",
        &arn("orders"),
        "enrich of tests",
        "no such customer",
        "49570000000008/0",
        "stored         2 times",
    ] {
        assert!(text.contains(said), "{said:?} in\n{text}");
    }
    let escaped = show(9, &[]).await;
    assert!(escaped.contains("\\u{1b}[31m") && !escaped.contains('\u{1b}'), "{escaped}");
    let binary = show(7, &[]).await;
    assert!(binary.contains("00000000  00 9f 92 96 0a"), "{binary}");
    let json: serde_json::Value = serde_json::from_str(&show(10, &["--json"]).await).expect("JSON");
    assert_eq!(json["explicit_hash_key"], "340282366920938463463374607431768211455", "{json}");
    assert_eq!((&json["copies"], &json["replayed"]), (&1.into(), &false.into()), "{json}");

    // By the beginning of its id, byte for byte.
    let id = &id_of(&listed, 7)[..10].to_uppercase();
    let mut child = command();
    child.args(["dead-letters", "show", id, "--folder", path, "--payload"]).stdout(Stdio::piped());
    let output = child.output().await.expect("the binary can be run");
    assert_eq!((output.status.code(), &output.stdout), (Some(0), &all[6].data), "{output:?}");
}

#[tokio::test]
async fn records_are_sent_again_as_they_were_and_the_second_time_passed_over() {
    let (services, folder, all) = set_up().await;
    services.create_stream("elsewhere", 1).await;
    let path = folder.path().to_str().expect("a path in UTF-8");
    let replay = async |arguments: &[&str]| {
        json_line(&services, &[&["replay", "--folder", path, "--json"], arguments].concat()).await
    };
    let dry = replay(&["--dry-run"]).await;
    assert_eq!(
        (&dry["sent"], &dry["to"][arn("orders")], &dry["dry_run"]),
        (&20.into(), &20.into(), &true.into()),
        "{dry}"
    );
    assert_holds(&services, "orders", &[]).await;

    let listed = json_lines(&services, &["list", "--folder", path, "--json"]).await;
    let one = replay(&[&id_of(&listed, 4), "--to", "elsewhere"]).await;
    assert_eq!(one["to"], serde_json::json!({ "elsewhere": 1 }), "{one}");
    assert_holds(&services, "elsewhere", &all[3..4]).await;
    let listed = json_lines(&services, &["list", "--folder", path, "--json"]).await;
    let marked: Vec<bool> = listed.iter().filter_map(|line| line["replayed"].as_bool()).collect();
    assert_eq!(marked, (1..=20).map(|number| number == 4).collect::<Vec<_>>());

    let some = replay(&["--limit", "2"]).await;
    assert_eq!((&some["sent"], &some["sent_before"]), (&2.into(), &0.into()), "{some}");
    let rest = replay(&["--rate", "0"]).await;
    assert_eq!((&rest["sent"], &rest["sent_before"]), (&17.into(), &3.into()), "{rest}");
    assert_eq!(rest["repeats"], 6, "{rest}");
    let sent: Vec<Letter> = all.iter().filter(|letter| letter.number != 4).cloned().collect();
    assert_holds(&services, "orders", &sent).await;

    let told = ends(&services, 0, &["replay", "--folder", path]).await;
    assert!(told.contains("0 records sent.") && told.contains("20 records passed over, sent before"), "{told}");
    assert_holds(&services, "orders", &sent).await;
    let again = ends(&services, 0, &["replay", "--folder", path, "--again", "--to", "elsewhere", "--unordered"]).await;
    assert!(again.contains("20 records sent to elsewhere."), "{again}");
    let table = ends(&services, 0, &["list", "--folder", path]).await;
    assert!(table.contains("20 dead letters, 20 of them sent again."), "{table}");
}

#[tokio::test]
async fn a_record_that_cannot_be_sent_does_not_keep_the_others_back() {
    let services = Services::start().await;
    services.create_stream("orders", 1).await;
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().to_str().expect("a path in UTF-8");
    let mut all = letters(1..=5);
    // From a stream whose records may be larger than others'.
    all[2].data = vec![7; 2 << 20];
    write(folder.path(), "a.jsonl", &all);
    let mut child = command();
    child.args(["dead-letters", "replay", "--folder", path, "--json"]).envs(services.environment());
    let finished = shardmill_tests::run(child).await;
    assert_eq!(finished.code, Some(1), "{finished:?}");
    let result: serde_json::Value = serde_json::from_str(&finished.stdout).expect("JSON");
    assert_eq!((&result["sent"], result["failed"].as_array().map(Vec::len)), (&4.into(), Some(1)), "{result}");
    assert_says("replay", &finished.stderr, &["1 of the records cannot be sent"]);
    all.remove(2);
    assert_holds(&services, "orders", &all).await;
    let result = ends(&services, 1, &["replay", "--folder", path]).await;
    assert!(result.contains("4 records passed over"), "{result}");
}
