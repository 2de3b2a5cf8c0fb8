//! The policy against guests of every kind.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use shardmill_plugin::{Cause, Output, Settled, Verdict};
use shardmill_record::UserRecord;

use super::*;

const ATTEMPTS: u32 = 4;

fn output(name: &str, cause: Cause) -> Output {
    let record = UserRecord { partition_key: "k".into(), explicit_hash_key: None, data: Bytes::new() };
    Output { name: name.into(), record, cause }
}

fn names(mut progress: BatchProgress) -> Vec<String> {
    taken(&mut progress, true)
}

fn taken(progress: &mut BatchProgress, leaving: bool) -> Vec<String> {
    progress.take_front(leaving).outputs.iter().map(|caused| caused.output.name.to_string()).collect()
}

fn settled(verdicts: Vec<Verdict>, outputs: Vec<Output>) -> Settled {
    Settled { verdicts, checkpoint: None, outputs, dropped_outputs: 0 }
}

fn failed() -> Verdict {
    Verdict::Failed { reason: "no".into(), retry: true }
}

/// An outcome in which these records are done, with an output each that is named by the record.
fn done(handed: &[usize]) -> Settled {
    let outputs = handed
        .iter()
        .enumerate()
        .map(|(place, index)| output(&index.to_string(), Cause::Record(u32::try_from(place).unwrap())));
    settled(vec![Verdict::Done; handed.len()], outputs.collect())
}

#[test]
fn an_output_of_a_second_attempt_keeps_its_record_s_place() {
    let mut progress = BatchProgress::new(3, ATTEMPTS, false);
    let outputs = vec![output("first", Cause::Record(0)), output("third", Cause::Record(2))];
    assert_eq!(progress.next_part(), [0, 1, 2]);
    progress.apply(settled(vec![Verdict::Done, failed(), Verdict::Done], outputs));
    assert_eq!(progress.settled_prefix(), 1);
    assert_eq!(progress.next_part(), [1]);
    assert_eq!((progress.handed_over(), progress.attempts()), (1, 1));
    progress.apply(settled(vec![Verdict::Done], vec![output("second", Cause::Record(0))]));
    assert!(progress.next_part().is_empty());
    assert_eq!(names(progress), ["first", "second", "third"]);
}

#[test]
fn what_stands_behind_a_record_that_is_given_up_is_sent_if_that_is_passed_over() {
    for passed in [false, true] {
        let mut progress = BatchProgress::new(3, 1, false);
        let outputs =
            vec![output("first", Cause::Record(0)), output("third", Cause::Record(2)), output("batch", Cause::Batch)];
        let applied = progress.apply(settled(vec![Verdict::Done, failed(), Verdict::Done], outputs));
        assert_eq!((applied.done, applied.failed, progress.given_up_count()), (2, 1, 1));
        let given_up: Vec<GivenUp> = progress.given_up().collect();
        assert_eq!(
            given_up,
            [GivenUp { index: 1, reason: "no".into(), attempts: 1, why: Why::Attempts, plugin: None }]
        );
        if passed {
            progress.pass_given_up();
            assert_eq!(progress.given_up().count(), 0);
            assert_eq!(progress.given_up_count(), 1);
            let Front { through, outputs } = progress.take_front(true);
            assert_eq!((through, progress.pass(through)), (3, Passed { through: 3, done: 2, skipped: 0, records: 3 }));
            assert_eq!(
                outputs.iter().map(|caused| &*caused.output.name).collect::<Vec<_>>(),
                ["first", "third", "batch"]
            );
        } else {
            assert_eq!(progress.settled_prefix(), 1);
            // The third comes again, with an output of its batch; the first does not, and it has caused this one.
            assert_eq!(names(progress), ["first", "batch"]);
        }
    }
}

#[test]
fn an_output_of_a_call_goes_with_the_records_that_were_done_in_it() {
    // The whole fails, so 0 and 1 come alone, then 2, of which nothing comes, then 3.
    let progress = |rest: bool| {
        let mut progress = BatchProgress::new(4, 1, true);
        progress.spoil("crash", true, None);
        progress.apply(settled(vec![Verdict::Done; 2], vec![output("of 0 and 1", Cause::Batch)]));
        if rest {
            assert_eq!(progress.next_part(), [2]);
            progress.spoil("crash", true, None);
            assert_eq!(progress.next_part(), [3]);
            let outputs = vec![output("of 3", Cause::Batch), output("3", Cause::Record(0))];
            progress.apply(settled(vec![Verdict::Done], outputs));
        }
        progress
    };
    assert_eq!(names(progress(false)), ["of 0 and 1"], "they do not come again, and the others do");
    assert_eq!(names(progress(true)), ["of 0 and 1"], "2 is given up, and 3 stands behind it");
    let mut passed = progress(true);
    passed.pass_given_up();
    assert_eq!(names(passed), ["of 0 and 1", "3", "of 3"]);
    // None is done of a call: it has caused nothing that would be missing.
    let mut none = BatchProgress::new(1, 2, true);
    none.apply(settled(vec![failed()], vec![output("alarm", Cause::Batch)]));
    assert_eq!(names(none), [""; 0]);
}

