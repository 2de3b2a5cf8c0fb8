use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::runtime::TICK;

/// A moment of real time: computing takes time also where tokio's is paused.
#[allow(clippy::disallowed_types)]
pub(super) type Moment = std::time::Instant;

/// How long a call computes before it gives way: up to the next tick of the clock after this. It is somewhat less than
/// from one tick to the next, because a turn begins just after the tick at which the one before it has ended.
const TURN: Duration = Duration::from_millis(9);
const _: () = assert!(TURN.as_millis() < TICK.as_millis());

/// In which queue a call waits for its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It has come, or has waited for something else than a turn.
    Come,
    /// It has computed for as long as one may at a time.
    GivenWay,
}

/// How a call spends its time: it waits for a thread, computes there, or waits for something else.
#[derive(Debug)]
pub(crate) struct Pace(Mutex<Times>);

/// What a call has computed so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Computed {
    /// In the turn that it has now.
    pub(crate) turn: Duration,
    /// In all of them.
    pub(crate) all: Duration,
}

/// How long a call may take. Waits for a thread do not count, unless that is said: it is not the call's doing how many
/// others want one.
#[derive(Debug)]
pub(crate) struct Allowance {
    time: Duration,
    started: Instant,
    pace: Arc<Pace>,
    counts_waits: bool,
}

#[derive(Debug)]
struct Times {
    doing: Doing,
    since: Moment,
    /// What turns that are over took, and waits for them.
    computed: Duration,
    waited: Duration,
    /// What it computed lately: a wait for something else takes as much away from this as it lasts.
    lately: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    Queued(Kind),
    Computing,
    /// Neither: it waits for something else.
    Away,
}

// === impl Pace ===

impl Pace {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Times::new(Moment::now()))))
    }

    /// It waits for a turn from now on; this says where.
    pub(super) fn queue(&self) -> Kind {
        self.times().queue(Moment::now())
    }

    /// A turn begins; this says where it waited for it, and for how long, if it did.
    pub(super) fn begin(&self) -> Option<(Kind, Duration)> {
        self.times().begin(Moment::now())
    }

    pub(super) fn end(&self) {
        self.times().end(Moment::now());
    }

    pub(crate) fn computed(&self) -> Computed {
        self.times().computed(Moment::now())
    }

    fn waited(&self) -> Duration {
        self.times().waited(Moment::now())
    }

    fn times(&self) -> MutexGuard<'_, Times> {
        // Each change is whole, whatever panics elsewhere.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Computed ===

impl Computed {
    /// Whether the turn has lasted long enough for others to have theirs. One that has just begun has not, however long
    /// ago the clock ticked: the call may have waited for something since.
    pub(crate) fn is_turn_over(&self) -> bool {
        self.turn >= TURN
    }
}

// === impl Allowance ===

impl Allowance {
    /// From now on, but for waits for threads.
    pub(crate) fn new(time: Duration) -> Self {
        Self { time, started: Instant::now(), pace: Pace::new(), counts_waits: false }
    }

    /// From now on, whatever is waited for.
    pub(crate) fn with_waits(time: Duration) -> Self {
        Self { counts_waits: true, ..Self::new(time) }
    }

    pub(crate) fn time(&self) -> Duration {
        self.time
    }

    pub(crate) fn pace(&self) -> &Arc<Pace> {
        &self.pace
    }

    /// When it is over, if the call does not wait for a thread from now on.
    pub(super) fn end(&self) -> Instant {
        const NEVER: Duration = Duration::from_secs(30 * 365 * 24 * 3600);
        let waited = if self.counts_waits { Duration::ZERO } else { self.pace.waited() };
        let end = self.started.checked_add(self.time).and_then(|end| end.checked_add(waited));
        end.unwrap_or_else(|| self.started + NEVER)
    }

    /// When to look again, if it is not over.
    pub(super) fn look_again(&self) -> Option<Instant> {
        let (now, end) = (Instant::now(), self.end());
        // Not at each moment for as long as the call waits for a thread.
        (end > now).then(|| end.max(now + TICK))
    }
}

// === impl Times ===

impl Times {
    fn new(now: Moment) -> Self {
        let none = Duration::ZERO;
        Self { doing: Doing::Away, since: now, computed: none, waited: none, lately: none }
    }

    /// What it did until now is over; this is how long it took.
    fn turn_to(&mut self, doing: Doing, now: Moment) -> Duration {
        let took = now.saturating_duration_since(self.since);
        (self.doing, self.since) = (doing, now);
        took
    }

    fn queue(&mut self, now: Moment) -> Kind {
        let away = now.saturating_duration_since(self.since);
        self.lately = self.lately.saturating_sub(away);
        let kind = if self.lately < TURN { Kind::Come } else { Kind::GivenWay };
        self.turn_to(Doing::Queued(kind), now);
        kind
    }

    fn begin(&mut self, now: Moment) -> Option<(Kind, Duration)> {
        let before = self.doing;
        let took = self.turn_to(Doing::Computing, now);
        let Doing::Queued(kind) = before else { return None };
        self.waited += took;
        Some((kind, took))
    }

