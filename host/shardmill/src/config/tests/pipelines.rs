use super::*;

/// `p` reads `in`, and leads to `audit`, which reads nothing.
const PIPELINE: &str = r#"
application = "app"
[processors.p]
stream = "in"
plugin = "p.wasm"
[processors.p.outputs.audit]
to = "processor:audit"
[processors.audit]
plugin = "audit.wasm"
"#;

#[test]
fn a_stage_has_no_streams_and_no_leases() {
    let config = good(&format!("{PIPELINE}dead-letters = {{ folder = \"letters\" }}\nbatch = {{ records = 5 }}\n"));
    let audit = &config.processors["audit"];
    assert!(audit.is_stage() && audit.lease_table.is_none() && !config.processors["p"].is_stage());
    assert_eq!(config.processors["p"].outputs["audit"], Output::Processor("audit".to_owned()));
    assert_eq!((audit.batch.records, audit.dead_letters.is_some()), (5, true));
    assert_eq!(config.stream_ids().collect::<Vec<_>>(), ["in"]);
    assert_eq!(config.warnings, [""; 0]);
}

#[test]
fn the_defaults_about_reading_are_not_about_a_stage() {
    let config = good(&format!(
        "{PIPELINE}parallelism = 4\nretry = {{ attempts = 3 }}\n[defaults.processor]\ndelivery = \"at-most-once\"\ncheckpoint-count = 7\n"
    ));
    let [p, audit] = ["p", "audit"].map(|name| &config.processors[name]);
    assert_eq!((p.delivery, p.retry.attempts), (Delivery::AtMostOnce, 1));
    assert_eq!((audit.delivery, audit.retry.attempts, audit.flow.parallelism), (Delivery::AtLeastOnce, 3, 4));
}

#[test]
fn a_processor_that_reads_may_be_led_to_as_well() {
    let config = good(&format!("{PIPELINE}stream = \"other\"\nlease-table = \"table\"\n"));
    let audit = &config.processors["audit"];
    assert_eq!((audit.lease_table.as_deref(), audit.is_stage()), (Some("table"), false));
}

#[test]
fn at_most_once_is_promised_where_nothing_comes_again() {
    let once = PIPELINE.replace("plugin = \"p.wasm\"", "plugin = \"p.wasm\"\ndelivery = \"at-most-once\"");
    good(&once);
    good(&format!("{once}stream = \"other\"\ndelivery = \"at-most-once\"\n"));
    // By way of a stage, and round.
    let round = format!("{once}[processors.audit.outputs.back]\nto = \"processor:p\"\n");
    good(&round);
    let shown = bad(&format!(
        "{round}[processors.q]\nstream = \"x\"\nplugin = \"q.wasm\"\n[processors.q.outputs.a]\nto = \"processor:audit\"\n"
    ));
    assert!(shown.contains("processors.p.delivery") && shown.contains("from `q`"), "{shown}");
}

#[test]
fn what_a_processor_s_records_come_to_is_known() {
    let round = format!("{PIPELINE}[processors.audit.outputs.back]\nto = \"processor:audit\"\n");
    let config = good(&format!("{round}[processors.q]\nstream = \"x\"\nplugin = \"q.wasm\"\n"));
    let reached = |name| config.reached(name).into_iter().collect::<Vec<_>>();
    assert_eq!((reached("p"), reached("audit"), reached("q")), (vec!["audit", "p"], vec!["audit"], vec!["q"]));
}

#[test]
fn cycles_in_memory_are_taken_and_not_warned_of() {
    let round = format!(
        "max-hops = 3\n{PIPELINE}[processors.audit.outputs.back]\nto = \"processor:p\"\n[processors.p.outputs.again]\nto = \"processor:p\"\n"
    );
    let config = good(&round);
    assert_eq!((config.max_hops, config.warnings.as_slice()), (3, [].as_slice()));
}

#[test]
fn steps_are_counted_by_the_shortest_way() {
    let chain = |steps: usize, last: &str| {
        let mut text = format!("max-hops = {steps}\n{}", MINIMAL.trim_start());
        for step in 0..steps {
            let from = if step == 0 { "p".to_owned() } else { format!("s{step}") };
            let to = step + 1;
            text += &format!(
                "[processors.{from}.outputs.next]\nto = \"processor:s{to}\"\n[processors.s{to}]\nplugin = \"p.wasm\"\n"
            );
        }
        text + last
    };
    good(&chain(20, ""));
    let more = "[processors.s20.outputs.next]\nto = \"processor:z\"\n[processors.z]\nplugin = \"p.wasm\"\n";
    let shown = bad(&chain(20, more));
    assert!(shown.contains("processors.z: 21 steps"), "{shown}");
    good(&chain(20, &format!("{more}[processors.p.outputs.short]\nto = \"processor:z\"\n")));
    good(&chain(20, &format!("{more}stream = \"in\"\n")));
}

#[test]
fn a_thousand_processors_in_a_row_are_read_in_no_time() {
    let mut text = format!("max-hops = 1000\n{MINIMAL}[processors.p.outputs.next]\nto = \"processor:s0\"\n");
    for step in 0..1000 {
        let next = (step + 1) % 1000;
        text += &format!(
            "[processors.s{step}]\nplugin = \"p.wasm\"\ndead-letters = {{ stream = \"failed\" }}\n[processors.s{step}.outputs.next]\nto = \"processor:s{next}\"\n"
        );
    }
    assert_eq!(good(&text).processors.len(), 1001);
}