#[test]
fn a_front_that_was_taken_does_not_come_again() {
    let mut progress = BatchProgress::new(6, 1, true);
    progress.spoil("crash", true, None);
    progress.apply(done(&[0, 1, 2]));
    assert_eq!((progress.waiting_outputs(), progress.waiting_bytes()), (3, 3));
    let front = progress.take_front(false);
    assert_eq!((front.through, front.outputs.len()), (3, 3));
    assert_eq!((progress.waiting_outputs(), progress.waiting_bytes()), (0, 0));
    let front = progress.take_front(false);
    assert_eq!((front.through, front.outputs.len()), (3, 0));
    // Not all was sent, then the rest.
    assert_eq!(progress.pass(2), Passed { through: 2, done: 2, skipped: 0, records: 2 });
    assert_eq!(progress.pass(3), Passed { through: 3, done: 1, skipped: 0, records: 1 });
    assert_eq!(progress.pass(1), Passed { through: 3, done: 0, skipped: 0, records: 0 });
    assert_eq!(progress.next_part(), [3]);
    progress.spoil("crash", true, None);
    progress.apply(done(&[4, 5]));
    assert_eq!(progress.take_front(false).through, 3, "3 is given up, and nobody has dealt with that");
    progress.pass_given_up();
    let front = progress.take_front(true);
    assert_eq!((front.through, front.outputs.len()), (6, 2));
    assert_eq!(progress.pass(6), Passed { through: 6, done: 2, skipped: 0, records: 3 });
}

#[test]
fn an_output_of_several_records_waits_for_all_of_them_while_the_batch_goes_on() {
    let mut progress = BatchProgress::new(3, 2, false);
    let outputs = vec![output("first", Cause::Record(0)), output("call", Cause::Batch)];
    progress.apply(settled(vec![Verdict::Done, failed(), Verdict::Done], outputs));
    let front = progress.take_front(false);
    assert_eq!((front.through, front.outputs.len()), (0, 1), "what the call has caused of the first is not sent");
    progress.apply(done(&[1]));
    let front = progress.take_front(true);
    let names: Vec<&str> = front.outputs.iter().map(|caused| &*caused.output.name).collect();
    assert_eq!((front.through, &names[..]), (3, &["1", "call"][..]));
}

#[test]
fn what_is_left_for_good_is_given_up() {
    let mut progress = BatchProgress::new(4, 3, true);
    progress.apply(settled(vec![Verdict::Done, failed(), Verdict::Unacknowledged, Verdict::Done], vec![]));
    progress.give_up_rest("it was left");
    assert!(progress.next_part().is_empty());
    let given_up: Vec<GivenUp> = progress.given_up().collect();
    assert_eq!(given_up.iter().map(|given_up| given_up.index).collect::<Vec<_>>(), [1, 2]);
    assert!(given_up.iter().all(|given_up| given_up.why == Why::Left && given_up.attempts == 1));
    assert!(given_up[0].reason.contains("it was left") && given_up[0].reason.ends_with("no"), "{given_up:?}");
}

#[test]
fn a_record_that_cannot_be_helped_gets_no_further_attempt() {
    let mut progress = BatchProgress::new(1, ATTEMPTS, false);
    progress.apply(settled(vec![Verdict::Failed { reason: "not JSON".into(), retry: false }], vec![]));
    let given_up: Vec<GivenUp> = progress.given_up().collect();
    assert_eq!(given_up, [GivenUp { index: 0, reason: "not JSON".into(), attempts: 1, why: Why::Final, plugin: None }]);
}

#[test]
fn splitting_uses_up_no_attempt_of_anybody() {
    // 2 of 0..4 is poison, with two attempts.
    let mut progress = BatchProgress::new(4, 2, true);
    let mut calls = Vec::new();
    loop {
        let handed = progress.next_part().to_vec();
        if handed.is_empty() {
            break;
        }
        calls.push((handed.clone(), progress.handed_over(), progress.attempts()));
        if handed.contains(&2) {
            progress.spoil("crash", true, None);
        } else {
            progress.apply(done(&handed));
        }
    }
    let expected = [
        (vec![0, 1, 2, 3], 0, 0),
        (vec![0, 1], 1, 0),
        // It is handed over for the second time, for its first attempt.
        (vec![2], 1, 0),
        (vec![2], 2, 1),
        (vec![3], 1, 0),
    ];
    assert_eq!(calls, expected);
    let given_up: Vec<GivenUp> = progress.given_up().collect();
    assert_eq!(given_up, [GivenUp { index: 2, reason: "crash".into(), attempts: 2, why: Why::Attempts, plugin: None }]);
    progress.pass_given_up();
    assert_eq!(names(progress), ["0", "1", "3"]);
}

