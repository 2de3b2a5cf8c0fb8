//! Reading a shard by GetRecords: the limits of 5 reads and 2 MiB a second are shared with every other consumer of
//! the stream that polls.
//!
//! `state` decides what to ask and when, `wire` reads answers, `decode` judges what is in them; here the service is
//! asked, and its failures are sorted into those that are waited out and those that somebody has to know of.

mod condition;
pub(crate) mod decode;
mod options;
mod state;
mod turns;
pub(crate) mod wire;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use shardmill_cause::Coded;
use shardmill_record::ShardId;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info, warn};

pub use self::condition::{Condition, Phase, Seen, Trouble};
pub use self::decode::Decoded;
pub use self::options::{Decoder, Error as OptionsError, Options};
use self::state::{Answer, Failure, Look, State, Step};
use self::turns::Place;
pub use self::turns::ReadLimits;
use self::wire::TooLarge;
use crate::error::{Call, Error};
use crate::metrics::ShardMetrics;
use crate::{Demand, Kinesis, Metrics, ReadFrom, ReadPage, Reader, StreamStatus, WHOLE_PAGE};

/// After so many failures in a row a wrong answer is reported: the service is not what answers at the endpoint, or it
/// says of a shard both that it is there and that it is not.
/// With the pauses between them that is after most of a minute.
const WRONG_ANSWERS: u32 = 10;
/// After so many failures in a row an iterator that is refused, and not as expired, is reported.
const REFUSED_ITERATORS: u32 = 3;
/// Throttles belong to ordinary operation; so many in a row are told in the log.
const THROTTLES_TO_TELL: u32 = 10;
/// A connection that breaks once is nothing to tell, nor is a second one soon after.
const FAILURES_TO_TELL: u32 = 3;
const TOLD_AFTER: Duration = Duration::from_secs(2);

/// The shard that a reader reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The stream, by its name or its ARN.
    pub stream: Arc<str>,
    /// The shard.
    pub shard: ShardId,
    /// The stream's creation time that belongs to the checkpoints, in milliseconds since 1970.
    pub creation_time_ms: u64,
}

/// Reads one shard by GetRecords.
#[derive(Debug)]
pub struct PollingReader {
    kinesis: Kinesis,
    source: Source,
    /// What reads are called in messages; made once.
    read: Call,
    decoder: Decoder,
    state: State,
    /// Its place among the process' readers of the shard, if it shares the shard's limits.
    place: Option<Place>,
    metrics: ShardMetrics,
    condition: Condition,
    jitter: SmallRng,
    /// Whether the log tells of the present trouble.
    told: bool,
    /// Whether an answer is received only if it takes no more than was demanded.
    bounded: bool,
    /// Whether the last read was not made because another reader has had the turn.
    lost_turn: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Iterator,
    Records,
}

/// What a failure is waited out as; `None` if somebody has to know of it. `failures` in a row, this one included.
fn waited_out(asked: Asked, from: &ReadFrom, failures: u32, error: &Error) -> Option<Failure> {
    match error {
        Error::Throttled { .. } => Some(Failure::Throttled),
        Error::ExpiredIterator { .. } => Some(Failure::Iterator),
        Error::Rejected { .. } => match (asked, from) {
            (Asked::Records, _) if failures < REFUSED_ITERATORS => Some(Failure::Iterator),
            // The service refuses a time that its clock has not reached. It will.
            (Asked::Iterator, ReadFrom::AtTimestamp(_)) => Some(Failure::Unavailable),
            _ => None,
        },
        Error::InvalidAnswer { .. } if failures < WRONG_ANSWERS => Some(Failure::Invalid),
        error if error.is_transient() => Some(Failure::Unavailable),
        _ => None,
    }
}

// === impl PollingReader ===

