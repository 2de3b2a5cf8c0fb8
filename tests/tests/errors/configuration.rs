//! Configurations that are wrong: `shardmill run` ends before it asks anything of any service.

use std::net::TcpListener;

use futures::stream::{self, StreamExt as _};
use shardmill_cause::code::{Code, config, filter, plugin, process, record};
use shardmill_tests::{command, paths, run};

use crate::row::{Expected, Folder, Row, Unasked, finish};

const KEPT: &str = "no service was asked, so no lease was taken; the file is as it was";
const AT_ONCE: usize = 4;

/// A mistake in a file: `TOP` stands for what every file needs, `COPY` for a processor that is fine.
const TOP: &str = "application = \"tests\"\ncache-dir = \"CACHE\"\nadmin = { enabled = false }\n";
const COPY: &str =
    "[processors.copy]\nstream = \"input\"\nplugin = 'PLUGIN'\nconfig = { field = \"/n\", default = \"out\" }\n";

/// What is wrong, the text, and the code of it.
const MISTAKES: &[(&str, &str, Code)] = &[
    ("a quote that is not closed", "application = \"tests\n", config::SYNTAX),
    ("a key that stands twice", "application = \"a\"\napplication = \"b\"\n", config::SYNTAX),
    ("a key that was mistyped", "TOP[leases]\nrenw = \"3s\"\nCOPY", config::UNKNOWN_KEY),
    ("a table that there is not", "TOP[kafka]\nbrokers = \"a\"\nCOPY", config::UNKNOWN_KEY),
    ("a number where a text is expected", "application = 7\n", config::WRONG_TYPE),
    ("a word that is none of those allowed", "TOPCOPYfailure = { then = \"stop\" }\n", config::WRONG_TYPE),
    ("a size without a unit that exists", "TOPmemory = \"256 parsecs\"\nCOPY", config::WRONG_TYPE),
    ("seconds where milliseconds are expected", "TOPCOPY[streams.input]\nstart = 1700000000\n", config::WRONG_TYPE),
    ("a batch that is too large", "TOPCOPYbatch = { records = 10_001 }\n", config::OUT_OF_BOUNDS),
    ("no attempt at all", "TOP[defaults.processor.retry]\nattempts = 0\nCOPY", config::OUT_OF_BOUNDS),
    (
        "an aggregate that is too small",
        "TOPCOPY[processors.copy.outputs.out]\nstream = \"out\"\naggregate-max-bytes = \"10 B\"\n",
        config::OUT_OF_BOUNDS,
    ),
    ("no application", "COPY", config::MISSING),
    ("no processor", "TOP", config::MISSING),
    ("a processor without a stream", "TOP[processors.copy]\nplugin = 'PLUGIN'\n", config::MISSING),
    ("an output that leads nowhere", "TOPCOPY[processors.copy.outputs.out]\n", config::MISSING),
    ("dead letters without a place", "TOPCOPYfailure = { then = \"dead-letter\" }\n", config::MISSING),
    (
        "a processor with a space in its name",
        "TOP[processors.\"my copy\"]\nstream = \"input\"\nplugin = 'PLUGIN'\n",
        config::NOT_A_NAME,
    ),
    (
        "a stream with a slash in its name",
        "TOP[processors.copy]\nstream = \"a/b\"\nplugin = 'PLUGIN'\n",
        config::NOT_A_NAME,
    ),
    ("an empty worker id", "TOPworker-id = \"\"\nCOPY", config::NOT_A_NAME),
    ("an endpoint without a scheme", "TOP[aws]\nkinesis-endpoint = \"127.0.0.1:4566\"\nCOPY", config::NOT_A_NAME),
    ("a shard that is none", "TOPCOPY[streams.input.start-shards]\n\"a b\" = { at = \"1\" }\n", record::SHARD_ID),
    (
        "a consumer in place of a stream",
        "TOP[processors.copy]\nstream = \"arn:aws:kinesis:eu-west-1:123456789012:stream/a/consumer/b:1\"\nplugin = 'PLUGIN'\n",
        record::STREAM_ARN,
    ),
    ("one stream and many", "TOPCOPYstreams = [\"a\", \"b\"]\n", config::TOGETHER),
    ("lanes for records that come once", "TOPCOPYdelivery = \"at-most-once\"\nparallelism = 4\n", config::TOGETHER),
    (
        "leases that expire before they are renewed",
        "TOP[leases]\nrenew = \"10s\"\nexpiry = \"5s\"\nCOPY",
        config::TOGETHER,
    ),
    (
        "an output to a processor that there is not",
        "TOPCOPY[processors.copy.outputs.out]\nto = \"processor:cpoy\"\n",
        config::NO_SUCH,
    ),
    ("dead letters to an output that there is not", "TOPCOPYdead-letters = { output = \"bad\" }\n", config::NO_SUCH),
    (
        "one lease table for two",
        "TOPCOPY[processors.other]\nstream = \"input\"\nplugin = 'PLUGIN'\nlease-table = \"tests-copy\"\n",
        config::TWICE,
    ),
    (
        "a stream that is named twice",
        "TOP[processors.copy]\nstreams = [\"a\", \"a\"]\nplugin = 'PLUGIN'\n",
        config::TWICE,
    ),
    (
        "a plugin that is not there",
        "TOP[processors.copy]\nstream = \"input\"\nplugin = \"nowhere.wasm\"\n",
        config::FILE,
    ),
    ("a plugin that is a folder", "TOP[processors.copy]\nstream = \"input\"\nplugin = \".\"\n", config::FILE),
    ("trial records that are not there", "TOPCOPYreload = { trial = \"nowhere.jsonl\" }\n", config::FILE),
    ("a pattern that is none", "TOPCOPYfilter = { patterns = [{ data = { n = 1 } }] }\n", filter::PATTERN),
    ("a field that is no JSON pointer", "TOPCOPYpartition-by = \"customer.id\"\n", config::NOT_A_FIELD),
    (
        "processors that no stream leads to",
        "TOPCOPY[processors.a]\nplugin = 'PLUGIN'\n[processors.a.outputs.out]\nto = \"processor:b\"\n[processors.b]\nplugin = 'PLUGIN'\n[processors.b.outputs.out]\nto = \"processor:a\"\n",
        config::PIPELINE,
    ),
    ("dead letters that come back as records", "TOPCOPYdead-letters = { stream = \"input\" }\n", config::PIPELINE),
    ("a filter of the log that is none", "TOPCOPY[log]\nfilter = \"loud=very\"\n", config::LOG_FILTER),
    (
        "a token's file that is not there",
        "application = \"tests\"\n[admin]\ntoken-file = \"nowhere\"\nCOPY",
        config::TOKEN,
    ),
    (
        "a method that is never granted",
        "TOPCOPYgrants.http = { hosts = [\"a.example\"], methods = [\"CONNECT\"] }\n",
        config::GRANT,
    ),
    ("a path in place of a host", "TOPCOPYgrants.http = { hosts = [\"https://a.example/v1\"] }\n", plugin::HOST_ENTRY),
    (
        "a secret from a variable that is not set",
        "TOPCOPYgrants.secrets = { TOKEN = { env = \"SHARDMILL_TESTS_NO_SUCH_SECRET\" } }\n",
        config::GRANT_MISSING,
    ),
];

