//! `shardmill plugin test`: what becomes of records, and how it ends.

use serde_json::{Value, json};
use shardmill_tests::assert_says;

use crate::cli::{Events, Folder, plugin};

const POISON: &str = "guest_poison";
const ROWS: &str = "guest_rows";

fn does(what: &str) -> String {
    json!({ "do": what, "hooks": "silent" }).to_string()
}

#[tokio::test]
async fn records_of_all_forms_become_outputs() {
    let folder = Folder::new();
    let (rows, echo) = (plugin(ROWS), does("echo"));
    folder.write("lines.txt", "one\ntwo\n\nthree\n");
    folder.write("rows.csv", "k,v\na,1\nb,2\n");
    folder.write("bodies.jsonl", "{\"k\":\"x\",\"n\":1}\n{\"k\":\"y\",\"n\":2}\n");
    let test = async |arguments: &[&str]| {
        let given = [&[rows.as_str(), "--guest-config", echo.as_str()], arguments].concat();
        folder.events(0, &given).await
    };
    let events = test(&["--records", "lines.txt", "--batch", "2"]).await;
    assert_eq!(events.outputs(), ["one", "two", "three"]);
    let batches = events.all("batch");
    assert_eq!(batches.len(), 2);
    let first = batches[0];
    assert_eq!(
        (&first["records"], &first["done"], &first["shard"]),
        (&json!(2), &json!(2), &json!("shardId-000000000000"))
    );
    let output = &first["outputs"][1];
    assert_eq!((&output["output"], &output["partition_key"]), (&json!("out"), &json!("record-2")));
    assert_eq!(output["cause"], json!({ "file": "lines.txt", "line": 2 }));
    assert!(first["checkpoint"].as_str().is_some_and(|position| position.ends_with("2/0")), "{first}");
    let call = &first["calls"][0];
    assert_eq!((&call["records"], &call["attempt"], &call["failure"]), (&json!(2), &json!(1), &Value::Null));
    assert!(call["took_ms"].as_f64().is_some_and(|took| took > 0.0), "{call}");
    assert!(call["memory_bytes"].as_u64().is_some_and(|bytes| bytes >= 65_536), "{call}");
    let start = events.one("start");
    assert_eq!((&start["module"]["form"], &start["module"]["hooks"]), (&json!("rows"), &json!(true)));
    let end = events.end();
    assert_eq!(
        (&end["ok"], &end["records"], &end["done"], &end["calls"]),
        (&json!(true), &json!(3), &json!(3), &json!(2))
    );
    assert_eq!((&end["outputs"], &end["memory_limit_bytes"]), (&json!({ "out": 3 }), &json!(128 << 20)));

    let events = test(&["--records", "rows.csv", "--key-column", "k"]).await;
    assert_eq!(events.outputs(), [r#"{"k":"a","v":"1"}"#, r#"{"k":"b","v":"2"}"#]);
    let events = test(&["--records", "bodies.jsonl", "--key-field", "/k"]).await;
    assert_eq!(events.outputs(), [r#"{"k":"x","n":1}"#, r#"{"k":"y","n":2}"#]);
    assert_eq!(events.one("batch")["outputs"][1]["partition_key"], "y");
}

#[tokio::test]
async fn records_out_of_a_stream_keep_where_they_were() {
    let folder = Folder::new();
    let line = |shard: &str, number: u64, key: &str, data: &str| {
        json!({
            "stream": "orders", "shard": shard, "sequence_number": number.to_string(), "sub_sequence_number": 3,
            "arrived_at": 1_790_000_000_123_u64, "partition_key": key, "explicit_hash_key": "12", "data": data,
        })
        .to_string()
            + "\n"
    };
    let lines = [line("s-1", 70, "a", "x"), line("s-2", 50, "b", "y"), line("s-1", 71, "c", "z")].concat();
    folder.write("orders.jsonl", lines);
    let (rows, describe) = (plugin(ROWS), does("describe"));
    let arguments = [&rows, "--guest-config", &describe, "--records", "orders.jsonl", "--lease-epoch", "9"];
    let events = folder.events(0, &arguments).await;
    // Shards have batches of their own.
    let told = events.outputs();
    assert_eq!((told.len(), events.all("batch").len()), (2, 2));
    for words in
        ["s-1", "\"70\"", "\"71\"", "sub-sequence-number: 3", "1790000000123", "Some(\"12\")", "lease-epoch: 9"]
    {
        assert!(told[0].contains(words) && !told[0].contains("\"50\""), "{words}: {}", told[0]);
    }
    assert!(told[1].contains("s-2") && told[1].contains("\"50\""), "{}", told[1]);
}

#[tokio::test]
async fn people_see_a_table_and_nothing_that_a_terminal_obeys() {
    let folder = Folder::new();
    folder.write("records", b"{\"poison\":\"final\",\"n\":1}\nfine \x1b[2J\n\xff\x00\n".as_slice());
    let poison = plugin(POISON);
    let arguments = ["test", &poison, "--records", "records", "--format", "lines", "--key", "k"];
    let shown = folder.stdout(1, &arguments).await;
    assert!(!shown.contains('\u{1b}'), "{shown}");
    for words in
        ["3 records of shardId-000000000000: 2 done, 0 skipped, 1 failed; 2 outputs", "fine \\u{1b}[2J", "hex ff00"]
    {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    for words in ["line 1", "this record is poison", "copies", "line 3", "columnar", "calls: 1, p50"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    folder.fails(1, &arguments, &["1 of 3 records failed"]).await;
}

#[tokio::test]
async fn a_record_that_fails_is_named_with_its_reason() {
    let folder = Folder::new();
    folder.write("records.jsonl", "{\"n\":1}\n{\"poison\":\"fail\"}\n{\"poison\":\"final\"}\n{\"n\":2}\n");
    let poison = plugin(POISON);
    let arguments = [poison.as_str(), "--records", "records.jsonl", "--attempts", "3"];
    let events = folder.events(1, &arguments).await;
    let batch = events.one("batch");
    let failed = batch["failed"].as_array().expect("records");
    let seen: Vec<_> = failed.iter().map(|failed| (&failed["line"], &failed["attempts"], &failed["reason"])).collect();
    let reason = json!("this record is poison");
    assert_eq!(seen, [(&json!(2), &json!(3), &reason), (&json!(3), &json!(1), &reason)]);
    assert_eq!(batch["calls"].as_array().map(Vec::len), Some(3), "what may be tried again is, alone");
    assert_eq!(batch["calls"][1]["records"], 1);
    assert_eq!(events.outputs(), ["{\"n\":1}", "{\"n\":2}"]);
    assert_eq!((&events.end()["failed"], &events.end()["ok"]), (&json!(2), &json!(false)));

    // What a guest does not acknowledge, and what it skips.
    folder.write("five.txt", "0\n1\n2\n3\n4\n");
    let (rows, config) = (plugin(ROWS), does("failed-and-skipped"));
    let events = folder.events(1, &[&rows, "--guest-config", &config, "--records", "five.txt"]).await;
    let batch = events.one("batch");
    assert_eq!((&batch["done"], &batch["skipped"][0]["reason"]), (&json!(1), &json!("old")));
    assert_eq!(batch["skipped"][0]["line"], 3);
    let reasons: Vec<_> = batch["failed"].as_array().expect("records").iter().map(|failed| &failed["reason"]).collect();
    assert_eq!(
        reasons,
        ["bad", "the guest did not acknowledge the record", "the guest did not acknowledge the record"]
    );
}

#[tokio::test]
async fn a_batch_that_crashes_is_split_until_the_record_to_blame_is_known() {
    let folder = Folder::new();
    let lines: String = (0..40)
        .map(|n| if n == 23 { "{\"poison\":\"trap\"}\n".to_owned() } else { format!("{{\"n\":{n}}}\n") })
        .collect();
    folder.write("records.jsonl", lines);
    let poison = plugin(POISON);
    let events = folder.events(1, &[&poison, "--records", "records.jsonl"]).await;
    let batch = events.one("batch");
    let failed = batch["failed"].as_array().expect("records");
    assert_eq!((failed.len(), &failed[0]["line"]), (1, &json!(24)));
    assert!(failed[0]["reason"].as_str().is_some_and(|reason| reason.contains("this record is poison")), "{failed:?}");
    let first = &batch["calls"][0];
    assert_eq!((&first["records"], &first["failure"]["kind"]), (&json!(40), &json!("trap")));
    assert_eq!((&batch["done"], events.outputs().len()), (&json!(39), 39));

    let events = folder.events(1, &[&poison, "--records", "records.jsonl", "--no-bisect"]).await;
    assert_eq!((&events.end()["failed"], &events.end()["calls"]), (&json!(40), &json!(1)));
}

#[tokio::test]
async fn calls_that_give_no_outcome_say_why() {
    let folder = Folder::new();
    folder.write("records.txt", "one\n");
    let rows = plugin(ROWS);
    for (what, limits, kind, said) in [
        ("spin", "batch-timeout = \"300ms\"", "timeout", "300ms"),
        ("memory", "{ memory = \"8 MiB\" }", "memory", "may have 8388608"),
        ("retry", "", "retry", "busy"),
        ("reject", "", "reject", "never"),
        ("panic", "", "trap", "record 0 is not what I thought"),
        ("bad-checkpoint", "", "invalid-outcome", "checkpoint"),
        ("index-outside", "", "invalid-outcome", "names record 1000000"),
        ("huge", "outcome = \"1 MiB\"", "invalid-outcome", "more than 1048576 bytes"),
    ] {
        let config = does(what);
        let arguments = [&rows, "--guest-config", &config, "--records", "records.txt", "--limits", limits];
        let events = folder.events(1, &arguments).await;
        let failure = &events.one("batch")["calls"][0]["failure"];
        assert_eq!(failure["kind"], kind, "{what}: {failure}");
        assert!(failure["message"].as_str().is_some_and(|text| text.contains(said)), "{what}: {failure}");
        assert_eq!(failure["after_ms"].as_f64(), (what == "retry").then_some(250.0), "{what}: {failure}");
    }
    // A batch is split, and each part takes its time: that is told before it is over.
    folder.write("two.txt", "one\ntwo\n");
    let (spin, limits) = (does("spin"), "batch-timeout = \"200ms\"");
    let spin = ["test", &rows, "--guest-config", &spin, "--records", "two.txt", "--limits", limits];
    folder.fails(1, &spin, &["a call of 2 records took too long", "--no-bisect", "2 of 2 records failed"]).await;
    // A shard that is to be stopped is left, and the others are not.
    let line =
        |shard: &str, data: &str| json!({ "shard": shard, "partition_key": "k", "data": data }).to_string() + "\n";
    let poison = plugin(POISON);
    let stop = r#"{"poison":"stop"}"#;
    folder.write("stop.jsonl", [line("a", stop), line("b", "1"), line("a", "2"), line("b", "3")].concat());
    let events = folder.events(1, &[&poison, "--records", "stop.jsonl", "--batch", "1"]).await;
    assert_eq!(events.outputs(), ["1", "3"]);
    assert_eq!((&events.end()["not_handed_over"], &events.end()["failed"]), (&json!(1), &json!(1)));
}

#[tokio::test]
async fn a_plugin_that_cannot_be_run_is_refused() {
    let folder = Folder::new();
    folder.write("records.txt", "one\n");
    folder.write("bad.wasm", "this is not it");
    let rows = plugin(ROWS);
    for subcommand in ["test", "bench"] {
        let with = async |arguments: &[&str], said: &[&str]| {
            let given = [&[subcommand], arguments, &["--records", "records.txt"]].concat();
            folder.fails(78, &given, said).await;
        };
        with(&["bad.wasm"], &["bad.wasm is not WebAssembly", "wasm32-wasip2"]).await;
        with(&["none.wasm"], &["none.wasm cannot be read", "build it"]).await;
        let clocks = ["wasi:clocks/monotonic-clock", "--grants 'clocks = true, metrics = true'"];
        with(&[&rows, "--grants", "metrics = true"], &clocks).await;
        let refused = r#"{"init":"refuse"}"#;
        let refusal = ["does not start", "`threshold` is missing", "here --guest-config is its `config`"];
        with(&[&rows, "--guest-config", refused], &refusal).await;
        with(&[&rows, "--limits", "memory = \"1 KiB\""], &["limits.memory"]).await;
        with(&["--config", "none.toml"], &["cannot read the configuration none.toml"]).await;
    }
    let none = ["test", &rows, "--records", "none.txt", "--guest-config", "{}"];
    folder.fails(1, &none, &["none.txt cannot be read"]).await;
    folder.fails(2, &["test", &rows], &["--records"]).await;
}

#[tokio::test]
async fn what_is_no_record_is_told_with_its_line() {
    let folder = Folder::new();
    folder.write("records.jsonl", "{\"n\":1}\noops\n{\"n\":2}\n");
    let poison = plugin(POISON);
    let events = folder.events(1, &[&poison, "--records", "records.jsonl"]).await;
    let bad = events.one("no-record");
    assert_eq!((&bad["file"], &bad["line"]), (&json!("records.jsonl"), &json!(2)));
    assert_eq!((events.outputs().len(), &events.end()["no_records"]), (2, &json!(1)));
    let finished = folder.run(&["test", &poison, "--records", "records.jsonl"]).await;
    assert_says("the table", &finished.stdout, &["line 2 is no record: it is not JSON"]);
    assert_says("the end", &finished.stderr, &["1 line of the input cannot be read as records"]);
}

#[tokio::test]
async fn a_test_of_nothing_says_so() {
    let folder = Folder::new();
    let poison = plugin(POISON);
    folder.write("empty.txt", "\n");
    folder.write("array.json", "[\n  {\"n\": 1},\n  {\"n\": 2}\n]\n");
    folder.write("binary.jsonl", "{\"partition_key\":\"k\",\"data_base64\":\"/wA=\"}\n");
    let test = async |records: &str| folder.run(&["test", &poison, "--records", records, "--json"]).await;
    let nothing = test("empty.txt").await;
    assert_eq!(nothing.code, Some(0), "{nothing:?}");
    assert_says("no record", &nothing.stderr, &["there was no record, so that nothing was tried"]);
    assert_eq!(Events::read(&nothing.stdout).end()["records"], 0);
    // JSON as people write it is not a record a line.
    let array = test("array.json").await;
    assert_says("an array", &array.stderr, &["each line is a record", "jq -c '.[]'"]);
    // What is no text, in the form in which a stream's records are printed.
    let binary = test("binary.jsonl").await;
    assert_eq!((binary.code, &*binary.stderr), (Some(0), ""));
    assert_eq!(Events::read(&binary.stdout).one("batch")["outputs"][0]["data_base64"], "/wA=");
}
