//! Filters, batches and lanes: what each must be, and what does not go together.

use std::time::Duration;

use serde::Deserialize as _;
use shardmill_cause::Coded;
use shardmill_cause::code::config as code;
use shardmill_engine::{CheckpointBy, Delivery};
use shardmill_filter::{OnInvalidJson, Pattern};

use super::check::{self, Checked, HOUR, MIB, count, helped, name, size, time, wrong};
use super::{Batch, Batcher, Filter, Flow, Pointer, file};

/// The most records of one GetRecords.
const MAX_BATCH_RECORDS: u32 = 10_000;
const MAX_BATCH_BYTES: u64 = 64 * MIB;
const MAX_WAIT: Duration = Duration::from_secs(5 * 60);
const MAX_PARALLELISM: u32 = 256;
/// Each lane of each shard has a batch under way for each of them.
const MAX_BATCHERS: usize = 32;
/// What messages and metrics call the processor's own batch.
const DEFAULT: &str = "default";

pub(super) fn batch(processor: &str, file: &file::Batch) -> Checked<Batch> {
    let at = |key| ["processors", processor, "batch", key];
    let window = window(&at("window"), file.window)?;
    let batch = Batch {
        records: count(&at("records"), file.records, 500, [1, MAX_BATCH_RECORDS])? as usize,
        bytes: size(&at("bytes"), file.bytes, 4 * MIB, [1, MAX_BATCH_BYTES])? as usize,
        wait: match file.wait {
            None => window.unwrap_or(Duration::ZERO),
            given => time(&at("wait"), given, Duration::ZERO, [Duration::ZERO, MAX_WAIT])?,
        },
        window,
        empty: file.empty.unwrap_or(false),
    };
    empty_in_time(&at("empty"), &batch)?;
    Ok(batch)
}

/// `batch`: what is written of the processor's own, which its batchers begin with.
pub(super) fn flow(
    processor: &str,
    own: &file::Processor,
    settings: &file::ProcessorSettings,
    batch: &file::Batch,
) -> Checked<Flow> {
    let at = |key| ["processors", processor, key];
    let parallelism = count(&at("parallelism"), settings.parallelism, 1, [1, MAX_PARALLELISM])?;
    let partition_by = match &settings.partition_by {
        None => None,
        Some(text) => Some(pointer(&at("partition-by"), text)?),
    };
    let filter = match &own.filter {
        None => None,
        Some(table) => {
            let path = ["processors", processor, "filter", "patterns"];
            Some(filter(&path, &table.patterns, table.on_invalid_json.unwrap_or_default())?)
        }
    };
    let mut batchers: Vec<Batcher> = Vec::new();
    if own.batchers.len() > MAX_BATCHERS {
        let count = own.batchers.len();
        return wrong(
            code::OUT_OF_BOUNDS,
            &at("batchers"),
            format!("{count} batchers are too many: {MAX_BATCHERS} are allowed"),
        );
    }
    for (index, section) in own.batchers.iter().enumerate() {
        let place = format!("[{index}]");
        batcher_name(&["processors", processor, "batchers", &place, "name"], &section.name, &batchers)?;
        batchers.push(batcher(processor, section, batch, &batchers)?);
    }
    if let Some(Batcher { name, when: None, .. }) = batchers.last() {
        nothing_is_left(processor, own.batch.as_ref(), name)?;
    }
    Ok(Flow { parallelism, partition_by, filter, batchers })
}

/// Lanes and batchers finish records in another order than that of the shard.
pub(super) fn in_order(processor: &str, flow: &Flow, delivery: Delivery, checkpoint: CheckpointBy) -> Checked<()> {
    let (why, setting) = match (delivery, checkpoint) {
        (Delivery::AtMostOnce, _) => (
            "the checkpoint passes each batch before it is handed over, which takes one batch after the other",
            "delivery = \"at-most-once\"",
        ),
        (_, CheckpointBy::Guest) => (
            "the plugin says how far the checkpoint goes, which takes records in the order of their shard",
            "checkpoint = \"guest\"",
        ),
        _ => return Ok(()),
    };
    if flow.parallelism > 1 {
        let lanes = wrong(code::TOGETHER, &["processors", processor, "parallelism"], format!("with `{setting}` {why}"));
        return helped(lanes, format!("1 is what `{setting}` allows: leave one of the two out"));
    }
    if !flow.batchers.is_empty() {
        let batchers = wrong(code::TOGETHER, &["processors", processor, "batchers"], format!("with `{setting}` {why}"));
        return helped(batchers, format!("`{setting}` allows none: leave one of the two out"));
    }
    Ok(())
}

fn batcher_name(path: &[&str], text: &str, before: &[Batcher]) -> Checked<()> {
    name(path, text)?;
    if text == DEFAULT {
        let taken =
            wrong(code::TWICE, path, format!("`{DEFAULT}` is what the records are called that no batcher takes"));
        return helped(taken, "give it another name; the processor's own `batch` says how the others are collected");
    }
    if before.iter().any(|other| other.name == text) {
        let twice = wrong(code::TWICE, path, format!("there is a batcher `{text}` already"));
        return helped(twice, "each has a name of its own; patterns of which one is to match go in one list, `when`");
    }
    Ok(())
}

