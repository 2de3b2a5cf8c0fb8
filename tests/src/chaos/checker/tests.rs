use serde_json::{Value, json};
use shardmill_record::Position;

use super::*;

const KEY: &str = "key-1";

/// The findings for an output of one key, `count` of whose records were acknowledged: who has put which number.
fn found(count: u64, unclear: &[u64], output: &[(&str, u64)]) -> Findings {
    found_anew(count, unclear, &[], output)
}

/// The same, where the leases of some of these records' shards were deleted.
fn found_anew(count: u64, unclear: &[u64], anew: &[u64], output: &[(&str, u64)]) -> Findings {
    let written = Written {
        acknowledged: [(KEY.to_owned(), count)].into(),
        unclear: unclear.iter().map(|nth| (KEY.to_owned(), *nth)).collect(),
    };
    let appearance = |(arrival, (life, nth)): (u64, &(&str, u64))| Appearance {
        key: KEY.to_owned(),
        nth: *nth,
        shard: "shardId-000000000000".to_owned(),
        by: Some((*life).to_owned()),
        arrival: arrival * 1_000,
        is_untold: false,
    };
    let anew = anew.iter().map(|nth| (KEY.to_owned(), *nth)).collect();
    check(&written, &anew, &(0..).zip(output).map(appearance).collect::<Vec<_>>())
}

fn put(life: &str, numbers: impl IntoIterator<Item = u64>) -> Vec<(&str, u64)> {
    numbers.into_iter().map(|nth| (life, nth)).collect()
}

/// How much is repeated, by way and by the life that had put it before.
fn counted(findings: &Findings) -> Vec<(Repeat, &str, u64)> {
    let mut counts: BTreeMap<(Repeat, &str), u64> = BTreeMap::new();
    for repeated in &findings.repeated {
        *counts.entry((repeated.repeat, &repeated.life)).or_default() += 1;
    }
    counts.into_iter().map(|((repeat, life), count)| (repeat, life, count)).collect()
}

fn replayed(life: &str, count: u64) -> (Repeat, &str, u64) {
    (Repeat::Replayed, life, count)
}

fn sent_again(life: &str, count: u64) -> (Repeat, &str, u64) {
    (Repeat::SentAgain, life, count)
}

#[test]
fn legal_histories_pass_and_their_repeats_are_counted() {
    let cases = [
        ("everything once", [put("a", 0..10)].concat(), vec![]),
        ("a hand-over", [put("a", 0..5), put("b", 5..10)].concat(), vec![]),
        ("a replay from a checkpoint", [put("a", 0..8), put("b", 4..10)].concat(), vec![replayed("a", 4)]),
        (
            "a replay that is killed, and another one",
            [put("a", 0..8), put("b", 4..6), put("c", 3..10)].concat(),
            // Two were last put by the one that was killed, three by the first.
            vec![replayed("a", 2 + 3), replayed("b", 2)],
        ),
        ("a lost answer", [put("a", 0..5), put("a", 3..10)].concat(), vec![sent_again("a", 2)]),
        (
            "a late request of the old holder, already replayed",
            [put("a", 0..6), put("b", 4..8), put("a", 6..8), put("b", 8..10)].concat(),
            vec![replayed("a", 2), replayed("b", 2)],
        ),
        (
            "a late request of the old holder, before its replay",
            [put("a", 0..6), put("b", 4..5), put("a", 6..7), put("b", 5..10)].concat(),
            vec![replayed("a", 3)],
        ),
        (
            "a late request, and later the lease again",
            [put("a", 0..6), put("b", 4..8), put("a", 6..7), put("a", 8..10)].concat(),
            vec![replayed("a", 2), replayed("b", 1)],
        ),
        ("there and back again", [put("a", 0..5), put("b", 5..7), put("a", 7..10)].concat(), vec![]),
    ];
    for (what, output, repeats) in cases {
        let findings = found(10, &[], &output);
        assert_eq!(findings.violations, [], "{what}");
        assert_eq!(findings.records, 10, "{what}");
        assert_eq!(counted(&findings), repeats, "{what}");
    }
}

