use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use http::{Request, Response, Uri, header};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use wasmtime_wasi_http::io::TokioIo;
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody};

use super::Sent;
use super::body::{Answer, Bounded, HEADER_BYTES, fields_bytes};
use super::client::Client;
use super::connect::{Stream, connect};
use super::hosts::Target;
use crate::metrics::ProcessorMetrics;

/// One request of a guest, from when it is asked for until its answer has come.
pub(super) struct Exchange {
    client: Client,
    options: RequestOptions,
    /// The instance's.
    answers: Arc<Semaphore>,
    /// When it is to be over.
    deadline: Instant,
    ticket: Arc<Ticket>,
}

/// What is counted of a request when nothing is left of it.
pub(super) struct Ticket {
    metrics: ProcessorMetrics,
    started: Instant,
    /// Why it came to nothing.
    result: OnceLock<&'static str>,
    is_answered: AtomicBool,
    /// Whether its body went over its limit.
    is_too_large: AtomicBool,
}

/// Why a request is not answered, or not to the end: for the guest, and as the metrics count it.
pub(super) struct Fault {
    result: &'static str,
    error: Error,
}

type Connection = http1::Connection<TokioIo<Box<dyn Stream>>, Bounded>;

// === impl Exchange ===

impl Exchange {
    pub(super) fn new(client: Client, options: RequestOptions, answers: Arc<Semaphore>) -> Self {
        let started = Instant::now();
        let ticket = Ticket {
            metrics: client.0.metrics.clone(),
            started,
            result: OnceLock::new(),
            is_answered: AtomicBool::new(false),
            is_too_large: AtomicBool::new(false),
        };
        Self { deadline: started + client.0.grant.timeout, client, options, answers, ticket: Arc::new(ticket) }
    }

    /// It is not made.
    pub(super) fn refused(self, error: Error) -> Error {
        self.ticket.fail(Fault::refused(error))
    }

    pub(super) async fn run(self, target: Target, request: Request<WasiBody>) -> Sent {
        let ticket = Arc::clone(&self.ticket);
        self.make(target, request).await.map_err(|fault| ticket.fail(fault))
    }

    async fn make(
        self,
        target: Target,
        request: Request<WasiBody>,
    ) -> Result<(Response<WasiBody>, Box<dyn Future<Output = Result<(), Error>> + Send>), Fault> {
        let Self { client, options, answers, deadline, ticket } = self;
        let grant = &client.0.grant;
        if declared(&request).is_some_and(|bytes| bytes > grant.request_bytes) {
            return Err(request_too_large(grant.request_bytes));
        }
        // Before its turn: an instance that keeps its answers keeps no turn of others meanwhile.
        let Ok(Ok(room)) = timeout_at(deadline, answers.acquire_owned()).await else { return Err(Fault::busy()) };
        let turn = timeout_at(deadline, client.0.turns.turn()).await;
        let Ok(Some(turn)) = turn else { return Err(Fault::busy()) };
        let turn = Arc::new(turn);
        let by = sooner(deadline, shorter(grant.connect_timeout, options.connect_timeout));
        let stream = connect(&client, &target, by, &turn).await?;
        let handshake = http1::Builder::new().max_buf_size(HEADER_BYTES).handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|error| broken(&error))?;
        let body =
            |body| Bounded { body, left: grant.request_bytes, limit: grant.request_bytes, ticket: Arc::clone(&ticket) };
        let mut connection = Some(Box::pin(connection));
        let answering = answer(sender.send_request(on_the_wire(request.map(body))), &mut connection);
        let by = options.first_byte_timeout.map_or(deadline, |time| sooner(deadline, time));
        let answer = match timeout_at(by, answering).await {
            Ok(Ok(answer)) => answer,
            // All that hyper says is that a body failed.
            Ok(Err(_)) if ticket.is_too_large() => return Err(request_too_large(grant.request_bytes)),
            Ok(Err(error)) => return Err(broken(&error)),
            Err(_elapsed) => return Err(Fault::timeout(Error::HttpResponseTimeout)),
        };
        // The connection ends when the answer has come, because nobody can make another request over it.
        drop(sender);
        judge(&answer, grant.response_bytes)?;
        ticket.is_answered.store(true, Ordering::Relaxed);
        let limit = grant.response_bytes;
        let patience = options.between_bytes_timeout;
        let answer =
            answer.map(|body| Answer::new(body, limit, deadline, patience, Arc::clone(&ticket), room).boxed_unsync());
        let rest = async move {
            if let Some(connection) = connection
                && timeout_at(deadline, connection).await.is_err()
            {
                // Whether or not the guest reads on to see it.
                ticket.fail(Fault::timeout(Error::HttpResponseTimeout));
            }
            // Whatever else went wrong, the body tells. From now on another request has its turn, though the guest may
            // not have read all that came.
            drop(turn);
            Ok(())
        };
        Ok((answer, Box::new(rest)))
    }
}