impl PollingReader {
    /// A reader that begins at `from`. The seed is that of the jitter in its pauses: different in every reader, or
    /// they all come back at the same time.
    pub fn new(
        kinesis: Kinesis,
        source: Source,
        from: ReadFrom,
        options: &Options,
        metrics: &Metrics,
        seed: u64,
    ) -> Self {
        Self {
            read: Call::shard("GetRecords", &source.stream, &source.shard),
            decoder: options.decoder,
            state: State::new(options.clone(), from, Instant::now()),
            place: None,
            metrics: metrics.of_stream(&source.stream),
            condition: metrics.condition(&source.stream, &source.shard),
            jitter: SmallRng::seed_from_u64(seed),
            told: false,
            bounded: false,
            lost_turn: false,
            kinesis,
            source,
        }
    }

    /// Shares the shard's limits with the other readers of it that have the same `limits`, each with its fair part where
    /// several are behind. Streams are told apart by their ARN.
    #[must_use]
    pub fn sharing(self, limits: &ReadLimits, stream_arn: &str, options: &Options) -> Self {
        let (reads, bytes) = (options.reads_per_second, options.bytes_per_second);
        let place = limits.join(stream_arn, self.source.shard.as_str(), reads, bytes, Instant::now());
        Self { place: Some(place), ..self }
    }

    /// Says there what it is about, in place of a condition of its own.
    #[must_use]
    pub fn observed(self, condition: Condition) -> Self {
        Self { condition, ..self }
    }

    /// Receives no answer that is larger than what was demanded, unless that was [`WHOLE_PAGE`]: such an answer is left
    /// where it is, and the read that follows, for which [`expects`](Reader::expects) says what to demand, takes it
    /// whatever its size. Not with the SDK's decoder, which receives everything.
    #[must_use]
    pub fn bounded(self) -> Self {
        Self { bounded: true, ..self }
    }

    async fn take_iterator(&mut self) -> Result<(), Error> {
        let any = Demand { records: 1, bytes: 1 };
        let Step::TakeIterator(from) = self.state.step(Instant::now(), any) else { return Ok(()) };
        self.condition.enter(Phase::Iterator, Instant::now());
        let Source { stream, shard, .. } = &self.source;
        match self.kinesis.shard_iterator(stream, shard, &from).await {
            Ok(iterator) => {
                self.state.took_iterator(iterator);
                Ok(())
            }
            Err(error) => self.failed(Asked::Iterator, error).await,
        }
    }

    /// The page; `None` if it is larger than what was demanded.
    async fn ask(&mut self, iterator: &str, limit: u32, bytes: u64) -> Result<Option<ReadPage>, Error> {
        self.condition.enter(Phase::Records, Instant::now());
        let from = self.state.from();
        let is_bounded = self.bounded && bytes < WHOLE_PAGE && !self.state.was_refused();
        let most = is_bounded.then(|| wire::body_within(bytes, limit));
        let answer = self.kinesis.get_records_within(&self.read, (iterator, limit), self.decoder, from, most).await?;
        let decoded = match answer {
            Ok(decoded) => decoded,
            Err(too_large @ TooLarge { bytes: is, .. }) => {
                let now = Instant::now();
                let spent = too_large.counted();
                self.state.refused(now, spent);
                if let Some(place) = &self.place {
                    place.spent(spent, now);
                }
                let Source { stream, shard, .. } = &self.source;
                debug!(%stream, %shard, set_aside = bytes, is, "an answer is larger than expected; asking again");
                return Ok(None);
            }
        };
        // Nothing is awaited from here to the page's return: a reader that is cancelled has not moved.
        let records = decoded.page.len();
        let now = Instant::now();
        let end = decoded.next_iterator.is_none();
        if let Some(place) = &self.place {
            place.spent(decoded.bytes, now);
        }
        let past_trouble = self.state.answered(
            now,
            Answer {
                records: u32::try_from(records).unwrap_or(u32::MAX),
                bytes: decoded.bytes,
                memory: decoded.page.memory() as u64,
                last: decoded.page.last_sequence_number(),
                next_iterator: decoded.next_iterator,
                millis_behind: decoded.millis_behind,
            },
        );
        if let Some(trouble) = past_trouble
            && std::mem::take(&mut self.told)
        {
            let Source { stream, shard, .. } = &self.source;
            let lasted_ms = (now - trouble.since).as_millis() as u64;
            info!(%stream, %shard, lasted_ms, failures = trouble.failures, "the shard is read again");
        }
        self.metrics.read(records as u64, decoded.bytes);
        self.condition.read(decoded.millis_behind, now, self.state.due());
        Ok(Some(ReadPage {
            page: decoded.page,
            continuation: self.state.from().clone(),
            millis_behind: decoded.millis_behind,
            children: decoded.children,
            end,
            wait: self.state.wait(now),
        }))
    }

