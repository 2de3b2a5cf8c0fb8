//! `shardmill dead-letters show`

use std::collections::BTreeSet;
use std::io::Write as _;

use clap::Args;
use serde_json::Value;
use shardmill_cause::code;

use super::{Wanted, id, payload, places};
use crate::cli::{Failure, output, text};
use crate::dead_letters::read::{Found, Letters};
use crate::dead_letters::to_json;
use crate::unix_ms;

pub(super) const EXAMPLES: &str = "\
Examples:
  shardmill dead-letters show 9f3c --config shardmill.toml
  shardmill dead-letters show 9f3c61d0a7b2 --folder /var/lib/shardmill/dead-letters --json
  shardmill dead-letters show 9f3c --stream enrich-failed --payload > record.bin";

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Its id, or the beginning of it.
    #[arg(value_name = "ID", value_parser = id)]
    id: String,
    #[command(flatten)]
    places: places::Arguments,
    #[command(flatten)]
    wanted: Wanted,
    /// Write the payload alone, byte for byte.
    #[arg(long, conflicts_with = "json")]
    payload: bool,
    /// Print JSON, one line: the letter as it is stored, with the payload in base64.
    #[arg(long)]
    json: bool,
}

pub(super) async fn show(arguments: &Arguments) -> Result<(), Failure> {
    let places = arguments.places.places(arguments.wanted.processor.as_deref())?;
    let marks = places.readable_marks()?;
    let filter = arguments.wanted.filter(Some(&arguments.id), &places);
    let mut letters = Letters::open(&places.open().await?, filter, unix_ms::now()).await?;
    let all: Vec<Found> = all_of(&mut letters, &arguments.id)?.into_iter().flatten().collect();
    let Some(first) = all.first() else { return Ok(()) };
    if arguments.payload {
        if all.iter().any(|found| found.identity != first.identity) {
            return Err(Failure::running("there are letters about records with different payloads in that place")
                .code(code::dead_letters::NO_LETTER)
                .help("look at them with --json"));
        }
        write(&first.letter.data)?;
        return letters.all_read();
    }
    let copies: u64 = all.iter().map(|found| found.copies).sum();
    for (index, found) in all.iter().enumerate() {
        let is_replayed = marks.contains(&found.identity);
        if arguments.json {
            let mut letter: Value = serde_json::from_str(&to_json(&found.letter)).unwrap_or_default();
            letter["replayed"] = is_replayed.into();
            letter["copies"] = copies.into();
            letter["place"] = places.name(&found.places).into();
            output::line(text::json(&letter));
            continue;
        }
        if index > 0 {
            output::line("");
        }
        tell(found, is_replayed, &places.name(&found.places), copies);
    }
    letters.all_read()
}

/// The letters about the one record whose id begins like this, one or more.
pub(super) fn all_of(letters: &mut Letters, id: &str) -> Result<Vec<Vec<Found>>, Failure> {
    let all: Vec<Vec<Found>> = std::iter::from_fn(|| letters.next()).collect();
    let ids: BTreeSet<String> = all.iter().flatten().map(|found| found.identity.id.to_string()).collect();
    match ids.len() {
        1 => Ok(all),
        // Its letter may be in one of them.
        0 => letters.all_read().and(Err(Failure::running(format!(
            "there is no dead letter whose id begins with `{id}`"
        ))
        .code(code::dead_letters::NO_LETTER)
        .help("`shardmill dead-letters list` shows those that there are"))),
        _several => {
            let ids: Vec<String> = ids.into_iter().collect();
            Err(Failure::running(format!("`{id}` begins the ids of several dead letters"))
                .code(code::dead_letters::NO_LETTER)
                .help(format!("take more digits: {}", ids.join(", "))))
        }
    }
}

fn tell(found: &Found, is_replayed: bool, place: &str, copies: u64) {
    let letter = &found.letter;
    let say = |name: &str, value: &str| output::line(format_args!("{name:<14} {}", text::line(value)));
    say("id", &found.identity.id.to_string());
    say("kept in", place);
    say("given up by", &format!("{} of {}", letter.processor, letter.application));
    say("given up at", &format!("{} after {} attempts", text::time(letter.given_up_at), letter.attempts));
    say("reason", &letter.reason);
    say("stream", &letter.stream_arn);
    say("shard", letter.shard.as_str());
    say("position", &letter.position.to_string());
    if letter.hops > 0 {
        let steps =
            format!("{} from processor to processor; this is what the last one made of the record", letter.hops);
        say("steps", &steps);
    }
    say("arrived at", &text::time(letter.arrived_at));
    say("partition key", &letter.partition_key);
    if let Some(key) = letter.explicit_hash_key {
        say("hash key", &key.to_string());
    }
    say("plugin", &format!("sha-256 {}", letter.plugin));
    say("worker", &format!("{}, lease epoch {}", letter.worker, letter.lease_epoch));
    let stored = if copies == 1 { "once".to_owned() } else { format!("{copies} times") };
    say("stored", &stored);
    say("sent again", if is_replayed { "yes" } else { "no" });
    match payload::as_text(&letter.data) {
        Some(text) => {
            say("payload", &format!("{} bytes of text", letter.data.len()));
            output::line(text);
        }
        None => {
            say("payload", &format!("{} bytes", letter.data.len()));
            output::line(payload::hex_dump(&letter.data));
        }
    }
}

fn write(payload: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(payload).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::running(format!("the payload cannot be written: {error}")).code(code::command::NOT_WRITTEN))
        }
        _written => Ok(()),
    }
}
