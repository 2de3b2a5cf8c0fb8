//! What a stream is like, and how that is shown.

use std::collections::BTreeSet;

use aws_sdk_kinesis::types::{EncryptionType, StreamDescriptionSummary, StreamMode};
use comfy_table::Table;
use serde_json::{Value, json};
use shardmill_cause::code;
use shardmill_record::{HashKeyRange, ShardId, StreamArn};
use shardmill_stream::{Shard, lineage};

use super::refusal::{Order, refused};
use crate::cli::access::Access;
use crate::cli::{Failure, table, text};

const SHARE: usize = 2;

/// A stream and its shards.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Description {
    pub(super) name: String,
    pub(super) arn: String,
    /// As the service writes it.
    pub(super) status: String,
    pub(super) mode: Mode,
    pub(super) retention_hours: u32,
    /// In milliseconds since 1970.
    pub(super) created_at: u64,
    /// Whether it is encrypted with a key of KMS.
    pub(super) encrypted: bool,
    /// Consumers with enhanced fan-out.
    pub(super) consumers: u32,
    /// The largest record that it takes, in KiB, if the service says.
    pub(super) max_record_kib: Option<u32>,
    /// Parents first.
    pub(super) shards: Vec<Shard>,
}

/// Who decides how many shards there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Provisioned,
    OnDemand,
}

// === impl Mode ===

impl Mode {
    fn as_str(self) -> &'static str {
        match self {
            Self::Provisioned => "provisioned",
            Self::OnDemand => "on-demand",
        }
    }
}

// === impl Description ===

impl Description {
    /// Asks for it.
    pub(super) async fn of(access: &Access) -> Result<Self, Failure> {
        let request = access.client.describe_stream_summary();
        let request = if StreamArn::is_meant(&access.stream) {
            request.stream_arn(&access.stream)
        } else {
            request.stream_name(&access.stream)
        };
        let answer = request.send().await.map_err(|error| refused(access, Order::Describe, &error))?;
        let summary = answer.stream_description_summary.ok_or_else(|| {
            Failure::unavailable(format!("the description of stream {} is empty", access.stream))
                .code(code::stream::INVALID_ANSWER)
                .help("check what answers at the endpoint")
        })?;
        // A stream that is being created has no shards yet, and cannot be listed.
        let shards = match summary.stream_status() {
            aws_sdk_kinesis::types::StreamStatus::Creating => Vec::new(),
            _other => access.kinesis.list_shards(&access.stream).await?,
        };
        Ok(Self::new(&summary, shards))
    }

    fn new(summary: &StreamDescriptionSummary, shards: Vec<Shard>) -> Self {
        let created = summary.stream_creation_timestamp().to_millis().ok();
        let mode = summary.stream_mode_details().map(|details| &details.stream_mode);
        Self {
            name: summary.stream_name().to_owned(),
            arn: summary.stream_arn().to_owned(),
            status: summary.stream_status().as_str().to_owned(),
            mode: if mode == Some(&StreamMode::OnDemand) { Mode::OnDemand } else { Mode::Provisioned },
            retention_hours: summary.retention_period_hours().try_into().unwrap_or(0),
            created_at: created.and_then(|time| u64::try_from(time).ok()).unwrap_or(0),
            encrypted: summary.encryption_type() == Some(&EncryptionType::Kms),
            consumers: summary.consumer_count().unwrap_or(0).try_into().unwrap_or(0),
            max_record_kib: summary.max_record_size_in_kib().and_then(|size| size.try_into().ok()),
            shards: parents_first(shards),
        }
    }

    /// The shards that take records.
    pub(super) fn open(&self) -> impl Iterator<Item = &Shard> {
        self.shards.iter().filter(|shard| shard.is_open())
    }

