//! Letters of streams, and of the places that a configuration names.

use shardmill_tests::raw::{self, Raw};
use shardmill_tests::{Config, Services, Worker, command, paths, run};
use tempfile::TempDir;

use crate::letters::{Letter, assert_holds, ends, json_line, json_lines, letters, write};

fn records(letters: &[Letter]) -> Vec<Raw> {
    letters.iter().map(|letter| Raw::new(letter.key.clone(), letter.json())).collect()
}

#[tokio::test]
async fn letters_of_a_stream_are_listed_and_sent_again_and_marked_only_in_a_file() {
    let services = Services::start().await;
    services.create_stream("failed", 3).await;
    services.create_stream("orders", 2).await;
    let all = letters(1..=30);
    let others = [Raw::new("key-1", "text"), Raw::new("key-2", "{\"order\":1}")];
    raw::put(&services, "failed", &[&records(&all), &others[..], &records(&all[25..])].concat()).await;

    let listed = json_lines(&services, &["list", "--stream", "failed", "--json"]).await;
    assert_eq!(listed.len(), all.len(), "{listed:?}");
    let id = listed[0]["id"].as_str().expect("an id");
    let shown = ends(&services, 0, &["show", id, "--stream", "failed"]).await;
    assert!(shown.contains("kept in        failed") && shown.contains("no such customer"), "{shown}");

    let folder = TempDir::new().expect("a temporary folder");
    let marks = folder.path().join("marks.jsonl");
    let marks = marks.to_str().expect("a path in UTF-8");
    let marked = ["replay", "--stream", "failed", "--marks", marks, "--json"];
    let first = json_line(&services, &marked).await;
    assert_eq!((&first["sent"], &first["repeats"]), (&30.into(), &5.into()), "{first}");
    assert_holds(&services, "orders", &all).await;
    let second = json_line(&services, &marked).await;
    assert_eq!((&second["sent"], &second["sent_before"]), (&0.into(), &30.into()), "{second}");
    let listed = json_lines(&services, &["list", "--stream", "failed", "--marks", marks, "--json"]).await;
    assert!(listed.iter().all(|line| line["replayed"] == true), "{listed:?}");

    services.create_stream("again", 1).await;
    let unmarked = json_line(&services, &["replay", "--stream", "failed", "--to", "again", "--json"]).await;
    assert_eq!(unmarked["sent"], 30, "{unmarked}");
    assert_holds(&services, "again", &all).await;
}

#[tokio::test]
async fn the_places_of_a_configuration_are_looked_at_together() {
    let services = Services::start().await;
    for stream in ["orders", "failed", "leftovers"] {
        services.create_stream(stream, 1).await;
    }
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("shardmill.toml");
    // Without the plugins: they need not be on the machine from which somebody looks.
    let text = r#"
        application = "tests"
        [defaults.processor.dead-letters]
        folder = "letters"
        [processors.enrich]
        stream = "orders"
        plugin = "nowhere.wasm"
        [processors.audit]
        stream = "orders"
        plugin = "nowhere.wasm"
        dead-letters = { stream = "failed" }
        [processors.bill]
        stream = "orders"
        plugin = "nowhere.wasm"
        [processors.bill.outputs.rest]
        stream = "leftovers"
        [processors.bill.dead-letters]
        output = "rest"
    "#;
    std::fs::write(&path, text).expect("a configuration file");
    let config = path.to_str().expect("a path in UTF-8");
    let of = |processor: &'static str, numbers: std::ops::RangeInclusive<u64>| {
        letters(numbers).into_iter().map(|letter| Letter { processor, ..letter }).collect::<Vec<_>>()
    };
    std::fs::create_dir(folder.path().join("letters")).expect("a folder");
    write(&folder.path().join("letters"), "a.jsonl", &of("enrich", 1..=5));
    // Of the same records, and of others.
    raw::put(&services, "failed", &records(&of("audit", 4..=8))).await;
    raw::put(&services, "leftovers", &records(&of("bill", 9..=10))).await;

    let listed = json_lines(&services, &["list", "-c", config, "--json"]).await;
    assert_eq!(listed.len(), 12, "{listed:?}");
    let of_audit = json_lines(&services, &["list", "-c", config, "--processor", "audit", "--json"]).await;
    assert_eq!(of_audit.len(), 5, "{of_audit:?}");
    assert!(of_audit.iter().all(|line| line["place"] == "failed"), "{of_audit:?}");
    let mut from_environment = command();
    from_environment.args(["dead-letters", "list"]).env("SHARDMILL_CONFIG", config).envs(services.environment());
    let finished = run(from_environment).await;
    assert!(finished.code == Some(0) && finished.stdout.contains("12 dead letters"), "{finished:?}");

    // A record that two processors gave up is sent once.
    let replayed = json_line(&services, &["replay", "-c", config, "--json"]).await;
    assert_eq!((&replayed["sent"], &replayed["repeats"]), (&10.into(), &2.into()), "{replayed}");
    assert_holds(&services, "orders", &letters(1..=10)).await;
    let enrich = ["replay", "-c", config, "--processor", "enrich", "--json"];
    let replayed = json_line(&services, &enrich).await;
    assert_eq!((&replayed["sent"], &replayed["sent_before"]), (&0.into(), &5.into()), "{replayed}");
}

