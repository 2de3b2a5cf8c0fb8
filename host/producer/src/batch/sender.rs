use std::sync::Arc;

use aws_sdk_kinesis::Client;
use futures::stream::{FuturesUnordered, StreamExt as _};
use shardmill_record::UserRecord;
use tokio::time::{Instant, sleep_until};

use super::sending::{End, Sending};
use crate::backoff::Backoff;
use crate::call::{self, Caller, Outcome};
use crate::mapping::{Mapping, Shards};
use crate::metrics::StreamMetrics;
use crate::plan::{Next, Rates, Request, RequestId, Rules};
use crate::trouble::Troubles;
use crate::{BatchOptions, Error, Metrics, Permit, Sent, Stopped};

/// Sends batches of user records to one stream, each whole before it comes back. Any number of tasks may use it at the same
/// time; order is kept within each [`send`](Self::send), not between them.
#[derive(Debug)]
pub struct BatchSender {
    caller: Caller,
    rules: Rules,
    /// Of all batches together.
    rates: Rates,
    backoff: Backoff,
    shards: Arc<Shards>,
    metrics: Arc<StreamMetrics>,
    troubles: Arc<Troubles>,
    /// Whether its records were received by somebody else before.
    is_of_spool: bool,
}

// === impl BatchSender ===

impl BatchSender {
    /// `stream` is a name, or the ARN of a stream in the client's region. Takes the client's endpoint, credentials and
    /// connections. Its retries and timeouts are not used: an answer
    /// that was lost must be seen here, because what is sent again may come twice. Nothing is called before the first
    /// record is sent. `seed` is for the jitter of the back-off.
    ///
    /// An option that is out of its bounds counts as the nearest one that is not; [`BatchOptions::check`] tells.
    pub fn new(client: Client, stream: String, options: BatchOptions, metrics: Metrics, seed: u64) -> Self {
        let options = options.options().within_bounds();
        let metrics = Arc::new(metrics.of_stream(&stream));
        let name: Arc<str> = stream.as_str().into();
        let caller = Caller::new(&client, Arc::clone(&name), options.request_timeout, Arc::clone(&metrics));
        let rules = Rules::of_batches(&options);
        Self {
            rates: rules.rates(),
            rules,
            backoff: Backoff::new(options.backoff_min, options.backoff_max, seed),
            shards: Shards::new(caller.client().clone(), name, &options, Arc::clone(&metrics), seed),
            metrics,
            troubles: Arc::new(Troubles::new(stream)),
            caller,
            is_of_spool: false,
        }
    }

    /// Beside a producer that has counted its records as received, lists the stream's shards, and tells of the same troubles.
    pub(crate) fn of_spool(self, shards: &Arc<Shards>, troubles: &Arc<Troubles>) -> Self {
        Self { shards: Arc::clone(shards), troubles: Arc::clone(troubles), is_of_spool: true, ..self }
    }

    /// The stream's name or ARN, as it was given.
    pub fn stream(&self) -> &str {
        self.caller.stream()
    }

    /// Sends records, and comes back when the service has all of them: where each one is stored, in the order given.
    ///
    /// `permit` is asked before every request, and again when the request is ready for its connection; once it refuses,
    /// none is sent any more, and those that are on their way are waited for. Whatever may pass by itself
    /// (throttling, lost answers, an unreachable endpoint) is tried again without end, with a back-off of each shard's
    /// own. After a lost answer a record may be stored twice: with the whole Kinesis record that it was in, and with
    /// [`Ordering::Key`](crate::Ordering::Key) before anything later of its shard, unless the service was slow to take
    /// the lost request in; PutRecords gives no means against that. What comes first of each record is in order all the
    /// same. After a reshard an aggregate may take
    /// records along to a shard that is not theirs; they are sent again to their own, so a reader that delivers what is
    /// outside its shard's range meets them twice.
    ///
    /// # Errors
    /// [`Error::Refused`] before anything is sent if a record breaks a rule of PutRecords or of its stream;
    /// [`Error::Rejected`] if the service refuses for a reason that somebody has to mend; [`Error::Stopped`] if the permit was
    /// withdrawn. The latter two say what has been stored, requests included that were on their way.
    ///
    /// # Cancellation
    /// If this is dropped, requests may be under way whose records get stored.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn send(&self, records: Vec<UserRecord>, permit: &Permit) -> Result<Vec<Sent>, Error> {
        let count = records.len();
        let mut mapping = Mapping::new(&self.shards);
        let mut sending = Sending::new(records, self.rules, &self.rates, mapping.known(), Instant::now());
        if !sending.is_over() {
            if !self.is_of_spool {
                self.metrics.received(count);
            }
            sending.ask(permit);
        }
        let mut trouble = self.troubles.of_sender();
        let mut requests = FuturesUnordered::new();
        loop {
            let now = Instant::now();
            let sends = loop {
                match sending.next(permit, now) {
                    Next::Send(request) => requests.push(self.put(request, permit)),
                    Next::Wait(until) => break until,
                }
            };
            let lists = mapping.start(sending.map_wanted(), now);
            self.metrics.settled(&sending.take_counts());
            if sending.is_over() {
                break;
            }
            let wakes = sends.into_iter().chain(lists).min();
            tokio::select! {
                biased;
                Some((request, answer)) = requests.next() => {
                    let now = Instant::now();
                    let failure = sending.answered(request, answer, now, |failures| self.backoff.delay(failures));
                    match (sending.failing_since(), failure) {
                        (Some(since), Some(failure)) => trouble.lasts(now.saturating_duration_since(since), &failure),
                        (None, None) => trouble.ends(),
                        _ => {}
                    }
                }
                listed = mapping.listed() => {
                    let (failing_for, is_good) = (listed.failing_for, listed.result.is_ok());
                    if let Some(failure) = sending.listed(listed, permit, Instant::now()) {
                        trouble.lasts(failing_for, &failure);
                    } else if is_good && sending.failing_since().is_none() {
                        trouble.ends();
                    }
                }
                () = sleep_until(wakes.unwrap_or(now)), if wakes.is_some() => {}
            }
        }
        sending.finish().map_err(|(end, sent)| self.error(end, sent))
    }

    async fn put(&self, request: Request, permit: &Permit) -> (RequestId, Result<Vec<Outcome>, Stopped>) {
        let Request { id, kinesis_records, .. } = request;
        self.metrics.request(kinesis_records.iter().map(|record| (record.count, record.bytes())));
        let entries = kinesis_records.into_iter();
        let entries = entries.map(|record| call::entry(record.partition_key, record.explicit_hash_key, record.data));
        (id, self.caller.put(entries.collect(), permit).await)
    }

    fn error(&self, end: End, sent: Vec<Option<Sent>>) -> Error {
        let stream = self.stream().to_owned();
        match end {
            End::Refused { index, reason } => Error::Refused { index, reason },
            End::Stopped(source) => Error::Stopped { stream, source, sent },
            End::Rejected { operation, refusal } => Error::Rejected {
                stream,
                region: self.caller.client().config().region().map(ToString::to_string),
                operation,
                code: refusal.code.clone(),
                reason: refusal.message.clone(),
                advice: refusal.advice,
                sent,
            },
        }
    }
}
