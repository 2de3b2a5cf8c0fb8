//! A guest that does what each record tells it, with whatever it is granted: it looks at its environment, makes requests,
//! waits, draws numbers, measures, and says things. What comes of it goes to the output `out`, as JSON. A `$NAME` in what it
//! is to say is the variable of that name. It plays the guests that are not to do more than they are granted, nor to tell
//! what they know.
#![cfg(target_arch = "wasm32")]

mod http;

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};
use shardmill_guest::metrics;
use shardmill_guest::prelude::*;

use http::Fetch;

/// The guest's configuration.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Settings {
    /// What `init` fails with.
    refuses: Option<String>,
}

/// What a record tells.
#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
enum Task {
    Environment,
    Fetch(Fetch),
    Sleep {
        ms: u64,
    },
    Random,
    /// Adds to the counter `told` with this label.
    Measure {
        label: String,
    },
    /// Says it in every way that there is.
    Say {
        text: String,
    },
    /// The record fails for good.
    Fail {
        text: String,
    },
    Skip {
        text: String,
    },
    Reject {
        text: String,
    },
    Panic {
        text: String,
    },
    /// An output that the configuration does not have.
    Emit {
        output: String,
    },
}

struct Reach;

// === impl Reach ===

impl Processor for Reach {
    type Config = Settings;

    fn new(settings: Settings) -> Result<Reach, Error> {
        match settings.refuses {
            Some(text) => Err(Error::reject(filled(&text))),
            None => Ok(Reach),
        }
    }

    fn process(&mut self, _shard: &ShardContext, batch: &Batch<'_>) -> Result<Outcome, Error> {
        let mut outcome = batch.outcome();
        for record in batch {
            let task = serde_json::from_slice(record.data()).map_err(Error::reject)?;
            let result = match task {
                Task::Environment => environment(),
                Task::Fetch(fetch) => http::fetch(&fetch),
                Task::Sleep { ms } => {
                    std::thread::sleep(Duration::from_millis(ms));
                    json!({ "slept": ms })
                }
                Task::Random => json!({ "random": wasip2::random::random::get_random_u64() }),
                Task::Measure { label } => {
                    metrics::add("told", &[("label", &filled(&label))], 1);
                    json!({})
                }
                Task::Say { text } => {
                    let text = filled(&text);
                    info!(said = text; "said: {text}");
                    println!("printed: {text}");
                    eprintln!("warned: {text}");
                    json!({})
                }
                Task::Fail { text } => {
                    outcome.fail_for_good(record, filled(&text));
                    continue;
                }
                Task::Skip { text } => {
                    outcome.skip(record, filled(&text));
                    continue;
                }
                Task::Reject { text } => return Err(Error::reject(filled(&text))),
                Task::Panic { text } => panic!("{}", filled(&text)),
                Task::Emit { output } => {
                    outcome.emit(&filled(&output), record).bytes(b"{}")?;
                    continue;
                }
            };
            outcome.emit("out", record).json(&result)?;
        }
        Ok(outcome)
    }
}

fn environment() -> Value {
    // A hash table, because most programs have one.
    let variables: HashMap<String, String> = std::env::vars().collect();
    json!({ "environment": variables, "arguments": std::env::args().count() })
}

/// A text with its variables.
fn filled(text: &str) -> String {
    let mut filled = text.to_owned();
    for (name, value) in std::env::vars() {
        filled = filled.replace(&format!("${name}"), &value);
    }
    filled
}

shardmill_guest::processor!(Reach);
