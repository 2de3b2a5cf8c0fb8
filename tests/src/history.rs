//! What workers did to leases and outputs, judged afterwards by what a proxy saw of it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use shardmill_record::{Checkpoint, Position, SequenceNumber};

use crate::{Found, Write, positions};

/// What was found in a history that keeps all promises.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// How often a lease was taken.
    pub takes: usize,
    /// Requests with outputs that were carried out after another worker had taken the lease.
    pub late: usize,
    /// Records that one holding of a lease has put more than once.
    pub repeated: usize,
}

/// A lease that was taken from somebody who had not let it go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lapse {
    /// Its shard.
    pub shard: String,
    /// When that was, in milliseconds since 1970.
    pub time: u64,
    /// Who had it.
    pub from: String,
    /// Who has taken it.
    pub by: String,
}

/// A state of a lease's row.
#[derive(Debug)]
struct State {
    /// Whose write made it.
    link: String,
    answered: u64,
    time: u64,
    counter: u64,
    epoch: u64,
    owner: Option<String>,
    /// The holder of a lease that another one has asked for.
    holder: Option<String>,
    checkpoint: Checkpoint,
}

/// From one take of a lease to the next.
#[derive(Debug)]
struct Holding {
    link: String,
    taken: u64,
    checkpoint: Checkpoint,
    /// What was put by its holder.
    put: BTreeSet<u64>,
    /// Its holder's requests that came after its end.
    late: usize,
    /// Whether it ended because the row was deleted: its holder learns of that when it writes the row the next time.
    is_deleted: bool,
}

/// Asserts that the leases of a table were taken and written as they have to be, and that a worker that had lost a lease
/// put nothing more but what it had under way: one request at most. A row that was deleted by somebody else and created anew
/// begins anew, and its last holder puts on until it learns of it.
///
/// `writes` are [those of a proxy](crate::Proxy::writes) that has kept them from the start: all workers that use the table
/// must go through links of it, which bear their ids. `input` and `output` are all that is in the streams.
pub fn assert_fenced(writes: &[Write], table: &str, input: &[Found], output: &[Found]) -> Summary {
    let mut holdings: BTreeMap<String, Vec<Holding>> = BTreeMap::new();
    for (shard, rows) in states(writes, table) {
        let last = rows.len() - 1;
        let holdings_of_row = rows.into_iter().enumerate().flat_map(|(nth, states)| {
            let mut holdings = holdings_of(&shard, states);
            if let (Some(holding), true) = (holdings.last_mut(), nth < last) {
                holding.is_deleted = true;
            }
            holdings
        });
        let holdings_of_shard = holdings_of_row.collect();
        holdings.insert(shard, holdings_of_shard);
    }
    let inputs = positions(input);
    let mut stored: BTreeMap<(&str, &SequenceNumber), Vec<u64>> = BTreeMap::new();
    for record in output {
        stored.entry((record.shard.as_str(), &record.position.sequence_number)).or_default().push(record.number);
    }
    let mut summary = Summary::default();
    for write in writes.iter().filter(|write| write.operation == "PutRecords" && write.status == 200) {
        let mut by_shard: BTreeMap<&str, Vec<(u64, &Position)>> = BTreeMap::new();
        for (shard, sequence_number) in acknowledged(&write.answer) {
            // Other processors' outputs are in other streams.
            for number in stored.get(&(shard.as_str(), &sequence_number)).into_iter().flatten() {
                let (shard, position) = &inputs[number];
                by_shard.entry(shard.as_str()).or_default().push((*number, position));
            }
        }
        for (shard, records) in by_shard {
            summary.repeated += judge(write, shard, &records, holdings.get_mut(shard).expect("a lease"));
        }
    }
    for holding in holdings.values().flatten() {
        summary.takes += 1;
        summary.late += holding.late;
        assert!(holding.late <= 1 || holding.is_deleted, "more than what was under way: {holding:?}");
    }
    summary
}

/// Whose request this is; how many of its records its holding had put before.
fn judge(write: &Write, shard: &str, records: &[(u64, &Position)], holdings: &mut [Holding]) -> usize {
    let index = holdings.iter().rposition(|holding| holding.taken < write.carried);
    let index =
        index.unwrap_or_else(|| panic!("{shard}: {} puts records and no lease was taken: {records:?}", write.link));
    let is_new = |position: &&Position| Checkpoint::Position((*position).clone()) > holdings[index].checkpoint;
    if holdings[index].link == write.link && records.iter().map(|(_, position)| position).all(is_new) {
        let put = &mut holdings[index].put;
        return records.iter().filter(|(number, _)| !put.insert(*number)).count();
    }
    let earlier = holdings[..index].iter_mut().rev().find(|holding| holding.link == write.link);
    let earlier = earlier.unwrap_or_else(|| {
        panic!("{shard}: {} repeats what was checkpointed, or never held the lease: {records:?}", write.link)
    });
    earlier.late += 1;
    0
}

