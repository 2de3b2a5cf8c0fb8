//! A page of one shard's records out of the emulator's store, and what is said with it about the shard.

use ferrokinesis::sequence;
use ferrokinesis::types::{EpochSeconds, HashKeyRange, ResponseRecord, Shard, StoredRecord, Stream};
use serde::Serialize;
use tokio::task::unconstrained;

use super::Backend;
use crate::unix_ms;

/// Most that one GetRecords returns, decoded data and keys together (API reference, GetRecords: "the maximum size of
/// data that GetRecords can return is 10 MiB").
pub(super) const MAX_PAGE_BYTES: usize = 10 << 20;

/// The first look into the store: records are of unknown size then, and a look copies what it finds.
const FIRST_LOOK: usize = 100;

/// What was read.
#[derive(Default)]
pub(super) struct Page {
    /// `(key in the store, record)`; the key is `shard/sequence number`.
    records: Vec<(String, StoredRecord)>,
    /// Store key of the last record looked at, also when it was past retention.
    last: Option<String>,
    /// Decoded data and keys.
    pub(super) bytes: usize,
    /// Whether the shard holds records after this page.
    more: bool,
}

/// A shard that continues one that has ended, as GetRecords and SubscribeToShard announce it.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ChildShard<'a> {
    shard_id: &'a str,
    parent_shards: Vec<&'a str>,
    hash_key_range: &'a HashKeyRange,
}

// === impl Page ===

impl Page {
    /// Up to `limit` records of shard `index` at or after the sequence number `from`, within `max_bytes` (at least one
    /// record), without those past the stream's retention.
    pub(super) async fn read(
        backend: &Backend,
        stream: &Stream,
        index: i64,
        from: &str,
        limit: usize,
        max_bytes: usize,
    ) -> Page {
        let mut page = Page::default();
        let horizon = (unix_ms::now() / 1000) as f64 - f64::from(stream.retention_period_hours) * 3600.0;
        let mut start = format!("{}/{from}", sequence::shard_ix_to_hex(index));
        let end = sequence::shard_ix_to_hex(index + 1);
        let mut look = FIRST_LOOK.min(limit + 1);
        let _no_write_under_way = backend.records.read().await;
        loop {
            let find = backend.store.get_records_range_limited(&stream.stream_name, &start, &end, look);
            // Not to be suspended with the map locked (see `Backend::records`): nothing in it has to wait.
            let found = unconstrained(find).await;
            let exhausted = found.len() < look;
            for (key, record) in found {
                if record.approximate_arrival_timestamp < horizon {
                    page.last = Some(key);
                    continue;
                }
                let size = decoded_len(&record.data) + record.partition_key.len();
                let over = page.bytes + size > max_bytes && !page.records.is_empty();
                if page.records.len() == limit || over {
                    page.more = true;
                    return page;
                }
                page.bytes += size;
                page.last = Some(key.clone());
                page.records.push((key, record));
            }
            match &page.last {
                // The least key above the last one.
                Some(last) if !exhausted => start = format!("{last}\0"),
                _ => return page,
            }
            look = next_look(page.records.len(), page.bytes, limit, max_bytes);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The sequence number to go on from: above the last record's, or `from` where there was none.
    pub(super) fn next(&self, from: &str) -> String {
        match self.last.as_deref().map(sequence_number).and_then(|last| sequence::parse_sequence(last).ok()) {
            Some(last) => sequence::increment_sequence(&last, None),
            None => from.to_string(),
        }
    }

    /// 0 when the shard holds nothing after this page, else how long ago the page's last record arrived (arrival times
    /// are whole seconds), at least 1.
    pub(super) fn millis_behind(&self, now_ms: u64) -> u64 {
        match self.records.last() {
            Some((_, last)) if self.more => {
                now_ms.saturating_sub((last.approximate_arrival_timestamp * 1000.0) as u64).max(1)
            }
            _ => 0,
        }
    }

    pub(super) fn response_records(&self) -> Vec<ResponseRecord<'_>> {
        self.records
            .iter()
            .map(|(key, record)| ResponseRecord {
                partition_key: &record.partition_key,
                data: &record.data,
                approximate_arrival_timestamp: EpochSeconds(record.approximate_arrival_timestamp),
                sequence_number: sequence_number(key),
            })
            .collect()
    }
}

/// Whether a reader has reached the end of shard `index`: it found nothing, and the shard was closed before it looked.
/// Pages are read with no write under way, so no record that was numbered before the closing is still to come.
pub(super) fn has_ended(page: &Page, before: &Stream, index: i64) -> bool {
    let shard = usize::try_from(index).ok().and_then(|index| before.shards.get(index));
    page.records.is_empty() && shard.is_some_and(is_closed)
}

/// The shards that continue `shard_id`: two after a split, one after a merge (which names both parents).
pub(super) fn children<'a>(shards: &'a [Shard], shard_id: &str) -> Vec<ChildShard<'a>> {
    shards
        .iter()
        .map(|shard| ChildShard {
            shard_id: &shard.shard_id,
            parent_shards: shard
                .parent_shard_id
                .iter()
                .chain(&shard.adjacent_parent_shard_id)
                .map(String::as_str)
                .collect(),
            hash_key_range: &shard.hash_key_range,
        })
        .filter(|child| child.parent_shards.contains(&shard_id))
        .collect()
}

