use std::sync::Arc;

use aws_sdk_kinesis::Client;
use shardmill_record::UserRecord;
use tokio::time::{Instant, sleep, sleep_until};

use super::plan::{Entry, Next, Outcome, Plan, Request, Rules, Settled, Surprise};
use super::shard_cache::ShardCache;
use crate::answer::{Failure, Stored};
use crate::backoff::Backoff;
use crate::call::{self, Caller};
use crate::limits::{MAX_RECORD_BYTES, validate};
use crate::metrics::StreamMetrics;
use crate::shard_map::ShardMap;
use crate::trouble::{Trouble, Troubles};
use crate::{BatchOptions, Error, Metrics, Permit, Sent, Stopped};

/// Sends batches of user records to one stream, each whole before the next. Any number of tasks may use it at the same
/// time; order is kept within each [`send`](Self::send), not between them.
#[derive(Debug)]
pub struct BatchSender {
    caller: Caller,
    rules: Rules,
    backoff: Backoff,
    shards: ShardCache,
    metrics: Arc<StreamMetrics>,
    troubles: Troubles,
}

/// What one request brought.
struct Answer {
    /// One for each entry.
    outcomes: Vec<Outcome>,
    /// What somebody has to mend, and how.
    refusal: Option<(Arc<Failure>, &'static str)>,
    /// Why something failed, for the log.
    failure: Option<Arc<Failure>>,
}

// === impl BatchSender ===

impl BatchSender {
    /// `stream` is a name, or the ARN of a stream in the client's region. Takes the client's endpoint, credentials and
    /// connections. Its retries and timeouts are not used: an answer
    /// that was lost must be seen here, because what is sent again may come twice. Nothing is called before the first
    /// record is sent. `seed` is for the jitter of the back-off.
    pub fn new(client: Client, stream: String, options: BatchOptions, metrics: Metrics, seed: u64) -> Self {
        let metrics = Arc::new(metrics.of_stream(&stream));
        let caller = Caller::new(&client, stream.as_str().into(), options.request_timeout, Arc::clone(&metrics));
        Self {
            rules: Rules::new(&options),
            backoff: Backoff::new(options.backoff_min, options.backoff_max, seed),
            shards: ShardCache::new(caller.client().clone(), stream.clone()),
            metrics,
            troubles: Troubles::new(stream),
            caller,
        }
    }

    /// The stream's name or ARN, as it was given.
    pub fn stream(&self) -> &str {
        self.caller.stream()
    }

    /// Sends records, and comes back when the service has all of them: where each one is stored, in the order given.
    ///
    /// `permit` is asked before every request, and again when the request is ready for its connection; once it refuses,
    /// none is sent any more. Whatever may pass by itself
    /// (throttling, lost answers, an unreachable endpoint) is tried again without end, with a back-off of each shard's
    /// own. After a lost answer a record may be stored twice: with the whole Kinesis record that it was in, and with
    /// [`Ordering::Key`](crate::Ordering::Key) before anything later of its shard, unless the service was slow to take
    /// the lost request in; PutRecords gives no means against that. What comes first of each record is in order all the
    /// same. After a reshard an aggregate may take
    /// records along to a shard that is not theirs; they are sent again to their own, so a reader that delivers what is
    /// outside its shard's range meets them twice.
    ///
    /// # Errors
    /// [`Error::Refused`] before anything is sent if a record breaks a rule of PutRecords; [`Error::Rejected`] if the
    /// service refuses for a reason that somebody has to mend; [`Error::Stopped`] if the permit was withdrawn.
    ///
    /// # Cancellation
    /// If this is dropped, a request may be under way whose records get stored.
    pub async fn send(&self, records: Vec<UserRecord>, permit: &Permit) -> Result<Vec<Sent>, Error> {
        for (index, record) in records.iter().enumerate() {
            validate(record, MAX_RECORD_BYTES).map_err(|reason| Error::Refused { index, reason })?;
        }
        self.metrics.received(records.len());
        if records.is_empty() {
            return Ok(Vec::new());
        }
        let mut trouble = self.troubles.of_sender();
        let map = self.first_map(records.len(), permit, &mut trouble).await?;
        let mut plan = Plan::new(records, self.rules, map);
        loop {
            match plan.next(Instant::now()) {
                Next::Done => {
                    trouble.ends();
                    return Ok(plan.into_sent().into_iter().flatten().collect());
                }
                Next::Wait(until) => sleep_until(until).await,
                Next::Send(request) => {
                    let answer = match permit.ask() {
                        Ok(()) => self.put(&request, permit).await,
                        Err(stopped) => Err(stopped),
                    };
                    let answer = match answer {
                        Ok(answer) => answer,
                        Err(source) => return Err(self.stopped(source, plan.into_sent())),
                    };
                    let settled = self.settle(&mut plan, request, &answer).await;
                    match (settled.failing_for, &answer.failure) {
                        (Some(lasted), Some(failure)) => trouble.lasts(lasted, failure),
                        _ if !plan.is_failing() => trouble.ends(),
                        _ => {}
                    }
                    if let Some((failure, advice)) = answer.refusal {
                        return Err(self.rejected("PutRecords", &failure, advice, plan.into_sent()));
                    }
                }
            }
        }
    }