pub(crate) async fn rows() -> Vec<Row> {
    let mut rows: Vec<Row> = unreadable().await;
    rows.extend(stream::iter(MISTAKES).map(of_text).buffered(AT_ONCE).collect::<Vec<_>>().await);
    rows.push(without_a_region().await);
    rows.extend(of_the_machine().await);
    rows
}

fn text(mistake: &str) -> String {
    let text = mistake.replace("TOP", TOP).replace("COPY", COPY);
    let text = text.replace("CACHE", &paths::compiled().display().to_string());
    text.replace("PLUGIN", &paths::plugin("route").display().to_string())
}

/// `shardmill run` with this file ends so; the file stays as it is, and nobody is asked.
async fn refused(given: &str, path: &str, expected: Expected) -> Row {
    let services = Unasked::new();
    let finished = finish(&services, &["run", "--config", path]).await;
    assert_eq!(finished.stdout, "", "{given}");
    services.assert(given);
    Row::of(given, &finished, expected, KEPT)
}

async fn of_text((given, mistake, code): &(&str, &str, Code)) -> Row {
    let folder = Folder::new();
    let path = folder.write("shardmill.toml", text(mistake));
    let before = folder.files();
    let row = refused(given, &path, Expected { exit: 78, code: *code }).await;
    assert_eq!(folder.files(), before, "{given}");
    row
}

async fn unreadable() -> Vec<Row> {
    let folder = Folder::new();
    let latin = folder.write("shardmill.toml", b"application = \"tests\"\n# Stra\xdfe\n");
    let unreadable = Expected { exit: 78, code: config::UNREADABLE };
    let before = folder.files();
    let rows = vec![
        refused("a file that is not there", &folder.at("absent.toml"), unreadable).await,
        refused("a folder", &folder.at(""), unreadable).await,
        refused("a device without an end", "/dev/zero", unreadable).await,
        refused("a file in Latin-1", &latin, Expected { exit: 78, code: config::NOT_UTF8 }).await,
    ];
    assert_eq!(folder.files(), before);
    rows
}

async fn without_a_region() -> Row {
    let folder = Folder::new();
    let path = folder.write("shardmill.toml", text("TOPCOPY"));
    let mut child = command();
    // Nothing of a profile in somebody's home either.
    child.args(["run", "--config", &path]).env("HOME", folder.path());
    let expected = Expected { exit: 78, code: config::NO_REGION };
    let row = Row::of("no region anywhere", &run(child).await, expected, "no service was asked; nothing was written");
    assert_eq!(folder.files().len(), 1);
    row
}

/// What is fine as a text, and not on this machine.
async fn of_the_machine() -> Vec<Row> {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("an address");
    let folder = Folder::new();
    let port = text("TOPCOPY").replace("enabled = false", &format!("listen = \"{address}\""));
    let port = folder.write("port.toml", port);
    folder.write("file", "not a folder");
    let letters = folder.write("letters.toml", text("TOPCOPYdead-letters = { folder = \"file\" }\n"));
    let before = folder.files();
    let rows = vec![
        refused("an admin port that is taken", &port, Expected { exit: 69, code: process::ADMIN_PORT }).await,
        refused(
            "a folder for dead letters that is a file",
            &letters,
            Expected { exit: 78, code: process::LETTERS_FOLDER },
        )
        .await,
    ];
    assert_eq!(folder.files(), before);
    rows
}
