//! What is told of a trial, for programs: a JSON object for each thing that happens.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::expect::{Difference, as_value};
use super::report::{BatchReport, Call, Cause, HookReport, Sent, Summary, Unwell};
use super::show::Start;
use crate::cli::plugin::describe;
use crate::cli::plugin::heard::Line;
use crate::cli::plugin::records::Records;
use crate::cli::put::Place;

pub(super) fn start(start: &Start<'_>) -> Value {
    json!({
        "event": "start",
        "run": start.run.unwrap_or(1),
        "plugin": start.file.display().to_string(),
        "module": describe(start.module),
        "load_ms": milliseconds(start.load),
        "start_ms": milliseconds(start.start),
        "logs": logs(&start.logs),
    })
}

pub(super) fn no_record(place: Place, reason: &str, records: &Records) -> Value {
    json!({ "event": "no-record", "file": records.file(place), "line": place.line, "error": reason })
}

pub(super) fn batch(report: &BatchReport, records: &Records) -> Value {
    let unwell = |all: &[Unwell]| all.iter().map(|one| self::unwell(one, records)).collect::<Vec<_>>();
    json!({
        "event": "batch",
        "batch": report.number,
        "shard": report.shard.as_str(),
        "batcher": report.batcher.as_deref(),
        "records": report.records,
        "done": report.done,
        "skipped": unwell(&report.skipped),
        "failed": unwell(&report.failed),
        "outputs": outputs(&report.outputs, records),
        "dropped_outputs": report.dropped_outputs,
        "checkpoint": report.checkpoint.as_ref().map(ToString::to_string),
        "calls": report.calls.iter().map(call).collect::<Vec<_>>(),
        "logs": logs(&report.logs),
    })
}

pub(super) fn hook(report: &HookReport, records: &Records) -> Value {
    json!({
        "event": "hook",
        "hook": report.hook.as_str(),
        "shard": report.shard.as_ref().map(|shard| shard.as_str()),
        "outputs": outputs(&report.outputs, records),
        "checkpoint": report.checkpoint.as_ref().map(ToString::to_string),
        "call": call(&report.call),
        "logs": logs(&report.logs),
    })
}

/// `difference`: of what was expected, where something was.
pub(super) fn end(
    summary: &Summary,
    limit: usize,
    metrics: &[(String, f64)],
    difference: Option<Option<&Difference>>,
    wrong: &[String],
) -> Value {
    let calls = &summary.calls;
    let metrics: Map<String, Value> = metrics.iter().map(|(name, value)| (name.clone(), (*value).into())).collect();
    let mut end = json!({
        "event": "end",
        "ok": wrong.is_empty(),
        "wrong": wrong,
        "records": summary.records,
        "no_records": summary.bad,
        "filtered_out": summary.filtered_out,
        "done": summary.done,
        "skipped": summary.skipped,
        "failed": summary.failed,
        "not_handed_over": summary.left,
        "batches": summary.batches,
        "outputs": summary.outputs,
        "dropped_outputs": summary.dropped_outputs,
        "calls": calls.count(),
        "failed_calls": summary.failed_calls,
        "failed_hooks": summary.failed_hooks,
        "call_ms": { "p50": milliseconds(calls.quantile(0.5)), "max": milliseconds(calls.max()) },
        "memory_bytes": summary.memory,
        "memory_limit_bytes": limit,
        "metrics": metrics,
    });
    if let Some(difference) = difference {
        end["expected"] = match difference {
            None => json!({ "ok": true }),
            Some(Difference { lines, missing, unexpected }) => {
                let differing: Vec<&String> = lines.iter().filter(|line| !line.starts_with(' ')).collect();
                json!({ "ok": false, "missing": missing, "unexpected": unexpected, "lines": differing })
            }
        };
    }
    end
}

fn unwell(unwell: &Unwell, records: &Records) -> Value {
    json!({
        "file": records.file(unwell.place),
        "line": unwell.place.line,
        "position": unwell.position.to_string(),
        "partition_key": unwell.partition_key,
        "attempts": unwell.attempts,
        "reason": unwell.reason,
    })
}

fn outputs(outputs: &[Sent], records: &Records) -> Vec<Value> {
    let output = |sent: &Sent| {
        let mut value = as_value(sent);
        value["cause"] = match sent.cause {
            Cause::Record(place) => json!({ "file": records.file(place), "line": place.line }),
            Cause::Batch => "batch".into(),
            Cause::Hook => "hook".into(),
        };
        value
    };
    outputs.iter().map(output).collect()
}

fn call(call: &Call) -> Value {
    let failure = call.failure.as_ref().map(|failure| {
        json!({
            "kind": failure.kind,
            "message": failure.message,
            "backtrace": (!failure.backtrace.is_empty()).then_some(&failure.backtrace),
            "after_ms": failure.after.map(milliseconds),
        })
    });
    json!({
        "attempt": call.attempt,
        "records": call.records,
        "took_ms": milliseconds(call.took),
        "memory_bytes": call.memory,
        "failure": failure,
    })
}

fn logs(lines: &[Line]) -> Vec<Value> {
    lines.iter().map(Line::json).collect()
}

/// With fractions.
fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
