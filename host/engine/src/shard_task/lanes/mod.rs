//! A shard whose records are spread: over lanes, where records of a key keep their order, and over batchers. Each lane of each
//! batcher is a [`track`]; the [`window`] knows what is dealt with.

mod ledger;
mod track;
mod window;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use shardmill_record::{Batch, BatchBuilder, BatchLimits};
use tokio::time::{Instant, sleep_until};

use self::ledger::LaneLedger;
use self::track::{Now, Ready, Track};
use self::window::{Id, Window};
use super::ShardTask;
use crate::Reservation;
use crate::batch_work::Leave;
use crate::feed::PAGE_BYTES;
use crate::flow::{Route, Router};
use crate::live::Activity;

/// How many batches of each track may be read ahead, the one on its way included.
const AHEAD: usize = 2;
/// How many records may be handed out and not dealt with, whatever batches are like.
const MOST: usize = 100_000;

/// What of a shard is on its way.
struct Lanes {
    router: Router,
    tracks: Vec<Track>,
    window: Arc<Mutex<Window>>,
    /// How many records it may hold.
    most: usize,
    running: FuturesUnordered<BoxFuture<'static, (usize, Result<(), Leave>)>>,
    /// What pages take, until everything before an id is dealt with.
    held: VecDeque<(Id, Vec<Reservation>)>,
}

// === impl ShardTask ===

impl ShardTask {
    /// The loop of a shard whose records are spread.
    pub(super) async fn work_in_lanes(&mut self) -> Leave {
        let mut lanes = Lanes::new(self);
        let leave = match self.drive(&mut lanes).await {
            Err(leave) => leave,
            Ok(never) => match never {},
        };
        if matches!(leave, Leave::Drain | Leave::Pause | Leave::Stop(..)) {
            // What is on its way is not to be repeated for that. Whatever does not wait for it ends it.
            return lanes.finish(leave).await;
        }
        leave
    }

    async fn drive(&mut self, lanes: &mut Lanes) -> Result<std::convert::Infallible, Leave> {
        loop {
            if self.scene.lease.is_draining() && !(self.nothing_left() && lanes.is_empty()) {
                return Err(Leave::Drain);
            }
            if let Some(leave) = self.scene.status.order() {
                return Err(leave);
            }
            if lanes.running.is_empty() && lanes.is_empty() && !self.unpacker.is_empty() {
                self.wait_for_allowance().await?;
            }
            self.hand_out(lanes);
            let now = self.now();
            let is_end = self.nothing_left();
            if is_end || self.is_short_of_memory(lanes) {
                lanes.tracks.iter_mut().for_each(Track::close);
            }
            lanes.start(self, now);
            lanes.let_go();
            if is_end && lanes.is_empty() {
                return Err(Leave::Closed);
            }
            if lanes.running.is_empty() {
                self.scene.status.doing(Activity::Waiting);
            }
            let wants_more = self.closed.is_none() && self.unpacker.is_empty() && lanes.has_room();
            let wakes = lanes.wakes_at();
            let (fence, scene) = (self.scene.lease.fence(), &self.scene);
            let fed = tokio::select! {
                biased;
                _ = fence.lost() => return Err(Leave::Lost),
                () = scene.abort.cancelled() => return Err(Leave::Abort),
                () = scene.lease.draining(), if !is_end => return Err(Leave::Drain),
                leave = scene.status.ordered() => return Err(leave),
                Some((track, result)) = lanes.running.next() => {
                    lanes.tracks[track].is_busy = false;
                    scene.share.keep(lanes.window().open());
                    result?;
                    continue;
                }
                fed = self.feed.next(), if wants_more => fed,
                () = sleep_until(wakes.unwrap_or_else(Instant::now)), if wakes.is_some() => continue,
            };
            let was_empty = self.take(fed)?;
            if was_empty && lanes.is_empty() && self.closed.is_none() {
                self.hand_out(lanes);
                self.scene.status.had_nothing(self.scene.millis_behind());
                self.work.tell(crate::Hook::Idle, self.work.options.hook_timeout).await?;
            }
        }
    }

    /// Moves what has been read into the tracks, as far as there is room.
    fn hand_out(&mut self, lanes: &mut Lanes) {
        loop {
            let open = lanes.window().open();
            let room = lanes.room();
            if room == 0 {
                return;
            }
            let limits = self.work.options.batch.limits;
            let wanted = BatchLimits { records: open + room.min(limits.records), ..limits };
            let records = self.scene.share.limits(&wanted).records.saturating_sub(open);
            let mut builder = BatchBuilder::default();
            if records > 0 {
                self.fill(&mut builder, &BatchLimits { records, ..limits });
            }
            self.scene.share.keep(open + builder.len());
            let batch = builder.build();
            if batch.is_empty() && batch.through().is_none() {
                break;
            }
            self.spread(lanes, &batch);
            if batch.is_empty() {
                break;
            }
        }
        if self.unpacker.is_empty() && !self.reservations.is_empty() {
            let id = lanes.window().next();
            lanes.held.push_back((id, std::mem::take(&mut self.reservations)));
        }
    }

