//! Other versions of plugins, and the configuration read again, over HTTP with the token. What runs is told to everybody.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use shardmill_cause::{Code, Coded, code, with_causes};
use shardmill_plugin::Digest;
use tokio::task::JoinError;

use super::Sources;
use crate::deploy::{Candidate, Deployed, Refusal, Reloader, Why};

/// The SHA-256 that the body must have, in hexadecimal digits.
pub(crate) const DIGEST: &str = "x-shardmill-digest";
/// Where the plugin comes from: for messages.
pub(crate) const FROM: &str = "x-shardmill-from";
/// Of that text so much is kept.
const FROM_CHARACTERS: usize = 500;

/// What came of a deploy that was not refused.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct DeployAnswer {
    pub(crate) processor: String,
    /// Whether another version runs now.
    pub(crate) switched: bool,
    /// What ran before.
    pub(crate) from: String,
    /// What runs now.
    pub(crate) to: String,
    /// For how long it lasts, as a sentence.
    pub(crate) lasts: String,
    /// Shards of the processor that its failure policy has stopped, and that stay so until they are restarted.
    pub(crate) stopped_shards: usize,
}

/// `POST /v1/processors/{processor}/deploy`, with the component as its body.
pub(super) async fn deploy(
    State(sources): State<Sources>,
    Path(processor): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let expect = match text(DIGEST).map(|text| Digest::parse(text.trim()).ok_or(text)) {
        Some(Err(text)) => {
            let reason = format!("`{DIGEST}: {text}` is not a SHA-256: 64 hexadecimal digits are expected");
            return refuse(StatusCode::BAD_REQUEST, code::deploy::DIGEST, &reason);
        }
        given => given.and_then(Result::ok),
    };
    let from = text(FROM).filter(|from| !from.trim().is_empty()).unwrap_or_else(|| "the admin API".to_owned());
    let from = from.chars().take(FROM_CHARACTERS).collect();
    let digest = Digest::of(&body);
    let candidate = Candidate { bytes: body.to_vec(), from, expect };
    let deployer = sources.reloader.deployer().clone();
    // On a task of its own: whoever hangs up meanwhile has asked for it all the same.
    let name = processor.clone();
    let deploying = tokio::spawn(async move {
        let deployed = deployer.deploy(&name, candidate).await?;
        Ok::<_, Refusal>((deployed, deployer.stopped_shards(&name), deployer.file(&name)))
    });
    let (deployed, stopped_shards, file) = match deploying.await {
        Ok(Ok(deployed)) => deployed,
        Ok(Err(refusal)) => return refuse(status_of(&refusal), refusal.code(), &with_causes(&refusal)),
        Err(broken) => return broke_down(&broken),
    };
    let lasts = format!(
        "it lasts until this worker's next start, until {file} changes, or until another version is deployed to the whole \
         fleet: put it there as well for it to stay"
    );
    let (switched, from) = match deployed {
        Deployed::Switched { from, .. } => (true, from),
        Deployed::Unchanged => (false, digest),
    };
    let (from, to) = (from.to_string(), digest.to_string());
    Json(DeployAnswer { processor, switched, from, to, lasts, stopped_shards }).into_response()
}

/// `POST /v1/reload`
pub(super) async fn reload(State(sources): State<Sources>) -> Response {
    let reloader = sources.reloader.clone();
    match tokio::spawn(async move { reloader.reload(Why::Request).await }).await {
        Ok(report) => {
            let status = if report.refused.is_none() { StatusCode::OK } else { StatusCode::UNPROCESSABLE_ENTITY };
            let mut body = json!(report);
            if let Some(reason) = &report.refused {
                body["error"] = format!("the configuration is not taken, nothing has changed: {reason}").into();
                body["code"] = code::deploy::NOT_TAKEN.name().into();
            }
            (status, Json(body)).into_response()
        }
        Err(broken) => broke_down(&broken),
    }
}

/// What every processor is doing, with its plugin. One that reads no stream has nothing else.
pub(super) fn processors(sources: &Sources) -> Value {
    let mut processors = json!(sources.status.snapshot());
    for (name, shown) in sources.reloader.deployer().shown() {
        processors[name]["plugin"] = json!(shown);
    }
    processors
}

/// What should be known of plugins and the configuration, a sentence for each.
pub(super) fn notes(reloader: &Reloader) -> Vec<String> {
    let shown = reloader.deployer().shown();
    let of_plugins = shown.iter().flat_map(|(name, shown)| shown.notes(name));
    of_plugins.chain(reloader.notes()).collect()
}

fn status_of(refusal: &Refusal) -> StatusCode {
    match refusal {
        Refusal::NoProcessor { .. } => StatusCode::NOT_FOUND,
        Refusal::Stopping => StatusCode::SERVICE_UNAVAILABLE,
        _other => StatusCode::UNPROCESSABLE_ENTITY,
    }
}

fn refuse(status: StatusCode, code: Code, reason: &str) -> Response {
    (status, Json(json!({ "error": reason, "code": code.name() }))).into_response()
}

fn broke_down(broken: &JoinError) -> Response {
    refuse(StatusCode::INTERNAL_SERVER_ERROR, code::process::BROKE_DOWN, &broken.to_string())
}
