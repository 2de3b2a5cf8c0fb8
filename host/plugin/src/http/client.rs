use std::collections::HashMap;
use std::future::ready;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use http::Request;
use ipnet::IpNet;
use tokio::sync::Semaphore;
use tracing::Instrument as _;
use tracing::instrument::WithSubscriber as _;
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody};

use super::connect::{Resolve, SystemResolver, Tls};
use super::exchange::Exchange;
use super::hosts::Target;
use super::turns::{Share, Turns};
use super::{HttpGrant, Sent, TUNNEL};
use crate::mask::Mask;
use crate::metrics::ProcessorMetrics;
use crate::told::{Tell, Told};

/// Lookups of names at a time, of all guests together. Each takes one of the process' threads for work that blocks, and goes on
/// there when it is given up; the host's own work needs such threads too, of which there are 512.
const LOOKUPS: usize = 64;
/// Bytes of a host's name in the log.
const SHOWN_BYTES: usize = 300;

/// What all requests of a processor share. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Client(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) grant: HttpGrant,
    /// One for each request that may be on its way.
    pub(super) turns: Share,
    /// One for each lookup.
    pub(super) lookups: Arc<Semaphore>,
    pub(super) resolver: Arc<dyn Resolve>,
    pub(super) tls: Tls,
    pub(super) metrics: ProcessorMetrics,
    processor: Arc<str>,
    told: Told,
    mask: Mask,
}

/// What requests of all processors share. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(super) resolver: Arc<dyn Resolve>,
    pub(super) tls: Tls,
    pub(super) lookups: Arc<Semaphore>,
    /// By processor.
    pub(super) turns: Arc<Mutex<HashMap<Arc<str>, Weak<Turns>>>>,
}

/// Why a request is not made.
enum Refusal {
    /// It is not clear where it goes.
    Uri,
    Host(Target),
    Method(String),
}

// === impl Shared ===

impl Default for Shared {
    fn default() -> Self {
        Self {
            resolver: Arc::new(SystemResolver),
            tls: Tls::default(),
            lookups: Arc::new(Semaphore::new(LOOKUPS)),
            turns: Arc::default(),
        }
    }
}

impl Shared {
    fn turns(&self, processor: &Arc<str>) -> Arc<Turns> {
        let mut all = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turns) = all.get(processor).and_then(Weak::upgrade) {
            return turns;
        }
        let turns = Arc::new(Turns::default());
        all.insert(Arc::clone(processor), Arc::downgrade(&turns));
        turns
    }
}

// === impl Client ===

impl Client {
    pub(crate) fn new(
        grant: HttpGrant,
        processor: Arc<str>,
        metrics: ProcessorMetrics,
        mask: Mask,
        shared: Shared,
    ) -> Self {
        let turns = Share::new(shared.turns(&processor), grant.concurrency);
        let Shared { resolver, tls, lookups, .. } = shared;
        Self(Arc::new(Inner { grant, turns, lookups, resolver, tls, metrics, processor, told: Told::default(), mask }))
    }

    /// Makes a request, if it may be made. Whether it may is known at once; dropping what is returned ends it. `answers` has
    /// one for each answer that the instance may hold.
    pub(super) fn send(
        &self,
        request: Request<WasiBody>,
        options: RequestOptions,
        answers: &Arc<Semaphore>,
    ) -> Box<dyn Future<Output = Sent> + Send> {
        let exchange = Exchange::new(self.clone(), options, Arc::clone(answers));
        match self.judge(&request) {
            // It runs on a task of its own, whose log is the guest's all the same.
            Ok(target) => Box::new(exchange.run(target, request).in_current_span().with_current_subscriber()),
            Err(refusal) => {
                let error = match refusal {
                    Refusal::Uri => Error::HttpRequestUriInvalid,
                    Refusal::Host(_) | Refusal::Method(_) => Error::HttpRequestDenied,
                };
                self.tell_refusal(&refusal);
                Box::new(ready(Err(exchange.refused(error))))
            }
        }
    }

    fn judge(&self, request: &Request<WasiBody>) -> Result<Target, Refusal> {
        let target = Target::of(request.uri()).ok_or(Refusal::Uri)?;
        if !self.0.grant.hosts.iter().any(|host| host.matches(&target)) {
            return Err(Refusal::Host(target));
        }
        let method = request.method().as_str();
        if method == TUNNEL || !self.0.grant.methods.contains(method) {
            return Err(Refusal::Method(method.to_owned()));
        }
        Ok(target)
    }

    fn tell_refusal(&self, refusal: &Refusal) {
        match refusal {
            // It names no host that could be told, and the guest knows.
            Refusal::Uri => {}
            Refusal::Host(target) => {
                let host = self.shown(&target.to_string());
                let grants = self.grants();
                self.tell(&host, &format!("its host is not granted: add \"{host}\" to `http.hosts` in {grants}"));
            }
            Refusal::Method(method) if method == TUNNEL => {
                self.tell(TUNNEL, "no processor is granted tunnels: build the guest without them");
            }
            Refusal::Method(method) => {
                let (method, grants) = (self.shown(method), self.grants());
                self.tell(
                    &method,
                    &format!("its method is not granted: add \"{method}\" to `http.methods` in {grants}"),
                );
            }
        }
    }

    /// None of a host's addresses may be reached.
    pub(super) fn tell_address(&self, target: &Target, address: IpAddr, what: &str) {
        let (network, grants) = (IpNet::from(address), self.grants());
        let reason = format!(
            "its host is at {address}, {what}: add \"{network}\" to `http.allow-private` in {grants} if that is meant"
        );
        self.tell(&self.shown(&target.to_string()), &reason);
    }

    /// There is nothing to check certificates with.
    pub(super) fn tell_no_roots(&self, reason: &str) {
        let reason = format!(
            "this machine has no root certificates to check its host's with ({reason}): install those of the operating \
             system, or name a file of them in the environment variable SSL_CERT_FILE"
        );
        self.tell("https", &reason);
    }

    /// Where the configuration says what is granted.
    fn grants(&self) -> String {
        format!("[processors.{}.grants]", self.0.processor)
    }

    fn tell(&self, what: &str, reason: &str) {
        let processor = &*self.0.processor;
        match self.0.told.is_new(what) {
            Tell::This => tracing::warn!(processor, request = what, "a guest's HTTP request is refused: {reason}"),
            Tell::EnoughOfIt => tracing::warn!(
                processor,
                "more of a guest's HTTP requests are refused than are told one by one: \
                 shardmill_plugin_http_requests_total counts them"
            ),
            Tell::Nothing => {}
        }
    }

    /// As the log may have it: names are the guest's.
    fn shown(&self, text: &str) -> String {
        let masked = self.0.mask.text(text);
        match masked.char_indices().nth(SHOWN_BYTES) {
            Some((end, _)) => format!("{}…", &masked[..end]),
            None => masked.into_owned(),
        }
    }
}
