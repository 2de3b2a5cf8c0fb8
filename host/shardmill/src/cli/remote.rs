//! `shardmill status`, `pause`, `resume`, `restart` and `rewind`: a running worker is asked, or told what to do.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use comfy_table::{Table, presets};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Method, Request, Uri, header};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use shardmill_cause::with_causes;
use shardmill_stream::StartPosition;
use tokio::net::TcpStream;

use super::{Failure, output};
use crate::admin::commands::{Answer, Command, Order, ShardResult};
use crate::admin::read_token;

pub(super) const EXAMPLES: &str = "\
Examples:
  shardmill status
  shardmill status --json --admin http://10.0.0.7:9465
  shardmill pause orders --token-file token
  shardmill resume orders --shard shardId-000000000003
  shardmill restart orders
  shardmill rewind orders --to 2026-01-01T00:00:00Z
  shardmill rewind orders --to trim-horizon --shard shardId-000000000000

A command is for the shards that the asked worker has: for all of them where none is named. It
needs the token that `token-file` or `token-env` in the worker's [admin] names. A pause holds for
as long as that worker has the shard. A rewind is written to the lease table, and holds for
whoever has the shard then: records are processed again, or passed over. One of all shards names
those that it does not reach. Exit status 1: not done for every shard that is meant.";

/// How long an answer may take. A rewind is waited for by the worker itself.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug, Args)]
pub(super) struct Server {
    /// The admin server of the worker.
    #[arg(long, value_name = "URL", env = "SHARDMILL_ADMIN", default_value = "http://127.0.0.1:9465")]
    admin: Uri,
}

#[derive(Debug, Args)]
pub(super) struct StatusArguments {
    #[command(flatten)]
    server: Server,
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
    /// The file with the token; else the token itself is taken from SHARDMILL_ADMIN_TOKEN.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
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
    let (code, body) = ask(&arguments.server.admin, Method::GET, "/v1/status", None, Vec::new()).await?;
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

async fn send(
    command: Command,
    arguments: &Arguments,
    to: Option<StartPosition>,
    open_only: bool,
) -> Result<(), Failure> {
    let Arguments { processor, shards, server, token_file, json } = arguments;
    let token = match token_file {
        Some(path) => read_token(path).map_err(|error| {
            Failure::configuration(format!("the token's file {} cannot be read: {error}", path.display()))
        })?,
        None => std::env::var_os("SHARDMILL_ADMIN_TOKEN").unwrap_or_default().into_encoded_bytes(),
    };
    let order = Order { shards: (!shards.is_empty()).then(|| shards.clone()), to, open_only };
    let body = serde_json::to_vec(&order).map_err(|error| Failure::running(error.to_string()))?;
    let name = serde_json::to_value(command).ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default();
    let path = format!("/v1/processors/{processor}/{name}");
    let (code, body) = ask(&server.admin, Method::POST, &path, Some(&token), body).await?;
    let answer = expect(code, &body)?;
    if *json {
        output::line(format_args!("{answer:#}"));
    }
    let Answer { shards, not_reached, .. } = serde_json::from_value(answer)
        .map_err(|error| Failure::running(format!("the answer of {} makes no sense: {error}", server.admin)))?;
    for ShardResult { shard, stream, result, .. } in shards.iter().filter(|_| !json) {
        output::line(format_args!("{shard} of stream {stream}: {result}"));
    }
    for ShardResult { shard, stream, result, .. } in not_reached.iter().filter(|_| !json) {
        output::line(format_args!("{shard} of stream {stream}: left as it is: {result}"));
    }
    let all = shards.len() + not_reached.len();
    match shards.iter().filter(|shard| !shard.done).count() + not_reached.len() {
        _ if shards.is_empty() => {
            Err(Failure::running(format!("this worker has no shard of {processor}: nothing was done")))
        }
        0 => Ok(()),
        undone => Err(Failure::running(format!("not done for {undone} of {all} shards"))),
    }
}

/// Asks once; status and body.
async fn ask(
    server: &Uri,
    method: Method,
    path: &str,
    token: Option<&[u8]>,
    body: Vec<u8>,
) -> Result<(u16, Bytes), Failure> {
    let wrong =
        |what: &str| Failure::configuration(format!("`{server}` is not the address of an admin server: {what}"));
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
    if let Some(token) = token {
        let mut value = header::HeaderValue::from_bytes(&[b"Bearer ", token.trim_ascii()].concat())
            .map_err(|_| Failure::configuration("the token holds characters that no token has"))?;
        value.set_sensitive(true);
        request = request.header(header::AUTHORIZATION, value);
    }
    let request = request
        .body(Full::new(Bytes::from(body)))
        .map_err(|error| Failure::configuration(format!("`{path}` cannot be asked for: {error}")))?;
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
    match tokio::time::timeout(LIMIT, exchange).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => {
            let reason = with_causes(error.as_ref());
            Err(Failure::unavailable(format!("{server} cannot be reached: {reason}"))
                .help("name the worker's admin server with --admin URL; its log says where it listens"))
        }
        Err(_elapsed) => Err(Failure::unavailable(format!("{server} does not answer within {LIMIT:?}"))),
    }
}

/// The body of a good answer; what a bad one says.
fn expect(code: u16, body: &[u8]) -> Result<Value, Failure> {
    let value: Option<Value> = serde_json::from_slice(body).ok();
    let said = || match value.as_ref().and_then(|value| value["error"].as_str()) {
        Some(error) => error.to_owned(),
        None => format!("HTTP status {code}, and nothing that can be read: is this a worker's admin server?"),
    };
    match (code, &value) {
        (200, Some(_)) => Ok(value.unwrap_or_default()),
        (401 | 403, _) => Err(Failure::not_permitted(said())
            .help("name the token's file with --token-file FILE, or set SHARDMILL_ADMIN_TOKEN")),
        _ => Err(Failure::running(said())),
    }
}

/// A table for people. What is not known is left empty.
fn show(status: &Value) {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    output::line(format_args!("worker {}", text(&status["worker"])));
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header(["processor", "stream", "shard", "state", "behind", "of retention", "checkpoint"]);
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
    for (processor, consumer) in status["processors"].as_object().into_iter().flatten() {
        for alarm in consumer["alarms"].as_object().into_iter().flat_map(|alarms| alarms.values()) {
            output::line(format_args!("alarm: processor {processor}: {}", text(alarm)));
        }
    }
    for reason in status["unready"].as_array().into_iter().flatten() {
        output::line(format_args!("not ready: {}", text(reason)));
    }
}
