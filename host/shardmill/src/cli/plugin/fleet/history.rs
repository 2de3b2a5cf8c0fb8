//! `shardmill plugin history`

use clap::Args;
use serde_json::{Value, json};

use super::{Place, failed, progress};
use crate::cli::{ConfigArguments, Failure, output, table, text};
use crate::fleet::documents;
use crate::fleet::history::Entry;

#[derive(Debug, Args)]
pub(in crate::cli) struct Arguments {
    /// The processor's name.
    #[arg(value_name = "PROCESSOR")]
    processor: String,
    #[command(flatten)]
    config: ConfigArguments,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The newest first.
pub(in crate::cli) async fn history(arguments: &Arguments) -> Result<(), Failure> {
    let Arguments { processor, config, json } = arguments;
    let place = Place::open(&config.config).await?;
    let tables = place.home(processor)?;
    let read = async { documents::read(&tables, processor).await.map_err(failed) };
    let deployment = place.unless_stopped(read).await?.deployment;
    let entries = deployment.history().entries().iter().rev();
    if *json {
        let entries: Vec<Value> = entries.map(as_json).collect();
        let history = json!({
            "processor": processor,
            "wanted": progress::wanted_json(&deployment),
            "history": entries,
        });
        output::line(text::json(&history));
        return Ok(());
    }
    output::line(format_args!("{processor}: wanted is {}", progress::wanted(&deployment)));
    let mut table = table::wide(["when", "what", "digest", "share", "by", "source"], &[]);
    for Entry { at, by, why, digest, source, share } in entries {
        table.add_row([
            text::time(*at),
            why.as_str().to_owned(),
            digest.short(),
            share.to_string(),
            text::line(by),
            progress::shown(source),
        ]);
    }
    output::line(&table);
    Ok(())
}

fn as_json(entry: &Entry) -> Value {
    let Entry { at, by, why, digest, source, share } = entry;
    json!({
        "at": at,
        "by": by,
        "what": why.as_str(),
        "digest": digest.to_string(),
        "source": progress::shown(source),
        "share": u8::from(*share),
    })
}
