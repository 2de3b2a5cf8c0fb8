//! What is told of a trial, for people.

use comfy_table::Table;

use super::expect::Difference;
use super::report::{BatchReport, Call, Cause, HookReport, Sent, Summary, Unwell};
use super::show::Start;
use crate::cli::plugin::heard::Line;
use crate::cli::plugin::records::Records;
use crate::cli::plugin::shown::{bytes, payload, short, time};
use crate::cli::put::Place;
use crate::cli::table;
use crate::cli::text::{counted, line};

/// Of a payload and of a reason, where not all of them is wanted.
const LONGEST: usize = 160;
/// Frames of a call stack.
const FRAMES: usize = 12;
/// Lines of a difference, where not all of them are wanted.
const DIFFERENT: usize = 40;

/// How much is shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct People {
    /// Texts as long as they are.
    pub(super) full: bool,
}

// === impl People ===

impl People {
    pub(super) fn start(self, start: &Start<'_>) -> String {
        let Start { file, module, load, start, logs: lines, run } = start;
        let run = run.map(|run| format!("run {run}: ")).unwrap_or_default();
        let hooks = if module.hooks() { ", with hooks" } else { "" };
        let digest: String = module.digest().to_string().chars().take(12).collect();
        let mut shown = format!(
            "{run}{}\n  {}, {}{hooks}, sha-256 {digest}…, {}; loaded in {}, an instance starts in {}",
            line(&file.display().to_string()),
            module.abi(),
            module.form(),
            bytes(module.size()),
            time(*load),
            time(*start)
        );
        logs(lines, &mut shown);
        shown
    }

    pub(super) fn batch(self, report: &BatchReport, records: &Records) -> String {
        let BatchReport { number, shard, batcher, skipped, failed, outputs, .. } = report;
        let batcher = batcher.as_ref().map(|batcher| format!(" of batcher {batcher}")).unwrap_or_default();
        let dropped = match report.dropped_outputs {
            0 => String::new(),
            dropped => format!(" ({dropped} dropped, of records that failed)"),
        };
        let took = report.calls.iter().map(|call| call.took).sum();
        let memory = report.calls.last().map_or(0, |call| call.memory);
        let calls = match report.calls.len() {
            1 => String::new(),
            calls => format!(", {calls} calls"),
        };
        let mut shown = format!(
            "\nbatch {number}{batcher}: {} of {shard}: {} done, {} skipped, {} failed; {}{dropped}; {}{calls}, memory {}",
            counted(report.records as u64, "record"),
            report.done,
            skipped.len(),
            failed.len(),
            counted(outputs.len() as u64, "output"),
            time(took),
            bytes(memory)
        );
        for call in &report.calls {
            self.call(call, &mut shown);
        }
        if let Some(checkpoint) = &report.checkpoint {
            push(&mut shown, &format!("  checkpoint up to {checkpoint}"));
        }
        if !skipped.is_empty() || !failed.is_empty() {
            push(&mut shown, &self.unwell(skipped, failed, records).to_string());
        }
        if !outputs.is_empty() {
            push(&mut shown, &self.outputs(outputs, records).to_string());
        }
        logs(&report.logs, &mut shown);
        shown
    }

    pub(super) fn hook(self, report: &HookReport, records: &Records) -> String {
        let HookReport { hook, shard, outputs, checkpoint, call, logs: lines } = report;
        let shard = shard.as_ref().map(|shard| format!(" of {shard}")).unwrap_or_default();
        let ended = if call.failure.is_some() { "failed" } else { "done" };
        let mut shown = format!(
            "\nhook {}{shard}: {ended}; {}; {}, memory {}",
            hook.as_str(),
            counted(outputs.len() as u64, "output"),
            time(call.took),
            bytes(call.memory)
        );
        self.call(call, &mut shown);
        if let Some(checkpoint) = checkpoint {
            push(&mut shown, &format!("  checkpoint up to {checkpoint}"));
        }
        if !outputs.is_empty() {
            push(&mut shown, &self.outputs(outputs, records).to_string());
        }
        logs(lines, &mut shown);
        shown
    }

    pub(super) fn end(self, summary: &Summary, limit: usize, metrics: &[(String, f64)]) -> String {
        let mut shown = format!(
            "\n{}: {} done, {} skipped, {} failed",
            counted(summary.records, "record"),
            summary.done,
            summary.skipped,
            summary.failed
        );
        for (count, what) in [(summary.filtered_out, "filtered out"), (summary.left, "not handed over")] {
            if count > 0 {
                shown.push_str(&format!(", {count} {what}"));
            }
        }
        let outputs: Vec<String> =
            summary.outputs.iter().map(|(name, count)| format!("{} {count}", line(name))).collect();
        let outputs = if outputs.is_empty() { "none".to_owned() } else { outputs.join(", ") };
        push(&mut shown, &format!("outputs: {outputs}"));
        if summary.dropped_outputs > 0 {
            shown.push_str(&format!("; {} dropped, of records that failed", summary.dropped_outputs));
        }
        let calls = &summary.calls;
        if calls.count() > 0 {
            let failed = match summary.failed_calls {
                0 => String::new(),
                failed => format!(", {failed} failed"),
            };
            push(
                &mut shown,
                &format!(
                    "calls: {}{failed}, p50 {}, max {}; memory {} of {}",
                    calls.count(),
                    time(calls.quantile(0.5)),
                    time(calls.max()),
                    bytes(summary.memory),
                    bytes(limit)
                ),
            );
        }
        for (series, value) in metrics {
            push(&mut shown, &format!("metric: {} {value}", line(series)));
        }
        shown
    }

