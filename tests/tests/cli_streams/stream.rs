//! `shardmill stream`

use std::time::Duration;

use serde_json::Value;
use shardmill_tests::{Environment, Fault, Process, Proxy, Rule, Services, Writer, command, eventually, run};
use tempfile::TempDir;

use crate::cli::{fails, json, json_lines, of, stdout};

const FIRST: &str = "shardId-000000000000";
const SECOND: &str = "shardId-000000000001";
const THIRD: &str = "shardId-000000000002";
const LIMIT: Duration = Duration::from_secs(60);

async fn described(services: &impl Environment, stream: &str) -> Value {
    json(services, &["stream", "describe", stream, "--json"]).await
}

/// The ids of open shards, by their hash keys.
fn open(description: &Value) -> Vec<String> {
    let shards = description["shards"].as_array().expect("shards");
    let mut open: Vec<(u128, String)> = shards
        .iter()
        .filter(|shard| shard["open"] == true)
        .map(|shard| (hash_key(shard, "starting_hash_key"), shard["id"].as_str().expect("an id").to_owned()))
        .collect();
    open.sort_unstable();
    open.into_iter().map(|(_, id)| id).collect()
}

fn shard<'a>(description: &'a Value, id: &str) -> &'a Value {
    let shards = description["shards"].as_array().expect("shards");
    shards.iter().find(|shard| shard["id"] == id).unwrap_or_else(|| panic!("{id} in {description}"))
}

fn hash_key(shard: &Value, name: &str) -> u128 {
    shard[name].as_str().and_then(|key| key.parse().ok()).unwrap_or_else(|| panic!("{name} in {shard}"))
}

#[tokio::test]
async fn a_stream_is_made_and_described_and_not_made_twice() {
    let services = Services::start().await;
    let said = stdout(&services, &["stream", "create", "orders", "--shards", "3"]).await;
    assert_eq!(said, "orders is active: 3 shards, records are kept for 24 h.\n");
    fails(&services, &["stream", "create", "orders", "--shards", "3"], 1, &["there is a stream orders already"]).await;

    let description = described(&services, "orders").await;
    for (name, value) in [("stream", "orders"), ("status", "ACTIVE"), ("capacity", "provisioned")] {
        assert_eq!(description[name], value, "{description}");
    }
    assert_eq!((&description["open_shards"], &description["retention_hours"]), (&3.into(), &24.into()));
    assert_eq!(open(&description), [FIRST, SECOND, THIRD]);
    assert_eq!(hash_key(shard(&description, FIRST), "starting_hash_key"), 0);
    assert_eq!(hash_key(shard(&description, THIRD), "ending_hash_key"), u128::MAX);
    let arn = description["arn"].as_str().expect("an ARN");
    assert_eq!(described(&services, arn).await, description);

    let text = stdout(&services, &["stream", "describe", "orders"]).await;
    for said in [arn, "ACTIVE", "3 open, 0 closed", "24 h", "33.33 %", THIRD, "0 consumers"] {
        assert!(text.contains(said), "{said} in {text}");
    }
    // It takes records.
    Writer::new(&services, "orders", 3).put(10).await;
}

#[tokio::test]
async fn an_on_demand_stream_has_four_shards_that_are_not_changed_by_hand() {
    let services = Services::start().await;
    let made = json(&services, &["stream", "create", "orders", "--on-demand", "--retention", "7days", "--json"]).await;
    assert_eq!((&made["capacity"], &made["open_shards"]), (&"on-demand".into(), &4.into()), "{made}");
    assert_eq!(made["retention_hours"], 168);
    assert_eq!(made, described(&services, "orders").await);
    let refused = ["orders is on-demand", "AWS decides"];
    fails(&services, &["stream", "scale", "orders", "8"], 1, &refused).await;
    fails(&services, &["stream", "split", "orders", FIRST], 1, &refused).await;
    fails(&services, &["stream", "merge", "orders", FIRST, SECOND], 1, &refused).await;
}

