use std::time::Duration;

use serde_json::json;
use shardmill_plugin::{
    Cause, Done, Failure, Form, GivenUpRecord, InvalidOutcome, Outcome, Output, ProcessError, SettledHook, ShardContext,
};
use shardmill_record::{BatchBuilder, UserRecord};

use crate::support::{Log, World, batch, record, shard};

fn texts(outcome: &Outcome) -> Vec<String> {
    outcome.outputs.iter().map(|output| String::from_utf8(output.record.data.to_vec()).unwrap()).collect()
}

#[tokio::test]
async fn both_forms_hand_every_record_over_and_every_output_back() {
    let world = World::new();
    let expected: Vec<_> = batch()
        .iter()
        .enumerate()
        .map(|(index, record)| Output {
            name: "out".into(),
            record: UserRecord {
                partition_key: record.partition_key.into(),
                explicit_hash_key: record.explicit_hash_key.map(|key| key.parse().unwrap()),
                data: record.data.to_vec().into(),
            },
            cause: Cause::Record(index as u32),
        })
        .collect();
    let rows = world.process(Form::Rows, "echo").await.0.unwrap();
    assert_eq!(rows.outputs, expected);
    assert_eq!((rows.done, rows.checkpoint), (Done::Others, Some(batch().position(3))));
    let columnar = world.process(Form::Columnar, "retry-unless-whole").await.0.unwrap();
    assert_eq!(columnar.outputs, expected);
    assert_eq!((columnar.done, columnar.checkpoint), (Done::Others, None));
}

#[tokio::test]
async fn an_empty_batch_is_a_batch() {
    let world = World::new();
    for form in [Form::Rows, Form::Columnar] {
        let mut instance = world.instance(form, "echo").await;
        let empty = BatchBuilder::default().build();
        assert_eq!(instance.process_batch(&shard(), &empty).await, Ok(Outcome::default()));
    }
}