    /// Returns the error if it is not one that waiting helps against.
    async fn failed(&mut self, asked: Asked, error: Error) -> Result<(), Error> {
        self.metrics.failed(error.kind());
        let error = match error {
            Error::NotFound { .. } | Error::Rejected { .. } => self.ask_for_stream(error).await,
            other => other,
        };
        let failures = self.state.trouble().map_or(0, |trouble| trouble.failures) + 1;
        let waited_out = waited_out(asked, self.state.from(), failures, &error);
        let jitter = self.jitter.random();
        let trouble = self.state.failed(Instant::now(), waited_out.unwrap_or(Failure::Invalid), jitter);
        self.condition.failed(trouble, &error, asked == Asked::Iterator);
        match waited_out {
            Some(failure) => {
                self.tell(failure, trouble, &error);
                Ok(())
            }
            None => Err(error),
        }
    }

    fn tell(&mut self, failure: Failure, trouble: state::Trouble, error: &Error) {
        let Source { stream, shard, .. } = &self.source;
        let state::Trouble { since, failures } = trouble;
        let is_worth_a_line = match failure {
            Failure::Throttled | Failure::Iterator => failures >= THROTTLES_TO_TELL,
            Failure::Unavailable => failures >= FAILURES_TO_TELL || since.elapsed() >= TOLD_AFTER,
            Failure::Invalid => true,
        };
        if self.told || !is_worth_a_line {
            debug!(%stream, %shard, failures, %error, "a read failed");
        } else {
            self.told = true;
            warn!(%stream, %shard, failures, %error, code = %error.code(), "the shard cannot be read; trying on");
        }
    }

    /// What a shard that is not found, or a position that is refused, means: the stream may be gone, or be another one
    /// of the same name. The KCL takes a shard that is not found for one that was read to its end.
    async fn ask_for_stream(&self, error: Error) -> Error {
        let Source { stream, shard, creation_time_ms: known } = &self.source;
        let (stream, shard, known) = (Arc::clone(stream), shard.clone(), *known);
        let found = match self.kinesis.describe(&stream).await {
            Ok(info) if info.status == StreamStatus::Deleting => return Error::StreamGone { stream, shard },
            Ok(info) => info.creation_time_ms,
            Err(Error::NotFound { .. }) => return Error::StreamGone { stream, shard },
            Err(other) => return other,
        };
        if found != known {
            return Error::StreamRecreated { stream, shard, known, found };
        }
        let Error::NotFound { call, reason, .. } = error else { return error };
        match self.kinesis.list_shards(&stream).await {
            Ok(listing) if listing.iter().any(|listed| listed.id == shard) => {
                // It passes where a new shard is not known everywhere yet, and else the service contradicts itself.
                let reason = format!("the stream lists the shard, and it is not found: {reason}");
                Error::InvalidAnswer { call, reason }
            }
            Ok(_) => Error::ShardGone { stream, shard },
            Err(other) => other,
        }
    }

    /// When to ask again whether it is this reader's turn; `None` if it is.
    fn turn(&self) -> Option<Instant> {
        if self.state.has_ended() {
            return None;
        }
        self.place.as_ref().and_then(|place| place.ask(Instant::now()))
    }

    fn ended(&self) -> ReadPage {
        ReadPage {
            page: shardmill_record::Page::default(),
            continuation: self.state.from().clone(),
            millis_behind: Some(0),
            children: None,
            end: true,
            wait: Duration::ZERO,
        }
    }
}

#[async_trait]
impl Reader for PollingReader {
    fn condition(&self) -> Option<&Condition> {
        Some(&self.condition)
    }

    fn expects(&self) -> u64 {
        if self.decoder == Decoder::Sdk { WHOLE_PAGE } else { self.state.expects() }
    }