#[tokio::test]
async fn shards_are_split_in_the_middle_or_at_a_key_and_neighbours_are_merged() {
    let services = Services::with_streams(2, 1).await;
    let said = stdout(&services, &["stream", "split", "input", FIRST]).await;
    assert!(said.contains(&format!("{FIRST} is closed; from now on there is {THIRD}")), "{said}");
    let after = described(&services, "input").await;
    assert_eq!(open(&after), [THIRD, "shardId-000000000003", SECOND]);
    let halves = [shard(&after, THIRD), shard(&after, "shardId-000000000003")];
    let size = |shard: &Value| hash_key(shard, "ending_hash_key") - hash_key(shard, "starting_hash_key");
    assert!(size(halves[0]).abs_diff(size(halves[1])) <= 1, "{after}");
    assert_eq!(halves[0]["parents"], serde_json::json!([FIRST]));
    assert_eq!(shard(&after, FIRST)["children"], serde_json::json!([THIRD, "shardId-000000000003"]));
    assert!(shard(&after, FIRST)["ending_sequence_number"].is_string());

    // The upper one is named first.
    let merged = json(&services, &["stream", "merge", "input", SECOND, "shardId-000000000003", "--json"]).await;
    assert_eq!(open(&merged), [THIRD, "shardId-000000000004"]);
    let child = shard(&merged, "shardId-000000000004");
    assert_eq!(child["parents"], serde_json::json!(["shardId-000000000003", SECOND]));

    let at = "1000000";
    let split = json(&services, &["stream", "split", "input", THIRD, "--at", at, "--json"]).await;
    assert_eq!(hash_key(shard(&split, "shardId-000000000006"), "starting_hash_key"), 1_000_000);
    assert_eq!(open(&split).len(), 3);

    let text = stdout(&services, &["stream", "describe", "input"]).await;
    assert!(
        text.contains("3 open, 4 closed") && text.contains(&format!("┆ {THIRD} ")) && text.contains("┆ 1000000 "),
        "{text}"
    );
    let text = stdout(&services, &["stream", "describe", "input", "--open"]).await;
    assert!(!text.contains(&format!("│ {FIRST} ")) && text.contains(" open "), "{text}");
}

