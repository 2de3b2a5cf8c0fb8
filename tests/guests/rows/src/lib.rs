//! A guest in rows, with hooks, that does what its configuration says: `do` names a behaviour of `process-batch`, and
//! `init` one of `init`. With `on` it behaves so only when a batch holds a record with that text, and echoes the others;
//! with `hooks = "silent"` its hooks emit nothing. It plays the guests that a host must survive.
#![cfg(target_arch = "wasm32")]

mod bindings {
    #![allow(unsafe_code, clippy::all)]
    wit_bindgen::generate!({ path: "../../../wit/v0.1", world: "processor-with-hooks" });
    use super::Guest;
    export!(Guest);
}

use std::cell::{Cell, RefCell};
use std::io::Write as _;
use std::time::{Duration, Instant};

use bindings::exports::shardmill::processor::hooks::{self, GivenUpRecord, HookOutcome};
use bindings::exports::shardmill::processor::{batch, batch::Outcome, batch::UserRecord};
use bindings::shardmill::processor::types::{
    Cause, DoneRecords, FailedRecord, Output, Position, ProcessError, RetryError, ShardContext, SkippedRecord,
};
use bindings::shardmill::processor::{configuration, logging, metrics};
use serde_json::Value;

#[path = "../../count/src/occurrences.rs"]
mod occurrences;

struct Guest;

