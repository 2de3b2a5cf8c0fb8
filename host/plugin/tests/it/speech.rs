use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::json;
use shardmill_plugin::{Form, Grants, Limits, Metrics, Plugin, Runtime, RuntimeOptions, Settings};

use crate::support::{Log, World, batch, shard};

#[tokio::test]
async fn what_a_guest_logs_names_its_processor_and_shard() {
    let (log, _guard) = Log::capture();
    World::new().process(Form::Rows, "log").await.0.unwrap();
    let lines = log.lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    for part in [
        r"WARN guest: a late flight\nINFO and a forged line",
        r#"processor="flights" stream="departures" shard="shardId-000000000003""#,
        r#"{\"carrier\":\"AA\",\"delay\":\"12\"}"#,
    ] {
        assert!(lines[0].contains(part), "{part} is not in {}", lines[0]);
    }
}

#[tokio::test]
async fn what_a_guest_prints_is_logged_line_by_line() {
    let (log, _guard) = Log::capture();
    World::new().process(Form::Rows, "print").await.0.unwrap();
    let lines = log.lines();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[0].starts_with("INFO guest: to stdout, in two pieces ") && lines[0].contains(r#"source="stdout""#));
    assert!(lines[1].starts_with("INFO guest: yyy") && lines[1].len() < 5000 && lines[1].contains('…'));
    assert!(lines[2].starts_with("WARN guest: to stderr, without an end ") && lines[2].contains(r#"source="stderr""#));
}

#[tokio::test]
async fn a_flood_is_cut_off_and_counted() {
    for behaviour in ["log-flood", "print-flood"] {
        let (log, _guard) = Log::capture();
        let mut world = World::new();
        world.limits.log_lines_per_second = 50;
        world.process(Form::Rows, behaviour).await.0.unwrap();
        let lines = log.lines().len() as u64;
        let dropped = world.metrics.log_lines_dropped("flights");
        assert!((50..1000).contains(&lines), "{lines} lines");
        assert!(dropped > 9000 && dropped + lines >= 10_000, "{dropped} dropped, {lines} kept");
    }
}

#[tokio::test]
async fn what_a_guest_measures_is_in_the_hosts_metrics_within_bounds() {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let runtime = Runtime::new(RuntimeOptions { max_instances: 2, ..RuntimeOptions::default() }, metrics).unwrap();
    let module = runtime.load("guest", crate::support::guest(Form::Rows)).await.unwrap();
    let settings = Settings {
        processor: "flights".into(),
        config: json!({ "do": "measure" }),
        limits: Limits { metric_series: 100, ..Limits::default() },
        grants: Grants { clocks: true, metrics: true, ..Grants::default() },
    };
    let plugin = Plugin::new(&runtime, module, settings).unwrap();
    plugin.instance().await.unwrap().process_batch(&shard(), &batch()).await.unwrap();
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    for line in [
        r#"shardmill_guest_late_total{processor="flights",carrier="AA"} 2"#,
        r#"shardmill_guest_level{processor="flights"} 1.5"#,
        r#"shardmill_guest_delay_count{processor="flights"} 1"#,
        r#"shardmill_plugin_guest_metrics_dropped_total{processor="flights"} 9918"#,
        r#"shardmill_plugin_calls_total{processor="flights",call="process-batch"} 1"#,
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in:\n{text}");
    }
}
