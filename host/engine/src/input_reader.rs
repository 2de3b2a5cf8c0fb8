//! Reads a leased shard, whatever becomes of its stream meanwhile.
//!
//! Two things are seen here that a reader of one shard cannot decide: that the checkpoint at which it was resumed is out
//! of the stream's retention, and that the stream is gone or is another one. In the second case the consumer is told, and
//! the reader waits: the shard's lease goes with the stream's others.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use shardmill_cause::{code, with_causes};
use shardmill_lease::LeaseKey;
use shardmill_lease::store::Store;
use shardmill_record::{Page, SequenceNumber, ShardId};
use shardmill_stream::polling::{self, Condition, Phase, PollingReader, ReadLimits};
use shardmill_stream::retention::{Left, Reset, Retention, Verdict};
use shardmill_stream::{Demand, Error, ReadFrom, ReadPage, Reader};
use tokio::time::{Instant, sleep};

use crate::input::{Incarnation, Stream};
use crate::wall_clock::now_ms;

/// Before something is asked again that could not be asked.
const AGAIN: Duration = Duration::from_secs(1);

/// What readers of a consumer are made of.
#[derive(Clone)]
pub(crate) struct Sources {
    pub(crate) limits: ReadLimits,
    pub(crate) metrics: shardmill_stream::Metrics,
    pub(crate) store: Arc<dyn Store>,
    /// After this time a lease of a stream that is gone is lost for certain.
    pub(crate) expiry: Duration,
}

/// Reads one shard.
pub(crate) struct InputReader {
    sources: Sources,
    stream: Arc<Stream>,
    incarnation: Arc<Incarnation>,
    shard: ShardId,
    lease: LeaseKey,
    seed: u64,
    /// Where it says what it is about, whatever becomes of its readers.
    condition: Condition,
    reader: PollingReader,
    /// Where another reader would go on.
    from: ReadFrom,
    /// While it is not known whether the checkpoint's record is there.
    retention: Option<Retention>,
    /// Why the service does not take the checkpoint for a position. The oldest record tells whether it is right.
    refused: Option<Error>,
    /// A page that is being judged. Kept here, so that a call that is cancelled has not lost it.
    pending: Option<ReadPage>,
    /// The stream was found to be gone or another one, after this generation of it.
    waiting: Option<u64>,
}

/// The document that says from when on a shard is read whose checkpoint is out of retention.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Skip {
    checkpoint: String,
    /// Milliseconds since 1970.
    at: u64,
}

// === impl InputReader ===

impl InputReader {
    /// A reader that begins at `from`. `checkpoint` is the record that `from` stands for, if it was processed.
    pub(crate) async fn new(
        sources: Sources,
        (stream, incarnation): (Arc<Stream>, Arc<Incarnation>),
        (shard, lease): (ShardId, LeaseKey),
        from: ReadFrom,
        checkpoint: Option<SequenceNumber>,
        condition: Condition,
        seed: u64,
    ) -> Self {
        let (mut from, mut retention) = (from, checkpoint.map(Retention::new));
        if stream.input.reset == Reset::Latest
            && let Some(checked) = &retention
        {
            condition.enter(Phase::Store, Instant::now());
            if let Some(at) = skipped(sources.store.as_ref(), &lease, checked.checkpoint()).await {
                (from, retention) = (ReadFrom::AtTimestamp(at), None);
            }
        }
        condition.enter(Phase::Starting, Instant::now());
        let reader = open(&sources, &stream, &incarnation, &shard, from.clone(), condition.clone(), seed);
        Self {
            sources,
            stream,
            incarnation,
            shard,
            lease,
            seed,
            condition,
            reader,
            from,
            retention,
            refused: None,
            pending: None,
            waiting: None,
        }
    }

    fn reopen(&mut self, from: ReadFrom) {
        let Self { sources, stream, incarnation, shard, condition, seed, .. } = self;
        self.reader = open(sources, stream, incarnation, shard, from.clone(), condition.clone(), *seed);
        self.from = from;
    }

