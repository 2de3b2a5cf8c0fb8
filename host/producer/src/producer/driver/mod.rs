mod spool;

use std::sync::Arc;

use aws_sdk_kinesis::Client;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::Left;
use super::drain::Drain;
use super::flushes::Flushes;
use super::losses::Losses;
use super::pending::Ticket;
use super::shared::{Command, Shared};
use super::spooling::{Spooled, Spooling};
use crate::backoff::Backoff;
use crate::call::{self, Caller, Outcome};
use crate::limits::size;
use crate::mapping::{Found, Listed, Mapping, Shards};
use crate::plan::{Item, Next, Plan, Request, RequestId, Resolved, Rules};
use crate::trouble::{Trouble, Troubles};
use crate::{Acknowledged, Failed, MessageId, Options, Permit, Reason, Receipt};

/// The task behind a [`Producer`](super::Producer): owns what is on its way, and does all that takes time.
///
/// When it is dropped, with its runtime, everything that is accepted is resolved as stopped.
#[derive(Debug)]
pub(super) struct Driver {
    shared: Arc<Shared>,
    plan: Plan<Ticket>,
    caller: Caller,
    backoff: Backoff,
    mapping: Mapping,
    requests: JoinSet<(RequestId, Vec<Outcome>)>,
    inbox: Vec<Item<Ticket>>,
    flushes: Flushes,
    losses: Losses,
    troubles: Arc<Troubles>,
    spooling: Option<Spooling>,
    drain: Option<Drain>,
    closing: Option<Closing>,
}

/// Somebody wants this to end.
#[derive(Debug, Default)]
struct Closing {
    deadline: Option<Instant>,
    /// Whether the deadline has passed, and everything is given up.
    is_over: bool,
    left: Left,
    told: Vec<oneshot::Sender<()>>,
}

/// Something that happened.
enum Event {
    /// There is work, or it is time.
    Woken,
    Answered(RequestId, Vec<Outcome>),
    Listed(Listed),
    Spooled(Spooled),
}

// === impl Driver ===

impl Driver {
    pub(super) fn new(client: &Client, shared: Arc<Shared>, options: &Options, seed: u64) -> Self {
        let stream = Arc::clone(&shared.stream);
        let metrics = &shared.metrics;
        let caller = Caller::new(client, Arc::clone(&stream), options.request_timeout, Arc::clone(metrics));
        let shards = Shards::new(caller.client().clone(), Arc::clone(&stream), options, Arc::clone(metrics), seed);
        Self {
            plan: Plan::new(Rules::new(options)),
            backoff: Backoff::new(options.backoff_min, options.backoff_max, seed),
            mapping: Mapping::new(&shards),
            caller,
            requests: JoinSet::new(),
            inbox: Vec::new(),
            flushes: Flushes::default(),
            troubles: Arc::new(Troubles::new(stream.to_string())),
            losses: Losses::new(stream),
            spooling: None,
            drain: None,
            closing: None,
            shared,
        }
    }

    /// Where the stream's shards are listed.
    pub(super) fn shards(&self) -> &Arc<Shards> {
        self.mapping.shards()
    }

    /// What the log is told of.
    pub(in crate::producer) fn troubles(&self) -> &Arc<Troubles> {
        &self.troubles
    }

    /// With a spool, and the task that empties it.
    pub(super) fn spools(mut self, spooling: Spooling, drain: Drain) -> Self {
        self.spooling = Some(spooling);
        self.drain = Some(drain);
        self
    }

    /// Runs until the producer is closed, or nobody has it any more, and everything is resolved.
    pub(super) async fn run(mut self) {
        let troubles = Arc::clone(&self.troubles);
        let mut trouble = troubles.of_sender();
        loop {
            let now = Instant::now();
            let is_closed = self.take_work(now);
            let wakes = [
                self.turn_to_spool(now),
                self.send(now),
                self.mapping.start(self.plan.map_wanted(), now),
                self.deadline(),
                self.spool_deadline(),
            ];
            self.resolve(now);
            if self.spool(now) {
                // What became of the last ones of those on their way.
                continue;
            }
            if is_closed && self.shared.pending().0 == 0 {
                return self.end_drain().await;
            }
            let wakes = wakes.into_iter().flatten().min();
            let wakes = if self.shared.rest(wakes) { wakes } else { Some(now) };
            match self.event(wakes).await {
                Event::Woken => {}
                Event::Answered(request, outcomes) => self.answered(request, outcomes, &mut trouble),
                Event::Listed(listed) => self.listed(listed, &mut trouble),
                Event::Spooled(spooled) => self.spooled(spooled, Instant::now()),
            }
        }
    }

