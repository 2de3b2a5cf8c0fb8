//! The streams of a consumer, and which of their incarnations is read now: a stream may be deleted and created again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use shardmill_lease::store::{KeyForm, StreamIdentity};
use shardmill_lease::{LeaseKey, StreamKey};
use shardmill_record::ShardId;
use shardmill_stream::polling;
use shardmill_stream::retention::Reset;
use shardmill_stream::{Kinesis, StreamInfo};
use tokio::sync::{Notify, watch};

use crate::Options;

/// A stream that a consumer reads.
#[derive(Debug, Clone)]
pub struct Input {
    /// How the consumer works on this stream: where it begins is the stream's own, all else is the same for each.
    pub options: Arc<Options>,
    /// The stream's service, in the stream's region.
    pub kinesis: Kinesis,
    /// How it is read.
    pub polling: polling::Options,
    /// What to do where a checkpoint fell out of its retention.
    pub reset: Reset,
}

/// One life of a stream, from its creation to its deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Incarnation {
    pub(crate) info: StreamInfo,
    /// Its part of lease keys; `None` where the table belongs to it alone.
    pub(crate) key: Option<StreamKey>,
}

/// What is read now.
#[derive(Debug, Clone)]
struct Now {
    /// Grows with every change.
    generation: u64,
    /// `None` while the stream is not there, or it is not certain which one is.
    incarnation: Option<Arc<Incarnation>>,
}

/// A stream of a running consumer.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) input: Input,
    now: watch::Sender<Now>,
    alarm: Notify,
    /// How long it keeps records, as was seen last.
    retention_hours: AtomicU32,
}

// === impl Incarnation ===

impl Incarnation {
    pub(crate) fn identity(&self) -> StreamIdentity {
        let key_form = if self.key.is_some() { KeyForm::MultiStream } else { KeyForm::Shard };
        StreamIdentity { arn: self.info.arn.clone(), created_at: self.info.creation_time_ms, key_form }
    }

    pub(crate) fn lease_key(&self, shard: &ShardId) -> LeaseKey {
        match &self.key {
            Some(stream) => LeaseKey::of_stream(stream, shard),
            None => LeaseKey::of_shard(shard),
        }
    }

    pub(crate) fn owns(&self, lease: &LeaseKey) -> bool {
        lease.stream() == self.key
    }

    pub(crate) fn is_same(&self, other: &StreamInfo) -> bool {
        (self.info.creation_time_ms, &self.info.arn) == (other.creation_time_ms, &other.arn)
    }
}

// === impl Stream ===

impl Stream {
    pub(crate) fn new(input: Input, incarnation: Incarnation) -> Self {
        let retention_hours = AtomicU32::new(incarnation.info.retention_hours);
        let now = Now { generation: 0, incarnation: Some(Arc::new(incarnation)) };
        Self { input, now: watch::Sender::new(now), alarm: Notify::new(), retention_hours }
    }

    /// How long it keeps records, in hours.
    pub(crate) fn retention_hours(&self) -> u32 {
        self.retention_hours.load(Ordering::Relaxed)
    }

    /// Asks how long it keeps records now. What cannot be asked stays as it was.
    pub(crate) async fn look_at_retention(&self) {
        if let Ok(info) = self.input.kinesis.describe(self.name()).await {
            self.retention_hours.store(info.retention_hours, Ordering::Relaxed);
        }
    }

    /// The stream, as it was asked for.
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.input.options.stream
    }

    /// What is read now.
    pub(crate) fn incarnation(&self) -> Option<Arc<Incarnation>> {
        self.now.borrow().incarnation.clone()
    }

    pub(crate) fn set(&self, incarnation: Option<Arc<Incarnation>>) {
        self.now.send_modify(|now| *now = Now { generation: now.generation + 1, incarnation });
    }

    /// Says that the stream seems to be gone, or to be another one. What [`Stream::after`] takes.
    pub(crate) fn raise_alarm(&self) -> u64 {
        let generation = self.now.borrow().generation;
        self.alarm.notify_one();
        generation
    }

    /// Returns when somebody has raised the alarm.
    pub(crate) async fn alarmed(&self) {
        self.alarm.notified().await;
    }

    /// What is read once the alarm was looked into.
    pub(crate) async fn after(&self, generation: u64) -> Arc<Incarnation> {
        let mut now = self.now.subscribe();
        let is_settled = |now: &Now| now.generation > generation && now.incarnation.is_some();
        match now.wait_for(is_settled).await.ok().and_then(|now| now.incarnation.clone()) {
            Some(incarnation) => incarnation,
            // The sender is in `self`, so that this is never reached.
            None => std::future::pending().await,
        }
    }
}
