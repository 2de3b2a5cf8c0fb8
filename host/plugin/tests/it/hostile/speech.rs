//! What a guest says and measures.

use shardmill_plugin::{Failure, InvalidOutcome, Limits};

use super::{Bytes, Guest, Host};
use crate::support::Log;

fn limits() -> Limits {
    Limits { log_lines_per_second: 20, log_line_bytes: 200, metric_series: 50, ..Limits::default() }
}

const MESSAGE: u32 = 8192;
const FIELDS: u32 = 65_536;

/// `log` of level `info` with so long a message and so many fields.
fn says(message: u32, fields: u32) -> String {
    format!(
        "(call $log (i32.const 2) (i32.const {MESSAGE}) (i32.const {message}) (i32.const {FIELDS}) (i32.const {fields}))"
    )
}

fn repeated(times: u32, call: &str) -> String {
    format!(
        "(local.set $i (i32.const {times}))
        (loop {call} (br_if 0 (local.tee $i (i32.sub (local.get $i) (i32.const 1))))) (i32.const 2048)"
    )
}

#[tokio::test]
async fn lines_without_number_are_dropped_and_counted() {
    let (log, _guard) = Log::capture();
    let host = Host::within(&Guest::attacking(&repeated(100_000, &says(10, 0))).logging(), limits()).await;
    host.survived().await;
    let (kept, dropped) = (log.lines().len() as u64, host.metrics.log_lines_dropped("hostile"));
    assert!((20..2000).contains(&kept) && kept + dropped >= 100_000, "{kept} kept, {dropped} dropped");
    assert!(host.text().contains(r#"shardmill_plugin_log_lines_dropped_total{processor="hostile"}"#));
    assert!(log.lines().iter().all(|line| line.contains(r#"processor="hostile""#)));
}

#[tokio::test]
async fn a_line_is_cut_with_all_its_fields() {
    let (log, _guard) = Log::capture();
    // A message of 7,000 bytes; then 3,000 fields of two letters each, and of none.
    let attack =
        format!("{} {} {} (i32.const 2048)", says(7_000, 0), says(0, 3000), says(0, 3000).replace("65536", "196608"));
    let letters = (0..3000).fold(Bytes::at(FIELDS), |bytes, n: u32| {
        let place = 16 * n as usize;
        bytes.list(place, 131_072 + n, 2).list(place + 8, 131_072 + n, 2)
    });
    let text: String = (0..4000).map(|n| char::from(b'a' + (n % 26) as u8)).collect();
    let guest = Guest { memory: "4", ..Guest::attacking(&attack) }
        .logging()
        .with(&letters.data())
        .with(&format!("(data (i32.const 131072) \"{text}\")"));
    Host::within(&guest, limits()).await.survived().await;
    let lines = log.lines();
    assert_eq!(lines.len(), 3, "{lines:?}");
    for line in lines {
        assert!(line.len() < 800, "{} bytes: {line}", line.len());
    }
}

#[tokio::test]
async fn a_line_can_neither_forge_another_nor_steer_a_terminal() {
    let (log, _guard) = Log::capture();
    let guest = Guest::attacking(&format!("{} (i32.const 2048)", says(23, 0)))
        .logging()
        .with("(data (i32.const 8192) \"x\\0aERROR guest: no\\1b[2J\\00\\7f\")");
    Host::within(&guest, limits()).await.survived().await;
    let lines = log.lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains(r"x\nERROR guest: no\u{1b}[2J\u{0}"), "{}", lines[0]);
}

#[tokio::test]
async fn an_output_without_any_end_of_a_line_is_one_line() {
    let (log, _guard) = Log::capture();
    let write = "(call $write (local.get 0) (i32.const 65536) (i32.const 4096) (i32.const 2048))";
    let guest = Guest::attacking(&format!("(local.set 0 (call $stdout)) {}", repeated(5000, write)))
        .importing("wasi:cli/stdout@0.2.6", "get-stdout", "$stdout", "(result i32)")
        .importing("wasi:io/streams@0.2.6", "[method]output-stream.write", "$write", "(param i32 i32 i32 i32)")
        .with(&format!("(data (i32.const 65536) \"{}\")", "y".repeat(4096)));
    Host::within(&guest, limits()).await.survived().await;
    let lines = log.lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains(r#"source="stdout""#) && lines[0].contains('…') && lines[0].len() < 500, "{}", lines[0]);
}

#[tokio::test]
async fn what_a_call_hands_the_host_is_bounded_before_it_is_copied() {
    // 4,000 fields that are all the same 64 KiB; and as many as would be more than can be addressed.
    let field = "\\00\\00\\01\\00".repeat(4);
    let guest = Guest { memory: "4", ..Guest::attacking(&format!("{} (i32.const 2048)", says(1, 4000))) }
        .logging()
        .with(&format!("(data (i32.const 65536) \"{}\")", field.repeat(4000)));
    let failure = Host::within(&guest, limits()).await.attacked().await;
    assert_eq!(failure, Failure::InvalidOutcome(InvalidOutcome::TooLarge { limit: 32 << 20 }));
    for fields in [1 << 31, u32::MAX, 0x1000_0000, 0x1000_0001] {
        let guest = Guest::attacking(&format!("{} (i32.const 2048)", says(1, fields))).logging();
        let failure = Host::within(&guest, limits()).await.attacked().await;
        assert!(matches!(&failure, Failure::Trap(_) | Failure::InvalidOutcome(_)), "{failure:?}");
    }
    let guest = Guest::attacking(&format!("{} (i32.const 2048)", says(0x8000_0000, 0))).logging();
    let failure = Host::within(&guest, limits()).await.attacked().await;
    assert!(matches!(&failure, Failure::Trap(trap) if trap.message.contains("out of bounds")), "{failure:?}");
}

#[tokio::test]
async fn a_message_that_is_no_text_ends_the_call() {
    let guest = Guest::attacking(&format!("{} (i32.const 2048)", says(2, 0))).logging();
    let guest = guest.with("(data (i32.const 8192) \"\\ff\\fe\")");
    let failure = Host::of(&guest).await.attacked().await;
    assert!(matches!(&failure, Failure::Trap(trap) if trap.message.contains("utf-8")), "{failure:?}");
    let level = "(call $log (i32.const 9) (i32.const 1024) (i32.const 0) (i32.const 0) (i32.const 0)) (i32.const 2048)";
    let failure = Host::of(&Guest::attacking(level).logging()).await.attacked().await;
    assert!(matches!(&failure, Failure::Trap(_)), "{failure:?}");
}

#[tokio::test]
async fn series_without_number_long_names_and_absurd_values_leave_the_metrics_bounded() {
    let metrics = "shardmill:processor/metrics@0.1.0";
    // Names of one to nine letters, then one of 10,000; and numbers that are none.
    let name = "(call $add (i32.const 65536) (i32.const LEN) (i32.const 0) (i32.const 0) (i64.const -1))";
    let calls: String = (1..=9).chain([10_000]).map(|length| name.replace("LEN", &length.to_string())).collect();
    let absurd: String = ["nan", "inf", "-inf"]
        .map(|value| {
            format!("(call $observe (i32.const 65536) (i32.const 20) (i32.const 0) (i32.const 0) (f64.const {value}))")
        })
        .concat();
    // And a letter after another at the end of a name, for a thousand names.
    let many = "(i32.store8 (i32.const 65537) (i32.add (i32.const 97) (i32.rem_u (local.get $i) (i32.const 26))))
        (i32.store8 (i32.const 65538) (i32.add (i32.const 97) (i32.rem_u (i32.div_u (local.get $i) (i32.const 26)) (i32.const 26))))
        (call $add (i32.const 65536) (i32.const 12) (i32.const 0) (i32.const 0) (i64.const 1))";
    let guest = Guest::attacking(&format!("{calls}{calls}{absurd}{}", repeated(676, many)))
        .importing(metrics, "add", "$add", "(param i32 i32 i32 i32 i64)")
        .importing(metrics, "observe", "$observe", "(param i32 i32 i32 i32 f64)")
        .with(&format!("(data (i32.const 65536) \"{}\")", "n".repeat(10_000)));
    let host = Host::within(&guest, limits()).await;
    host.survived().await;
    let text = host.text();
    let series = text.lines().filter(|line| line.starts_with("shardmill_guest_")).count();
    assert_eq!(series, 50, "{text}");
    // Twice the most is the most, and nothing goes back to 0.
    assert!(text.contains(&format!(r#"shardmill_guest_n_total{{processor="hostile"}} {}"#, u64::MAX)), "{text}");
    assert!(!text.contains("NaN") && !text.contains("inf\n"), "{text}");
    assert!(text.lines().any(|line| {
        line.strip_prefix(r#"shardmill_plugin_guest_metrics_dropped_total{processor="hostile"} "#)
            .is_some_and(|count| count.parse::<u64>().unwrap() > 600)
    }));
}

#[tokio::test]
async fn measurements_of_two_kinds_under_one_name_are_dropped_and_told_once() {
    let (log, _guard) = Log::capture();
    let metrics = "shardmill:processor/metrics@0.1.0";
    let observe = "(call $observe (i32.const 65536) (i32.const 4) (i32.const 0) (i32.const 0) (f64.const 1))";
    let guest = Guest::attacking(&format!(
        "(call $add (i32.const 65536) (i32.const 4) (i32.const 0) (i32.const 0) (i64.const 1)) {}",
        repeated(3, observe)
    ))
    .importing(metrics, "add", "$add", "(param i32 i32 i32 i32 i64)")
    .importing(metrics, "observe", "$observe", "(param i32 i32 i32 i32 f64)")
    .with("(data (i32.const 65536) \"late\")");
    let host = Host::within(&guest, limits()).await;
    host.survived().await;
    let told: Vec<_> = log.all_lines().into_iter().filter(|line| line.contains("another kind")).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains(r#"processor="hostile""#) && told[0].contains(r#"metric="late""#), "{told:?}");
    let text = host.text();
    assert!(text.contains(r#"shardmill_plugin_guest_metrics_dropped_total{processor="hostile"} 3"#), "{text}");
    assert!(text.contains(r#"shardmill_guest_late_total{processor="hostile"} 1"#), "{text}");
}
