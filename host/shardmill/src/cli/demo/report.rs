//! Reads the demo's output stream back and shows what is in it.

use std::collections::BTreeMap;

use comfy_table::Table;
use serde::Deserialize;
use serde_json::json;
use shardmill_cause::with_causes;
use shardmill_record::{BatchBuilder, BatchLimits, HashKeyRange, OutOfRange, Unpacker};
use shardmill_stream::{Demand, Kinesis, PollingReader, ReadFrom, Reader};

use crate::aws::Clients;
use crate::cli::{Failure, table};

/// What the processor emits, as far as the report needs it.
#[derive(Debug, Deserialize)]
pub(super) struct Delay {
    carrier: String,
    airline: String,
    dep_delay: f64,
}

/// The demo's result.
pub(super) struct Report {
    rows: Vec<Row>,
    minutes: u32,
    flights: u64,
    seconds: f64,
}

struct Row {
    carrier: String,
    airline: String,
    count: u64,
    sum: f64,
    longest: f64,
}

/// Everything that is in the output stream now.
pub(super) async fn read(clients: &Clients, stream: &str) -> Result<Vec<Delay>, Failure> {
    let kinesis = Kinesis::new(clients.kinesis.clone());
    let failed = |error: shardmill_stream::Error| Failure::running(with_causes(&error));
    let info = kinesis.describe(stream).await.map_err(failed)?;
    let mut delays = Vec::new();
    for shard in kinesis.list_shards(stream).await.map_err(failed)? {
        let options = shardmill_stream::polling::Options::default();
        let metrics = shardmill_stream::Metrics::default();
        let source = shardmill_stream::polling::Source {
            stream: info.name.clone(),
            shard: shard.id,
            creation_time_ms: info.creation_time_ms,
        };
        let mut reader = PollingReader::new(kinesis.clone(), source, ReadFrom::TrimHorizon, &options, &metrics, 0);
        let mut unpacker = Unpacker::new(None, HashKeyRange::ALL, OutOfRange::Deliver);
        loop {
            let read = reader.next(Demand { records: 10_000, bytes: 10 << 20 }).await.map_err(failed)?;
            let at_tip = read.millis_behind == Some(0) || (read.page.is_empty() && read.millis_behind.is_none());
            unpacker.push(read.page);
            if at_tip || read.end {
                break;
            }
        }
        let mut batch = BatchBuilder::default();
        unpacker.fill(&mut batch, &BatchLimits { records: usize::MAX, bytes: usize::MAX });
        for record in batch.build().iter() {
            let delay = serde_json::from_slice(record.data)
                .map_err(|error| Failure::running(format!("a record of {stream} is not what was expected: {error}")))?;
            delays.push(delay);
        }
    }
    Ok(delays)
}

// === impl Report ===

impl Report {
    pub(super) fn new(delays: &[Delay], minutes: u32, flights: u64, seconds: f64) -> Self {
        let mut rows: BTreeMap<&str, Row> = BTreeMap::new();
        for delay in delays {
            let row = rows.entry(&delay.carrier).or_insert_with(|| Row {
                carrier: delay.carrier.clone(),
                airline: delay.airline.clone(),
                count: 0,
                sum: 0.0,
                longest: 0.0,
            });
            row.count += 1;
            row.sum += delay.dep_delay;
            row.longest = row.longest.max(delay.dep_delay);
        }
        let mut rows: Vec<Row> = rows.into_values().collect();
        rows.sort_by(|left, right| right.count.cmp(&left.count).then_with(|| left.carrier.cmp(&right.carrier)));
        Self { rows, minutes, flights, seconds }
    }

    pub(super) fn table(&self) -> Table {
        let mut table = table::wide(["Airline", "Late flights", "Mean delay, min", "Longest, min"], &[1, 2, 3]);
        for row in &self.rows {
            let mean = row.sum / row.count as f64;
            table.add_row([
                row.airline.clone(),
                row.count.to_string(),
                format!("{mean:.1}"),
                format!("{:.0}", row.longest),
            ]);
        }
        table
    }

    pub(super) fn summary(&self) -> String {
        let late: u64 = self.rows.iter().map(|row| row.count).sum();
        format!(
            "{late} of {} flights left more than {} minutes late. {:.0} records/s: read, processed and put in {:.2} s.",
            self.flights,
            self.minutes,
            self.flights as f64 / self.seconds,
            self.seconds,
        )
    }

    pub(super) fn json(&self) -> serde_json::Value {
        let airlines: Vec<_> = self
            .rows
            .iter()
            .map(|row| {
                json!({
                    "carrier": row.carrier,
                    "airline": row.airline,
                    "late_flights": row.count,
                    "mean_delay_minutes": row.sum / row.count as f64,
                    "longest_delay_minutes": row.longest,
                })
            })
            .collect();
        json!({
            "flights": self.flights,
            "minutes": self.minutes,
            "seconds": self.seconds,
            "records_per_second": self.flights as f64 / self.seconds,
            "airlines": airlines,
        })
    }
}
