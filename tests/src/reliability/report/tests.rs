use super::*;

/// Of a run that was over at the second pit stop, or at the end of it if nothing is wrong.
fn report(ending: Ending, findings: Findings) -> Report {
    let records = 2_000_000;
    let options =
        Options { records, shards: 2, pit_stop: 1_000_000, seed: 7, patience: Duration::from_secs(60), plant: None };
    let told = Told { put: records, confirmed: records, kinesis_records: 900, ..Told::default() };
    Report {
        options,
        ending,
        passed: 1_000_000,
        mark: records,
        took: Duration::from_millis(12_500),
        found: records - findings.missing,
        told,
        findings,
        in_input: 0,
        announced: 0,
        output_kinesis_records: 4_000,
        memory: None,
        log: None,
    }
}

fn violations(count: u64) -> Violations {
    Violations { count, first: (0..count.min(2)).map(|nth| format!("integer {nth}")).collect() }
}

#[test]
fn a_clean_run_says_that_nothing_is_unconfirmed_and_nothing_failed() {
    let report = report(Ending::Complete, Findings::default());
    assert!(report.is_clean());
    let expected = "every integer came out once, in the order of its key\n  \
        2,000,000 integers in 12.5 s, 160,000 records/s\n  \
        2,000,000 confirmed, 0 unconfirmed, 0 failed\n  \
        0 missing, 0 repeated, 0 out of order, 0 put by nobody\n  \
        900 Kinesis records in the input, 4,000 in the output\n";
    assert_eq!(report.to_string(), expected);
    assert_eq!((&report.json()["ok"], &report.json()["unconfirmed"]), (&json!(true), &json!(0)));
}

#[test]
fn a_broken_run_names_the_holes_and_where_they_came_about() {
    let hole = |first, last, integers| Hole { shard: "shardId-000000000001".to_owned(), first, last, integers };
    let findings = Findings {
        missing: 1_201,
        overtaken: 1_200,
        holes: vec![hole(1_000_100, 1_002_500, 1_200), hole(1_999_999, 1_999_999, 1)],
        hole_count: 2,
        ..Findings::default()
    };
    let mut report = report(Ending::Stalled(Duration::from_secs(60)), findings);
    report.in_input = 1_201;
    let text = report.to_string();
    for said in [
        "BROKEN below 2,000,000: nothing new came out for 60 s\n",
        "  hole: 1000100 to 1002500, the 1,200 integers of shardId-000000000001 among them\n",
        "  hole: 1999999 of shardId-000000000001\n",
        "  all of them are in the input; 1,200 of them were overtaken by later integers of their keys\n",
    ] {
        assert!(text.contains(said), "{said:?} in\n{text}");
    }
    assert!(!report.is_clean());
    report.in_input = 0;
    assert!(report.to_string().contains("none of them is in the input"));
}

#[test]
fn whatever_is_not_as_it_should_be_is_told_and_fails_the_run() {
    for (findings, said) in [
        (Findings { repeated: violations(3), ..Findings::default() }, "  repeated: integer 1\n  repeated: and 1 more"),
        (Findings { late: violations(1), ..Findings::default() }, "  out of order: integer 0"),
        (Findings { strange: violations(1), ..Findings::default() }, "  put by nobody: integer 0"),
    ] {
        let report = report(Ending::Broken, findings.clone());
        assert!(report.to_string().contains(said), "{said:?} in\n{report}");
        assert!(!report.is_clean());
        assert!(!Report { ending: Ending::Complete, ..report }.is_clean(), "{findings:?}");
    }
    for told in [
        Told { put: 2_000_000, confirmed: 1_999_999, ..Told::default() },
        Told { put: 2_000_000, confirmed: 2_000_000, failed: 1, ..Told::default() },
    ] {
        let report = Report { told, ..report(Ending::Complete, Findings::default()) };
        assert!(!report.is_clean() && report.to_string().contains("not all of them were confirmed"), "{report}");
    }
    let ended = report(Ending::WorkerEnded("exit status: 70".to_owned()), Findings::default());
    assert!(!ended.is_clean() && ended.to_string().contains("the worker has ended with exit status: 70"), "{ended}");
}
