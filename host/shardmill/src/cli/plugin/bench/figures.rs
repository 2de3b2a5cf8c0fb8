//! What was measured, and how it stands to what was measured before.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The figures of one run; as JSON they are the baseline of a later one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Figures {
    /// The component's file and its digest.
    pub(super) plugin: String,
    pub(super) digest: String,
    /// Its form: `rows` or `columnar`.
    pub(super) form: String,
    /// Records in each call, and bytes of their keys and payloads, on average.
    pub(super) batch: u64,
    pub(super) batch_bytes: f64,
    /// What was counted in so many seconds.
    pub(super) seconds: f64,
    pub(super) calls: u64,
    pub(super) records: u64,
    pub(super) bytes: u64,
    pub(super) outputs: u64,
    /// Calls that gave no outcome, and records that have failed.
    pub(super) failed_calls: u64,
    pub(super) failed_records: u64,
    pub(super) calls_per_second: f64,
    pub(super) records_per_second: f64,
    pub(super) megabytes_per_second: f64,
    pub(super) call_us: Spread,
    pub(super) start_us: Spread,
    /// From the bytes of the component.
    pub(super) compile_ms: f64,
    /// From compiled code that is kept; `None` where none is.
    pub(super) load_ms: Option<f64>,
    pub(super) memory_bytes: u64,
}

/// How times are spread.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Spread {
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) max: f64,
}

/// A figure and what it means.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) unit: Unit,
    pub(super) value: f64,
}

/// What a figure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    PerSecond,
    Megabytes,
    Time,
    Bytes,
}

// === impl Figures ===

impl Figures {
    /// Those that tell how fast it is, in the order in which they are shown. Times are in seconds.
    pub(super) fn rows(&self) -> Vec<Row> {
        let row = |name, unit, value| Row { name, unit, value };
        let microseconds = |name, value: f64| row(name, Unit::Time, value / 1e6);
        let mut rows = vec![
            row("calls a second", Unit::PerSecond, self.calls_per_second),
            row("records a second", Unit::PerSecond, self.records_per_second),
            row("MB a second", Unit::Megabytes, self.megabytes_per_second),
            microseconds("call p50", self.call_us.p50),
            microseconds("call p99", self.call_us.p99),
            microseconds("call max", self.call_us.max),
            microseconds("start of an instance p50", self.start_us.p50),
            microseconds("start of an instance max", self.start_us.max),
            row("compiling", Unit::Time, self.compile_ms / 1e3),
        ];
        rows.extend(self.load_ms.map(|load| row("loading compiled code", Unit::Time, load / 1e3)));
        rows.push(row("memory of the instance", Unit::Bytes, self.memory_bytes as f64));
        rows
    }

    /// Why figures of an earlier run say little of this one.
    pub(super) fn differs_from(&self, baseline: &Self) -> Option<String> {
        let is_far = |left: f64, right: f64| (left - right).abs() > right.abs() / 100.0;
        if self.batch != baseline.batch {
            return Some(format!("its calls had {} records, and these have {}", baseline.batch, self.batch));
        }
        if is_far(self.batch_bytes, baseline.batch_bytes) {
            let (before, now) = (baseline.batch_bytes, self.batch_bytes);
            return Some(format!(
                "its batches had {before:.0} bytes, and these have {now:.0}: are they the same records?"
            ));
        }
        None
    }
}

// === impl Row ===

impl Row {
    /// How this stands to an earlier value, such as `+12.5%`; nothing where that was 0.
    pub(super) fn change(&self, before: f64) -> Option<String> {
        (before != 0.0).then(|| format!("{:+.1}%", (self.value / before - 1.0) * 100.0))
    }
}

/// In microseconds.
pub(super) fn microseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(batch: u64, calls_per_second: f64) -> Figures {
        let spread = Spread { p50: 10.0, p99: 20.0, max: 30.0 };
        Figures {
            plugin: "a.wasm".into(),
            digest: "d".into(),
            form: "rows".into(),
            batch,
            batch_bytes: 1000.0,
            seconds: 1.0,
            calls: 1,
            records: batch,
            bytes: 1000,
            outputs: 0,
            failed_calls: 0,
            failed_records: 0,
            calls_per_second,
            records_per_second: 1.0,
            megabytes_per_second: 1.0,
            call_us: spread,
            start_us: spread,
            compile_ms: 40.0,
            load_ms: None,
            memory_bytes: 65_536,
        }
    }

    #[test]
    fn figures_are_read_back_and_compared() {
        let (now, before) = (figures(10, 150.0), figures(10, 100.0));
        let read: Figures = serde_json::from_str(&serde_json::to_string(&before).unwrap()).unwrap();
        assert_eq!(read, before);
        let rows = now.rows();
        assert_eq!(rows[0].change(read.rows()[0].value).as_deref(), Some("+50.0%"));
        assert_eq!(rows[3].value, 10e-6);
        assert_eq!(rows[0].change(0.0), None);
        assert!(rows.iter().all(|row| row.name != "loading compiled code"));
    }

    #[test]
    fn a_baseline_of_other_calls_says_little() {
        let now = figures(10, 1.0);
        assert_eq!(now.differs_from(&figures(10, 9.0)), None);
        assert!(now.differs_from(&figures(20, 1.0)).unwrap().contains("20 records"));
        let other = Figures { batch_bytes: 1200.0, ..figures(10, 1.0) };
        assert!(now.differs_from(&other).unwrap().contains("1200 bytes"));
    }
}
