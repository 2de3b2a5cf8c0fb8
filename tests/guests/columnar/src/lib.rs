//! A guest in columns, without hooks, that echoes and does besides what its configuration says in `do`; with `on` only
//! when a batch holds that text. It plays the guests that a host must survive.
#![cfg(target_arch = "wasm32")]

mod bindings {
    #![allow(unsafe_code, clippy::all)]
    wit_bindgen::generate!({ path: "../../../wit/v0.1", world: "columnar-processor" });
    use super::Guest;
    export!(Guest);
}

use std::cell::RefCell;

use bindings::exports::shardmill::processor::columnar::{self, Outcome, OutputColumns, RecordColumns};
use bindings::shardmill::processor::types::{Cause, DoneRecords, ProcessError, ShardContext, SkippedRecord};
use serde_json::Value;

struct Guest;

thread_local! {
    static CONFIG: RefCell<Value> = const { RefCell::new(Value::Null) };
}

fn setting(name: &str) -> String {
    CONFIG.with_borrow(|config| config[name].as_str().unwrap_or_default().to_owned())
}

/// What to do with these records, besides an echo.
fn behaviour(records: &RecordColumns) -> String {
    let on = setting("on");
    if String::from_utf8_lossy(&records.arena).contains(&on) { setting("do") } else { String::new() }
}

impl columnar::Guest for Guest {
    fn init(config: String) -> Result<(), String> {
        CONFIG.replace(serde_json::from_str(&config).map_err(|error| error.to_string())?);
        Ok(())
    }

    fn process_batch(_: ShardContext, records: RecordColumns) -> Result<Outcome, ProcessError> {
        let mut outputs = echo(&records);
        let (mut done, mut skipped) = (DoneRecords::Others, Vec::new());
        match behaviour(&records).as_str() {
            "retry-unless-whole" => {
                let whole = records.lengths.iter().map(|length| *length as usize).sum::<usize>() == records.arena.len();
                let columns =
                    [records.lengths.len() / 4, records.sub_sequence_numbers.len(), records.approximate_arrivals.len()];
                if !whole || columns.iter().any(|length| *length != columns[0]) {
                    return Err(ProcessError::Reject("the columns do not agree".to_owned()));
                }
            }
            "long-length" => outputs.lengths[0] = u32::MAX,
            "short-arena" => drop(outputs.arena.pop()),
            "long-arena" => outputs.arena.push(0),
            "missing-length" => drop(outputs.lengths.pop()),
            "missing-cause" => drop(outputs.causes.pop()),
            "name-index" => outputs.name_indexes[1] = 7,
            "unknown-name" => outputs.names[0] = "nowhere".to_owned(),
            "invalid-utf8" => outputs.arena[0] = 0xff,
            "invalid-hash-key" => {
                // The first byte of the data becomes the hash key.
                outputs.lengths[1] += 1;
                outputs.lengths[2] -= 1;
            }
            "cause-outside" => outputs.causes[0] = Cause::Record(1_000_000),
            "before-outside" => done = DoneRecords::Before(1_000_000),
            "index-outside" => skipped.push(SkippedRecord { index: 1_000_000, reason: "old".to_owned() }),
            "huge" => {
                outputs.arena.resize(outputs.arena.len() + (8 << 20), 7);
                *outputs.lengths.last_mut().expect("a batch has records") += 8 << 20;
            }
            "panic" => panic!("columns went wrong"),
            "digest" => outputs = digest(&records),
            "outgrow" => outputs = outgrow(&records),
            "stamp" => outputs = stamp(&records),
            _ => {}
        }
        Ok(Outcome { done, failed: Vec::new(), skipped, checkpoint: None, outputs })
    }
}

/// The spans of each record: sequence number, partition key, explicit hash key, data.
fn spans(records: &RecordColumns) -> impl Iterator<Item = [&[u8]; 4]> {
    let mut rest = records.arena.as_slice();
    records.lengths.chunks_exact(4).map(move |lengths| {
        std::array::from_fn(|span| {
            let (head, tail) = rest.split_at(lengths[span] as usize);
            rest = tail;
            head
        })
    })
}

fn nothing() -> OutputColumns {
    OutputColumns {
        names: vec!["out".to_owned()],
        name_indexes: Vec::new(),
        arena: Vec::new(),
        lengths: Vec::new(),
        causes: Vec::new(),
    }
}

/// An output by its partition key, explicit hash key and data.
fn push(outputs: &mut OutputColumns, spans: [&[u8]; 3], cause: Cause) {
    for span in spans {
        outputs.arena.extend_from_slice(span);
        outputs.lengths.push(u32::try_from(span.len()).expect("records are small"));
    }
    outputs.name_indexes.push(0);
    outputs.causes.push(cause);
}

fn record(index: usize) -> Cause {
    Cause::Record(u32::try_from(index).expect("batches are small"))
}

fn echo(records: &RecordColumns) -> OutputColumns {
    let mut outputs = nothing();
    for (index, [_, partition_key, hash_key, data]) in spans(records).enumerate() {
        push(&mut outputs, [partition_key, hash_key, data], record(index));
    }
    outputs
}

/// Each JSON object with what the configuration says in `stamp`.
fn stamp(records: &RecordColumns) -> OutputColumns {
    let stamp = CONFIG.with_borrow(|config| config["stamp"].to_string());
    let mut outputs = nothing();
    for (index, [_, partition_key, hash_key, data]) in spans(records).enumerate() {
        let data = [b"{\"stamp\":", stamp.as_bytes(), b",", &data[1..]].concat();
        push(&mut outputs, [partition_key, hash_key, &data], record(index));
    }
    outputs
}

/// One output for the batch, with a line for each record: where it stands, its keys, and the size and a hash of its data.
fn digest(records: &RecordColumns) -> OutputColumns {
    let mut lines = String::new();
    for ([sequence_number, partition_key, hash_key, data], sub) in spans(records).zip(&records.sub_sequence_numbers) {
        let [sequence_number, partition_key, hash_key] =
            [sequence_number, partition_key, hash_key].map(|text| std::str::from_utf8(text).expect("a text"));
        let key = Value::from(partition_key);
        let (length, hash) = (data.len(), fnv(data));
        lines.push_str(&format!("{sequence_number}/{sub} {key} {hash_key:?} {length} {hash:016x}\n"));
    }
    let mut outputs = nothing();
    push(&mut outputs, [b"digest", b"", lines.as_bytes()], Cause::Batch);
    outputs
}

/// The 64-bit hash FNV-1a.
fn fnv(data: &[u8]) -> u64 {
    data.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Outputs that no stream takes for records that ask for it, and what came for the others.
fn outgrow(records: &RecordColumns) -> OutputColumns {
    let mut outputs = nothing();
    for (index, [_, partition_key, hash_key, data]) in spans(records).enumerate() {
        let (large, long) = (vec![b'x'; 1 << 20], "é".repeat(257));
        let spans = match data {
            b"too large" => [partition_key, hash_key, &large],
            b"long key" => [long.as_bytes(), hash_key, data],
            b"empty key" => [b"", hash_key, data],
            _ => [partition_key, hash_key, data],
        };
        push(&mut outputs, spans, record(index));
    }
    outputs
}