/// The leases of a table that were taken although nobody had let them go, in the order of time.
pub fn lapses(writes: &[Write], table: &str) -> Vec<Lapse> {
    let mut lapses = Vec::new();
    for (shard, rows) in states(writes, table) {
        for (before, state) in rows.iter().flat_map(|states| states.iter().zip(states.iter().skip(1))) {
            let from = before.holder.as_ref().or(before.owner.as_ref().filter(|owner| **owner != state.link));
            if let (Some(from), true) = (from, state.epoch > before.epoch) {
                let (from, by) = (from.clone(), state.link.clone());
                lapses.push(Lapse { shard: shard.clone(), time: state.time, from, by });
            }
        }
    }
    lapses.sort_by_key(|lapse| lapse.time);
    lapses
}

/// Every state of every lease, by counter; without hand-offs that have begun. A lease has one row after another if somebody
/// deletes them.
fn states(writes: &[Write], table: &str) -> BTreeMap<String, Vec<Vec<State>>> {
    let mut states: BTreeMap<String, Vec<Vec<State>>> = BTreeMap::new();
    let of_table = |write: &&Write| write.table.as_deref() == Some(table) && write.status == 200;
    for write in writes.iter().filter(of_table) {
        if let ("PutItem", Some(key)) = (write.operation.as_str(), write.request["Item"]["leaseKey"]["S"].as_str()) {
            states.entry(key.to_owned()).or_default().push(Vec::new());
        }
        if write.operation != "UpdateItem" {
            continue;
        }
        let row = &write.answer["Attributes"];
        let text = |name: &str| row[name]["S"].as_str();
        let number = |name: &str| -> u64 {
            let digits = row[name]["N"].as_str();
            digits.and_then(|digits| digits.parse().ok()).unwrap_or_else(|| panic!("{name} in {row}"))
        };
        // Asking for a lease, and giving it back, leave its holder the right to write and the counter as it was.
        let update = write.request["UpdateExpression"].as_str().unwrap_or_default();
        if !update.contains("leaseCounter") {
            continue;
        }
        let checkpoint = text("checkpoint").expect("a checkpoint");
        let state = State {
            link: write.link.clone(),
            answered: write.answered,
            time: write.time,
            counter: number("leaseCounter"),
            epoch: number("leaseEpoch"),
            owner: text("leaseOwner").map(str::to_owned),
            holder: text("checkpointOwner").map(str::to_owned),
            checkpoint: Checkpoint::parse(checkpoint, number("checkpointSubSequenceNumber")).expect("a checkpoint"),
        };
        let rows = states.entry(text("leaseKey").expect("a key").to_owned()).or_default();
        match rows.last_mut() {
            Some(row) => row.push(state),
            // It was there before anybody looked.
            None => rows.push(vec![state]),
        }
    }
    states.values_mut().flatten().for_each(|states| states.sort_by_key(|state| state.counter));
    states
}

fn holdings_of(shard: &str, states: Vec<State>) -> Vec<Holding> {
    let mut holdings: Vec<Holding> = Vec::new();
    let mut before: Option<State> = None;
    for state in states {
        let epoch = before.as_ref().map_or(0, |before| before.epoch);
        if let Some(before) = &before {
            assert!(before.counter < state.counter, "{shard}: a counter grows with each write: {before:?}, {state:?}");
            assert!(
                before.checkpoint <= state.checkpoint,
                "{shard}: a checkpoint never goes back: {before:?}, {state:?}"
            );
        }
        if state.epoch == epoch {
            let holding = holdings.last().expect("a row is taken before it is written otherwise");
            // Who has asked for it, and stops when the holder has let go, gives it to nobody.
            let was_passed = before.as_ref().is_some_and(|before| before.owner.as_ref() == Some(&state.link));
            let gives_up = was_passed && state.owner.is_none();
            assert!(holding.link == state.link || gives_up, "{shard}: only the holder writes: {before:?}, {state:?}");
        } else {
            assert!(state.epoch > epoch, "{shard}: an epoch never goes back: {before:?}, {state:?}");
            assert_eq!(state.owner.as_ref(), Some(&state.link), "{shard}: a take names its taker: {state:?}");
            let (link, checkpoint) = (state.link.clone(), state.checkpoint.clone());
            let (put, late, is_deleted) = (BTreeSet::new(), 0, false);
            holdings.push(Holding { link, taken: state.answered, checkpoint, put, late, is_deleted });
        }
        before = Some(state);
    }
    holdings
}