/// Waits for the answer, and runs the connection meanwhile.
async fn answer(
    answer: impl Future<Output = hyper::Result<Response<Incoming>>>,
    connection: &mut Option<Pin<Box<Connection>>>,
) -> hyper::Result<Response<Incoming>> {
    let mut answer = pin!(answer);
    poll_fn(|context| {
        if let Poll::Ready(answer) = answer.as_mut().poll(context) {
            return Poll::Ready(answer);
        }
        let Some(running) = connection else { return Poll::Pending };
        let Poll::Ready(ended) = running.as_mut().poll(context) else { return Poll::Pending };
        *connection = None;
        // The answer may have come with the connection's end, and however that ended: not everybody says good-bye.
        match (answer.as_mut().poll(context), ended) {
            (Poll::Ready(Ok(answer)), _) => Poll::Ready(Ok(answer)),
            (_, Err(error)) => Poll::Ready(Err(error)),
            (none, Ok(())) => none,
        }
    })
    .await
}

/// The bytes that a request says its body has.
fn declared(request: &Request<WasiBody>) -> Option<u64> {
    request.headers().get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// With the host in its header alone, as whoever is no proxy expects it.
fn on_the_wire<B>(mut request: Request<B>) -> Request<B> {
    let path = request.uri().path_and_query().cloned();
    *request.uri_mut() = path.map_or_else(|| Uri::from_static("/"), Uri::from);
    request
}

fn judge(answer: &Response<Incoming>, limit: u64) -> Result<(), Fault> {
    let bytes = fields_bytes(answer.headers());
    if bytes > HEADER_BYTES {
        return Err(Fault::too_large(Error::HttpResponseHeaderSectionSize(u32::try_from(bytes).ok())));
    }
    if answer.body().size_hint().lower() > limit {
        return Err(Fault::too_large(Error::HttpResponseBodySize(Some(limit))));
    }
    Ok(())
}

fn shorter(ours: Duration, guests: Option<Duration>) -> Duration {
    guests.map_or(ours, |guests| ours.min(guests))
}

/// After this time, and not after the deadline.
fn sooner(deadline: Instant, time: Duration) -> Instant {
    Instant::now().checked_add(time).map_or(deadline, |by| by.min(deadline))
}

fn request_too_large(limit: u64) -> Fault {
    Fault::too_large(Error::HttpRequestBodySize(Some(limit)))
}

/// What an error of a connection means before there is an answer.
fn broken(error: &hyper::Error) -> Fault {
    if error.is_parse_too_large() {
        return Fault::too_large(Error::HttpResponseHeaderSectionSize(None));
    }
    Fault::failed(if error.is_parse() || error.is_user() {
        // It does not speak HTTP; or the guest has given its body up.
        Error::HttpProtocolError
    } else if error.is_incomplete_message() {
        Error::HttpResponseIncomplete
    } else {
        Error::ConnectionTerminated
    })
}

// === impl Ticket ===

impl Ticket {
    /// Notes why the request has come to nothing; the first reason counts. Returns what the guest is told.
    pub(super) fn fail(&self, fault: Fault) -> Error {
        let _first = self.result.set(fault.result);
        fault.error
    }

    /// Notes that the request's body goes over its limit.
    pub(super) fn fail_request(&self, limit: u64) -> Error {
        self.is_too_large.store(true, Ordering::Relaxed);
        self.fail(request_too_large(limit))
    }

    fn is_too_large(&self) -> bool {
        self.is_too_large.load(Ordering::Relaxed)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let answered = self.is_answered.load(Ordering::Relaxed).then_some("answered");
        // Nobody waited for it any more: the guest dropped it, or its call was given up.
        let result = self.result.get().copied().or(answered).unwrap_or("dropped");
        self.metrics.http_request(result, self.started.elapsed());
    }
}

// === impl Fault ===

impl Fault {
    /// It may not be made.
    pub(super) fn refused(error: Error) -> Self {
        Self { result: "refused", error }
    }

    /// There was no turn for it, or no room for its answer, in time.
    pub(super) fn busy() -> Self {
        Self { result: "busy", error: Error::ConnectionLimitReached }
    }

    pub(super) fn timeout(error: Error) -> Self {
        Self { result: "timeout", error }
    }

    pub(super) fn too_large(error: Error) -> Self {
        Self { result: "too-large", error }
    }

    /// Whatever else went wrong.
    pub(super) fn failed(error: Error) -> Self {
        Self { result: "failed", error }
    }
}
