//! Sees to it that a consumer's streams and its lease table belong together: at the start, and when a stream that is
//! read turns out to be gone or to be another one.

use std::sync::Arc;
use std::time::Duration;

use shardmill_cause::{Coded, code, with_causes};
use shardmill_lease::Handle;
use shardmill_lease::StreamKey;
use shardmill_lease::store::{self, KeyForm, StreamClaim, StreamIdentity, claim_stream, retire_leases};
use shardmill_record::StreamArn;
use shardmill_stream::{Kind, StreamInfo, StreamStatus};
use tokio::time::sleep;

use crate::consumer::{Error, Parts};
use crate::input::{Incarnation, Input, Stream};

/// Between two looks at a stream that is not there. DescribeStreamSummary takes 20 calls a second of an account.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// So many looks in a row must find no stream before its leases are removed.
const LOOKS: u32 = 3;

/// The consumer's streams, all of them there and the table's.
pub(crate) async fn prepare(parts: &Parts) -> Result<Vec<Arc<Stream>>, Error> {
    let described: Vec<_> = parts.inputs.iter().map(describe).collect();
    let infos = futures::future::try_join_all(described).await?;
    tell_apart(parts, &infos)?;
    let mut streams = Vec::with_capacity(infos.len());
    for (input, info) in parts.inputs.iter().zip(infos) {
        let incarnation = claim(parts, input, info).await?;
        streams.push(Arc::new(Stream::new(input.clone(), incarnation)));
    }
    Ok(streams)
}

async fn describe(input: &Input) -> Result<StreamInfo, Error> {
    let Input { options, kinesis, .. } = input;
    let info = kinesis.wait_until_created(&options.stream).await?;
    // What passes is left to the coordinator, which lists the shards again and again.
    if let Err(error) = kinesis.list_shards(&options.stream).await
        && matches!(error.kind(), Kind::NotPermitted | Kind::Credentials)
        && !error.is_transient()
    {
        return Err(error.into());
    }
    Ok(info)
}

/// Keys must tell the streams of one table apart, and they do not name the region.
fn tell_apart(parts: &Parts, infos: &[StreamInfo]) -> Result<(), Error> {
    for (index, info) in infos.iter().enumerate() {
        let key = key(parts.key_form, info)?;
        for (other_index, other) in infos[..index].iter().enumerate() {
            let reason = if other.arn == info.arn {
                format!("both are {}", info.arn)
            } else if key.is_some() && key == self::key(parts.key_form, other)? {
                format!("both have account, name and second of creation {}, which lease keys are made of", shown(&key))
            } else {
                continue;
            };
            let name = |index: usize| parts.inputs[index].options.stream.to_string();
            return Err(Error::SameStreams { first: name(other_index), second: name(index), reason });
        }
    }
    Ok(())
}

fn shown(key: &Option<StreamKey>) -> &str {
    key.as_ref().map_or("", StreamKey::as_str)
}

fn key(form: KeyForm, info: &StreamInfo) -> Result<Option<StreamKey>, Error> {
    match form {
        KeyForm::Shard => Ok(None),
        KeyForm::MultiStream => {
            let arn = StreamArn::parse(&info.arn)
                .map_err(|error| Error::NoArn { stream: info.name.to_string(), reason: error.to_string() })?;
            Ok(Some(StreamKey::new(&arn, info.creation_time_ms)))
        }
    }
}

/// Makes the table the stream's; leases of an earlier stream of this ARN are removed before.
async fn claim(parts: &Parts, input: &Input, mut info: StreamInfo) -> Result<Incarnation, Error> {
    let stream = &input.options.stream;
    let table = || parts.store.lease_table().to_owned();
    loop {
        let incarnation = Incarnation { key: key(parts.key_form, &info)?, info: info.clone() };
        let identity = incarnation.identity();
        let claimed = persist(parts, || async {
            parts.store.ensure().await?;
            claim_stream(parts.store.as_ref(), &identity).await
        });
        match claimed.await? {
            StreamClaim::Same => return Ok(incarnation),
            StreamClaim::Earlier(earlier) => retire(parts, stream, &earlier, Some(&identity)).await?,
            StreamClaim::Later(_) => {
                sleep(LOOK_EVERY).await;
                info = input.kinesis.wait_until_created(stream).await?;
            }
            StreamClaim::OtherStream(stored) => {
                return Err(Error::OtherStream { table: table(), stored_arn: stored.arn, arn: identity.arn });
            }
            StreamClaim::OtherForm(stored) => {
                return Err(Error::OtherForm { table: table(), stored, configured: parts.key_form });
            }
        }
    }
}

