//! `shardmill-reliability`: integers through producer, processor and output stream, and what is said when some are lost,
//! repeated, or do not come any more.

use std::time::Duration;

use serde_json::Value;
use shardmill_tests::{Finished, isolated, paths, run_within};

/// Far more than a run takes: a machine may be busy.
const LIMIT: Duration = Duration::from_secs(300);

async fn finished(arguments: &[&str]) -> Finished {
    let mut command = isolated(env!("CARGO_BIN_EXE_shardmill-reliability"));
    command.args(arguments).env("SHARDMILL_BIN", paths::binary());
    run_within(LIMIT, command).await
}

/// The exit status of a run, and the lines that it prints.
async fn reliability(arguments: &[&str]) -> (Option<i32>, Vec<Value>) {
    let finished = finished(&[arguments, &["--json"][..]].concat()).await;
    let line = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let lines: Vec<Value> = finished.stdout.lines().map(line).collect();
    assert!(!lines.is_empty(), "it says how it ended: {}", finished.stderr);
    (finished.code, lines)
}

fn number(end: &Value, name: &str) -> u64 {
    end[name].as_u64().unwrap_or_else(|| panic!("{name} in {end}"))
}

#[tokio::test]
async fn two_hundred_thousand_integers_come_out_once_and_in_the_order_of_their_keys() {
    let (code, lines) = reliability(&["--records", "200000"]).await;
    let [first, second, end] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!(code, Some(0), "{end}");
    for (stop, integers) in [(first, 150_000), (second, 200_000)] {
        assert_eq!((&stop["event"], number(stop, "integers")), (&"pit-stop".into(), integers));
        assert!(number(stop, "records_per_second") > 0);
    }
    assert_eq!((&end["event"], &end["ok"], &end["ending"]), (&"end".into(), &true.into(), &"complete".into()));
    for name in ["passed", "found", "put", "confirmed"] {
        assert_eq!(number(end, name), 200_000, "{name} in {end}");
    }
    for name in ["unconfirmed", "failed", "missing", "hole_count"] {
        assert_eq!(number(end, name), 0, "{name} in {end}");
    }
    for name in ["repeated", "late", "strange"] {
        assert_eq!(number(&end[name], "count"), 0, "{name} in {end}");
    }
    // Through aggregates, in both streams.
    for name in ["input_kinesis_records", "output_kinesis_records"] {
        assert!((1..20_000).contains(&number(end, name)), "{name} in {end}");
    }
}

#[tokio::test]
async fn integers_that_are_acknowledged_and_not_stored_are_named_as_a_hole_of_their_shard() {
    let (code, lines) = reliability(&["--records", "60000", "--pit-stop", "20000", "--plant", "swallowed"]).await;
    let [end] = &lines[..] else { panic!("the first pit stop finds it: {lines:?}") };
    assert_eq!((code, &end["ok"], &end["ending"]), (Some(1), &false.into(), &"broken".into()), "{end}");
    assert_eq!(number(end, "hole_count"), 1, "one Kinesis record of one shard: {end}");
    let hole = &end["holes"][0];
    // The record may be an aggregate, or an integer alone.
    assert!(number(hole, "first") <= number(hole, "last") && number(hole, "last") < 20_000, "{end}");
    assert!(number(hole, "integers") > 0 && number(hole, "integers") == number(end, "missing"), "{end}");
    assert!(hole["shard"].as_str().is_some_and(|shard| shard.starts_with("shardId-")), "{end}");
    assert_eq!(number(end, "overtaken"), number(end, "missing"), "keys have gone on: {end}");
    assert_eq!(number(end, "missing_in_input_too"), 0, "they were lost behind the input: {end}");
    assert_eq!((number(&end["repeated"], "count"), number(end, "failed")), (0, 0), "{end}");
    assert!(end["worker_log"].is_string(), "{end}");
}

#[tokio::test]
async fn integers_that_are_stored_twice_are_counted_as_repeated_and_nothing_is_missing() {
    let (code, lines) = reliability(&["--records", "60000", "--pit-stop", "20000", "--plant", "answer-lost"]).await;
    let end = lines.last().expect("it says how it ended");
    assert_eq!((code, &end["ok"], &end["ending"]), (Some(1), &false.into(), &"broken".into()), "{end}");
    let repeated = number(&end["repeated"], "count");
    assert!(repeated > 0, "{end}");
    assert_eq!(number(end, "output_repeats_announced"), repeated, "the processor's producer knows of them: {end}");
    assert_eq!((number(end, "missing"), number(&end["late"], "count"), number(&end["strange"], "count")), (0, 0, 0));
}

#[tokio::test]
async fn a_run_of_which_nothing_comes_out_any_more_ends_and_names_what_is_missing() {
    let arguments = ["--records", "60000", "--pit-stop", "20000", "--patience", "5", "--plant", "unanswered"];
    let (code, lines) = reliability(&arguments).await;
    let end = lines.last().expect("it says how it ended");
    assert_eq!((code, &end["ok"], &end["ending"]), (Some(1), &false.into(), &"stalled".into()), "{end}");
    assert_eq!(number(end, "found") + number(end, "missing"), 20_000, "{end}");
    assert_eq!((number(end, "overtaken"), number(&end["repeated"], "count")), (0, 0), "{end}");
    assert_eq!(number(end, "failed"), 0, "the way to the input is whole: {end}");
}

#[tokio::test]
async fn mistakes_on_its_command_line_are_usage_errors() {
    for arguments in [&["--records", "0"][..], &["--shards", "0"], &["--pit-stop", "1"], &["--plant", "nothing"]] {
        let finished = finished(arguments).await;
        assert_eq!(finished.code, Some(2), "{arguments:?}: {}", finished.stderr);
    }
}
