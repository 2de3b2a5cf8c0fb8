//! What an operator can tell shards to do, with the token. Each command is about all shards of a processor that this
//! worker has, or about those that its body names.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::json;
use shardmill_engine::{ConsumerStatus, ShardStatus, Uncovered};
use shardmill_lease::change::Restart;
use shardmill_stream::StartPosition;

use super::Sources;
use crate::unix_ms;

/// How long a rewind is waited for. It needs one write to the lease table.
const REWIND_LIMIT: Duration = Duration::from_secs(30);
/// How far ahead of this machine's clock another's may be.
const CLOCKS: u64 = 60_000;

/// A command's name in the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Command {
    Pause,
    Resume,
    Restart,
    Rewind,
}

/// A command's body; an empty one counts as `{}`.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Order {
    /// Shard ids, or keys of leases; without it, all shards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) shards: Option<Vec<String>>,
    /// Where to begin: for `rewind` alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) to: Option<StartPosition>,
    /// For a `rewind` of all shards: also where closed shards, which are not read again, may hold records from there on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) open_only: bool,
}

/// What came of a command for one shard.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct ShardResult {
    pub(crate) lease: String,
    pub(crate) stream: String,
    pub(crate) shard: String,
    /// Whether it was carried out, or will be.
    pub(crate) done: bool,
    /// What happened.
    pub(crate) result: String,
}

/// What came of a command.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Answer {
    pub(crate) processor: String,
    pub(crate) shards: Vec<ShardResult>,
    /// Of a `rewind` of all shards: those that it has not reached, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) not_reached: Vec<ShardResult>,
}

/// A command that makes sense.
#[derive(Debug, Clone, Copy)]
struct Told<'a> {
    processor: &'a str,
    command: Command,
    to: Option<Restart>,
    /// Whether it names shards.
    is_named: bool,
}

/// Why nothing was done.
struct Refusal(StatusCode, String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.0, Json(json!({ "error": self.1 }))).into_response()
    }
}

/// Lets through who has the token.
pub(super) async fn authorize(State(sources): State<Sources>, request: Request, next: Next) -> Response {
    let Some(token) = &sources.token else {
        let hint = "this worker takes no commands: set `token-file` or `token-env` in [admin], and restart it";
        return Refusal(StatusCode::NOT_FOUND, hint.to_owned()).into_response();
    };
    let given = request.headers().get(header::AUTHORIZATION).map(header::HeaderValue::as_bytes);
    let bearer =
        given.and_then(|given| given.split_at_checked(7)).filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"bearer "));
    if bearer.is_none_or(|(_, given)| !token.is(given.trim_ascii())) {
        let refusal =
            Refusal(StatusCode::UNAUTHORIZED, "commands need the token: `Authorization: Bearer …`".to_owned());
        return ([(header::WWW_AUTHENTICATE, "Bearer")], refusal).into_response();
    }
    next.run(request).await
}

/// `POST /v1/processors/{processor}/{command}`
pub(super) async fn command(
    State(sources): State<Sources>,
    Path((processor, command)): Path<(String, String)>,
    body: Bytes,
) -> Response {
    match carry_out(&sources, &processor, &command, &body).await {
        Ok(answer) => Json(answer).into_response(),
        Err(refusal) => refusal.into_response(),
    }
}

async fn carry_out(sources: &Sources, processor: &str, command: &str, body: &[u8]) -> Result<Answer, Refusal> {
    let bad = |reason: String| Refusal(StatusCode::BAD_REQUEST, reason);
    let known = "there are pause, resume, restart and rewind";
    let name = serde_json::Value::from(command);
    let command: Command = serde_json::from_value(name)
        .map_err(|_| Refusal(StatusCode::NOT_FOUND, format!("there is no command `{command}`: {known}")))?;
    let body = if body.trim_ascii().is_empty() { b"{}" } else { body };
    let order: Order = serde_json::from_slice(body)
        .map_err(|error| bad(format!("the body is not `{{\"shards\": [\"…\"], \"to\": \"…\"}}`: {error}")))?;
    let to = match (command, order.to) {
        (Command::Rewind, Some(to)) => Some(restart(to).map_err(bad)?),
        (Command::Rewind, None) => {
            return Err(bad("`to` is missing: a time, \"trim-horizon\" or \"latest\"".to_owned()));
        }
        (_, Some(_)) => return Err(bad("`to` is for rewind alone".to_owned())),
        (_, None) if order.open_only => return Err(bad("`open_only` is for rewind alone".to_owned())),
        (_, None) => None,
    };
    let mut consumers = sources.status.snapshot();
    let Some(consumer) = consumers.remove(processor) else {
        let names = consumers.into_keys().collect::<Vec<_>>().join(", ");
        return Err(Refusal(StatusCode::NOT_FOUND, format!("there is no processor `{processor}`: there is {names}")));
    };
    let chosen = choose(&consumer, order.shards.as_deref())?;
    let not_reached = match to {
        Some(to) if order.shards.is_none() => not_reached(sources, processor, to, order.open_only).await?,
        _ => Vec::new(),
    };
    tracing::info!(processor, ?command, shards = chosen.len(), "an operator's command");
    let told = Told { processor, command, to, is_named: order.shards.is_some() };
    let results = chosen.into_iter().map(|(lease, shard)| tell(sources, told, lease, shard));
    Ok(Answer { processor: processor.to_owned(), shards: futures::future::join_all(results).await, not_reached })
}