/// Where PutRecords has stored what.
pub(crate) fn acknowledged(answer: &Value) -> Vec<(String, SequenceNumber)> {
    let entries = answer["Records"].as_array().map(Vec::as_slice).unwrap_or_default();
    let stored = |entry: &Value| {
        let sequence_number = SequenceNumber::parse(entry["SequenceNumber"].as_str()?).expect("a sequence number");
        Some((entry["ShardId"].as_str()?.to_owned(), sequence_number))
    };
    entries.iter().filter_map(stored).collect()
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use serde_json::json;

    use super::*;

    const SHARD: &str = "shardId-000000000000";

    /// A row that a worker has written.
    fn row(moment: u64, link: &str, counter: u64, epoch: u64, checkpoint: u64) -> Write {
        let number = |number: u64| json!({ "N": number.to_string() });
        let attributes = json!({
            "leaseKey": { "S": SHARD }, "leaseOwner": { "S": link }, "leaseCounter": number(counter),
            "leaseEpoch": number(epoch), "checkpoint": { "S": checkpoint.to_string() },
            "checkpointSubSequenceNumber": number(0),
        });
        write(moment, link, "UpdateItem", json!({ "Attributes": attributes }))
    }

    /// A record that a worker has put, which is the nth of the output.
    fn put(moment: u64, link: &str, nth: u64) -> Write {
        write(
            moment,
            link,
            "PutRecords",
            json!({ "Records": [{ "ShardId": SHARD, "SequenceNumber": nth.to_string() }] }),
        )
    }

    fn write(moment: u64, link: &str, operation: &str, answer: Value) -> Write {
        Write {
            link: link.to_owned(),
            operation: operation.to_owned(),
            stream: None,
            table: Some("leases".to_owned()),
            carried: moment * 2,
            answered: moment * 2 + 1,
            time: moment * 1_000,
            status: 200,
            request: json!({ "UpdateExpression": "SET #leaseCounter = :leaseCounter" }),
            answer,
        }
    }

    /// Records of one shard by their numbers; the nth has sequence number n, from 1.
    fn found(numbers: &[u64]) -> Vec<Found> {
        let record = |(nth, number): (u64, &u64)| Found {
            number: *number,
            key: "key".to_owned(),
            shard: SHARD.to_owned(),
            position: Position::new(SequenceNumber::parse(&nth.to_string()).unwrap(), 0),
            arrival: 0,
        };
        (1..).zip(numbers).map(record).collect()
    }

    /// A row that is on its way from a worker to another, as one of them has written it.
    fn handed(moment: u64, link: &str, counter: u64, epoch: u64, [from, to]: [Option<&str>; 2]) -> Write {
        let mut write = row(moment, link, counter, epoch, 1);
        let attributes = write.answer["Attributes"].as_object_mut().unwrap();
        for (name, worker) in [("checkpointOwner", from), ("leaseOwner", to)] {
            match worker {
                Some(worker) => attributes.insert(name.to_owned(), json!({ "S": worker })),
                None => attributes.remove(name),
            };
        }
        if from.is_some() && to == Some(link) {
            write.request = json!({ "UpdateExpression": "SET #leaseOwner = :leaseOwner" });
        }
        write
    }

    fn judged(writes: &[Write], output: &[u64]) -> Option<Summary> {
        catch_unwind(AssertUnwindSafe(|| assert_fenced(writes, "leases", &found(&[1, 2, 3]), &found(output)))).ok()
    }

    #[test]
    fn a_take_over_from_the_last_checkpoint_with_one_late_request_is_in_order() {
        let writes = [
            row(0, "a", 1, 1, 0),
            put(1, "a", 1),
            row(2, "a", 2, 1, 1),
            put(3, "a", 2),
            row(4, "b", 3, 2, 1),
            put(5, "a", 3),
            put(6, "b", 4),
            put(7, "b", 5),
            put(8, "b", 6),
        ];
        let summary = judged(&writes, &[1, 2, 3, 2, 3, 3]);
        assert_eq!(summary, Some(Summary { takes: 2, late: 1, repeated: 1 }));
    }

    #[test]
    fn a_hand_over_in_which_the_holder_writes_until_it_lets_go_is_in_order() {
        let writes = [
            row(0, "a", 1, 1, 0),
            put(1, "a", 1),
            handed(2, "b", 1, 1, [Some("a"), Some("b")]),
            handed(3, "a", 2, 1, [Some("a"), Some("b")]),
            handed(4, "a", 3, 1, [None, Some("b")]),
            row(5, "b", 4, 2, 1),
            put(6, "b", 2),
        ];
        assert_eq!(judged(&writes, &[1, 2]), Some(Summary { takes: 2, late: 0, repeated: 0 }));
    }

    #[test]
    fn who_is_handed_a_lease_may_give_it_to_nobody_and_nothing_else() {
        let then = |last: Write| {
            let let_go = handed(2, "a", 2, 1, [None, Some("b")]);
            judged(&[row(0, "a", 1, 1, 0), put(1, "a", 1), let_go, last], &[1])
        };
        assert!(then(handed(3, "b", 3, 1, [None, None])).is_some());
        assert_eq!(then(row(3, "b", 3, 1, 1)), None, "it was not taken");
        assert_eq!(then(handed(3, "c", 3, 1, [None, None])), None, "it was not handed to that one");
    }

    /// A row that is created, as the leader does it.
    fn created(moment: u64) -> Write {
        let request = json!({ "Item": { "leaseKey": { "S": SHARD }, "checkpoint": { "S": "TRIM_HORIZON" } } });
        Write { request, ..write(moment, "a", "PutItem", json!({})) }
    }

    #[test]
    fn a_row_that_was_deleted_begins_anew_and_its_holder_puts_on_until_it_learns_of_it() {
        let before = [created(0), row(1, "a", 1, 1, 0), put(2, "a", 1), row(3, "a", 2, 1, 1)];
        let after = [row(5, "b", 1, 1, 0), put(6, "a", 2), put(7, "b", 3), put(8, "a", 4), put(9, "b", 5)];
        let then = |more: &[Write]| [&before[..], more, &after].concat();
        let output = [1, 2, 1, 3, 2];
        let summary = Summary { takes: 2, late: 2, repeated: 0 };
        assert_eq!(judged(&then(&[created(4)]), &output), Some(summary));
        assert_eq!(judged(&then(&[]), &output), None, "a counter that goes back in the same row");
    }

    #[test]
    fn who_takes_a_lease_that_nobody_let_go_is_told_from_who_is_handed_it() {
        let lapse = |time: u64, from: &str, by: &str| Lapse {
            shard: SHARD.to_owned(),
            time: time * 1_000,
            from: from.to_owned(),
            by: by.to_owned(),
        };
        let owned = |moment, link: &str, counter, epoch| handed(moment, link, counter, epoch, [None, Some(link)]);
        let writes = [
            owned(0, "a", 1, 1),
            // It expires.
            owned(1, "b", 2, 2),
            // It is handed over.
            handed(2, "b", 3, 2, [Some("b"), Some("c")]),
            handed(3, "b", 4, 2, [None, Some("c")]),
            owned(4, "c", 5, 3),
            // It is let go.
            handed(5, "c", 6, 3, [None, None]),
            owned(6, "a", 7, 4),
            // It is asked for, and its holder does not let go.
            handed(7, "a", 8, 4, [Some("a"), Some("b")]),
            owned(8, "b", 9, 5),
            created(9),
            owned(10, "a", 1, 1),
        ];
        assert_eq!(lapses(&writes, "leases"), [lapse(1, "a", "b"), lapse(8, "a", "b")]);
    }

    #[test]
    fn what_must_not_be_is_seen() {
        let began = || vec![row(0, "a", 1, 1, 0), put(1, "a", 1), row(2, "a", 2, 1, 1)];
        let then = |more: Vec<Write>| began().into_iter().chain(more).collect::<Vec<_>>();
        assert!(judged(&then(vec![]), &[1]).is_some());
        let cases: [(&str, Vec<Write>, &[u64]); 7] = [
            ("a second late request", then(vec![row(3, "b", 3, 2, 1), put(4, "a", 2), put(5, "a", 3)]), &[1, 2, 3]),
            ("a checkpointed record", then(vec![put(3, "a", 2), row(4, "b", 3, 2, 1), put(5, "b", 3)]), &[1, 2, 1]),
            ("somebody without a lease", then(vec![put(3, "c", 2)]), &[1, 2]),
            ("a checkpoint that goes back", then(vec![row(3, "a", 3, 1, 0)]), &[1]),
            ("an epoch that goes back", then(vec![row(3, "b", 3, 0, 1)]), &[1]),
            ("a write into another's epoch", then(vec![row(3, "b", 3, 1, 1)]), &[1]),
            ("a counter that stands", then(vec![row(3, "b", 2, 2, 1)]), &[1]),
        ];
        for (what, writes, output) in cases {
            assert_eq!(judged(&writes, output), None, "{what}");
        }
    }
}