pub(super) fn is_closed(shard: &Shard) -> bool {
    shard.sequence_number_range.ending_sequence_number.is_some()
}

/// How many records to copy next, so that the page is filled without copying much beyond it.
fn next_look(records: usize, bytes: usize, limit: usize, max_bytes: usize) -> usize {
    let average = (bytes / records.max(1)).max(1);
    let fitting = max_bytes.saturating_sub(bytes) / average + 1;
    fitting.min((limit + 1).saturating_sub(records)).max(1)
}

/// The part after the shard in `00000000/49590338271490256608559692538361571095921575989136588898`.
fn sequence_number(key: &str) -> &str {
    key.split_once('/').map_or(key, |(_, sequence)| sequence)
}

fn decoded_len(base64: &str) -> usize {
    let padding = base64.bytes().rev().take_while(|byte| *byte == b'=').count();
    (base64.len() / 4 * 3).saturating_sub(padding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrokinesis::types::SequenceNumberRange;

    fn shard(id: &str, parents: [Option<&str>; 2]) -> Shard {
        Shard {
            shard_id: id.to_string(),
            hash_key_range: HashKeyRange::new("0".into(), "1".into()),
            sequence_number_range: SequenceNumberRange {
                starting_sequence_number: "1".into(),
                ending_sequence_number: None,
            },
            parent_shard_id: parents[0].map(String::from),
            adjacent_parent_shard_id: parents[1].map(String::from),
        }
    }

    fn page(arrivals: &[f64], more: bool) -> Page {
        let record = |arrival: &f64| StoredRecord {
            partition_key: "k".into(),
            data: String::new(),
            approximate_arrival_timestamp: *arrival,
        };
        Page { records: arrivals.iter().map(|at| ("0/1".into(), record(at))).collect(), more, ..Page::default() }
    }

    #[test]
    fn a_merge_is_a_child_of_both_parents_and_names_them() {
        let shards = [
            shard("a", [None, None]),
            shard("b", [None, None]),
            shard("c", [Some("a"), Some("b")]),
            shard("d", [Some("c"), None]),
        ];
        for parent in ["a", "b"] {
            let found = children(&shards, parent);
            assert_eq!(found.len(), 1);
            assert_eq!((found[0].shard_id, found[0].parent_shards.as_slice()), ("c", ["a", "b"].as_slice()));
        }
        assert_eq!(children(&shards, "d"), []);
    }

    #[test]
    fn a_reader_is_behind_only_while_records_remain() {
        assert_eq!(page(&[7.0], true).millis_behind(9_500), 2_500);
        assert_eq!(page(&[7.0], false).millis_behind(9_500), 0);
        assert_eq!(page(&[], false).millis_behind(9_500), 0);
        // The first records of a new shard are dated up to a second ahead.
        assert_eq!(page(&[10.0], true).millis_behind(9_500), 1);
    }

    #[test]
    fn looks_grow_to_fill_the_page_and_no_further() {
        assert_eq!(next_look(100, 10_000, 10_000, MAX_PAGE_BYTES), 9_901);
        assert_eq!(next_look(100, 100 << 10, 10_000, MAX_PAGE_BYTES), 9_901);
        assert_eq!(next_look(9, 9 << 20, 10_000, MAX_PAGE_BYTES), 2);
        assert_eq!(next_look(0, 0, 10, MAX_PAGE_BYTES), 11);
        assert_eq!(next_look(10, 11 << 20, 10, MAX_PAGE_BYTES), 1);
    }

    #[test]
    fn base64_is_measured_without_decoding_it() {
        for (text, length) in [("", 0), ("YQ==", 1), ("YWI=", 2), ("YWJj", 3)] {
            assert_eq!(decoded_len(text), length, "{text}");
        }
    }
}
