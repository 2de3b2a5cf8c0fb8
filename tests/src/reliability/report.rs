//! What a run tells: of each pit stop, and at its end.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use indicatif::{HumanBytes, HumanCount};
use serde_json::{Value, json};

use super::checker::{Findings, Hole, Violations};
use super::integers::KEYS;
use super::writer::Told;
use super::{Options, Plant};

/// What happens in a run.
#[derive(Debug)]
pub enum Event<'a> {
    /// So many integers have come out.
    Progress(u64),
    /// A pit stop was passed.
    PitStop(&'a PitStop),
}

/// A pit stop that was passed: nothing below its mark is missing, repeated or out of order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PitStop {
    /// The integers below this have come out.
    pub mark: u64,
    /// How many of them since the pit stop before.
    pub integers: u64,
    /// How long since the pit stop before.
    pub took: Duration,
    /// How long since the first integer was put.
    pub in_all: Duration,
}

/// Why a run was over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// All pit stops were passed, and the worker has ended as it was told.
    Complete,
    /// A pit stop, or the look after the worker's end, has found something.
    Broken,
    /// Nothing new has come for so long.
    Stalled(Duration),
    /// The producer has given up an integer.
    NotStored,
    /// The worker has ended by itself, or not well, with this status.
    WorkerEnded(String),
}

/// The most that each had resident, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// The worker.
    pub worker: u64,
    /// The built-in Kinesis and DynamoDB, which hold all that was put.
    pub services: u64,
    /// This program: producer, reader and checker.
    pub program: u64,
}

/// A run and what it has found.
#[derive(Debug, Clone)]
pub struct Report {
    /// What was to be done.
    pub options: Options,
    /// Why it was over.
    pub ending: Ending,
    /// The integers below this have passed a pit stop.
    pub passed: u64,
    /// What was found is about the integers below this.
    pub mark: u64,
    /// From the first integer that was put until it was over.
    pub took: Duration,
    /// How many integers have come out, each counted once.
    pub found: u64,
    /// What the producer has said.
    pub told: Told,
    /// What is wrong.
    pub findings: Findings,
    /// Of those that are missing, how many are in the input.
    pub in_input: u64,
    /// How many records the processor's producer says may be in the output more than once.
    pub announced: u64,
    /// How many Kinesis records the output has.
    pub output_kinesis_records: u64,
    /// What the processes took; `None` where that is not known.
    pub memory: Option<Memory>,
    /// Where the worker's log is kept, if something is wrong.
    pub log: Option<PathBuf>,
}

fn per_second(count: u64, time: Duration) -> HumanCount {
    HumanCount((count as f64 / time.as_secs_f64().max(1e-9)) as u64)
}

/// With three digits after the point.
fn rounded(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}

// === impl PitStop ===

impl PitStop {
    /// As one object of JSON.
    pub fn json(&self) -> Value {
        json!({
            "event": "pit-stop",
            "integers": self.mark,
            "records_per_second": per_second(self.integers, self.took).0,
            "records_per_second_in_all": per_second(self.mark, self.in_all).0,
            "seconds": rounded(self.took.as_secs_f64()),
            "seconds_in_all": rounded(self.in_all.as_secs_f64()),
        })
    }
}

impl fmt::Display for PitStop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:>11}  no hole, no repeat  {:>9} records/s  {:>9} in all  {:6.1} s",
            HumanCount(self.mark).to_string(),
            per_second(self.integers, self.took).to_string(),
            per_second(self.mark, self.in_all).to_string(),
            self.in_all.as_secs_f64(),
        )
    }
}

// === impl Options ===

impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options { records, shards, pit_stop, seed, plant, .. } = self;
        let (records, pit_stop, keys) = (HumanCount(*records), HumanCount(*pit_stop), HumanCount(KEYS));
        let plural = if *shards == 1 { "" } else { "s" };
        write!(f, "reliability: {records} integers through producer, processor and output stream, ")?;
        write!(f, "{shards} shard{plural}, {keys} keys, seed {seed}, a pit stop every {pit_stop}")?;
        match plant {
            None => Ok(()),
            Some(Plant::Swallowed) => write!(f, "; planted: an entry of PutRecords that is not stored"),
            Some(Plant::AnswerLost) => write!(f, "; planted: an answer to PutRecords that is lost"),
            Some(Plant::Unanswered) => write!(f, "; planted: PutRecords that are never answered"),
        }
    }
}

// === impl Ending ===

impl Ending {
    fn name(&self) -> &'static str {
        match self {
            Ending::Complete => "complete",
            Ending::Broken => "broken",
            Ending::Stalled(_) => "stalled",
            Ending::NotStored => "not-stored",
            Ending::WorkerEnded(_) => "worker-ended",
        }
    }
}

// === impl Report ===

impl Report {
    /// Whether everything is as it should be: each integer once, in the order of its key, and confirmed.
    pub fn is_clean(&self) -> bool {
        self.ending == Ending::Complete
            && self.findings.are_none()
            && self.told.confirmed == self.options.records
            && self.told.failed == 0
    }