/// What a rewind of all shards that are here leaves as it is. Refused where that is closed shards, and nobody has said that
/// these are not meant: who rewinds over a split or a merge would otherwise get a part of the records, and not know it.
async fn not_reached(
    sources: &Sources,
    processor: &str,
    to: Restart,
    open_only: bool,
) -> Result<Vec<ShardResult>, Refusal> {
    let found = sources.status.uncovered(processor, to).await;
    let found = found.map_err(|reason| {
        let reason =
            format!("which shards there are is not known, nothing was done: {reason}; name the shards, or try again");
        Refusal(StatusCode::SERVICE_UNAVAILABLE, reason)
    })?;
    let done: Vec<&str> = found.iter().filter(|shard| shard.is_done).map(|shard| shard.shard.as_str()).collect();
    if !done.is_empty() && !open_only {
        let reason = format!(
            "closed shards may hold records from there on, and they are done and are not read again: {}; nothing was done; to rewind the others alone, say `open_only` (`--open-only`)",
            done.join(", ")
        );
        return Err(Refusal(StatusCode::CONFLICT, reason));
    }
    let result =
        |Uncovered { lease, stream, shard, why, .. }| ShardResult { lease, stream, shard, done: false, result: why };
    // Whoever has said so knows of the closed ones.
    Ok(found.into_iter().filter(|shard| !shard.is_done).map(result).collect())
}

/// All or nothing: a shard that is not here is a mistake, and then nothing is done.
fn choose(consumer: &ConsumerStatus, wanted: Option<&[String]>) -> Result<BTreeMap<String, ShardStatus>, Refusal> {
    let Some(wanted) = wanted else { return Ok(consumer.shards.clone()) };
    let mut chosen = BTreeMap::new();
    for name in wanted {
        let is_meant = |(lease, shard): &(&String, &ShardStatus)| *lease == name || shard.shard == *name;
        let found: Vec<_> = consumer.shards.iter().filter(is_meant).collect();
        match found[..] {
            [(lease, shard)] => _ = chosen.insert(lease.clone(), shard.clone()),
            [] => {
                let here = consumer.shards.keys().cloned().collect::<Vec<_>>().join(", ");
                let here = if here.is_empty() { "none".to_owned() } else { here };
                let reason = format!(
                    "this worker does not have the shard `{name}`, nothing was done: it has {here}; ask the worker that has it"
                );
                return Err(Refusal(StatusCode::NOT_FOUND, reason));
            }
            [..] => {
                let keys = found.iter().map(|(lease, _)| lease.as_str()).collect::<Vec<_>>().join(", ");
                let reason = format!("several streams have a shard `{name}`, nothing was done: name the lease, {keys}");
                return Err(Refusal(StatusCode::CONFLICT, reason));
            }
        }
    }
    Ok(chosen)
}

async fn tell(sources: &Sources, told: Told<'_>, lease: String, shard: ShardStatus) -> ShardResult {
    let Told { processor, command, to, is_named } = told;
    let gone = || (false, "this worker has let the shard go meanwhile".to_owned());
    let status = &sources.status;
    let done = |done: bool, what: &str| (done, what.to_owned());
    let (done, result) = match (command, to) {
        (Command::Pause, _) => status.pause(processor, &lease).map_or_else(gone, |changed| match changed {
            true => done(true, "pauses once the batch in hand is done"),
            false => done(true, "was paused before"),
        }),
        (Command::Resume, _) => status.resume(processor, &lease).map_or_else(gone, |changed| match changed {
            true => done(true, "goes on"),
            false => done(true, "was not paused"),
        }),
        (Command::Restart, _) => match status.restart(processor, &lease) {
            true => done(true, "begins again from its last checkpoint"),
            // Of all shards those are meant that are stopped.
            false => done(!is_named, "is not stopped, and is left as it is"),
        },
        (Command::Rewind, None) => done(false, "nobody said where to"),
        (Command::Rewind, Some(to)) => match status.rewind(processor, &lease, to) {
            None => gone(),
            Some(answer) => match tokio::time::timeout(REWIND_LIMIT, answer).await {
                Ok(Ok(())) => (true, rewound(status.retention_hours(processor, &lease), to)),
                Ok(Err(reason)) => (false, reason),
                Err(_elapsed) => done(false, "is not rewound yet; it will be when the lease table takes it"),
            },
        },
    };
    ShardResult { lease, stream: shard.stream, shard: shard.shard, done, result }
}

/// What is said of a shard that is rewound: also that it begins later than that, where older records are gone.
fn rewound(retention_hours: Option<u32>, to: Restart) -> String {
    match (to, retention_hours) {
        (Restart::At(at), Some(hours)) if at + u64::from(hours) * 3_600_000 < unix_ms::now() => {
            format!("is rewound to the oldest record that there is: its stream keeps records for {hours} h")
        }
        _ => "is rewound".to_owned(),
    }
}

fn restart(to: StartPosition) -> Result<Restart, String> {
    let now = unix_ms::now();
    match to {
        StartPosition::TrimHorizon => Ok(Restart::TrimHorizon),
        StartPosition::Latest => Ok(Restart::Latest(now)),
        StartPosition::AtTimestamp(at) if at > now + CLOCKS => Err(format!("`to` is {to}, which is still to come")),
        StartPosition::AtTimestamp(at) => Ok(Restart::At(at)),
    }
}
