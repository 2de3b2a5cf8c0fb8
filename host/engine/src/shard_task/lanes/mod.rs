//! A shard whose records are spread: over lanes, where records of a key keep their order, and over batchers. Each lane of each
//! batcher is a [`track`]; the [`window`] knows what is dealt with.

mod ledger;
mod silence;
mod track;
mod window;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use shardmill_cause::code;
use shardmill_record::{Batch, BatchBuilder, BatchLimits};
use tokio::time::{Instant, sleep_until};

use self::ledger::LaneLedger;
use self::silence::Silence;
use self::track::{Now, Ready, Track};
use self::window::{Id, Window};
use super::ShardTask;
use super::batching::LOOK_EVERY;
use crate::budget::Reservation;
use crate::feed::PAGE_BYTES;
use crate::flow::{Route, Router};
use crate::leave::Leave;
use crate::live::Activity;
use crate::status::ShardState;
use crate::stop::StopReason;
use crate::{Delivery, Scope};

/// How many batches of each track may be read ahead, the one on its way included.
const AHEAD: usize = 2;
/// How many records may be handed out and not dealt with, whatever batches are like.
const MOST: usize = 100_000;

/// What of a shard is on its way.
struct Lanes {
    router: Router,
    /// The lanes of one batcher after those of another.
    tracks: Vec<Track>,
    /// One for each batcher.
    silences: Vec<Silence>,
    /// How many lanes a batcher has.
    lanes: usize,
    window: Arc<Mutex<Window>>,
    /// How many records it may hold.
    most: usize,
    /// How many bytes of texts and payloads the tracks may hold: one record may go over it.
    most_bytes: usize,
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
        match &leave {
            Leave::Stop(scope, reason) if !lanes.running.is_empty() => {
                self.tell_stop(*scope, reason);
                // What fails is not tried again for that long; the others come to their end.
                self.scene.status.live().control.set_leaving(true);
                let leave = lanes.finish(leave).await;
                self.scene.status.live().control.set_leaving(false);
                leave
            }
            // What is on its way is not to be repeated for that. Whatever does not wait for it ends it.
            Leave::Drain | Leave::Pause => lanes.finish(leave).await,
            _at_once => leave,
        }
    }

    /// Says that a batch stops the shard, or more, while others are on their way, which may take any time.
    fn tell_stop(&self, scope: Scope, reason: &str) {
        tracing::error!(
            processor = %self.work.options.processor, stream = %self.work.options.stream, shard = %self.scene.shard, reason,
            code = %code::engine::SHARD_STOPPED,
            "a batch stops the shard; those beside it come to their end first, and are not tried again"
        );
        self.scene.status.set_state(ShardState::Stopped { reason: reason.to_owned() });
        if scope != Scope::Shard {
            let (stream, shard) = (Arc::clone(&self.work.options.stream), self.scene.shard.clone());
            let (reason, process) = (reason.to_owned(), scope == Scope::Process);
            self.stop_request.ask(StopReason { stream, shard, reason, process });
        }
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
            let now = self.turn(lanes);
            let is_end = self.nothing_left();
            if is_end && lanes.is_empty() {
                return Err(Leave::Closed);
            }
            if lanes.running.is_empty() {
                self.scene.status.doing(Activity::Waiting);
            }
            let wants_more = self.closed.is_none() && self.unpacker.is_empty() && lanes.has_room();
            let looks = lanes.tracks.iter().any(Track::is_filling).then(|| now.instant + LOOK_EVERY);
            let wakes = lanes.wakes_at().into_iter().chain(looks).min();
            let (fence, scene) = (self.scene.lease.fence(), &self.scene);
            let fed = tokio::select! {
                biased;
                _ = fence.lost() => return Err(Leave::Lost),
                () = scene.abort.cancelled() => return Err(Leave::Abort),
                () = scene.lease.draining(), if !is_end => return Err(Leave::Drain),
                leave = scene.status.ordered() => return Err(leave),
                Some((track, result)) = lanes.running.next() => {
                    lanes.tracks[track].done();
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

    /// Hands out what there is, as far as there is room, and hands over what is due at the time that is returned.
    fn turn(&mut self, lanes: &mut Lanes) -> Now {
        self.hand_out(lanes);
        let now = self.now();
        // For as long as it waits nothing comes to what waits, or nobody could read it.
        let is_held_up = !self.unpacker.is_empty() || !lanes.has_room();
        if is_held_up || self.nothing_left() || self.is_short_of_memory(lanes) {
            lanes.tracks.iter_mut().for_each(Track::hurry);
        }
        lanes.start(self, now);
        lanes.let_go();
        now
    }

    /// Moves what has been read into the tracks.
    fn hand_out(&mut self, lanes: &mut Lanes) {
        loop {
            let open = lanes.window().open();
            let (room, bytes) = (lanes.room(), lanes.room_in_bytes());
            if room == 0 || bytes == 0 {
                return;
            }
            let limits = self.work.options.batch.limits;
            let limits = BatchLimits { bytes: limits.bytes.min(bytes), ..limits };
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
        lanes.window().leave_out(nowhere);
        lanes.advance(&self.scene);
    }

    /// Works until nothing is on its way: the most bytes that were held, and how many records are done.
    #[cfg(test)]
    pub(super) async fn work_through_lanes(&mut self) -> (usize, usize) {
        let mut lanes = Lanes::new(self);
        let mut most = 0;
        loop {
            self.turn(&mut lanes);
            most = most.max(lanes.tracks.iter().map(Track::bytes).sum());
            match lanes.running.next().await {
                Some((track, _ended)) => lanes.tracks[track].done(),
                None if lanes.is_empty() => break,
                // What is left waits for more, and there is none.
                None => lanes.tracks.iter_mut().for_each(Track::hurry),
            }
        }
        let window = lanes.window();
        (most, usize::try_from(window.next()).unwrap_or(0) - window.open())
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
        let batches: Vec<_> = flow.batchers.iter().map(|batcher| batcher.batch).chain([options.batch]).collect();
        let lanes = flow.lanes as usize;
        // Where records end in any order, no batch says how far everything is.
        let says_through = options.delivery == Delivery::AtMostOnce && batches.len() * lanes == 1;
        let track = |batch| std::iter::repeat_with(move || Track::new(batch, says_through)).take(lanes);
        let tracks: Vec<Track> = batches.iter().copied().flat_map(track).collect();
        let largest = batches.iter().map(|batch| batch.limits.records).max().unwrap_or(0);
        let now = Instant::now();
        Self {
            most: tracks.len().saturating_mul(largest).saturating_mul(AHEAD).min(MOST.max(largest)),
            most_bytes: usize::try_from(options.bytes_in_batches().min(task.feed.most_in_batches()))
                .unwrap_or(usize::MAX),
            router: Router::new(flow, Arc::clone(&options.stream), task.scene.shard.as_str()),
            tracks,
            silences: batches.iter().map(|batch| Silence::new(batch, now)).collect(),
            lanes,
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

    /// How many bytes more may be handed out, as far as records fit into that.
    fn room_in_bytes(&self) -> usize {
        self.most_bytes.saturating_sub(self.tracks.iter().map(Track::bytes).sum())
    }

    fn has_room(&self) -> bool {
        self.room() > 0 && self.room_in_bytes() > 0
    }

    fn is_empty(&self) -> bool {
        self.tracks.iter().all(Track::is_empty)
    }

    /// Hands over what may be.
    fn start(&mut self, task: &ShardTask, now: Now) {
        for (index, track) in self.tracks.iter_mut().enumerate() {
            let Some(Ready { batch, ids, refused }) = track.take(now) else { continue };
            self.silences[index / self.lanes].broken(now.instant);
            let ledger = LaneLedger::new(Arc::clone(&task.scene), Arc::clone(&self.window), ids);
            let work = Arc::clone(&task.work);
            self.running.push(Box::pin(async move { (index, work.process(batch, &refused, &ledger).await) }));
        }
        for batcher in 0..self.silences.len() {
            if self.silence_at(batcher).is_some_and(|at| at <= now.instant) {
                self.silences[batcher].broken(now.instant);
                let first = batcher * self.lanes;
                self.tracks[first].take_nothing();
                let work = Arc::clone(&task.work);
                self.running.push(Box::pin(async move { (first, work.process_nothing().await) }));
            }
        }
    }

    /// When the guest is told that nothing has come for a batcher, unless something does: in the first of its lanes, for all.
    fn silence_at(&self, batcher: usize) -> Option<Instant> {
        let lanes = &self.tracks[batcher * self.lanes..][..self.lanes];
        let at = self.silences[batcher].told_at()?;
        (lanes.iter().all(Track::has_nothing) && !lanes[0].is_busy()).then_some(at)
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
        let silences = (0..self.silences.len()).filter_map(|batcher| self.silence_at(batcher));
        self.tracks.iter().filter_map(Track::wakes_at).chain(silences).min()
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
