use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use shardmill_filter::{Action, Metadata, Verdict};
use shardmill_record::Record;

use super::{Flow, PartitionBy};

/// Decides about one record after another. Pure.
#[derive(Debug, Clone)]
pub(crate) struct Router {
    flow: Arc<Flow>,
    stream: Arc<str>,
    shard: Arc<str>,
}

/// Where a record goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route {
    /// Nowhere: it is done. Whether the filter could not read it.
    Nowhere { is_invalid: bool },
    /// It has failed before anybody saw it, for this reason; it would have gone into this track.
    Failed(usize, String),
    /// Into a track: the batcher's place, the one of all other records being the last, times the lanes, plus the lane.
    Track(usize),
}

// === impl Router ===

impl Router {
    pub(crate) fn new(flow: Arc<Flow>, stream: Arc<str>, shard: &str) -> Self {
        Self { flow, stream, shard: shard.into() }
    }

    pub(crate) fn route(&self, record: &Record<'_>) -> Route {
        let metadata = Metadata {
            partition_key: record.partition_key,
            explicit_hash_key: record.explicit_hash_key,
            sequence_number: record.sequence_number,
            sub_sequence_number: record.sub_sequence_number,
            approximate_arrival: record.approximate_arrival,
            shard_id: &self.shard,
            stream: &self.stream,
        };
        let mut failed = None;
        if let Some(filter) = &self.flow.filter {
            let verdict = filter.decide(&metadata, record.data);
            match filter.action(verdict) {
                Action::Deliver => {}
                Action::Drop => return Route::Nowhere { is_invalid: verdict == Verdict::InvalidJson },
                Action::Fail => failed = Some(filter.invalid_json(record.data).unwrap_or_default()),
            }
        }
        let batchers = &self.flow.batchers;
        let matches = |batcher: &super::Batcher| {
            batcher.when.as_ref().is_none_or(|when| when.decide(&metadata, record.data) == Verdict::Matched)
        };
        let batcher = batchers.iter().position(matches).unwrap_or(batchers.len());
        let track = batcher * self.flow.lanes as usize + self.lane(record);
        match failed {
            Some(reason) => Route::Failed(track, reason),
            None => Route::Track(track),
        }
    }

    fn lane(&self, record: &Record<'_>) -> usize {
        if self.flow.lanes == 1 {
            return 0;
        }
        let found = match &self.flow.partition_by {
            PartitionBy::Key => None,
            PartitionBy::Pointer(path) => seek(path, record.data),
        };
        let mut hasher = DefaultHasher::new();
        self.flow.seed.hash(&mut hasher);
        match found {
            Some(value) => hash(&value, &mut hasher),
            None => record.partition_key.hash(&mut hasher),
        }
        (hasher.finish() % u64::from(self.flow.lanes)) as usize
    }
}

/// The same for equal values, however they are written.
fn hash(value: &Value, hasher: &mut impl Hasher) {
    std::mem::discriminant(value).hash(hasher);
    match value {
        Value::Null => {}
        Value::Bool(is) => is.hash(hasher),
        // 1 and 1.0 are equal, and so are 0 and -0. That of large ones some that differ come together does no harm.
        Value::Number(number) => (number.as_f64().unwrap_or(f64::NAN) + 0.0).to_bits().hash(hasher),
        Value::String(text) => text.hash(hasher),
        Value::Array(list) => {
            list.len().hash(hasher);
            list.iter().for_each(|value| hash(value, hasher));
        }
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_unstable_by_key(|(name, _)| *name);
            fields.len().hash(hasher);
            for (name, value) in fields {
                name.hash(hasher);
                hash(value, hasher);
            }
        }
    }
}

/// What stands in a JSON text at a place; `None` if nothing does, or if it is none.
fn seek(path: &[String], data: &[u8]) -> Option<Value> {
    let mut deserializer = serde_json::Deserializer::from_slice(data);
    let found = Seek(path).deserialize(&mut deserializer).ok()?;
    deserializer.end().ok()?;
    found
}