    pub(super) fn difference(self, name: &str, difference: &Difference) -> String {
        let Difference { lines, missing, unexpected } = difference;
        let mut shown = format!("\nnot as {name} says: {missing} missing (-), {unexpected} not expected (+)");
        // What is the same is left out, but for a line on both sides of what is not.
        let differs = |at: usize| lines.get(at).is_some_and(|line| !line.starts_with(' '));
        let near = |at: &usize| differs(*at) || differs(at + 1) || at.checked_sub(1).is_some_and(differs);
        let wanted: Vec<usize> = (0..lines.len()).filter(near).collect();
        let most = if self.full { wanted.len() } else { DIFFERENT };
        let mut before = None;
        for at in wanted.iter().take(most) {
            if before.is_some_and(|before: usize| before + 1 < *at) {
                push(&mut shown, "  …");
            }
            push(&mut shown, &short(&lines[*at], self.longest().map(|longest| longest * 2)));
            before = Some(*at);
        }
        if wanted.len() > most {
            push(&mut shown, &format!("  … and {} more lines (--full)", wanted.len() - most));
        }
        shown
    }

    fn longest(self) -> Option<usize> {
        (!self.full).then_some(LONGEST)
    }

    /// Nothing of one that went well: that is said of all of them together.
    fn call(self, call: &Call, shown: &mut String) {
        let Some(failure) = &call.failure else { return };
        let records =
            if call.records == 0 { String::new() } else { format!(" of {}", counted(call.records as u64, "record")) };
        let after = failure.after.map(|after| format!(" (it wants to wait {})", time(after))).unwrap_or_default();
        let message = short(&failure.message, self.longest().map(|longest| longest * 3));
        push(
            shown,
            &format!("  call{records} failed at attempt {} ({}): {message}{after}", call.attempt, failure.kind),
        );
        // The names are gone of most components, and addresses say nothing to people.
        let frames: Vec<&str> = failure.backtrace.lines().filter(|frame| is_named(frame)).collect();
        let most = if self.full { frames.len() } else { FRAMES };
        for frame in frames.iter().take(most) {
            push(shown, &format!("    {}", line(frame)));
        }
    }

    fn unwell(self, skipped: &[Unwell], failed: &[Unwell], records: &Records) -> Table {
        let mut table = table::fitted(["Record", "Key", "", "Why"], &[]);
        let skipped = skipped.iter().map(|unwell| (unwell, "skipped".to_owned()));
        let failed = failed.iter().map(|unwell| {
            let attempts = match unwell.attempts {
                Some(attempts) if attempts > 1 => format!("failed {attempts} times"),
                _one => "failed".to_owned(),
            };
            (unwell, attempts)
        });
        let mut all: Vec<(&Unwell, String)> = skipped.chain(failed).collect();
        all.sort_by_key(|(unwell, _)| unwell.place);
        for (unwell, became) in all {
            let key = short(&unwell.partition_key, self.longest());
            table.add_row([records.name(unwell.place), key, became, short(&unwell.reason, self.longest())]);
        }
        table
    }

    fn outputs(self, outputs: &[Sent], records: &Records) -> Table {
        let mut table = table::fitted(["Output", "Key", "Data", "From"], &[]);
        for Sent { output, record, cause } in outputs {
            let mut key = short(&record.partition_key, self.longest());
            if let Some(hash_key) = record.explicit_hash_key {
                key.push_str(&format!(" (hash key {hash_key})"));
            }
            table.add_row([line(output), key, payload(&record.data, self.longest()), from(*cause, records)]);
        }
        table
    }
}

/// Whether a line of a call stack names a function.
fn is_named(frame: &str) -> bool {
    frame.contains('!') && !frame.contains("!<wasm function")
}

/// A place that holds no record.
pub(super) fn no_record(place: Place, reason: &str, records: &Records) -> String {
    line(&format!("{} is no record: {reason}", records.name(place)))
}

fn from(cause: Cause, records: &Records) -> String {
    match cause {
        Cause::Record(place) => records.name(place),
        Cause::Batch => "the batch".to_owned(),
        Cause::Hook => "the hook".to_owned(),
    }
}

fn logs(lines: &[Line], shown: &mut String) {
    for said in lines {
        push(shown, &format!("  {:<5} {}", said.level.as_str(), said.text()));
    }
}

fn push(shown: &mut String, line: &str) {
    shown.push('\n');
    shown.push_str(line);
}
