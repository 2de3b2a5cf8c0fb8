//! Places of dead letters that are wrong: no letter is changed, and none is sent.

use serde_json::json;
use shardmill_cause::code::{Code, config, dead_letters, producer, stream};
use shardmill_tests::Services;

use crate::row::{Expected, Folder, Row, finish, payloads};

/// A letter as `docs/dead-letters.md` says that it is written.
fn letter(number: u64, stream: &str) -> String {
    let letter = json!({
        "dead_letter": 1,
        "id": "not looked at",
        "application": "tests",
        "processor": "copy",
        "stream": stream,
        "stream_arn": format!("arn:aws:kinesis:us-east-1:000000000000:stream/{stream}"),
        "hops": 0,
        "shard": "shardId-000000000000",
        "sequence_number": format!("4957{number:010}"),
        "sub_sequence_number": 0,
        "partition_key": "key",
        "explicit_hash_key": null,
        "arrived_at": 1_750_000_000_000_u64,
        "given_up_at": 1_750_000_001_000_u64 + number,
        "attempts": 3,
        "reason": "no such customer",
        "plugin": "0123456789ab",
        "worker": "worker-1",
        "lease_epoch": 1,
        "data": "e30=",
    });
    format!("{letter}\n")
}

pub(crate) async fn rows() -> Vec<Row> {
    let services = Services::with_streams(1, 1).await;
    let folder = Folder::new();
    folder.write("a.jsonl", letter(1, "gone"));
    let home = Folder::new();
    let text = "application = \"tests\"\n[processors.copy]\nstream = \"input\"\nplugin = \"p.wasm\"\n";
    let nowhere = home.write("nowhere.toml", text);
    let back = home.write("back.toml", format!("{text}dead-letters = {{ stream = \"input\" }}\n"));
    let place = folder.at("");
    let of = |given: &'static str, arguments: Vec<String>, exit: i32, code: Code| (given, arguments, exit, code);
    let words = |text: &str| -> Vec<String> {
        let text = text.replace("FOLDER", &place).replace("NOWHERE", &nowhere).replace("BACK", &back);
        text.split(' ').map(str::to_owned).collect()
    };
    let cases = vec![
        of("a folder that is not there", words("list --folder /nowhere/at/all"), 78, dead_letters::PLACE),
        of("a stream that is not there", words("list --stream nowhere"), 69, stream::NOT_FOUND),
        of("an id that no letter has", words("show 00000000 --folder FOLDER"), 1, dead_letters::NO_LETTER),
        of("a processor that there is not", words("list -c NOWHERE --processor other"), 78, dead_letters::NO_PLACE),
        of("a processor that keeps no letters", words("list -c NOWHERE --processor copy"), 78, dead_letters::NO_PLACE),
        of("letters that would come back as records", words("list -c BACK"), 78, config::PIPELINE),
        of(
            "a file for marks that cannot be made",
            words("replay --folder FOLDER --marks /nowhere/marks"),
            78,
            dead_letters::MARKS,
        ),
        of("letters of a stream that is gone", words("replay --folder FOLDER"), 69, producer::REFUSED),
    ];
    let mut rows = Vec::new();
    for (given, arguments, exit, code) in cases {
        let arguments: Vec<&str> = ["dead-letters"].into_iter().chain(arguments.iter().map(String::as_str)).collect();
        let letters = std::fs::read(folder.at("a.jsonl")).expect("the letters");
        let finished = finish(&services, &arguments).await;
        assert_eq!(std::fs::read(folder.at("a.jsonl")).expect("the letters"), letters, "{given}");
        for stream in ["input", "output"] {
            assert!(payloads(&services, stream).await.is_empty(), "{given}");
        }
        rows.push(Row::of(given, &finished, Expected { exit, code }, "no letter was changed, and none was sent"));
    }
    rows
}