struct Seek<'a>(&'a [String]);

impl<'de> DeserializeSeed<'de> for Seek<'_> {
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        if self.0.is_empty() {
            return serde::Deserialize::deserialize(deserializer).map(Some);
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seek<'_> {
    type Value = Option<Value>;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(name) = map.next_key::<std::borrow::Cow<'_, str>>()? {
            if name == self.0[0] {
                // Of names that come twice the last one counts, as in most readers.
                found = map.next_value_seed(Seek(&self.0[1..]))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let wanted = self.0[0].parse::<usize>().ok();
        let (mut index, mut found) = (0, None);
        loop {
            if wanted == Some(index) {
                let Some(value) = list.next_element_seed(Seek(&self.0[1..]))? else { break };
                found = value;
            } else if list.next_element::<IgnoredAny>()?.is_none() {
                break;
            }
            index += 1;
        }
        Ok(found)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use shardmill_filter::{Filter, OnInvalidJson, Pattern};

    use super::*;
    use crate::{BatchOptions, Batcher};

    fn record<'a>(key: &'a str, data: &'a str) -> Record<'a> {
        Record {
            sequence_number: "1",
            sub_sequence_number: 0,
            partition_key: key,
            explicit_hash_key: None,
            approximate_arrival: 0,
            data: data.as_bytes(),
        }
    }

    fn router(flow: Flow) -> Router {
        Router::new(Arc::new(flow), "orders".into(), "shardId-000000000000")
    }

    fn by(names: &[&str]) -> PartitionBy {
        PartitionBy::Pointer(names.iter().map(ToString::to_string).collect())
    }

    fn filter(pattern: &str, on_invalid_json: OnInvalidJson) -> Filter {
        Filter::new(vec![Pattern::parse(pattern).unwrap()], on_invalid_json).unwrap()
    }

    #[test]
    fn a_value_is_found_where_the_pointer_says() {
        let found = |names: &[&str], json: &str| {
            let path: Vec<String> = names.iter().map(ToString::to_string).collect();
            seek(&path, json.as_bytes()).map(|value| value.to_string())
        };
        let json = r#"{"a": {"b": [10, {"c/d": "x"}]}, "n": null, "a ": 1}"#;
        assert_eq!(found(&["a", "b", "0"], json).as_deref(), Some("10"));
        assert_eq!(found(&["a", "b", "1", "c/d"], json).as_deref(), Some("\"x\""));
        assert_eq!(found(&["n"], json).as_deref(), Some("null"));
        for names in [&["a", "b", "2"][..], &["a", "x"], &["n", "x"], &["a", "b", "c"], &["a", "b", "0", "x"]] {
            assert_eq!(found(names, json), None, "{names:?}");
        }
        for broken in ["", "{", "{\"a\":1} x", "\u{1}"] {
            assert_eq!(found(&["a"], broken), None, "{broken}");
        }
    }

    #[test]
    fn equal_values_are_in_one_lane_however_they_are_written() {
        let router = router(Flow { lanes: 256, partition_by: by(&["id"]), ..Flow::default() });
        let lane = |value: &str| router.route(&record("k", &format!("{{\"id\": {value}}}")));
        for equal in [
            &["1", "1.0", "1e0", "10e-1", "0.1e1"][..],
            &["0", "-0", "0.0", "-0.0", "0e7"],
            &["-250", "-2.5e2"],
            &["1e300", "10e299"],
            &["9007199254740992", "9007199254740992.0"],
            &["\"a\"", "\"\\u0061\""],
            &["[1, {\"a\": 2, \"b\": null}]", "[1.0,{\"b\":null,\"a\":2e0}]"],
        ] {
            for value in equal {
                assert_eq!(lane(value), lane(equal[0]), "{value} and {}", equal[0]);
            }
        }
        let different = ["1", "\"1\"", "[1]", "[[1]]", "{\"a\": 1}", "{\"b\": 1}", "true", "null", "-1", "1.5"];
        let lanes: std::collections::HashSet<_> = different.iter().map(|value| format!("{:?}", lane(value))).collect();
        assert!(lanes.len() >= different.len() - 1, "{lanes:?}");
    }

    #[test]
    fn what_shares_a_lane_of_one_processor_is_spread_over_those_of_the_next() {
        let of = |seed: &str| router(Flow { lanes: 8, seed: seed.into(), ..Flow::default() });
        let (first, second) = (of("first"), of("second"));
        let lane = |router: &Router, key: &str| match router.route(&record(key, "")) {
            Route::Track(lane) => lane,
            other => panic!("{other:?}"),
        };
        let keys: Vec<String> = (0..800).map(|key| key.to_string()).filter(|key| lane(&first, key) == 3).collect();
        for wanted in 0..8 {
            assert!(keys.iter().any(|key| lane(&second, key) == wanted), "lane {wanted} has none of {}", keys.len());
        }
    }

    #[test]
    fn the_first_batcher_that_matches_has_the_record_and_the_last_one_the_rest() {
        let batcher = |name: &str, pattern| Batcher {
            name: name.into(),
            when: Some(filter(pattern, OnInvalidJson::Drop)),
            batch: BatchOptions::default(),
        };
        let batchers = vec![
            batcher("paid", r#"{"data": {"s": ["paid"]}}"#),
            batcher("any", r#"{"data": {"s": [{"exists": true}]}}"#),
        ];
        let router = router(Flow { batchers, ..Flow::default() });
        for (data, track) in [(r#"{"s":"paid"}"#, 0), (r#"{"s":"open"}"#, 1), ("{}", 2), ("not JSON", 2)] {
            assert_eq!(router.route(&record("k", data)), Route::Track(track), "{data}");
        }
    }

    #[test]
    fn what_the_filter_keeps_out_goes_nowhere_and_what_it_cannot_read_does_what_is_said() {
        let pattern = r#"{"data": {"s": ["paid"]}}"#;
        for (on_invalid_json, expected) in [
            (OnInvalidJson::Drop, Route::Nowhere { is_invalid: true }),
            (OnInvalidJson::Pass, Route::Track(0)),
            (OnInvalidJson::Fail, Route::Failed(0, String::new())),
        ] {
            let router = router(Flow { filter: Some(filter(pattern, on_invalid_json)), ..Flow::default() });
            assert_eq!(router.route(&record("k", r#"{"s":"paid"}"#)), Route::Track(0));
            assert_eq!(router.route(&record("k", r#"{"s":"open"}"#)), Route::Nowhere { is_invalid: false });
            match router.route(&record("k", "not JSON")) {
                Route::Failed(0, reason) => {
                    assert!(matches!(expected, Route::Failed(..)) && reason.contains("not JSON"))
                }
                other => assert_eq!(other, expected),
            }
        }
    }

    proptest! {
        #[test]
        fn a_key_is_always_in_the_same_lane_and_every_lane_has_some(lanes in 1..20u32, salt in any::<u32>()) {
            let by_key = router(Flow { lanes, ..Flow::default() });
            let by_pointer = router(Flow { lanes, partition_by: by(&["id"]), ..Flow::default() });
            let mut seen = std::collections::HashSet::new();
            for number in 0..lanes * 20 {
                let key = format!("{salt}-{number}");
                let Route::Track(lane) = by_key.route(&record(&key, "{}")) else { panic!() };
                prop_assert!(lane < lanes as usize);
                prop_assert_eq!(by_key.route(&record(&key, "other")), Route::Track(lane));
                // By what the body says, whatever the partition key; by the key where it says nothing.
                let of = |partition: &str, data: &str| by_pointer.route(&record(partition, data));
                let json = format!("{{\"id\": \"{key}\"}}");
                prop_assert_eq!(of("x", &json), of("y", &format!("{{\"n\": 1, \"id\":\"{key}\"}}")));
                prop_assert_eq!(of(&key, "{}"), Route::Track(lane));
                seen.insert(lane);
            }
            prop_assert_eq!(seen.len(), lanes as usize);
        }
    }
}
