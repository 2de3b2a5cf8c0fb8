mod flow;
mod grants;
mod mistakes;
mod numbers;
mod pipelines;
mod warnings;

use std::path::Path;
use std::time::Duration;

use shardmill_producer::{BatchOptions, Ordering};
use shardmill_stream::StartPosition;

use super::*;

const MINIMAL: &str = r#"
application = "app"
[processors.p]
stream = "in"
plugin = "p.wasm"
"#;

fn good(source: &str) -> Config {
    parse("test.toml", source, Path::new("folder")).unwrap_or_else(|error| panic!("{:?}", miette::Report::new(error)))
}

/// An output that leads to a stream.
fn sent<'a>(config: &'a Config, processor: &str, output: &str) -> &'a StreamOutput {
    match &config.processors[processor].outputs[output] {
        Output::Stream(output) => output,
        Output::Processor(name) => panic!("{output} leads to the processor {name}"),
    }
}

/// The whole message as a user sees it.
fn bad(source: &str) -> String {
    let error = parse("test.toml", source, Path::new("")).expect_err("this is wrong");
    let mut text = String::new();
    let handler = miette::GraphicalReportHandler::new_themed(miette::GraphicalTheme::unicode_nocolor());
    let handler = handler.with_width(10_000);
    handler.render_report(&mut text, &error).unwrap();
    text
}

#[test]
fn what_is_not_said_has_its_default() {
    let config = good(MINIMAL);
    let processor = &config.processors["p"];
    assert_eq!(processor.lease_table.as_deref(), Some("app-p"));
    assert!(processor.flow.is_plain() && processor.batch.window.is_none() && !processor.batch.empty);
    assert_eq!(config.max_hops, 16);
    assert_eq!(processor.plugin, Path::new("folder/p.wasm"));
    assert_eq!(processor.streams[0].start.position, StartPosition::TrimHorizon);
    assert_eq!((processor.batch.records, processor.retry.attempts), (500, 10));
    assert_eq!(config.admin.listen.unwrap().to_string(), "127.0.0.1:9465");
    assert_eq!(config.leases.expiry, Duration::from_secs(10));
    assert_eq!(processor.config, serde_json::json!({}));
}