#[tokio::test]
async fn the_context_and_the_columns_arrive_as_they_are() {
    let world = World::new();
    let mut instance = world.instance(Form::Rows, "describe").await;
    let mut builder = BatchBuilder::default();
    builder.push(record("17", Some("12"), b"x"));
    let context = ShardContext { attempt: 3, millis_behind_latest: None, last_batch: true, ..shard() };
    let outcome = instance.process_batch(&context, &builder.build()).await.unwrap();
    let text = texts(&outcome).remove(0);
    for part in [
        r#"application: "air", processor: "flights", stream: "departures", shard-id: "shardId-000000000003""#,
        r#"worker: "worker-1", lease-epoch: 7, attempt: 3, millis-behind-latest: None, last-batch: true"#,
        r#"sequence-number: "17", sub-sequence-number: 2, partition-key: "AA é", explicit-hash-key: Some("12")"#,
        "approximate-arrival: 1700000000123, data: [120]",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

#[tokio::test]
async fn what_a_guest_says_of_records_comes_back() {
    let outcome = World::new().process(Form::Rows, "failed-and-skipped").await.0.unwrap();
    assert_eq!(outcome.done, Done::Before(2));
    assert_eq!((outcome.failed[0].index, &*outcome.failed[0].reason, outcome.failed[0].retry), (0, "bad", true));
    assert_eq!((outcome.skipped[0].index, &*outcome.skipped[0].reason), (2, "old"));
}

#[tokio::test]
async fn a_guests_own_errors_leave_the_instance_usable() {
    let world = World::new();
    let retry = ProcessError::Retry { after: Duration::from_millis(250), message: "busy".into() };
    let reject = ProcessError::Reject { message: "never".into() };
    let stop = ProcessError::StopShard { message: "look at this".into() };
    for (behaviour, expected) in [("retry", retry), ("reject", reject), ("stop-shard", stop)] {
        let (result, is_usable) = world.process(Form::Rows, behaviour).await;
        assert_eq!((result, is_usable), (Err(Failure::Guest(expected)), true));
    }
}

#[tokio::test]
async fn an_outcome_that_cannot_be_read_is_an_error_that_says_why() {
    let world = World::new();
    let invalid = async |form, behaviour| match world.process(form, behaviour).await {
        (Err(Failure::InvalidOutcome(invalid)), true) => invalid,
        other => panic!("{behaviour}: {other:?}"),
    };
    assert!(matches!(invalid(Form::Rows, "bad-hash-key").await, InvalidOutcome::HashKey { output: 0, .. }));
    assert!(matches!(invalid(Form::Rows, "bad-checkpoint").await, InvalidOutcome::Checkpoint(_)));
    let length = InvalidOutcome::ArenaTooShort { output: 0, arena: 37 };
    assert_eq!(invalid(Form::Columnar, "long-length").await, length);
    let short = InvalidOutcome::ArenaTooShort { output: 3, arena: 36 };
    assert_eq!(invalid(Form::Columnar, "short-arena").await, short);
    assert_eq!(invalid(Form::Columnar, "long-arena").await, InvalidOutcome::ArenaTooLong { rest: 1 });
    for behaviour in ["missing-length", "missing-cause"] {
        assert!(matches!(invalid(Form::Columnar, behaviour).await, InvalidOutcome::ColumnLength { outputs: 4, .. }));
    }
    let index = InvalidOutcome::NameIndex { output: 1, index: 7, names: 1 };
    assert_eq!(invalid(Form::Columnar, "name-index").await, index);
    assert!(matches!(invalid(Form::Columnar, "invalid-utf8").await, InvalidOutcome::NotText { output: 0, .. }));
    assert!(matches!(invalid(Form::Columnar, "invalid-hash-key").await, InvalidOutcome::HashKey { output: 0, .. }));
}

#[tokio::test]
async fn an_outcome_that_can_be_read_and_is_wrong_about_its_batch_is_refused_as_a_whole() {
    const OUTSIDE: u32 = 1_000_000;
    let world = World::new();
    let settled = async |form, behaviour| {
        let outcome = world.process(form, behaviour).await.0.unwrap();
        outcome.settle(4, &|name| name == "out", &world.limits.outcome)
    };
    let outside = |list| Err(InvalidOutcome::IndexOutside { list, index: OUTSIDE, records: 4 });
    assert_eq!(settled(Form::Rows, "index-outside").await, outside("done"));
    assert_eq!(settled(Form::Rows, "failed-outside").await, outside("failed"));
    assert_eq!(settled(Form::Columnar, "index-outside").await, outside("skipped"));
    assert_eq!(settled(Form::Columnar, "before-outside").await, outside("done before"));
    for form in [Form::Rows, Form::Columnar] {
        let cause = InvalidOutcome::Cause { output: 0, cause: Cause::Record(OUTSIDE) };
        assert_eq!(settled(form, "cause-outside").await, Err(cause), "{form}");
    }
    let unknown = settled(Form::Columnar, "unknown-name").await.unwrap_err();
    assert_eq!(unknown, InvalidOutcome::UnknownOutput { output: 0, name: "nowhere".into() });
}

#[tokio::test]
async fn the_configuration_reaches_the_guest() {
    let world = World::new();
    let module = world.module(Form::Rows).await;
    let plugin = world.plugin(&module, json!({ "do": "configuration", "nested": { "key": [1, "a"] } }));
    let outcome = plugin.instance().await.unwrap().process_batch(&shard(), &batch()).await.unwrap();
    let texts = texts(&outcome);
    let all: serde_json::Value = serde_json::from_str(&texts[0]).unwrap();
    assert_eq!(all, json!({ "do": "configuration", "nested": { "key": [1, "a"] } }));
    assert_eq!(texts[1..], [r#"[1,"a"]"#, "nothing"]);
    let refusing = world.plugin(&module, json!({ "init": "refuse" })).instance().await;
    assert_eq!(refusing.err(), Some(Failure::Refused("`threshold` is missing".into())));
}

#[tokio::test]
async fn hooks_are_called_where_there_are_any() {
    let world = World::new();
    let mut rows = world.instance(Form::Rows, "").await;
    let (shard, limits) = (shard(), world.limits.outcome);
    let told = |id, outcome: shardmill_plugin::HookOutcome| {
        let SettledHook { outputs, .. } = outcome.settle(id, &|name| name == "out", &limits).unwrap();
        String::from_utf8(outputs[0].record.data.to_vec()).unwrap()
    };
    assert_eq!(told(1, rows.assigned(1, &shard).await.unwrap()), "assigned shardId-000000000003");
    assert_eq!(told(2, rows.revoked(2, &shard, 900).await.unwrap()), "revoked 900");
    assert_eq!(told(3, rows.shard_ended(3, &shard).await.unwrap()), "shard-ended");
    let given_up = GivenUpRecord { position: batch().position(0), reason: "bad".into(), attempts: 5 };
    let text = told(4, rows.given_up(4, &shard, &[given_up]).await.unwrap());
    assert!(text.contains(r#"sub-sequence-number: 2 }, reason: "bad", attempts: 5"#), "{text}");
    let refused = rows.idle(5, &shard).await;
    assert_eq!(refused, Err(Failure::Guest(ProcessError::Reject { message: "not idle".into() })));
    let mut columnar = world.instance(Form::Columnar, "").await;
    assert_eq!(columnar.assigned(1, &shard).await, Ok(shardmill_plugin::HookOutcome::default()));
    assert_eq!(columnar.shutdown().await, Ok(()));
}

#[tokio::test]
async fn a_pool_uses_instances_again_and_makes_no_more_than_it_may() {
    let world = World::new();
    let plugin = world.plugin(&world.module(Form::Rows).await, json!({ "do": "count" }));
    let pool = plugin.pool(2);
    let mut first = pool.get().await.unwrap();
    let second = pool.get().await.unwrap();
    let waiting = tokio::time::timeout(Duration::from_millis(20), pool.get()).await;
    assert!(waiting.is_err());
    assert_eq!(texts(&first.process_batch(&shard(), &batch()).await.unwrap()), ["1"]);
    drop(first);
    let mut again = pool.get().await.unwrap();
    assert_eq!(texts(&again.process_batch(&shard(), &batch()).await.unwrap()), ["2"]);
    assert_eq!(world.metrics.instances("flights"), 2);
    drop((again, second));
    assert_eq!(pool.idle(), 2);
    pool.close().await;
    assert!(matches!(pool.get().await, Err(Failure::Host(_))));
    assert_eq!(world.metrics.instances("flights"), 0);
}

#[tokio::test]
async fn pools_that_follow_one_another_share_their_places_and_end_apart() {
    let world = World::new();
    let module = world.module(Form::Rows).await;
    let plugin = |behaviour: &str| world.plugin(&module, json!({ "do": behaviour }));
    let old = plugin("echo").pool(2);
    let (on_loan, idle) = (old.get().await.unwrap(), old.get().await.unwrap());
    drop(idle);
    assert_eq!((old.idle(), old.instances()), (1, 2));
    let warm = vec![plugin("count").instance().await.unwrap()];
    let new = old.followed_by(plugin("count"), warm);
    // A place that somebody waited for while there was the old one is as good for the new one.
    let place = old.place().await.unwrap();
    let mut lent = new.lend(place).await.unwrap();
    assert_eq!(new.idle(), 0, "the warm one was lent");
    let outcome = lent.process_batch(&shard(), &batch()).await.unwrap();
    assert_eq!(outcome.outputs[0].record.data, &b"1"[..], "it is the new version's");
    assert_eq!(new.instances(), 2, "one of each");
    for pool in [&old, &new] {
        let waiting = tokio::time::timeout(Duration::from_millis(20), pool.get()).await;
        assert!(waiting.is_err(), "two are on loan");
    }
    let (log, _guard) = Log::capture();
    old.end_idle().await;
    assert_eq!((old.idle(), log.lines().len()), (0, 1), "an idle one hears of it at once");
    on_loan.end().await;
    assert_eq!(log.lines().len(), 2, "and the other when its call is over: {:?}", log.lines());
    assert_eq!(world.metrics.instances("flights"), 1);
    drop((lent, new.get().await.expect("the place is free")));
    new.close().await;
    assert!(matches!(old.get().await, Err(Failure::Host(_))), "one pool's end is all of theirs");
    assert_eq!(world.metrics.instances("flights"), 0);
}

#[tokio::test]
async fn a_pool_does_not_take_a_broken_instance_back() {
    let world = World::new();
    let plugin = world.plugin(&world.module(Form::Columnar).await, json!({ "do": "panic" }));
    let pool = plugin.pool(1);
    for _ in 0..20 {
        let mut instance = pool.get().await.unwrap();
        assert!(matches!(instance.process_batch(&shard(), &batch()).await, Err(Failure::Trap(_))));
    }
    assert_eq!((pool.idle(), world.metrics.instances("flights")), (0, 0));
}
