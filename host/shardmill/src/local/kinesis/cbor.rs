//! The CBOR protocol, which the AWS SDK for Java speaks unless it is told otherwise, and the KCL with it.
//!
//! A request is made one of the JSON protocol and its answer made CBOR again, so that there is one set of answers. What
//! differs besides the form: payloads are bytes instead of base64, and times are milliseconds with tag 1 instead of
//! seconds.

use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use base64_simd::STANDARD;
use ciborium::Value as Cbor;
use serde_json::{Number, Value as Json};

/// The CBOR protocol's content type.
const CBOR: &str = "application/x-amz-cbor-1.1";

/// Around times, in requests and in answers.
const TIME_TAG: u64 = 1;
/// The members that are times.
const TIMES: [&str; 3] = ["ApproximateArrivalTimestamp", "ConsumerCreationTimestamp", "StreamCreationTimestamp"];
/// The member that is bytes.
const PAYLOAD: &str = "Data";

pub(super) fn is_spoken(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(CBOR.as_bytes()))
}

/// The body of a request in JSON. `None` when it is not CBOR: the emulator says so.
pub(super) fn to_json(body: &[u8]) -> Option<Vec<u8>> {
    let value: Cbor = ciborium::from_reader(body).ok()?;
    serde_json::to_vec(&json(value)?).ok()
}

/// An answer in JSON as one in CBOR; any other answer as it is.
pub(super) async fn answer(response: Response) -> Response {
    let (mut head, body) = response.into_parts();
    // It is in memory already.
    let Ok(body) = to_bytes(body, usize::MAX).await else { return Response::from_parts(head, Body::empty()) };
    match serde_json::from_slice(&body) {
        Ok(value) => {
            let mut bytes = Vec::with_capacity(body.len());
            // Nothing is refused by a vector.
            let _ = ciborium::into_writer(&cbor(None, value), &mut bytes);
            head.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(CBOR));
            head.headers.remove(header::CONTENT_LENGTH);
            Response::from_parts(head, Body::from(bytes))
        }
        Err(_) => Response::from_parts(head, Body::from(body)),
    }
}

fn json(value: Cbor) -> Option<Json> {
    Some(match value {
        Cbor::Null => Json::Null,
        Cbor::Bool(truth) => Json::Bool(truth),
        Cbor::Integer(number) => Json::Number(Number::from(i64::try_from(number).ok()?)),
        Cbor::Float(number) => Json::Number(Number::from_f64(number)?),
        Cbor::Text(text) => Json::String(text),
        Cbor::Bytes(bytes) => Json::String(STANDARD.encode_to_string(bytes)),
        Cbor::Array(items) => Json::Array(items.into_iter().map(json).collect::<Option<_>>()?),
        Cbor::Map(members) => {
            let member = |(name, value): (Cbor, Cbor)| Some((name.into_text().ok()?, json(value)?));
            Json::Object(members.into_iter().map(member).collect::<Option<_>>()?)
        }
        Cbor::Tag(TIME_TAG, time) => Json::Number(Number::from_f64(json(*time)?.as_f64()? / 1000.0)?),
        Cbor::Tag(_, value) => json(*value)?,
        _ => return None,
    })
}

/// `name`: the member of which this is the value.
fn cbor(name: Option<&str>, value: Json) -> Cbor {
    match value {
        Json::Null => Cbor::Null,
        Json::Bool(truth) => Cbor::Bool(truth),
        Json::Number(number) => match number.as_f64() {
            Some(seconds) if name.is_some_and(|name| TIMES.contains(&name)) => {
                Cbor::Tag(TIME_TAG, Box::new(Cbor::from((seconds * 1000.0).round() as i64)))
            }
            other => number.as_i64().map_or_else(|| Cbor::from(other.unwrap_or(f64::NAN)), Cbor::from),
        },
        Json::String(text) if name == Some(PAYLOAD) => {
            STANDARD.decode_to_vec(&text).map_or_else(|_| Cbor::Text(text), Cbor::Bytes)
        }
        Json::String(text) => Cbor::Text(text),
        Json::Array(items) => Cbor::Array(items.into_iter().map(|item| cbor(name, item)).collect()),
        Json::Object(members) => {
            let member = |(name, value): (String, Json)| {
                let value = cbor(Some(&name), value);
                (Cbor::Text(name), value)
            };
            Cbor::Map(members.into_iter().map(member).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text(text: &str) -> Cbor {
        Cbor::Text(text.to_owned())
    }

    #[test]
    fn payloads_and_times_of_a_request_are_those_of_the_json_protocol() {
        let time = Cbor::Tag(TIME_TAG, Box::new(Cbor::from(1_796_001_093_250_i64)));
        let request = Cbor::Map(vec![
            (text("Data"), Cbor::Bytes(b"data".to_vec())),
            (text("Timestamp"), time),
            (text("Limit"), Cbor::from(7)),
            (text("Keys"), Cbor::Array(vec![text("a"), Cbor::Null, Cbor::Bool(true)])),
        ]);
        let mut body = Vec::new();
        ciborium::into_writer(&request, &mut body).unwrap();
        let read: Json = serde_json::from_slice(&to_json(&body).unwrap()).unwrap();
        let expected =
            json!({ "Data": "ZGF0YQ==", "Timestamp": 1_796_001_093.25, "Limit": 7, "Keys": ["a", null, true] });
        assert_eq!(read, expected);
        assert_eq!(to_json(b"{\"Limit\":7}"), None);
    }

    #[tokio::test]
    async fn payloads_and_times_of_an_answer_are_those_of_the_cbor_protocol() {
        let records =
            json!([{ "Data": "ZGF0YQ==", "PartitionKey": "key", "ApproximateArrivalTimestamp": 1_796_001_093 }]);
        let body = json!({ "Records": records, "MillisBehindLatest": 0, "Names": [] }).to_string();
        let response = Response::builder().header(header::CONTENT_LENGTH, body.len()).body(Body::from(body)).unwrap();
        let response = answer(response).await;
        assert!(is_spoken(response.headers()));
        assert!(!response.headers().contains_key(header::CONTENT_LENGTH));
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        let read: Cbor = ciborium::from_reader(&body[..]).unwrap();
        let record = Cbor::Map(vec![
            (text("ApproximateArrivalTimestamp"), Cbor::Tag(1, Box::new(Cbor::from(1_796_001_093_000_i64)))),
            (text("Data"), Cbor::Bytes(b"data".to_vec())),
            (text("PartitionKey"), text("key")),
        ]);
        let expected = Cbor::Map(vec![
            (text("MillisBehindLatest"), Cbor::from(0)),
            (text("Names"), Cbor::Array(Vec::new())),
            (text("Records"), Cbor::Array(vec![record])),
        ]);
        assert_eq!(read, expected);
    }

    #[tokio::test]
    async fn an_answer_without_a_body_has_none_afterwards() {
        let response = answer(Response::new(Body::empty())).await;
        assert!(to_bytes(response.into_body(), usize::MAX).await.unwrap().is_empty());
    }
}
