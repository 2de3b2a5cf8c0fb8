//! `shardmill dead-letters list`

use clap::Args;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table};
use serde_json::json;

use super::{Wanted, now, places, shown_second, text};
use crate::cli::{Failure, output};
use crate::dead_letters::read::{Found, Letters};

pub(super) const EXAMPLES: &str = "\
Examples:
  shardmill dead-letters list --config shardmill.toml
  shardmill dead-letters list -c shardmill.toml --processor enrich --since 2h --reason timeout
  shardmill dead-letters list --folder /var/lib/shardmill/dead-letters --limit 20
  shardmill dead-letters list --stream enrich-failed --json | jq -r .id

A letter that was stored twice is shown once.";

/// Of a reason in the table, in characters.
const REASON: usize = 100;
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
    let mut letters = Letters::new(places.open().await?, arguments.wanted.filter(None), now());
    let marks = places.marks()?;
    let mut table = table();
    let (mut count, mut replayed, mut more) = (0, 0, false);
    while let Some(found) = letters.next().await? {
        if arguments.limit.is_some_and(|limit| count >= limit) {
            more = true;
            break;
        }
        let is_replayed = marks.contains(&found.identity);
        count += 1;
        replayed += u64::from(is_replayed);
        if arguments.json {
            output::line(line(&found, is_replayed, &places.name(found.place)));
        } else {
            add(&mut table, &found, is_replayed);
        }
    }
    if arguments.json {
        return Ok(());
    }
    if count > 0 {
        output::line(&table);
    }
    let more = if more { ", and more (--limit)" } else { "" };
    let letters = if count == 1 { "letter" } else { "letters" };
    output::line(format_args!("{count} dead {letters}{more}, {replayed} of them sent again."));
    Ok(())
}

fn table() -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(["Id", "Processor", "Shard", "Position", "Attempts", "Given up", "Again", "Reason"]);
    for column in UNBROKEN {
        if let Some(column) = table.column_mut(column) {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    if let Some(column) = table.column_mut(ATTEMPTS) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn add(table: &mut Table, found: &Found, is_replayed: bool) {
    let letter = &found.letter;
    table.add_row([
        found.identity.id.to_string(),
        text::line(&letter.processor),
        text::line(&format!("{} {}", letter.stream, letter.shard)),
        letter.position.to_string(),
        letter.attempts.to_string(),
        shown_second(letter.given_up_at),
        if is_replayed { "sent" } else { "" }.to_owned(),
        text::short(&letter.reason, REASON),
    ]);
}

/// Without the payload, which may be large.
fn line(found: &Found, is_replayed: bool, place: &str) -> serde_json::Value {
    let letter = &found.letter;
    json!({
        "id": found.identity.id.to_string(),
        "application": &*letter.application,
        "processor": &*letter.processor,
        "stream": &*letter.stream,
        "shard": letter.shard.as_str(),
        "sequence_number": letter.position.sequence_number.as_str(),
        "sub_sequence_number": letter.position.sub_sequence_number,
        "partition_key": letter.partition_key,
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
