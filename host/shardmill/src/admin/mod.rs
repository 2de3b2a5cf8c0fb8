//! Health and metrics over HTTP, for Kubernetes, Prometheus and people, and commands for who has the token. Binds to
//! loopback unless told otherwise.

pub(crate) mod commands;
mod token;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use prometheus_client::registry::Registry;
use shardmill_engine::Status;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub(crate) use token::read as read_token;
pub use token::{Error as TokenError, Token};

/// The media type of what [`prometheus_client`] writes.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Why the server cannot start.
#[derive(Debug, thiserror::Error)]
#[error(
    "the admin server cannot listen on {address}: {source}; set another address with `listen` in [admin], or `enabled = false`"
)]
pub struct Error {
    address: SocketAddr,
    source: std::io::Error,
}

/// What the server tells.
#[derive(Clone)]
pub struct Sources {
    /// What shards are doing.
    pub status: Status,
    /// All metrics.
    pub registry: Arc<Registry>,
    /// Cancelled when the process is stopping, which makes it not ready.
    pub stopping: CancellationToken,
    /// What commands need; without it there are none.
    pub token: Option<Token>,
    /// This worker's id.
    pub worker: Arc<str>,
}

/// A server that has its port.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
}

// === impl Server ===

impl Server {
    /// Takes the port.
    pub async fn bind(address: SocketAddr) -> Result<Self, Error> {
        let failed = |source| Error { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until told to stop.
    pub async fn serve(self, sources: Sources, stop: CancellationToken) -> std::io::Result<()> {
        axum::serve(self.listener, routes(sources)).with_graceful_shutdown(stop.cancelled_owned()).await
    }
}

fn routes(sources: Sources) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .route("/status", get(status))
        .route("/v1/status", get(status_v1))
        .route(
            "/v1/processors/{processor}/{command}",
            post(commands::command).layer(from_fn_with_state(sources.clone(), commands::authorize)),
        )
        .with_state(sources)
}

/// 200 when every consumer has started, and no shard is stopped or makes no progress; else 503 and the reasons, a line
/// each. That a shard is paused is said, and is no reason: somebody wants it to be.
async fn ready(State(sources): State<Sources>) -> Response {
    let reasons = unready(&sources);
    if reasons.is_empty() {
        let notes = sources.status.notes();
        return std::iter::once("ready".to_owned())
            .chain(notes)
            .map(|line| line + "\n")
            .collect::<String>()
            .into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, reasons.join("\n") + "\n").into_response()
}

fn unready(sources: &Sources) -> Vec<String> {
    let mut reasons = sources.status.unready();
    if sources.stopping.is_cancelled() {
        reasons.push("the process is stopping".to_owned());
    }
    reasons
}

async fn metrics(State(sources): State<Sources>) -> Response {
    let mut text = String::new();
    match prometheus_client::encoding::text::encode(&mut text, &sources.registry) {
        Ok(()) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, "the metrics could not be written\n").into_response(),
    }
}

async fn status(State(sources): State<Sources>) -> Response {
    Json(sources.status.snapshot()).into_response()
}

/// The same, with what else is known of this worker.
async fn status_v1(State(sources): State<Sources>) -> Response {
    let body = serde_json::json!({
        "worker": sources.worker.as_ref(),
        "unready": unready(&sources),
        "processors": sources.status.snapshot(),
    });
    Json(body).into_response()
}

/// Milliseconds since 1970.
fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