    fn lost_its_turn(&self) -> bool {
        self.lost_turn
    }

    async fn ready(&mut self) -> Result<(), Error> {
        loop {
            match self.state.look(Instant::now()) {
                Look::Ready => match self.turn() {
                    None => return Ok(()),
                    Some(later) => {
                        self.condition.enter(Phase::Turn, Instant::now());
                        sleep_until(later).await;
                    }
                },
                Look::Wait(until) => {
                    self.condition.enter(Phase::Pause, Instant::now());
                    sleep_until(until).await;
                }
                Look::NoIterator => self.take_iterator().await?,
            }
        }
    }

    async fn read(&mut self, demand: Demand) -> Result<Option<ReadPage>, Error> {
        let now = Instant::now();
        self.lost_turn = false;
        if self.state.look(now) != Look::Ready {
            return Ok(None);
        }
        // It may have passed while memory was waited for.
        if !self.state.has_ended() && self.place.as_ref().is_some_and(|place| !place.take(now)) {
            self.lost_turn = true;
            return Ok(None);
        }
        match self.state.step(Instant::now(), demand) {
            Step::Ended => Ok(Some(self.ended())),
            Step::Read { iterator, limit } => match self.ask(&iterator, limit, demand.bytes).await {
                Ok(page) => Ok(page),
                Err(error) => self.failed(Asked::Records, error).await.map(|()| None),
            },
            Step::Wait(_) | Step::TakeIterator(_) => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How each kind of failure is waited out, at the first time and after many in a row.
    #[test]
    fn what_may_pass_is_waited_out_and_wrong_answers_only_for_a_while() {
        let call = || Call::stream("GetRecords", "flights");
        let (reason, stream, shard) = (String::new, || Arc::from("flights"), || ShardId::parse("s").unwrap());
        let credentials = |passing| Error::Credentials { call: call(), region: None, reason: reason(), passing };
        let rejected = || Error::Rejected { call: call(), code: "InvalidArgumentException".into(), reason: reason() };
        let invalid = || Error::InvalidAnswer { call: call(), reason: reason() };
        let start = ReadFrom::TrimHorizon;
        let of = |error: &Error| [1, 1_000].map(|failures| waited_out(Asked::Records, &start, failures, error));
        for (error, waits) in [
            (Error::Throttled { call: call(), reason: reason() }, [Some(Failure::Throttled); 2]),
            (Error::Unavailable { call: call(), reason: reason() }, [Some(Failure::Unavailable); 2]),
            (Error::ExpiredIterator { call: call(), reason: reason() }, [Some(Failure::Iterator); 2]),
            (Error::ExpiredToken { call: call(), reason: reason() }, [Some(Failure::Unavailable); 2]),
            (credentials(true), [Some(Failure::Unavailable); 2]),
            (credentials(false), [None; 2]),
            (rejected(), [Some(Failure::Iterator), None]),
            // Also a shard that the stream lists, and that is not found.
            (invalid(), [Some(Failure::Invalid), None]),
            (Error::StreamGone { stream: stream(), shard: shard() }, [None; 2]),
            (Error::ShardGone { stream: stream(), shard: shard() }, [None; 2]),
            (Error::StreamRecreated { stream: stream(), shard: shard(), known: 1, found: 2 }, [None; 2]),
            (Error::NotPermitted { call: call(), reason: reason() }, [None; 2]),
            (Error::Kms { call: call(), reason: reason() }, [None; 2]),
        ] {
            assert_eq!(of(&error), waits, "{error}");
        }
        let at_iterator = |from: &ReadFrom| waited_out(Asked::Iterator, from, 1_000, &rejected());
        assert_eq!(at_iterator(&ReadFrom::AtTimestamp(7)), Some(Failure::Unavailable));
        assert_eq!(at_iterator(&start), None);
        assert_eq!(waited_out(Asked::Records, &start, WRONG_ANSWERS - 1, &invalid()), Some(Failure::Invalid));
        assert_eq!(waited_out(Asked::Records, &start, WRONG_ANSWERS, &invalid()), None);
    }
}
