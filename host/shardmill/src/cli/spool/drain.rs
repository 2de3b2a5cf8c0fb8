//! `shardmill spool drain`

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use aws_config::SdkConfig;
use clap::Args;
use futures::future::join_all;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use shardmill_cause::code;
use shardmill_producer::{BatchOptions, BatchSender, Error, Ordering, Permit, Stopped};
use shardmill_record::UserRecord;
use shardmill_spool::{Answer, Batch, Next, Pacing, Spool};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Folder, check_stream};
use crate::aws::Clients;
use crate::cli::pace::Pace;
use crate::cli::{Failure, access, output, stop_at_signal, text};
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

While a stream throttles or cannot be reached, it waits, and the others go on. A record that its stream will never take is \
set aside, and one that the disk has damaged; --set-aside tries those once more.";

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
    /// Send so many records a second at most, to all streams together; without it, as fast as the stream takes them.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    /// Put records for one shard together, as the KPL does.
    #[arg(long)]
    aggregate: bool,
    /// Do without the order of keys: many times as fast.
    #[arg(long)]
    unordered: bool,
    /// Send also records of more than 1 MiB, as far as the stream takes them: up to 10 MiB.
    #[arg(long)]
    large_records: bool,
    /// Send the records that are set aside as well.
    #[arg(long)]
    set_aside: bool,
    /// Print the result as JSON, one line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    access: access::Arguments,
}

/// What came of a stream.
#[derive(Debug, Default)]
struct Tally {
    sent: u64,
    set_aside: u64,
}

/// Why no more is sent of a stream.
enum Ended {
    /// Somebody wants it.
    Stopped,
    /// The stream refuses, or the spool does not work.
    Failed(Failure),
}

/// Why a batch was not sent.
enum Trouble {
    Stopped,
    Refused(Error),
}

/// What the records of one stream are sent with.
struct Drain<'a> {
    arguments: &'a Arguments,
    sdk: &'a SdkConfig,
    aws: &'a config::Aws,
    spool: &'a Spool,
    stream: &'a str,
    /// The stream that they are sent to.
    to: &'a str,
    stop: &'a CancellationToken,
    /// For all streams.
    pace: &'a Mutex<Pace>,
    bar: &'a ProgressBar,
}

