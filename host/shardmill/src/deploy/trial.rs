//! Records that another version has to process before it is taken. What comes of them goes nowhere.

use std::path::Path;

use base64_simd::STANDARD;
use serde::Deserialize;
use shardmill_plugin::{Failure, Instance, InvalidOutcome, Plugin, ProcessError, ShardContext};
use shardmill_record::{Batch, BatchBuilder, HashKey, Position, Record, SequenceNumber, ShardId};
use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;

use super::setup::Trial;
use super::{CLOSE_WITHIN, Refusal};

/// The trial is read whole, each time.
const MAX_BYTES: u64 = 32 << 20;
/// A shard that there may be.
const SHARD: &str = "shardId-000000000000";

/// A record as `shardmill tail --json` prints it.
#[derive(Debug, Deserialize)]
struct Line {
    sequence_number: Option<String>,
    #[serde(default)]
    sub_sequence_number: u64,
    #[serde(default)]
    arrived_at: u64,
    partition_key: String,
    explicit_hash_key: Option<String>,
    data: Option<String>,
    data_base64: Option<String>,
}

/// Records of one call, and the lines that they stand in.
#[derive(Debug, PartialEq, Eq)]
struct Part {
    batch: Batch,
    first: usize,
    last: usize,
}

/// Hands the records of the trial to an instance, which is ended then. Records that the guest fails are its own affair, as is
/// its wish to have a batch again later; a call that comes to nothing else is a reason to refuse it.
pub(super) async fn run(trial: &Trial, plugin: &Plugin, mut instance: Instance) -> Result<(), Refusal> {
    let unusable = |reason: String| Refusal::TrialRecords { path: trial.path.clone(), reason };
    let text = read(&trial.path).await.map_err(|error| unusable(error.to_string()))?;
    let parts = parts(&text, trial).map_err(unusable)?;
    let mut seen = None;
    for Part { batch, first, last } in parts {
        // Records of several shards may be in any order.
        seen = (0..batch.len()).map(|index| batch.position(index)).chain(seen).max();
        call(trial, plugin, &mut instance, &batch, seen.as_ref()).await.map_err(|failure| Refusal::Trial {
            path: trial.path.clone(),
            first,
            last,
            failure,
        })?;
    }
    // What it does when it ends is seen when it matters.
    let _ended = timeout(CLOSE_WITHIN, instance.shutdown()).await;
    Ok(())
}

/// `seen`: the last position that the guest knows.
async fn call(
    trial: &Trial,
    plugin: &Plugin,
    instance: &mut Instance,
    batch: &Batch,
    seen: Option<&Position>,
) -> Result<(), Failure> {
    let context = ShardContext {
        application: trial.application.clone(),
        processor: plugin.processor().into(),
        stream: trial.stream.clone(),
        shard: ShardId::parse(SHARD).map_err(|error| Failure::Host(error.to_string()))?,
        worker: trial.worker.clone(),
        lease_epoch: 0,
        attempt: 1,
        millis_behind_latest: None,
        last_batch: false,
    };
    let outcome = match instance.process_batch(&context, batch).await {
        Err(Failure::Guest(ProcessError::Retry { .. })) => return Ok(()),
        outcome => outcome?,
    };
    let settled = outcome.settle(batch.len(), &|name: &str| trial.outputs.contains(name), &trial.outcome)?;
    match settled.checkpoint {
        Some(position) if Some(&position) > seen => {
            Err(InvalidOutcome::CheckpointBeyond { position, last: seen.cloned() }.into())
        }
        _good => Ok(()),
    }
}

async fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    crate::file::open_async(path).await?.take(MAX_BYTES + 1).read_to_end(&mut bytes).await?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(std::io::Error::new(std::io::ErrorKind::FileTooLarge, "it is larger than 32 MiB"));
    }
    Ok(bytes)
}

