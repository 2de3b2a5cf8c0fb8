//! Health and metrics over HTTP, for Kubernetes, Prometheus and people, and commands for who has the token. Binds to
//! loopback unless told otherwise.

pub(crate) mod commands;
pub(crate) mod deploys;
mod token;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::uri::Authority;
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use prometheus_client::registry::Registry;
use shardmill_engine::Status;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::deploy::{MAX_PLUGIN, Reloader};
use crate::fleet::board::Board;

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
    /// What reads the configuration and the plugins again.
    pub(crate) reloader: Reloader,
    /// What the fleet wants of this worker's plugins.
    pub(crate) fleet: Board,
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
        let routes = match self.address.ip().is_loopback() {
            true => routes(sources).layer(from_fn(from_here)),
            false => routes(sources),
        };
        axum::serve(self.listener, routes).with_graceful_shutdown(stop.cancelled_owned()).await
    }
}

fn routes(sources: Sources) -> Router {
    let with_token = || from_fn_with_state(sources.clone(), commands::authorize);
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .route("/status", get(status))
        .route("/v1/status", get(status_v1))
        .route("/v1/processors/{processor}/{command}", post(commands::command).layer(with_token()))
        .route(
            "/v1/processors/{processor}/deploy",
            post(deploys::deploy).layer(DefaultBodyLimit::max(MAX_PLUGIN)).layer(with_token()),
        )
        .route("/v1/reload", post(deploys::reload).layer(with_token()))
        .with_state(sources)
}

/// Lets requests through that name this machine. A page in a browser of this machine can have its own name point here, and
/// would read what it likes; who names the server by an address or as `localhost` is no such page. Where the server listens
/// on more than loopback, whoever reaches it may read, under whatever name.
async fn from_here(request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    if names_this_machine(host) {
        return next.run(request).await;
    }
    let hint = "a server on loopback is asked by its address, or as localhost\n";
    (StatusCode::MISDIRECTED_REQUEST, hint).into_response()
}

fn names_this_machine(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host();
    let is_address = name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    is_address || name.eq_ignore_ascii_case("localhost")
}

/// 200 when every consumer has started, and no shard is stopped or makes no progress; else 503 and the reasons, a line
/// each. That a shard is paused or far behind is said with both, and is no reason: the one is wanted, and a worker that is
/// behind should not be taken away.
async fn ready(State(sources): State<Sources>) -> Response {
    let reasons = unready(&sources);
    let (code, head) = match reasons.is_empty() {
        true => (StatusCode::OK, Some("ready".to_owned())),
        false => (StatusCode::SERVICE_UNAVAILABLE, None),
    };
    let lines = head
        .into_iter()
        .chain(reasons)
        .chain(sources.status.notes())
        .chain(deploys::notes(&sources.reloader))
        .chain(sources.fleet.notes());
    (code, lines.map(|line| line + "\n").collect::<String>()).into_response()
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
    Json(deploys::processors(&sources)).into_response()
}

/// The same, with what else is known of this worker.
async fn status_v1(State(sources): State<Sources>) -> Response {
    let body = serde_json::json!({
        "worker": sources.worker.as_ref(),
        "unready": unready(&sources),
        "configuration": sources.reloader.told(),
        "fleet": sources.fleet.json(),
        "processors": deploys::processors(&sources),
    });
    Json(body).into_response()
}

#[cfg(test)]
mod tests {
    use super::names_this_machine;

    #[test]
    fn a_name_that_is_no_address_of_this_machine_is_refused() {
        for here in ["127.0.0.1:9465", "127.0.0.1", "10.1.2.3:80", "[::1]:9465", "localhost", "LocalHost:9465"] {
            assert!(names_this_machine(here), "{here}");
        }
        for elsewhere in
            ["", "evil.example", "evil.example:9465", "localhost.evil.example", "127.0.0.1.evil.example", "a b"]
        {
            assert!(!names_this_machine(elsewhere), "{elsewhere}");
        }
    }
}
