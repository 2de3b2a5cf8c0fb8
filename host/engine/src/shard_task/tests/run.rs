//! A shard task of a test, and what is around it.

use super::*;

/// Everything of one run.
pub(super) struct Run {
    pub(super) store: Memory,
    pub(super) drain: CancellationToken,
    pub(super) abort: CancellationToken,
    pub(super) kept: Arc<Kept>,
    pub(super) guest: Arc<FakeGuest>,
    pub(super) letters: Arc<Letters>,
    pub(super) status: Status,
    pub(super) metrics: Metrics,
    pub(super) stop_request: StopRequest,
    pub(super) deadline: Deadline,
    pub(super) budget: Budget,
    pub(super) task: JoinHandle<Ended>,
    _coordinator: JoinHandle<()>,
}

impl Run {
    pub(super) async fn start(
        pages: impl IntoIterator<Item = Vec<u64>>,
        ends: bool,
        process: impl Fn(&ShardContext, &Batch) -> Result<Outcome, Failure> + Send + Sync + 'static,
    ) -> Self {
        Self::start_with(options(), pages, ends, process).await
    }

    pub(super) async fn start_with(
        options: Options,
        pages: impl IntoIterator<Item = Vec<u64>>,
        ends: bool,
        process: impl Fn(&ShardContext, &Batch) -> Result<Outcome, Failure> + Send + Sync + 'static,
    ) -> Self {
        let guest = FakeGuest::new(process);
        Self::start_of(Memory::new(), None, options, guest, FakeReader { pages: pages.into_iter().collect(), ends })
            .await
    }

    /// On this table, from this checkpoint on.
    pub(super) async fn start_of(
        store: Memory,
        checkpoint: Option<Position>,
        options: Options,
        guest: FakeGuest,
        reader: FakeReader,
    ) -> Self {
        Self::start_leading_to(store, checkpoint, options, guest, reader, None).await
    }

    /// Whose outputs go there.
    pub(super) async fn start_leading_to(
        store: Memory,
        checkpoint: Option<Position>,
        options: Options,
        guest: FakeGuest,
        reader: FakeReader,
        destinations: Option<Destinations>,
    ) -> Self {
        let (task, begin) =
            Self::set_up(store, checkpoint, options, guest, reader, destinations, Allowance::default()).await;
        begin(tokio::spawn(task.run()))
    }

