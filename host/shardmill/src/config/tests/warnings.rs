use super::*;

fn warnings(source: &str) -> Vec<String> {
    good(source).warnings
}

const SMALL: &str = "application = \"app\"\n[processors.p]\nstream = \"a\"\nplugin = \"p.wasm\"\n";

fn processor(name: &str, reads: &str, sends: &[&str]) -> String {
    use std::fmt::Write as _;
    let mut text = format!("[processors.{name}]\nstream = \"{reads}\"\nplugin = \"p.wasm\"\n");
    for stream in sends {
        writeln!(text, "[processors.{name}.outputs.to-{stream}]\nstream = \"{stream}\"").unwrap();
    }
    text
}

fn application(processors: &[(&str, &str, &[&str])]) -> String {
    let processors = processors.iter().map(|(name, reads, sends)| processor(name, reads, sends));
    ["application = \"app\"\n".to_owned()].into_iter().chain(processors).collect()
}

#[test]
fn nothing_is_said_where_nothing_is_odd() {
    assert_eq!(warnings(MINIMAL), [""; 0]);
    let straight = application(&[("p", "a", &["b", "c"]), ("q", "b", &["c", "d"]), ("r", "c", &["d"])]);
    assert_eq!(warnings(&straight), [""; 0]);
    let used = format!("{SMALL}[processors.p.outputs.out]\nstream = \"b\"\n[streams.a]\n[streams.b]\n");
    assert_eq!(warnings(&used), [""; 0]);
}

#[test]
fn a_stream_that_nobody_uses_is_named_with_what_may_have_been_meant() {
    let [warning] = &warnings(&format!("{SMALL}[streams.aa]\nname = \"a-production\"\n"))[..] else { panic!() };
    for part in ["test.toml:5:", "streams.aa", "no processor reads it", "`a`"] {
        assert!(warning.contains(part), "`{part}` in {warning}");
    }
}

#[test]
fn an_output_to_the_stream_that_is_read_is_named() {
    let [warning] = &warnings(&application(&[("p", "a", &["b", "a"])]))[..] else { panic!() };
    for part in ["test.toml:8:", "processors.p.outputs.to-a.stream", "round for ever"] {
        assert!(warning.contains(part), "`{part}` in {warning}");
    }
    // By the stream's name in Kinesis.
    let renamed = format!("{SMALL}[processors.p.outputs.out]\nstream = \"b\"\n[streams.b]\nname = \"a\"\n");
    assert_eq!(warnings(&renamed).len(), 1);
    // By its ARN.
    let arn = "arn:aws:kinesis:eu-west-1:123456789012:stream/a";
    let aliased = format!("{SMALL}[processors.p.outputs.out]\nstream = \"{arn}\"\n");
    assert_eq!(warnings(&aliased).len(), 1);
}

#[test]
fn a_loop_over_several_processors_is_named_once() {
    let circle = application(&[("p", "a", &["b"]), ("q", "b", &["c", "x"]), ("r", "c", &["a", "y"])]);
    let [warning] = &warnings(&circle)[..] else { panic!("{:?}", warnings(&circle)) };
    for part in ["processors.p.outputs.to-b.stream", "`q`, `r`"] {
        assert!(warning.contains(part), "`{part}` in {warning}");
    }
    let two = application(&[("p", "a", &["b"]), ("q", "b", &["a"]), ("r", "c", &["c"])]);
    assert_eq!(warnings(&two).len(), 2);
}

#[test]
fn a_tolerance_where_nothing_stops_is_idle() {
    let with = |failure: &str| warnings(&format!("{SMALL}failure = {{ tolerance = \"1%\", {failure} }}\n"));
    assert_eq!(with("then = \"stop-worker\""), [""; 0]);
    let [warning] = &with("then = \"skip\"")[..] else { panic!() };
    for part in ["test.toml:5:", "processors.p.failure.tolerance", "`then = \"skip\"`"] {
        assert!(warning.contains(part), "`{part}` in {warning}");
    }
}

#[test]
fn a_loop_through_memory_and_a_stream_is_named_and_one_in_memory_alone_is_not() {
    let stage = "[processors.q]\nplugin = \"p.wasm\"\n";
    let there = "[processors.p.outputs.there]\nto = \"processor:q\"\n";
    let by_stream = format!("{SMALL}{there}{stage}[processors.q.outputs.back]\nstream = \"a\"\n");
    let [warning] = &warnings(&by_stream)[..] else { panic!("{:?}", warnings(&by_stream)) };
    for part in ["processors.q.outputs.back.stream", "goes to `a`", "by way of `p`", "round for ever"] {
        assert!(warning.contains(part), "`{part}` in {warning}");
    }
    let in_memory = format!("{SMALL}{there}{stage}[processors.q.outputs.back]\nto = \"processor:p\"\n");
    assert_eq!(warnings(&in_memory), [""; 0]);
    let straight = format!("{SMALL}{there}{stage}[processors.q.outputs.on]\nstream = \"b\"\n");
    assert_eq!(warnings(&straight), [""; 0]);
    // Back in memory, by a processor that reads what was sent.
    let reader = format!(
        "{SMALL}[processors.p.outputs.there]\nstream = \"b\"\n{stage}stream = \"b\"\n[processors.q.outputs.back]\nto = \"processor:p\"\n"
    );
    let [warning] = &warnings(&reader)[..] else { panic!("{:?}", warnings(&reader)) };
    assert!(warning.contains("processors.p.outputs.there.stream") && warning.contains("by way of `q`"), "{warning}");
}

#[test]
fn lanes_that_do_not_come_about_are_named() {
    let [warning] = &warnings(&format!("{SMALL}partition-by = \"/a\"\n"))[..] else { panic!() };
    for part in ["test.toml:5:", "processors.p.partition-by", "`parallelism`"] {
        assert!(warning.contains(part), "`{part}` in {warning}");
    }
    let [warning] = &warnings(&format!("{SMALL}parallelism = 65\n"))[..] else { panic!() };
    for part in ["test.toml:5:", "processors.p.parallelism", "65 lanes", "64 instances"] {
        assert!(warning.contains(part), "`{part}` in {warning}");
    }
    assert_eq!(warnings(&format!("{SMALL}parallelism = 64\npartition-by = \"/a\"\n")), [""; 0]);
}
