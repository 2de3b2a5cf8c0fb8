use shardmill_filter::{Metadata, OnInvalidJson, Verdict};

use super::*;

fn processor(lines: &str) -> Processor {
    good(&format!("{MINIMAL}{lines}\n")).processors["p"].clone()
}

fn is_taken(filter: &Filter, key: &str, body: &str) -> bool {
    let metadata = Metadata { partition_key: key, ..Metadata::default() };
    filter.rules.decide(&metadata, body.as_bytes()) == Verdict::Matched
}

#[test]
fn lanes_are_those_that_were_asked_for() {
    let flow = processor("parallelism = 256\npartition-by = \"/a~1b/m~0n/0\"").flow;
    assert_eq!(flow.parallelism, 256);
    let pointer = flow.partition_by.unwrap();
    assert_eq!(
        (pointer.as_str(), pointer.names().collect::<Vec<_>>()),
        ("/a~1b/m~0n/0", vec!["a/b".to_owned(), "m~n".to_owned(), "0".to_owned()])
    );
    // As the pointers of JSON are read.
    let body = serde_json::json!({ "a/b": { "m~n": ["here"] } });
    assert_eq!(body.pointer(pointer.as_str()), Some(&"here".into()));
    let config = good(&format!("{MINIMAL}[defaults.processor]\nparallelism = 8\npartition-by = \"/user\"\n"));
    assert_eq!(config.processors["p"].flow.parallelism, 8);
    assert_eq!(config.processors["p"].flow.partition_by.as_ref().unwrap().as_str(), "/user");
}

#[test]
fn a_filter_is_of_json_or_of_tables() {
    let json = processor(
        r#"[processors.p.filter]
        patterns = ['{"data": {"status": ["paid"]}}', '{ "partitionKey": [ {"prefix": "vip-"} ] }']
        on-invalid-json = "fail""#,
    );
    let tables = processor(
        r#"[[processors.p.filter.patterns]]
        data = { status = ["paid"] }
        [[processors.p.filter.patterns]]
        partitionKey = [{ prefix = "vip-" }]"#,
    );
    let (json, tables) = (json.flow.filter.unwrap(), tables.flow.filter.unwrap());
    assert_eq!(json.patterns, tables.patterns);
    assert_eq!(json.patterns, [r#"{"data":{"status":["paid"]}}"#, r#"{"partitionKey":[{"prefix":"vip-"}]}"#]);
    assert_eq!(
        (json.rules.on_invalid_json(), tables.rules.on_invalid_json()),
        (OnInvalidJson::Fail, OnInvalidJson::Drop)
    );
    for filter in [json, tables] {
        assert!(is_taken(&filter, "x", r#"{"status": "paid"}"#) && is_taken(&filter, "vip-1", "{}"));
        assert!(!is_taken(&filter, "x", r#"{"status": "open"}"#));
    }
}

/// A fleet tells by it whether workers run the same.
#[test]
fn the_same_text_is_shown_as_the_same_configuration() {
    let text = r#"filter = { patterns = [{ data = { a = ["x"], b = ["y"] } }, { stream = ["s"] }] }"#;
    assert_eq!(format!("{:?}", processor(text)), format!("{:?}", processor(text)));
    let other = text.replace("\"y\"", "\"z\"");
    assert_ne!(format!("{:?}", processor(text)), format!("{:?}", processor(&other)));
}

#[test]
fn batchers_stand_in_their_order_and_begin_with_the_processor_s_batch() {
    let processor = processor(
        r#"batch = { records = 7, wait = "2s" }
        [[processors.p.batchers]]
        name = "z"
        when = ['{"partitionKey": ["z"]}', { data = { z = [1] } }]
        records = 9
        [[processors.p.batchers]]
        name = "m"
        when = [{ partitionKey = ["m"] }]
        bytes = "1 KiB"
        wait = "0s"
        [[processors.p.batchers]]
        name = "a"
        window = "1h"
        empty = true"#,
    );
    let batchers = processor.flow.batchers;
    assert_eq!(batchers.iter().map(|batcher| batcher.name.as_str()).collect::<Vec<_>>(), ["z", "m", "a"]);
    let batch = |records, bytes, wait, window, empty| Batch {
        records,
        bytes,
        wait: Duration::from_secs(wait),
        window: (window > 0).then(|| Duration::from_secs(window)),
        empty,
    };
    assert_eq!(processor.batch, batch(7, 4 << 20, 2, 0, false));
    assert_eq!(batchers[0].batch, batch(9, 4 << 20, 2, 0, false));
    assert_eq!(batchers[1].batch, batch(7, 1 << 10, 0, 0, false));
    // A window is waited for to its end.
    assert_eq!(batchers[2].batch, batch(7, 4 << 20, 3600, 3600, true));
    assert!(is_taken(batchers[0].when.as_ref().unwrap(), "z", ""));
    assert!(is_taken(batchers[0].when.as_ref().unwrap(), "a", r#"{"z": 1}"#));
    assert!(!is_taken(batchers[0].when.as_ref().unwrap(), "a", "not JSON"));
    assert!(batchers[2].when.is_none());
}

#[test]
fn the_processor_s_own_batch_has_windows_and_empty_calls_too() {
    let windows = processor(r#"batch = { window = "1day", empty = true }"#).batch;
    assert_eq!((windows.window, windows.wait), (Some(24 * Duration::from_secs(3600)), 24 * Duration::from_secs(3600)));
    let waits = processor(r#"batch = { window = "1m", wait = "10s", empty = true }"#).batch;
    assert_eq!((waits.window, waits.wait), (Some(Duration::from_secs(60)), Duration::from_secs(10)));
    assert!(processor(r#"batch = { wait = "10s", empty = true }"#).batch.empty);
    // What is not inherited: a batcher has windows of its own.
    let text = "batch = { window = \"1m\", empty = true }\n[[processors.p.batchers]]\nname = \"b\"\nwhen = [{ partitionKey = [\"b\"] }]";
    let batcher = processor(text).flow.batchers.remove(0);
    assert_eq!((batcher.batch.wait, batcher.batch.window, batcher.batch.empty), (Duration::ZERO, None, false));
}

#[test]
fn thirty_two_batchers_are_the_most() {
    let batchers = |count: usize| {
        let each = (0..count).map(|index| {
            format!("[[processors.p.batchers]]\nname = \"b{index}\"\nwhen = [{{ partitionKey = [\"{index}\"] }}]\n")
        });
        format!("{MINIMAL}{}", each.collect::<String>())
    };
    assert_eq!(good(&batchers(32)).processors["p"].flow.batchers.len(), 32);
    let shown = bad(&batchers(33));
    assert!(shown.contains("processors.p.batchers") && shown.contains("33 batchers are too many: 32"), "{shown}");
}

#[test]
fn no_record_of_lanes_that_stay_in_order_is_refused() {
    processor("delivery = \"at-most-once\"\nparallelism = 1\nbatch = { window = \"1m\", empty = true }");
    processor("checkpoint = \"guest\"\npartition-by = \"/a\"\nfilter = { patterns = [{ data = { a = [1] } }] }");
}
