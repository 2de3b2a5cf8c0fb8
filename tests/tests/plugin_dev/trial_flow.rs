//! `shardmill plugin test`: configurations, hooks, what a plugin says, and what is expected of it.

use std::fs;

use serde_json::json;
use shardmill_tests::assert_says;

use crate::cli::{Folder, plugin};

const POISON: &str = "guest_poison";
const ROWS: &str = "guest_rows";

#[tokio::test]
async fn a_processor_of_a_configuration_is_tried_as_it_would_run() {
    let folder = Folder::new();
    let (rows, poison) = (plugin(ROWS), plugin(POISON));
    let config = format!(
        r#"
application = "shop"
[processors.rows]
stream = "orders"
plugin = {rows:?}
config = {{ do = "describe" }}
grants = {{ clocks = true, random = true, metrics = true }}
batch = {{ records = 2 }}
filter = {{ patterns = [{{ data = {{ n = [{{ exists = true }}] }} }}], on-invalid-json = "fail" }}
[processors.rows.outputs.out]
stream = "out"

[processors.poison]
stream = "orders"
plugin = {poison:?}
grants = {{ clocks = true, random = true, metrics = true }}
"#
    );
    folder.write("shardmill.toml", config);
    folder.write("records.txt", "{\"n\":1}\n{\"m\":1}\n{\"n\":2}\nno json\n{\"n\":3}\n");
    let on = |processor| ["--config", "shardmill.toml", "--records", "records.txt", "--processor", processor];
    let events = folder.events(1, &on("rows")).await;
    let end = events.end();
    assert_eq!(
        (&end["filtered_out"], &end["done"], &end["failed"], &end["batches"]),
        (&json!(1), &json!(3), &json!(1), &json!(2))
    );
    assert_eq!(events.one("no-record")["line"], 4);
    let told = &events.outputs()[0];
    for words in ["application: \"shop\"", "processor: \"rows\"", "\"orders\""] {
        assert!(told.contains(words), "{words}: {told}");
    }
    // An output that the configuration does not have, as a worker would refuse it.
    let events = folder.events(1, &on("poison")).await;
    let failure = &events.all("batch")[0]["calls"][0]["failure"];
    assert_eq!(failure["kind"], "invalid-outcome");
    assert!(failure["message"].as_str().is_some_and(|text| text.contains("`copies`, which is not among")), "{failure}");

    let without = ["test", "--config", "shardmill.toml", "--records", "records.txt"];
    folder.fails(2, &without, &["2 processors", "--processor with one of poison, rows"]).await;
    folder.fails(2, &[&without[..], &["--processor", "x"]].concat(), &["no processor `x`"]).await;
    folder.fails(2, &[&without[..], &["--grants", "clocks = false"]].concat(), &["--grants"]).await;
    // Another file in the place of the configuration's.
    let events = folder.events(0, &[&[rows.as_str()], &on("poison")[..]].concat()).await;
    assert_eq!(events.one("start")["module"]["form"], "rows");
}

