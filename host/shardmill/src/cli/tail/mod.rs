//! `shardmill tail`: shows what is in a stream and what comes, without leases and without moving anybody's checkpoint.
//!
//! A task for each shard reads pages ([`reading`]); [`follower`] decides which shards are read and when, [`filter`] what is
//! shown, [`show`] how. Pages in memory are bounded, and a shard's pages are shown in order.

mod filter;
mod follower;
mod reading;
mod show;
mod start;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use clap::Args;
use shardmill_record::{
    BatchBuilder, BatchLimits, HashKeyRange, OutOfRange, Position, SequenceNumber, ShardId, Unpacker,
};
use shardmill_stream::polling::Options;
use shardmill_stream::{Metrics, ReadPage};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::filter::{Field, Filter};
use self::follower::{Follower, Unknown};
use self::reading::{Event, News, Readers};
use self::start::{Begin, Start};
use super::{Failure, access, output};

pub(super) const EXAMPLES: &str = "\
Examples:
  shardmill tail orders                                     what comes from now on, until Ctrl-C
  shardmill tail orders --from trim-horizon --until-idle    all that there is, then the end
  shardmill tail orders --from 15m --key customer-7         of one key, of the last quarter of an hour
  shardmill tail orders --where /status=failed --where /attempt=3 --max-records 10
  shardmill tail orders --json | jq -r .data
  shardmill tail orders --shard shardId-000000000000 --after 4957…/2
  shardmill tail flights --endpoint-url http://127.0.0.1:4567

KPL aggregates are taken apart. Records of a shard are shown in order, and a shard that follows a split or a merge after
its parents. No lease is taken and no checkpoint moves; but reads count with those of other consumers of the shard that
poll, so that they are kept slow (--reads-per-second).

With --json a record is one line: `position` is what --from and --after take, `arrived_at` is in milliseconds since 1970,
and the payload is `data` if it is UTF-8, else `data_base64`. Characters that a terminal would obey are shown escaped.";

/// So many pages may be in memory, or asked for.
const PAGES: usize = 16;
/// Of the service, to all consumers of a shard together that poll.
const READS_PER_SECOND: u32 = 5;
const BYTES_PER_SECOND: u64 = 2 << 20;
const BATCH: BatchLimits = BatchLimits { records: 1_000, bytes: 1 << 20 };

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The stream, by its name or ARN.
    #[arg(value_name = "STREAM", value_parser = access::stream)]
    stream: String,
    /// Begin there: trim-horizon, latest, how long ago (15m), a day, a time (2026-07-01T12:00:00Z), or with --shard the
    /// position of a record.
    #[arg(long, value_name = "WHERE", default_value = "latest", value_parser = from)]
    from: Start,
    /// Begin behind the record at this position.
    #[arg(long, value_name = "POSITION", conflicts_with = "from", requires = "shards", value_parser = start::position)]
    after: Option<Position>,
    /// Read this shard alone, and not what follows it; may be given more than once.
    #[arg(long = "shard", value_name = "ID", value_parser = shard_id)]
    shards: Vec<ShardId>,
    /// Show records of this partition key; may be given more than once, for any of them.
    #[arg(long = "key", value_name = "KEY")]
    keys: Vec<String>,
    /// Show records whose payload contains this text; may be given more than once, for all of them.
    #[arg(long, value_name = "TEXT")]
    contains: Vec<String>,
    /// Show records whose payload is JSON with this value at this JSON pointer, such as /user/id=42; may be given more than
    /// once, for all of them.
    #[arg(long = "where", value_name = "POINTER=VALUE", value_parser = Field::parse)]
    fields: Vec<Field>,
    /// End when so many records have been shown.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_records: Option<u64>,
    /// End when all shards are read to their tips and nothing has come for so long (5s if no time is named).
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "5s", value_parser = humantime::parse_duration)]
    until_idle: Option<Duration>,
    /// How often a shard is read, of the 5 times a second that all its consumers have together; and as much of its
    /// 2 MiB a second.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=5))]
    reads_per_second: u32,
    /// Print a JSON object for each record, one a line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    access: access::Arguments,
}

