//! CreateStream of a stream whose shards are AWS' to decide on.
//!
//! The emulator wants a number of shards, and takes every new stream for a provisioned one.

use ferrokinesis::types::StreamMode;
use serde_json::{Map, Value};

use super::Backend;

/// What an on-demand stream begins with (Developer Guide, on-demand mode: "four shards").
const SHARDS: u64 = 4;

/// A request for an on-demand stream.
#[derive(Debug, PartialEq)]
pub(super) struct OnDemand {
    pub(super) name: String,
    /// As the emulator takes it.
    pub(super) request: Vec<u8>,
}

/// `None` when the request is for another stream, or not in order: the emulator says why.
pub(super) fn rewrite(body: &[u8]) -> Option<OnDemand> {
    let mut input: Map<String, Value> = serde_json::from_slice(body).ok()?;
    if input.get("StreamModeDetails")?.get("StreamMode")? != "ON_DEMAND" {
        return None;
    }
    let name = input.get("StreamName")?.as_str()?.to_owned();
    input.entry("ShardCount").or_insert_with(|| SHARDS.into());
    Some(OnDemand { name, request: serde_json::to_vec(&input).ok()? })
}

/// Makes a new stream an on-demand one.
pub(super) async fn mark(backend: &Backend, name: &str) {
    let marked = backend.store.update_stream(name, |stream| {
        stream.stream_mode_details.stream_mode = StreamMode::OnDemand;
        Ok(())
    });
    if let Err(error) = marked.await {
        tracing::warn!(stream = name, %error, "a new stream is deleted already, and is not made on-demand");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_on_demand_stream_begins_with_four_shards_and_no_other_is_touched() {
        let body = br#"{"StreamName":"s","StreamModeDetails":{"StreamMode":"ON_DEMAND"}}"#;
        let OnDemand { name, request } = rewrite(body).unwrap();
        let request: Value = serde_json::from_slice(&request).unwrap();
        assert_eq!((name.as_str(), &request["ShardCount"]), ("s", &4.into()));
        for body in [
            r#"{"StreamName":"s","ShardCount":1}"#,
            r#"{"StreamName":"s","ShardCount":1,"StreamModeDetails":{"StreamMode":"PROVISIONED"}}"#,
            r#"{"StreamModeDetails":{"StreamMode":"ON_DEMAND"}}"#,
            "not JSON",
        ] {
            assert_eq!(rewrite(body.as_bytes()), None, "{body}");
        }
    }
}