pub(super) async fn drain(arguments: &Arguments) -> Result<(), Failure> {
    let stop = stop_at_signal()?;
    // Checking a large spool takes its time.
    let spool = tokio::select! {
        spool = arguments.folder.open() => spool?,
        () = stop.cancelled() => return Err(interrupted()),
    };
    check_stream(&spool, arguments.stream.as_deref())?;
    let (sdk, aws) = arguments.access.sdk().await;
    if arguments.set_aside {
        tokio::select! {
            taken = spool.take_back(arguments.stream.as_deref()) => { taken?; }
            () = stop.cancelled() => {
                spool.close().await?;
                return Err(interrupted());
            }
        }
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
    let pace = Mutex::new(Pace::new(arguments.rate, Instant::now()));
    // All at the same time: one that cannot be reached holds none of the others back.
    let drains = streams.iter().map(|(stream, _)| {
        let to = arguments.to.as_deref().unwrap_or(stream);
        let (sdk, aws, spool, stop, pace, bar) = (&sdk, &aws, &spool, &stop, &pace, &bar);
        Drain { arguments, sdk, aws, spool, stream, to, stop, pace, bar }.run()
    });
    let ended = join_all(drains).await;
    bar.finish_and_clear();
    let left: u64 =
        spool.depth().streams.iter().filter(|(stream, _)| is_meant(stream)).map(|(_, depth)| depth.records).sum();
    // The first failure gives the exit status; the others are told as well.
    let (mut sent, mut set_aside, mut is_stopped, mut failures) = (BTreeMap::new(), 0, false, Vec::new());
    for (to, tally, ended) in ended {
        *sent.entry(to).or_default() += tally.sent;
        set_aside += tally.set_aside;
        match ended {
            Ok(()) => {}
            Err(Ended::Stopped) => is_stopped = true,
            Err(Ended::Failed(failure)) => failures.push(failure),
        }
    }
    sent.retain(|_, records| *records > 0);
    tell(arguments, &sent, set_aside, left, is_stopped);
    failures.extend(spool.close().await.err().map(Failure::from));
    if is_stopped {
        failures.push(interrupted());
    }
    if set_aside > 0 {
        let message = format!("{} cannot be sent, and are set aside", text::counted(set_aside, "record"));
        failures.push(
            Failure::running(message)
                .code(code::producer::REFUSED)
                .help("`shardmill spool list` shows them with the reasons"),
        );
    }
    let mut failures = failures.into_iter();
    let first = failures.next();
    for failure in failures {
        let _shown = failure.report();
    }
    first.map_or(Ok(()), Err)
}

fn interrupted() -> Failure {
    Failure::running("the drain was interrupted")
        .code(code::command::INTERRUPTED)
        .help("the same command goes on where it was")
}

// === impl Drain ===

impl<'a> Drain<'a> {
    async fn run(self) -> (&'a str, Tally, Result<(), Ended>) {
        let mut tally = Tally::default();
        let ended = self.send_all(&mut tally).await;
        (self.to, tally, ended)
    }

    /// Sends all that waits for the stream.
    async fn send_all(&self, tally: &mut Tally) -> Result<(), Ended> {
        let producer = producer(self.arguments, self.to, self.sdk, self.aws).map_err(Ended::Failed)?;
        let sender = self.spool.sender(self.stream)?;
        let mut pacing = Pacing::new(Pace::new(self.arguments.rate, Instant::now()).at_once(AT_ONCE));
        loop {
            let batch = Batch { records: pacing.at_once(), ..Batch::default() };
            let drained = sender.drain_once(batch, async |records| self.send(&producer, records).await).await?;
            let mut set_aside = drained.set_aside as u64;
            let is_about_records =
                |trouble: &Trouble| matches!(trouble, Trouble::Refused(error) if error.is_about_records());
            let next = pacing.taken(&drained, is_about_records);
            if let (Next::SetAside(id), Some(Trouble::Refused(error))) = (next, &drained.error)
                && sender.set_aside(id, error.to_string()).await?
            {
                set_aside += 1;
            }
            tally.sent += drained.sent as u64;
            tally.set_aside += set_aside;
            self.bar.inc(drained.sent as u64 + set_aside);
            match (next, drained.error) {
                (Next::Pause, Some(Trouble::Stopped)) => return Err(Ended::Stopped),
                (Next::Pause, Some(Trouble::Refused(error))) => return Err(Ended::Failed((&error).into())),
                (Next::Wait, _) => return Ok(()),
                (Next::Go | Next::SetAside(_) | Next::Pause, _) => {}
            }
        }
    }

    /// Sends a batch, all that can be sent of it.
    async fn send(&self, producer: &BatchSender, records: Vec<UserRecord>) -> Answer<Trouble> {
        let goes_at = self.pace.lock().unwrap_or_else(PoisonError::into_inner).takes(records.len(), Instant::now());
        tokio::select! {
            biased;
            () = self.stop.cancelled() => return Answer::Partly(Vec::new(), Some(Trouble::Stopped)),
            () = tokio::time::sleep_until(goes_at) => {}
        }
        let stop = self.stop.clone();
        let permit = Permit::new(move || if stop.is_cancelled() { Err(Stopped) } else { Ok(()) });
        match producer.send_spooled(records, &permit).await {
            Answer::Sent => Answer::Sent,
            Answer::Partly(fates, error) => Answer::Partly(
                fates,
                error.map(|error| match error {
                    Error::Stopped { .. } => Trouble::Stopped,
                    error => Trouble::Refused(error),
                }),
            ),
        }
    }
}

impl From<shardmill_spool::Error> for Ended {
    fn from(error: shardmill_spool::Error) -> Self {
        Self::Failed(error.into())
    }
}

fn producer(arguments: &Arguments, to: &str, sdk: &SdkConfig, aws: &config::Aws) -> Result<BatchSender, Failure> {
    access::check_region(sdk, to)?;
    let ordering = if arguments.unordered { Ordering::None } else { Ordering::Key };
    let default = BatchOptions::default();
    let record_max_bytes = if arguments.large_records { LARGE } else { default.record_max_bytes };
    let options = BatchOptions { ordering, aggregate: arguments.aggregate, record_max_bytes, ..default };
    let client = Clients::new(sdk, aws).for_streams([to], sdk, aws).producer_of(to).clone();
    Ok(BatchSender::new(client, to.to_owned(), options, shardmill_producer::Metrics::default(), rand::random()))
}

/// As many records go at a time, at most.
const AT_ONCE: usize = 5000;

/// What a stream can be made to take at most (AWS limit).
const LARGE: usize = 10 << 20;

fn tell(arguments: &Arguments, sent: &BTreeMap<&str, u64>, set_aside: u64, left: u64, is_stopped: bool) {
    if arguments.json {
        output::line(json!({
            "sent": sent.values().sum::<u64>(),
            "to": sent,
            "set_aside": set_aside,
            "left": left,
            "interrupted": is_stopped,
        }));
        return;
    }
    if sent.is_empty() {
        output::line("0 records sent.");
    }
    for (stream, records) in sent {
        output::line(format_args!("{} sent to {}.", text::counted(*records, "record"), text::line(stream)));
    }
    if left > 0 {
        output::line(format_args!("{} left in the spool.", text::counted(left, "record")));
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
