//! What was written through a proxy, in order.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use super::call::Call;
use super::http::Answer;

/// A call that was carried out and may have changed something.
///
/// Moments are counted over all links of a proxy: what was `carried` after another call had been `answered` came after
/// it.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    /// The link that it came over.
    pub link: String,
    /// Its operation.
    pub operation: String,
    /// The stream that it is about.
    pub stream: Option<String>,
    /// The table that it is about.
    pub table: Option<String>,
    /// When it was handed to the service.
    pub carried: u64,
    /// When the service had answered.
    pub answered: u64,
    /// The same by the clock on the wall, in milliseconds since 1970.
    pub time: u64,
    /// The HTTP status.
    pub status: u16,
    /// What was asked, without the records of PutRecords.
    pub request: Value,
    /// What the service answered, whatever the worker saw of it.
    pub answer: Value,
}

#[derive(Debug, Default)]
pub(super) struct Journal {
    is_kept: AtomicBool,
    moments: AtomicU64,
    writes: Mutex<Vec<Write>>,
    untold: Mutex<Vec<Value>>,
}

// === impl Journal ===

impl Journal {
    pub(super) fn keep(&self) {
        self.is_kept.store(true, SeqCst);
    }

    pub(super) fn moment(&self) -> u64 {
        self.moments.fetch_add(1, SeqCst)
    }

    pub(super) fn note(&self, link: &str, call: &Call, carried: u64, answer: &Answer) {
        let answered = self.moment();
        if !self.is_kept.load(SeqCst) || !call.writes() {
            return;
        }
        let mut request = call.body.clone();
        if call.operation == "PutRecords" {
            // What was put is in the stream, and a run of hours puts much.
            request["Records"].take();
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let write = Write {
            link: link.to_owned(),
            operation: call.operation.clone(),
            stream: call.stream.clone(),
            table: call.table.clone(),
            carried,
            answered,
            time: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            status: answer.status,
            request,
            answer: serde_json::from_slice(&answer.body).unwrap_or_default(),
        };
        self.writes.lock().unwrap_or_else(PoisonError::into_inner).push(write);
    }

    /// Notes an answer to PutRecords that its worker does not get.
    pub(super) fn note_untold(&self, answer: Value) {
        if self.is_kept.load(SeqCst) {
            self.untold.lock().unwrap_or_else(PoisonError::into_inner).push(answer);
        }
    }

    pub(super) fn untold(&self) -> Vec<Value> {
        self.untold.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn writes(&self) -> Vec<Write> {
        self.writes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