#[test]
fn a_repeat_says_when_its_record_was_put_before_and_by_whom() {
    let findings = found(4, &[], &[put("a", 0..3), put("b", 2..3), put("a", 2..4)].concat());
    let repeated = |repeat, life: &str, by: &str, before, again| Repeated {
        key: KEY.to_owned(),
        nth: 2,
        repeat,
        life: life.to_owned(),
        by: by.to_owned(),
        was_untold: false,
        before,
        again,
    };
    let expected =
        [repeated(Repeat::Replayed, "a", "b", 2_000, 3_000), repeated(Repeat::SentAgain, "a", "a", 2_000, 4_000)];
    assert_eq!(findings.repeated, expected);
}

#[test]
fn who_reads_a_shard_anew_may_be_met_by_its_own_request_of_before() {
    let all: Vec<u64> = (0..10).collect();
    let output = [put("a", 0..6), put("a", 0..3), put("a", 6..8), put("a", 3..10)].concat();
    let findings = found_anew(10, &[], &all, &output);
    assert_eq!((findings.violations, findings.records), (vec![], 10));
    assert_eq!(found(10, &[], &output).violations.len(), 1, "nobody reads it anew unless its lease was deleted");
    // And who has it after somebody else goes on from there.
    let back = [put("a", 0..3), put("b", 3..6), put("a", 6..8), put("b", 8..9), put("a", 9..10)].concat();
    assert_eq!(found_anew(10, &[], &all[..9], &back).violations, []);
    let lost = [put("a", 0..5), put("a", 0..3), put("a", 6..10)].concat();
    assert_eq!(found_anew(10, &[], &all, &lost).violations.len(), 2, "what was never put is lost all the same");
}

#[test]
fn poison_is_not_missed_in_the_output_and_not_welcome_there() {
    // This key's second record.
    let key = "key-47".to_owned();
    let written = Written { acknowledged: [(key.clone(), 4)].into(), unclear: BTreeSet::new() };
    let output = |numbers: &[u64]| -> Vec<Appearance> {
        let appearance = |nth: &u64| Appearance {
            key: key.clone(),
            nth: *nth,
            shard: "shardId-000000000000".to_owned(),
            by: Some("a".to_owned()),
            arrival: 0,
            is_untold: false,
        };
        numbers.iter().map(appearance).collect()
    };
    assert_eq!(check(&written, &BTreeSet::new(), &output(&[0, 2, 3])).violations, []);
    let escaped = Violation::Escaped { key: key.clone(), nth: 1 };
    assert_eq!(check(&written, &BTreeSet::new(), &output(&[0, 1, 2, 3])).violations, [escaped]);
}

#[test]
fn what_is_lost_overtaken_skipped_or_from_nowhere_is_seen() {
    let key = || KEY.to_owned();
    let lost = |numbers: &[u64]| Violation::Lost { key: key(), numbers: numbers.to_vec() };
    let skipped = |life: &str, from, to| Violation::Skipped { key: key(), life: life.to_owned(), from, to };
    let overtaken = |nth, by| Violation::Overtaken { key: key(), nth, by };
    let cases = [
        ("nothing", vec![], vec![lost(&[0, 1, 2, 3, 4, 5])]),
        ("the last one lost", put("a", 0..5), vec![lost(&[5])]),
        ("one lost on the way", put("a", [0, 1, 3, 4, 5]), vec![lost(&[2]), skipped("a", 1, 3)]),
        ("one lost at a hand-over", [put("a", 0..2), put("b", 3..6)].concat(), vec![lost(&[2])]),
        ("reordered", put("a", [0, 2, 1, 3, 4, 5]), vec![overtaken(1, 2), skipped("a", 0, 2), skipped("a", 1, 3)]),
        (
            "a forward jump over what another one brings later",
            [put("a", 0..2), put("b", 3..6), put("a", 2..3)].concat(),
            vec![overtaken(2, 5)],
        ),
        ("a replay with a gap", [put("a", 0..5), put("b", [2, 4, 5])].concat(), vec![skipped("b", 2, 4)]),
        ("its own replay with a gap", put("a", [0, 1, 2, 3, 4, 1, 3, 4, 5]), vec![skipped("a", 1, 3)]),
        (
            "a gap that another one has put, but before",
            [put("a", 0..5), put("b", 1..3), put("b", 4..6)].concat(),
            vec![skipped("b", 2, 4)],
        ),
        ("more than was written", put("a", 0..7), vec![Violation::Unknown { key: key(), nth: 6 }]),
    ];
    for (what, output, violations) in cases {
        assert_eq!(found(6, &[], &output).violations, violations, "{what}");
    }
}

