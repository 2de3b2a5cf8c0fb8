//! The whole of `shardmill demo`: the emulators' work as well.

use shardmill_tests::{command, run as run_command};
use tokio::time::Instant;

use crate::report::{Column, Row, Sample, Section};
use crate::{Options, say};

pub(crate) async fn run(options: &Options) -> Section {
    let mut seconds = Sample::default();
    for run in 1..=options.runs() {
        say(format_args!("demo: run {run} of {}", options.runs()));
        let mut demo = command();
        demo.args(["demo", "--json"]);
        let began = Instant::now();
        let finished = run_command(demo).await;
        seconds.push(began.elapsed().as_secs_f64());
        assert_eq!(finished.code, Some(0), "`shardmill demo` failed:\n{}", finished.stderr);
    }
    Section {
        name: "demo",
        title: "`shardmill demo`, from its start to its end".to_owned(),
        columns: vec![Column { title: "s", key: "seconds", digits: 2 }],
        rows: vec![Row { label: "2,699 records in, 560 out".to_owned(), figures: vec![Some(seconds)] }],
        notes: Vec::new(),
    }
}
