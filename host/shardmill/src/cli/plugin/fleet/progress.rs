//! How a fleet is told of, in lines and as JSON.

use serde_json::{Value, json};
use shardmill_plugin::Digest;

use crate::cli::text;
use crate::fleet::deployment::Deployment;
use crate::fleet::life::Life;
use crate::fleet::outlook::{Member, Progress, Stand, State};
use crate::fleet::source::Source;

/// What an operator has asked for, in one line.
pub(super) fn wanted(deployment: &Deployment) -> String {
    match deployment.wanted() {
        None => "each worker's file".to_owned(),
        Some(wanted) => format!("{} for {}, from {}", wanted.digest.short(), deployment.share(), shown(&wanted.source)),
    }
}

pub(super) fn wanted_json(deployment: &Deployment) -> Value {
    let wanted = deployment.wanted();
    json!({
        "digest": wanted.map(|wanted| wanted.digest.to_string()),
        "source": wanted.map(|wanted| shown(&wanted.source)),
        "share": wanted.map(|_| u8::from(deployment.share())),
    })
}

/// A source without what lets everybody in.
pub(super) fn shown(source: &str) -> String {
    Source::parse(source).map_or_else(|_| text::line(source), |source| source.to_string())
}

pub(super) fn short(digest: Option<Digest>) -> String {
    digest.map(|digest| digest.short()).unwrap_or_default()
}

/// A word for how a worker stands, and the reason.
pub(super) fn state(member: &Member, stand: &Stand) -> String {
    let life = match member.life {
        Life::Alive | Life::Unproven if member.is_leaving => return "leaving".to_owned(),
        Life::Alive => None,
        Life::Unproven => Some("may be gone"),
        Life::Silent => Some("silent"),
    };
    let state = match &stand.state {
        State::AsWanted => "as wanted".to_owned(),
        State::Pending => format!("to run {}", short(stand.aim)),
        State::Trouble(reason) => format!("cannot run {}: {}", short(stand.aim), text::line(reason)),
        State::Local => format!("told by itself, in place of {}", short(stand.aim)),
        State::Untold => "says nothing of it".to_owned(),
    };
    life.map_or_else(|| state.clone(), |life| format!("{life}; {state}"))
}

pub(super) fn stand_json(member: &Member, stand: &Stand) -> Value {
    let (word, reason) = match &stand.state {
        State::AsWanted => ("as-wanted", None),
        State::Pending => ("pending", None),
        State::Trouble(reason) => ("trouble", Some(reason)),
        State::Local => ("local", None),
        State::Untold => ("untold", None),
    };
    json!({
        "life": life(member.life),
        "is_leaving": member.is_leaving,
        "running": stand.running.map(|digest| digest.to_string()),
        "should_run": stand.aim.map(|digest| digest.to_string()),
        "state": word,
        "trouble": reason,
    })
}

pub(in crate::cli) fn life(life: Life) -> &'static str {
    match life {
        Life::Alive => "alive",
        Life::Unproven => "unproven",
        Life::Silent => "silent",
    }
}

/// How far a deploy is, in one line.
pub(super) fn line(progress: &Progress) -> String {
    let Progress { have, should, troubles, .. } = progress;
    let workers = text::counted(*should as u64, "worker");
    match troubles.as_slice() {
        [] => format!("{have} of {workers} run it"),
        [(worker, reason), ..] => {
            let (worker, reason) = (text::line(worker), text::line(reason));
            format!("{have} of {workers} run it; {} cannot: {worker}: {reason}", troubles.len())
        }
    }
}
