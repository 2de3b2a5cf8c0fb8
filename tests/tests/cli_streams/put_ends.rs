//! How `shardmill put` ends, and what it tells of it: nothing that was read is passed over in silence.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use shardmill_tests::{Environment, Fault, Finished, Proxy, Rule, Services, command, eventually, raw, run, within};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin};

use crate::cli::{fails, lines, of, stdout, told};
use crate::put::{in_stream, numbered, text, with_input};

const LIMIT: Duration = Duration::from_secs(60);

/// A command whose standard input is held.
fn piped(services: &impl Environment, arguments: &[&str]) -> (Child, ChildStdin) {
    let mut child = of(services, arguments);
    child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().expect("the binary can be run");
    let stdin = child.stdin.take().expect("standard input");
    (child, stdin)
}

/// What a command whose input has ended, or that was told to end, has done.
async fn end(child: Child) -> Finished {
    let output = within(LIMIT, "the end", child.wait_with_output()).await.expect("an end");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    Finished { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

fn signal(child: &Child, signal: Signal) {
    let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)).expect("a process");
    kill_process(pid, signal).expect("a signal");
}

async fn stored(services: &Services, at_least: usize) {
    eventually(LIMIT, "stored records", async || {
        (raw::user_records(services, "input").await.len() >= at_least).then_some(())
    })
    .await;
}

fn counted(lines: std::ops::Range<u32>) -> Vec<u8> {
    lines.map(|number| format!("line {number}\n")).collect::<String>().into_bytes()
}

#[tokio::test]
async fn results_are_not_written_over_an_input_or_over_earlier_results() {
    let services = Services::with_streams(1, 1).await;
    let folder = TempDir::new().expect("a temporary folder");
    let file = numbered(folder.path(), 10, 3);
    let content = std::fs::read(&file).expect("the file");
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&file, &link).expect("a link");
    for (results, more) in [(&file, None), (&link, None), (&link, Some("--overwrite"))] {
        let mut arguments = vec!["put", "input", text(&file), "--results", text(results)];
        arguments.extend(more);
        fails(&services, &arguments, 2, &["would take the place of the input", "numbered.jsonl", "nothing was sent"])
            .await;
        assert_eq!(std::fs::read(&file).expect("the file"), content);
    }
    let results = folder.path().join("results.jsonl");
    let arguments = ["put", "input", text(&file), "--results", text(&results)];
    stdout(&services, &arguments).await;
    let first = std::fs::read(&results).expect("results");
    fails(&services, &arguments, 2, &["results.jsonl has something in it", "--overwrite"]).await;
    assert_eq!(std::fs::read(&results).expect("results"), first);
    assert_eq!(in_stream(&services, "input").await.len(), 10);
    stdout(&services, &[&arguments[..], &["--overwrite"]].concat()).await;
    assert_eq!(lines(&std::fs::read_to_string(&results).expect("results")).len(), 10);
}

#[tokio::test]
async fn who_reads_results_and_goes_away_is_told_where_it_has_ended() {
    let services = Services::with_streams(1, 1).await;
    let (mut child, mut stdin) = piped(&services, &["put", "input", "--results", "-", "--rate", "2000"]);
    let writing = tokio::spawn(async move {
        // It ends before all of it is read.
        let _ = stdin.write_all(&counted(0..200_000)).await;
    });
    let mut results = BufReader::new(child.stdout.take().expect("standard output")).lines();
    for _three in 0..3 {
        within(LIMIT, "a result", results.next_line()).await.expect("a result").expect("a result");
    }
    drop(results);
    let finished = end(child).await;
    writing.await.expect("an end");
    let said =
        ["nobody reads the results any more", "what comes later in the input is not sent", "standard input, line "];
    told(&finished, &["put"], 1, &said);
    let count = in_stream(&services, "input").await.len();
    assert!(finished.stderr.contains(&format!("{count} records stored in input")), "{count}: {finished:?}");
}

#[tokio::test]
async fn results_that_cannot_be_written_do_not_hide_what_is_stored() {
    let services = Services::with_streams(1, 1).await;
    let arguments = ["put", "input", "--results", "/dev/full", "--json"];
    // More than may be on its way at a time.
    let finished = with_input(&services, &arguments, &counted(0..120_000)).await;
    told(&finished, &arguments, 1, &["results cannot be written to /dev/full", "No space left"]);
    let sums = &lines(&finished.stdout)[0];
    assert_eq!(sums["ended"], "results");
    assert_eq!(sums["stored"], in_stream(&services, "input").await.len(), "{sums}");
    let sum = sums["stored"].as_u64().zip(sums["not_stored"].as_u64()).map(|(stored, not)| stored + not);
    assert_eq!(sums["read"].as_u64(), sum);
}