    /// What there is to say besides the shards, each with its name.
    pub(super) fn facts(&self) -> Vec<(&'static str, String)> {
        let closed = self.shards.len() - self.open().count();
        let mut facts = vec![
            ("stream", self.name.clone()),
            ("arn", self.arn.clone()),
            ("status", self.status.clone()),
            ("capacity", self.mode.as_str().to_owned()),
            ("shards", format!("{} open, {closed} closed", self.open().count())),
            ("retention", format!("{} h", self.retention_hours)),
            ("created", text::time(self.created_at)),
            ("encryption", if self.encrypted { "KMS" } else { "none" }.to_owned()),
            ("fan-out", text::counted(u64::from(self.consumers), "consumer")),
        ];
        if let Some(size) = self.max_record_kib {
            facts.push(("records", format!("up to {size} KiB")));
        }
        facts
    }

    /// A row for each shard, or each that is open.
    pub(super) fn table(&self, closed_as_well: bool) -> Table {
        let header = ["Shard", "State", "Share", "Hash keys, first and last", "From", "Followed by"];
        let mut table = table::wide(header, &[SHARE]);
        for shard in self.shards.iter().filter(|shard| closed_as_well || shard.is_open()) {
            table.add_row([
                shard.id.to_string(),
                if shard.is_open() { "open" } else { "closed" }.to_owned(),
                share(shard.range),
                format!("{}\n{}", shard.range.start, shard.range.end),
                ids(&shard.parents).join("\n"),
                self.children(shard).join("\n"),
            ]);
        }
        table
    }

    /// All of it, or with the open shards only. Hash keys and sequence numbers are texts: they are larger than what most
    /// readers of JSON take for a number.
    pub(super) fn json(&self, closed_as_well: bool) -> Value {
        let shards: Vec<Value> = self
            .shards
            .iter()
            .filter(|shard| closed_as_well || shard.is_open())
            .map(|shard| {
                json!({
                    "id": shard.id.as_str(),
                    "open": shard.is_open(),
                    "starting_hash_key": shard.range.start.to_string(),
                    "ending_hash_key": shard.range.end.to_string(),
                    "starting_sequence_number": shard.starting_sequence.as_str(),
                    "ending_sequence_number": shard.ending_sequence.as_ref().map(|number| number.as_str().to_owned()),
                    "parents": ids(&shard.parents),
                    "children": self.children(shard),
                })
            })
            .collect();
        json!({
            "stream": self.name,
            "arn": self.arn,
            "status": self.status,
            "capacity": self.mode.as_str(),
            "open_shards": self.open().count(),
            "retention_hours": self.retention_hours,
            "created_at": self.created_at,
            "encrypted": self.encrypted,
            "consumers": self.consumers,
            "max_record_kib": self.max_record_kib,
            "shards": shards,
        })
    }

    fn children(&self, shard: &Shard) -> Vec<String> {
        let children = lineage::children_of(&shard.id, &self.shards);
        children.into_iter().map(|child| child.id.to_string()).collect()
    }
}

fn ids(ids: &[ShardId]) -> Vec<String> {
    ids.iter().map(ToString::to_string).collect()
}

/// Of all hash keys, in percent.
fn share(range: HashKeyRange) -> String {
    let width = range.end.get().saturating_sub(range.start.get()) as f64 + 1.0;
    format!("{:.2} %", width / (u128::MAX as f64) * 100.0)
}

/// Each shard after its parents, as far as they are listed; else by hash key, as they lie.
fn parents_first(mut shards: Vec<Shard>) -> Vec<Shard> {
    shards.sort_by(|left, right| (left.range.start, &left.id).cmp(&(right.range.start, &right.id)));
    let mut ordered: Vec<Shard> = Vec::with_capacity(shards.len());
    while !shards.is_empty() {
        let waiting: BTreeSet<ShardId> = shards.iter().map(|shard| shard.id.clone()).collect();
        let (now, later): (Vec<_>, Vec<_>) =
            shards.into_iter().partition(|shard| !shard.parents.iter().any(|parent| waiting.contains(parent)));
        shards = later;
        if now.is_empty() {
            // Shards in a circle cannot be; none of them is left out.
            ordered.append(&mut shards);
        }
        ordered.extend(now);
    }
    ordered
}

#[cfg(test)]
pub(super) mod tests {
    use shardmill_record::{HashKey, SequenceNumber};

