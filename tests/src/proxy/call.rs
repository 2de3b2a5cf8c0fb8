//! What a request asks for.

use std::collections::{HashMap, VecDeque};

use serde_json::Value;

use super::http::Request;

/// How many iterators are remembered.
const ITERATORS: usize = 8_192;

/// Which service is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Service {
    /// Streams.
    Kinesis,
    /// Tables.
    DynamoDb,
}

/// A request, taken apart.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Call {
    pub(super) service: Service,
    pub(super) operation: String,
    /// The region that it is signed for.
    pub(super) region: Option<String>,
    pub(super) stream: Option<String>,
    pub(super) shard: Option<String>,
    pub(super) table: Option<String>,
    pub(super) body: Value,
}

/// Of which shards the iterators are that workers were given: GetRecords names neither stream nor shard.
#[derive(Debug, Default)]
pub(super) struct Iterators {
    shards: HashMap<String, (String, String)>,
    /// The oldest first.
    order: VecDeque<String>,
}

// === impl Service ===

impl Service {
    pub(super) const ALL: [Service; 2] = [Service::Kinesis, Service::DynamoDb];

    /// The variable that tells an AWS SDK where it is.
    pub(super) fn variable(self) -> &'static str {
        match self {
            Service::Kinesis => "AWS_ENDPOINT_URL_KINESIS",
            Service::DynamoDb => "AWS_ENDPOINT_URL_DYNAMODB",
        }
    }

    /// The version of its JSON protocol.
    pub(super) fn json_version(self) -> &'static str {
        match self {
            Service::Kinesis => "1.1",
            Service::DynamoDb => "1.0",
        }
    }

    fn prefix(self) -> &'static str {
        match self {
            Service::Kinesis => "Kinesis_",
            Service::DynamoDb => "DynamoDB_",
        }
    }
}

// === impl Call ===

impl Call {
    /// `None` if it is no request of a service that is known.
    pub(super) fn parse(request: &Request, iterators: &Iterators) -> Option<Call> {
        let (version, operation) = request.header("x-amz-target")?.split_once('.')?;
        let service = Service::ALL.into_iter().find(|service| version.starts_with(service.prefix()))?;
        let body: Value = serde_json::from_slice(&request.body).ok()?;
        let text = |name: &str| body[name].as_str().map(str::to_owned);
        let by_arn = || Some(body["StreamARN"].as_str()?.rsplit('/').next()?.to_owned());
        let of_iterator = || iterators.shards.get(body["ShardIterator"].as_str()?);
        let stream = text("StreamName").or_else(by_arn).or_else(|| of_iterator().map(|(stream, _)| stream.clone()));
        let shard = text("ShardId").or_else(|| of_iterator().map(|(_, shard)| shard.clone()));
        let table = table(&body).map(str::to_owned);
        let region = region(request).map(str::to_owned);
        Some(Call { service, operation: operation.to_owned(), region, stream, shard, table, body })
    }

    /// Whether it changes something.
    pub(super) fn writes(&self) -> bool {
        const READS: [&str; 8] = ["Get", "Describe", "List", "Scan", "Query", "Subscribe", "BatchGet", "TransactGet"];
        !READS.iter().any(|read| self.operation.starts_with(read))
    }
}

/// A table's name, wherever in the request it is.
fn table(body: &Value) -> Option<&str> {
    match body {
        Value::Object(fields) => {
            let own = fields.get("TableName").and_then(Value::as_str);
            own.or_else(|| fields.values().find_map(table))
        }
        Value::Array(values) => values.iter().find_map(table),
        _ => None,
    }
}

/// `Credential=KEY/DATE/REGION/SERVICE/aws4_request` of the signature.
fn region(request: &Request) -> Option<&str> {
    let (_, scope) = request.header("authorization")?.split_once("Credential=")?;
    scope.split(',').next()?.split('/').nth(2)
}

// === impl Iterators ===

impl Iterators {
    /// Takes in an answer to a call.
    pub(super) fn learn(&mut self, call: &Call, answer: &[u8]) {
        let field = match call.operation.as_str() {
            "GetShardIterator" => "\"ShardIterator\":\"",
            "GetRecords" => "\"NextShardIterator\":\"",
            _ => return,
        };
        let (Some(stream), Some(shard)) = (&call.stream, &call.shard) else { return };
        // The whole need not be parsed: an answer may have 10 MB, and inside texts of JSON quotes are escaped.
        let Some(at) = answer.windows(field.len()).position(|window| window == field.as_bytes()) else { return };
        let value = answer[at + field.len()..].split(|byte| *byte == b'"').next().unwrap_or_default();
        let iterator = String::from_utf8_lossy(value).into_owned();
        if self.shards.insert(iterator.clone(), (stream.clone(), shard.clone())).is_none() {
            self.order.push_back(iterator);
        }
        if self.order.len() > ITERATORS
            && let Some(oldest) = self.order.pop_front()
        {
            self.shards.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(target: &str, body: &str) -> Request {
        let headers = [
            ("X-Amz-Target", target),
            (
                "Authorization",
                "AWS4-HMAC-SHA256 Credential=key/20260701/eu-west-1/kinesis/aws4_request, SignedHeaders=x",
            ),
        ];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        Request { method: "POST".to_owned(), path: "/".to_owned(), headers, body: body.as_bytes().to_vec() }
    }

    #[test]
    fn calls_are_told_apart_by_what_they_are_about() {
        let mut iterators = Iterators::default();
        let take = request("Kinesis_20131202.GetShardIterator", r#"{"StreamName":"input","ShardId":"shardId-7"}"#);
        let take = Call::parse(&take, &iterators).unwrap();
        assert_eq!((take.service, take.operation.as_str()), (Service::Kinesis, "GetShardIterator"));
        assert_eq!(take.region.as_deref(), Some("eu-west-1"));
        assert!(!take.writes());
        iterators.learn(&take, br#"{"ShardIterator":"one"}"#);
        for (iterator, next) in [("one", "two"), ("two", "three")] {
            let read = request("Kinesis_20131202.GetRecords", &format!(r#"{{"ShardIterator":"{iterator}"}}"#));
            let read = Call::parse(&read, &iterators).unwrap();
            assert_eq!((read.stream.as_deref(), read.shard.as_deref()), (Some("input"), Some("shardId-7")));
            let answer = format!(
                r#"{{"Records":[{{"PartitionKey":"\"NextShardIterator\":\"x\""}}],"NextShardIterator":"{next}"}}"#
            );
            iterators.learn(&read, answer.as_bytes());
        }
        let unknown = request("Kinesis_20131202.GetRecords", r#"{"ShardIterator":"x"}"#);
        assert_eq!(Call::parse(&unknown, &iterators).unwrap().stream, None);

        let arn = r#"{"StreamARN":"arn:aws:kinesis:eu-west-1:1:stream/input"}"#;
        let put = Call::parse(&request("Kinesis_20131202.PutRecords", arn), &iterators).unwrap();
        assert_eq!((put.stream.as_deref(), put.writes()), (Some("input"), true));

        let nested = r#"{"TransactItems":[{"Update":{"TableName":"leases"}}]}"#;
        let write = Call::parse(&request("DynamoDB_20120810.TransactWriteItems", nested), &iterators).unwrap();
        assert_eq!((write.service, write.table.as_deref(), write.writes()), (Service::DynamoDb, Some("leases"), true));
        assert!(Call::parse(&request("Logs_20140328.PutLogEvents", "{}"), &iterators).is_none());
    }
}
