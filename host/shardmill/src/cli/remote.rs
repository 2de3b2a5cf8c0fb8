//! `shardmill status`, `pause`, `resume`, `restart`, `rewind` and `reload`: a running worker is asked, or told what to do.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Method, Request, Uri, header};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use shardmill_cause::{Code, code, with_causes};
use shardmill_stream::StartPosition;
use tokio::net::TcpStream;

use super::{Failure, output, table};
use crate::admin::commands::{Answer, Command, Order, ShardResult};
use crate::admin::read_token;

pub(super) const EXAMPLES: &str = "\
Examples:
  shardmill status
  shardmill status --json --admin http://10.0.0.7:9465
  shardmill status --config shardmill.toml     the whole fleet, from its tables
  shardmill pause orders --token-file token
  shardmill resume orders --shard shardId-000000000003
  shardmill restart orders
  shardmill rewind orders --to 2026-01-01T00:00:00Z
  shardmill rewind orders --to trim-horizon --shard shardId-000000000000
  shardmill reload --token-file token

A command is for the shards that the asked worker has: for all of them where none is named. It
needs the token that `token-file` or `token-env` in the worker's [admin] names. A pause holds for
as long as that worker has the shard. A rewind is written to the lease table, and holds for
whoever has the shard then: records are processed again, or passed over. One of all shards names
those that it does not reach. Exit status 1: not done for every shard that is meant.";

/// How long an answer may take. A rewind is waited for by the worker itself.
const LIMIT: Duration = Duration::from_secs(60);
/// The same where plugins may have to be compiled and started.
pub(super) const SLOW_LIMIT: Duration = Duration::from_secs(600);

#[derive(Debug, Args)]
pub(super) struct Server {
    /// The admin server of the worker.
    #[arg(long, value_name = "URL", env = "SHARDMILL_ADMIN", default_value = "http://127.0.0.1:9465")]
    pub(super) admin: Uri,
}

/// What commands need besides.
#[derive(Debug, Args)]
pub(super) struct Token {
    /// The file with the token; else the token itself is taken from SHARDMILL_ADMIN_TOKEN.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// What an admin server is asked for.
#[derive(Debug, Default)]
pub(super) struct Question<'a> {
    pub(super) path: &'a str,
    pub(super) token: Option<&'a [u8]>,
    /// By their names in lower case.
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Vec<u8>,
    /// How long the answer may take, if not as long as any.
    pub(super) limit: Option<Duration>,
}

