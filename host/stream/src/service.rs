use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::types;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_types::DateTime;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use aws_smithy_types::retry::RetryConfig;
use shardmill_cause::Coded;
use shardmill_record::{HashKeyRange, SequenceNumber, ShardId, StreamArn};
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use crate::error::{Call, Error, Kind};
use crate::polling::decode::from_sdk;
use crate::polling::wire::{Exchange, Format, Protocol, TooLarge};
use crate::polling::{Decoded, Decoder};
use crate::{ReadFrom, Shard, StreamInfo, StreamStatus};

/// The most shards that one ListShards answers with (API reference; the default is 1,000).
const SHARDS_PER_ANSWER: i32 = 10_000;
/// How often a listing is started again because its token expired.
const LISTING_RESTARTS: u32 = 3;
/// How many answers in a row may bring no new shard before a listing is given up.
const FRUITLESS_ANSWERS: u32 = 10;
/// How long [`Kinesis::wait_until_created`] puts up with a service that does not answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// DescribeStreamSummary takes 20 calls a second in an account, and many workers may wait for one stream.
const DESCRIBE_INTERVAL: Duration = Duration::from_secs(2);

/// Asks Kinesis about streams and shards. Cheap to clone.
///
/// A stream is named by its name, in the client's account and region, or by its ARN, which must be of the client's region
/// and may be of another account. Which of the two is what calls send, and what messages and metrics call it.
#[derive(Debug, Clone)]
pub struct Kinesis {
    client: Client,
    /// Without retries of its own, over the same connections: reads are paced by who makes them, and a throttle must be
    /// seen there.
    reads: Client,
    call_timeout: Duration,
}