    /// As one object of JSON.
    pub fn json(&self) -> Value {
        let Report { options, findings, told, .. } = self;
        let violations = |violations: &Violations| json!({ "count": violations.count, "first": violations.first });
        json!({
            "event": "end",
            "ok": self.is_clean(),
            "ending": self.ending.name(),
            "records": options.records,
            "shards": options.shards,
            "seed": options.seed,
            "passed": self.passed,
            "found": self.found,
            "seconds": rounded(self.took.as_secs_f64()),
            "records_per_second": per_second(self.found, self.took).0,
            "put": told.put,
            "confirmed": told.confirmed,
            "unconfirmed": told.unconfirmed(),
            "failed": told.failed,
            "failure": told.failure,
            "missing": findings.missing,
            "overtaken": findings.overtaken,
            "missing_in_input_too": findings.missing - self.in_input,
            "hole_count": findings.hole_count,
            "holes": findings.holes.iter().map(Hole::json).collect::<Vec<_>>(),
            "repeated": violations(&findings.repeated),
            "late": violations(&findings.late),
            "strange": violations(&findings.strange),
            "input_repeats_announced": told.may_be_repeated,
            "output_repeats_announced": self.announced,
            "input_kinesis_records": told.kinesis_records,
            "output_kinesis_records": self.output_kinesis_records,
            "peak_memory_bytes": self.memory.map(|Memory { worker, services, program }| {
                json!({ "worker": worker, "services": services, "program": program })
            }),
            "worker_log": self.log,
        })
    }

    fn why(&self) -> String {
        let before = HumanCount(self.mark);
        match &self.ending {
            Ending::Complete if self.is_clean() => "every integer came out once, in the order of its key".to_owned(),
            Ending::Complete => "every integer came out, but not all of them were confirmed".to_owned(),
            Ending::Broken => format!("BROKEN below {before}"),
            Ending::Stalled(patience) => {
                format!("BROKEN below {before}: nothing new came out for {} s", patience.as_secs())
            }
            Ending::NotStored => {
                let failure = self.told.failure.as_deref().unwrap_or("the producer says no reason");
                format!("BROKEN below {before}: an integer was not stored in the input: {failure}")
            }
            Ending::WorkerEnded(status) => format!("BROKEN below {before}: the worker has ended with {status}"),
        }
    }

    fn write_missing(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Findings { missing, overtaken, holes, hole_count, .. } = &self.findings;
        for hole in holes {
            writeln!(f, "  {hole}")?;
        }
        if *hole_count > holes.len() as u64 {
            writeln!(f, "  and {} holes more", HumanCount(hole_count - holes.len() as u64))?;
        }
        if *missing > 0 {
            let in_input = match self.in_input {
                0 => "none of them is in the input".to_owned(),
                all if all == *missing => "all of them are in the input".to_owned(),
                some => format!("{} of them are in the input", HumanCount(some)),
            };
            let overtaken = HumanCount(*overtaken);
            writeln!(f, "  {in_input}; {overtaken} of them were overtaken by later integers of their keys")?;
        }
        Ok(())
    }

    fn write_violations(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Findings { repeated, late, strange, .. } = &self.findings;
        for (name, Violations { count, first }) in
            [("repeated", repeated), ("out of order", late), ("put by nobody", strange)]
        {
            for one in first {
                writeln!(f, "  {name}: {one}")?;
            }
            if *count > first.len() as u64 {
                writeln!(f, "  {name}: and {} more", HumanCount(count - first.len() as u64))?;
            }
        }
        let announced =
            [("the library producer", self.told.may_be_repeated), ("the processor's producer", self.announced)];
        for (who, count) in announced.into_iter().filter(|(_, count)| *count > 0) {
            writeln!(f, "  {who} says that {} of its records may be stored more than once", HumanCount(count))?;
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { told, findings, took, found, .. } = self;
        let count = HumanCount;
        writeln!(f, "{}", self.why())?;
        writeln!(
            f,
            "  {} integers in {:.1} s, {} records/s",
            count(*found),
            took.as_secs_f64(),
            per_second(*found, *took),
        )?;
        writeln!(
            f,
            "  {} confirmed, {} unconfirmed, {} failed",
            count(told.confirmed),
            count(told.unconfirmed()),
            count(told.failed),
        )?;
        writeln!(
            f,
            "  {} missing, {} repeated, {} out of order, {} put by nobody",
            count(findings.missing),
            count(findings.repeated.count),
            count(findings.late.count),
            count(findings.strange.count),
        )?;
        self.write_missing(f)?;
        self.write_violations(f)?;
        let (input, output) = (count(told.kinesis_records), count(self.output_kinesis_records));
        writeln!(f, "  {input} Kinesis records in the input, {output} in the output")?;
        if let Some(Memory { worker, services, program }) = self.memory {
            let [worker, services, program] = [worker, services, program].map(HumanBytes);
            writeln!(f, "  peak memory: worker {worker}, services {services}, this program {program}")?;
        }
        match &self.log {
            Some(log) => writeln!(f, "  the worker's log is {}", log.display()),
            None => Ok(()),
        }
    }
}

// === impl Hole ===

impl Hole {
    fn json(&self) -> Value {
        json!({ "shard": self.shard, "first": self.first, "last": self.last, "integers": self.integers })
    }
}

impl fmt::Display for Hole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Hole { shard, first, last, integers } = self;
        match integers {
            1 => write!(f, "hole: {first} of {shard}"),
            _ => write!(f, "hole: {first} to {last}, the {} integers of {shard} among them", HumanCount(*integers)),
        }
    }
}

#[cfg(test)]
mod tests;
