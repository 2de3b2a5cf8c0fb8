//! What passes by itself.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::stream::{self, StreamExt};
use serde_json::Value;
use shardmill_tests::{
    Config, Fault, Held, Injected, Link, Proxy, Rule, Service, Services, Tail, Worker, Writer, assert_each_once,
    assert_order_of_keys, firsts, leases, numbers,
};

use super::{AT_ONCE, denied, refused};

/// Lines that say that something is in trouble, and those that say that it is over.
const TROUBLES: [(&str, &str); 9] = [
    ("cannot ask for the stream yet", "the stream is reached"),
    ("the lease table cannot be reached yet", "the lease table is reached"),
    ("the lease table cannot be used", "the lease table is used again"),
    ("looking for new shards failed", "shards are listed again"),
    ("leases cannot be taken", "leases can be taken again"),
    ("leases cannot be renewed", "leases are renewed again"),
    ("checkpoints cannot be written", "checkpoints are written again"),
    ("the shard cannot be read", "the shard is read again"),
    ("records cannot be stored", "records are stored again"),
];

enum Trouble {
    Rules(Vec<Rule>),
    /// The link is cut.
    Cut(Held),
}

struct Passing {
    name: &'static str,
    trouble: Trouble,
    /// Whether it is there from the start.
    at_start: bool,
    /// Whether it lasts until the log tells of it, or for a while where it should not; else its rules are limited.
    lasts: bool,
    /// Whether the log has to tell of it.
    is_told: bool,
}

/// How long a trouble lasts that is not to be told.
const SHORT: Duration = Duration::from_millis(2_500);
/// How long a write to the lease table may take, by default.
const LONGEST_WRITE: Duration = Duration::from_secs(2);

fn passing() -> Vec<Passing> {
    let of = |name, rules: Vec<Rule>, is_told| Passing {
        name,
        trouble: Trouble::Rules(rules),
        at_start: false,
        lasts: true,
        is_told,
    };
    let reading = |name, fault, is_told| of(name, vec![Rule::new(fault).operation("GetRecords")], is_told);
    let writing = |name, fault, is_told| of(name, vec![Rule::new(fault).operation("PutRecords")], is_told);
    let tables = |name, fault, is_told| of(name, vec![Rule::new(fault).service(Service::DynamoDb)], is_told);
    let at_start = |name, rule: Rule, times, is_told| Passing {
        at_start: true,
        lasts: false,
        ..of(name, vec![rule.times(times)], is_told)
    };
    let once = |name, operation, fault, is_told| Passing {
        lasts: false,
        ..of(name, vec![Rule::new(fault).operation(operation).times(1)], is_told)
    };
    let cut = |name, held| Passing { trouble: Trouble::Cut(held), ..of(name, Vec::new(), true) };
    vec![
        // Half a minute, so it begins first.
        once("a read hangs", "GetRecords", Fault::Hang, true),
        once("outputs hang", "PutRecords", Fault::Hang, true),
        // Throttles are nothing to tell before they last.
        reading("reads are throttled", Fault::Refused("ProvisionedThroughputExceededException"), false),
        reading("KMS throttles reads", Fault::Refused("KMSThrottlingException"), false),
        reading("reads fail", Fault::Status(500), true),
        reading("reads are cut off", Fault::Reset, true),
        reading("half of what is read comes", Fault::AnswerCut, true),
        reading("half of a page's JSON comes", Fault::HalfJson, true),
        reading("the token for reads expires", Fault::Refused("ExpiredTokenException"), true),
        writing("outputs are throttled", Fault::Refused("ProvisionedThroughputExceededException"), false),
        writing("KMS throttles outputs", Fault::Refused("KMSThrottlingException"), false),
        writing("KMS throttles each output", Fault::Partial { chance: 1.0, code: "KMSThrottlingException" }, false),
        writing("outputs fail", Fault::Status(503), true),
        writing("the token for outputs expires", Fault::Refused("ExpiredTokenException"), true),
        tables("tables are throttled", Fault::Refused("ProvisionedThroughputExceededException"), true),
        tables("table calls are throttled", Fault::Refused("ThrottlingException"), true),
        tables("table calls are limited", Fault::Refused("RequestLimitExceeded"), true),
        tables("tables fail", Fault::Status(500), true),
        tables("the token for tables expires", Fault::Refused("ExpiredTokenException"), true),
        tables("answers of tables are lost", Fault::AnswerLost, true),
        of("the token expires", vec![refused("ExpiredTokenException")], true),
        of("everything fails", vec![Rule::new(Fault::Status(500))], true),
        cut("the network is gone", Held::Lost),
        cut("the network is late", Held::Delivered),
        at_start("an expired token at the start", refused("ExpiredTokenException").service(Service::Kinesis), 1, true),
        at_start(
            "an expired token for tables at the start",
            refused("ExpiredTokenException").service(Service::DynamoDb),
            3,
            true,
        ),
        // The SDK makes three attempts for each of the two tables.
        at_start("tables throttle at the start", refused("ThrottlingException").operation("CreateTable"), 6, true),
        at_start("shards cannot be listed", denied("ListShards").stream("input").after(1), 2, true),
        at_start("leases cannot be taken", Rule::new(Fault::Status(500)).operation("UpdateItem"), 2, true),
        at_start(
            "leases cannot be created",
            refused("ThrottlingException").operation("PutItem").table(Config::copy().lease_table()),
            2,
            true,
        ),
    ]
}