#[tokio::test]
async fn what_cannot_be_split_or_merged_is_told_with_what_can() {
    let services = Services::with_streams(3, 1).await;
    let split = |rest: &[&'static str]| [&["stream", "split", "input"], rest].concat();
    let merge = |rest: &[&'static str]| [&["stream", "merge", "input"], rest].concat();
    fails(
        &services,
        &merge(&[FIRST, THIRD]),
        1,
        &["do not lie beside each other", "beside shardId-000000000000: shardId-000000000001"],
    )
    .await;
    fails(&services, &merge(&[FIRST, FIRST]), 1, &["named twice"]).await;
    fails(&services, &split(&["shardId-000000000009"]), 1, &["no shard shardId-000000000009", SECOND]).await;
    fails(&services, &split(&[FIRST, "--at", "0"]), 1, &["cannot be split at 0", "1 to "]).await;
    fails(&services, &split(&[FIRST, "--at", "x"]), 2, &["not a hash key"]).await;
    stdout(&services, &split(&[FIRST])).await;
    let closed = ["is closed", "its place was taken by shardId-000000000003, shardId-000000000004"];
    fails(&services, &split(&[FIRST]), 1, &closed).await;
    fails(&services, &merge(&[FIRST, SECOND]), 1, &closed).await;
}

#[tokio::test]
async fn a_stream_is_scaled_up_and_down_and_told_what_aws_allows() {
    let services = Services::with_streams(2, 1).await;
    let scale = |shards: &'static str| ["stream", "scale", "input", shards];
    assert_eq!(stdout(&services, &scale("2")).await, "input has 2 open shards already.\n");
    assert_eq!(stdout(&services, &scale("5")).await, "input has 5 open shards, before it had 2.\n");
    assert_eq!(described(&services, "input").await["open_shards"], 5);
    let scaled = json(&services, &["stream", "scale", "input", "1", "--json"]).await;
    assert_eq!((&scaled["open_shards"], open(&scaled).len()), (&1.into(), 1));

    let proxy = Proxy::new(&services, 1);
    let link = proxy.link("scale");
    for code in ["LimitExceededException", "InvalidArgumentException"] {
        let rule = proxy.inject(Rule::new(Fault::Refused(code)).operation("UpdateShardCount"));
        let said = ["UpdateShardCount of stream input is refused", "twice", "half", "10 times in 24 hours"];
        fails(&link, &scale("4"), 1, &said).await;
        rule.end();
    }
    let unknown = proxy.inject(Rule::new(Fault::Refused("UnknownOperationException")).operation("UpdateShardCount"));
    fails(&link, &scale("4"), 69, &["does not know UpdateShardCount"]).await;
    unknown.end();
    let busy = proxy.inject(Rule::new(Fault::Refused("ResourceInUseException")).operation("UpdateShardCount"));
    fails(&link, &scale("4"), 1, &["wait until it is active"]).await;
    busy.end();
    assert_eq!(described(&services, "input").await["open_shards"], 1, "what was refused has changed nothing");
}

#[tokio::test]
async fn changes_are_waited_for_on_a_service_where_they_take_time() {
    let services = Services::kinesis_local_and_dynalite().await;
    let said = stdout(&services, &["stream", "create", "orders", "--shards", "2"]).await;
    assert!(said.starts_with("orders is active: 2 shards"), "{said}");
    let split = json(&services, &["stream", "split", "orders", FIRST, "--json"]).await;
    assert_eq!((&split["status"], &split["open_shards"]), (&"ACTIVE".into(), &3.into()), "{split}");
    let merged = json(&services, &["stream", "merge", "orders", THIRD, "shardId-000000000003", "--json"]).await;
    assert_eq!((&merged["status"], &merged["open_shards"]), (&"ACTIVE".into(), &2.into()), "{merged}");
    let scaled = json(&services, &["stream", "scale", "orders", "4", "--json"]).await;
    assert_eq!((&scaled["status"], &scaled["open_shards"]), (&"ACTIVE".into(), &4.into()), "{scaled}");
    let not_waited = stdout(&services, &["stream", "scale", "orders", "2", "--no-wait"]).await;
    assert!(not_waited.contains("is under way; `shardmill stream describe orders` shows it"), "{not_waited}");
}

#[tokio::test]
async fn an_interrupted_wait_says_that_the_service_goes_on() {
    let services = Services::start().await;
    let proxy = Proxy::new(&services, 1);
    let link = proxy.link("create");
    let hanging = proxy.inject(Rule::new(Fault::Hang).operation("DescribeStreamSummary"));
    let folder = TempDir::new().expect("a temporary folder");
    let mut process = Process::start(of(&link, &["stream", "create", "orders", "--shards", "1"]), folder.path());
    eventually(LIMIT, "the wait", async || (hanging.count() > 0).then_some(())).await;
    process.terminate();
    let status = process.wait(LIMIT).await;
    assert_eq!(status.code(), Some(1), "{}", process.stderr());
    let said = process.stderr();
    assert!(said.contains("interrupted: the creation of orders is under way"), "{said}");
    assert!(said.contains("the service goes on"), "{said}");
    assert_eq!(described(&services, "orders").await["open_shards"], 1);
}

#[tokio::test]
async fn streams_are_listed_page_by_page() {
    let services = Services::start().await;
    for name in ["b", "a-2", "a-1"] {
        stdout(&services, &["stream", "create", name, "--shards", "1"]).await;
    }
    let listed = json_lines(&services, &["stream", "list", "--json"]).await;
    let names: Vec<&str> = listed.iter().map(|stream| stream["stream"].as_str().expect("a name")).collect();
    assert_eq!(names, ["a-1", "a-2", "b"]);
    let text = stdout(&services, &["stream", "list", "--prefix", "a-"]).await;
    assert!(text.starts_with("a-1") && text.lines().count() == 2, "{text}");
    // More than are listed at once.
    for number in 0..105 {
        let create = services.kinesis.create_stream().stream_name(format!("many-{number:03}")).shard_count(1);
        create.send().await.expect("a stream");
    }
    let listed = json_lines(&services, &["stream", "list", "--prefix", "many-", "--json"]).await;
    assert_eq!(listed.len(), 105);
    assert_eq!(listed[104]["stream"], "many-104");
}

#[tokio::test]
async fn a_stream_is_deleted_if_somebody_says_yes() {
    let services = Services::with_streams(1, 1).await;
    let delete = ["stream", "delete", "input"];
    fails(&services, &delete, 1, &["nobody can be asked whether input is to be deleted", "--yes", "1 open shard"])
        .await;
    assert_eq!(described(&services, "input").await["status"], "ACTIVE");
    let said = stdout(&services, &["stream", "delete", "input", "--yes"]).await;
    assert_eq!(said, "input is deleted.\n");
    fails(&services, &["stream", "describe", "input"], 69, &["no stream `input`"]).await;
    let said = json(&services, &["stream", "delete", "output", "--yes", "--with-consumers", "--json"]).await;
    assert_eq!((&said["stream"], &said["deleted"]), (&"output".into(), &true.into()));
}

#[tokio::test]
async fn mistakes_are_told_with_their_exit_statuses() {
    let services = Services::with_streams(2, 1).await;
    for arguments in [
        &["stream", "describe", "nowhere"][..],
        &["stream", "split", "nowhere", FIRST],
        &["stream", "merge", "nowhere", FIRST, SECOND],
        &["stream", "scale", "nowhere", "2"],
        &["stream", "delete", "nowhere", "--yes"],
    ] {
        fails(&services, arguments, 69, &["no stream `nowhere`", "us-east-1"]).await;
    }
    for (arguments, said) in [
        (&["stream"][..], "describe"),
        (&["stream", "create", "orders"], "--shards"),
        (&["stream", "create", "orders", "--shards", "1", "--on-demand"], "cannot be used with"),
        (&["stream", "create", "orders", "--shards", "0"], "1..="),
        (&["stream", "create", "orders", "--shards", "1", "--retention", "1h"], "24h to 8760h"),
        (&["stream", "create", "a b", "--shards", "1"], "the name of a stream"),
        (&["stream", "scale", "input"], "<SHARDS>"),
        (&["stream", "merge", "input", FIRST], "<SHARD>"),
    ] {
        fails(&services, arguments, 2, &[said]).await;
    }
    let proxy = Proxy::new(&services, 1);
    let link = proxy.link("stream");
    for (operation, arguments) in [
        ("CreateStream", &["stream", "create", "orders", "--shards", "1"][..]),
        ("DescribeStreamSummary", &["stream", "describe", "input"]),
        ("ListShards", &["stream", "describe", "input"]),
        ("SplitShard", &["stream", "split", "input", FIRST]),
        ("MergeShards", &["stream", "merge", "input", FIRST, SECOND]),
        ("UpdateShardCount", &["stream", "scale", "input", "3"]),
        ("ListStreams", &["stream", "list"]),
        ("DeleteStream", &["stream", "delete", "input", "--yes"]),
    ] {
        let denied = proxy.inject(Rule::new(Fault::Refused("AccessDeniedException")).operation(operation));
        fails(&link, arguments, 77, &[operation, &format!("kinesis:{operation}")]).await;
        denied.end();
    }
    let limit = proxy.inject(Rule::new(Fault::Refused("LimitExceededException")).operation("CreateStream"));
    fails(&link, &["stream", "create", "orders", "--shards", "1"], 1, &["describe-limits", "quota"]).await;
    limit.end();
    drop(link);
    let nobody = ["stream", "describe", "input", "--endpoint-url", "http://127.0.0.1:1"];
    fails(&services, &nobody, 69, &["DescribeStreamSummary", "got no answer"]).await;
}

#[tokio::test]
async fn help_has_examples() {
    for (command_line, said) in [
        (&["tail", "--help"][..], "shardmill tail orders --json | jq -r .data"),
        (&["put", "--help"], "--key-field"),
        (&["stream", "--help"], "Split a shard in two"),
        (&["stream", "create", "--help"], "--on-demand --retention 7days"),
        (&["stream", "describe", "--help"], "select(.open)"),
        (&["stream", "split", "--help"], "--at 4253529586511730793292182592897102643"),
        (&["stream", "merge", "--help"], "must lie beside each other"),
        (&["stream", "scale", "--help"], "10 times in 24 hours"),
        (&["stream", "list", "--help"], "--prefix orders-"),
        (&["stream", "delete", "--help"], "asks before"),
    ] {
        let mut child = command();
        child.args(command_line);
        let finished = run(child).await;
        assert_eq!(finished.code, Some(0), "{finished:?}");
        shardmill_tests::assert_says("help", &finished.stdout, &[said]);
    }
}