/// What a call names a stream by.
enum Named<'a> {
    Name(&'a str),
    Arn(&'a str),
}

// === impl Named ===

impl<'a> Named<'a> {
    fn of(stream: &'a str) -> Self {
        if StreamArn::is_meant(stream) { Self::Arn(stream) } else { Self::Name(stream) }
    }
}

// === impl Kinesis ===

impl Kinesis {
    /// Over a client, whose own retries may be on: reads of shards are made without them. A call with all its retries
    /// may take 30 s.
    pub fn new(client: Client) -> Self {
        let client = Protocol::around(&client);
        let once = client.config().to_builder().retry_config(RetryConfig::disabled()).build();
        Self { reads: Client::from_conf(once), client, call_timeout: Duration::from_secs(30) }
    }

    /// With another bound for a call, its retries included.
    #[must_use]
    pub fn with_call_timeout(self, call_timeout: Duration) -> Self {
        Self { call_timeout, ..self }
    }

    /// What the stream is like now.
    pub async fn describe(&self, stream: &str) -> Result<StreamInfo, Error> {
        let call = Call::stream("DescribeStreamSummary", stream);
        let request = self.client.describe_stream_summary();
        let request = match Named::of(stream) {
            Named::Name(name) => request.stream_name(name),
            Named::Arn(arn) => request.stream_arn(arn),
        };
        let request = request.send();
        let answer = self.ask(&call, request).await?;
        let missing = || Error::InvalidAnswer { call: call.clone(), reason: "there is no description in it".into() };
        stream_info(&call, &answer.stream_description_summary.ok_or_else(missing)?)
    }

    /// Waits while the stream is being created, for as long as that takes.
    ///
    /// A stream that is missing or being deleted is an error at once; a service that does not answer, or not as it should,
    /// is one after a minute.
    pub async fn wait_until_created(&self, stream: &str) -> Result<StreamInfo, Error> {
        let mut silent_since = None;
        let mut announced = false;
        loop {
            match self.describe(stream).await {
                Ok(info) if info.status.is_readable() => {
                    if silent_since.is_some() {
                        info!(stream, "the stream is reached");
                    }
                    return Ok(info);
                }
                Ok(info) if info.status == StreamStatus::Deleting => {
                    let call = Call::stream("DescribeStreamSummary", stream);
                    let reason = "it is being deleted".into();
                    return Err(Error::NotFound { call, region: self.region(), reason });
                }
                Ok(info) => {
                    silent_since = None;
                    if !announced {
                        announced = true;
                        info!(stream, status = %info.status, "the stream cannot be read yet; waiting for it");
                    }
                }
                Err(error) if error.is_transient() || error.kind() == Kind::InvalidAnswer => {
                    let since = *silent_since.get_or_insert_with(|| {
                        warn!(stream, %error, code = %error.code(), "cannot ask for the stream yet; trying for a minute");
                        Instant::now()
                    });
                    if since.elapsed() >= PATIENCE {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
            sleep(DESCRIBE_INTERVAL).await;
        }
    }

    /// All shards of the stream that are kept, closed ones included. Never part of them: a listing that cannot be
    /// finished is an error, because a parent that is not listed counts as gone.
    pub async fn list_shards(&self, stream: &str) -> Result<Vec<Shard>, Error> {
        self.list_shards_since(stream, None).await
    }

    /// The same without the shards that were closed before this time, in milliseconds since 1970.
    pub async fn list_shards_since(&self, stream: &str, since: Option<u64>) -> Result<Vec<Shard>, Error> {
        let filter = since.map(|since| {
            let time = DateTime::from_millis(i64::try_from(since).unwrap_or(i64::MAX));
            types::ShardFilter::builder().r#type(types::ShardFilterType::FromTimestamp).timestamp(time).build()
        });
        let filter = filter.transpose().ok().flatten();
        let mut restarts = 0;
        loop {
            match self.list_shards_once(stream, filter.clone()).await {
                Err(Error::ExpiredToken { .. }) if restarts < LISTING_RESTARTS => restarts += 1,
                listed => return listed,
            }
        }
    }

    async fn list_shards_once(&self, stream: &str, filter: Option<types::ShardFilter>) -> Result<Vec<Shard>, Error> {
        let call = Call::stream("ListShards", stream);
        let invalid = |reason: &str| Error::InvalidAnswer { call: call.clone(), reason: reason.into() };
        let mut shards = Vec::new();
        let mut seen: HashSet<ShardId> = HashSet::new();
        let mut token: Option<String> = None;
        let mut fruitless = 0;
        loop {
            let request = self.client.list_shards().max_results(SHARDS_PER_ANSWER);
            // A token names the stream by itself, and goes with no other name of it.
            let request = match (token.take(), Named::of(stream)) {
                (Some(token), _) => request.next_token(token),
                (None, Named::Name(name)) => request.stream_name(name).set_shard_filter(filter.clone()),
                (None, Named::Arn(arn)) => request.stream_arn(arn).set_shard_filter(filter.clone()),
            };
            let answer = self.ask(&call, request.send()).await?;
            let seen_before = seen.len();
            for listed in answer.shards() {
                let shard = shard(&call, listed)?;
                if seen.insert(shard.id.clone()) {
                    shards.push(shard);
                }
            }
            fruitless = if seen.len() > seen_before { 0 } else { fruitless + 1 };
            token = answer.next_token.filter(|token| !token.is_empty());
            match token {
                None if shards.is_empty() => return Err(invalid("it lists no shard at all")),
                None => return Ok(shards),
                Some(_) if fruitless >= FRUITLESS_ANSWERS => {
                    return Err(invalid("the listing does not come to an end"));
                }
                Some(_) => {}
            }
        }
    }

    pub(crate) async fn shard_iterator(
        &self,
        stream: &Arc<str>,
        shard: &ShardId,
        from: &ReadFrom,
    ) -> Result<String, Error> {
        use types::ShardIteratorType as Type;

        let call = Call::shard("GetShardIterator", stream, shard);
        let request = self.reads.get_shard_iterator().shard_id(shard.as_str());
        let request = match Named::of(stream) {
            Named::Name(name) => request.stream_name(name),
            Named::Arn(arn) => request.stream_arn(arn),
        };
        let request = match from {
            ReadFrom::TrimHorizon => request.shard_iterator_type(Type::TrimHorizon),
            ReadFrom::AtTimestamp(milliseconds) => {
                let time = DateTime::from_millis(i64::try_from(*milliseconds).unwrap_or(i64::MAX));
                request.shard_iterator_type(Type::AtTimestamp).timestamp(time)
            }
            ReadFrom::At(number) => {
                request.shard_iterator_type(Type::AtSequenceNumber).starting_sequence_number(number.as_str())
            }
            ReadFrom::After(number) => {
                request.shard_iterator_type(Type::AfterSequenceNumber).starting_sequence_number(number.as_str())
            }
        };
        let answer = self.ask(&call, request.send()).await?;
        let missing = || Error::InvalidAnswer { call: call.clone(), reason: "there is no iterator in it".into() };
        answer.shard_iterator.filter(|iterator| !iterator.is_empty()).ok_or_else(missing)
    }

    /// Asks once for the records at an iterator that was taken from there, at most `limit` (1 to 10,000). A
    /// [`PollingReader`](crate::PollingReader) does it over and over, within the service's limits.
    ///
    /// An answer that cannot be right is an error, and none of it is used.
    pub async fn get_records(
        &self,
        call: &Call,
        iterator: &str,
        limit: u32,
        decoder: Decoder,
        from: &ReadFrom,
    ) -> Result<Decoded, Error> {
        match self.get_records_within(call, (iterator, limit), decoder, from, None).await? {
            Ok(decoded) => Ok(decoded),
            Err(TooLarge { bytes, .. }) => {
                let reason = format!("it has {bytes} bytes, and no bound was set");
                Err(Error::InvalidAnswer { call: call.clone(), reason })
            }
        }
    }

    /// The same; an answer that is larger than `most` bytes is not received. The SDK's decoder receives everything.
    pub(crate) async fn get_records_within(
        &self,
        call: &Call,
        (iterator, limit): (&str, u32),
        decoder: Decoder,
        from: &ReadFrom,
        most: Option<u64>,
    ) -> Result<Result<Decoded, TooLarge>, Error> {
        let limit = i32::try_from(limit).unwrap_or(i32::MAX);
        let request = self.reads.get_records().shard_iterator(iterator).limit(limit);
        // The iterator says what is read; the ARN, that another account's policy lets it be read.
        let request = match Named::of(&call.stream) {
            Named::Name(_) => request,
            Named::Arn(arn) => request.stream_arn(arn),
        };
        let format = match decoder {
            Decoder::Sdk => None,
            Decoder::Json => Some(Format::Json),
            Decoder::Cbor => Some(Format::Cbor),
        };
        let decoded = match format {
            None => from_sdk(self.ask(call, request.send()).await?, from),
            Some(format) => {
                let exchange = Exchange::new(format, most);
                let asked = self.ask(call, request.customize().interceptor(exchange.clone()).send()).await;
                // Not received, which the SDK takes for an answer that broke off.
                if let Some(too_large) = exchange.refused() {
                    return Ok(Err(too_large));
                }
                asked?;
                match exchange.body().await {
                    Ok(body) => body.decode(from),
                    Err(reason) => Err(reason),
                }
            }
        };
        decoded.map(Ok).map_err(|reason| Error::InvalidAnswer { call: call.clone(), reason })
    }

    async fn ask<T, E>(
        &self,
        call: &Call,
        request: impl Future<Output = Result<T, SdkError<E, HttpResponse>>>,
    ) -> Result<T, Error>
    where
        E: std::error::Error + ProvideErrorMetadata + 'static,
    {
        match timeout(self.call_timeout, request).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(Error::sort(call.clone(), self.region(), &error)),
            Err(_) => {
                let reason = format!("no answer within {} ms", self.call_timeout.as_millis());
                Err(Error::Unavailable { call: call.clone(), reason })
            }
        }
    }

    fn region(&self) -> Option<String> {
        self.client.config().region().map(ToString::to_string)
    }
}

fn stream_info(call: &Call, summary: &types::StreamDescriptionSummary) -> Result<StreamInfo, Error> {
    let invalid = |what: &str| Error::InvalidAnswer { call: call.clone(), reason: format!("{what} makes no sense") };
    let created = summary.stream_creation_timestamp().to_millis().ok().and_then(|time| u64::try_from(time).ok());
    Ok(StreamInfo {
        name: summary.stream_name().into(),
        arn: summary.stream_arn().to_owned(),
        creation_time_ms: created.ok_or_else(|| invalid("StreamCreationTimestamp"))?,
        status: match summary.stream_status() {
            types::StreamStatus::Creating => StreamStatus::Creating,
            types::StreamStatus::Deleting => StreamStatus::Deleting,
            types::StreamStatus::Active => StreamStatus::Active,
            types::StreamStatus::Updating => StreamStatus::Updating,
            other => StreamStatus::Other(other.as_str().to_owned()),
        },
        retention_hours: summary.retention_period_hours().try_into().map_err(|_| invalid("RetentionPeriodHours"))?,
        open_shards: summary.open_shard_count().try_into().map_err(|_| invalid("OpenShardCount"))?,
    })
}

fn shard(call: &Call, listed: &types::Shard) -> Result<Shard, Error> {
    let invalid = |reason: String| Error::InvalidAnswer { call: call.clone(), reason };
    let missing = |field: &str| invalid(format!("{} has no {field}", listed.shard_id()));
    let shard_id = |text: &str| ShardId::parse(text).map_err(|error| invalid(error.to_string()));
    let sequence_number = |text: &str| SequenceNumber::parse(text).map_err(|error| invalid(error.to_string()));

    let range = listed.hash_key_range().ok_or_else(|| missing("HashKeyRange"))?;
    let sequences = listed.sequence_number_range().ok_or_else(|| missing("SequenceNumberRange"))?;
    let parents = [listed.parent_shard_id(), listed.adjacent_parent_shard_id()];
    Ok(Shard {
        id: shard_id(listed.shard_id())?,
        parents: parents.into_iter().flatten().map(shard_id).collect::<Result<_, _>>()?,
        range: hash_key_range(range).map_err(invalid)?,
        starting_sequence: sequence_number(sequences.starting_sequence_number())?,
        ending_sequence: sequences.ending_sequence_number().map(sequence_number).transpose()?,
    })
}

/// The error says what is wrong.
fn hash_key_range(range: &types::HashKeyRange) -> Result<HashKeyRange, String> {
    let key = |text: &str| text.parse().map_err(|error: shardmill_record::InvalidHashKey| error.to_string());
    Ok(HashKeyRange { start: key(range.starting_hash_key())?, end: key(range.ending_hash_key())? })
}