    /// Puts records into their tracks.
    fn spread(&self, lanes: &mut Lanes, batch: &Batch) {
        self.scene.begins(batch, !self.unpacker.is_empty(), false);
        let now = self.now();
        let first = lanes.window().add(batch);
        let (mut nowhere, mut invalid) = (Vec::new(), 0);
        for (index, record) in batch.iter().enumerate() {
            let id = first + index as Id;
            match lanes.router.route(&record) {
                Route::Nowhere { is_invalid } => {
                    nowhere.push(id);
                    invalid += usize::from(is_invalid);
                }
                Route::Failed(track, reason) => lanes.tracks[track].push(record, id, Some(reason), now),
                Route::Track(track) => lanes.tracks[track].push(record, id, None, now),
            }
        }
        self.work.metrics.filtered(&self.work.labels, nowhere.len(), invalid);
        self.scene.share.spend(nowhere.len());
        lanes.window().settle(nowhere);
        lanes.advance(&self.scene);
    }

    fn now(&self) -> Now {
        Now { instant: Instant::now(), wall: (self.work.wall_clock)() }
    }

    /// Batches that wait must not take all of the memory, or nobody could read what they wait for.
    fn is_short_of_memory(&self, lanes: &Lanes) -> bool {
        lanes.tracks.iter().any(Track::is_filling)
            && lanes.held.iter().flat_map(|(_, held)| held).any(|reservation| !reservation.leaves(PAGE_BYTES))
    }
}

// === impl Lanes ===

impl Lanes {
    fn new(task: &ShardTask) -> Self {
        let options = &task.work.options;
        let flow = Arc::clone(&options.flow);
        let batches = flow.batchers.iter().map(|batcher| batcher.batch).chain([options.batch]);
        let now = task.now();
        let tracks: Vec<Track> =
            batches.flat_map(|batch| (0..flow.lanes).map(move |lane| Track::new(batch, lane == 0, now))).collect();
        let largest = flow.batchers.iter().map(|batcher| batcher.batch.limits.records).max().unwrap_or(0);
        let largest = largest.max(options.batch.limits.records);
        Self {
            most: tracks.len().saturating_mul(largest).saturating_mul(AHEAD).min(MOST.max(largest)),
            router: Router::new(flow, Arc::clone(&options.stream), task.scene.shard.as_str()),
            tracks,
            window: Arc::default(),
            running: FuturesUnordered::new(),
            held: VecDeque::new(),
        }
    }

    fn window(&self) -> MutexGuard<'_, Window> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many records more may be handed out.
    fn room(&self) -> usize {
        self.most.saturating_sub(self.window().len())
    }

    fn has_room(&self) -> bool {
        self.room() > 0
    }

    fn is_empty(&self) -> bool {
        self.tracks.iter().all(Track::is_empty)
    }

    /// Hands over what may be.
    fn start(&mut self, task: &ShardTask, now: Now) {
        for (index, track) in self.tracks.iter_mut().enumerate() {
            let Some(ready) = track.take(now) else { continue };
            track.is_busy = true;
            let Ready { batch, ids, refused } = ready;
            let ledger = LaneLedger::new(Arc::clone(&task.scene), Arc::clone(&self.window), ids);
            let work = Arc::clone(&task.work);
            self.running.push(Box::pin(async move {
                let result = match batch.is_empty() {
                    true => work.process_nothing().await,
                    false => work.process(batch, &refused, &ledger).await,
                };
                (index, result)
            }));
        }
    }

    /// Lets the checkpoint pass what is dealt with.
    fn advance(&self, scene: &super::ShardScene) {
        ledger::advance(&mut self.window(), scene);
    }

    /// Gives back what the pages took of which everything is dealt with.
    fn let_go(&mut self) {
        let front = self.window().front();
        while self.held.front().is_some_and(|(id, _)| *id <= front) {
            self.held.pop_front();
        }
    }

    fn wakes_at(&self) -> Option<Instant> {
        self.tracks.iter().filter_map(Track::wakes_at).min()
    }

    /// Waits for what is on its way. Why the shard is left then.
    async fn finish(&mut self, mut leave: Leave) -> Leave {
        while let Some((_, result)) = self.running.next().await {
            if let Err(other) = result {
                leave = leave.or_worse(other);
            }
            if matches!(leave, Leave::Lost | Leave::Abort) {
                break;
            }
        }
        leave
    }
}
