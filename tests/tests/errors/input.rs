//! Inputs of `shardmill put` that are wrong: what is good of them is in the stream, and the files stay as they are.

use shardmill_cause::code::{Code, input, producer, spool};
use shardmill_spool::{Metrics, Options, Spool};
use shardmill_tests::{Finished, Services};

use crate::row::{Expected, Folder, Row, finish, payloads, shown};

/// An input: its files, the arguments (`@` stands for the case's folder), how it ends, and how many records are stored.
struct Input {
    given: &'static str,
    files: &'static [(&'static str, &'static [u8])],
    arguments: &'static [&'static str],
    exit: i32,
    code: Code,
    stored: usize,
}

const GOOD: &[u8] = b"{\"k\":1}\n{\"k\":2}\n";

/// Of lines.
const LINES: &[Input] = &[
    Input {
        given: "a file that is not there, after one that is",
        files: &[("a.jsonl", GOOD)],
        arguments: &["@a.jsonl", "@absent.jsonl"],
        exit: 1,
        code: input::UNREADABLE,
        stored: 0,
    },
    Input { given: "a folder", files: &[], arguments: &["@"], exit: 1, code: input::UNREADABLE, stored: 0 },
    Input {
        given: "a line that is not JSON",
        files: &[("a.jsonl", b"{\"k\":1}\n{\"k\":\n{\"k\":3}\n")],
        arguments: &["@a.jsonl"],
        exit: 1,
        code: input::BAD_LINES,
        stored: 2,
    },
    Input {
        given: "a line without the key's field",
        files: &[("a.jsonl", b"{\"k\":1}\n{\"x\":2}\n")],
        arguments: &["@a.jsonl", "--key-field", "/k"],
        exit: 1,
        code: input::BAD_LINES,
        stored: 1,
    },
    Input {
        given: "a key that is a list",
        files: &[("a.jsonl", b"{\"k\":[1]}\n{\"k\":2}\n")],
        arguments: &["@a.jsonl", "--key-field", "/k"],
        exit: 1,
        code: input::BAD_LINES,
        stored: 1,
    },
    Input {
        given: "a line that `tail --json` has not printed",
        files: &[("a.jsonl", GOOD)],
        arguments: &["@a.jsonl", "--format", "tail-json"],
        exit: 1,
        code: input::BAD_LINES,
        stored: 0,
    },
    Input {
        given: "lines of text that should be JSON",
        files: &[("a.txt", b"one\ntwo\n")],
        arguments: &["@a.txt", "--format", "jsonl"],
        exit: 1,
        code: input::BAD_LINES,
        stored: 0,
    },
];

/// Of rows.
const ROWS: &[Input] = &[
    Input {
        given: "a column that the first row does not name",
        files: &[("a.csv", b"id,name\n1,a\n")],
        arguments: &["@a.csv", "--key-column", "user"],
        exit: 1,
        code: input::COLUMNS,
        stored: 0,
    },
    Input {
        given: "two columns of one name",
        files: &[("a.csv", b"id,id\n1,a\n")],
        arguments: &["@a.csv"],
        exit: 1,
        code: input::COLUMNS,
        stored: 0,
    },
    Input {
        given: "a row with a field more",
        files: &[("a.csv", b"id,name\n1,a\n2,b,c\n3,d\n")],
        arguments: &["@a.csv"],
        exit: 1,
        code: input::BAD_LINES,
        stored: 2,
    },
    Input {
        given: "a field in Latin-1",
        files: &[("a.csv", b"id,name\n1,Stra\xdfe\n2,b\n")],
        arguments: &["@a.csv"],
        exit: 1,
        code: input::BAD_LINES,
        stored: 1,
    },
    Input {
        given: "a column named without a header",
        files: &[("a.csv", b"1,a\n")],
        arguments: &["@a.csv", "--no-header", "--key-column", "user"],
        exit: 1,
        code: input::COLUMNS,
        stored: 0,
    },
];

/// Of what goes with files.
const OPTIONS: &[Input] = &[
    Input {
        given: "files that are written differently",
        files: &[("a.csv", b"id\n1\n"), ("b.jsonl", GOOD)],
        arguments: &["@a.csv", "@b.jsonl"],
        exit: 2,
        code: input::FORMAT,
        stored: 0,
    },
    Input {
        given: "an option of CSV for JSON lines",
        files: &[("a.jsonl", GOOD)],
        arguments: &["@a.jsonl", "--no-header"],
        exit: 2,
        code: input::FORMAT,
        stored: 0,
    },
    Input {
        given: "results over those of an earlier run",
        files: &[("a.jsonl", GOOD), ("results", b"{}\n")],
        arguments: &["@a.jsonl", "--results", "@results"],
        exit: 2,
        code: input::RESULTS,
        stored: 0,
    },
    Input {
        given: "results over the input",
        files: &[("a.jsonl", GOOD)],
        arguments: &["@a.jsonl", "--results", "@a.jsonl", "--overwrite"],
        exit: 2,
        code: input::RESULTS,
        stored: 0,
    },
    Input {
        given: "results in a folder that is not there",
        files: &[("a.jsonl", GOOD)],
        arguments: &["@a.jsonl", "--results", "@nowhere/results"],
        exit: 1,
        code: input::RESULTS,
        stored: 0,
    },
    Input {
        given: "a time to live of no time",
        files: &[("a.jsonl", GOOD)],
        arguments: &["@a.jsonl", "--ttl", "0s"],
        exit: 2,
        code: producer::OPTIONS,
        stored: 0,
    },
    Input {
        given: "a spool of 1 KiB",
        files: &[("a.jsonl", GOOD)],
        arguments: &["@a.jsonl", "--spool", "@spool", "--spool-size", "1KiB"],
        exit: 78,
        code: spool::OPTIONS,
        stored: 0,
    },
];

