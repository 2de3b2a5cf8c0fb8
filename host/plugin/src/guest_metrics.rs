use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

/// Bytes of a metric's or a label's name.
const NAME_BYTES: usize = 64;
/// Labels of one time series.
const LABELS: usize = 8;
/// Bytes of a label's value.
const VALUE_BYTES: usize = 128;
/// The label that the host adds.
const PROCESSOR: &str = "processor";
/// Labels that the text format itself adds to some kinds: a series that had one twice would spoil the answer to whoever asks
/// for the metrics, all of it.
const RESERVED_LABELS: [&str; 2] = ["le", "quantile"];
const HISTOGRAM_BUCKETS: u16 = 13;
/// Time series that a histogram is: its buckets and the one without a bound, its sum and its count.
const HISTOGRAM_SERIES: usize = HISTOGRAM_BUCKETS as usize + 3;
/// What the text format itself appends to names.
const RESERVED_ENDINGS: [&str; 5] = ["_total", "_bucket", "_sum", "_count", "_created"];

/// What guests measure themselves, as `shardmill_guest_<name>` with the label `processor`.
///
/// Register it as a [`Collector`]; [`crate::Metrics::register`] does. Bounded: each processor may make so many time
/// series, and names and labels have a bounded size.
#[derive(Debug, Clone, Default)]
pub(crate) struct GuestMetrics(Arc<Mutex<Families>>);

#[derive(Debug, Default)]
struct Families {
    by_name: BTreeMap<String, Family>,
    /// How many time series each processor has.
    series: HashMap<String, usize>,
}

/// All time series of one name; the text format wants them to have one type.
#[derive(Debug)]
struct Family {
    kind: Kind,
    series: BTreeMap<Labels, Series>,
}

type Labels = Vec<(String, String)>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

#[derive(Debug)]
enum Series {
    Counter(Counter),
    Gauge(Gauge<f64, std::sync::atomic::AtomicU64>),
    Histogram(Histogram),
}

/// One value that a guest hands over.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Measurement {
    Add(u64),
    Set(f64),
    Observe(f64),
}

/// Why a measurement was not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dropped {
    /// A name, a label or its value is not allowed.
    NotAllowed,
    /// The processor has as many series as it may have.
    TooMany,
    /// Under this name this or another processor has measured something of another kind, and the text format has one kind
    /// for a name.
    OtherKind,
}

// === impl GuestMetrics ===

impl GuestMetrics {
    pub(crate) fn record(
        &self,
        processor: &str,
        max_series: usize,
        name: &str,
        labels: Labels,
        measurement: Measurement,
    ) -> Result<(), Dropped> {
        let kind = measurement.kind();
        if !measurement.is_finite() {
            // A sum that is no number would stay so.
            return Err(Dropped::NotAllowed);
        }
        let name = if kind == Kind::Counter { name.strip_suffix("_total").unwrap_or(name) } else { name };
        if !is_name(name) || RESERVED_ENDINGS.iter().any(|ending| name.ends_with(ending)) {
            return Err(Dropped::NotAllowed);
        }
        let labels = checked(processor, labels)?;
        let mut families = self.lock();
        let Families { by_name, series } = &mut *families;
        if let Some(family) = by_name.get(name) {
            if family.kind != kind {
                return Err(Dropped::OtherKind);
            }
            if let Some(found) = family.series.get(&labels) {
                found.record(measurement);
                return Ok(());
            }
        }
        let count = series.entry(processor.to_owned()).or_default();
        let with_this = *count + kind.series();
        if with_this > max_series {
            return Err(Dropped::TooMany);
        }
        *count = with_this;
        let family = by_name.entry(name.to_owned()).or_insert_with(|| Family { kind, series: BTreeMap::new() });
        family.series.entry(labels).or_insert_with(|| Series::new(kind)).record(measurement);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Families> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Collector for GuestMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        for (name, family) in &self.lock().by_name {
            let name = format!("shardmill_guest_{name}");
            let mut metric = encoder.encode_descriptor(&name, "Measured by processors", None, family.kind.into())?;
            for (labels, series) in &family.series {
                series.encode(metric.encode_family(labels)?)?;
            }
        }
        Ok(())
    }
}

fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    (1..=NAME_BYTES).contains(&name.len()) && name.bytes().all(allowed)
}

/// The labels in order, each name once, with the processor's.
fn checked(processor: &str, mut labels: Labels) -> Result<Labels, Dropped> {
    let allowed = |(name, value): &(String, String)| {
        let leads = name.starts_with(|first: char| first.is_ascii_lowercase());
        let is_ours = name == PROCESSOR || RESERVED_LABELS.contains(&name.as_str());
        is_name(name) && leads && !is_ours && value.len() <= VALUE_BYTES
    };
    if labels.len() > LABELS || !labels.iter().all(allowed) {
        return Err(Dropped::NotAllowed);
    }
    labels.sort();
    if labels.windows(2).any(|pair| pair[0].0 == pair[1].0) {
        return Err(Dropped::NotAllowed);
    }
    labels.insert(0, (PROCESSOR.to_owned(), processor.to_owned()));
    Ok(labels)
}

// === impl Measurement ===

impl Measurement {
    fn kind(self) -> Kind {
        match self {
            Self::Add(_) => Kind::Counter,
            Self::Set(_) => Kind::Gauge,
            Self::Observe(_) => Kind::Histogram,
        }
    }

    fn is_finite(self) -> bool {
        match self {
            Self::Add(_) => true,
            Self::Set(value) | Self::Observe(value) => value.is_finite(),
        }
    }
}

// === impl Kind ===

impl Kind {
    /// How many time series one of these is to whoever stores them.
    fn series(self) -> usize {
        match self {
            Self::Counter | Self::Gauge => 1,
            Self::Histogram => HISTOGRAM_SERIES,
        }
    }
}

impl From<Kind> for MetricType {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Counter => Self::Counter,
            Kind::Gauge => Self::Gauge,
            Kind::Histogram => Self::Histogram,
        }
    }
}

// === impl Series ===

impl Series {
    fn new(kind: Kind) -> Self {
        match kind {
            Kind::Counter => Self::Counter(Counter::default()),
            Kind::Gauge => Self::Gauge(Gauge::default()),
            // Guests do not say which values they expect: from a microsecond to days, if these are seconds.
            Kind::Histogram => Self::Histogram(Histogram::new(exponential_buckets(1e-6, 10.0, HISTOGRAM_BUCKETS))),
        }
    }

    fn record(&self, measurement: Measurement) {
        match (self, measurement) {
            (Self::Counter(counter), Measurement::Add(by)) => {
                // It stays at the most that it can be: it must not seem to begin again.
                counter.inc_by(by.min(u64::MAX - counter.get()));
            }
            (Self::Gauge(gauge), Measurement::Set(value)) => {
                gauge.set(value);
            }
            (Self::Histogram(histogram), Measurement::Observe(value)) => histogram.observe(value),
            _ => unreachable!("a family has one kind, and it was compared"),
        }
    }