    async fn first_map(
        &self,
        records: usize,
        permit: &Permit,
        trouble: &mut Trouble<'_>,
    ) -> Result<Arc<ShardMap>, Error> {
        let mut failures = 0;
        let began = Instant::now();
        loop {
            permit.ask().map_err(|source| self.stopped(source, vec![None; records]))?;
            let failure = match self.shards.get().await {
                Ok(map) => return Ok(map),
                Err(failure) => failure,
            };
            self.metrics.error(failure.label);
            if let Some(advice) = failure.advice() {
                return Err(self.rejected("ListShards", &failure, advice, vec![None; records]));
            }
            failures += 1;
            trouble.lasts(began.elapsed(), &failure);
            sleep(self.backoff.delay(failures)).await;
        }
    }

    async fn put(&self, request: &Request, permit: &Permit) -> Result<Answer, Stopped> {
        let entry =
            |entry: &Entry| call::entry(entry.partition_key.clone(), entry.explicit_hash_key, entry.data.clone());
        let entries = request.entries.iter().map(entry).collect();
        self.metrics.request(request.entries.iter().map(|entry| (entry.len(), entry.bytes())));
        let outcomes = self.caller.put(entries, permit).await?;
        let failures = || outcomes.iter().filter_map(|outcome| outcome.as_ref().err());
        let refusal = failures().find_map(|failure| Some((Arc::clone(failure), failure.advice()?)));
        let failure = failures().next().cloned();
        Ok(Answer { outcomes: outcomes.into_iter().map(outcome).collect(), refusal, failure })
    }

    async fn settle(&self, plan: &mut Plan, request: Request, answer: &Answer) -> Settled {
        let mut map = Arc::clone(plan.map());
        if let Some(surprise) = plan.surprise(&request, &answer.outcomes) {
            map = self.shards.refresh(&map, surprise == Surprise::Aggregate).await;
        }
        let delay = |failures| self.backoff.delay(failures);
        let settled = plan.settle(request, &answer.outcomes, &map, Instant::now(), delay);
        self.metrics.settled(&settled.counts);
        settled
    }

    fn stopped(&self, source: Stopped, sent: Vec<Option<Sent>>) -> Error {
        Error::Stopped { stream: self.stream().to_owned(), source, sent }
    }

    fn rejected(
        &self,
        operation: &'static str,
        failure: &Failure,
        advice: &'static str,
        sent: Vec<Option<Sent>>,
    ) -> Error {
        let Failure { code, reason, .. } = failure.clone();
        let region = self.caller.client().config().region().map(ToString::to_string);
        Error::Rejected { stream: self.stream().to_owned(), region, operation, code, reason, advice, sent }
    }
}

fn outcome(outcome: call::Outcome) -> Outcome {
    match outcome {
        Ok(Stored { shard, sequence_number }) => Outcome::Stored { shard, sequence_number },
        Err(failure) if failure.is_unknown() => Outcome::Unknown,
        Err(_) => Outcome::Failed,
    }
}