#[tokio::test]
async fn nobody_who_reads_errors_does_not_keep_good_records_from_being_stored() {
    let services = Services::with_streams(1, 1).await;
    let (mut child, mut stdin) = piped(&services, &["put", "input", "--key-field", "/key"]);
    let mut errors = BufReader::new(child.stderr.take().expect("standard error")).lines();
    stdin.write_all(b"oops\n").await.expect("a line is taken");
    let first = within(LIMIT, "an error", errors.next_line()).await.expect("a line").expect("a line");
    assert!(first.contains("line 1: it is not JSON"), "{first}");
    drop(errors);
    let good: String = (0..20).map(|number| format!("{{\"n\":{number},\"key\":\"k\"}}\n")).collect();
    stdin.write_all(format!("oops\noops\n{good}").as_bytes()).await.expect("lines are taken");
    drop(stdin);
    let finished = end(child).await;
    assert_eq!(finished.code, Some(1), "{finished:?}");
    assert_eq!(finished.stdout, "20 records stored in input, 3 not stored (3 unreadable).\n");
    // Failures of other commands keep their statuses.
    let full = || Stdio::from(std::fs::File::options().write(true).open("/dev/full").expect("a full device"));
    for (arguments, code) in [(&["stream", "describe", "nope"][..], 69), (&["put", "nope", "/nowhere"], 1)] {
        let mut child = of(&services, arguments);
        let status = within(LIMIT, "the end", child.stderr(full()).stdout(Stdio::null()).status()).await;
        assert_eq!(status.expect("a status").code(), Some(code), "{arguments:?}");
    }
}

#[tokio::test]
async fn a_failure_is_one_where_nobody_reads_the_sums() {
    let services = Services::with_streams(1, 1).await;
    let (mut child, mut stdin) = piped(&services, &["put", "input", "--key-field", "/key"]);
    drop(child.stdout.take());
    stdin.write_all(b"oops\n{\"key\":\"k\"}\n").await.expect("lines are taken");
    drop(stdin);
    told(&end(child).await, &["put"], 1, &["1 of 2 records are not stored"]);
    // And what is well stays so.
    let (mut child, stdin) = piped(&services, &["put", "input"]);
    drop((child.stdout.take(), stdin));
    assert_eq!(end(child).await.code, Some(0));
}

#[tokio::test]
async fn a_record_that_is_refused_alone_does_not_keep_others_from_being_stored() {
    let services = Services::with_streams(1, 1).await;
    let proxy = Proxy::new(&services, 1);
    let link = proxy.link("put");
    proxy.inject(Rule::new(Fault::Refused("ValidationException")).operation("PutRecords").after(1).times(1));
    let (mut child, mut stdin) = piped(&link, &["put", "input", "--results", "-", "--key", "k"]);
    let mut results = BufReader::new(child.stdout.take().expect("standard output")).lines();
    let mut stored = Vec::new();
    for line in ["a\n", "b\n", "c\n"] {
        stdin.write_all(line.as_bytes()).await.expect("a line is taken");
        let result = within(LIMIT, "a result", results.next_line()).await.expect("a line").expect("a line");
        stored.push(lines(&result)[0]["stored"].clone());
    }
    assert_eq!(stored, [json!(true), json!(false), json!(true)]);
    drop(stdin);
    let said = ["standard input, line 2: the service refuses it (ValidationException)", "1 of 3 records", "1 refused"];
    told(&end(child).await, &["put"], 1, &said);
}

