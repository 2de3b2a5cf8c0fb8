//! Command lines that ask for what cannot be.

use std::net::TcpListener;

use shardmill_cause::code::{Code, command, process};
use shardmill_tests::Services;

use crate::row::{Expected, Folder, Row, Unasked, finish};

const FIRST: &str = "shardId-000000000000";

pub(crate) async fn rows() -> Vec<Row> {
    let mut rows = of_words().await;
    rows.extend(of_streams().await);
    rows.extend(of_places().await);
    rows
}

/// What is judged before anything else.
async fn of_words() -> Vec<Row> {
    let services = Unasked::new();
    let mut rows = Vec::new();
    for (given, arguments) in [
        ("a command that there is not", &["chekc"][..]),
        ("an option that there is not", &["run", "--config", "a.toml", "--forever"]),
        ("a value that is none", &["put", "input", "--rate", "0"]),
        ("two options that exclude each other", &["dead-letters", "list", "--folder", "a", "--stream", "b"]),
        ("a stream's name that is none", &["tail", "a/b"]),
        ("a hash key that is none", &["stream", "split", "input", FIRST, "--at", "x"]),
        ("an end before the beginning", &["tail", "input", "--from", "1h", "--to", "2h"]),
        ("a code that there is not", &["explain", "SM9999"]),
    ] {
        let finished = finish(&services, arguments).await;
        services.assert(given);
        let expected = Expected { exit: 2, code: command::USAGE };
        rows.push(Row::of(given, &finished, expected, "nothing was done: no service was asked"));
    }
    rows
}

/// Streams that cannot be changed so.
async fn of_streams() -> Vec<Row> {
    let services = Services::with_streams(2, 1).await;
    let shards = async || {
        let shards = services.shards("input").await;
        shards.iter().map(|shard| shard.shard_id().to_owned()).collect::<Vec<_>>()
    };
    let unknown = "shardId-000000000009";
    let cases: [(&str, &[&str], Code); 6] = [
        ("a stream that is there already", &["stream", "create", "input", "--shards", "1"], command::STREAM_CHANGE),
        ("a split of a shard that there is not", &["stream", "split", "input", unknown], command::NO_SHARD),
        ("a split outside the shard's keys", &["stream", "split", "input", FIRST, "--at", "0"], command::STREAM_CHANGE),
        ("a shard merged with itself", &["stream", "merge", "input", FIRST, FIRST], command::STREAM_CHANGE),
        ("a deletion that nobody confirms", &["stream", "delete", "input"], command::NOT_ASKED),
        (
            "a tail of a shard that there is not",
            &["tail", "input", "--shard", unknown, "--to", "now"],
            command::NO_SHARD,
        ),
    ];
    let mut rows = Vec::new();
    for (given, arguments, code) in cases {
        let before = shards().await;
        let finished = finish(&services, arguments).await;
        assert_eq!(shards().await, before, "{given}");
        rows.push(Row::of(given, &finished, Expected { exit: 1, code }, "the stream has the shards it had"));
    }
    rows
}

/// Folders and ports that are taken.
async fn of_places() -> Vec<Row> {
    let services = Unasked::new();
    let folder = Folder::new();
    folder.write("notes", "somebody's");
    let before = folder.files();
    let place = folder.at("");
    let given = "a new processor in a folder with something in it";
    let made = finish(&services, &["plugin", "new", "late", "--path", &place]).await;
    assert_eq!(folder.files(), before, "{given}");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let local = finish(&services, &["local", "--kinesis-port", &port]).await;
    let local = Row::of(
        "a port for the local Kinesis that is taken",
        &local,
        Expected { exit: 69, code: process::LOCAL_PORT },
        "nothing was started",
    );
    let says = local.says.replace(&port, "PORT");
    vec![
        Row::of(given, &made, Expected { exit: 2, code: command::EXISTS }, "the folder is as it was"),
        Row { says, ..local },
    ]
}