#[derive(Debug, Args)]
pub(super) struct StatusArguments {
    #[command(flatten)]
    server: Server,
    /// Show all workers of this configuration, from its tables: what they run, their leases, and who leads. No worker is
    /// asked, and none has to live.
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The processor's name.
    #[arg(value_name = "PROCESSOR")]
    processor: String,
    /// A shard's id, or its lease's key where several streams have a shard of that id; may be given again. Without it, all
    /// shards that the worker has.
    #[arg(long = "shard", short, value_name = "SHARD")]
    shards: Vec<String>,
    #[command(flatten)]
    server: Server,
    #[command(flatten)]
    token: Token,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct ReloadArguments {
    #[command(flatten)]
    server: Server,
    #[command(flatten)]
    token: Token,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct RewindArguments {
    #[command(flatten)]
    arguments: Arguments,
    /// Where to begin: a time such as 2026-01-01T00:00:00Z, `trim-horizon` (the oldest record that is kept) or `latest`
    /// (what comes from now on).
    #[arg(long, value_name = "TIME", value_parser = StartPosition::parse)]
    to: StartPosition,
    /// Also where closed shards hold records from there on, which are done and are not read again.
    #[arg(long, conflicts_with = "shards")]
    open_only: bool,
}

/// `shardmill status`
pub(super) async fn status(arguments: &StatusArguments) -> Result<(), Failure> {
    if let Some(config) = &arguments.config {
        return super::fleet_status::status(config, arguments.json).await;
    }
    let question = Question { path: "/v1/status", ..Question::default() };
    let (code, body) = ask(&arguments.server.admin, Method::GET, question).await?;
    let status = expect(code, &body)?;
    if arguments.json {
        output::line(format_args!("{status:#}"));
    } else {
        show(&status);
    }
    Ok(())
}

/// `shardmill pause`, `resume` and `restart`
pub(super) async fn order(command: Command, arguments: &Arguments) -> Result<(), Failure> {
    send(command, arguments, None, false).await
}

/// `shardmill rewind`
pub(super) async fn rewind(arguments: &RewindArguments) -> Result<(), Failure> {
    send(Command::Rewind, &arguments.arguments, Some(arguments.to), arguments.open_only).await
}

/// `shardmill reload`
pub(super) async fn reload(arguments: &ReloadArguments) -> Result<(), Failure> {
    let ReloadArguments { server, token, json } = arguments;
    let token = token.read()?;
    // Plugins may have to be compiled and started.
    let limit = Some(SLOW_LIMIT);
    let question = Question { path: "/v1/reload", token: Some(&token), limit, ..Question::default() };
    let (code, body) = ask(&server.admin, Method::POST, question).await?;
    let answer = expect(code, &body)?;
    if *json {
        output::line(format_args!("{answer:#}"));
        return Ok(());
    }
    for (title, keys) in [("applied", &answer["applied"]), ("needs a restart of the worker", &answer["needs_restart"])]
    {
        for key in keys.as_array().into_iter().flatten() {
            output::line(format_args!("{title}: {}", text_of(key)));
        }
    }
    for (processor, plugin) in answer["processors"].as_object().into_iter().flatten() {
        match (&plugin["from"], &plugin["to"]) {
            (Value::String(from), Value::String(to)) if from != to => {
                output::line(format_args!("plugin of {processor}: {from} was followed by {to}"));
            }
            (_, Value::String(to)) => output::line(format_args!("plugin of {processor}: {to} with other settings")),
            _same => output::line(format_args!("plugin of {processor}: the same")),
        }
    }
    Ok(())
}

async fn send(
    command: Command,
    arguments: &Arguments,
    to: Option<StartPosition>,
    open_only: bool,
) -> Result<(), Failure> {
    let Arguments { processor, shards, server, token, json } = arguments;
    let token = token.read()?;
    let order = Order { shards: (!shards.is_empty()).then(|| shards.clone()), to, open_only };
    let body = serde_json::to_vec(&order).map_err(|error| Failure::running(error.to_string()))?;
    let name = serde_json::to_value(command).ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default();
    let path = format!("/v1/processors/{processor}/{name}");
    let question = Question { path: &path, token: Some(&token), body, ..Question::default() };
    let (code, body) = ask(&server.admin, Method::POST, question).await?;
    let answer = expect(code, &body)?;
    if *json {
        output::line(format_args!("{answer:#}"));
    }
    let Answer { shards, not_reached, .. } = serde_json::from_value(answer).map_err(|error| {
        Failure::running(format!("the answer of {} makes no sense: {error}", server.admin)).code(code::command::ANSWER)
    })?;
    for ShardResult { shard, stream, result, .. } in shards.iter().filter(|_| !json) {
        output::line(format_args!("{shard} of stream {stream}: {result}"));
    }
    for ShardResult { shard, stream, result, .. } in not_reached.iter().filter(|_| !json) {
        output::line(format_args!("{shard} of stream {stream}: left as it is: {result}"));
    }
    let all = shards.len() + not_reached.len();
    match shards.iter().filter(|shard| !shard.done).count() + not_reached.len() {
        _ if shards.is_empty() => {
            Err(Failure::running(format!("this worker has no shard of {processor}: nothing was done"))
                .code(code::command::NOT_DONE))
        }
        0 => Ok(()),
        undone => Err(Failure::running(format!("not done for {undone} of {all} shards")).code(code::command::NOT_DONE)),
    }
}

/// Asks once; status and body.
pub(super) async fn ask(server: &Uri, method: Method, question: Question<'_>) -> Result<(u16, Bytes), Failure> {
    let Question { path, token, headers, body, limit } = question;
    let limit = limit.unwrap_or(LIMIT);
    let wrong = |what: &str| {
        Failure::configuration(format!("`{server}` is not the address of an admin server: {what}"))
            .code(code::command::ADMIN_ADDRESS)
    };
    if server.scheme_str() != Some("http") {
        return Err(wrong("http://ADDRESS:PORT is expected"));
    }
    let host = server.host().ok_or_else(|| wrong("it names no host"))?.trim_matches(['[', ']']);
    let port = server.port_u16().unwrap_or(80);
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, server.authority().map_or("", |authority| authority.as_str()))
        .header(header::CONTENT_TYPE, "application/json");
    for (name, value) in headers {
        request = request.header(name, value);
    }
    if let Some(token) = token {
        let mut value = header::HeaderValue::from_bytes(&[b"Bearer ", token.trim_ascii()].concat()).map_err(|_| {
            Failure::configuration("the token holds characters that no token has").code(code::command::TOKEN)
        })?;
        value.set_sensitive(true);
        request = request.header(header::AUTHORIZATION, value);
    }
    let request = request.body(Full::new(Bytes::from(body))).map_err(|error| {
        Failure::configuration(format!("`{path}` cannot be asked for: {error}")).code(code::command::ADMIN_ADDRESS)
    })?;
    let exchange = async {
        let stream = TcpStream::connect((host, port)).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let answer = async {
            let answer = sender.send_request(request).await?;
            let code = answer.status().as_u16();
            Ok::<_, hyper::Error>((code, answer.into_body().collect().await?.to_bytes()))
        };
        let mut answer = std::pin::pin!(answer);
        let mut connection = std::pin::pin!(connection);
        tokio::select! {
            answer = &mut answer => return Ok(answer?),
            closed = &mut connection => closed?,
        }
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(answer.await?)
    };
    match tokio::time::timeout(limit, exchange).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => {
            let reason = with_causes(error.as_ref());
            Err(Failure::unavailable(format!("{server} cannot be reached: {reason}"))
                .code(code::command::UNREACHABLE)
                .help("name the worker's admin server with --admin URL; its log says where it listens"))
        }
        Err(_elapsed) => {
            Err(Failure::unavailable(format!("{server} does not answer within {limit:?}"))
                .code(code::command::UNREACHABLE))
        }
    }
}