thread_local! {
    static CONFIG: RefCell<Value> = const { RefCell::new(Value::Null) };
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

fn setting(name: &str) -> String {
    CONFIG.with_borrow(|config| config[name].as_str().unwrap_or_default().to_owned())
}

/// What to do with these records.
fn behaviour(records: &[UserRecord]) -> String {
    let on = setting("on");
    // Each payload has an empty text in it, but a batch may have no payload.
    if on.is_empty() || records.iter().any(|record| String::from_utf8_lossy(&record.data).contains(&on)) {
        setting("do")
    } else {
        "echo".to_owned()
    }
}

impl batch::Guest for Guest {
    fn init(config: String) -> Result<(), String> {
        let config = serde_json::from_str(&config).map_err(|error| error.to_string())?;
        CONFIG.replace(config);
        match setting("init").as_str() {
            "refuse" => Err("`threshold` is missing".to_owned()),
            "trap" => panic!("init went wrong"),
            "spin" => spin(),
            _ => Ok(()),
        }
    }

    fn process_batch(shard: ShardContext, records: Vec<UserRecord>) -> Result<Outcome, ProcessError> {
        CALLS.set(CALLS.get() + 1);
        let mut outcome = Outcome {
            done: DoneRecords::Others,
            failed: Vec::new(),
            skipped: Vec::new(),
            checkpoint: None,
            outputs: Vec::new(),
        };
        match behaviour(&records).as_str() {
            "echo" => {
                outcome.outputs = records.iter().enumerate().map(|(index, record)| echo(index, record)).collect();
                outcome.checkpoint = records.last().map(|record| Position {
                    sequence_number: record.sequence_number.clone(),
                    sub_sequence_number: record.sub_sequence_number,
                });
            }
            "describe" => {
                let text = format!("{shard:?} {records:?}");
                outcome.outputs.push(output("describe", text.into_bytes(), Cause::Batch));
            }
            "count" => {
                let calls = CALLS.get().to_string();
                outcome.outputs.push(output("count", calls.into_bytes(), Cause::Batch));
            }
            "occurrences" => {
                let total: u64 = records.iter().map(|record| occurrences::occurrences(&record.data, b',')).sum();
                outcome.outputs.push(output("occurrences", total.to_string().into_bytes(), Cause::Batch));
            }
            "configuration" => {
                for value in [Some(configuration::all()), configuration::get("nested.key"), configuration::get("none")]
                {
                    let text = value.unwrap_or_else(|| "nothing".to_owned());
                    outcome.outputs.push(output("configuration", text.into_bytes(), Cause::Batch));
                }
            }
            "failed-and-skipped" => {
                outcome.done = DoneRecords::Before(2);
                outcome.failed.push(FailedRecord { index: 0, reason: "bad".to_owned(), retry: true });
                outcome.skipped.push(SkippedRecord { index: 2, reason: "old".to_owned() });
            }
            "index-outside" => outcome.done = DoneRecords::Listed(vec![0, 1_000_000]),
            "failed-outside" => {
                outcome.failed.push(FailedRecord { index: 1_000_000, reason: "bad".to_owned(), retry: true });
            }
            "cause-outside" => outcome.outputs.push(output("k", Vec::new(), Cause::Record(1_000_000))),
            "bad-hash-key" => {
                let mut bad = output("k", Vec::new(), Cause::Batch);
                bad.explicit_hash_key = Some("-1".to_owned());
                outcome.outputs.push(bad);
            }
            "bad-checkpoint" => {
                outcome.checkpoint = Some(Position { sequence_number: "LATEST".to_owned(), sub_sequence_number: 0 });
            }
            "retry" => return Err(ProcessError::Retry(RetryError { message: "busy".to_owned(), after_ms: 250 })),
            "reject" => return Err(ProcessError::Reject("never".to_owned())),
            "stop-shard" => return Err(ProcessError::StopShard("look at this".to_owned())),
            "panic" => panic!("record 0 is not what I thought"),
            "divide" => return Err(ProcessError::Reject((1 / u64::from(shard.attempt - 1)).to_string())),
            "recurse" => return Err(ProcessError::Reject(recurse(1).to_string())),
            "exit" => std::process::exit(3),
            "spin" => spin(),
            "work" => {
                let end = Instant::now() + Duration::from_millis(300);
                while Instant::now() < end {}
            }
            "nap" => std::thread::sleep(Duration::from_millis(300)),
            "sleep" => std::thread::sleep(Duration::from_secs(3600)),
            "memory" => {
                let mut kept = Vec::new();
                loop {
                    kept.push(vec![1u8; 1 << 20]);
                }
            }
            "huge" => outcome.outputs.push(output("huge", vec![7; 8 << 20], Cause::Batch)),
            "huge-log" => logging::log(logging::Level::Info, &"x".repeat(8 << 20), &[]),
            "log" => {
                let fields = [("carrier".to_owned(), "AA".to_owned()), ("delay".to_owned(), "12".to_owned())];
                logging::log(logging::Level::Warn, "a late flight\nINFO and a forged line", &fields);
                logging::log(logging::Level::Trace, "nobody wants to know", &[]);
                assert!(!logging::enabled(logging::Level::Trace) && logging::enabled(logging::Level::Warn));
            }
            "log-flood" => (0..10_000).for_each(|number| logging::log(logging::Level::Info, &number.to_string(), &[])),
            "print" => {
                print!("to stdout, ");
                println!("in two pieces");
                eprint!("to stderr, without an end");
                let _ = std::io::stdout().flush();
                println!("{}", "y".repeat(1 << 20));
            }
            "print-flood" => (0..10_000).for_each(|number| println!("{number}")),
            "measure" => {
                let labels = [("carrier".to_owned(), "AA".to_owned())];
                metrics::add("late", &labels, 2);
                metrics::set("level", &[], 1.5);
                metrics::observe("delay", &[], 3.0);
                (0..10_000).for_each(|number| metrics::add(&format!("n{number}"), &[], 1));
            }
            _ => {}
        }
        Ok(outcome)
    }
}

impl hooks::Guest for Guest {
    fn assigned(id: u64, shard: ShardContext) -> Result<HookOutcome, ProcessError> {
        told(id, format!("assigned {}", shard.shard_id))
    }

    fn revoked(id: u64, _: ShardContext, time_left_ms: u64) -> Result<HookOutcome, ProcessError> {
        if setting("revoked") == "spin" {
            spin();
        }
        told(id, format!("revoked {time_left_ms}"))
    }

    fn shard_ended(id: u64, _: ShardContext) -> Result<HookOutcome, ProcessError> {
        told(id, "shard-ended".to_owned())
    }

    fn idle(id: u64, _: ShardContext) -> Result<HookOutcome, ProcessError> {
        if setting("hooks") == "silent" {
            return told(id, String::new());
        }
        Err(ProcessError::Reject("not idle".to_owned()))
    }

    fn given_up(id: u64, _: ShardContext, records: Vec<GivenUpRecord>) -> Result<HookOutcome, ProcessError> {
        told(id, format!("given-up {records:?}"))
    }

    fn shutdown() -> Result<(), String> {
        logging::log(logging::Level::Info, "shutdown was called", &[]);
        Ok(())
    }
}

fn told(id: u64, text: String) -> Result<HookOutcome, ProcessError> {
    let mut outputs = vec![output("hook", text.into_bytes(), Cause::Hook(id))];
    if setting("hooks") == "silent" {
        outputs.clear();
    }
    Ok(HookOutcome { checkpoint: None, outputs })
}

fn echo(index: usize, record: &UserRecord) -> Output {
    Output {
        name: "out".to_owned(),
        partition_key: record.partition_key.clone(),
        explicit_hash_key: record.explicit_hash_key.clone(),
        data: record.data.clone(),
        cause: Cause::Record(u32::try_from(index).expect("batches are small")),
    }
}

fn output(partition_key: &str, data: Vec<u8>, cause: Cause) -> Output {
    let (name, partition_key) = ("out".to_owned(), partition_key.to_owned());
    Output { name, partition_key, explicit_hash_key: None, data, cause }
}

fn spin() -> ! {
    loop {
        std::hint::black_box(());
    }
}

#[allow(unconditional_recursion)]
fn recurse(depth: u64) -> u64 {
    std::hint::black_box(recurse(std::hint::black_box(depth + 1)) + depth)
}
