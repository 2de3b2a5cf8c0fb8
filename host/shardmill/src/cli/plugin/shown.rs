//! Numbers and texts, as people read them.

use std::time::Duration;

use indicatif::HumanBytes;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use crate::cli::text;

/// Of what is no text.
const SHOWN_BYTES: usize = 48;

/// Three digits and a unit.
pub(super) fn time(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    let (number, unit) = match seconds {
        _ if seconds < 0.001 => (seconds * 1e6, "µs"),
        _ if seconds < 1.0 => (seconds * 1e3, "ms"),
        _ => (seconds, "s"),
    };
    let digits = match number {
        _ if number < 10.0 => 2,
        _ if number < 100.0 => 1,
        _ => 0,
    };
    format!("{number:.digits$} {unit}")
}

pub(super) fn bytes(bytes: usize) -> String {
    HumanBytes(bytes as u64).to_string()
}

/// A payload in one line: as the text that it is, or in hexadecimal digits. At most so many characters, if that is said.
pub(super) fn payload(data: &[u8], longest: Option<usize>) -> String {
    match std::str::from_utf8(data) {
        Ok(data) => short(data, longest),
        Err(_no_text) => {
            let shown = if longest.is_some() { &data[..data.len().min(SHOWN_BYTES)] } else { data };
            let digits: String = shown.iter().map(|byte| format!("{byte:02x}")).collect();
            let rest = if shown.len() < data.len() { format!("… ({})", bytes(data.len())) } else { String::new() };
            format!("hex {digits}{rest}")
        }
    }
}

/// A text in one line, cut if that is wanted.
pub(super) fn short(whole: &str, longest: Option<usize>) -> String {
    longest.map_or_else(|| text::line(whole), |longest| text::short(whole, longest))
}

/// What the guest of a processor has measured, each with its labels, and its value.
pub(super) fn guest_metrics(registry: &Registry, processor: &str) -> Vec<(String, f64)> {
    let mut encoded = String::new();
    // A text takes all that is written to it.
    let _ = encode(&mut encoded, registry);
    let own = [format!("{{processor=\"{processor}\",",), format!("{{processor=\"{processor}\"}}")];
    let mut found = Vec::new();
    for line in encoded.lines() {
        let Some((series, value)) = line.strip_prefix("shardmill_guest_").and_then(|line| line.rsplit_once(' ')) else {
            continue;
        };
        let name = series.split('{').next().unwrap_or_default();
        let (Ok(value), false) = (value.parse(), name.ends_with("_bucket")) else { continue };
        found.push((series.replacen(&own[0], "{", 1).replacen(&own[1], "", 1), value));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits() {
        for (nanoseconds, shown) in [
            (0, "0.00 µs"),
            (1_234, "1.23 µs"),
            (45_678, "45.7 µs"),
            (999_000, "999 µs"),
            (12_345_678, "12.3 ms"),
            (1_500_000_000, "1.50 s"),
            (120_000_000_000, "120 s"),
        ] {
            assert_eq!(time(Duration::from_nanos(nanoseconds)), shown);
        }
    }

    #[test]
    fn payloads_are_one_line_and_no_command_to_a_terminal() {
        assert_eq!(payload(b"a\x1b[2J\n", Some(100)), "a\\u{1b}[2J\\n");
        assert_eq!(payload("ééé".as_bytes(), Some(2)), "éé…");
        assert_eq!(payload(b"\xff\0", Some(1)), "hex ff00");
        let long = [0xff; 2048];
        assert_eq!(payload(&long, Some(1)), format!("hex {}… (2.00 KiB)", "ff".repeat(SHOWN_BYTES)));
        assert_eq!(payload(&long, None).len(), "hex ".len() + 4096);
    }

    #[test]
    fn what_a_guest_measures_is_told_by_its_own_names() {
        use prometheus_client::metrics::counter::Counter;
        use prometheus_client::metrics::family::Family;

        let mut registry = Registry::default();
        let late = Family::<Vec<(String, String)>, Counter>::default();
        registry.register("shardmill_guest_late", "", late.clone());
        registry.register("shardmill_plugin_calls", "", Counter::<u64>::default());
        let labels = |pairs: &[[&str; 2]]| -> Vec<(String, String)> {
            pairs.iter().map(|[name, value]| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        late.get_or_create(&labels(&[["processor", "p"], ["carrier", "a b"]])).inc_by(3);
        let found = guest_metrics(&registry, "p");
        assert_eq!(found, [("late_total{carrier=\"a b\"}".to_owned(), 3.0)]);
        late.clear();
        late.get_or_create(&labels(&[["processor", "p"]])).inc();
        assert_eq!(guest_metrics(&registry, "p"), [("late_total".to_owned(), 1.0)]);
    }
}
