//! `shardmill spool list`

use std::time::SystemTime;

use clap::Args;
use comfy_table::Table;
use serde_json::{Value, json};
use shardmill_spool::{Aside, Depth, Spool};

use super::{Folder, shown};
use crate::cli::{Failure, output, table, text};
use crate::unix_ms;

pub(super) const EXAMPLES: &str = "\
Examples:
  shardmill spool list --folder /var/lib/orders
  shardmill spool list --folder /var/lib/orders --json | jq '.streams[] | {stream, records}'

Streams are listed by the name or ARN by which the program that stored their records names them: it sends what is there under \
that name, so what is listed under another one of the same stream waits for `drain`.

Records are set aside that cannot be sent: their stream refuses them for good, or the disk has damaged them. They stand in \
nobody's way, and stay until somebody drops them or sends them again.";

/// Of what others write into a column, in characters.
const LONGEST: usize = 60;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    folder: Folder,
    /// Of the records that are set aside, show at most so many.
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(super) async fn list(arguments: &Arguments) -> Result<(), Failure> {
    let spool = arguments.folder.open().await?;
    let depth = spool.depth();
    let aside = spool.aside(0, arguments.limit).await?;
    if arguments.json {
        output::line(object(&spool, &depth, &aside));
    } else {
        show(&depth, &aside, SystemTime::now());
    }
    spool.close().await?;
    Ok(())
}

fn show(depth: &Depth, aside: &[Aside], now: SystemTime) {
    let mut table = table::fitted(["Stream", "Records", "Size", "Oldest", "Set aside"], &[1, 2, 4]);
    let (mut waiting, mut set_aside) = (0, 0);
    for (name, stream) in depth.streams.iter().filter(|(_, stream)| stream.records + stream.set_aside > 0) {
        waiting += stream.records;
        set_aside += stream.set_aside;
        table.add_row([
            // Whole, because it is what other commands take.
            text::line(name),
            stream.records.to_string(),
            shown::size(stream.bytes),
            stream.oldest.map(|oldest| shown::since(oldest, now)).unwrap_or_default(),
            stream.set_aside.to_string(),
        ]);
    }
    if waiting + set_aside > 0 {
        output::line(&table);
    }
    let verb = if waiting == 1 { "waits" } else { "wait" };
    output::line(format_args!(
        "{} {verb} to be sent, {set_aside} set aside; the files take {}.",
        text::counted(waiting, "record"),
        shown::size(depth.disk_bytes)
    ));
    if aside.is_empty() {
        return;
    }
    output::line(show_aside(aside));
    let more = set_aside.saturating_sub(aside.len() as u64);
    if more > 0 {
        output::line(format_args!("and {more} more (--limit)"));
    }
}

fn show_aside(aside: &[Aside]) -> Table {
    let mut table = table::fitted(["Set aside", "Stream", "Partition key", "Size", "Stored", "Reason"], &[0, 3]);
    for found in aside {
        table.add_row([
            found.number.to_string(),
            text::short(&found.stream, LONGEST),
            text::short(&found.partition_key, LONGEST),
            shown::size(found.bytes),
            shown::at(found.stored_at),
            text::line(&found.reason),
        ]);
    }
    table
}

fn object(spool: &Spool, depth: &Depth, aside: &[Aside]) -> Value {
    let streams: Vec<Value> = depth
        .streams
        .iter()
        .map(|(name, stream)| {
            json!({
                "stream": name,
                "records": stream.records,
                "bytes": stream.bytes,
                "oldest_at": stream.oldest.map(unix_ms::of),
                "set_aside": stream.set_aside,
            })
        })
        .collect();
    let aside: Vec<Value> = aside
        .iter()
        .map(|found| {
            json!({
                "number": found.number,
                "stream": found.stream,
                "partition_key": found.partition_key,
                "bytes": found.bytes,
                "stored_at": unix_ms::of(found.stored_at),
                "reason": found.reason,
            })
        })
        .collect();
    json!({
        "folder": spool.folder().to_string_lossy(),
        "disk_bytes": depth.disk_bytes,
        "streams": streams,
        "set_aside": aside,
    })
}
