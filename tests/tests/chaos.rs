//! Three workers, a writer, and an agent that makes their life hard; every record is accounted for.
//!
//! `SHARDMILL_CHAOS_SECONDS` says for how long (20 s, or minutes, or hours), `SHARDMILL_TEST_SEED` with which seed, and
//! `SHARDMILL_CHAOS_KEEP` that the report is kept even if all is well: as text, as JSON, and as a page with a timeline.
//! `make chaos` sets them.

use std::time::Duration;

use shardmill_tests::chaos::{Report, SHARDS, Schedule, Temper, Violation, run};
use shardmill_tests::{Fault, Rule, seeds};

fn length() -> Duration {
    let seconds = std::env::var("SHARDMILL_CHAOS_SECONDS");
    Duration::from_secs(seconds.map_or(20, |text| text.parse().expect("SHARDMILL_CHAOS_SECONDS is a number")))
}

/// A shorter run may leave out some of what is possible.
fn is_whole() -> bool {
    length() >= Duration::from_secs(120)
}

async fn reports(temper: Temper) -> Vec<Report> {
    let mut reports = Vec::new();
    for seed in seeds(&[1]) {
        println!("chaos: {} with seed {seed}, as `{}` does again", temper.name(), Report::command(seed, length()));
        let schedule = Schedule::new(seed, temper, length());
        let report = run(&schedule, None).await;
        println!("{report}");
        if std::env::var_os("SHARDMILL_CHAOS_KEEP").is_some() {
            let folder = report.keep().expect("a folder in the target folder");
            println!("  what was done is in {}", folder.join("report.html").display());
        }
        report.assert_kept();
        assert!(report.written > 100 * length().as_secs(), "there was something to do: {report}");
        assert!(report.letters > 0, "and something to give up: {report}");
        assert_eq!(report.events.len(), schedule.count(), "all of it was done: {report}");
        assert_eq!((report.lost(), report.records + report.letters), (0, report.written), "{report}");
        reports.push(report);
    }
    reports
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_and_the_order_of_keys_is_kept_whatever_befalls_workers_and_services() {
    for report in reports(Temper::Rough).await {
        let is_hard = report.count("kill") > 0 && report.count("freeze") > 0;
        let is_moved = report.leases.is_some_and(|leases| leases.takes > 2 * SHARDS);
        assert!(!is_whole() || (is_hard && is_moved), "{report}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_repeated_while_workers_are_replaced_and_shards_split_and_merged_and_services_throttle() {
    for report in reports(Temper::Gentle).await {
        assert_eq!(report.repeated(), 0, "{report}");
        assert!(!is_whole() || (report.count("roll") > 0 && report.count("surge") > 0), "{report}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_is_acknowledged_and_not_stored_is_found_to_be_lost() {
    let swallowed = Rule::new(Fault::Swallowed).operation("PutRecords").stream("output").after(10).times(1);
    let report = run(&Schedule::calm(Duration::from_secs(3)), Some(swallowed)).await;
    let is_seen = |violation: &Violation| matches!(violation, Violation::Lost { .. } | Violation::Skipped { .. });
    assert!(report.lost() > 0, "{report}: {:?}", report.violations);
    assert!(report.violations.iter().all(is_seen), "and nothing else is wrong: {:?}", report.violations);
    assert_eq!(report.repeated(), 0, "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_is_stored_twice_is_counted_and_nothing_that_was_done_explains_it() {
    let lost = Rule::new(Fault::AnswerLost).operation("PutRecords").stream("output").after(10).times(1);
    let report = run(&Schedule::calm(Duration::from_secs(3)), Some(lost)).await;
    assert_eq!(report.records + report.letters, report.written, "{report}");
    assert!(report.repeated() > 0 && report.sent_again == report.repeated(), "{report}");
    assert_eq!(report.causes.unexplained, report.repeated(), "{report}");
    let [Violation::Other { promise, .. }] = &report.violations[..] else { panic!("{:?}", report.violations) };
    assert_eq!(promise, "nothing is repeated without a reason");
}