fn happened(rules: &[Injected], link: &Link) -> bool {
    if rules.is_empty() { link.held() > 0 } else { rules.iter().all(|rule| rule.count() > 0) }
}

/// How often each trouble was told and its end, in the order of [`TROUBLES`].
fn told(worker: &Worker) -> Vec<(usize, usize)> {
    let count = |(begin, end): &(&str, &str)| (worker.logged("WARN", begin).len(), worker.logged("INFO", end).len());
    TROUBLES.iter().map(count).collect()
}

/// One line when a trouble begins, for each shard, lease and stream that has it, and one when it ends.
fn assert_quiet(name: &str, worker: &Worker, is_told: bool) {
    let told = told(worker);
    assert!(told.iter().all(|(begun, ended)| begun == ended), "{name}: {told:?} for {TROUBLES:?}");
    let begun: usize = told.iter().map(|(begun, _)| begun).sum();
    assert_eq!(begun > 0, is_told, "{name}: {told:?} for {TROUBLES:?}");
    let mut lines: BTreeMap<String, usize> = BTreeMap::new();
    let is_loud = |line: &&Value| line["level"] == "WARN" || line["level"] == "ERROR";
    let log = worker.log();
    for line in log.iter().filter(is_loud) {
        let about = [&line["message"], &line["shard"], &line["lease"], &line["stream"]];
        *lines.entry(format!("{about:?}")).or_default() += 1;
    }
    assert_eq!(lines.values().sum::<usize>(), begun, "{name}: other lines in {lines:?}");
    assert!(lines.values().all(|count| *count == 1), "{name}: told again and again: {lines:?}");
}

async fn passes(case: Passing) {
    let Passing { name, trouble, at_start, lasts, is_told } = case;
    let services = Services::with_streams(2, 1).await;
    let proxy = Proxy::new(&services, 1);
    let link = proxy.link("worker");
    let config = Config::copy().processor(r#"checkpoint-interval = "100ms""#);
    let mut writer = Writer::new(&services, "input", 20);
    writer.put(200).await;
    let begin = || match &trouble {
        Trouble::Rules(rules) => rules.iter().map(|rule| proxy.inject(rule.clone())).collect(),
        Trouble::Cut(_) => {
            link.cut();
            Vec::new()
        }
    };
    let mut worker;
    let rules: Vec<Injected>;
    if at_start {
        rules = begin();
        worker = Worker::start(&link, &config);
    } else {
        worker = Worker::start_ready(&link, &config).await;
        let mut output = Tail::new(&services, "output").await;
        worker.until("outputs", async |_| (output.count().await == 200).then_some(())).await;
        rules = begin();
    }
    writer.put(200).await;
    worker.until(name, async |_| happened(&rules, &link).then_some(())).await;
    if lasts && is_told {
        let is_told = |worker: &Worker| told(worker).iter().any(|(begun, _)| *begun > 0);
        worker.until(&format!("a line about it: {name}"), async |worker| is_told(worker).then_some(())).await;
        // And then no second one.
        tokio::time::sleep(Duration::from_millis(700)).await;
    } else if lasts {
        tokio::time::sleep(SHORT).await;
    }
    match &trouble {
        Trouble::Rules(_) if lasts => proxy.calm(),
        Trouble::Rules(_) => {}
        Trouble::Cut(held) => link.restore(*held),
    }
    writer.put(100).await;
    let mut output = Tail::new(&services, "output").await;
    worker
        .until_within(Duration::from_secs(90), &format!("all outputs: {name}"), async |_| {
            output.poll().await;
            (numbers(output.found()).len() == 500).then_some(())
        })
        .await;
    // A write to the table that began in the trouble may take its whole time before it is told.
    tokio::time::sleep(LONGEST_WRITE).await;
    worker
        .until(&format!("the end of all troubles: {name}"), async |worker| {
            told(worker).iter().all(|(begun, ended)| begun == ended).then_some(())
        })
        .await;
    worker.stop().await;
    let found = Tail::all(&services, "output").await;
    // Only where the network has swallowed an answer, or brought a request late, may something be there twice.
    let found = if matches!(trouble, Trouble::Cut(_)) { firsts(&found) } else { found };
    assert_each_once(&found, 0..500);
    assert_order_of_keys(&found);
    let rows = leases::rows(&services, config.lease_table()).await;
    leases::assert_released_at_the_end(&rows, &Tail::all(&services, "input").await);
    assert_quiet(name, &worker, is_told);
}

#[tokio::test]
async fn what_passes_is_waited_out_with_one_line_when_it_begins_and_one_when_it_ends() {
    stream::iter(passing()).for_each_concurrent(AT_ONCE, passes).await;
}