/// Removes the leases of a stream that is gone.
async fn retire(
    parts: &Parts,
    stream: &str,
    gone: &StreamIdentity,
    next: Option<&StreamIdentity>,
) -> Result<(), Error> {
    let me = format!("{}/{:016x}", parts.lease_options.worker, parts.seed);
    let retired = persist(parts, || retire_leases(parts.store.as_ref(), parts.clock.as_ref(), &me, gone, next));
    let (processor, created_at) = (&parts.options().processor, gone.created_at);
    match (retired.await?, next) {
        (Some(leases), Some(next)) => tracing::warn!(
            %processor, stream, leases, created_at, created_again_at = next.created_at,
            code = %code::stream::STREAM_RECREATED,
            "the stream was deleted and created again: the old one's leases are removed, and it is read from its start position"
        ),
        (Some(leases), None) => tracing::warn!(
            %processor, stream, leases, created_at, code = %code::stream::STREAM_GONE, "the stream is gone: its leases are removed"
        ),
        (None, _) => {
            tracing::info!(%processor, stream, created_at, "the old stream's leases were removed by another worker")
        }
    }
    Ok(())
}

/// Does something with the table, again and again for as long as what fails may pass.
async fn persist<T, F>(parts: &Parts, attempt: impl Fn() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, store::Error>>,
{
    let processor = &parts.options().processor;
    let mut failures = 0u32;
    loop {
        match attempt().await {
            Ok(done) => {
                if failures > 0 {
                    tracing::info!(%processor, "the lease table is reached");
                }
                return Ok(done);
            }
            Err(error) if error.is_transient() => {
                failures += 1;
                if failures == 1 {
                    tracing::warn!(
                        %processor, error = with_causes(&error), code = %error.code(), "the lease table cannot be reached yet; trying on"
                    );
                }
                sleep(parts.options().backoff.delay(failures, rand::random())).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Looks after a stream when the alarm is raised: until it is there again, whatever became of it. Returns when the
/// consumer cannot go on.
pub(crate) async fn watch_over(stream: Arc<Stream>, parts: Arc<Parts>, handle: Handle) -> Error {
    loop {
        tokio::select! {
            () = stream.alarmed() => {}
            () = sleep(parts.lease_options.sync_interval.mul_f64(rand::random_range(0.75..=1.25))) => {
                // A worker that reads of it is told by its readers.
                if parts.status.holds_shards(&parts.options().processor) || !has_changed(&stream).await {
                    continue;
                }
            }
        }
        if let Err(error) = restore(&stream, &parts).await {
            return error;
        }
        handle.sync_soon();
    }
}

/// Whether the stream is gone, or another one. What cannot be asked is not known, and most likely as it was.
async fn has_changed(stream: &Stream) -> bool {
    let Some(known) = stream.incarnation() else { return true };
    match stream.input.kinesis.describe(stream.name()).await {
        Ok(info) => !known.is_same(&info) || info.status == StreamStatus::Deleting,
        Err(error) => error.kind() == Kind::NotFound,
    }
}

async fn restore(stream: &Stream, parts: &Parts) -> Result<(), Error> {
    let (Some(known), processor) = (stream.incarnation(), &parts.options().processor) else { return Ok(()) };
    let name = stream.name();
    let mut looks = 0;
    loop {
        match stream.input.kinesis.describe(name).await {
            // A false alarm, or one that another reader raised for the same reason.
            Ok(info) if known.is_same(&info) && info.status != StreamStatus::Deleting => {
                stream.set(Some(known));
                if looks > 0 {
                    tracing::info!(%processor, stream = %name, "the stream is there after all");
                }
                break;
            }
            Ok(info) if info.status.is_readable() => {
                stream.set(None);
                stream.set(Some(Arc::new(claim(parts, &stream.input, info).await?)));
                tracing::info!(%processor, stream = %name, "the stream is read again");
                break;
            }
            Ok(_not_yet) => wait(stream, parts, "it is being deleted or created"),
            Err(error) if error.kind() == Kind::NotFound => {
                looks += 1;
                wait(stream, parts, "it was deleted; waiting for it to be created again");
                if looks == LOOKS {
                    tracing::warn!(
                        %processor, stream = %name, code = %code::stream::STREAM_GONE,
                        "the stream was deleted: what was not read of it is lost; its leases are retired, and it is read anew when it is created again"
                    );
                    retire(parts, name, &known.identity(), None).await?;
                }
            }
            Err(error) => wait(stream, parts, &error.to_string()),
        }
        sleep(LOOK_EVERY).await;
    }
    parts.status.set_missing(processor, name, None);
    Ok(())
}

/// Nothing of the stream is run until it is known what became of it.
fn wait(stream: &Stream, parts: &Parts, reason: &str) {
    stream.set(None);
    parts.status.set_missing(&parts.options().processor, stream.name(), Some(reason.to_owned()));
}
