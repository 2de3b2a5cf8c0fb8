//! `shardmill plugin list`

use clap::Args;
use futures::future::join_all;
use serde_json::{Map, Value, json};

use super::{Place, failed, progress, wait};
use crate::cli::{ConfigArguments, Failure, output, table, text};
use crate::fleet::deployment::Deployment;
use crate::fleet::documents;
use crate::fleet::outlook::Member;

#[derive(Debug, Args)]
pub(in crate::cli) struct Arguments {
    /// Only this processor.
    #[arg(value_name = "PROCESSOR")]
    processor: Option<String>,
    #[command(flatten)]
    config: ConfigArguments,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// A processor, and the workers of the consumer in whose table its document is.
pub(in crate::cli) struct Listed {
    pub(in crate::cli) processor: String,
    pub(in crate::cli) deployment: Deployment,
    pub(in crate::cli) members: Vec<Member>,
}

pub(in crate::cli) async fn list(arguments: &Arguments) -> Result<(), Failure> {
    let place = Place::open(&arguments.config.config).await?;
    let names = match &arguments.processor {
        Some(name) => vec![place.processor(name)?.name.clone()],
        None => place.config.processors.keys().cloned().collect(),
    };
    let looked = async { Ok(join_all(names.iter().map(|name| look(&place, name))).await) };
    let looked = place.unless_stopped(looked).await?;
    // What is known is shown, whatever is not.
    if arguments.json {
        let json = |looked: &Result<Listed, Failure>| looked.as_ref().map_or_else(Failure::json, Listed::json);
        let processors: Map<String, Value> = names.into_iter().zip(looked.iter().map(json)).collect();
        output::line(text::json(&json!({ "processors": processors })));
    } else {
        for listed in looked.iter().flatten() {
            output::line(format_args!("processor {}: wanted is {}", listed.processor, listed.wanted()));
            output::line(listed.table());
        }
    }
    Failure::first(looked.into_iter().filter_map(Result::err))
}

async fn look(place: &Place, processor: &str) -> Result<Listed, Failure> {
    let tables = place.home(processor)?;
    let document = async { documents::read(&tables, processor).await.map_err(failed) };
    let (document, members) = tokio::try_join!(document, wait::members(&tables, &place.config.leases))?;
    Ok(Listed { processor: processor.to_owned(), deployment: document.deployment, members })
}

// === impl Listed ===

impl Listed {
    /// A line for each worker.
    pub(in crate::cli) fn table(&self) -> comfy_table::Table {
        let mut table = table::wide(["worker", "running", "since", "state"], &[]);
        for member in &self.members {
            let stand = member.stand(&self.processor, &self.deployment);
            let since = member.note.plugins.get(&self.processor).map(|plugin| text::time(plugin.since));
            table.add_row([
                text::line(member.id.as_str()),
                progress::short(stand.running),
                since.unwrap_or_default(),
                progress::state(member, &stand),
            ]);
        }
        table
    }

    pub(in crate::cli) fn json(&self) -> Value {
        let workers = self.members.iter().map(|member| {
            let stand = member.stand(&self.processor, &self.deployment);
            (member.id.to_string(), progress::stand_json(member, &stand))
        });
        json!({
            "wanted": progress::wanted_json(&self.deployment),
            "workers": workers.collect::<Map<String, Value>>(),
        })
    }

    pub(in crate::cli) fn wanted(&self) -> String {
        progress::wanted(&self.deployment)
    }
}