#[tokio::test]
async fn check_and_run_tell_where_letters_go_and_a_folder_that_takes_none_is_told_at_the_start() {
    let services = Services::with_streams(1, 1).await;
    let folder = TempDir::new().expect("a temporary folder");
    let check = async |config: &Config, arguments: &[&str]| {
        let path = folder.path().join("shardmill.toml");
        std::fs::write(&path, config.text()).expect("a configuration file");
        let mut child = command();
        child.arg("check").args(arguments).arg("--config").arg(&path).env("AWS_REGION", "us-east-1");
        let finished = run(child).await;
        assert_eq!(finished.code, Some(0), "{finished:?}");
        finished.stdout
    };
    let letters = folder.path().join("letters");
    let config = Config::copy().processor(&format!("dead-letters = {{ folder = {letters:?} }}"));
    let said = check(&config, &[]).await;
    assert!(said.contains(&format!("given up    folder {}", letters.display())), "{said}");
    assert!(!letters.exists(), "a check makes nothing");
    let output = Config::copy().processor(r#"dead-letters = { output = "copies" }"#);
    assert!(check(&output, &[]).await.contains("given up    output copies"));
    let json: serde_json::Value = serde_json::from_str(&check(&output, &["--json"]).await).expect("JSON");
    let place = &json["processors"][0]["dead-letters"];
    assert_eq!(*place, serde_json::json!({ "output": "copies", "stream": "output" }), "{json}");

    let mut worker = Worker::start_ready(&services, &config).await;
    assert!(letters.is_dir());
    let (_, metrics) = worker.get("/metrics").await;
    assert!(metrics.contains(r#"shardmill_dead_letters_waiting{processor="copy",place="folder"} 0"#), "{metrics}");
    worker.stop().await;

    let file = paths::plugin("route");
    let config = Config::copy().processor(&format!("dead-letters = {{ folder = {file:?} }}"));
    let mut worker = Worker::start(&services, &config);
    let status = worker.wait(std::time::Duration::from_secs(40)).await;
    assert_eq!(status.code(), Some(78), "{}", worker.stderr());
    for words in ["[processors.copy.dead-letters]", "route.wasm"] {
        assert!(worker.stderr().contains(words), "{words:?} in {}", worker.stderr());
    }
}

#[tokio::test]
async fn records_of_a_key_are_sent_in_their_order_whatever_places_their_letters_are_in() {
    let services = Services::start().await;
    services.create_stream("orders", 2).await;
    services.create_stream("failed", 1).await;
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("shardmill.toml");
    let processor = |name: &str, place: &str| {
        format!("[processors.{name}]\nstream = \"orders\"\nplugin = \"p.wasm\"\ndead-letters = {{ {place} }}\n")
    };
    let text = [
        "application = \"tests\"\n",
        &processor("enrich", "folder = \"letters\""),
        &processor("audit", "stream = \"failed\""),
    ];
    std::fs::write(&path, text.concat()).expect("a configuration file");
    std::fs::create_dir(folder.path().join("letters")).expect("a folder");
    let all: Vec<Letter> =
        letters(1..=40).into_iter().map(|letter| Letter { key: "key".to_owned(), ..letter }).collect();
    let of = |processor: &'static str, rest: u64, given_up_at: u64| {
        let numbers = all.iter().filter(move |letter| letter.number % 2 == rest);
        numbers.map(|letter| Letter { processor, given_up_at, ..letter.clone() }).collect::<Vec<_>>()
    };
    write(&folder.path().join("letters"), "a.jsonl", &of("enrich", 0, 3));
    // The second worker stores again what the first one had stored before it died, and something before it.
    raw::put(&services, "failed", &records(&[&of("audit", 1, 1)[5..], &of("audit", 1, 2)[..]].concat())).await;
    let config = path.to_str().expect("a path in UTF-8");
    let replayed = json_line(&services, &["replay", "-c", config, "--json"]).await;
    assert_eq!((&replayed["sent"], &replayed["repeats"]), (&40.into(), &15.into()), "{replayed}");
    assert_holds(&services, "orders", &all).await;
}
