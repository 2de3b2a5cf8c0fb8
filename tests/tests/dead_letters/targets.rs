//! Streams that records are sent to, of which some do not take them.

use shardmill_tests::{Fault, Proxy, Rule, Services, assert_says};
use tempfile::TempDir;

use crate::letters::{arn, assert_holds, dead_letters, ends, json_line, json_line_of, letters, write};

#[tokio::test]
async fn a_stream_that_is_gone_keeps_nothing_from_the_others() {
    let services = Services::start().await;
    services.create_stream("orders", 1).await;
    services.create_stream("visits", 1).await;
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().to_str().expect("a path in UTF-8");
    let mut all = letters(1..=30);
    for (letter, stream) in all.iter_mut().zip(["orders", "gone", "visits"].iter().cycle()) {
        letter.stream = stream;
    }
    write(folder.path(), "a.jsonl", &all);
    let of = |stream: &str| all.iter().filter(|letter| letter.stream == stream).cloned().collect::<Vec<_>>();

    // By chunks of four, so that the missing stream is met in the middle.
    let replay = ["replay", "--folder", path, "--rate", "4", "--json"];
    let replayed = json_line_of(&services, 69, &replay).await;
    assert_eq!(replayed["to"], serde_json::json!({ (arn("orders")): 10, (arn("visits")): 10 }), "{replayed}");
    assert_eq!(replayed["refused"][arn("gone")]["left"], 10, "{replayed}");
    assert_holds(&services, "orders", &of("orders")).await;
    assert_holds(&services, "visits", &of("visits")).await;

    let finished = dead_letters(&services, &["replay", "--folder", path]).await;
    assert_eq!(finished.code, Some(69), "{finished:?}");
    assert_says("replay", &finished.stderr, &["10 records were not sent to", &arn("gone"), "create the stream"]);
    assert!(finished.stdout.contains("20 records passed over, sent before"), "{finished:?}");
    for from in ["orders", &arn("orders")] {
        let some = json_line(&services, &["replay", "--folder", path, "--from", from, "--json"]).await;
        assert_eq!((&some["sent"], &some["sent_before"]), (&0.into(), &10.into()), "{some}");
    }
    services.create_stream("gone", 1).await;
    let rest = json_line(&services, &["replay", "--folder", path, "--json"]).await;
    assert_eq!((&rest["sent"], &rest["sent_before"]), (&10.into(), &20.into()), "{rest}");
    assert_holds(&services, "gone", &of("gone")).await;
}

#[tokio::test]
async fn what_is_not_permitted_has_its_exit_status() {
    let services = Services::start().await;
    services.create_stream("orders", 1).await;
    services.create_stream("failed", 1).await;
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().to_str().expect("a path in UTF-8");
    write(folder.path(), "a.jsonl", &letters(1..=3));
    let proxy = Proxy::new(&services, 7);
    let link = proxy.link("operator");
    for code in ["AccessDeniedException", "InvalidClientTokenId", "KMSDisabledException"] {
        let rule = proxy.inject(Rule::new(Fault::Refused(code)).operation("PutRecords"));
        let replayed = json_line_of(&link, 77, &["replay", "--folder", path, "--json"]).await;
        assert_eq!((&replayed["sent"], &replayed["refused"][arn("orders")]["left"]), (&0.into(), &3.into()));
        rule.end();
        let rule = proxy.inject(Rule::new(Fault::Refused(code)).operation("GetRecords"));
        let stdout = ends(&link, 77, &["list", "--stream", "failed"]).await;
        assert_eq!(stdout, "");
        rule.end();
    }
    assert_holds(&services, "orders", &[]).await;
    json_line(&link, &["replay", "--folder", path, "--json"]).await;
    assert_holds(&services, "orders", &letters(1..=3)).await;
}