/// The batches of a trial, as large as the processor's.
fn parts(text: &[u8], trial: &Trial) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let mut builder = BatchBuilder::default();
    let (mut first, mut last) = (0, 0);
    for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
        if line.trim_ascii().is_empty() {
            continue;
        }
        let number = index + 1;
        let line = parse(line).map_err(|reason| format!("line {number}: {reason}"))?;
        let Line { sequence_number, sub_sequence_number, arrived_at, partition_key, explicit_hash_key, .. } = &line;
        // One that was made by hand stands where its line does.
        let sequence_number = sequence_number.clone().unwrap_or_else(|| number.to_string());
        let data = data(&line).map_err(|reason| format!("line {number}: {reason}"))?;
        let bytes = partition_key.len() + data.len();
        let is_full = builder.len() >= trial.batch.records || builder.bytes() + bytes > trial.batch.bytes;
        if is_full && !builder.is_empty() {
            parts.push(Part { batch: std::mem::take(&mut builder).build(), first, last });
        }
        if builder.is_empty() {
            first = number;
        }
        last = number;
        builder.push(Record {
            sequence_number: &sequence_number,
            sub_sequence_number: *sub_sequence_number,
            partition_key,
            explicit_hash_key: explicit_hash_key.as_deref(),
            approximate_arrival: *arrived_at,
            data: &data,
        });
    }
    if builder.is_empty() {
        return Err("it holds no records".to_owned());
    }
    parts.push(Part { batch: builder.build(), first, last });
    Ok(parts)
}

fn parse(line: &[u8]) -> Result<Line, String> {
    let line: Line = serde_json::from_slice(line)
        .map_err(|error| format!("it is not what `shardmill tail --json` prints: {error}"))?;
    if let Some(number) = &line.sequence_number {
        SequenceNumber::parse(number).map_err(|error| error.to_string())?;
    }
    if let Some(key) = &line.explicit_hash_key {
        key.parse::<HashKey>().map_err(|error| error.to_string())?;
    }
    Ok(line)
}

fn data(line: &Line) -> Result<Vec<u8>, String> {
    match (&line.data, &line.data_base64) {
        (Some(text), None) => Ok(text.clone().into_bytes()),
        (None, Some(text)) => STANDARD
            .decode_to_vec(text)
            .map_err(|_| "`data_base64` is not Base64 of the standard alphabet with padding".to_owned()),
        (None, None) => Err("there is neither `data` nor `data_base64`".to_owned()),
        (Some(_), Some(_)) => Err("there are both `data` and `data_base64`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use shardmill_plugin::OutcomeLimits;
    use shardmill_record::BatchLimits;

    use super::*;

    fn trial(records: usize) -> Trial {
        Trial {
            path: "trial.jsonl".into(),
            application: "a".into(),
            worker: "w".into(),
            stream: "s".into(),
            batch: BatchLimits { records, bytes: 1 << 20 },
            outputs: BTreeSet::new(),
            outcome: OutcomeLimits::default(),
        }
    }

    #[test]
    fn lines_of_tail_become_batches_as_large_as_the_processors() {
        let text = concat!(
            r#"{"stream":"orders","sequence_number":"4957","sub_sequence_number":3,"arrived_at":7,"partition_key":"k","data":"x"}"#,
            "\n\n",
            r#"{"partition_key":"k","explicit_hash_key":"12","data_base64":"/wA="}"#,
            "\n",
            r#"{"partition_key":"l","data":""}"#,
        );
        let parts = parts(text.as_bytes(), &trial(2)).unwrap();
        let lines: Vec<_> = parts.iter().map(|part| (part.batch.len(), part.first, part.last)).collect();
        assert_eq!(lines, [(2, 1, 3), (1, 4, 4)]);
        let record = parts[0].batch.record(0);
        let position = (record.sequence_number, record.sub_sequence_number, record.approximate_arrival);
        assert_eq!((position, record.data), (("4957", 3, 7), &b"x"[..]));
        let record = parts[0].batch.record(1);
        assert_eq!((record.sequence_number, record.explicit_hash_key, record.data), ("3", Some("12"), &b"\xff\0"[..]));
    }

    #[test]
    fn what_is_no_record_is_told_with_its_line() {
        let good = r#"{"partition_key":"k","data":""}"#;
        for (line, said) in [
            ("oops", "tail --json"),
            (r#"{"data":"x"}"#, "partition_key"),
            (r#"{"partition_key":"k"}"#, "neither `data` nor"),
            (r#"{"partition_key":"k","data":"","data_base64":""}"#, "both"),
            (r#"{"partition_key":"k","data_base64":"?"}"#, "not Base64"),
            (r#"{"partition_key":"k","data":"","explicit_hash_key":"-1"}"#, "hash key"),
            (r#"{"partition_key":"k","data":"","sequence_number":"LATEST"}"#, "sequence number"),
        ] {
            let told = parts(format!("{good}\n{line}\n").as_bytes(), &trial(9)).unwrap_err();
            assert!(told.starts_with("line 2: ") && told.contains(said), "{told}");
        }
        assert_eq!(parts(b"\n \n", &trial(9)), Err("it holds no records".to_owned()));
    }
}