#[tokio::test]
async fn what_an_interrupted_put_has_taken_out_of_a_pipe_is_told_record_by_record() {
    let services = Services::with_streams(1, 1).await;
    let folder = TempDir::new().expect("a temporary folder");
    let results = folder.path().join("results.jsonl");
    let arguments = ["put", "input", "--key", "k", "--rate", "100", "--json", "--results", text(&results)];
    let (child, mut stdin) = piped(&services, &arguments);
    let writing = tokio::spawn(async move {
        // It ends before all of it is read.
        let _ = stdin.write_all(&counted(0..200_000)).await;
    });
    stored(&services, 5).await;
    // Before the end, though the input is slow.
    eventually(LIMIT, "results", async || {
        std::fs::read_to_string(&results).is_ok_and(|results| results.lines().count() > 2).then_some(())
    })
    .await;
    signal(&child, Signal::TERM);
    let finished = end(child).await;
    writing.await.expect("an end");
    let sums = &lines(&finished.stdout)[0];
    let number = |name: &str| sums[name].as_u64().expect("a number");
    assert!(number("read") > number("stored"), "{sums}");
    assert_eq!(sums["reasons"], json!({ "stopped": number("read") - number("stored") }), "{sums}");
    assert_eq!(number("stored"), in_stream(&services, "input").await.len() as u64);
    assert_eq!(sums["first_not_stored"]["line"], number("stored") + 1, "{sums}");
    told(&finished, &arguments, 1, &["interrupted", &format!("standard input, line {}", number("stored") + 1)]);
    let results = lines(&std::fs::read_to_string(&results).expect("results"));
    let told: BTreeSet<u64> = results.iter().map(|result| result["line"].as_u64().expect("a line")).collect();
    assert_eq!((told.len() as u64, told.last()), (number("read"), Some(&number("read"))));
}

#[tokio::test]
async fn a_fast_put_that_is_interrupted_says_where_to_go_on_and_an_idle_one_that_all_is_stored() {
    let services = Services::with_streams(1, 1).await;
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("lines");
    std::fs::write(&path, counted(0..3_000_000)).expect("a file");
    let (child, _stdin) = piped(&services, &["put", "input", text(&path), "--unordered", "--json"]);
    stored(&services, 1).await;
    signal(&child, Signal::INT);
    let finished = end(child).await;
    told(&finished, &["put"], 1, &["interrupted", "the first record that is not stored is"]);
    assert!(lines(&finished.stdout)[0]["first_not_stored"]["line"].is_u64(), "{finished:?}");

    let before = raw::user_records(&services, "input").await.len();
    let (child, mut stdin) = piped(&services, &["put", "input", "--json"]);
    stdin.write_all(b"one\n").await.expect("a line is taken");
    stored(&services, before + 1).await;
    // As the end of a terminal does.
    signal(&child, Signal::HUP);
    let finished = end(child).await;
    told(&finished, &["put"], 1, &["interrupted", "what was read before is stored"]);
    let sums = &lines(&finished.stdout)[0];
    assert_eq!((&sums["stored"], &sums["first_not_stored"]), (&json!(1), &Value::Null), "{sums}");
}

#[tokio::test]
async fn statuses_are_those_of_the_other_commands() {
    let services = Services::with_streams(1, 1).await;
    let home = TempDir::new().expect("a temporary folder");
    let file = numbered(home.path(), 1, 1);
    let endpoint = &services.environment()["AWS_ENDPOINT_URL_KINESIS"];
    let bare = async |arguments: &[&str]| {
        let mut child = command();
        child
            .args(arguments)
            .args(["--endpoint-url", endpoint])
            .env("HOME", home.path())
            .env("AWS_REGION", "us-east-1");
        run(child).await
    };
    for arguments in [&["put", "input", text(&file)][..], &["stream", "describe", "input"]] {
        told(&bare(arguments).await, arguments, 77, &["credentials"]);
    }
    let nobody = ["put", "input", text(&file), "--ttl", "1s", "--endpoint-url", "http://127.0.0.1:1"];
    fails(&services, &nobody, 69, &["does not answer", "check the network and the endpoint"]).await;
    let mut child = of(&services, &["put", "input", text(&file)]);
    child.env("AWS_REGION", "").env_remove("AWS_DEFAULT_REGION");
    told(&run(child).await, &["put"], 78, &["no AWS region is set"]);
    let mut child = of(&services, &["put", "nowhere", text(&file)]);
    let output = within(LIMIT, "the end", child.output()).await.expect("an end");
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(said.contains("shardmill stream create") && !said.contains("configuration"), "{said}");
    // Lines are as long as they are: an id is copied from them.
    fails(&services, &["tail", "input", "--shard", "shardId-000000000007"], 1, &["has no shard"]).await;
    let mut child = of(&services, &["tail", "input", "--shard", "shardId-000000000007"]);
    let mut stderr = String::new();
    let mut child = child.stderr(Stdio::piped()).spawn().expect("the binary can be run");
    let mut errors = child.stderr.take().expect("standard error");
    within(LIMIT, "the end", errors.read_to_string(&mut stderr)).await.expect("a text");
    assert!(stderr.contains("stream input has no shard shardId-000000000007"), "{stderr}");
}