    async fn event(&mut self, wakes: Option<Instant>) -> Event {
        let time = async {
            match wakes {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let spooled = async {
            match &mut self.spooling {
                Some(spooling) => spooling.stored().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.shared.work.notified() => Event::Woken,
            () = time => Event::Woken,
            Some(answer) = self.requests.join_next() => match answer {
                Ok((request, outcomes)) => Event::Answered(request, outcomes),
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(_aborted) => Event::Woken,
                },
            },
            listed = self.mapping.listed() => Event::Listed(listed),
            spooled = spooled => Event::Spooled(spooled),
        }
    }

    /// Whether nothing more will be put.
    fn take_work(&mut self, now: Instant) -> bool {
        // First, so that what comes in after the spool's last record does not follow it there.
        self.spooling.as_mut().map(Spooling::turn_back);
        let work = self.shared.take_work(&mut self.inbox);
        let (records, bytes) = (self.inbox.len(), self.inbox.iter().map(|item| size(&item.record)).sum());
        self.shared.metrics.received(records);
        self.shared.metrics.pends(records, bytes);
        for item in self.inbox.drain(..) {
            match &mut self.spooling {
                Some(spooling) if spooling.spools() && self.plan.takes(&item.record) => spooling.take(item),
                _ => self.plan.push(item),
            }
        }
        for command in work.commands {
            match command {
                Command::Flush { below, done } => {
                    self.plan.flush(below);
                    if let Some(done) = done {
                        // What was accepted since cannot be resolved yet.
                        let later = usize::try_from(work.next_id - below).unwrap_or(usize::MAX);
                        self.flushes.add(below, work.pending.saturating_sub(later), done);
                    }
                }
                Command::Close { deadline, done } => {
                    self.drain.as_ref().map(Drain::stop);
                    let closing = self.closing.get_or_insert_default();
                    closing.deadline = closing.deadline.into_iter().chain(deadline).min();
                    closing.told.push(done);
                }
            }
        }
        if work.is_closed {
            self.plan.flush(u64::MAX);
        }
        if let Some(closing) = &mut self.closing
            && !closing.is_over
            && closing.deadline.is_some_and(|deadline| deadline <= now)
        {
            closing.is_over = true;
            self.plan.give_up(&Reason::Stopped);
            self.requests.abort_all();
        }
        if self.spool_deadline().is_some_and(|deadline| deadline <= now) {
            self.leave_spool(now);
        }
        work.is_closed
    }

    /// If it is not over yet.
    fn deadline(&self) -> Option<Instant> {
        self.closing.as_ref().filter(|closing| !closing.is_over)?.deadline
    }

    /// Starts what is to be sent now. When something is to be sent next.
    fn send(&mut self, now: Instant) -> Option<Instant> {
        if self.spooling.as_ref().is_some_and(|spooling| !spooling.sends()) {
            return None;
        }
        loop {
            match self.plan.next(now) {
                Next::Send(request) => self.start(request),
                Next::Wait(until) => return until,
            }
        }
    }

    fn start(&mut self, request: Request) {
        let Request { id, kinesis_records, buffered, .. } = request;
        self.shared.metrics.request(kinesis_records.iter().map(|record| (record.count, record.bytes())));
        buffered.into_iter().for_each(|time| self.shared.metrics.buffered(time));
        let caller = self.caller.clone();
        self.requests.spawn(async move {
            let entries = kinesis_records.into_iter();
            let entries =
                entries.map(|record| call::entry(record.partition_key, record.explicit_hash_key, record.data));
            let outcomes = caller.put(entries.collect(), &Permit::always()).await;
            (id, outcomes.expect("it is always permitted"))
        });
    }

    fn answered(&mut self, request: RequestId, outcomes: Vec<Outcome>, trouble: &mut Trouble<'_>) {
        let now = Instant::now();
        let is_stored = outcomes.iter().any(Result::is_ok);
        if let Some(spooling) = &mut self.spooling {
            let is_unreachable =
                outcomes.iter().flat_map(|outcome| outcome.as_ref().err()).any(|failure| !failure.is_throttle());
            spooling.tried(is_stored, is_unreachable, now);
        }
        let failure = self.plan.settle(request, outcomes, now, |failures| self.backoff.delay(failures));
        match (self.plan.failing_since(), failure) {
            (Some(since), Some(failure)) => trouble.lasts(now.saturating_duration_since(since), &failure),
            (None, _) if is_stored => trouble.ends(),
            _ => {}
        }
        if is_stored {
            self.losses.stored(now);
        }
    }

    fn listed(&mut self, Listed { began, result, failing_for }: Listed, trouble: &mut Trouble<'_>) {
        let now = Instant::now();
        match result {
            Ok(Found { map, record_max_bytes }) => {
                self.plan.set_map(map, record_max_bytes, began, now);
                if self.plan.failing_since().is_none() {
                    trouble.ends();
                }
            }
            Err(failure) => {
                if let Some(spooling) = &mut self.spooling {
                    spooling.tried(false, !self.plan.has_map() && !failure.is_throttle(), now);
                }
                if failure.advice().is_some() {
                    self.plan.map_refused(&Reason::refused(&failure), now);
                } else if !self.plan.has_map() {
                    self.plan.map_failed(&failure);
                    trouble.lasts(failing_for, &failure);
                }
            }
        }
    }

    /// Tells what has become of records.
    fn resolve(&mut self, now: Instant) {
        let metrics = Arc::clone(&self.shared.metrics);
        metrics.settled(&self.plan.take_counts());
        let mut resolved = self.plan.take_resolved();
        if let Some(spooling) = &mut self.spooling {
            resolved = spooling.hold(resolved);
        }
        self.release(resolved.iter().map(|resolved| &resolved.item));
        let mut given_up = Vec::new();
        for Resolved { item, result } in resolved {
            metrics.retried(item.attempts.saturating_sub(1));
            self.flushes.resolved(item.id);
            match result {
                Ok(place) => {
                    let Some(ticket) = item.ticket else { continue };
                    let receipt = Receipt {
                        message_id: MessageId(item.id),
                        stream: Arc::clone(&self.shared.stream),
                        shard: place.stored.shard.clone(),
                        sequence_number: place.stored.sequence_number.clone(),
                        sub_sequence_number: place.sub_sequence_number,
                        attempts: item.attempts,
                        latency: now.saturating_duration_since(item.accepted),
                        may_be_repeated: item.may_be_repeated,
                    };
                    // Who asked may have gone.
                    let _ = ticket.send(Ok(Acknowledged::Stored(receipt)));
                }
                Err(reason) => given_up.push((item, reason)),
            }
        }
        self.give_up(given_up, now);
        self.flushes.tell();
    }

    /// Makes room for as many records.
    fn release<'a>(&self, items: impl IntoIterator<Item = &'a Item<Ticket>>) {
        let (records, bytes) =
            items.into_iter().fold((0, 0), |(records, bytes), item| (records + 1, bytes + size(&item.record)));
        if records > 0 {
            self.shared.metrics.pends_no_more(records, bytes);
            self.shared.release(records, bytes);
        }
    }

    /// Where records end that are not stored, in the order in which they were given up: all of them come through here.
    fn give_up(&mut self, given_up: Vec<(Item<Ticket>, Reason)>, now: Instant) {
        for (item, reason) in given_up {
            self.shared.metrics.failed(reason.word());
            let may_be_stored = item.may_be_stored();
            let Item { id, record, attempts, ticket, .. } = item;
            let failed = Failed { message_id: MessageId(id), record, reason, attempts, may_be_stored };
            if let Some(closing) = &mut self.closing {
                closing.left.add(&failed);
            }
            let unclaimed = match ticket {
                None => Some(failed),
                Some(ticket) => ticket.send(Err(failed)).err().and_then(Result::err),
            };
            if let Some(failed) = unclaimed {
                self.shared.fails();
                self.losses.lost(&failed.reason, now);
                if let Some(closing) = &mut self.closing {
                    closing.left.unclaimed.push(failed);
                }
            }
        }
    }
}

impl Drop for Driver {
    /// At the end, or with the runtime.
    fn drop(&mut self) {
        let now = Instant::now();
        self.shared.end();
        self.take_work(now);
        self.plan.give_up(&Reason::Stopped);
        // There is no time left for the disk.
        self.leave_spool(now);
        self.resolve(now);
        let Closing { left, told, .. } = self.closing.take().unwrap_or_default();
        self.shared.leaves(left);
        for closer in told {
            // Who asked may have gone.
            let _ = closer.send(());
        }
    }
}
