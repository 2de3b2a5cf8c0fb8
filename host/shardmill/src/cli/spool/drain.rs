//! `shardmill spool drain`

use std::collections::BTreeMap;
use std::time::Duration;

use aws_config::SdkConfig;
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use shardmill_producer::{BatchOptions, BatchSender, Error, Ordering, Permit, Stopped};
use shardmill_record::{StreamArn, UserRecord};
use shardmill_spool::{Answer, Batch, Spool, drain_once};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Folder, check_stream, shown};
use crate::aws::{self, Clients};
use crate::cli::{Failure, output, stop_at_signal};
use crate::config;

pub(super) const EXAMPLES: &str = "\
Examples:
  shardmill spool drain --folder /var/lib/orders
  shardmill spool drain --folder /var/lib/orders --stream orders --aggregate
  shardmill spool drain --folder /var/lib/orders --stream orders --to orders-late --rate 200
  shardmill spool drain --folder /var/lib/orders --set-aside

Records of a key are sent in their order, and each is removed when its stream has it: a drain that was interrupted goes on \
where it was. One that was killed sends the last records twice. Without --aggregate each goes as a record of its own, one \
for each shard and request; readers that take KPL aggregates apart let it be many times as fast.

While a stream throttles or cannot be reached, it waits. A record that its stream will never take is set aside; \
--set-aside tries those once more.";

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    folder: Folder,
    /// Only records of this stream, by the name or ARN by which `list` shows it.
    #[arg(long, value_name = "STREAM")]
    stream: Option<String>,
    /// Send to this stream, by its name or ARN, instead of the stream that each record was for.
    #[arg(long, value_name = "STREAM")]
    to: Option<String>,
    /// Send so many records a second at most; without it, as fast as the stream takes them.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    /// Put records for one shard together, as the KPL does.
    #[arg(long)]
    aggregate: bool,
    /// Do without the order of keys: many times as fast.
    #[arg(long)]
    unordered: bool,
    /// Send the records that are set aside as well.
    #[arg(long)]
    set_aside: bool,
    /// Print the result as JSON, one line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    aws: Aws,
}

/// How AWS is reached. What is not named here comes from the environment variables and profiles of every AWS SDK.
#[derive(Debug, Args)]
#[command(next_help_heading = "AWS")]
struct Aws {
    /// The region, in place of AWS_REGION and the profile's.
    #[arg(long, value_name = "REGION")]
    region: Option<String>,
    /// A profile of the shared configuration files, in place of AWS_PROFILE.
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Where Kinesis is, in place of AWS' own endpoint.
    #[arg(long, value_name = "URL")]
    endpoint_url: Option<String>,
}

/// What a drain has done.
#[derive(Debug, Default)]
struct Tally {
    /// By the stream that took them.
    sent: BTreeMap<String, u64>,
    set_aside: u64,
}

/// Why no more is sent.
enum Ended {
    /// Somebody wants it.
    Stopped,
    /// The stream refuses.
    Failed(Failure),
}

/// Sends to one stream.
struct Sender {
    producer: BatchSender,
    stop: CancellationToken,
    pace: Pace,
}

/// When the next records may go.
struct Pace {
    per_second: Option<u32>,
    not_before: Instant,
}

pub(super) async fn drain(arguments: &Arguments) -> Result<(), Failure> {
    let stop = stop_at_signal()?;
    let spool = arguments.folder.open().await?;
    check_stream(&spool, arguments.stream.as_deref())?;
    let (sdk, aws) = arguments.aws.load().await;
    if arguments.set_aside {
        spool.take_back(arguments.stream.as_deref()).await?;
    }
    let depth = spool.depth();
    let is_meant = |stream: &str| arguments.stream.as_deref().is_none_or(|meant| meant == stream);
    let streams: Vec<(String, u64)> = depth
        .streams
        .into_iter()
        .filter(|(stream, depth)| is_meant(stream) && depth.records > 0)
        .map(|(stream, depth)| (stream, depth.records))
        .collect();
    let bar = bar(arguments.json, streams.iter().map(|(_, records)| records).sum());
    let mut pace = Pace { per_second: arguments.rate, not_before: Instant::now() };
    let mut tally = Tally::default();
    // The first one gives the exit status; the others are told as well.
    let mut failures: Vec<Failure> = Vec::new();
    let mut is_stopped = false;
    for (stream, _) in &streams {
        let to = arguments.to.as_deref().unwrap_or(stream);
        let producer = match producer(arguments, to, &sdk, &aws) {
            Ok(producer) => producer,
            Err(failure) => {
                failures.push(failure);
                continue;
            }
        };
        let mut sender = Sender { producer, stop: stop.clone(), pace };
        let ended = drain_stream(&spool, stream, to, &mut sender, &mut tally, &bar).await;
        pace = sender.pace;
        match ended {
            Ok(()) => {}
            Err(Ended::Stopped) => {
                is_stopped = true;
                break;
            }
            Err(Ended::Failed(failure)) => failures.push(failure),
        }
    }
    bar.finish_and_clear();
    let left: u64 =
        spool.depth().streams.iter().filter(|(stream, _)| is_meant(stream)).map(|(_, depth)| depth.records).sum();
    tell(arguments, &tally, left, is_stopped);
    spool.close().await?;
    if is_stopped {
        failures.push(Failure::running("the drain was interrupted").help("the same command goes on where it was"));
    }
    if tally.set_aside > 0 {
        let message = format!("{} will never be taken by their streams", shown::records(tally.set_aside));
        failures.push(Failure::running(message).help("`shardmill spool list` shows them with the reasons"));
    }
    let mut failures = failures.into_iter();
    let first = failures.next();
    for failure in failures {
        let _shown = failure.report();
    }
    first.map_or(Ok(()), Err)
}

