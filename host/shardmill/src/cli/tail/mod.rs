//! `shardmill tail`: shows what is in a stream and what comes, without leases and without moving anybody's checkpoint.
//!
//! A task for each shard reads pages ([`reading`]); [`follower`] decides which shards are read and when, [`filter`] what is
//! shown, [`show`] how. Pages in memory are bounded, and a shard's pages are shown in order.

mod arguments;
mod filter;
mod follower;
mod reading;
mod show;
mod start;

use std::collections::{BTreeMap, BTreeSet};
use std::io::IsTerminal;
use std::sync::Arc;

use shardmill_cause::code;
use shardmill_record::{BatchBuilder, BatchLimits, HashKeyRange, OutOfRange, Page, SequenceNumber, ShardId, Unpacker};
use shardmill_stream::polling::Options;
use shardmill_stream::{Metrics, ReadPage};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;

pub(super) use self::arguments::{Arguments, EXAMPLES};
use self::filter::Filter;
use self::follower::{Follower, Unknown};
use self::reading::{Event, News, Readers};
use self::show::{Output, Shown};
use self::start::{Begin, Start};
use super::{Failure, access, output, text};
use crate::unix_ms;

/// So many pages may be in memory, or asked for.
const PAGES: usize = 16;
/// Of the service, to all consumers of a shard together that poll.
const READS_PER_SECOND: u32 = 5;
const BYTES_PER_SECOND: u64 = 2 << 20;
/// One by one, because what is met is counted by the batch, and each record is to be marked by itself.
const BATCH: BatchLimits = BatchLimits { records: 1, bytes: 1 << 20 };
/// So much is printed at once.
const PRINT: usize = 64 << 10;

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
    /// Outside the range of their shard.
    dropped: u64,
}

/// A shard that is being read.
struct Reading {
    unpacker: Unpacker,
    /// When it was read to its tip, if that was at the last read.
    at_tip: Option<Instant>,
    /// The record at which it was to begin, until it is seen that it does.
    expected: Option<SequenceNumber>,
    /// Whether it was at its tip once when the time of the end had come. Records may have arrived since that read.
    was_at_tip: bool,
}