#[test]
fn without_bisection_all_records_of_a_call_that_fails_are_given_up_together() {
    let mut progress = BatchProgress::new(3, 2, false);
    for _ in 0..2 {
        assert_eq!(progress.next_part(), [0, 1, 2]);
        assert!(!progress.spoil("crash", true, Some(1)).split);
    }
    assert!(progress.next_part().is_empty());
    assert_eq!(progress.given_up_count(), 3);
}

#[test]
fn only_records_that_have_failed_grow_too_old() {
    let mut progress = BatchProgress::new(3, ATTEMPTS, true);
    let hour = Duration::from_secs(3600);
    progress.expire(hour, |_| 2 * hour);
    assert_eq!(progress.next_part(), [0, 1, 2], "nothing has failed");
    progress.spoil("crash", true, None);
    progress.expire(hour, |_| 2 * hour);
    assert_eq!(progress.next_part(), [0], "the call has failed, and nobody knows through whom");
    progress.apply(settled(vec![failed()], vec![]));
    progress.expire(hour, |_| hour);
    assert_eq!(progress.next_part(), [0], "it is not older than an hour");
    progress.expire(hour, |index| if index == 0 { 2 * hour } else { hour });
    assert_eq!(progress.next_part(), [1]);
    let given_up = progress.given_up().next().unwrap();
    assert_eq!((given_up.index, given_up.attempts, given_up.why), (0, 1, Why::Age));
    assert!(given_up.reason.contains("3600s") && given_up.reason.ends_with("no"), "{}", given_up.reason);
}

/// What a guest says of one record, or does with the call.
fn verdict() -> impl Strategy<Value = Verdict> {
    prop_oneof![
        3 => Just(Verdict::Done),
        1 => Just(Verdict::Skipped { reason: String::new() }),
        1 => Just(Verdict::Unacknowledged),
        2 => any::<bool>().prop_map(|retry| Verdict::Failed { reason: "no".into(), retry }),
    ]
}