/// What has been read of a stream, and what was shown of it.
struct Tail<'a> {
    arguments: &'a Arguments,
    filter: Filter,
    follower: Follower,
    readers: Readers,
    tasks: JoinSet<()>,
    shards: BTreeMap<ShardId, Reading>,
    /// Shards that were closed before.
    history: BTreeSet<ShardId>,
    /// When something came last, or was seen to be still to come.
    busy: Instant,
    shown: u64,
    passed_over: u64,
}

/// A shard that is being read.
struct Reading {
    unpacker: Unpacker,
    /// When it was read to its tip, if that was at the last read.
    at_tip: Option<Instant>,
    /// The record at which it was to begin, until it is seen that it does.
    expected: Option<SequenceNumber>,
}

pub(super) async fn tail(arguments: &Arguments) -> Result<(), Failure> {
    let start = match &arguments.after {
        Some(position) => Start::After(position.clone()),
        None => arguments.from.clone(),
    };
    let has_one_shard = matches!(arguments.shards.as_slice(), [_one]);
    if start.is_position() && !has_one_shard {
        return Err(Failure::usage("a position is one of one shard: name the shard with --shard ID"));
    }
    let access = arguments.access.open(&arguments.stream).await?;
    let Some(opened) = access.unless_stopped(Tail::open(arguments, &access, &start)).await else { return Ok(()) };
    let (mut tail, events) = opened?;
    tail.say(|tail| format!("{} shards of {}; Ctrl-C ends it.", tail.follower.reading(), arguments.stream));
    let ended = access.unless_stopped(tail.run(events)).await;
    tail.say(|tail| format!("{} records shown, {} passed over.", tail.shown, tail.passed_over));
    // Ctrl-C is how a tail ends.
    ended.unwrap_or(Ok(()))
}

// === impl Tail ===

impl<'a> Tail<'a> {
    async fn open(
        arguments: &'a Arguments,
        access: &access::Access,
        start: &Start,
    ) -> Result<(Self, mpsc::Receiver<Event>), Failure> {
        let info = access.kinesis.wait_until_active(&access.stream).await?;
        let listing = access.kinesis.list_shards(&access.stream).await?;
        let follower = Follower::new(&listing, start, &arguments.shards).map_err(|Unknown(unknown)| {
            let names = |ids: &mut dyn Iterator<Item = String>| ids.collect::<Vec<_>>().join(", ");
            let unknown = names(&mut unknown.iter().map(ToString::to_string));
            let known = names(&mut listing.iter().map(|shard| shard.id.to_string()).take(20));
            Failure::running(format!("stream {} has no shard {unknown}", access.stream))
                .help(format!("it has {known}; `shardmill stream describe` shows all of them"))
        })?;
        let (events, received) = mpsc::channel(PAGES);
        let reads = arguments.reads_per_second;
        let readers = Readers {
            kinesis: access.kinesis.clone(),
            stream: access.stream.as_str().into(),
            creation_time_ms: info.creation_time_ms,
            options: Options {
                reads_per_second: reads,
                bytes_per_second: BYTES_PER_SECOND / u64::from(READS_PER_SECOND) * u64::from(reads),
                ..Options::default()
            },
            metrics: Metrics::default(),
            room: Arc::new(Semaphore::new(PAGES)),
            events,
        };
        let mut tail = Self {
            arguments,
            filter: Filter::new(&arguments.keys, &arguments.contains, &arguments.fields),
            follower,
            readers,
            tasks: JoinSet::new(),
            shards: BTreeMap::new(),
            history: listing.iter().filter(|shard| !shard.is_open()).map(|shard| shard.id.clone()).collect(),
            busy: Instant::now(),
            shown: 0,
            passed_over: 0,
        };
        tail.start_ready();
        Ok((tail, received))
    }