#[test]
fn failures_stop_the_shard_unless_told_otherwise() {
    let processor = |lines: &str| good(&format!("{MINIMAL}{lines}\n")).processors["p"].clone();
    let default = processor("");
    let stop = Failure { bisect: false, tolerance: Tolerance::default(), max_age: None, then: Then::StopShard };
    assert_eq!(default.failure, stop);
    assert_eq!((default.delivery, default.checkpoint), (Delivery::AtLeastOnce, CheckpointBy::Host));
    assert_eq!(default.checkpoint_count, None);
    // One record is not to take its batch along.
    let skip = processor(r#"failure = { then = "skip" }"#).failure;
    assert_eq!((skip.then, skip.bisect), (Then::Skip, true));
    assert!(!processor(r#"failure = { then = "skip", bisect = false }"#).failure.bisect);
    assert!(!processor(r#"failure = { then = "stop-worker" }"#).failure.bisect);
    let all = processor(
        r#"failure = { bisect = true, tolerance = "0.25%", max-age = "90m", then = "stop-process" }
checkpoint = "guest"
checkpoint-count = 5000"#,
    );
    let tolerance = Tolerance::parse("0.25%").unwrap();
    let max_age = Some(Duration::from_secs(5400));
    assert_eq!(all.failure, Failure { bisect: true, tolerance, max_age, then: Then::StopProcess });
    assert_eq!((all.checkpoint, all.checkpoint_count), (CheckpointBy::Guest, Some(5000)));
    let once = processor("delivery = \"at-most-once\"\nfailure = { then = \"skip\" }");
    assert_eq!((once.delivery, once.retry.attempts, once.failure.bisect), (Delivery::AtMostOnce, 1, false));
}

#[test]
fn what_fails_is_set_key_by_key_for_all_and_for_one() {
    let config = good(
        r#"
        application = "app"
        [defaults.processor.failure]
        then = "skip"
        tolerance = "1%"
        [processors.p]
        stream = "in"
        plugin = "p.wasm"
        failure = { then = "stop-shard" }
        [processors.q]
        stream = "in"
        plugin = "p.wasm"
        "#,
    );
    let (p, q) = (&config.processors["p"].failure, &config.processors["q"].failure);
    assert_eq!((p.then, p.tolerance.to_string().as_str(), p.bisect), (Then::StopShard, "1%", false));
    assert_eq!((q.then, q.bisect), (Then::Skip, true));
}

#[test]
fn a_named_section_overrides_the_defaults_key_by_key() {
    let config = good(
        r#"
        application = "app"
        [defaults.stream]
        start = "latest"
        decoder = "sdk"
        [defaults.processor]
        batch = { records = 7, wait = "2s" }
        [defaults.output]
        ordering = "none"
        aggregate = false
        [streams.in]
        name = "in-production"
        start = 1790000000000
        decoder = "cbor"
        [processors.p]
        stream = "in"
        plugin = "p.wasm"
        batch = { records = 9 }
        [processors.p.outputs.a]
        stream = "in"
        [processors.p.outputs.b]
        stream = "other"
        ordering = "key"
        [processors.q]
        stream = "elsewhere"
        plugin = "p.wasm"
        "#,
    );
    let (p, q) = (&config.processors["p"], &config.processors["q"]);
    assert_eq!((p.batch.records, p.batch.wait), (9, Duration::from_secs(2)));
    assert_eq!(q.batch.records, 7);
    assert_eq!(p.streams[0].id, "in-production");
    assert_eq!(p.streams[0].start.position, StartPosition::AtTimestamp(1_790_000_000_000));
    assert_eq!(q.streams[0].start.position, StartPosition::Latest);
    assert_eq!((p.streams[0].decoder, q.streams[0].decoder), (Decoder::Cbor, Decoder::Sdk));
    let [a, b] = ["a", "b"].map(|output| sent(&config, "p", output));
    assert_eq!((a.options.ordering, a.stream.as_str()), (Ordering::None, "in-production"));
    assert_eq!((b.options.ordering, b.options.aggregate), (Ordering::Key, false));
}

#[test]
fn outputs_are_sent_as_a_producer_with_the_same_keys_sends() {
    let output = |defaults: &str, own: &str| {
        let text =
            format!("{MINIMAL}[defaults.output]\n{defaults}\n[processors.p.outputs.out]\nstream = \"out\"\n{own}\n");
        sent(&good(&text), "p", "out").options.clone()
    };
    assert_eq!(output("", ""), BatchOptions::default());
    let all = r#"
        ordering = "none"
        aggregate = false
        aggregate-max-bytes = "100 KiB"
        request-max-records = 100
        request-max-bytes = "1 MiB"
        rate-limit-percent = 80
        request-timeout = "3s"
        max-requests = 8
        backoff-min = "10ms"
        backoff-max = "1s"
    "#;
    let expected: BatchOptions = toml::from_str(all).unwrap();
    assert_eq!(output("", all), expected);
    assert_eq!(output(all, ""), expected);
    let own = output(all, "request-max-records = 7\nbackoff-max = \"2m\"");
    assert_eq!(own, BatchOptions { request_max_records: 7, backoff_max: Duration::from_secs(120), ..expected });
    // The longest wait is no shorter than the shortest.
    let slow = output("", "backoff-min = \"20s\"");
    assert_eq!((slow.backoff_min, slow.backoff_max), (Duration::from_secs(20), Duration::from_secs(20)));
}

const ARN: &str = "arn:aws-us-gov:kinesis:us-gov-west-1:123456789012:stream/orders";

#[test]
fn a_stream_is_named_by_its_arn_wherever_it_is_named() {
    let config = good(&format!(
        r#"
        application = "app"
        [streams.orders]
        arn = "{ARN}"
        idle = "2s"
        [streams.same]
        name = "orders"
        arn = "{ARN}"
        [processors.p]
        stream = "orders"
        plugin = "p.wasm"
        [processors.p.outputs.a]
        stream = "same"
        [processors.p.outputs.b]
        stream = "{ARN}"
        [processors.q]
        stream = "{ARN}"
        plugin = "p.wasm"
        "#
    ));
    let (p, q) = (&config.processors["p"], &config.processors["q"]);
    assert_eq!((p.streams[0].id.as_str(), p.streams[0].idle), (ARN, Duration::from_secs(2)));
    assert_eq!(["a", "b"].map(|output| sent(&config, "p", output).stream.as_str()), [ARN, ARN]);
    assert_eq!((q.streams[0].id.as_str(), q.key_form), (ARN, KeyForm::Shard));
}

#[test]
fn a_list_of_streams_makes_a_consumer_of_many_also_if_it_names_one() {
    let config = |streams: &str| {
        good(&format!(
            "application = \"app\"\n[streams.a]\nstart = \"latest\"\n[processors.p]\nstreams = {streams}\nplugin = \"p.wasm\"\n"
        ))
    };
    let many = config(&format!(r#"["a", "b", "{ARN}"]"#));
    let ids: Vec<&str> = many.processors["p"].streams.iter().map(|stream| stream.id.as_str()).collect();
    assert_eq!((ids, many.processors["p"].key_form), (vec!["a", "b", ARN], KeyForm::MultiStream));
    let starts: Vec<_> = many.processors["p"].streams.iter().map(|stream| stream.start.position).collect();
    assert_eq!(starts[..2], [StartPosition::Latest, StartPosition::TrimHorizon]);
    assert_eq!(config(r#"["a"]"#).processors["p"].key_form, KeyForm::MultiStream);
    assert_eq!(good(MINIMAL).processors["p"].key_form, KeyForm::Shard);
}

#[test]
fn dead_letters_go_to_a_folder_a_stream_or_an_output() {
    let config = good(&format!(
        r#"
        application = "app"
        [streams.failed]
        arn = "{ARN}"
        [defaults.processor.dead-letters]
        folder = "letters"
        [processors.a]
        stream = "in"
        plugin = "p.wasm"
        [processors.b]
        stream = "in"
        plugin = "p.wasm"
        dead-letters = {{ stream = "failed" }}
        [processors.c]
        stream = "in"
        plugin = "p.wasm"
        [processors.c.outputs.rest]
        stream = "leftovers"
        [processors.c.dead-letters]
        output = "rest"
        [processors.d]
        stream = "in"
        plugin = "p.wasm"
        dead-letters = {{ folder = "/letters", file-bytes = "1 MiB" }}
        "#
    ));
    let place = |processor: &str| config.processors[processor].dead_letters.clone().unwrap();
    let folder = |path: &str, file_bytes| DeadLetters::Folder { path: path.into(), file_bytes };
    assert_eq!(place("a"), folder("folder/letters", 64 << 20));
    assert_eq!(place("b"), DeadLetters::Stream { stream: ARN.to_owned(), aggregate: false });
    assert_eq!(place("c"), DeadLetters::Output { output: "rest".to_owned() });
    assert_eq!(place("d"), folder("/letters", 1 << 20));
    let streams = ["a", "b", "c", "d"].map(|processor| config.processors[processor].dead_letter_stream());
    assert_eq!(streams, [None, Some(ARN), Some("leftovers"), None]);
    // Clients are made for the regions of all streams.
    assert!(config.stream_ids().any(|stream| stream == ARN));
    assert_eq!(config.warnings, [""; 0], "a stream for dead letters is one that is used");
    assert_eq!(good(MINIMAL).processors["p"].dead_letters, None);
}

#[test]
fn names_and_arns_that_may_be_one_stream() {
    let elsewhere = ARN.replace("123456789012", "210987654321");
    let name = ARN.rsplit('/').next().unwrap();
    assert!(may_be_one(ARN, ARN) && may_be_one(name, name) && may_be_one(ARN, name) && may_be_one(name, &elsewhere));
    assert!(!may_be_one(ARN, &elsewhere) && !may_be_one(ARN, "in") && !may_be_one("in", name));
    let config = good(&MINIMAL.replace("\"in\"", &format!("{ARN:?}")));
    assert!(config.processors["p"].reads(name) && !config.processors["p"].reads(&elsewhere));
}

#[test]
fn the_demo_s_configuration_is_good() {
    let config = parse("demo", include_str!("../../../../demo/shardmill.toml"), Path::new("demo")).unwrap();
    assert_eq!(config.processors["flight-delays"].config["airlines"]["9E"], "Endeavor Air Inc.");
}