/// The body of a good answer; what a bad one says.
pub(super) fn expect(code: u16, body: &[u8]) -> Result<Value, Failure> {
    let value: Option<Value> = serde_json::from_slice(body).ok();
    let said = || match value.as_ref().and_then(|value| value["error"].as_str()) {
        Some(error) => error.to_owned(),
        None => format!("HTTP status {code}, and nothing that can be read: is this a worker's admin server?"),
    };
    let failure = match (code, &value) {
        (200, Some(_)) => return Ok(value.unwrap_or_default()),
        (422, _) => Failure::configuration(said()).code(code::command::REFUSED_BY_WORKER),
        (401 | 403, _) => Failure::not_permitted(said())
            .code(code::command::TOKEN)
            .help("name the token's file with --token-file FILE, or set SHARDMILL_ADMIN_TOKEN"),
        _ => Failure::running(said()).code(code::command::NOT_DONE),
    };
    // What the worker knows is more particular.
    let told = value.as_ref().and_then(|value| Code::parse(value["code"].as_str()?));
    Err(match told {
        Some(code) => failure.code(code),
        None => failure,
    })
}

fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// A table for people. What is not known is left empty.
fn show(status: &Value) {
    let text = text_of;
    output::line(format_args!("worker {}", text(&status["worker"])));
    let header = ["processor", "stream", "shard", "state", "behind", "of retention", "checkpoint"];
    let mut table = table::wide(header, &[]);
    for (processor, consumer) in status["processors"].as_object().into_iter().flatten() {
        for (key, shard) in consumer["shards"].as_object().into_iter().flatten() {
            let state = match &consumer["stalled"][key]["reason"] {
                Value::String(reason) => format!("{}, stalled: {reason}", text(&shard["state"])),
                _ => text(&shard["state"]),
            };
            let behind = shard["millis_behind_latest"].as_u64();
            let behind = behind.map(|ms| humantime::format_duration(Duration::from_secs(ms / 1000)).to_string());
            let used = shard["retention_used_percent"].as_u64().map(|percent| format!("{percent} %"));
            table.add_row([
                processor.clone(),
                text(&shard["stream"]),
                text(&shard["shard"]),
                state,
                behind.unwrap_or_default(),
                used.unwrap_or_default(),
                text(&shard["checkpoint"]),
            ]);
        }
    }
    output::line(&table);
    show_plugins(status);
    for (processor, consumer) in status["processors"].as_object().into_iter().flatten() {
        for alarm in consumer["alarms"].as_object().into_iter().flat_map(|alarms| alarms.values()) {
            output::line(format_args!("alarm: processor {processor}: {}", text(alarm)));
        }
    }
    for reason in status["unready"].as_array().into_iter().flatten() {
        output::line(format_args!("not ready: {}", text(reason)));
    }
}

/// What runs, what was to run, and what the configuration's file says that is not in force.
fn show_plugins(status: &Value) {
    for (processor, consumer) in status["processors"].as_object().into_iter().flatten() {
        let plugin = &consumer["plugin"];
        let digest: String = text_of(&plugin["digest"]).chars().take(12).collect();
        let (from, since) = (text_of(&plugin["from"]), text_of(&plugin["since"]));
        output::line(format_args!("plugin of {processor}: {digest}… from {from}, since {since}"));
        if let refused @ Value::Object(_) = &plugin["refused"] {
            let digest: String = text_of(&refused["digest"]).chars().take(12).collect();
            let (from, reason) = (text_of(&refused["from"]), text_of(&refused["reason"]));
            output::line(format_args!("plugin of {processor}: {digest}… from {from} is refused: {reason}"));
        }
        if let Value::String(trouble) = &plugin["file"] {
            output::line(format_args!("plugin of {processor}: {trouble}"));
        }
    }
    let configuration = &status["configuration"];
    if let Value::String(reason) = &configuration["refused"] {
        output::line(format_args!("configuration: not taken as it is now: {reason}"));
    }
    for key in configuration["needs_restart"].as_array().into_iter().flatten() {
        output::line(format_args!("configuration: {} has changed, which needs a restart", text_of(key)));
    }
}

// === impl Token ===

impl Token {
    /// The token's bytes.
    pub(super) fn read(&self) -> Result<Vec<u8>, Failure> {
        let unreadable = |path: &Path, error: std::io::Error| {
            Failure::configuration(format!("the token's file {} cannot be read: {error}", path.display()))
                .code(code::command::TOKEN)
        };
        match &self.token_file {
            Some(path) => read_token(path).map_err(|error| unreadable(path, error)),
            None => Ok(std::env::var_os("SHARDMILL_ADMIN_TOKEN").unwrap_or_default().into_encoded_bytes()),
        }
    }
}
