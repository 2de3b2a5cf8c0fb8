//! What a processor says, and what a host makes of it.

use std::time::Duration;

use shardmill_guest::log::Level;
use shardmill_guest::output::Cause;
use shardmill_guest::prelude::*;
use shardmill_guest::testing::{self, MetricValue, Verdict, batch_of, record};

/// Does what each record's data says.
struct Obedient;

impl RecordProcessor for Obedient {
    type Config = NoConfig;

    fn new(_: NoConfig) -> Result<Self, Error> {
        Ok(Obedient)
    }

    fn process_record(
        &mut self,
        _: &ShardContext,
        record: Record<'_>,
        outcome: &mut RecordOutcome<'_, '_>,
    ) -> Result<(), RecordError> {
        outcome.emit("said").bytes(record.data())?;
        match record.text()? {
            "skip" => outcome.skip("was told to"),
            "number" => drop(record.json::<u32>()?),
            "key" => outcome.emit("said").partition_key(&"ä".repeat(257)).text("")?,
            "io" => return Err(std::io::Error::other("the network is down").into()),
            "retry" => return Err(RecordError::retry("later")),
            "stop" => return Err(Error::stop_shard("look at this").into()),
            _ => {}
        }
        Ok(())
    }
}

shardmill_guest::processor!(Obedient);

#[test]
fn a_failed_record_fails_alone_and_leaves_no_outputs() {
    let records = ["a", "skip", "number", "key", "io", "retry", "b"];
    let result = testing::run(&mut Obedient, records).unwrap();
    let not_a_number = serde_json::from_str::<u32>("number").unwrap_err();
    let failed = |reason: &str, retry| Verdict::Failed { reason: reason.to_owned(), retry };
    assert_eq!(
        result.verdicts(),
        [
            Verdict::Done,
            Verdict::Skipped { reason: "was told to".to_owned() },
            failed(&format!("the data is not as expected: {not_a_number}"), false),
            failed("output \"said\": a partition key has 1 to 256 characters, this one has 257", false),
            failed("the network is down", true),
            failed("later", true),
            Verdict::Done,
        ]
    );
    let said: Vec<(&str, Cause)> = result.outputs("said").iter().map(|output| (output.text(), output.cause)).collect();
    assert_eq!(said, [("a", Cause::Record(0)), ("skip", Cause::Record(1)), ("b", Cause::Record(6))]);
}

#[test]
fn data_that_is_no_text_fails_for_good() {
    let result = testing::run(&mut Obedient, [b"\xff".as_slice()]).unwrap();
    assert!(matches!(&result.verdicts()[0], Verdict::Failed { retry: false, .. }), "{:?}", result.verdicts());
}

#[test]
fn an_error_of_the_call_fails_all_of_it() {
    let error = testing::run(&mut Obedient, ["a", "stop"]).unwrap_err();
    assert_eq!(error, Error::stop_shard("look at this"));
}

