//! `shardmill dead-letters list`

use clap::Args;
use comfy_table::{ColumnConstraint, Table};
use serde_json::json;

use super::{Wanted, passed_over, places};
use crate::cli::{Failure, output, table, text};
use crate::dead_letters::read::{Found, Letters};
use crate::unix_ms;

pub(super) const EXAMPLES: &str = "\
Examples:
  shardmill dead-letters list --config shardmill.toml
  shardmill dead-letters list -c shardmill.toml --processor enrich --since 2h --reason timeout
  shardmill dead-letters list --folder /var/lib/shardmill/dead-letters --limit 20
  shardmill dead-letters list --stream enrich-failed --json | jq -r .id

A letter that was stored twice is shown once. All places are looked through before the first letter is shown, those of \
streams by way of a temporary file.";

/// Of a reason in the table, in characters.
const REASON: usize = 100;
/// Of a table: a longer list is several, because a table is in memory until it is printed.
const ROWS: usize = 1_000;
/// The places of columns that are copied, or that say nothing in two lines.
const UNBROKEN: [usize; 3] = [0, ATTEMPTS, 5];
const ATTEMPTS: usize = 4;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    places: places::Arguments,
    #[command(flatten)]
    wanted: Wanted,
    /// At most so many.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Print a JSON object for each, one a line.
    #[arg(long)]
    json: bool,
}

pub(super) async fn list(arguments: &Arguments) -> Result<(), Failure> {
    let places = arguments.places.places(arguments.wanted.processor.as_deref())?;
    let marks = places.readable_marks()?;
    let filter = arguments.wanted.filter(None, &places);
    let mut letters = Letters::open(&places.open().await?, filter, unix_ms::now()).await?;
    let mut rows = Vec::new();
    let (mut count, mut replayed, mut more) = (0, 0, false);
    for found in std::iter::from_fn(|| letters.next()).flatten() {
        if arguments.limit.is_some_and(|limit| count >= limit) {
            more = true;
            break;
        }
        let is_replayed = marks.contains(&found.identity);
        count += 1;
        replayed += u64::from(is_replayed);
        if arguments.json {
            output::line(text::json(&line(&found, is_replayed, &places.name(&found.places))));
            continue;
        }
        rows.push(row(&found, is_replayed));
        if rows.len() == ROWS {
            output::line(shown(&mut rows));
        }
    }
    if arguments.json {
        return letters.all_read();
    }
    if !rows.is_empty() {
        output::line(shown(&mut rows));
    }
    let more = if more { ", and more (--limit)" } else { "" };
    let word = if count == 1 { "letter" } else { "letters" };
    let others = passed_over(letters.others());
    output::line(format_args!("{count} dead {word}{more}, {replayed} of them sent again.{others}"));
    letters.all_read()
}

/// Empties the rows.
fn shown(rows: &mut Vec<[String; 8]>) -> Table {
    let header = ["Id", "Processor", "Shard", "Position", "Attempts", "Given up", "Again", "Reason"];
    let mut table = table::fitted(header, &[ATTEMPTS]);
    for column in UNBROKEN {
        if let Some(column) = table.column_mut(column) {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    table.add_rows(rows.drain(..));
    table
}

fn row(found: &Found, is_replayed: bool) -> [String; 8] {
    let letter = &found.letter;
    [
        found.identity.id.to_string(),
        text::line(&letter.processor),
        text::line(&format!("{} {}", letter.stream, letter.shard)),
        letter.position.to_string(),
        letter.attempts.to_string(),
        text::second(letter.given_up_at),
        if is_replayed { "sent" } else { "" }.to_owned(),
        text::short(&letter.reason, REASON),
    ]
}

/// Without the payload, which may be large.
fn line(found: &Found, is_replayed: bool, place: &str) -> serde_json::Value {
    let letter = &found.letter;
    json!({
        "id": found.identity.id.to_string(),
        "application": &*letter.application,
        "processor": &*letter.processor,
        "stream": &*letter.stream,
        "stream_arn": &*letter.stream_arn,
        "hops": letter.hops,
        "shard": letter.shard.as_str(),
        "sequence_number": letter.position.sequence_number.as_str(),
        "sub_sequence_number": letter.position.sub_sequence_number,
        "partition_key": letter.partition_key,
        "explicit_hash_key": letter.explicit_hash_key.map(|key| key.to_string()),
        "arrived_at": letter.arrived_at,
        "given_up_at": letter.given_up_at,
        "attempts": letter.attempts,
        "reason": letter.reason,
        "plugin": &*letter.plugin,
        "bytes": letter.data.len(),
        "replayed": is_replayed,
        "place": place,
    })
}
