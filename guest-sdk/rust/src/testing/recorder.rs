//! Log lines and metrics of the current thread, which is the current test.

use std::cell::{Cell, RefCell};

use crate::log::Level;

/// A line for the host's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// How much it matters.
    pub level: Level,
    /// The text.
    pub message: String,
    /// Keys with values.
    pub fields: Vec<(String, String)>,
}

/// A call of one of the functions of [`metrics`](crate::metrics).
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// The metric's name.
    pub name: String,
    /// Keys with values.
    pub labels: Vec<(String, String)>,
    /// What was done to it.
    pub value: MetricValue,
}

/// What was done to a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MetricValue {
    /// A counter was added to.
    Add(u64),
    /// A gauge was set.
    Set(f64),
    /// A distribution got a value.
    Observe(f64),
}

thread_local! {
    static LEVEL: Cell<Level> = const { Cell::new(Level::Trace) };
    static LOGS: RefCell<Vec<LogLine>> = const { RefCell::new(Vec::new()) };
    static METRICS: RefCell<Vec<Metric>> = const { RefCell::new(Vec::new()) };
}

/// Takes the lines that this thread has logged since the last call.
pub fn logs() -> Vec<LogLine> {
    LOGS.take()
}

/// Takes what this thread has done to metrics since the last call.
pub fn metrics() -> Vec<Metric> {
    METRICS.take()
}

/// Lines below this level are not kept on this thread; at first all are. Returns the level before.
pub fn set_log_level(level: Level) -> Level {
    LEVEL.replace(level)
}

pub(crate) fn log_enabled(level: Level) -> bool {
    level >= LEVEL.get()
}

pub(crate) fn log(level: Level, message: String, fields: Vec<(String, String)>) {
    let text: String = fields.iter().map(|(key, value)| format!(" {key}={value}")).collect();
    eprintln!("{level:?}: {message}{text}");
    LOGS.with_borrow_mut(|lines| lines.push(LogLine { level, message, fields }));
}

pub(crate) fn metric(name: &str, labels: &[(&str, &str)], value: MetricValue) {
    let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    METRICS.with_borrow_mut(|metrics| metrics.push(Metric { name: name.to_owned(), labels, value }));
}