#[test]
fn question_mark_asks_for_a_retry_of_the_batch_with_the_whole_chain_of_causes() {
    #[derive(Debug, thiserror::Error)]
    #[error("the table cannot be read")]
    struct Outer(#[source] std::io::Error);

    let error = Error::from(Outer(std::io::Error::other("the disk is full")));
    assert_eq!(error, Error::retry("the table cannot be read: the disk is full"));
    let Error::Retry { after, .. } = Error::retry_after(Duration::from_secs(3), "busy") else { panic!() };
    assert_eq!(after, Duration::from_secs(3));
}

#[test]
fn keys_are_the_records_unless_told_otherwise() {
    let records = batch_of([record("").partition_key("k").explicit_hash_key(7)]);
    let batch = records.batch();
    let record = batch.get(0).unwrap();
    struct Emits;
    impl Processor for Emits {
        type Config = NoConfig;
        fn new(_: NoConfig) -> Result<Self, Error> {
            Ok(Emits)
        }
        fn process(&mut self, _: &ShardContext, batch: &Batch<'_>) -> Result<Outcome, Error> {
            let mut outcome = batch.outcome();
            for record in batch {
                outcome.emit("o", record).text("inherited")?;
                outcome.emit("o", record).partition_key("k").text("same key")?;
                outcome.emit("o", record).partition_key("other").text("other key")?;
                outcome.emit("o", record).explicit_hash_key(u128::MAX).partition_key("other").text("both")?;
                outcome.emit("o", record).partition_key(&"ä".repeat(256)).json("längster")?;
            }
            outcome.emit_for_batch("totals", "all").json(&batch.len())?;
            assert!(outcome.emit_for_batch("totals", "").json(&1).is_err());
            Ok(outcome)
        }
    }
    let result = testing::run(&mut Emits, [testing::record("").partition_key("k").explicit_hash_key(7)]).unwrap();
    let keys: Vec<_> = result
        .outputs("o")
        .iter()
        .map(|output| (output.partition_key.clone(), output.explicit_hash_key.clone(), output.text().to_owned()))
        .collect();
    let row =
        |key: &str, hash_key: Option<&str>, text: &str| (key.to_owned(), hash_key.map(str::to_owned), text.to_owned());
    assert_eq!(
        keys,
        [
            row("k", Some("7"), "inherited"),
            row("k", Some("7"), "same key"),
            row("other", None, "other key"),
            row("other", Some("340282366920938463463374607431768211455"), "both"),
            row(&"ä".repeat(256), None, "\"längster\""),
        ]
    );
    let totals = result.outputs("totals");
    assert_eq!((totals.len(), totals[0].text(), totals[0].cause), (1, "1", Cause::Batch));
    assert_eq!(record.position().sub_sequence_number, 0);
}

/// Runs a closure as a processor.
struct Scripted(fn(&Batch<'_>) -> Outcome);

impl Processor for Scripted {
    type Config = NoConfig;

    fn new(_: NoConfig) -> Result<Self, Error> {
        Ok(Scripted(|batch| batch.outcome()))
    }

    fn process(&mut self, _: &ShardContext, batch: &Batch<'_>) -> Result<Outcome, Error> {
        Ok(self.0(batch))
    }
}

#[test]
fn done_can_be_narrowed() {
    let mut before = Scripted(|batch| {
        let mut outcome = batch.outcome();
        outcome.done_before(2);
        outcome.fail(batch.get(0).unwrap(), "no");
        outcome.checkpoint(batch.get(1).unwrap());
        outcome
    });
    let result = testing::run(&mut before, ["a", "b", "c"]).unwrap();
    let failed = Verdict::Failed { reason: "no".to_owned(), retry: true };
    assert_eq!(result.verdicts(), [failed, Verdict::Done, Verdict::NotDone]);
    assert!(result.checkpoint().unwrap().sequence_number.ends_with('2'));

    let mut only = Scripted(|batch| {
        let mut outcome = batch.outcome();
        outcome.done_only([batch.get(2).unwrap(), batch.get(2).unwrap()]);
        outcome
    });
    let result = testing::run(&mut only, ["a", "b", "c"]).unwrap();
    assert_eq!(result.verdicts(), [Verdict::NotDone, Verdict::NotDone, Verdict::Done]);

    let mut beyond = Scripted(|batch| {
        let mut outcome = batch.outcome();
        outcome.done_before(100);
        outcome
    });
    assert!(testing::run(&mut beyond, ["a"]).unwrap().all_done());
}

#[test]
fn what_is_said_last_of_a_record_counts() {
    let mut twice = Scripted(|batch| {
        let mut outcome = batch.outcome();
        let record = batch.get(0).unwrap();
        outcome.emit("o", record).text("x").unwrap();
        outcome.skip(record, "first");
        outcome.fail_for_good(record, "second");
        outcome
    });
    let result = testing::run(&mut twice, ["a"]).unwrap();
    assert_eq!(result.verdicts(), [Verdict::Failed { reason: "second".to_owned(), retry: false }]);
    assert!(result.all_outputs().is_empty(), "outputs of a failed record are dropped");
}

#[test]
#[should_panic(expected = "the outcome is of another batch")]
fn an_outcome_of_another_batch_is_refused() {
    let mut other = Scripted(|_| batch_of(["a", "b"]).batch().outcome());
    let _ = testing::run(&mut other, ["a"]);
}

#[test]
fn a_configuration_is_refused_by_what_is_wrong_with_it() {
    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Settings {
        minutes: u32,
    }
    #[derive(Debug)]
    struct Picky(u32);
    impl Processor for Picky {
        type Config = Settings;
        fn new(config: Settings) -> Result<Self, Error> {
            if config.minutes == 0 {
                return Err(Error::reject("minutes must be at least 1"));
            }
            Ok(Picky(config.minutes))
        }
        fn process(&mut self, _: &ShardContext, batch: &Batch<'_>) -> Result<Outcome, Error> {
            Ok(batch.outcome())
        }
    }
    let configured = |config: serde_json::Value| testing::configured::<Picky>(config);
    assert_eq!(configured(serde_json::json!({ "minutes": 5 })).unwrap().0, 5);
    assert_eq!(configured(serde_json::json!({ "minutes": 0 })).unwrap_err(), "minutes must be at least 1");
    let misspelt = configured(serde_json::json!({ "minuets": 5 })).unwrap_err();
    assert!(misspelt.contains("unknown field `minuets`, expected `minutes`"), "{misspelt}");
    assert!(testing::configured::<Scripted>(serde_json::json!({ "any": 1 })).is_err());
}

impl Hooks for Obedient {
    fn shard_ended(&mut self, shard: &ShardContext, outcome: &mut HookOutcome) -> Result<(), Error> {
        info!(shard = shard.shard_id, records = 3; "ended after {} s", 7);
        metrics::add("ended", &[("stream", &shard.stream)], 1);
        outcome.emit("ends", &shard.shard_id).json(&true)?;
        Ok(())
    }
}

#[test]
fn hooks_emit_log_and_count() {
    let shard = testing::shard();
    let result = testing::run_hook(|outcome| Obedient.shard_ended(&shard, outcome)).unwrap();
    assert_eq!(result.outputs.len(), 1);
    assert_eq!((result.outputs[0].text(), result.outputs[0].cause), ("true", Cause::Hook(1)));
    assert!(testing::run_hook(|outcome| Obedient.idle(&shard, outcome)).unwrap().outputs.is_empty());

    let logs = testing::logs();
    assert_eq!(logs.len(), 1);
    assert_eq!((logs[0].level, logs[0].message.as_str()), (Level::Info, "ended after 7 s"));
    let fields: Vec<_> = logs[0].fields.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    assert_eq!(fields, [("shard", "shardId-000000000000"), ("records", "3")]);

    let metrics = testing::metrics();
    assert_eq!(metrics.len(), 1);
    assert_eq!((metrics[0].name.as_str(), metrics[0].value), ("ended", MetricValue::Add(1)));
}

#[test]
fn a_line_that_is_not_kept_is_not_put_together() {
    let before = testing::set_log_level(Level::Warn);
    let costly = || -> &str { panic!("was put together") };
    debug!("{}", costly());
    trace!(value = costly(); "text");
    warn!("kept");
    error!(code = 5; "kept");
    testing::set_log_level(before);
    assert_eq!(testing::logs().len(), 2);
}