    /// Returns the error if somebody has to know of it.
    fn recover(&mut self, error: Error) -> Result<(), Error> {
        match error {
            Error::StreamGone { .. } | Error::StreamRecreated { .. } => {
                self.waiting = Some(self.stream.raise_alarm());
                Ok(())
            }
            // All of its records fell out of retention while nobody read it, or its lease is of another time.
            Error::ShardGone { .. } if self.stream.input.reset != Reset::Fail => {
                self.sources.metrics.gap(self.stream.name(), Left::Nothing);
                tracing::warn!(
                    processor = %self.stream.input.options.processor, stream = %self.stream.name(), shard = %self.shard,
                    from = %self.from, then = "its lease is ended, and the shards that follow are read", code = %code::stream::SHARD_GONE,
                    "the stream does not list the shard any more: what was not read of it is gone with its retention"
                );
                self.retention = None;
                self.pending = Some(ReadPage {
                    page: Page::default(),
                    continuation: self.from.clone(),
                    millis_behind: Some(0),
                    children: None,
                    end: true,
                    wait: Duration::ZERO,
                });
                Ok(())
            }
            // Some services refuse a position whose record they do not have.
            Error::Rejected { .. } if self.retention.is_some() && self.refused.is_none() => {
                self.refused = Some(error);
                self.reopen(ReadFrom::TrimHorizon);
                Ok(())
            }
            error => Err(error),
        }
    }

    /// Waits until it is known what became of the stream. If another one took its place, this lease is lost, unless it
    /// was taken after that: then it is read on.
    async fn wait_for_stream(&mut self, generation: u64) {
        self.condition.enter(Phase::Stream, Instant::now());
        let incarnation = self.stream.after(generation).await;
        if !self.incarnation.is_same(&incarnation.info) {
            sleep(self.sources.expiry).await;
            self.incarnation = incarnation;
            self.reopen(self.from.clone());
        }
        self.waiting = None;
    }

    /// Judges the page that is pending, if it has to be, and gives it.
    async fn settle(&mut self) -> Result<Option<ReadPage>, Error> {
        let Some(page) = &self.pending else { return Ok(None) };
        let verdict = match &mut self.retention {
            Some(retention) => retention.judge(&page.page, page.millis_behind, page.end),
            None => Verdict::Undecided,
        };
        match verdict {
            Verdict::Undecided => {}
            Verdict::Kept => {
                if let Some(refused) = self.refused.take() {
                    // Older records are there, so that it was refused for another reason.
                    self.pending = None;
                    return Err(refused);
                }
                self.retention = None;
            }
            Verdict::Gone(left) => {
                if !self.pass_gap(left).await? {
                    return Ok(None);
                }
            }
        }
        let page = self.pending.take();
        if let Some(page) = &page {
            self.from = page.continuation.clone();
        }
        Ok(page)
    }

    /// The checkpoint is out of retention. Whether the pending page is to be given.
    async fn pass_gap(&mut self, left: Left) -> Result<bool, Error> {
        let (Some(retention), Some(page)) = (&self.retention, &self.pending) else { return Ok(true) };
        let (stream, checkpoint) = (Arc::clone(self.stream.name()), retention.checkpoint().clone());
        let first = first_record(page);
        // A stream that was created again holds no record of the old one either.
        self.condition.enter(Phase::Stream, Instant::now());
        if !self.is_same_stream().await {
            self.pending = None;
            self.waiting = Some(self.stream.raise_alarm());
            return Ok(false);
        }
        let reset = self.stream.input.reset;
        let now = now_ms();
        if reset == Reset::Latest && left == Left::Records {
            self.condition.enter(Phase::Store, Instant::now());
            note_skip(self.sources.store.as_ref(), &self.lease, &checkpoint, now).await;
        }
        self.report(&checkpoint, first.as_ref(), left);
        self.retention = None;
        self.refused = None;
        match reset {
            Reset::Earliest => Ok(true),
            // There is nothing to pass over.
            Reset::Latest if left == Left::Nothing => Ok(true),
            Reset::Latest => {
                self.pending = None;
                self.reopen(ReadFrom::AtTimestamp(now));
                Ok(false)
            }
            Reset::Fail => {
                self.pending = None;
                Err(Error::OutOfRetention { stream, shard: self.shard.clone(), checkpoint, first })
            }
        }
    }

    /// What may not be asked for is left to whoever finds out otherwise.
    async fn is_same_stream(&self) -> bool {
        loop {
            match self.stream.input.kinesis.describe(self.stream.name()).await {
                Ok(info) => return self.incarnation.is_same(&info),
                Err(Error::NotFound { .. }) => return false,
                Err(error) if error.is_transient() => sleep(AGAIN).await,
                Err(_) => return true,
            }
        }
    }