    fn encode(&self, encoder: MetricEncoder<'_>) -> fmt::Result {
        match self {
            Self::Counter(counter) => counter.encode(encoder),
            Self::Gauge(gauge) => gauge.encode(encoder),
            Self::Histogram(histogram) => histogram.encode(encoder),
        }
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn measurements_come_out_under_the_processors_name() {
        let metrics = GuestMetrics::default();
        let record = |name, pairs: &[_], value| metrics.record("flights", 20, name, labels(pairs), value);
        record("late_total", &[("carrier", "AA"), ("airport", "JFK")], Measurement::Add(2)).unwrap();
        record("late", &[("airport", "JFK"), ("carrier", "AA")], Measurement::Add(1)).unwrap();
        record("level", &[], Measurement::Set(1.5)).unwrap();
        record("delay", &[], Measurement::Observe(3.0)).unwrap();
        let mut registry = Registry::default();
        registry.register_collector(Box::new(metrics));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            r#"shardmill_guest_late_total{processor="flights",airport="JFK",carrier="AA"} 3"#,
            r#"shardmill_guest_level{processor="flights"} 1.5"#,
            r#"shardmill_guest_delay_sum{processor="flights"} 3.0"#,
            r#"shardmill_guest_delay_bucket{le="10.0",processor="flights"} 1"#,
        ] {
            let same = |found: &str| {
                found == line
                    || found == line.replace(r#"le="10.0",processor="flights""#, r#"processor="flights",le="10.0""#)
            };
            assert!(text.lines().any(same), "{line} is not in:\n{text}");
        }
    }

    #[test]
    fn what_would_break_the_output_or_its_bounds_is_dropped() {
        let metrics = GuestMetrics::default();
        let record = |name: &str, labels, value| metrics.record("flights", 2, name, labels, value);
        for name in ["", "Late", "la-te", "a_sum", "é", &"x".repeat(65)] {
            assert_eq!(record(name, Vec::new(), Measurement::Add(1)), Err(Dropped::NotAllowed), "{name}");
        }
        let long = "x".repeat(129);
        let many: Vec<_> = (0..9).map(|number| (format!("l{number}"), String::new())).collect();
        let twice = labels(&[("a", ""), ("a", "b")]);
        for bad in [labels(&[("processor", "x")]), twice, labels(&[("a", &long)]), many] {
            assert_eq!(record("late", bad, Measurement::Add(1)), Err(Dropped::NotAllowed));
        }
        record("late", Vec::new(), Measurement::Add(1)).unwrap();
        assert_eq!(record("late", Vec::new(), Measurement::Set(1.0)), Err(Dropped::OtherKind));
        record("late", labels(&[("a", "1")]), Measurement::Add(1)).unwrap();
        assert_eq!(record("late", labels(&[("a", "2")]), Measurement::Add(1)), Err(Dropped::TooMany));
        record("late", labels(&[("a", "1")]), Measurement::Add(1)).unwrap();
        metrics.record("other", 2, "late", Vec::new(), Measurement::Add(1)).unwrap();
    }

    #[test]
    fn labels_of_the_text_format_are_not_a_guests() {
        let metrics = GuestMetrics::default();
        for label in ["le", "quantile"] {
            let bad = || labels(&[(label, "1.0")]);
            for value in [Measurement::Observe(1.0), Measurement::Set(1.0), Measurement::Add(1)] {
                let kept = metrics.record("flights", 100, "delay", bad(), value);
                assert_eq!(kept, Err(Dropped::NotAllowed), "{label}: {value:?}");
            }
        }
    }

    #[test]
    fn a_histogram_counts_as_the_series_that_it_is() {
        let metrics = GuestMetrics::default();
        let record = |name: &str, value| metrics.record("flights", HISTOGRAM_SERIES + 1, name, Vec::new(), value);
        record("delay", Measurement::Observe(1.0)).unwrap();
        assert_eq!(record("other", Measurement::Observe(1.0)), Err(Dropped::TooMany));
        record("level", Measurement::Set(1.0)).unwrap();
        assert_eq!(record("late", Measurement::Add(1)), Err(Dropped::TooMany));
        record("delay", Measurement::Observe(2.0)).unwrap();
        let mut registry = Registry::default();
        registry.register_collector(Box::new(metrics));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let lines = text.lines().filter(|line| line.starts_with("shardmill_guest_delay")).count();
        assert_eq!(lines, HISTOGRAM_SERIES, "{text}");
    }

    #[test]
    fn absurd_values_leave_no_trace_and_counters_never_go_back() {
        let metrics = GuestMetrics::default();
        let record = |name: &str, value| metrics.record("flights", 100, name, Vec::new(), value);
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(record("level", Measurement::Set(value)), Err(Dropped::NotAllowed));
            assert_eq!(record("delay", Measurement::Observe(value)), Err(Dropped::NotAllowed));
        }
        for by in [u64::MAX - 1, 7, u64::MAX] {
            record("late", Measurement::Add(by)).unwrap();
        }
        let mut registry = Registry::default();
        registry.register_collector(Box::new(metrics));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let line = format!(r#"shardmill_guest_late_total{{processor="flights"}} {}"#, u64::MAX);
        assert!(text.lines().any(|found| found == line), "{line} is not in:\n{text}");
        assert!(!text.contains("level") && !text.contains("delay"), "{text}");
    }
}
