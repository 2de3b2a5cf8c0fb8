//! Letters of a stream, from the oldest that it keeps to its tip, shard by shard as they were stored.

use std::collections::VecDeque;
use std::sync::Arc;

use shardmill_engine::DeadLetter;
use shardmill_record::{BatchBuilder, BatchLimits, HashKeyRange, OutOfRange, ShardId, Unpacker};
use shardmill_stream::polling::{Options, Source};
use shardmill_stream::{Demand, Error, Kinesis, Metrics, PollingReader, ReadFrom, Reader};

use crate::dead_letters::letter::NotALetter;
use crate::dead_letters::parts::{Joiner, Taken};

/// What is asked for at a time.
const DEMAND: Demand = Demand { records: 10_000, bytes: 10 << 20 };
const BATCH: BatchLimits = BatchLimits { records: 1_000, bytes: 4 << 20 };
/// A letter may be stored a little before the time that it says, by the service's clock.
const CLOCKS_DIFFER_MS: u64 = 300_000;
/// What arrives so long after the start is left for the next time: the tip of a stream that others write to moves on.
const LATEST_MS: u64 = 60_000;

/// Brings the letters of a stream.
pub(super) struct StreamReader {
    kinesis: Kinesis,
    stream: Arc<str>,
    created_ms: u64,
    from: ReadFrom,
    until_ms: u64,
    shards: VecDeque<ShardId>,
    open: Option<Open>,
    joiner: Joiner,
    found: VecDeque<DeadLetter>,
    strange: Option<(u64, NotALetter)>,
}

/// The shard that is being read.
struct Open {
    reader: PollingReader,
    unpacker: Unpacker,
    /// Whether its last page has been read.
    last: bool,
}

// === impl StreamReader ===

impl StreamReader {
    /// `since`: letters that were given up before need not come, in milliseconds since 1970. `now`: likewise.
    pub(super) async fn open(kinesis: Kinesis, stream: &str, since: Option<u64>, now: u64) -> Result<Self, Error> {
        let info = kinesis.describe(stream).await?;
        let shards = kinesis.list_shards(stream).await?;
        let from = since.map(|since| since.saturating_sub(CLOCKS_DIFFER_MS)).filter(|from| *from > 0);
        Ok(Self {
            kinesis,
            stream: stream.into(),
            created_ms: info.creation_time_ms,
            // A time to come is refused.
            from: from.map_or(ReadFrom::TrimHorizon, |from| ReadFrom::AtTimestamp(from.min(now))),
            until_ms: now.saturating_add(LATEST_MS),
            shards: shards.into_iter().map(|shard| shard.id).collect(),
            open: None,
            joiner: Joiner::default(),
            found: VecDeque::new(),
            strange: None,
        })
    }

    /// The next letter; `None` at the tip.
    pub(super) async fn next(&mut self) -> Result<Option<DeadLetter>, Error> {
        loop {
            if let Some(letter) = self.found.pop_front() {
                return Ok(Some(letter));
            }
            let open = match &mut self.open {
                Some(open) => open,
                None => match self.shards.pop_front() {
                    Some(shard) => {
                        self.open.insert(open(&self.kinesis, &self.stream, shard, self.created_ms, &self.from))
                    }
                    None => {
                        self.tell();
                        return Ok(None);
                    }
                },
            };
            if open.unpacker.is_empty() {
                if open.last {
                    self.open = None;
                    continue;
                }
                let read = open.reader.next(DEMAND).await?;
                let arrived = read.page.len().checked_sub(1).map_or(0, |last| read.page.approximate_arrival(last));
                let is_tip = match read.millis_behind {
                    Some(behind) => behind == 0,
                    None => read.page.is_empty(),
                };
                open.last = read.end || is_tip || arrived > self.until_ms;
                open.unpacker.push(read.page);
            }
            let mut batch = BatchBuilder::default();
            open.unpacker.fill(&mut batch, &BATCH);
            for record in batch.build().iter() {
                match self.joiner.take(record.data) {
                    Taken::Letter(letter) => self.found.push_back(*letter),
                    // Outputs of a processor, where letters go among them.
                    Taken::Part | Taken::Not(NotALetter::Other) => {}
                    Taken::Not(reason) => self.strange.get_or_insert((0, reason)).0 += 1,
                }
            }
        }
    }

    /// What was passed over.
    fn tell(&mut self) {
        let stream = &self.stream;
        if let Some((records, reason)) = self.strange.take() {
            tracing::warn!(%stream, records, %reason, "records that cannot be read as dead letters are passed over");
        }
        let letters = std::mem::take(&mut self.joiner).incomplete();
        if letters > 0 {
            tracing::warn!(
                %stream, letters,
                "large dead letters are passed over because parts of them are missing: they were not stored whole, or are \
                 older than what the stream keeps"
            );
        }
    }
}

fn open(kinesis: &Kinesis, stream: &Arc<str>, shard: ShardId, creation_time_ms: u64, from: &ReadFrom) -> Open {
    let source = Source { stream: Arc::clone(stream), shard, creation_time_ms };
    let (options, metrics) = (Options::default(), Metrics::default());
    Open {
        reader: PollingReader::new(kinesis.clone(), source, from.clone(), &options, &metrics, rand::random()),
        unpacker: Unpacker::new(None, HashKeyRange::ALL, OutOfRange::Deliver),
        last: false,
    }
}