    fn report(&self, checkpoint: &SequenceNumber, first: Option<&(SequenceNumber, u64)>, left: Left) {
        self.sources.metrics.gap(self.stream.name(), left);
        let then = match self.stream.input.reset {
            Reset::Earliest => "going on with the oldest record that is kept",
            Reset::Latest => "going on with what comes from now on",
            Reset::Fail => "the shard is stopped",
        };
        tracing::warn!(
            processor = %self.stream.input.options.processor, stream = %self.stream.name(), shard = %self.shard,
            %checkpoint, left = left.as_str(), first = first.map(|(number, _)| number.to_string()),
            first_arrived = first.map(|(_, arrival)| ReadFrom::AtTimestamp(*arrival).to_string()),
            checkpoint_arrived = "not known", retention_hours = self.stream.retention_hours(), then,
            code = %code::stream::OUT_OF_RETENTION,
            "the checkpoint is out of the stream's retention: records after it may be lost"
        );
    }
}

fn open(
    sources: &Sources,
    stream: &Stream,
    incarnation: &Incarnation,
    shard: &ShardId,
    from: ReadFrom,
    condition: Condition,
    seed: u64,
) -> PollingReader {
    let options = &stream.input.polling;
    let source = polling::Source {
        stream: Arc::clone(stream.name()),
        shard: shard.clone(),
        creation_time_ms: incarnation.info.creation_time_ms,
    };
    let reader = PollingReader::new(stream.input.kinesis.clone(), source, from, options, &sources.metrics, seed);
    reader.observed(condition).sharing(&sources.limits, &incarnation.info.arn, options).bounded()
}

fn first_record(page: &ReadPage) -> Option<(SequenceNumber, u64)> {
    let page = &page.page;
    let number = (!page.is_empty()).then(|| SequenceNumber::parse(page.sequence_number_digits(0)))?;
    Some((number.ok()?, page.approximate_arrival(0)))
}

fn document(lease: &LeaseKey) -> String {
    format!("skip/{lease}")
}

/// From when on a shard is read whose checkpoint was found to be out of retention before. A restart must not skip what has
/// come since.
async fn skipped(store: &dyn Store, lease: &LeaseKey, checkpoint: &SequenceNumber) -> Option<u64> {
    loop {
        match store.document(&document(lease)).await {
            Ok(document) => {
                let skip: Skip = serde_json::from_value(document?.body).ok()?;
                return (skip.checkpoint == checkpoint.as_str()).then_some(skip.at);
            }
            Err(error) if error.is_transient() => sleep(AGAIN).await,
            Err(error) => {
                tracing::warn!(%lease, error = with_causes(&error), "whether records of the shard were skipped is not known");
                return None;
            }
        }
    }
}

/// Notes from when on the shard is read, for as long as it takes: a restart that did not know would skip more.
async fn note_skip(store: &dyn Store, lease: &LeaseKey, checkpoint: &SequenceNumber, at: u64) {
    let key = document(lease);
    let body = serde_json::json!(Skip { checkpoint: checkpoint.as_str().to_owned(), at });
    let mut told = false;
    loop {
        let put = async {
            let version = store.document(&key).await?.map(|document| document.version);
            store.put_document(&key, &body, version).await
        };
        match put.await {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => {
                if !std::mem::replace(&mut told, true) {
                    tracing::warn!(%lease, error = with_causes(&error), "a skip of records cannot be noted; trying on before it is made");
                }
                sleep(AGAIN).await;
            }
        }
    }
}

#[async_trait]
impl Reader for InputReader {
    fn condition(&self) -> Option<&Condition> {
        Some(&self.condition)
    }

    fn expects(&self) -> u64 {
        self.reader.expects()
    }

    fn lost_its_turn(&self) -> bool {
        self.waiting.is_none() && self.pending.is_none() && self.reader.lost_its_turn()
    }

    async fn ready(&mut self) -> Result<(), Error> {
        loop {
            if let Some(generation) = self.waiting {
                self.wait_for_stream(generation).await;
            }
            if self.pending.is_some() {
                return Ok(());
            }
            match self.reader.ready().await {
                Ok(()) => return Ok(()),
                Err(error) => self.recover(error)?,
            }
        }
    }

    async fn read(&mut self, demand: Demand) -> Result<Option<ReadPage>, Error> {
        if self.waiting.is_some() {
            return Ok(None);
        }
        if self.pending.is_none() {
            match self.reader.read(demand).await {
                Ok(None) => return Ok(None),
                Ok(Some(page)) => self.pending = Some(page),
                Err(error) => {
                    self.recover(error)?;
                    return Ok(None);
                }
            }
        }
        self.settle().await
    }
}
