//! `shardmill plugin bench`: figures that go together. How large they are is nobody's promise.

use serde_json::{Value, json};
use shardmill_tests::assert_says;

use crate::cli::{Folder, plugin};

fn number(figures: &Value, name: &str) -> f64 {
    figures[name].as_f64().unwrap_or_else(|| panic!("{name} in {figures}"))
}

#[tokio::test]
async fn figures_go_together_and_are_compared_with_earlier_ones() {
    let folder = Folder::new();
    folder.write("records.txt", "one\nthree\nfive\n");
    let rows = plugin("guest_rows");
    let bench = ["bench", &rows, "--records", "records.txt", "--key", "k", "--guest-config", "{\"do\":\"echo\"}"];
    let seven = [&bench[..], &["--batch", "7", "--calls", "20"]].concat();
    let told = folder.stdout(0, &[&seven[..], &["--json"]].concat()).await;
    let figures: Value = serde_json::from_str(&told).expect("one line of JSON");
    assert_eq!((&figures["calls"], &figures["records"], &figures["outputs"]), (&json!(20), &json!(140), &json!(140)));
    assert_eq!((&figures["batch"], &figures["form"], &figures["failed_calls"]), (&json!(7), &json!("rows"), &json!(0)));
    // one, three, five, one, three, five, one; and a key of one byte each.
    assert_eq!((number(&figures, "batch_bytes"), &figures["bytes"]), (34.0, &json!(680)));
    let [per_second, seconds] = ["records_per_second", "seconds"].map(|name| number(&figures, name));
    assert!((per_second * seconds - 140.0).abs() < 1e-6, "{figures}");
    let spread = &figures["call_us"];
    let [p50, p99, max] = ["p50", "p99", "max"].map(|name| number(spread, name));
    assert!(p50 > 0.0 && p50 <= p99 && p99 <= max, "{spread}");
    assert!(number(&figures, "compile_ms") > 0.0 && number(&figures, "load_ms") > 0.0, "{figures}");
    assert!(number(&figures, "memory_bytes") >= 65_536.0 && number(&figures["start_us"], "p50") > 0.0, "{figures}");

    folder.write("before.json", &told);
    let shown = folder.stdout(0, &[&seven[..], &["--baseline", "before.json"]].concat()).await;
    for words in ["20 calls of 7 records", "records a second", "call p99", "Baseline", "Change", "%"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let other = [&bench[..], &["--batch", "2", "--seconds", "0.05", "--baseline", "before.json", "--json"]].concat();
    let finished = folder.run(&other).await;
    assert_eq!(finished.code, Some(0), "{finished:?}");
    assert_says("another batch", &finished.stderr, &["its calls had 7 records, and these have 2"]);
    let compared: Value = serde_json::from_str(&finished.stdout).expect("JSON");
    assert_eq!(compared["baseline"]["records"], 140);
    assert!(compared["changes"]["records_a_second"].is_f64(), "{compared}");
    assert_eq!(number(&compared, "records"), number(&compared, "calls") * 2.0);
}

#[tokio::test]
async fn what_cannot_be_measured_is_told() {
    let folder = Folder::new();
    folder.write("records.txt", "one\n{\"poison\":\"trap\"}\n");
    folder.write("empty.txt", "");
    folder.write("bad.jsonl", "{}\n{\n");
    let poison = plugin("guest_poison");
    let bench = |records| ["bench", &poison, "--records", records, "--batch", "2", "--calls", "5"];
    folder.fails(1, &bench("records.txt"), &["5 calls and 0 records failed", "this record is poison"]).await;
    folder.fails(2, &bench("empty.txt"), &["there are no records"]).await;
    folder.fails(1, &bench("bad.jsonl"), &["line 2 is no record"]).await;
    let nothing = [&bench("records.txt")[..], &["--baseline", "bad.jsonl"]].concat();
    folder.fails(2, &nothing, &["the baseline bad.jsonl makes no sense"]).await;
    folder.fails(2, &[&bench("records.txt")[..], &["--seconds", "0"]].concat(), &["number of seconds"]).await;
}