pub(crate) async fn rows() -> Vec<Row> {
    let services = Services::with_streams(1, 1).await;
    let mut rows = Vec::new();
    for input in LINES.iter().chain(ROWS).chain(OPTIONS) {
        rows.push(of(&services, input).await);
    }
    rows.extend(of_size(&services).await);
    rows.extend(of_outages(&services).await);
    rows
}

async fn of(services: &Services, case: &Input) -> Row {
    let folder = Folder::new();
    for (name, contents) in case.files {
        folder.write(name, contents);
    }
    let arguments: Vec<String> = case.arguments.iter().map(|argument| in_folder(&folder, argument)).collect();
    let arguments: Vec<&str> = ["put", "input"].into_iter().chain(arguments.iter().map(String::as_str)).collect();
    let (files, before) = (folder.files(), payloads(services, "input").await.len());
    let finished = finish(services, &arguments).await;
    assert_eq!(folder.files(), files, "{}", case.given);
    let stored = payloads(services, "input").await.len() - before;
    assert_eq!(stored, case.stored, "{}: {finished:?}", case.given);
    let kept = match case.stored {
        0 => "nothing was sent; files are as they were",
        _some => "the good lines are in the stream, and nothing else; files are as they were",
    };
    with_first(Row::of(case.given, &finished, Expected { exit: case.exit, code: case.code }, kept), &finished)
}

/// With what is told of the first line before the sums.
fn with_first(row: Row, finished: &Finished) -> Row {
    let first = finished.stderr.lines().next().filter(|line| line.contains(", line "));
    match first {
        Some(first) => Row { says: format!("{}; {}", shown(first), row.says), ..row },
        None => row,
    }
}

fn in_folder(folder: &Folder, argument: &str) -> String {
    argument.strip_prefix('@').map_or_else(|| argument.to_owned(), |name| folder.at(name))
}

/// Records that no stream takes.
async fn of_size(services: &Services) -> Vec<Row> {
    let folder = Folder::new();
    let large = folder.write("large.txt", format!("{}\nsmall\n", "x".repeat(2 << 20)));
    let small = folder.write("small.txt", "one\ntwo\n");
    let long = "k".repeat(300);
    let mut rows = Vec::new();
    for (given, arguments, stored, kept) in [
        ("a line of 2 MiB", vec!["put", "input", &large], 1, "the other line is in the stream; the file is as it was"),
        ("a key of 300 characters", vec!["put", "input", &small, "--key", &long], 0, "nothing was sent"),
    ] {
        let (files, before) = (folder.files(), payloads(services, "input").await.len());
        let finished = finish(services, &arguments).await;
        assert_eq!(folder.files(), files, "{given}");
        assert_eq!(payloads(services, "input").await.len() - before, stored, "{given}: {finished:?}");
        let row = Row::of(given, &finished, Expected { exit: 1, code: input::NOT_STORED }, kept);
        rows.push(with_first(row, &finished));
    }
    rows
}

/// Streams that nobody can reach.
async fn of_outages(services: &Services) -> Vec<Row> {
    let folder = Folder::new();
    let (file, place) = (folder.write("a.jsonl", GOOD), folder.at("spool"));
    // Nothing listens where a port was free a moment ago.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port");
    let closed = format!("http://{closed}");
    let put = ["put", "input", &file, "--endpoint-url", &closed];
    let without = finish(services, &[&put[..], &["--ttl", "1s"]].concat()).await;
    let spooled = finish(services, &[&put[..], &["--spool", &place, "--spool-after", "100ms"]].concat()).await;
    let spool = Spool::open(&place, Options::default(), Metrics::default()).await.expect("the spool");
    assert_eq!(spool.depth_of("input").records, 2, "{spooled:?}");
    spool.close().await.expect("it closes");
    assert_eq!(std::fs::read(&file).expect("the file"), GOOD);
    vec![
        Row::of(
            "a service that nobody reaches, for longer than `--ttl`",
            &without,
            Expected { exit: 69, code: input::NOT_STORED },
            "the file is as it was; the message has the line to go on from",
        ),
        Row::of(
            "the same with a spool",
            &spooled,
            Expected { exit: 75, code: input::WAITS },
            "every record is in the spool",
        ),
    ]
}
