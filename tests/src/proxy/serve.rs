//! Carries requests to the service and answers back, or not.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use rand::Rng;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::call::{Call, Iterators, Service};
use super::fault::{Active, Fault, refusal};
use super::http::{Answer, Connection, Request};
use super::journal::Journal;
use super::link::{Gate, State};
use super::put_records;

/// What the connections of all links share.
#[derive(Debug)]
pub(super) struct Shared {
    upstream: BTreeMap<Service, String>,
    http: reqwest::Client,
    pub(super) rules: Mutex<Vec<Arc<Active>>>,
    iterators: Mutex<Iterators>,
    pub(super) journal: Journal,
    untold: AtomicU64,
    throttled_reads: AtomicU64,
}

/// What the service said.
enum Carried {
    Whole(Answer),
    /// An answer without a length, such as a subscription's, of which there is only the head yet.
    Stream(Answer, reqwest::Response),
}

// === impl Shared ===

impl Shared {
    /// Before the services that these variables of an AWS SDK name.
    pub(super) fn new(surroundings: &BTreeMap<String, String>) -> Shared {
        let endpoint = |service: Service| Some((service, surroundings.get(service.variable())?.clone()));
        let upstream: BTreeMap<_, _> = Service::ALL.into_iter().filter_map(endpoint).collect();
        assert!(!upstream.is_empty(), "no service is named in {surroundings:?}");
        let http = reqwest::Client::builder().no_proxy().build().expect("an HTTP client");
        Shared {
            upstream,
            http,
            rules: Mutex::default(),
            iterators: Mutex::default(),
            journal: Journal::default(),
            untold: AtomicU64::new(0),
            throttled_reads: AtomicU64::new(0),
        }
    }

    /// The surroundings with this endpoint in place of the services'.
    pub(super) fn redirected(
        &self,
        surroundings: &BTreeMap<String, String>,
        endpoint: &str,
    ) -> BTreeMap<String, String> {
        let known = self.upstream.keys().map(|service| (service.variable().to_owned(), endpoint.to_owned()));
        surroundings.clone().into_iter().chain(known).collect()
    }

    /// Kinesis records that were stored and whose answer the worker did not get.
    pub(super) fn untold(&self) -> u64 {
        self.untold.load(SeqCst)
    }

    /// Reads that the service refused because a shard's limit was used up.
    pub(super) fn throttled_reads(&self) -> u64 {
        self.throttled_reads.load(SeqCst)
    }

    fn parse(&self, request: &Request) -> Option<Call> {
        Call::parse(request, &self.iterators.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn strike(&self, link: &str, call: &Call) -> Option<(Fault, Arc<Active>)> {
        let rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        rules.iter().find_map(|rule| Some((rule.strike(link, call)?, Arc::clone(rule))))
    }

    async fn send(&self, call: &Call, request: &Request, body: Vec<u8>) -> reqwest::Result<reqwest::Response> {
        let method = reqwest::Method::from_bytes(request.method.as_bytes()).unwrap_or(reqwest::Method::POST);
        let mut sent = self.http.request(method, format!("{}{}", self.upstream[&call.service], request.path));
        for (name, value) in &request.headers {
            if !is_of_one_hop(name) {
                sent = sent.header(name, value);
            }
        }
        sent.body(body).send().await
    }

    /// `None` if the service cannot be reached.
    async fn carry(&self, link: &str, call: &Call, request: &Request, body: Vec<u8>) -> Option<Carried> {
        let carried = self.journal.moment();
        let response = self.send(call, request, body).await.ok()?;
        let headers = response.headers().iter().filter(|(name, _)| !is_of_one_hop(name.as_str()));
        let headers = headers.map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into()));
        let mut answer = Answer { status: response.status().as_u16(), headers: headers.collect(), body: Vec::new() };
        if response.content_length().is_none() {
            return Some(Carried::Stream(answer, response));
        }
        answer.body = response.bytes().await.ok()?.into();
        self.journal.note(link, call, carried, &answer);
        if call.operation == "GetRecords"
            && answer.status == 400
            && String::from_utf8_lossy(&answer.body).contains("ProvisionedThroughputExceededException")
        {
            self.throttled_reads.fetch_add(1, SeqCst);
        }
        if answer.status == 200 {
            self.iterators.lock().unwrap_or_else(PoisonError::into_inner).learn(call, &answer.body);
        }
        Some(Carried::Whole(answer))
    }

    /// Carries out a part of PutRecords.
    async fn carry_part(
        &self,
        link: &str,
        call: &Call,
        request: &Request,
        rule: &Active,
        chance: f64,
        kept_back: &Value,
    ) -> Option<Carried> {
        let split = rule.throw(|dice| {
            let at_least = dice.random_range(0..500);
            put_records::split(&call.body, || dice.random_bool(chance), at_least)
        });
        let rest = match &split.rest {
            None => None,
            Some(rest) => match self.carry(link, call, request, rest.to_string().into_bytes()).await? {
                Carried::Whole(answer) if answer.status == 200 => Some(serde_json::from_slice(&answer.body).ok()?),
                refused => return Some(refused),
            },
        };
        Some(Carried::Whole(Answer::json(200, call.service.json_version(), &split.merge(rest, kept_back))))
    }

