use std::time::Duration;

/// How a shard is polled. The defaults are the service's limits, for one consumer alone on its stream.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Options {
    /// How long to wait at the shard's tip before the next read, in milliseconds. No shorter than the pause that
    /// `reads-per-second` makes (200 ms by default).
    pub idle_ms: u64,
    /// How long that wait may become, in milliseconds: it doubles with each page that brings nothing at the tip, and is
    /// `idle-ms` again once a record has come.
    pub idle_max_ms: u64,
    /// The most Kinesis records to ask for at once, 1 to 10,000.
    pub max_records: u32,
    /// How many reads a second to make of one shard. The service takes 5, from all consumers without fan-out together.
    pub reads_per_second: u32,
    /// How many bytes a second to read of one shard, on average. The service gives 2 MiB, to all consumers without
    /// fan-out together.
    pub bytes_per_second: u64,
    /// What decodes the answers.
    pub decoder: Decoder,
}

/// What decodes the answers of GetRecords. The records are the same.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decoder {
    /// JSON, in place: a page is the body that came in.
    #[default]
    Json,
    /// CBOR, as the Java SDK asks for it (`application/x-amz-cbor-1.1`): less to send and to decode. Answers that come
    /// in JSON all the same are read as such.
    Cbor,
    /// The AWS SDK's own, which copies each record twice.
    Sdk,
}

/// Why options cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A number out of its bounds.
    #[error("`{key}` is {value}: {allowed} is allowed")]
    OutOfBounds {
        /// The option's name.
        key: &'static str,
        /// What it is set to.
        value: u64,
        /// What it may be set to.
        allowed: String,
    },
}

/// The most records of one GetRecords (AWS limit).
const MAX_RECORDS: u32 = 10_000;
const MAX_IDLE_MS: u64 = 60_000;
const MAX_READS_PER_SECOND: u32 = 1_000;
const MIN_BYTES_PER_SECOND: u64 = 16 * 1024;

// === impl Options ===

impl Default for Options {
    fn default() -> Self {
        Self {
            idle_ms: 1_000,
            idle_max_ms: 2_000,
            max_records: MAX_RECORDS,
            reads_per_second: 5,
            bytes_per_second: 2 << 20,
            decoder: Decoder::default(),
        }
    }
}

impl Options {
    /// For a backend that has no limits on reads, as the emulators: reads as fast as it answers.
    pub fn unlimited() -> Self {
        let reads_per_second = MAX_READS_PER_SECOND;
        Self { idle_ms: 50, idle_max_ms: 50, reads_per_second, bytes_per_second: u64::MAX, ..Self::default() }
    }

    /// Checks the bounds.
    pub fn validate(&self) -> Result<(), Error> {
        let within = |key, value: u64, least: u64, most: u64| {
            let allowed = match most {
                u64::MAX => format!("{least} or more"),
                most => format!("{least} to {most}"),
            };
            if (least..=most).contains(&value) { Ok(()) } else { Err(Error::OutOfBounds { key, value, allowed }) }
        };
        within("reads-per-second", self.reads_per_second.into(), 1, MAX_READS_PER_SECOND.into())?;
        within("idle-ms", self.idle_ms, 1_000 / u64::from(self.reads_per_second), MAX_IDLE_MS)?;
        within("idle-max-ms", self.idle_max_ms, self.idle_ms, MAX_IDLE_MS)?;
        within("max-records", self.max_records.into(), 1, MAX_RECORDS.into())?;
        within("bytes-per-second", self.bytes_per_second, MIN_BYTES_PER_SECOND, u64::MAX)
    }

    /// The wait at the tip after so many pages in a row that brought nothing.
    pub(super) fn idle(&self, empty_pages: u32) -> Duration {
        let first = Duration::from_millis(self.idle_ms);
        let doubled = first.saturating_mul(1 << empty_pages.saturating_sub(1).min(20));
        doubled.min(Duration::from_millis(self.idle_max_ms)).max(first).max(self.interval())
    }

    /// The least time from one read to the next.
    pub(super) fn interval(&self) -> Duration {
        Duration::from_secs(1) / self.reads_per_second.max(1)
    }

    /// How long the service needs to give as many bytes again.
    pub(super) fn time_for(&self, bytes: u64) -> Duration {
        Duration::from_secs_f64(bytes as f64 / self.bytes_per_second.max(1) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_s_limits_are_the_default() {
        let options = Options::default();
        assert_eq!(options.validate(), Ok(()));
        assert_eq!(options.interval(), Duration::from_millis(200));
        assert_eq!(options.time_for(10 << 20), Duration::from_secs(5));
        assert_eq!(Options::unlimited().validate(), Ok(()));
    }

    #[test]
    fn errors_name_the_key_and_what_is_allowed() {
        let options: Options = serde_json::from_str(r#"{ "idle-ms": 100 }"#).unwrap();
        assert_eq!(options.validate().unwrap_err().to_string(), "`idle-ms` is 100: 200 to 60000 is allowed");
        let options = Options { idle_ms: 3_000, ..Options::default() };
        assert_eq!(options.validate().unwrap_err().to_string(), "`idle-max-ms` is 2000: 3000 to 60000 is allowed");
        let options = Options { max_records: 10_001, ..Options::default() };
        assert_eq!(options.validate().unwrap_err().to_string(), "`max-records` is 10001: 1 to 10000 is allowed");
        let options: Options = serde_json::from_str(r#"{ "decoder": "cbor" }"#).unwrap();
        assert_eq!(options, Options { decoder: Decoder::Cbor, ..Options::default() });
        let unknown = serde_json::from_str::<Options>(r#"{ "decoder": "protobuf" }"#).unwrap_err().to_string();
        assert!(unknown.contains("`json`, `cbor`, `sdk`"), "{unknown}");
        assert!(serde_json::from_str::<Options>(r#"{ "idle": 100 }"#).unwrap_err().to_string().contains("idle-ms"));
    }
}