/// Sends all that waits for a stream.
async fn drain_stream(
    spool: &Spool,
    stream: &str,
    to: &str,
    sender: &mut Sender,
    tally: &mut Tally,
    bar: &ProgressBar,
) -> Result<(), Ended> {
    let batch = Batch { records: sender.pace.at_once(), ..Batch::default() };
    loop {
        let drained = drain_once(spool, stream, batch, async |records| sender.send(records).await).await;
        let drained = drained.map_err(|error| Ended::Failed(error.into()))?;
        *tally.sent.entry(to.to_owned()).or_default() += drained.sent as u64;
        tally.set_aside += drained.set_aside as u64;
        bar.inc((drained.sent + drained.set_aside) as u64);
        if let Some(ended) = drained.error {
            return Err(ended);
        }
        if drained.sent + drained.set_aside + drained.kept == 0 {
            return Ok(());
        }
    }
}

// === impl Aws ===

impl Aws {
    async fn load(&self) -> (SdkConfig, config::Aws) {
        let aws = config::Aws {
            region: self.region.clone(),
            profile: self.profile.clone(),
            kinesis_endpoint: self.endpoint_url.clone(),
            dynamodb_endpoint: None,
        };
        (aws::load(&aws).await, aws)
    }
}

fn producer(arguments: &Arguments, to: &str, sdk: &SdkConfig, aws: &config::Aws) -> Result<BatchSender, Failure> {
    if sdk.region().is_none() && StreamArn::parse(to).is_err() {
        return Err(
            Failure::configuration("no AWS region is set").help("name it with --region, AWS_REGION or a profile")
        );
    }
    let ordering = if arguments.unordered { Ordering::None } else { Ordering::Key };
    let options = BatchOptions { ordering, aggregate: arguments.aggregate, ..Default::default() };
    let client = Clients::new(sdk, aws).for_streams([to], sdk, aws).producer_of(to).clone();
    Ok(BatchSender::new(client, to.to_owned(), options, shardmill_producer::Metrics::default(), rand::random()))
}

// === impl Pace ===

impl Pace {
    /// How many records go at a time: no more than in a second.
    fn at_once(&self) -> usize {
        const FASTEST: usize = 5000;

        self.per_second.map_or(FASTEST, |rate| FASTEST.min(rate as usize))
    }

    /// Notes that so many go now.
    fn goes(&mut self, records: usize, now: Instant) {
        if let Some(rate) = self.per_second {
            self.not_before = self.not_before.max(now) + Duration::from_secs_f64(records as f64 / f64::from(rate));
        }
    }
}

// === impl Sender ===

impl Sender {
    /// Sends a batch, all that can be sent of it.
    async fn send(&mut self, records: Vec<UserRecord>) -> Answer<Ended> {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => return Answer::Partly(Vec::new(), Some(Ended::Stopped)),
            () = tokio::time::sleep_until(self.pace.not_before) => {}
        }
        self.pace.goes(records.len(), Instant::now());
        let stop = self.stop.clone();
        let permit = Permit::new(move || if stop.is_cancelled() { Err(Stopped) } else { Ok(()) });
        match self.producer.send_spooled(records, &permit).await {
            Answer::Sent => Answer::Sent,
            Answer::Partly(fates, error) => Answer::Partly(
                fates,
                error.map(|error| match &error {
                    Error::Stopped { .. } => Ended::Stopped,
                    error => Ended::Failed(error.into()),
                }),
            ),
        }
    }
}

fn tell(arguments: &Arguments, tally: &Tally, left: u64, is_stopped: bool) {
    let sent: BTreeMap<&String, u64> =
        tally.sent.iter().filter(|(_, records)| **records > 0).map(|(to, records)| (to, *records)).collect();
    if arguments.json {
        output::line(json!({
            "sent": sent.values().sum::<u64>(),
            "to": sent,
            "set_aside": tally.set_aside,
            "left": left,
            "interrupted": is_stopped,
        }));
        return;
    }
    if sent.is_empty() {
        output::line("0 records sent.");
    }
    for (stream, records) in &sent {
        output::line(format_args!("{} sent to {}.", shown::records(*records), shown::line(stream)));
    }
    if left > 0 {
        output::line(format_args!("{} left in the spool.", shown::records(left)));
    }
}

/// On a terminal: how far it is.
fn bar(quiet: bool, records: u64) -> ProgressBar {
    let bar = ProgressBar::new(records);
    if quiet {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    let style = ProgressStyle::with_template("  {wide_bar} {pos}/{len} records  {per_sec}  {elapsed}");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_pace_is_kept_and_pauses_are_not_made_up_for() {
        let now = Instant::now();
        let mut pace = Pace { per_second: Some(100), not_before: now };
        assert_eq!(pace.at_once(), 100);
        pace.goes(50, now);
        pace.goes(100, now);
        assert_eq!(pace.not_before - now, Duration::from_millis(1500));
        let later = now + Duration::from_secs(100);
        pace.goes(50, later);
        assert_eq!(pace.not_before - later, Duration::from_millis(500));
        let mut unlimited = Pace { per_second: None, not_before: now };
        unlimited.goes(1_000_000, now);
        assert_eq!((unlimited.not_before, unlimited.at_once()), (now, 5000));
    }
}
