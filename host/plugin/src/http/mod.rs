//! Requests of guests over HTTP: to hosts that are listed, at addresses that may be reached, within bounds.
//!
//! [`hosts`] and [`address`] decide, [`client`] has what a processor's requests share, [`exchange`] makes one of them,
//! [`connect`] its connection, [`body`] bounds what goes over it, and [`outside`] what a guest has the host keep of it before.
//! The host follows no redirect: a guest that does makes another request, which is judged like any other.

mod address;
mod body;
mod client;
mod connect;
mod exchange;
mod hosts;
mod outside;
mod turns;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use ipnet::IpNet;
use tokio::sync::Semaphore;
use wasmtime_wasi_http::p2::bindings::http::types::ErrorCode;
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody, WasiHttpCtx, WasiHttpHooks};

pub(crate) use client::{Client, Shared};
pub use hosts::{HostPattern, InvalidHost};
pub(crate) use outside::link;

/// Bytes of one set of header fields that a guest makes, as the host keeps them, some 70 bytes a field included.
const FIELDS_BYTES: usize = 16 << 10;
/// How much of a request's body the host holds at a time, twice.
const CHUNK_BYTES: usize = 16 << 10;
/// Answers whose bodies an instance may hold at a time, unread or in part: the host keeps some hundred kilobytes of each.
const ANSWERS: usize = 64;
/// The methods that are granted if none are named.
const METHODS: [&str; 7] = ["DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"];
/// It would make the host a tunnel to wherever its other end leads.
const TUNNEL: &str = "CONNECT";

/// Which requests over HTTP a guest may make. Connections are HTTP/1.1, over TLS unless the host's entry says `http://`, with
/// the operating system's root certificates. No proxy is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpGrant {
    /// The hosts. Without any nothing can be reached.
    pub hosts: Vec<HostPattern>,
    /// The methods, in capital letters. By default those that act on a resource; `CONNECT` is never granted.
    pub methods: BTreeSet<String>,
    /// How long finding the host's address, the connection and TLS may take together. Default 5 s.
    pub connect_timeout: Duration,
    /// How long a request may take, from when the guest makes it until it has read the answer; waiting for its turn and all
    /// that the guest does meanwhile included. Default 10 s.
    pub timeout: Duration,
    /// Bytes of a request's body. Default 1 MiB.
    pub request_bytes: u64,
    /// Bytes of an answer's body. Default 4 MiB.
    pub response_bytes: u64,
    /// Requests of the processor that are on their way at a time, of all its instances and versions together; others
    /// wait for their turn. Default 16.
    pub concurrency: usize,
    /// Networks that may be reached though they are not for everybody: private, loopback, link-local and others. A host is
    /// to be listed all the same.
    pub allow_private: Vec<IpNet>,
}

/// What one instance has of HTTP.
pub(crate) struct Http {
    pub(crate) context: WasiHttpCtx,
    pub(crate) hooks: Hooks,
}

/// What wasmtime asks of us.
pub(crate) struct Hooks {
    client: Option<Client>,
    /// One for each answer that the instance may hold.
    answers: Arc<Semaphore>,
}

/// What is to become of a request: its answer, and what has to run for the answer's body to come.
pub(crate) type Sent = Result<(http::Response<WasiBody>, Box<dyn Future<Output = Result<(), Error>> + Send>), Error>;

// === impl HttpGrant ===

impl HttpGrant {
    /// With these hosts, and all else as it is by default.
    pub fn new(hosts: Vec<HostPattern>) -> Self {
        Self {
            hosts,
            methods: METHODS.map(str::to_owned).into(),
            connect_timeout: Duration::from_secs(5),
            timeout: Duration::from_secs(10),
            request_bytes: 1 << 20,
            response_bytes: 4 << 20,
            concurrency: 16,
            allow_private: Vec::new(),
        }
    }

    /// The hosts among them that are addresses at which nothing may be reached, with what they are.
    pub fn out_of_reach(&self) -> impl Iterator<Item = (&HostPattern, &'static str)> {
        self.hosts.iter().filter_map(|host| Some((host, self.judge(host.address()?).err()?)))
    }

    fn judge(&self, address: IpAddr) -> Result<IpAddr, &'static str> {
        address::judge(address, &self.allow_private)
    }
}

// === impl Http ===

impl Http {
    pub(crate) fn new(client: Option<Client>) -> Self {
        let mut context = WasiHttpCtx::new();
        context.set_field_size_limit(FIELDS_BYTES);
        Self { context, hooks: Hooks { client, answers: Arc::new(Semaphore::new(ANSWERS)) } }
    }
}

// === impl Hooks ===

impl WasiHttpHooks for Hooks {
    fn send_request(
        &mut self,
        request: Request<WasiBody>,
        options: Option<RequestOptions>,
        _: Box<dyn Future<Output = Result<(), Error>> + Send>,
    ) -> Box<dyn Future<Output = Sent> + Send> {
        match &self.client {
            Some(client) => client.send(request, options.unwrap_or_default(), &self.answers),
            None => Box::new(std::future::ready(Err(Error::HttpRequestDenied))),
        }
    }

    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        CHUNK_BYTES
    }

    // Errors are told to the guest, whose matter they are, and counted; wasmtime would write a line for each to the log.

    fn p2_error_from_hyper(&mut self, _: &hyper::Error) -> ErrorCode {
        ErrorCode::HttpProtocolError
    }

    fn p2_error_from_connect(&mut self, _: &std::io::Error) -> ErrorCode {
        ErrorCode::ConnectionRefused
    }

    fn p2_error_from_tls(&mut self, _: &std::io::Error) -> ErrorCode {
        ErrorCode::TlsProtocolError
    }
}

#[cfg(test)]
mod tests;