proptest! {
    /// Whatever a guest does, every record ends as done, skipped or given up, once; it is never handed over after that; it
    /// gets all its attempts unless the guest says that none can help; splitting uses up none; and the outputs are those of
    /// the settled front, in order.
    #[test]
    fn every_record_comes_to_one_end(
        records in 1usize..24,
        attempts in 1u32..5,
        bisect in any::<bool>(),
        said in proptest::collection::vec(proptest::collection::vec(verdict(), 24), 1..12),
        spoiled in proptest::collection::vec((any::<bool>(), any::<bool>(), proptest::option::of(0usize..24)), 1..12),
    ) {
        let mut progress = BatchProgress::new(records, attempts, bisect);
        let (mut ended, mut failures) = (vec![None; records], vec![0u32; records]);
        let mut calls = 0usize;
        loop {
            let handed = progress.next_part().to_vec();
            if handed.is_empty() {
                break;
            }
            prop_assert!(handed.windows(2).all(|pair| pair[0] < pair[1]));
            prop_assert!(handed.iter().all(|index| ended[*index].is_none()), "handed over after its end");
            let most = handed.iter().map(|index| failures[*index]).max().unwrap();
            prop_assert_eq!(progress.attempts(), most);
            let (spoils, retry, suspect) = spoiled[calls % spoiled.len()];
            if spoils {
                let applied = progress.spoil("crash", retry, suspect.filter(|place| *place < handed.len()));
                prop_assert_eq!(applied.split, bisect && handed.len() > 1);
                if !applied.split {
                    for index in &handed {
                        failures[*index] += 1;
                        if !retry || failures[*index] == attempts {
                            ended[*index] = Some("given up");
                        }
                    }
                }
            } else {
                let verdicts: Vec<_> = said[calls % said.len()][..handed.len()].to_vec();
                let mut outputs = Vec::new();
                for (place, (index, verdict)) in handed.iter().zip(&verdicts).enumerate() {
                    match verdict {
                        Verdict::Done => {
                            ended[*index] = Some("done");
                            outputs.push(output(&index.to_string(), Cause::Record(u32::try_from(place).unwrap())));
                        }
                        Verdict::Skipped { .. } => ended[*index] = Some("skipped"),
                        Verdict::Failed { .. } | Verdict::Unacknowledged => {
                            failures[*index] += 1;
                            let is_final = matches!(verdict, Verdict::Failed { retry: false, .. });
                            if is_final || failures[*index] == attempts {
                                ended[*index] = Some("given up");
                            }
                        }
                    }
                }
                progress.apply(settled(verdicts, outputs));
            }
            calls += 1;
            // Each call uses up an attempt or settles a record, or splits a part.
            prop_assert!(calls < records * attempts as usize + records, "{} calls", calls);
        }
        prop_assert!(ended.iter().all(Option::is_some));
        let given_up: Vec<usize> = progress.given_up().map(|given_up| given_up.index).collect();
        let expected: Vec<usize> = (0..records).filter(|index| ended[*index] == Some("given up")).collect();
        prop_assert_eq!(&given_up, &expected);
        for given_up in progress.given_up() {
            prop_assert_eq!(given_up.attempts, failures[given_up.index]);
            prop_assert!(given_up.why == Why::Final || given_up.attempts == attempts);
        }
        prop_assert_eq!(progress.settled_prefix(), given_up.first().copied().unwrap_or(records));
        progress.pass_given_up();
        prop_assert_eq!(progress.settled_prefix(), records);
        let sent: Vec<usize> = names(progress).iter().map(|name| name.parse().unwrap()).collect();
        let expected: Vec<usize> = (0..records).filter(|index| ended[*index] == Some("done")).collect();
        prop_assert_eq!(sent, expected, "in order, each once");
    }

    /// A guest that fails whenever a poison record is in its batch: with bisection they alone are given up, each after its
    /// attempts and not one more; the others are done, with few calls.
    #[test]
    fn the_poison_records_alone_are_blamed(
        records in 1usize..600,
        attempts in 1u32..4,
        retry in any::<bool>(),
        poison in proptest::collection::btree_set(0usize..600, 0..5),
    ) {
        let poison: BTreeSet<usize> = poison.into_iter().filter(|index| *index < records).collect();
        let mut progress = BatchProgress::new(records, attempts, true);
        let (mut calls, mut alone, mut done_times) = (0usize, vec![0u32; records], vec![0u32; records]);
        loop {
            let handed = progress.next_part().to_vec();
            if handed.is_empty() {
                break;
            }
            calls += 1;
            if handed.iter().any(|index| poison.contains(index)) {
                if let [index] = handed[..] {
                    alone[index] += 1;
                }
                progress.spoil("crash", retry, None);
            } else {
                for index in &handed {
                    done_times[*index] += 1;
                }
                progress.apply(done(&handed));
            }
        }
        let given_up: BTreeSet<usize> = progress.given_up().map(|given_up| given_up.index).collect();
        prop_assert_eq!(&given_up, &poison);
        let allowed = if retry { attempts } else { 1 };
        for index in 0..records {
            let (once, often) = if poison.contains(&index) { (0, allowed) } else { (1, 0) };
            prop_assert_eq!(done_times[index], once, "{} was processed", index);
            if often > 0 {
                prop_assert_eq!(alone[index], often, "{} stood alone", index);
            }
        }
        let halvings = records.next_power_of_two().ilog2() as usize;
        let bound = 1 + poison.len() * (2 * halvings + allowed as usize);
        prop_assert!(calls <= bound, "{} calls for {} records with {} poison", calls, records, poison.len());
        progress.pass_given_up();
        let sent: Vec<usize> = names(progress).iter().map(|name| name.parse().unwrap()).collect();
        let others: Vec<usize> = (0..records).filter(|index| !poison.contains(index)).collect();
        prop_assert_eq!(sent, others);
    }
}

#[test]
fn a_record_that_is_given_up_names_the_plugin_that_had_it_last() {
    let mut progress = BatchProgress::new(2, 2, false);
    for (plugin, failed) in [("old", 0..2), ("new", 0..1)] {
        progress.handed_to(plugin.into());
        let handed = progress.next_part().len();
        let verdict = |index: usize| match failed.contains(&index) && (plugin == "new" || index == 0) {
            true => Verdict::Failed { reason: "no".into(), retry: true },
            false => Verdict::Failed { reason: "never".into(), retry: false },
        };
        progress.apply(Settled {
            verdicts: (0..handed).map(verdict).collect(),
            checkpoint: None,
            outputs: Vec::new(),
            dropped_outputs: 0,
        });
    }
    let plugins: Vec<_> = progress.given_up().map(|given_up| given_up.plugin).collect();
    assert_eq!(plugins, [Some("new".into()), Some("old".into())], "the second record had no further attempt");
}