    /// Notes that a worker does not learn of this answer.
    fn withhold(&self, call: &Call, answer: &Answer) {
        if call.operation == "PutRecords" && answer.status == 200 {
            let answer: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
            self.untold.fetch_add(put_records::stored(&answer), SeqCst);
            self.journal.note_untold(answer);
        }
    }
}

/// Headers of a connection, not of what it carries.
fn is_of_one_hop(name: &str) -> bool {
    ["host", "connection", "keep-alive", "content-length", "transfer-encoding"]
        .iter()
        .any(|hop| name.eq_ignore_ascii_case(hop))
}

/// Serves one connection to its end.
pub(super) async fn serve(stream: TcpStream, mut gate: Gate, link: Arc<State>, shared: Arc<Shared>) {
    let mut connection = Connection::new(stream);
    loop {
        let request = tokio::select! {
            biased;
            () = gate.lost() => return connection.reset(),
            request = connection.request() => request,
        };
        // One that is broken off has no answer.
        let Ok(Some(request)) = request else { return };
        link.came();
        if !gate.pass().await {
            return connection.reset();
        }
        match exchange(connection, &request, &mut gate, &link, &shared).await {
            Ok(Some(whole)) => connection = whole,
            // The worker has left, or it has to.
            Ok(None) | Err(_) => return,
        }
    }
}

/// One request and what becomes of it. The connection comes back if it can be used again.
async fn exchange(
    mut connection: Connection,
    request: &Request,
    gate: &mut Gate,
    link: &State,
    shared: &Shared,
) -> io::Result<Option<Connection>> {
    let Some(call) = shared.parse(request) else {
        connection.answer(&Answer::json(400, "1.1", &json!({ "__type": "UnknownOperationException" }))).await?;
        return Ok(Some(connection));
    };
    let (fault, rule) = shared.strike(&link.name, &call).unzip();
    match &fault {
        Some(Fault::Refused(code)) => {
            let refusal = refusal(call.service, code);
            connection.answer(&Answer::json(400, call.service.json_version(), &refusal)).await?;
            return Ok(Some(connection));
        }
        Some(Fault::Status(status)) => {
            connection.answer(&Answer { status: *status, headers: Vec::new(), body: Vec::new() }).await?;
            return Ok(Some(connection));
        }
        Some(Fault::Hang) => {
            tokio::select! {
                () = gate.lost() => connection.reset(),
                () = connection.closed() => {}
            }
            return Ok(None);
        }
        Some(Fault::Reset) => {
            connection.reset();
            return Ok(None);
        }
        Some(Fault::Late(time)) => sleep(*time).await,
        _ => {}
    }
    let carried = match (&fault, &rule) {
        (Some(Fault::Partial { chance, code }), Some(rule)) => {
            shared.carry_part(&link.name, &call, request, rule, *chance, &put_records::failed(code)).await
        }
        (Some(Fault::Swallowed), Some(rule)) => {
            shared.carry_part(&link.name, &call, request, rule, 0.0, &put_records::taken()).await
        }
        _ => shared.carry(&link.name, &call, request, request.body.clone()).await,
    };
    match carried {
        // To the worker it is its network.
        None => Ok(None),
        Some(Carried::Stream(head, response)) => stream(connection, &head, response, gate).await,
        Some(Carried::Whole(answer)) => tell(connection, answer, fault, &call, gate, shared).await,
    }
}

async fn tell(
    mut connection: Connection,
    mut answer: Answer,
    fault: Option<Fault>,
    call: &Call,
    gate: &mut Gate,
    shared: &Shared,
) -> io::Result<Option<Connection>> {
    if let Some(Fault::AnswerLost | Fault::AnswerCut | Fault::HalfJson) = &fault {
        shared.withhold(call, &answer);
    }
    match &fault {
        Some(Fault::AnswerLost) => return Ok(None),
        Some(Fault::LateAnswer(time)) => sleep(*time).await,
        _ => {}
    }
    if !gate.pass().await {
        shared.withhold(call, &answer);
        connection.reset();
        return Ok(None);
    }
    match fault {
        Some(Fault::AnswerCut) => {
            connection.half_an_answer(&answer).await?;
            return Ok(None);
        }
        Some(Fault::HalfJson) => answer.body.truncate(answer.body.len() / 2),
        Some(Fault::Says(text, instead)) => {
            answer.body = String::from_utf8_lossy(&answer.body).replace(text, instead).into_bytes();
        }
        _ => {}
    }
    connection.answer(&answer).await?;
    Ok(Some(connection))
}

async fn stream(
    mut connection: Connection,
    head: &Answer,
    mut response: reqwest::Response,
    gate: &mut Gate,
) -> io::Result<Option<Connection>> {
    connection.begin(head).await?;
    while let Ok(Some(bytes)) = response.chunk().await {
        if !gate.pass().await {
            connection.reset();
            return Ok(None);
        }
        if !bytes.is_empty() {
            connection.chunk(&bytes).await?;
        }
    }
    connection.chunk(&[]).await?;
    Ok(Some(connection))
}