#[test]
fn what_may_be_twice_in_the_input_may_be_so_in_the_output() {
    let output = put("a", [0, 1, 2, 3, 1, 2, 4, 5]);
    let findings = found(6, &[1, 2], &output);
    assert_eq!((&findings.violations, counted(&findings)), (&vec![], vec![(Repeat::Unclear, "a", 2)]));
    assert_eq!(found(6, &[], &output).violations.len(), 1);
    assert_eq!(found(6, &[1, 2], &put("a", [0, 1, 3, 4, 5])).violations.len(), 1, "and not less than once");
}

#[test]
fn a_key_has_one_shard_and_each_record_somebody_who_put_it() {
    let written = Written { acknowledged: [(KEY.to_owned(), 2)].into(), unclear: BTreeSet::new() };
    let appearance = |nth: u64, shard: &str, by: Option<&str>| Appearance {
        key: KEY.to_owned(),
        nth,
        shard: shard.to_owned(),
        by: by.map(str::to_owned),
        arrival: 0,
        is_untold: false,
    };
    let findings =
        check(&written, &BTreeSet::new(), &[appearance(0, "first", Some("a")), appearance(1, "second", None)]);
    let shards = ["first", "second"].map(str::to_owned).into();
    let expected =
        [Violation::PutByNobody { key: KEY.to_owned(), nth: 1 }, Violation::Scattered { key: KEY.to_owned(), shards }];
    assert_eq!(findings.violations, expected);
}

#[test]
fn who_has_put_a_record_is_in_the_journal_and_how_long_it_took_in_the_streams() {
    let record = |number, at: u64, arrival| Found {
        number,
        key: KEY.to_owned(),
        shard: "shardId-000000000000".to_owned(),
        position: Position::new(SequenceNumber::parse(&at.to_string()).unwrap(), 0),
        arrival,
    };
    let put = |link: &str, status, at: u64| Write {
        link: link.to_owned(),
        operation: "PutRecords".to_owned(),
        stream: Some("output".to_owned()),
        table: None,
        carried: at,
        answered: at,
        time: at,
        status,
        request: Value::Null,
        answer: json!({ "Records": [
            { "ErrorCode": "InternalFailure" },
            { "ShardId": "shardId-000000000000", "SequenceNumber": at.to_string() },
        ] }),
    };
    let output = [record(1, 5, 4_000), record(101, 6, 9_000), record(1, 7, 9_500), record(201, 8, 9_500)];
    let writes = [put("a", 200, 5), put("a", 200, 6), put("b", 200, 7), put("c", 500, 8)];
    let untold = [writes[1].answer.clone()];
    let found: Vec<_> = appearances(&output, &writes, &untold)
        .into_iter()
        .map(|found| (found.nth, found.by, found.is_untold))
        .collect();
    let by = |life: &str| Some(life.to_owned());
    assert_eq!(found, [(0, by("a"), false), (1, by("a"), true), (0, by("b"), false), (2, None, false)]);
    let input = [record(1, 1, 3_000), record(101, 2, 3_500), record(201, 3, 9_000)];
    assert_eq!(longest_delay(&input, &output), Longest { time: 5_500, key: KEY.to_owned(), until: 9_000 });
}

#[test]
fn a_silence_is_the_time_between_two_new_records() {
    // A second apart each; the replay brings nothing new for four seconds.
    let findings = found(10, &[], &[put("a", 0..6), put("b", 3..10)].concat());
    assert_eq!(findings.silence, Longest { time: 4_000, key: KEY.to_owned(), until: 9_000 });
}