    /// A task that does not run, and what makes a run of it once it does.
    pub(super) async fn set_up(
        store: Memory,
        checkpoint: Option<Position>,
        options: Options,
        guest: FakeGuest,
        reader: FakeReader,
        destinations: Option<Destinations>,
        allowance: Allowance,
    ) -> (ShardTask, impl FnOnce(JoinHandle<Ended>) -> Self) {
        let worker = WorkerId::parse("w1").unwrap();
        let (coordinator, _handle, mut events) = Coordinator::new(
            shardmill_lease::Options::new("application", worker),
            Arc::new(store.clone()),
            Arc::new(TokioClock::default()),
            Arc::new(OneShard),
            shardmill_lease::Metrics::default(),
            7,
        )
        .unwrap();
        let drain = CancellationToken::new();
        let coordinating = coordinator.run(drain.clone());
        let _coordinator = tokio::spawn(async move { coordinating.await.unwrap() });
        let Some(Event::Held(lease)) = events.recv().await else { panic!("no lease") };
        // The receiver is kept: dropping it would drain the coordinator.
        tokio::spawn(async move { while events.recv().await.is_some() {} });
        let guest = Arc::new(guest);
        let (kept, letters) = (Arc::new(Kept::default()), Arc::new(Letters::default()));
        let destination = Arc::clone(&kept) as Arc<dyn Destination>;
        let ours = Destinations::new([("out".to_owned(), crate::Target::Away(destination))].into());
        let destinations = destinations.unwrap_or(ours);
        let (status, metrics, budget) = (Status::default(), Metrics::default(), Budget::new(BUDGET));
        let (abort, deadline, stop_request) = (CancellationToken::new(), Deadline::default(), StopRequest::default());
        let lease = Arc::new(lease);
        let options = Arc::new(options);
        let prefetch = options.prefetch;
        let labels = ConsumerLabels { processor: "p".into(), stream: "s".into() };
        let began = tokio::time::Instant::now();
        let cadence = Cadence { interval: options.checkpoint_interval, count: options.checkpoint_count };
        let place = options.failure.then == Then::DeadLetter;
        let entry = status.add_shard("p", "s", &shard(SHARD), &LeaseKey::of_shard(&shard(SHARD)));
        entry.live().attach(
            shardmill_stream::Metrics::default().condition("s", &shard(SHARD)),
            &lease,
            options.start.shards.contains_key(&shard(SHARD)),
        );
        let scene = Arc::new(ShardScene {
            worker: "w1".into(),
            status: entry,
            share: allowance.share(),
            progress: Mutex::new(Progress::new(Watermark::new(options.checkpoint, checkpoint.clone()))),
            checkpointer: Checkpointer::start(
                Arc::clone(&lease),
                cadence,
                Arc::new(shardmill_cause::Trouble::new(Duration::from_secs(2))),
                metrics.clone(),
                labels.clone(),
            ),
            directory: Arc::new(OneShard),
            options: Arc::clone(&options),
            shard: shard(SHARD),
            lease: Arc::clone(&lease),
            abort: abort.clone(),
            is_last: AtomicBool::new(false),
            is_followed: AtomicBool::new(false),
        });
        let work = Arc::new(BatchWork {
            worker: "w1".into(),
            guest: Arc::clone(&guest) as Arc<dyn Guest>,
            destinations,
            dead_letters: place.then(|| Arc::clone(&letters) as Arc<dyn DeadLetters>),
            metrics: metrics.clone(),
            labels,
            hooks_called: Arc::default(),
            told: Arc::default(),
            scene: Arc::clone(&scene) as Arc<dyn Scene>,
            options,
            wall_clock: Arc::new(move || u64::try_from(began.elapsed().as_millis()).unwrap()),
        });
        let router = work
            .options
            .flow
            .filter
            .is_some()
            .then(|| Router::new(Arc::clone(&work.options.flow), Arc::clone(&work.options.stream), SHARD));
        let task = ShardTask {
            router,
            work,
            scene,
            feed: Feed::start(Box::new(reader), budget.shard("p", BATCH), prefetch, lease.fence()),
            unpacker: Unpacker::new(checkpoint, HashKeyRange::ALL, OutOfRange::Deliver),
            reservations: Vec::new(),
            closed: None,
            meter: crate::meter::Meter::new(tokio::time::Instant::now()),
            deadline: deadline.clone(),
            stop_request: stop_request.clone(),
        };
        let begin = |task| Self {
            store,
            drain,
            abort,
            kept,
            guest,
            letters,
            status,
            metrics,
            stop_request,
            deadline,
            budget,
            task,
            _coordinator,
        };
        (task, begin)
    }

    pub(super) async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        for _ in 0..100_000 {
            if holds(self) {
                return;
            }
            sleep(Duration::from_millis(10)).await;
        }
        panic!("waited in vain until {what}; sent: {:?}, row: {:?}", self.kept.sent(), self.row());
    }

    pub(super) fn row(&self) -> Lease {
        self.store.row(&LeaseKey::of_shard(&shard(SHARD))).unwrap()
    }

    pub(super) fn checkpoint(&self) -> String {
        self.row().checkpoint.to_string()
    }

    pub(super) fn state(&self) -> ShardState {
        self.status.snapshot()["p"].shards[SHARD].state.clone()
    }

    /// Why the shard is stopped, once it is.
    pub(super) async fn stopped(&self) -> String {
        self.until("the shard is stopped", |run| matches!(run.state(), ShardState::Stopped { .. })).await;
        let ShardState::Stopped { reason } = self.state() else { unreachable!() };
        reason
    }
}
