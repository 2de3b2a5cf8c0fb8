//! Numbers for the host's metrics, which shows them as `shardmill_guest_<name>` with the label `processor`. The configuration
//! has to grant it: `metrics = true` in `[processors.NAME.grants]`.
//!
//! A name has the characters a–z, 0–9 and `_`. The host bounds how many different names and label values there
//! are, and drops and counts what is over: a label must not be taken from data without bounds. Natively, values
//! go to [`testing::metrics`](crate::testing::metrics).

/// Adds to a counter.
pub fn add(name: &str, labels: &[(&str, &str)], by: u64) {
    #[cfg(target_arch = "wasm32")]
    crate::component::metric_add(name, labels, by);
    #[cfg(not(target_arch = "wasm32"))]
    crate::testing::metric(name, labels, crate::testing::MetricValue::Add(by));
}

/// Sets a gauge.
pub fn set(name: &str, labels: &[(&str, &str)], value: f64) {
    #[cfg(target_arch = "wasm32")]
    crate::component::metric_set(name, labels, value);
    #[cfg(not(target_arch = "wasm32"))]
    crate::testing::metric(name, labels, crate::testing::MetricValue::Set(value));
}

/// Adds a value to a distribution.
pub fn observe(name: &str, labels: &[(&str, &str)], value: f64) {
    #[cfg(target_arch = "wasm32")]
    crate::component::metric_observe(name, labels, value);
    #[cfg(not(target_arch = "wasm32"))]
    crate::testing::metric(name, labels, crate::testing::MetricValue::Observe(value));
}
