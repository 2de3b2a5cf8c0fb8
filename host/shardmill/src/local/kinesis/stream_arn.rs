//! Calls that name their stream by ARN.

use serde_json::{Map, Value};

/// Calls that the emulator serves by `StreamName` only. The others take the ARN themselves, or take nothing else.
const BY_NAME_ONLY: [&str; 17] = [
    "AddTagsToStream",
    "DecreaseStreamRetentionPeriod",
    "DeleteStream",
    "DescribeStream",
    "DescribeStreamSummary",
    "DisableEnhancedMonitoring",
    "EnableEnhancedMonitoring",
    "GetShardIterator",
    "IncreaseStreamRetentionPeriod",
    "ListShards",
    "ListTagsForStream",
    "MergeShards",
    "RemoveTagsFromStream",
    "SplitShard",
    "StartStreamEncryption",
    "StopStreamEncryption",
    "UpdateShardCount",
];

/// The request with `StreamName` in place of `StreamARN`; `None` when there is nothing to change.
pub(super) fn rewrite(operation: &str, body: &[u8]) -> Option<Vec<u8>> {
    if !BY_NAME_ONLY.contains(&operation) {
        return None;
    }
    let mut input: Map<String, Value> = serde_json::from_slice(body).ok()?;
    if input.contains_key("StreamName") {
        return None;
    }
    let name = stream_name(input.get("StreamARN")?.as_str()?)?.to_string();
    input.remove("StreamARN");
    input.insert("StreamName".into(), name.into());
    serde_json::to_vec(&input).ok()
}

/// `flights` of `arn:aws:kinesis:us-east-1:000000000000:stream/flights`, also of its consumers' ARNs.
pub(super) fn stream_name(arn: &str) -> Option<&str> {
    let (_, path) = arn.split_once(":stream/")?;
    path.split('/').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARN: &str = "arn:aws:kinesis:us-east-1:000000000000:stream/flights";

    #[test]
    fn the_name_takes_the_arns_place() {
        let body = format!(r#"{{"StreamARN":"{ARN}","MaxResults":7}}"#);
        let rewritten: Value = serde_json::from_slice(&rewrite("ListShards", body.as_bytes()).unwrap()).unwrap();
        assert_eq!(rewritten, serde_json::json!({"StreamName": "flights", "MaxResults": 7}));
    }

    #[test]
    fn a_call_that_takes_arns_or_has_a_name_is_left_alone() {
        let body = format!(r#"{{"StreamARN":"{ARN}"}}"#);
        assert_eq!(rewrite("ListStreamConsumers", body.as_bytes()), None);
        assert_eq!(rewrite("ListShards", br#"{"StreamName":"flights"}"#), None);
        assert_eq!(rewrite("ListShards", b"not json"), None);
    }

    #[test]
    fn a_consumers_arn_holds_its_streams_name() {
        assert_eq!(stream_name(&format!("{ARN}/consumer/app:1700000000")), Some("flights"));
        assert_eq!(stream_name("flights"), None);
    }
}
