//! A guest in columns, without hooks, that does what its configuration says. It plays the guests that a host must
//! survive.
#![cfg(target_arch = "wasm32")]

mod bindings {
    #![allow(unsafe_code, clippy::all)]
    wit_bindgen::generate!({ path: "../../../wit/v0.1", world: "columnar-processor" });
    use super::Guest;
    export!(Guest);
}

use std::cell::RefCell;

use bindings::exports::shardmill::processor::columnar::{self, Outcome, OutputColumns, RecordColumns};
use bindings::shardmill::processor::types::{Cause, DoneRecords, ProcessError, ShardContext};
use serde_json::Value;

struct Guest;

thread_local! {
    static CONFIG: RefCell<Value> = const { RefCell::new(Value::Null) };
}

impl columnar::Guest for Guest {
    fn init(config: String) -> Result<(), String> {
        CONFIG.replace(serde_json::from_str(&config).map_err(|error| error.to_string())?);
        Ok(())
    }

    fn process_batch(_: ShardContext, records: RecordColumns) -> Result<Outcome, ProcessError> {
        let mut outputs = echo(&records);
        match CONFIG.with_borrow(|config| config["do"].as_str().unwrap_or_default().to_owned()).as_str() {
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
            "invalid-utf8" => outputs.arena[0] = 0xff,
            "panic" => panic!("columns went wrong"),
            _ => {}
        }
        let (done, failed, skipped, checkpoint) = (DoneRecords::Others, Vec::new(), Vec::new(), None);
        Ok(Outcome { done, failed, skipped, checkpoint, outputs })
    }
}

fn echo(records: &RecordColumns) -> OutputColumns {
    let mut outputs = OutputColumns {
        names: vec!["out".to_owned()],
        name_indexes: Vec::new(),
        arena: Vec::new(),
        lengths: Vec::new(),
        causes: Vec::new(),
    };
    let mut rest = records.arena.as_slice();
    for (index, lengths) in records.lengths.chunks_exact(4).enumerate() {
        let (_, after) = rest.split_at(lengths[0] as usize);
        let (sent, after) = after.split_at(lengths[1..].iter().map(|length| *length as usize).sum());
        rest = after;
        outputs.arena.extend_from_slice(sent);
        outputs.lengths.extend_from_slice(&lengths[1..]);
        outputs.name_indexes.push(0);
        outputs.causes.push(Cause::Record(u32::try_from(index).expect("batches are small")));
    }
    outputs
}
