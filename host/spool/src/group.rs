//! Which records are stored together: what has gathered from many callers, as far as one change of the database takes it.
//! Pure.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use shardmill_record::UserRecord;

use crate::Error;
use crate::database::row;
use crate::job::{Job, Store, Unstored};
use crate::layout::{Layout, Need};

/// Records of many calls, for one change.
#[derive(Default)]
pub(crate) struct Group {
    pub(crate) parts: Vec<Part>,
    pub(crate) need: Need,
}

/// The records of one call from `next` to `upto`.
pub(crate) struct Part {
    pub(crate) store: Store,
    pub(crate) upto: usize,
    /// Those among them that cannot be stored at all.
    pub(crate) too_large: Vec<Unstored>,
    /// Why the rest of the call's records is not stored.
    pub(crate) refusal: Option<Arc<Error>>,
}

/// What a change takes, record by record.
#[derive(Default)]
pub(crate) struct Estimate {
    need: Need,
    streams: BTreeSet<Arc<str>>,
}

// === impl Group ===

impl Group {
    /// Takes the calls that wait at the front. What does not fit any more stays there, and goes on where it was.
    pub(crate) fn take(waiting: &mut VecDeque<Job>, layout: Layout, too_large: impl Fn(u64) -> Error) -> Self {
        let (mut parts, mut estimate) = (Vec::new(), Estimate::default());
        while let Some(Job::Store(_)) = waiting.front() {
            let Some(Job::Store(store)) = waiting.pop_front() else { break };
            // Nobody waits for it any more, and none of it is stored.
            if store.next == 0 && store.done.is_closed() {
                continue;
            }
            let (mut upto, mut refused, mut is_full) = (store.next, Vec::new(), false);
            for record in &store.records[store.next..] {
                let bytes = row::size(record);
                if !layout.takes(bytes, &store.stream) {
                    refused.push((upto, Arc::new(too_large(bytes))));
                    upto += 1;
                    continue;
                }
                let with = estimate.with(&store.stream, bytes);
                if !layout.takes_at_once(&with) {
                    is_full = true;
                    break;
                }
                estimate.add(&store.stream, bytes);
                upto += 1;
            }
            if is_full && upto == store.next {
                waiting.push_front(Job::Store(store));
                break;
            }
            parts.push(Part { store, upto, too_large: refused, refusal: None });
            if is_full {
                break;
            }
        }
        Self { parts, need: estimate.need }
    }
}

// === impl Part ===

impl Part {
    /// The records that are to be stored, with their places.
    pub(crate) fn records(&self) -> impl Iterator<Item = (usize, &UserRecord)> {
        let is_good = |index: usize| self.too_large.binary_search_by_key(&index, |(index, _)| *index).is_err();
        let all = self.store.records.iter().enumerate().take(self.upto).skip(self.store.next);
        all.filter(move |(index, _)| is_good(*index))
    }

    /// Lets it end before this record: the call's records from there on are refused.
    pub(crate) fn ends_at(&mut self, index: usize, why: Arc<Error>) {
        self.upto = index;
        self.too_large.retain(|(too_large, _)| *too_large < index);
        self.refusal = Some(why);
    }
}

// === impl Estimate ===

impl Estimate {
    /// With this record as well.
    pub(crate) fn with(&self, stream: &Arc<str>, bytes: u64) -> Need {
        let mut need = self.need;
        if !self.streams.contains(stream) {
            need.add_stream(stream);
        }
        need.add(bytes);
        need
    }

    pub(crate) fn add(&mut self, stream: &Arc<str>, bytes: u64) {
        self.need = self.with(stream, bytes);
        if !self.streams.contains(stream) {
            self.streams.insert(Arc::clone(stream));
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    type Answer = oneshot::Receiver<Vec<Unstored>>;

    fn store(stream: &str, sizes: &[usize]) -> (Job, Answer) {
        let record = |size: &usize| UserRecord {
            partition_key: "k".into(),
            explicit_hash_key: None,
            data: vec![0; *size].into(),
        };
        let (done, answer) = oneshot::channel();
        let records = Arc::new(sizes.iter().map(record).collect());
        let refused = Vec::new();
        (Job::Store(Store { stream: stream.into(), records, next: 0, refused, storing: None, done }), answer)
    }

    fn parts(group: &Group) -> Vec<(usize, usize, bool)> {
        group.parts.iter().map(|part| (part.store.next, part.upto, !part.too_large.is_empty())).collect()
    }

    fn too_large(bytes: u64) -> Error {
        Error::TooLarge { folder: "here".into(), record_bytes: bytes, bytes: 1 << 20 }
    }

    #[test]
    fn what_has_gathered_goes_together_up_to_the_next_job_of_another_kind() {
        let (first, _a) = store("a", &[10, 20]);
        let (second, _b) = store("b", &[30]);
        let (third, _c) = store("a", &[40]);
        let (done, _closed) = oneshot::channel();
        let mut waiting: VecDeque<Job> = [first, second, Job::Close { done }, third].into();
        let group = Group::take(&mut waiting, Layout::of(1 << 20), too_large);
        assert_eq!(parts(&group), [(0, 2, false), (0, 1, false)]);
        assert_eq!(waiting.len(), 2);
    }

    #[test]
    fn a_call_that_nobody_waits_for_is_left_out() {
        let (first, gone) = store("a", &[10]);
        let (second, _b) = store("a", &[20]);
        drop(gone);
        let group = Group::take(&mut [first, second].into(), Layout::of(1 << 20), too_large);
        assert_eq!(group.parts.len(), 1);
        assert_eq!(group.parts[0].store.records[0].data.len(), 20);
    }

    #[test]
    fn a_large_call_is_divided_and_what_does_not_fit_at_all_is_left_out() {
        let layout = Layout::of(1 << 20);
        // About 47 pages for a group.
        let (large, _a) = store("a", &[50_000; 7]);
        let (odd, _b) = store("a", &[1, 400_000, 2]);
        let mut waiting: VecDeque<Job> = [large, odd].into();
        let mut taken = Vec::new();
        while !waiting.is_empty() {
            let group = Group::take(&mut waiting, layout, too_large);
            assert!(layout.takes_at_once(&group.need));
            taken.extend(parts(&group));
            for mut part in group.parts {
                if part.upto < part.store.records.len() {
                    part.store.next = part.upto;
                    waiting.push_front(Job::Store(part.store));
                }
            }
        }
        assert_eq!(taken, [(0, 2, false), (2, 4, false), (4, 6, false), (6, 7, false), (0, 3, true)]);
        let (odd, _c) = store("a", &[1, 400_000, 2]);
        let group = Group::take(&mut [odd].into(), layout, too_large);
        assert_eq!(group.parts[0].records().map(|(index, _)| index).collect::<Vec<_>>(), [0, 2]);
        assert!(matches!(&group.parts[0].too_large[..], [(1, error)] if error.is_full()));
    }
}
