//! The local backend: a Kinesis and a DynamoDB inside this process, on loopback ports.
//!
//! `shardmill demo`, `shardmill local` and the tests run against it. The host speaks to it through the AWS SDK, exactly as it
//! speaks to AWS, so there is one code path. It is made of `ferrokinesis` (streams in memory) with the answers of AWS
//! put in front where it differs (see [`kinesis`]), and of `dynoxide` (DynamoDB on an in-memory SQLite).
//!
//! Nothing is kept: both live in memory together, because lease rows that outlive their streams hold checkpoints of
//! records that are gone.
//!
//! The backend has threads of its own, named `local-backend`: what it costs can be told apart from what the host costs,
//! and a test that pauses tokio's clock does not pause the backend.

mod endpoints;
mod kinesis;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use serde::Deserialize;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub use endpoints::Endpoints;

/// How long `stop` lets open requests finish; subscriptions to a shard would last for minutes.
const GRACE: Duration = Duration::from_secs(1);

/// What to start.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Options {
    /// Loopback port of Kinesis; 0 takes any free one.
    pub kinesis_port: u16,
    /// Loopback port of DynamoDB; 0 takes any free one.
    pub dynamodb_port: u16,
    /// Open shards over all streams; AWS' own quota is 20,000 in the larger regions.
    pub shard_limit: u32,
    /// Throttle as AWS does, per shard: writes at 1 MiB/s and 1,000 records/s, reads at 2 MiB/s and 5 calls/s.
    pub enforce_limits: bool,
}

/// A running backend. Dropping it stops it at once; [`Local::stop`] lets open requests finish.
#[derive(Debug)]
pub struct Local {
    endpoints: Endpoints,
    /// `Some` until the backend is stopped: a runtime must not be dropped by blocking inside another one.
    runtime: Option<Runtime>,
    shutdown: watch::Sender<bool>,
    servers: Vec<JoinHandle<()>>,
}

/// Why the backend did not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another process, or an earlier backend, listens there.
    #[error(
        "port {port} for the local {service} is in use; stop what listens there, or choose another port (0 for any)"
    )]
    PortInUse {
        /// `Kinesis` or `DynamoDB`.
        service: &'static str,
        /// The port asked for.
        port: u16,
    },
    /// The port could not be bound for another reason.
    #[error("cannot listen on 127.0.0.1:{port} for the local {service}: {source}")]
    Bind {
        /// `Kinesis` or `DynamoDB`.
        service: &'static str,
        /// The port asked for.
        port: u16,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The backend's threads could not be started.
    #[error("cannot start the local backend's threads: {0}")]
    Threads(std::io::Error),
    /// The in-memory database could not be opened.
    #[error("cannot open the local DynamoDB's in-memory database: {0}")]
    Database(String),
}

// === impl Options ===

impl Default for Options {
    fn default() -> Self {
        Options { kinesis_port: 0, dynamodb_port: 0, shard_limit: 20_000, enforce_limits: false }
    }
}

// === impl Local ===

impl Local {
    /// Starts both services; they answer by the time this returns.
    pub async fn start(options: Options) -> Result<Local, Error> {
        let kinesis = listen("Kinesis", options.kinesis_port)?;
        let dynamodb = listen("DynamoDB", options.dynamodb_port)?;
        let endpoints = Endpoints {
            kinesis: format!("http://{}", address(&kinesis, "Kinesis")?),
            dynamodb: format!("http://{}", address(&dynamodb, "DynamoDB")?),
        };
        let database = dynoxide::Database::memory().map_err(|error| Error::Database(error.to_string()))?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .thread_name("local-backend")
            .enable_all()
            .build()
            .map_err(Error::Threads)?;

        let (shutdown, stopped) = watch::channel(false);
        // From here on a failure drops the runtime by way of `Local`, which does not block.
        let mut local = Local { endpoints, runtime: Some(runtime), shutdown, servers: Vec::new() };
        local.serve_kinesis(&options, kinesis, stopped.clone())?;
        local.serve_dynamodb(database, &options, dynamodb, stopped)?;
        tracing::info!(kinesis = local.endpoints.kinesis, dynamodb = local.endpoints.dynamodb, "local backend started");
        Ok(local)
    }

    /// Where the services listen.
    pub fn endpoints(&self) -> &Endpoints {
        &self.endpoints
    }

    /// Stops both services: open requests get one second to finish, what is left is cut. All data is gone then.
    pub async fn stop(mut self) {
        self.shutdown.send_replace(true);
        let servers = futures::future::join_all(std::mem::take(&mut self.servers));
        // The timer runs on the backend's threads, so that it also ends under a paused clock.
        if let Some(runtime) = &self.runtime {
            let finished = runtime.spawn(async move { tokio::time::timeout(GRACE, servers).await.is_ok() });
            if !finished.await.unwrap_or(false) {
                tracing::debug!("local backend: cutting requests that did not finish");
            }
        }
    }

    fn serve_kinesis(
        &mut self,
        options: &Options,
        listener: TcpListener,
        mut stopped: watch::Receiver<bool>,
    ) -> Result<(), Error> {
        let options = options.clone();
        let Some(runtime) = &self.runtime else { return Ok(()) };
        let _inside = runtime.enter();
        let listener = into_async(listener, "Kinesis", options.kinesis_port)?;
        self.servers.push(runtime.spawn(async move {
            let app = kinesis::router(&options);
            let shutdown = async move {
                // An error means that `Local` is gone: stop as well.
                let _ = stopped.wait_for(|stopped| *stopped).await;
            };
            if let Err(error) = axum::serve(listener, app).with_graceful_shutdown(shutdown).await {
                tracing::error!(%error, "local Kinesis ended; restart to get it back");
            }
        }));
        Ok(())
    }

    fn serve_dynamodb(
        &mut self,
        database: dynoxide::Database,
        options: &Options,
        listener: TcpListener,
        mut stopped: watch::Receiver<bool>,
    ) -> Result<(), Error> {
        let Some(runtime) = &self.runtime else { return Ok(()) };
        let _inside = runtime.enter();
        let listener = into_async(listener, "DynamoDB", options.dynamodb_port)?;
        self.servers.push(runtime.spawn(async move {
            let shutdown = async move {
                let _ = stopped.wait_for(|stopped| *stopped).await;
            };
            if let Err(error) = dynoxide::server::serve_with_shutdown(listener, database, shutdown).await {
                tracing::error!(error, "local DynamoDB ended; restart to get it back");
            }
        }));
        Ok(())
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Binds on loopback only: the services check no signatures.
fn listen(service: &'static str, port: u16) -> Result<TcpListener, Error> {
    TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).map_err(|source| match source.kind() {
        std::io::ErrorKind::AddrInUse => Error::PortInUse { service, port },
        _ => Error::Bind { service, port, source },
    })
}

fn address(listener: &TcpListener, service: &'static str) -> Result<SocketAddr, Error> {
    listener.local_addr().map_err(|source| Error::Bind { service, port: 0, source })
}

fn into_async(listener: TcpListener, service: &'static str, port: u16) -> Result<tokio::net::TcpListener, Error> {
    listener
        .set_nonblocking(true)
        .and_then(|()| tokio::net::TcpListener::from_std(listener))
        .map_err(|source| Error::Bind { service, port, source })
}
