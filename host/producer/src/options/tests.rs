use super::*;

fn parse(text: &str) -> Result<Options, toml::de::Error> {
    toml::from_str(text)
}

#[test]
fn what_toml_says_is_what_code_says() {
    assert_eq!(parse("").unwrap(), Options::default());
    let everything = r#"
        ordering = "none"
        aggregate = false
        aggregate-max-bytes = "100 KiB"
        request-max-records = 100
        request-max-bytes = "1 MiB"
        record-max-bytes = "10 MiB"
        buffer-time = "250ms"
        record-ttl = "1m 30s"
        rate-limit-percent = 80
        fail-if-throttled = true
        spool-after = "2s"
        request-timeout = "3s"
        max-requests = 8
        pending-max-records = 5000
        pending-max-bytes = 33554432
        backoff-min = "10ms"
        backoff-max = "1s"
    "#;
    let code = Options {
        ordering: Ordering::None,
        aggregate: false,
        aggregate_max_bytes: 102_400,
        request_max_records: 100,
        request_max_bytes: 1 << 20,
        record_max_bytes: 10 << 20,
        buffer_time: Duration::from_millis(250),
        record_ttl: Duration::from_secs(90),
        rate_limit_percent: 80,
        fail_if_throttled: true,
        spool_after: Duration::from_secs(2),
        request_timeout: Duration::from_secs(3),
        max_requests: 8,
        pending_max_records: 5_000,
        pending_max_bytes: 32 << 20,
        backoff_min: Duration::from_millis(10),
        backoff_max: Duration::from_secs(1),
    };
    assert_eq!(parse(everything).unwrap(), code);
    assert_eq!(code.check(), Ok(()));
    // And back, so that what a program uses can be written down.
    for options in [code, Options::default()] {
        assert_eq!(parse(&toml::to_string(&options).unwrap()).unwrap(), options);
    }
}

#[test]
fn what_is_not_known_or_has_no_unit_is_refused_with_what_is_expected() {
    for (text, words) in [
        ("buffer-time = 100", "a duration with its unit in quotes"),
        ("record-max-bytes = \"1 parsec\"", "a size such as"),
        ("pending-max-bytes = -1", "a size such as"),
        ("ordering = \"shard\"", "expected `key` or `none`"),
        ("collection = 5", "unknown field `collection`"),
    ] {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.contains(words), "{words:?} in {error}");
    }
}

#[test]
fn options_out_of_bounds_are_named_and_taken_at_the_nearest_one() {
    let cases = [
        ("aggregate-max-bytes = \"1 MiB\"", "`aggregate-max-bytes` is 1 MiB; 64 bytes to 1048575 bytes is allowed"),
        ("request-max-records = 501", "`request-max-records` is 501; 1 to 500 is allowed"),
        ("request-max-bytes = \"11 MiB\"", "`request-max-bytes` is 11 MiB; 64 KiB to 10 MiB is allowed"),
        ("record-max-bytes = 1000", "`record-max-bytes` is 1000 bytes; 1 MiB to 10 MiB is allowed"),
        ("record-ttl = \"0s\"", "`record-ttl` is 0s; 100ms to 7days is allowed"),
        ("buffer-time = \"31s\"", "`buffer-time` is 31s; 0s to 30s is allowed"),
        ("rate-limit-percent = 0", "`rate-limit-percent` is 0; 1 to 1000000 is allowed"),
        ("request-timeout = \"1ms\"", "`request-timeout` is 1ms; 100ms to 10m is allowed"),
        ("max-requests = 0", "`max-requests` is 0; 1 to 256 is allowed"),
        ("pending-max-records = 0", "`pending-max-records` is 0; 1 to 100000000 is allowed"),
        (
            "record-max-bytes = \"10 MiB\"\npending-max-bytes = \"9 MiB\"",
            "`pending-max-bytes` is 9 MiB; 10 MiB to 1 TiB",
        ),
        ("backoff-min = \"2m\"\nbackoff-max = \"3m\"", "`backoff-min` is 2m; 1ms to 1m is allowed"),
        ("backoff-min = \"10s\"", "`backoff-max` is 5s; 10s to 10m is allowed"),
    ];
    for (text, words) in cases {
        let options = parse(text).unwrap();
        let error = options.check().unwrap_err().to_string();
        assert!(error.contains(words), "{words:?} in {error}");
        let options = options.within_bounds();
        assert_eq!(options.check(), Ok(()), "{options:?}");
    }
    assert_eq!(parse("request-max-records = 501").unwrap().within_bounds().request_max_records, 500);
    assert_eq!(Options::default().within_bounds(), Options::default());
}

#[test]
fn batches_have_the_same_options_with_the_same_bounds() {
    let all = toml::Table::try_from(Options::default()).unwrap();
    let of_batches = toml::Table::try_from(BatchOptions::default()).unwrap();
    for (key, value) in &of_batches {
        let differs = ["max-requests", "rate-limit-percent"].contains(&key.as_str());
        assert_eq!(all.get(key) == Some(value), !differs, "{key}");
    }
    let missing: Vec<_> = all.keys().filter(|key| !of_batches.contains_key(*key)).map(String::as_str).collect();
    for key in ["buffer-time", "record-ttl", "fail-if-throttled", "pending-max-records", "pending-max-bytes"] {
        assert!(missing.contains(&key), "{key} in {missing:?}");
    }
    let parse = |text: &str| toml::from_str::<BatchOptions>(text);
    assert_eq!(parse("").unwrap(), BatchOptions::default());
    let everything = r#"
        ordering = "none"
        aggregate = false
        aggregate-max-bytes = "100 KiB"
        request-max-records = 100
        request-max-bytes = "1 MiB"
        record-max-bytes = "10 MiB"
        rate-limit-percent = 80
        request-timeout = "3s"
        max-requests = 8
        backoff-min = "10ms"
        backoff-max = "1s"
    "#;
    let options = parse(everything).unwrap();
    assert_eq!(options, BatchOptions::from(toml::from_str::<Options>(everything).unwrap()));
    assert_eq!(BatchOptions::from(options.options()), options, "there and back");
    assert_eq!(options.check(), Ok(()));
    assert!(parse("buffer-time = \"1s\"").unwrap_err().to_string().contains("unknown field `buffer-time`"));
    for (text, words) in [
        ("request-max-records = 501", "`request-max-records` is 501; 1 to 500 is allowed"),
        ("backoff-min = \"10s\"", "`backoff-max` is 5s; 10s to 10m is allowed"),
        ("rate-limit-percent = 1000001", "`rate-limit-percent` is 1000001; 1 to 1000000 is allowed"),
    ] {
        assert_eq!(parse(text).unwrap().check().unwrap_err().to_string(), words);
    }
}
