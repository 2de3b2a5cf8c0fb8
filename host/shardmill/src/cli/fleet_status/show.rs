//! What is shown of a fleet.

use std::fmt::Write as _;
use std::time::Duration;

use comfy_table::Table;
use serde_json::{Map, Value, json};
use shardmill_lease::Lease;

use super::Seen;
use crate::cli::plugin::fleet::life;
use crate::cli::{Failure, table, text};
use crate::fleet::life::Life;
use crate::fleet::outlook::Member;

/// Tables for people. What is not known is left empty.
pub(super) fn text(application: &str, seen: &[Seen]) -> String {
    let mut out = format!("application {}\n", text::line(application));
    for consumer in seen {
        // A text takes all that is written to it.
        let _ = consumer.write(&mut out);
    }
    out
}

/// `unseen`: consumers of which nothing can be seen, and why.
pub(super) fn json(application: &str, seen: &[Seen], unseen: &[(String, Failure)]) -> Value {
    let consumers = seen.iter().map(|seen| (seen.consumer.clone(), seen.json()));
    let consumers: Map<String, Value> = consumers.chain(unseen.iter().map(error)).collect();
    let plugins = seen.iter().flat_map(|seen| &seen.plugins).map(|listed| (listed.processor.clone(), listed.json()));
    let unread = seen.iter().flat_map(|seen| &seen.unread).map(error);
    let plugins: Map<String, Value> = plugins.chain(unread).collect();
    json!({ "application": application, "consumers": consumers, "plugins": plugins })
}

fn error((name, failure): &(String, Failure)) -> (String, Value) {
    (name.clone(), failure.json())
}

// === impl Seen ===

impl Seen {
    fn write(&self, out: &mut String) -> std::fmt::Result {
        let Self { consumer, lease_table, .. } = self;
        writeln!(out, "\nprocessor {}, lease table {}", text::line(consumer), text::line(lease_table))?;
        writeln!(out, "{}", self.workers())?;
        for listed in &self.plugins {
            writeln!(out, "plugin of {}: wanted is {}", text::line(&listed.processor), listed.wanted())?;
            writeln!(out, "{}", listed.table())?;
        }
        writeln!(out, "{}", self.leases())?;
        for row in &self.invalid {
            writeln!(out, "{}", text::line(&format!("cannot be read: {row}")))?;
        }
        Ok(())
    }

    fn workers(&self) -> Table {
        let held = self.held();
        let mut table = table::wide(["worker", "state", "leads", "build", "joined", "leases", "behind"], &[]);
        for member in &self.members {
            table.add_row([
                text::line(member.id.as_str()),
                state(member),
                if member.leads { "leads".to_owned() } else { String::new() },
                text::line(&member.note.build),
                text::time(member.joined),
                held.get(&member.id).copied().unwrap_or(0).to_string(),
                behind(member.note.lag),
            ]);
        }
        table
    }

    fn leases(&self) -> Table {
        let mut table = table::wide(["lease", "owner", "checkpoint", "behind"], &[]);
        for lease in &self.leases {
            table.add_row([
                text::line(lease.key.as_str()),
                text::line(lease.owner.as_ref().map_or("", |owner| owner.as_str())),
                text::line(&lease.checkpoint.to_string()),
                behind(self.lag(lease)),
            ]);
        }
        table
    }

    fn json(&self) -> Value {
        let held = self.held();
        let workers = self.members.iter().map(|member| {
            let worker = json!({
                "life": life(member.life),
                "written_at": Some(member.note.at).filter(|at| *at > 0),
                "is_leaving": member.is_leaving,
                "leads": member.leads,
                "build": member.note.build,
                "joined": member.joined,
                "leases": held.get(&member.id).copied().unwrap_or(0),
                "millis_behind_latest": member.note.lag,
            });
            (member.id.to_string(), worker)
        });
        let leases = self.leases.iter().map(|lease| (lease.key.to_string(), self.lease_json(lease)));
        json!({
            "lease_table": self.lease_table,
            "leader": self.leader.as_ref().map(ToString::to_string),
            "workers": workers.collect::<Map<String, Value>>(),
            "leases": leases.collect::<Map<String, Value>>(),
            "unreadable": self.invalid.iter().map(ToString::to_string).collect::<Vec<_>>(),
        })
    }

    fn lease_json(&self, lease: &Lease) -> Value {
        json!({
            "owner": lease.owner.as_ref().map(ToString::to_string),
            "checkpoint": lease.checkpoint.to_string(),
            "epoch": lease.epoch.get(),
            "is_done": lease.is_complete(),
            "millis_behind_latest": self.lag(lease),
        })
    }
}

/// When it was heard of last is known of workers that say so.
fn state(member: &Member) -> String {
    match (member.life, member.note.at) {
        (Life::Alive, _) if member.is_leaving => "leaving".to_owned(),
        (Life::Alive, _) => "alive".to_owned(),
        (Life::Unproven, _) => "may be gone".to_owned(),
        (Life::Silent, 0) => "silent".to_owned(),
        (Life::Silent, at) => format!("silent since {}", text::time(at)),
    }
}

fn behind(milliseconds: Option<u64>) -> String {
    let duration = milliseconds.map(|milliseconds| Duration::from_secs(milliseconds / 1000));
    duration.map(|duration| humantime::format_duration(duration).to_string()).unwrap_or_default()
}
