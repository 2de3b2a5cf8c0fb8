//! Requests over HTTP, by the bindings themselves: several at a time, each as it is told.

use serde::Deserialize;
use serde_json::{Value, json};
use wasip2::http::outgoing_handler::handle;
use wasip2::http::types::{
    ErrorCode, Fields, FutureIncomingResponse, IncomingResponse, Method, OutgoingBody, OutgoingRequest, RequestOptions,
    Scheme,
};
use wasip2::io::poll::poll;
use wasip2::io::streams::StreamError;

/// Nanoseconds of a millisecond.
const MILLISECOND: u64 = 1_000_000;
/// How much is read at a time.
const READ_BYTES: u64 = 64 << 10;

/// What to fetch, and how often at once.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Fetch {
    url: String,
    #[serde(default = "get")]
    method: String,
    #[serde(default = "once")]
    times: usize,
    /// Bytes of a body.
    body: Option<u64>,
    /// The value of the header `authorization`.
    authorization: Option<String>,
    first_byte_ms: Option<u64>,
    /// The body of the answer is left unread.
    #[serde(default)]
    unread: bool,
}

fn get() -> String {
    "GET".to_owned()
}

fn once() -> usize {
    1
}

/// What came of each of them.
pub(crate) fn fetch(fetch: &Fetch) -> Value {
    let mut waiting: Vec<_> = (0..fetch.times).map(|_| Some(send(fetch))).collect();
    let mut answers = Vec::new();
    while !waiting.is_empty() {
        let pollables: Vec<_> = waiting.iter().flatten().flatten().map(FutureIncomingResponse::subscribe).collect();
        if !pollables.is_empty() {
            poll(&pollables.iter().collect::<Vec<_>>());
        }
        drop(pollables);
        waiting.retain_mut(|sent| {
            let answer = match sent {
                Some(Ok(future)) => match future.get() {
                    None => return true,
                    Some(answer) => answer.expect("it is asked once").map_err(|code| told(&code)),
                },
                Some(Err(error)) => Err(std::mem::take(error)),
                None => return false,
            };
            *sent = None;
            answers.push(match answer {
                Ok(answer) => read(answer, fetch.unread),
                Err(error) => json!({ "error": error }),
            });
            false
        });
    }
    json!({ "answers": answers })
}

fn send(fetch: &Fetch) -> Result<FutureIncomingResponse, String> {
    let headers = Fields::new();
    if let Some(value) = &fetch.authorization {
        let value = super::filled(value).into_bytes();
        headers.append("authorization", &value).map_err(|error| format!("{error:?}"))?;
    }
    let request = OutgoingRequest::new(headers);
    let (scheme, rest) = fetch.url.split_once("://").expect("a URL has a scheme");
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let scheme = match scheme {
        "https" => Scheme::Https,
        "http" => Scheme::Http,
        other => Scheme::Other(other.to_owned()),
    };
    let method = match fetch.method.as_str() {
        "GET" => Method::Get,
        "POST" => Method::Post,
        "CONNECT" => Method::Connect,
        other => Method::Other(other.to_owned()),
    };
    let refused = |()| "the request is malformed".to_owned();
    request.set_scheme(Some(&scheme)).map_err(refused)?;
    request.set_authority(Some(&super::filled(authority))).map_err(refused)?;
    request.set_path_with_query(Some(path).filter(|path| !path.is_empty())).map_err(refused)?;
    request.set_method(&method).map_err(refused)?;
    let options = fetch.first_byte_ms.map(|milliseconds| {
        let options = RequestOptions::new();
        options.set_first_byte_timeout(Some(milliseconds * MILLISECOND)).expect("the host knows it");
        options
    });
    let body = fetch.body.map(|bytes| (bytes, request.body().expect("it is taken once")));
    let future = handle(request, options).map_err(|code| told(&code))?;
    if let Some((bytes, body)) = body {
        write(bytes, &body);
        // What went wrong the answer tells.
        let _ = OutgoingBody::finish(body, None);
    }
    Ok(future)
}

fn write(bytes: u64, body: &OutgoingBody) {
    let stream = body.write().expect("it is taken once");
    let mut left = bytes;
    while left > 0 {
        let part = left.min(4096);
        if stream.blocking_write_and_flush(&vec![b'x'; part as usize]).is_err() {
            return;
        }
        left -= part;
    }
}

fn read(answer: IncomingResponse, unread: bool) -> Value {
    let headers = answer.headers();
    let location = headers.get("location").first().map(|value| String::from_utf8_lossy(value).into_owned());
    let mut told = json!({ "status": answer.status(), "location": location });
    if unread {
        return told;
    }
    let body = answer.consume().expect("it is taken once");
    let stream = body.stream().expect("it is taken once");
    let mut bytes = 0;
    loop {
        match stream.blocking_read(READ_BYTES) {
            Ok(part) => bytes += part.len(),
            Err(StreamError::Closed) => break,
            Err(StreamError::LastOperationFailed(error)) => {
                told["broken"] = error.to_debug_string().into();
                break;
            }
        }
    }
    told["bytes"] = bytes.into();
    told
}

fn told(code: &ErrorCode) -> String {
    format!("{code:?}")
}