    fn end(&mut self, now: Moment) {
        let took = self.turn_to(Doing::Away, now);
        self.computed += took;
        // With no more than two turns kept, what waits for as long as one comes as if it were new, however long it computed
        // before; and what computes more than it waits is soon among those that compute.
        self.lately = (self.lately + took).min(2 * TURN);
    }

    fn computed(&self, now: Moment) -> Computed {
        let turn = self.lasts(self.doing == Doing::Computing, now);
        Computed { turn, all: self.computed + turn }
    }

    fn waited(&self, now: Moment) -> Duration {
        self.waited + self.lasts(matches!(self.doing, Doing::Queued(_)), now)
    }

    fn lasts(&self, is_so: bool, now: Moment) -> Duration {
        if is_so { now.saturating_duration_since(self.since) } else { Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A call on a clock of its own.
    struct Call {
        times: Times,
        now: Moment,
    }

    impl Call {
        fn new() -> Self {
            let now = Moment::now();
            Self { times: Times::new(now), now }
        }

        /// Waits for something, then for a turn, and computes; says where it waited for its turn.
        fn turn(&mut self, away: u32, queued: u32, computes: u32) -> Kind {
            self.now += away * MS;
            let kind = self.times.queue(self.now);
            self.now += queued * MS;
            assert_eq!(self.times.begin(self.now), Some((kind, queued * MS)));
            self.now += computes * MS;
            self.times.end(self.now);
            kind
        }
    }

    #[test]
    fn a_call_that_computes_gives_way_and_stays_among_those_however_long_it_waits_for_its_turns() {
        let mut call = Call::new();
        assert_eq!(call.turn(0, 500, 10), Kind::Come);
        for _ in 0..5 {
            assert_eq!(call.turn(0, 500, 10), Kind::GivenWay);
        }
        assert_eq!(call.times.computed(call.now).all, 60 * MS);
        assert_eq!(call.times.waited(call.now), 3000 * MS);
    }

    #[test]
    fn a_call_that_waits_for_something_else_comes_as_if_it_were_new() {
        let mut call = Call::new();
        for _ in 0..3 {
            assert_eq!(call.turn(0, 0, 20), Kind::Come);
            call.now += 50 * MS;
        }
        // So does one that asks whether something is ready, and goes on at once.
        for _ in 0..1000 {
            assert_eq!(call.turn(0, 0, 0), Kind::Come);
        }
    }

    #[test]
    fn short_turns_with_hardly_a_wait_between_them_are_computing_too() {
        let mut call = Call::new();
        let kinds = [(); 5].map(|()| call.turn(0, 0, 8));
        assert_eq!(kinds, [Kind::Come, Kind::Come, Kind::GivenWay, Kind::GivenWay, Kind::GivenWay]);
        let mut call = Call::new();
        let kinds = [(); 10].map(|()| call.turn(1, 0, 10));
        assert_eq!(kinds[3..], [Kind::GivenWay; 7]);
    }

    #[test]
    fn a_turn_is_over_by_its_own_time_and_not_by_the_clocks() {
        let mut call = Call::new();
        let at = |call: &Call, ms: u32| call.times.computed(call.now + ms * MS);
        call.turn(0, 0, 5);
        call.now += 50 * MS;
        call.times.queue(call.now);
        call.times.begin(call.now);
        assert_eq!(at(&call, 1), Computed { turn: MS, all: 6 * MS });
        assert!(!at(&call, 8).is_turn_over() && at(&call, 9).is_turn_over());
        call.times.end(call.now + 9 * MS);
        assert_eq!(at(&call, 100), Computed { turn: Duration::ZERO, all: 14 * MS });
    }

    #[test]
    fn waits_for_a_turn_are_those_that_are_over_and_the_one_that_is_not() {
        let mut call = Call::new();
        call.turn(30, 7, 5);
        call.now += 100 * MS;
        assert_eq!(call.times.waited(call.now), 7 * MS);
        call.times.queue(call.now);
        assert_eq!(call.times.waited(call.now + 20 * MS), 27 * MS);
    }

    #[tokio::test(start_paused = true)]
    async fn time_is_over_when_it_has_passed_but_for_waits_for_a_turn() {
        let (counts, does_not) = (Allowance::with_waits(100 * MS), Allowance::new(100 * MS));
        for allowance in [&counts, &does_not] {
            let mut times = allowance.pace().times();
            times.waited += 60 * MS;
        }
        tokio::time::advance(101 * MS).await;
        assert_eq!(counts.look_again(), None);
        // Close to the end it looks no more often than the clock ticks.
        assert_eq!(does_not.look_again(), Some(does_not.started + 160 * MS));
        tokio::time::advance(58 * MS).await;
        assert_eq!(does_not.look_again(), Some(Instant::now() + TICK));
        tokio::time::advance(TICK).await;
        assert_eq!(does_not.look_again(), None);
        // A time that is longer than any clock's is one that does not pass.
        assert!(Allowance::new(Duration::MAX).look_again().is_some());
    }
}