    use super::*;

    const MIDDLE: u128 = 1 << 127;

    pub(in crate::cli::stream) fn id(text: &str) -> ShardId {
        ShardId::parse(text).unwrap()
    }

    pub(in crate::cli::stream) fn shard(
        name: &str,
        parents: &[&str],
        (start, end): (u128, u128),
        is_open: bool,
    ) -> Shard {
        Shard {
            id: id(name),
            parents: parents.iter().map(|parent| id(parent)).collect(),
            range: HashKeyRange { start: HashKey::new(start), end: HashKey::new(end) },
            starting_sequence: SequenceNumber::parse("1").unwrap(),
            ending_sequence: (!is_open).then(|| SequenceNumber::parse("2").unwrap()),
        }
    }

    /// `a` and `b`; `b` is split into `d` and `c`, and `a` and `d` are merged to `e`.
    fn description() -> Description {
        let quarter = MIDDLE / 2;
        let shards = vec![
            shard("e", &["a", "d"], (0, MIDDLE + quarter - 1), true),
            shard("c", &["b"], (MIDDLE + quarter, u128::MAX), true),
            shard("d", &["b"], (MIDDLE, MIDDLE + quarter - 1), false),
            shard("b", &["expired"], (MIDDLE, u128::MAX), false),
            shard("a", &[], (0, MIDDLE - 1), false),
        ];
        Description {
            name: "orders".into(),
            arn: "arn:aws:kinesis:eu-west-1:123456789012:stream/orders".into(),
            status: "ACTIVE".into(),
            mode: Mode::Provisioned,
            retention_hours: 24,
            created_at: 1_790_000_000_000,
            encrypted: false,
            consumers: 1,
            max_record_kib: Some(1024),
            shards: parents_first(shards),
        }
    }

    #[test]
    fn shards_are_shown_parents_first_with_what_came_from_what() {
        let description = description();
        let ordered: Vec<&str> = description.shards.iter().map(|shard| shard.id.as_str()).collect();
        assert_eq!(ordered, ["a", "b", "d", "c", "e"]);
        let lines = |closed_as_well: bool| description.table(closed_as_well).lines().collect::<Vec<String>>();
        let rows: Vec<String> = lines(true).into_iter().skip(3).map(|row| row.replace(' ', "")).collect();
        // Two lines for a shard, whatever the terminal.
        assert_eq!(rows[0], "│a┆closed┆50.00%┆0┆┆e│");
        assert_eq!(rows[1], "│┆┆┆170141183460469231731687303715884105727┆┆│");
        assert!(rows[2].contains("┆expired┆d│") && rows[3].ends_with("┆┆c│"), "{rows:?}");
        assert!(rows[8].starts_with("│e┆open┆75.00%┆0┆a┆") && rows[9].ends_with("┆d┆│"), "{rows:?}");
        assert_eq!(lines(false).len(), 8, "a frame, a head and two open shards");
        let facts = description.facts();
        assert!(facts.contains(&("shards", "2 open, 3 closed".to_owned())), "{facts:?}");
        assert!(facts.contains(&("created", "2026-09-21T14:13:20.000Z".to_owned())), "{facts:?}");
    }

    #[test]
    fn json_says_the_same_in_texts_where_numbers_would_be_too_large() {
        let json = description().json(true);
        assert_eq!((&json["open_shards"], json["shards"].as_array().unwrap().len()), (&2.into(), 5));
        let merged = &json["shards"][4];
        assert_eq!(merged["parents"], json!(["a", "d"]));
        assert_eq!(merged["starting_hash_key"], "0");
        assert_eq!((&merged["open"], &merged["ending_sequence_number"]), (&true.into(), &Value::Null));
        assert_eq!(json["shards"][1]["children"], json!(["d", "c"]));
        assert_eq!(description().json(false)["shards"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn shards_in_a_circle_are_all_shown() {
        let circle = vec![shard("a", &["b"], (0, 1), true), shard("b", &["a"], (2, 3), true)];
        assert_eq!(parents_first(circle).len(), 2);
    }
}