pub(super) async fn tail(arguments: &Arguments) -> Result<(), Failure> {
    let start = arguments.start()?;
    if arguments.output() == Output::Data && std::io::stdout().is_terminal() {
        let message = "payloads are printed as they are, and a terminal would obey what is in them";
        return Err(Failure::usage(message).help("let them go to a file or a pipe, or leave --output data away"));
    }
    let access = arguments.access.open(&arguments.stream).await?;
    let Some(opened) = access.unless_stopped(Tail::open(arguments, &access, &start)).await else { return Ok(()) };
    let (mut tail, events) = opened?;
    let shards = text::counted(tail.follower.reading() as u64, "shard");
    output::say(format_args!("{shards} of {}; Ctrl-C ends it.", arguments.stream));
    let ended = tokio::select! {
        ended = access.unless_stopped(tail.run(events)) => ended,
        // As any tail does: nobody reads what would come.
        () = output::reader_gone() => return Ok(()),
    };
    let shown = text::counted(tail.shown, "record");
    let dropped = match tail.dropped {
        0 => String::new(),
        dropped => format!(", {dropped} dropped as out of range"),
    };
    output::say(format_args!("{shown} shown, {} passed over{dropped}.", tail.passed_over));
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
        let info = access.kinesis.wait_until_created(&access.stream).await?;
        let listing = access.kinesis.list_shards(&access.stream).await?;
        let follower = Follower::new(&listing, start, &arguments.shards).map_err(|Unknown(unknown)| {
            let names = |ids: &mut dyn Iterator<Item = String>| ids.collect::<Vec<_>>().join(", ");
            let unknown = names(&mut unknown.iter().map(ToString::to_string));
            let known = names(&mut listing.iter().map(|shard| shard.id.to_string()).take(20));
            Failure::running(format!("stream {} has no shard {unknown}", access.stream))
                .code(code::command::NO_SHARD)
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
            dropped: 0,
        };
        tail.start_ready();
        Ok((tail, received))
    }

    async fn run(&mut self, mut events: mpsc::Receiver<Event>) -> Result<(), Failure> {
        while !self.follower.is_over() && !self.is_idle() && self.left() > 0 {
            let event = tokio::select! {
                event = events.recv() => event,
                Some(Err(error)) = self.tasks.join_next() => {
                    return Err(Failure::running(format!("the reader of a shard broke down, please report it: {error}")).code(code::process::BROKE_DOWN));
                }
            };
            let Some(Event { shard, news }) = event else { break };
            if !self.shards.contains_key(&shard) {
                // It is behind the end that is wanted.
                continue;
            }
            match news {
                News::Page(page, _room) => self.take(&shard, page),
                News::Ended { listing, children } => {
                    let followers = self.follower.ended(&shard, &listing, &children);
                    self.finish(&shard, &followers);
                }
                News::Gone(error, listing) => {
                    output::say(text::line(&error.to_string()));
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
            let range = self.follower.range(&shard);
            self.shards.insert(shard.clone(), Reading::new(&begin, range, self.arguments.out_of_range.into()));
            self.tasks.spawn(self.readers.clone().read(shard, begin));
        }
    }

    fn finish(&mut self, shard: &ShardId, followers: &[ShardId]) {
        self.busy = Instant::now();
        self.shards.remove(shard);
        if !self.history.contains(shard) || !self.arguments.shards.is_empty() {
            let followers = followers.iter().map(ShardId::as_str).collect::<Vec<_>>().join(" and ");
            match followers.as_str() {
                "" => output::say(format_args!("{shard} has ended.")),
                followers => output::say(format_args!("{shard} has ended, and is followed by {followers}.")),
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
                output::say(format_args!("record {expected} is not kept any more; {shard} begins with {first}"));
            }
        }
        let is_past = self.is_past(&page.page, is_at_tip, &mut reading);
        reading.unpacker.push(page.page);
        self.show(shard, &mut reading.unpacker);
        self.shards.insert(shard.clone(), reading);
        if is_past {
            self.shards.remove(shard);
            // What follows it is later still.
            self.follower.ended(shard, &[], &[]);
            self.start_ready();
        }
    }

    /// Whether everything of a shard that has arrived before the end that is wanted has been read, with this page.
    fn is_past(&self, page: &Page, is_at_tip: bool, reading: &mut Reading) -> bool {
        let Some(to) = self.arguments.to else { return false };
        // Times of arrival are approximate: the first later one need not be the end.
        if !page.is_empty() {
            return (0..page.len()).all(|index| page.approximate_arrival(index) >= to);
        }
        let is_over = is_at_tip && unix_ms::now() >= to;
        is_over && std::mem::replace(&mut reading.was_at_tip, true)
    }

    /// Shows what is wanted of the pages that have come.
    fn show(&mut self, shard: &ShardId, unpacker: &mut Unpacker) {
        let shown = Shown { stream: &self.arguments.stream, shard, separator: self.arguments.separator() };
        let is_dropping = OutOfRange::from(self.arguments.out_of_range) == OutOfRange::Drop;
        let mut out = Vec::new();
        while !unpacker.is_empty() && self.left() > 0 {
            let mut batch = BatchBuilder::default();
            let out_of_range = unpacker.fill(&mut batch, &BATCH).out_of_range;
            let batch = batch.build();
            if is_dropping {
                self.dropped += out_of_range;
            }
            for record in batch.iter() {
                let is_before_end = self.arguments.to.is_none_or(|to| record.approximate_arrival < to);
                if !is_before_end || !self.filter.takes(&record) {
                    self.passed_over += u64::from(is_before_end);
                    continue;
                }
                self.shown += 1;
                shown.push(&mut out, self.arguments.output(), &record, out_of_range > 0 && !is_dropping);
            }
            if out.len() >= PRINT {
                output::bytes(&out);
                out.clear();
            }
        }
        if !out.is_empty() {
            output::bytes(&out);
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
}

// === impl Reading ===

impl Reading {
    fn new(begin: &Begin, range: HashKeyRange, out_of_range: OutOfRange) -> Self {
        let expected = match &begin.from {
            shardmill_stream::ReadFrom::At(number) => Some(number.clone()),
            _elsewhere => None,
        };
        let unpacker = Unpacker::new(begin.after.clone(), range, out_of_range);
        Self { unpacker, at_tip: None, expected, was_at_tip: false }
    }
}