#[tokio::test]
async fn hooks_are_called_where_they_belong() {
    let folder = Folder::new();
    let line =
        |shard: &str, data: &str| json!({ "shard": shard, "partition_key": "k", "data": data }).to_string() + "\n";
    folder.write("records.jsonl", [line("a", "1"), line("b", r#"{"poison":"final"}"#), line("a", "2")].concat());
    let poison = plugin(POISON);
    let config = r#"{"tells":true}"#;
    let test = ["--records", "records.jsonl", "--batch", "1", "--guest-config", config];
    let events = folder.events(1, &[&[poison.as_str()], &test[..], &["--hooks"]].concat()).await;
    let told = |events: &crate::cli::Events| -> Vec<String> {
        let of = |event: &serde_json::Value| {
            let shard = event["shard"].as_str().unwrap_or("-");
            match event["event"].as_str() {
                Some("hook") => Some(format!("{} {shard}", event["hook"].as_str().expect("a name"))),
                Some("batch") => Some(format!("batch {shard}")),
                _other => None,
            }
        };
        events.0.iter().filter_map(of).collect()
    };
    assert_eq!(
        told(&events),
        [
            "assigned a",
            "batch a",
            "assigned b",
            "batch b",
            "given-up b",
            "batch a",
            "idle a",
            "shard-ended a",
            "idle b",
            "shard-ended b",
            "shutdown -"
        ]
    );
    assert_eq!(events.one("start")["logs"][0]["message"], "told: init");
    let logs: Vec<_> =
        events.all("hook").iter().flat_map(|hook| hook["logs"].as_array().expect("lines").clone()).collect();
    assert!(
        logs.iter().any(|line| line["message"] == "told: given up after 1 attempts: this record is poison"),
        "{logs:?}"
    );
    let events = folder.events(1, &[&[poison.as_str()], &test[..], &["--hooks=revoked,assigned"]].concat()).await;
    assert_eq!(told(&events)[6..], ["revoked b"]);
    assert_eq!(told(&events)[5..6], ["revoked a"]);

    // One that fails, and outputs of hooks.
    let rows = plugin(ROWS);
    folder.write("one.txt", "1\n");
    let arguments = [&rows, "--records", "one.txt", "--guest-config", "{\"do\":\"echo\"}", "--hooks=assigned,idle"];
    let events = folder.events(1, &arguments).await;
    assert_eq!(events.outputs(), ["assigned shardId-000000000000", "1"]);
    let idle = &events.all("hook")[1]["call"]["failure"];
    assert_eq!((&idle["kind"], &events.end()["failed_hooks"]), (&json!("reject"), &json!(1)));
    let route = plugin("route");
    let without = ["test", &route, "--records", "one.txt", "--hooks", "--guest-config", "{\"field\":\"n\"}"];
    folder.fails(2, &without, &["has no hooks", "processor!(TYPE, hooks)"]).await;
}

#[tokio::test]
async fn what_a_plugin_logs_and_measures_is_shown_with_its_call() {
    let folder = Folder::new();
    folder.write("records.txt", "one\n");
    let rows = plugin(ROWS);
    let config = |what: &str| json!({ "do": what }).to_string();
    let test = async |what: &str, more: &[&str]| {
        let config = config(what);
        let arguments = [&[rows.as_str(), "--records", "records.txt", "--guest-config", &config], more].concat();
        folder.events(0, &arguments).await
    };
    let events = test("log", &[]).await;
    let line = &events.one("batch")["logs"][0];
    assert_eq!((&line["level"], &line["fields"]), (&json!("WARN"), &json!({ "carrier": "AA", "delay": "12" })));
    assert!(line["message"].as_str().is_some_and(|text| text.starts_with("a late flight")), "{line}");
    assert_eq!(test("print", &[]).await.one("batch")["logs"][0]["source"], "stdout");
    assert_eq!(test("print", &["--log", "error"]).await.one("batch")["logs"], json!([]));
    let metrics = test("measure", &[]).await.end()["metrics"].clone();
    assert_eq!((&metrics["late_total{carrier=\"AA\"}"], &metrics["level"]), (&json!(2.0), &json!(1.5)));

    let (log, flood) = (config("log"), config("log-flood"));
    let shown = folder.stdout(0, &["test", &rows, "--records", "records.txt", "--guest-config", &log]).await;
    assert!(shown.contains("WARN  a late flight\\nINFO and a forged line carrier=AA delay=12"), "{shown}");
    let finished = folder.run(&["test", &rows, "--records", "records.txt", "--guest-config", &flood]).await;
    assert_says("too many lines", &finished.stderr, &["over its limit (limits.log-lines-per-second)"]);
}

#[tokio::test]
async fn what_comes_out_is_compared_with_what_is_expected() {
    let folder = Folder::new();
    folder.write("records.jsonl", "{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n");
    let poison = plugin(POISON);
    let test = [poison.as_str(), "--records", "records.jsonl", "--expect", "expected.jsonl"];
    folder.fails(2, &[&["test"], &test[..]].concat(), &["expected.jsonl cannot be read", "--update writes it"]).await;
    folder.stdout(0, &[&["test"], &test[..], &["--update"]].concat()).await;
    let written = fs::read_to_string(folder.join("expected.jsonl")).expect("a file");
    assert_eq!(written.lines().count(), 3);
    let shown = folder.stdout(0, &[&["test"], &test[..]].concat()).await;
    assert!(shown.contains("outputs as expected.jsonl says"), "{shown}");
    assert_eq!(folder.events(0, &test).await.end()["expected"], json!({ "ok": true }));

    let lines =
        [r#"{"output":"copies","json":{"n":1}}"#, r#"{"output":"copies","data":"other"}"#, r#"{"output":"copies"}"#];
    folder.write("expected.jsonl", lines.join("\n"));
    let finished = folder.run(&[&["test"], &test[..]].concat()).await;
    assert_eq!(finished.code, Some(1), "{finished:?}");
    let difference = [
        "1 missing (-), 1 not expected (+)",
        "- {\"output\":\"copies\",\"data\":\"other\"}",
        "+ {\"data\":\"{\\\"n\\\":",
    ];
    assert_says("the difference", &finished.stdout, &difference);
    assert_says("the end", &finished.stderr, &["the outputs differ: 1 missing, 1 not expected"]);
    let expected = folder.events(1, &test).await.end()["expected"].clone();
    assert_eq!((&expected["ok"], &expected["missing"], &expected["unexpected"]), (&json!(false), &json!(1), &json!(1)));

    folder.write("expected.jsonl", "{\"output\":\"copies\"}\n{\"outptu\":1}\n");
    folder.fails(2, &[&["test"], &test[..]].concat(), &["expected.jsonl, line 2", "outptu"]).await;
}