    async fn run(&mut self, mut events: mpsc::Receiver<Event>) -> Result<(), Failure> {
        while !self.follower.is_over() && !self.is_idle() && self.left() > 0 {
            let event = tokio::select! {
                event = events.recv() => event,
                Some(Err(error)) = self.tasks.join_next() => {
                    return Err(Failure::running(format!("the reader of a shard broke down, please report it: {error}")));
                }
            };
            let Some(Event { shard, news }) = event else { break };
            match news {
                News::Page(page, _room) => self.take(&shard, page),
                News::Ended { listing, children } => {
                    let followers = self.follower.ended(&shard, &listing, &children);
                    self.finish(&shard, &followers);
                }
                News::Gone(error, listing) => {
                    self.say(|_| error.to_string());
                    let followers = self.follower.ended(&shard, &listing, &[]);
                    self.finish(&shard, &followers);
                }
                News::Failed(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn start_ready(&mut self) {
        for (shard, begin) in self.follower.take_ready() {
            self.shards.insert(shard.clone(), Reading::new(&begin));
            self.tasks.spawn(self.readers.clone().read(shard, begin));
        }
    }

    fn finish(&mut self, shard: &ShardId, followers: &[ShardId]) {
        self.busy = Instant::now();
        self.shards.remove(shard);
        if !self.history.contains(shard) || !self.arguments.shards.is_empty() {
            let followers = followers.iter().map(ShardId::as_str).collect::<Vec<_>>().join(" and ");
            match followers.as_str() {
                "" => self.say(|_| format!("{shard} has ended.")),
                followers => self.say(|_| format!("{shard} has ended, and is followed by {followers}.")),
            }
        }
        self.start_ready();
    }

    /// Takes a page apart and shows what is wanted of it.
    fn take(&mut self, shard: &ShardId, page: ReadPage) {
        let Some(mut reading) = self.shards.remove(shard) else { return };
        let now = Instant::now();
        let is_at_tip = match page.millis_behind {
            Some(behind) => behind == 0,
            None => page.page.is_empty(),
        };
        if !page.page.is_empty() || !is_at_tip {
            self.busy = now;
        }
        // A closed shard has something to come: its end.
        reading.at_tip = (is_at_tip && !page.end).then_some(now);
        if let Some(expected) = reading.expected.take_if(|_| !page.page.is_empty()) {
            let first = page.page.sequence_number_digits(0);
            if expected.cmp_digits(first.as_bytes()).is_ne() {
                self.say(|_| format!("record {expected} is not kept any more; {shard} begins with {first}"));
            }
        }
        reading.unpacker.push(page.page);
        while !reading.unpacker.is_empty() && self.left() > 0 {
            let mut batch = BatchBuilder::default();
            reading.unpacker.fill(&mut batch, &BATCH);
            self.show(shard, batch);
        }
        self.shards.insert(shard.clone(), reading);
    }

    fn show(&mut self, shard: &ShardId, batch: BatchBuilder) {
        let mut out = String::new();
        for record in batch.build().iter() {
            if self.left() == 0 {
                break;
            }
            if !self.filter.takes(&record) {
                self.passed_over += 1;
                continue;
            }
            self.shown += 1;
            if self.arguments.json {
                show::push_json(&mut out, &self.arguments.stream, shard, &record);
            } else {
                show::push_text(&mut out, shard, &record);
            }
        }
        if !out.is_empty() {
            output::lines(&out);
        }
    }

    /// How many records may still be shown.
    fn left(&self) -> u64 {
        self.arguments.max_records.map_or(u64::MAX, |most| most - self.shown)
    }

    /// Whether each shard was read to its tip after the time in which nothing has come: a service that does not answer is not
    /// taken for a stream that is idle.
    fn is_idle(&self) -> bool {
        let Some(quiet) = self.arguments.until_idle else { return false };
        let is_quiet = |reading: &Reading| reading.at_tip.is_some_and(|at| at - self.busy >= quiet);
        !self.follower.is_waiting() && self.shards.values().all(is_quiet)
    }

    /// Tells people what is going on.
    fn say(&self, text: impl FnOnce(&Self) -> String) {
        if !self.arguments.json {
            eprintln!("{}", text(self));
        }
    }
}

// === impl Reading ===

impl Reading {
    fn new(begin: &Begin) -> Self {
        let expected = match &begin.from {
            shardmill_stream::ReadFrom::At(number) => Some(number.clone()),
            _elsewhere => None,
        };
        let unpacker = Unpacker::new(begin.after.clone(), HashKeyRange::ALL, OutOfRange::Deliver);
        Self { unpacker, at_tip: None, expected }
    }
}

fn from(text: &str) -> Result<Start, String> {
    Start::parse(text, SystemTime::now())
}

fn shard_id(text: &str) -> Result<ShardId, String> {
    ShardId::parse(text).map_err(|error| error.to_string())
}
