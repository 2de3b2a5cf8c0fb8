//! PutRecords of which a part fails.

use serde_json::{Value, json};

/// A request of which some entries are kept back.
#[derive(Debug)]
pub(super) struct Split {
    /// The request without them; `None` if no entry is left.
    pub(super) rest: Option<Value>,
    /// For each entry of the whole request, whether it fails.
    failed: Vec<bool>,
}

/// Keeps back the entries for which `fails` says so, and if it says so for none, the one at `at_least` (counted round
/// and round).
pub(super) fn split(request: &Value, mut fails: impl FnMut() -> bool, at_least: usize) -> Split {
    let entries = request["Records"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut failed: Vec<bool> = entries.iter().map(|_| fails()).collect();
    if !failed.contains(&true) && !failed.is_empty() {
        let one = at_least % failed.len();
        failed[one] = true;
    }
    let kept: Vec<Value> =
        entries.iter().zip(&failed).filter(|(_, fails)| !**fails).map(|(entry, _)| entry.clone()).collect();
    let rest = (!kept.is_empty()).then(|| {
        let mut rest = request.clone();
        rest["Records"] = kept.into();
        rest
    });
    Split { rest, failed }
}

/// The answer for an entry that has failed.
pub(super) fn failed(code: &str) -> Value {
    json!({ "ErrorCode": code, "ErrorMessage": super::fault::message(code) })
}

/// The answer for an entry that is stored, which no entry is at this place.
pub(super) fn taken() -> Value {
    json!({ "SequenceNumber": "1", "ShardId": "shardId-000000000000" })
}

/// How many entries an answer says are stored.
pub(super) fn stored(answer: &Value) -> u64 {
    let entries = answer["Records"].as_array().map(Vec::as_slice).unwrap_or_default();
    entries.iter().filter(|entry| entry["SequenceNumber"].is_string()).count() as u64
}

// === impl Split ===

impl Split {
    /// The answer to the whole request: that to the rest, if there was one, with this one in between for each entry that
    /// was kept back.
    pub(super) fn merge(&self, answer: Option<Value>, kept_back: &Value) -> Value {
        let mut answer = answer.unwrap_or_else(|| json!({ "FailedRecordCount": 0, "Records": [] }));
        let mut rest = answer["Records"].as_array_mut().map(std::mem::take).unwrap_or_default().into_iter();
        let merged: Vec<Value> =
            self.failed.iter().filter_map(|fails| if *fails { Some(kept_back.clone()) } else { rest.next() }).collect();
        let count = merged.iter().filter(|entry| entry["ErrorCode"].is_string()).count();
        answer["Records"] = merged.into();
        answer["FailedRecordCount"] = count.into();
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_keep_their_places() {
        let request = json!({ "StreamName": "s", "Records": [{"Data": "a"}, {"Data": "b"}, {"Data": "c"}] });
        let mut turns = [true, false, true].into_iter();
        let split_up = split(&request, || turns.next().unwrap(), 0);
        assert_eq!(split_up.rest, Some(json!({ "StreamName": "s", "Records": [{"Data": "b"}] })));
        let answer = json!({ "FailedRecordCount": 0, "EncryptionType": "KMS", "Records": [{"SequenceNumber": "1"}] });
        let merged = split_up.merge(Some(answer), &failed("InternalFailure"));
        assert_eq!((&merged["FailedRecordCount"], &merged["EncryptionType"]), (&json!(2), &json!("KMS")));
        assert_eq!(merged["Records"][1], json!({"SequenceNumber": "1"}));
        for failed in [0, 2] {
            assert_eq!(merged["Records"][failed]["ErrorCode"], "InternalFailure");
        }
        assert_eq!(stored(&merged), 1);
        let answer = json!({ "FailedRecordCount": 0, "Records": [{"SequenceNumber": "2"}] });
        let swallowed = split_up.merge(Some(answer), &taken());
        assert_eq!((&swallowed["FailedRecordCount"], stored(&swallowed)), (&json!(0), 3));

        assert_eq!(split(&request, || false, 4).failed, [false, true, false], "one at least");
        let nothing = split(&request, || true, 0);
        assert_eq!(nothing.rest, None);
        assert_eq!(nothing.merge(None, &failed("InternalFailure"))["FailedRecordCount"], 3);
    }
}
