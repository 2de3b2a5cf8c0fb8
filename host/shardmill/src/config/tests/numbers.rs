//! Every number of the configuration, at both ends of its bounds and beyond.

use super::*;

/// A key that takes a number, a size or a duration.
struct Number {
    /// Its table; empty for the top of the file.
    table: &'static str,
    key: &'static str,
    /// The lowest value that is taken, and one below it, if one can be written.
    lowest: &'static str,
    below: Option<&'static str>,
    /// The highest value that is taken, and one above it.
    highest: &'static str,
    above: &'static str,
    /// The bounds as they are told, here and in the documentation.
    bounds: &'static str,
    /// Other keys of the table which the highest or the lowest value needs.
    beside: [&'static str; 2],
}

const fn number(
    table: &'static str,
    key: &'static str,
    [lowest, highest]: [&'static str; 2],
    [below, above]: [&'static str; 2],
    bounds: &'static str,
) -> Number {
    let below = if below.is_empty() { None } else { Some(below) };
    Number { table, key, lowest, below, highest, above, bounds, beside: ["", ""] }
}

const fn beside(number: Number, beside: [&'static str; 2]) -> Number {
    Number { beside, ..number }
}

/// An output's table, which has to say where it goes.
const OUTPUT: &str = "processors.p.outputs.out";
/// A batcher's, which has to have a name.
const BATCHER: &str = "processors.p.batchers.b";

const NUMBERS: &[Number] = &[
    number("", "memory", ["'32 MiB'", "'1 TiB'"], ["33554431", "1099511627777"], "32 MiB to 1 TiB"),
    number("", "guest-threads", ["1", "1024"], ["0", "1025"], "1 to 1024"),
    number("", "shutdown-timeout", ["'100ms'", "'1h'"], ["'99ms'", "'1h 1ms'"], "100ms to 1h"),
    beside(number("leases", "renew", ["'50ms'", "'59m'"], ["'49ms'", "'1h 1ms'"], "50ms to 1h"), ["", "expiry = '1h'"]),
    beside(
        number("leases", "expiry", ["'61ms'", "'1h'"], ["'49ms'", "'1h 1ms'"], "50ms to 1h"),
        ["renew = '50ms'\nwrite-timeout = '10ms'", ""],
    ),
    number("leases", "scan", ["'50ms'", "'1h'"], ["'49ms'", "'1h 1ms'"], "50ms to 1h"),
    number("leases", "sync", ["'50ms'", "'1h'"], ["'49ms'", "'1h 1ms'"], "50ms to 1h"),
    beside(
        number("leases", "write-timeout", ["'10ms'", "'59m'"], ["'9ms'", "'1h 1ms'"], "10ms to 1h"),
        ["", "expiry = '1h'"],
    ),
    number("leases", "settle", ["'0s'", "'1h'"], ["'1h 1ms'", "'2h'"], "0s to 1h"),
    number("leases", "moves", ["1", "1_000_000"], ["0", "1_000_001"], "1 to 1000000"),
    number("leases", "hand-off", ["'50ms'", "'1h'"], ["'49ms'", "'1h 1ms'"], "50ms to 1h"),
    // Within the time for a stop.
    number("leases", "leave", ["'0s'", "'25s'"], ["'1h 1ms'", "'2h'"], "0s to 1h"),
    number("leases", "keep-completed", ["'0s'", "'1year'"], ["'1year 1s'", "'2years'"], "0s to 1year"),
    number("leases", "keep-garbage", ["'0s'", "'1year'"], ["'1year 1s'", "'2years'"], "0s to 1year"),
    number("leases", "max-per-worker", ["1", "1_000_000"], ["0", "1_000_001"], "1 to 1000000"),
    number("watchdog", "stall-after", ["'1s'", "'24h'"], ["'999ms'", "'25h'"], "1s to 1day"),
    number("watchdog", "lag-alarm", ["1", "100"], ["0", "101"], "1 to 100"),
    number("streams.in", "idle", ["'200ms'", "'5m'"], ["'199ms'", "'5m 1ms'"], "200ms to 5m"),
    beside(
        number("streams.in", "idle-max", ["'200ms'", "'5m'"], ["'199ms'", "'5m 1ms'"], "to 5m"),
        ["idle = '200ms'", ""],
    ),
    number("streams.in", "reads-per-second", ["1", "1000"], ["0", "1001"], "1 to 1000"),
    number("streams.in", "bytes-per-second", ["'16 KiB'", "'1 TiB'"], ["16383", "1099511627777"], "16 KiB to 1 TiB"),
    number("", "max-hops", ["1", "1000"], ["0", "1001"], "1 to 1000"),
    number("processors.p", "parallelism", ["1", "256"], ["0", "257"], "1 to 256"),
    number("processors.p", "checkpoint-interval", ["'0s'", "'1h'"], ["", "'1h 1ms'"], "0s to 1h"),
    number("processors.p", "checkpoint-count", ["1", "1_000_000_000"], ["0", "1_000_000_001"], "1 to 1000000000"),
    number("processors.p.failure", "max-age", ["'1ms'", "'1year'"], ["'999us'", "'1year 1ms'"], "1ms to 1year"),
    number("processors.p.batch", "records", ["1", "10_000"], ["0", "10_001"], "1 to 10000"),
    number("processors.p.batch", "bytes", ["1", "'64 MiB'"], ["0", "67108865"], "1 byte to 64 MiB"),
    number("processors.p.batch", "wait", ["'0s'", "'5m'"], ["", "'5m 1ms'"], "0s to 5m"),
    number("processors.p.prefetch", "pages", ["1", "1000"], ["0", "1001"], "1 to 1000"),
    number("processors.p.prefetch", "records", ["1", "10_000_000"], ["0", "10_000_001"], "1 to 10000000"),
    number("processors.p.prefetch", "bytes", ["1", "'1 TiB'"], ["0", "1099511627777"], "1 byte to 1 TiB"),
    number("processors.p.batch", "window", ["'1s'", "'24h'"], ["'999ms'", "'24h 1ms'"], "1s to 1day"),
    number(BATCHER, "records", ["1", "10_000"], ["0", "10_001"], "1 to 10000"),
    number(BATCHER, "bytes", ["1", "'64 MiB'"], ["0", "67108865"], "1 byte to 64 MiB"),
    number(BATCHER, "wait", ["'0s'", "'5m'"], ["", "'5m 1ms'"], "0s to 5m"),
    number(BATCHER, "window", ["'1s'", "'24h'"], ["'999ms'", "'24h 1ms'"], "1s to 1day"),
    number("processors.p.retry", "attempts", ["1", "1_000_000"], ["0", "1_000_001"], "1 to 1000000"),
    number("processors.p.retry", "backoff", ["'0s'", "'1h'"], ["", "'1h 1ms'"], "0s to 1h"),
    beside(
        number("processors.p.retry", "max-backoff", ["'0s'", "'1h'"], ["", "'1h 1ms'"], "to 1h"),
        ["backoff = '0s'", ""],
    ),
    number("processors.p.limits", "memory", ["'1 MiB'", "'4 GiB'"], ["1048575", "4294967297"], "1 MiB to 4 GiB"),
    number("processors.p.limits", "batch-timeout", ["'1ms'", "'1h'"], ["'999us'", "'1h 1ms'"], "1ms to 1h"),
    number("processors.p.limits", "start-timeout", ["'1ms'", "'1h'"], ["'999us'", "'1h 1ms'"], "1ms to 1h"),
    number("processors.p.limits", "outcome", ["1024", "'1 GiB'"], ["1023", "1073741825"], "1 KiB to 1 GiB"),
    number("processors.p.limits", "instances", ["1", "10_000"], ["0", "10_001"], "1 to 10000"),
    beside(
        number(
            "processors.p.dead-letters",
            "file-bytes",
            ["'1 MiB'", "'1 TiB'"],
            ["1048575", "1099511627777"],
            "1 MiB to 1 TiB",
        ),
        ["folder = 'letters'", "folder = 'letters'"],
    ),
    number(OUTPUT, "aggregate-max-bytes", ["64", "1048575"], ["63", "1048576"], "64 bytes to 1048575 bytes"),
    number(OUTPUT, "request-max-records", ["1", "500"], ["0", "501"], "1 to 500"),
    number(OUTPUT, "request-max-bytes", ["'64 KiB'", "'10 MiB'"], ["65535", "10485761"], "64 KiB to 10 MiB"),
    number(OUTPUT, "rate-limit-percent", ["1", "1_000_000"], ["0", "1_000_001"], "1 to 1000000"),
    number(OUTPUT, "request-timeout", ["'100ms'", "'10m'"], ["'99ms'", "'10m 1ms'"], "100ms to 10m"),
    number(OUTPUT, "max-requests", ["1", "256"], ["0", "257"], "1 to 256"),
    number(OUTPUT, "backoff-min", ["'1ms'", "'1m'"], ["'999us'", "'1m 1ms'"], "1ms to 1m"),
    beside(
        number(OUTPUT, "backoff-max", ["'1ms'", "'10m'"], ["'49ms'", "'10m 1ms'"], "to 10m"),
        ["backoff-min = '1ms'", ""],
    ),
    number("processors.p.limits", "log-lines-per-second", ["0", "1_000_000"], ["", "1_000_001"], "0 to 1000000"),
    number("processors.p.limits", "cpu-time", ["'1ms'", "'1h'"], ["'999us'", "'1h 1ms'"], "1ms to 1h"),
    number("processors.p.limits", "outputs", ["1", "10_000_000"], ["0", "10_000_001"], "1 to 10000000"),
    number("processors.p.limits", "log-line", ["64", "'1 MiB'"], ["63", "1048577"], "64 bytes to 1 MiB"),
    number("processors.p.limits", "metric-series", ["0", "100_000"], ["", "100_001"], "0 to 100000"),
    number("processors.p.limits", "instance-calls", ["1", "1_000_000_000"], ["0", "1_000_000_001"], "1 to 1000000000"),
    number("processors.p.limits", "retire-above", ["1", "100"], ["0", "101"], "1 to 100"),
    number("processors.p.limits", "keep-idle", ["'1s'", "'24h'"], ["'999ms'", "'24h 1ms'"], "1s to 1day"),
    number("processors.p.limits", "plugin-size", ["1024", "'128 MiB'"], ["1023", "134217729"], "1 KiB to 128 MiB"),
    number("processors.p.limits", "compile-timeout", ["'100ms'", "'1h'"], ["'99ms'", "'1h 1ms'"], "100ms to 1h"),
    number(
        "processors.p.limits",
        "compile-memory",
        ["'64 MiB'", "'1 TiB'"],
        ["67108863", "1099511627777"],
        "64 MiB to 1 TiB",
    ),
];

/// What no number can be.
const ABSURD: &[&str] = &[
    "-1",
    "'-1s'",
    "'-1 MiB'",
    "99999999999999999999999999",
    "9223372036854775807",
    "'18446744073709551616'",
    "'99999999999999999999999999h'",
    "'18446744073709551615s 18446744073709551615s'",
    "'99999999999999999999999999 TiB'",
    "'17179869184 GiB'",
    "1e400",
    "1.5",
    "nan",
    "inf",
    "''",
    "' '",
    "'0x10'",
    "'1 day 2 nights'",
    "true",
    "[]",
    "{}",
    "2026-07-01",
];

// === impl Number ===

impl Number {
    fn with(&self, value: &str, beside: &str) -> String {
        let Self { table, key, .. } = self;
        match *table {
            "" => format!("{key} = {value}\n{MINIMAL}"),
            "processors.p" => format!("{MINIMAL}{key} = {value}\n"),
            BATCHER => format!("{MINIMAL}[[processors.p.batchers]]\nname = 'b'\n{key} = {value}\n{beside}\n"),
            OUTPUT => format!("{MINIMAL}[{OUTPUT}]\nstream = 'out'\n{key} = {value}\n{beside}\n"),
            table => format!("{MINIMAL}[{table}]\n{key} = {value}\n{beside}\n"),
        }
    }

    fn path(&self) -> String {
        if self.table.is_empty() { self.key.to_owned() } else { format!("{}.{}", self.table, self.key) }
    }
}

#[test]
fn the_ends_of_the_bounds_are_taken() {
    for number in NUMBERS {
        for (value, beside) in [number.lowest, number.highest].iter().zip(number.beside) {
            good(&number.with(value, beside));
        }
    }
}

#[test]
fn what_is_beyond_them_is_refused_with_the_key_and_the_bounds() {
    for number in NUMBERS {
        for value in number.below.into_iter().chain([number.above]) {
            let shown = bad(&number.with(value, ""));
            for part in [&number.path(), number.bounds, "is out of bounds", "test.toml:"] {
                assert!(shown.contains(part), "{} = {value}: `{part}` is missing in:\n{shown}", number.path());
            }
        }
    }
}

#[test]
fn what_is_no_number_is_refused_in_its_line() {
    for number in NUMBERS {
        for value in ABSURD {
            let source = number.with(value, "");
            let shown = bad(&source);
            let line = source.lines().position(|line| line.starts_with(&format!("{} = ", number.key))).unwrap() + 1;
            for part in [&format!("test.toml:{line}:"), number.key] {
                assert!(shown.contains(part), "{} = {value}: `{part}` is missing in:\n{shown}", number.path());
            }
        }
    }
}

/// Whoever adds a number adds it above: everything that is optional in the file, and neither a text nor a table.
#[test]
fn no_number_is_missing_here() {
    let source = include_str!("../file.rs");
    let types = [": Option<Time>", ": Option<Size>", ": Option<Count>", ": Time", ": Size", ": Count"];
    let count = types.iter().map(|kind| source.matches(kind).count()).sum::<usize>();
    assert_eq!(count, NUMBERS.len());
}

#[test]
fn the_documentation_tells_the_bounds_of_each() {
    let documentation = include_str!("../../../../../docs/configuration.md");
    for Number { key, bounds, .. } in NUMBERS {
        let of_key = format!("| `{key}` |");
        let rows = || documentation.lines().filter(|line| line.starts_with(&of_key));
        assert!(
            rows().any(|row| row.contains(bounds)),
            "`{key}`: {bounds}, and there is {:?}",
            rows().collect::<Vec<_>>()
        );
    }
}