fn batcher(processor: &str, section: &file::Batcher, default: &file::Batch, before: &[Batcher]) -> Checked<Batcher> {
    let name = section.name.as_str();
    let at = |key| ["processors", processor, "batchers", name, key];
    if let Some(Batcher { name: all, .. }) = before.iter().find(|other| other.when.is_none()) {
        let message = format!("no record comes here: the batcher `{all}` before it has no `when`, and takes all");
        let help = format!("give `{all}` a `when`, or let it stand behind the others");
        return helped(wrong(code::TOGETHER, &["processors", processor, "batchers", name], message), help);
    }
    let when = match &section.when {
        None => None,
        Some(patterns) if patterns.is_empty() => {
            let none = wrong(code::MISSING, &at("when"), "a list without patterns would take no record");
            return helped(none, "name at least one pattern, or leave `when` out to take all that is left");
        }
        Some(patterns) => Some(filter(&at("when"), patterns, OnInvalidJson::Drop)?),
    };
    let window = window(&at("window"), section.window)?;
    let default_wait = default.wait.map_or(Duration::ZERO, |time| time.0);
    let batch = Batch {
        records: count(&at("records"), section.records.or(default.records), 500, [1, MAX_BATCH_RECORDS])? as usize,
        bytes: size(&at("bytes"), section.bytes.or(default.bytes), 4 * MIB, [1, MAX_BATCH_BYTES])? as usize,
        wait: match section.wait {
            None => window.unwrap_or(default_wait),
            given => time(&at("wait"), given, Duration::ZERO, [Duration::ZERO, MAX_WAIT])?,
        },
        window,
        empty: section.empty.unwrap_or(false),
    };
    empty_in_time(&at("empty"), &batch)?;
    Ok(Batcher { name: name.to_owned(), when, batch })
}

/// The processor's own batch behind a batcher that takes all: what is said of it would never happen.
fn nothing_is_left(processor: &str, own: Option<&file::Batch>, all: &str) -> Checked<()> {
    let keys = [
        ("window", own.is_some_and(|batch| batch.window.is_some())),
        ("empty", own.is_some_and(|batch| batch.empty == Some(true))),
    ];
    let Some((key, _)) = keys.into_iter().find(|(_, is_given)| *is_given) else { return Ok(()) };
    let message = format!("no record comes here: the batcher `{all}` has no `when`, and takes all that is left");
    let help = format!("set `{key}` of the batcher, or give it a `when`");
    helped(wrong(code::TOGETHER, &["processors", processor, "batch", key], message), help)
}

fn window(path: &[&str], given: Option<super::units::Time>) -> Checked<Option<Duration>> {
    let second = Duration::from_secs(1);
    given.map(|window| time(path, Some(window), second, [second, 24 * HOUR])).transpose()
}

/// A call without records comes when a time has passed: without one it would come without end.
fn empty_in_time(path: &[&str], batch: &Batch) -> Checked<()> {
    if batch.empty && batch.wait.is_zero() && batch.window.is_none() {
        let timeless = wrong(code::MISSING, path, "nothing says when to call the plugin without records");
        return helped(timeless, "set `wait` or `window` beside it, such as window = \"1m\"");
    }
    Ok(())
}

fn pointer(path: &[&str], text: &str) -> Checked<Pointer> {
    Pointer::parse(text).map_or_else(
        || {
            let none =
                wrong(code::NOT_A_FIELD, path, format!("`{}` is not a JSON pointer to a field", check::shown(text)));
            let help =
                "write \"/customer/id\": each field's name after a `/`, with `~1` for a `/` and `~0` for a `~` in it";
            helped(none, help)
        },
        Ok,
    )
}

/// `path`: the key of the list.
fn filter(path: &[&str], written: &[toml::Value], on_invalid_json: OnInvalidJson) -> Checked<Filter> {
    let mut patterns = Vec::with_capacity(written.len());
    for (index, value) in written.iter().enumerate() {
        let pattern = pattern(value).or_else(|error| {
            let place = format!("[{index}]");
            let path: Vec<&str> = path.iter().copied().chain([place.as_str()]).collect();
            wrong(
                shardmill_cause::code::filter::PATTERN,
                &path,
                format!("pattern {}: {}", index + 1, check::escaped(&error)),
            )
        })?;
        patterns.push(pattern);
    }
    let rules = shardmill_filter::Filter::new(patterns, on_invalid_json)
        .or_else(|error| wrong(error.code(), path, error.to_string()))?;
    Ok(Filter { patterns: written.iter().map(as_json).collect(), rules })
}

fn pattern(written: &toml::Value) -> Result<Pattern, String> {
    // Handed on it would be a text.
    if let Some(date) = date(written) {
        return Err(format!("JSON has no dates: write {date} as a text, in quotes"));
    }
    Pattern::deserialize(written.clone()).map_err(|error| error.message().to_owned())
}

/// The first date in a value.
fn date(value: &toml::Value) -> Option<&toml::value::Datetime> {
    match value {
        toml::Value::Datetime(date) => Some(date),
        toml::Value::Array(list) => list.iter().find_map(date),
        toml::Value::Table(table) => table.values().find_map(date),
        _ => None,
    }
}

/// A pattern that is known to be one.
fn as_json(written: &toml::Value) -> String {
    let json = match written {
        toml::Value::String(text) => serde_json::from_str(text).ok(),
        table => serde_json::to_value(table).ok(),
    };
    json.unwrap_or(serde_json::Value::Null).to_string()
}
