//! One worker's network.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use super::serve::{Shared, serve};
use crate::services::Environment;

/// What becomes of that which was sent while a link was cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// It never arrives: connections from before and from meanwhile are reset.
    Lost,
    /// It arrives now: a network that sends again what got no receipt.
    Delivered,
}

/// A worker's way to its services, which ends with this.
#[derive(Debug)]
pub struct Link {
    state: Arc<State>,
    environment: BTreeMap<String, String>,
    server: AbortHandle,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) name: String,
    weather: watch::Sender<Weather>,
    held: AtomicU64,
}

#[derive(Debug, Clone, Copy)]
struct Weather {
    is_cut: bool,
    /// How often everything under way was lost.
    losses: u64,
}

/// Where a connection waits while the link is cut.
#[derive(Debug)]
pub(super) struct Gate {
    weather: watch::Receiver<Weather>,
    /// The losses before this connection.
    losses: u64,
}

// === impl Link ===

impl Link {
    pub(super) fn new(name: &str, shared: Arc<Shared>, surroundings: &BTreeMap<String, String>) -> Link {
        let (weather, _) = watch::channel(Weather { is_cut: false, losses: 0 });
        let state = Arc::new(State { name: name.to_owned(), weather, held: AtomicU64::new(0) });
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("an address");
        listener.set_nonblocking(true).expect("a listener that does not block");
        let listener = TcpListener::from_std(listener).expect("a listener of this runtime");
        let server = tokio::spawn(accept(listener, Arc::clone(&state), shared.clone())).abort_handle();
        let environment = shared.redirected(surroundings, &endpoint(address));
        Link { state, environment, server }
    }

    /// Its name, which rules and the journal use.
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// From now on nothing gets through in either direction, over old connections or new ones. Connections are still
    /// accepted, and what is sent is taken in.
    pub fn cut(&self) {
        self.state.weather.send_modify(|weather| weather.is_cut = true);
    }

    /// Ends the cut.
    pub fn restore(&self, held: Held) {
        self.state.weather.send_modify(|weather| {
            weather.is_cut = false;
            weather.losses += u64::from(held == Held::Lost);
        });
    }

    /// How many requests came while the link was cut.
    pub fn held(&self) -> u64 {
        self.state.held.load(SeqCst)
    }
}

impl Environment for Link {
    fn environment(&self) -> &BTreeMap<String, String> {
        &self.environment
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn endpoint(address: SocketAddr) -> String {
    format!("http://{address}")
}

async fn accept(listener: TcpListener, state: Arc<State>, shared: Arc<Shared>) {
    // Ends all connections when it is dropped.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                // One that is gone before it is accepted is the worker's business.
                let Ok((stream, _)) = accepted else { continue };
                let _slower = stream.set_nodelay(true);
                let gate = state.gate();
                connections.spawn(serve(stream, gate, Arc::clone(&state), Arc::clone(&shared)));
            }
            Some(_ended) = connections.join_next() => {}
        }
    }
}

// === impl State ===

impl State {
    fn gate(&self) -> Gate {
        let weather = self.weather.subscribe();
        let losses = weather.borrow().losses;
        Gate { weather, losses }
    }

    /// Notes that a request has come.
    pub(super) fn came(&self) {
        self.held.fetch_add(u64::from(self.weather.borrow().is_cut), SeqCst);
    }
}

// === impl Gate ===

impl Gate {
    /// Waits while the link is cut. Whether what comes through here still arrives.
    pub(super) async fn pass(&mut self) -> bool {
        let losses = self.losses;
        let passed = self.weather.wait_for(|weather| !weather.is_cut || weather.losses > losses).await;
        passed.is_ok_and(|weather| weather.losses == losses)
    }

    /// Returns when everything under way is lost.
    pub(super) async fn lost(&mut self) {
        let losses = self.losses;
        if self.weather.wait_for(|weather| weather.losses > losses).await.is_err() {
            // The link is gone, and this connection with it in a moment.
            std::future::pending::<()>().await;
        }
    }
}
