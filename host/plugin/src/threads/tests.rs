use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, Weak, mpsc};
use std::time::Duration;

use futures::FutureExt as _;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use super::*;

/// No wait of a test is as long as this.
const LIMIT: Duration = Duration::from_secs(30);

impl Threads {
    fn of(&self, processor: &str) -> Line {
        self.line(processor, waits(processor))
    }

    async fn run<F>(&self, future: F) -> F::Output
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.of("tests").run(&Pace::new(), future).await
    }
}

fn waits(processor: &str) -> Waits {
    crate::Metrics::default().of_processor(processor).waits()
}

fn start(count: usize) -> Threads {
    Threads::start(NonZeroUsize::new(count).unwrap()).unwrap()
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let looking = async {
        while !is_so() {
            sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(LIMIT, looking).await.unwrap_or_else(|_| panic!("not within {LIMIT:?}: {what}"));
}

/// Until no thread has it any more.
async fn until_ended(queue: Weak<Queue>) {
    until("the end of all threads", || queue.strong_count() == 0).await;
}

fn queue(threads: &Threads) -> Weak<Queue> {
    Arc::downgrade(&threads.open.as_ref().unwrap().queue)
}

/// As a guest that spins: it gives way now and then, and never ends.
async fn spin() {
    loop {
        thread::sleep(Duration::from_millis(1));
        yield_now().await;
    }
}

/// Keeps a thread until the sender is dropped, as a guest does that is within its turn. It has begun when this returns.
async fn keep_a_thread(line: &Line) -> mpsc::Sender<()> {
    let (until, kept) = mpsc::channel();
    let (begun, begins) = oneshot::channel();
    let line = line.clone();
    tokio::spawn(async move {
        let call = async move {
            begun.send(()).unwrap();
            let _ = kept.recv();
        };
        line.run(&Pace::new(), call).await;
    });
    begins.await.unwrap();
    until
}

/// Tells when it is dropped.
struct Told(Arc<AtomicBool>);

impl Drop for Told {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn what_runs_is_on_the_threads_and_its_result_comes_back() {
    let threads = start(3);
    let name = threads.run(async { thread::current().name().unwrap().to_owned() }).await;
    assert!(name.starts_with("guest-"), "{name}");
    let here = thread::current().id();
    assert_eq!(Threads::none().run(async { thread::current().id() }).await, here);
}

#[tokio::test]
async fn waits_are_timers_of_the_callers_runtime_and_take_no_thread() {
    let threads = start(1);
    let first = threads.run(async { sleep(Duration::from_millis(50)).await });
    // More of them than threads.
    let others = futures::future::join_all((0..20).map(|_| threads.run(sleep(Duration::from_millis(50)))));
    timeout(LIMIT, async { tokio::join!(first, others) }).await.unwrap();
}

#[tokio::test]
async fn short_calls_have_their_turns_beside_many_that_spin() {
    let threads = Arc::new(start(2));
    let spinning: Vec<_> = (0..20)
        .map(|_| {
            let threads = Arc::clone(&threads);
            tokio::spawn(async move { threads.run(spin()).await })
        })
        .collect();
    let short = async {
        for number in 0..200 {
            assert_eq!(threads.run(async move { number }).await, number);
        }
    };
    timeout(LIMIT, short).await.unwrap();
    spinning.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn all_that_spin_get_on_beside_each_other_and_beside_short_calls() {
    let threads = start(2);
    let turns: [Arc<AtomicU32>; 8] = std::array::from_fn(|_| Arc::default());
    let spin = |turns: Arc<AtomicU32>| {
        threads.run(async move {
            while turns.fetch_add(1, Ordering::Relaxed) < 50 {
                thread::sleep(Duration::from_millis(1));
                yield_now().await;
            }
        })
    };
    let all = futures::future::join_all(turns.iter().cloned().map(spin));
    let short = async {
        loop {
            threads.run(async {}).await;
        }
    };
    let done = async {
        tokio::select! {
            _ = all => {}
            () = short => {}
        }
    };
    timeout(LIMIT, done).await.unwrap();
}

#[tokio::test]
async fn a_call_that_is_given_up_is_dropped_whether_it_waits_computes_or_has_not_begun() {
    let threads = start(1);
    let dropped: [Arc<AtomicBool>; 3] = std::array::from_fn(|_| Arc::default());
    let told = |number: usize| Told(Arc::clone(&dropped[number]));
    let is_dropped = |number: usize| dropped[number].load(Ordering::SeqCst);

    let (told_waits, told_spins, told_behind) = (told(0), told(1), told(2));
    let (begun, begins) = oneshot::channel();
    let mut waits = Box::pin(threads.run(async move {
        let _told = told_waits;
        begun.send(()).unwrap();
        std::future::pending::<()>().await;
    }));
    tokio::select! {
        () = &mut waits => unreachable!("it waits for ever"),
        begins = begins => begins.unwrap(),
    }
    assert!(!is_dropped(0));
    drop(waits);
    until("the end of what waits", || is_dropped(0)).await;

    let (begun, begins) = oneshot::channel();
    let mut spins = Box::pin(threads.run(async move {
        let _told = told_spins;
        begun.send(()).unwrap();
        spin().await;
    }));
    tokio::select! {
        () = &mut spins => unreachable!("it spins for ever"),
        begins = begins => begins.unwrap(),
    }
    // Behind it, or between its turns.
    let mut behind = Box::pin(threads.run(async move {
        let _told = told_behind;
        std::future::pending::<()>().await;
    }));
    assert!((&mut behind).now_or_never().is_none());
    drop(behind);
    until("the end of what was behind", || is_dropped(2)).await;
    assert!(!is_dropped(1));
    drop(spins);
    until("the end of what spins", || is_dropped(1)).await;
    // The thread has survived all of it.
    assert_eq!(timeout(LIMIT, threads.run(async { 7 })).await.unwrap(), 7);
}

#[tokio::test]
async fn a_panic_comes_to_the_caller_and_leaves_the_thread() {
    let threads = start(1);
    for _ in 0..3 {
        let call = threads.run(async {
            yield_now().await;
            panic!("as the test wants it");
        });
        let panic: Box<dyn std::any::Any + Send> = AssertUnwindSafe(call).catch_unwind().await.unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"as the test wants it"));
    }
    assert_eq!(threads.run(async { 7 }).await, 7);
}

#[tokio::test]
async fn threads_end_when_nobody_has_them_also_when_dropped_in_async_code() {
    let threads = start(4);
    let queue = queue(&threads);
    threads.run(async {}).await;
    assert!(queue.strong_count() > 0);
    drop(threads);
    until_ended(queue).await;
}

#[tokio::test]
async fn threads_that_their_own_call_is_the_last_to_hold_end_as_well() {
    let threads = Arc::new(start(2));
    let queue = queue(&threads);
    let (begun, begins) = oneshot::channel();
    let own = Arc::clone(&threads);
    let mut call = Box::pin(async move {
        let held = Arc::clone(&own);
        own.run(async move {
            let _held = held;
            begun.send(()).unwrap();
            spin().await;
        })
        .await;
    });
    tokio::select! {
        () = &mut call => unreachable!("it spins for ever"),
        begins = begins => begins.unwrap(),
    }
    drop(threads);
    // What spins is the only one that has them, until it gives way.
    drop(call);
    until_ended(queue).await;
}

#[test]
fn a_runtime_may_end_before_the_calls_that_were_made_on_it() {
    let threads = Arc::new(start(1));
    let queue = queue(&threads);
    let dropped = Arc::new(AtomicBool::new(false));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    for waits in [true, false] {
        let (threads, told) = (Arc::clone(&threads), Told(Arc::clone(&dropped)));
        let (begun, begins) = std::sync::mpsc::channel();
        runtime.spawn(async move {
            let call = async move {
                let _told = told;
                begun.send(()).unwrap();
                if waits { sleep(Duration::from_secs(3600)).await } else { spin().await }
            };
            threads.run(call).await;
        });
        begins.recv_timeout(LIMIT).unwrap();
    }
    // Its tasks are dropped, and with them what they await.
    runtime.shutdown_timeout(LIMIT);
    drop(threads);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(until_ended(queue));
    assert!(dropped.load(Ordering::SeqCst));
}

/// Says where it is dropped.
struct Place(mpsc::Sender<(String, bool)>);

impl Drop for Place {
    fn drop(&mut self) {
        let name = thread::current().name().unwrap_or_default().to_owned();
        self.0.send((name, Handle::try_current().is_ok())).unwrap();
    }
}

/// Panics when it is dropped.
struct Bad;

impl Drop for Bad {
    fn drop(&mut self) {
        panic!("as the test wants it");
    }
}

#[tokio::test]
async fn a_processor_with_one_call_that_computes_has_its_part_beside_one_with_many() {
    const SPINNING: u32 = 40;
    const TURNS: u32 = 50;
    let threads = start(1);
    let (spins, computes) = (threads.of("spins"), threads.of("computes"));
    let turns: Arc<AtomicU32> = Arc::default();
    let spinning: Vec<_> = (0..SPINNING)
        .map(|_| {
            let (line, turns) = (spins.clone(), Arc::clone(&turns));
            let call = async move {
                loop {
                    turns.fetch_add(1, Ordering::Relaxed);
                    thread::sleep(Duration::from_millis(1));
                    yield_now().await;
                }
            };
            tokio::spawn(async move { line.run(&Pace::new(), call).await })
        })
        .collect();
    // Each of them is one that computes by then.
    until("turns of those that spin", || turns.load(Ordering::Relaxed) > 30 * SPINNING).await;
    let before = turns.load(Ordering::Relaxed);
    let call = async {
        for _ in 0..TURNS {
            thread::sleep(Duration::from_millis(1));
            yield_now().await;
        }
    };
    timeout(LIMIT, computes.run(&Pace::new(), call)).await.unwrap();
    let of_others = turns.load(Ordering::Relaxed) - before;
    // One for each of its own, not one of each of them.
    assert!(of_others < TURNS * SPINNING / 8, "{of_others} turns of others");
    spinning.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn time_in_which_a_call_waits_for_a_thread_is_none_of_its_own() {
    let threads = start(1);
    let line = threads.of("tests");
    let kept = [keep_a_thread(&line).await, keep_a_thread(&line).await];
    let own = Allowance::new(Duration::from_millis(200));
    let all = Allowance::with_waits(Duration::from_millis(200));
    let mut of_own = Box::pin(line.run_within(&own, async { 7 }));
    let of_all = line.run_within(&all, async { 7 });
    // No thread is free for twice as long.
    let (waits, ends) = tokio::join!(timeout(Duration::from_millis(400), &mut of_own), timeout(LIMIT, of_all));
    assert!(waits.is_err() && ends.unwrap().is_err());
    drop(kept);
    assert_eq!(timeout(LIMIT, of_own).await.unwrap().ok(), Some(7));
    // Time in which it waits for something else is, also after a wait for a thread.
    assert!(timeout(LIMIT, line.run_within(&own, sleep(LIMIT * 2))).await.unwrap().is_err());
}

#[tokio::test(start_paused = true)]
async fn two_calls_may_have_their_time_together() {
    let line = Threads::none().of("tests");
    let allowance = Allowance::new(Duration::from_millis(100));
    let call = async |ms| line.run_within(&allowance, sleep(Duration::from_millis(ms))).await.is_ok();
    assert!(call(60).await);
    assert!(!call(60).await);
}

#[tokio::test]
async fn a_call_that_goes_on_at_once_is_among_those_that_have_come() {
    let threads = start(1);
    let mut registry = prometheus_client::registry::Registry::default();
    let metrics = crate::Metrics::register(&mut registry);
    let line = threads.line("asks", metrics.of_processor("asks").waits());
    let call = async {
        for _ in 0..100 {
            yield_now().await;
        }
    };
    line.run(&Pace::new(), call).await;
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    let count = |class: &str| {
        let name = format!("shardmill_plugin_wait_seconds_count{{processor=\"asks\",class=\"{class}\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&name)?.parse::<u32>().ok()).unwrap()
    };
    // All, but for some in which the thread itself had to wait.
    assert_eq!(count("short") + count("long"), 101);
    assert!(count("short") > 50, "{text}");
}

#[tokio::test]
async fn what_is_given_up_goes_before_all_that_waits() {
    let threads = start(1);
    let line = threads.of("tests");
    let kept = [keep_a_thread(&line).await, keep_a_thread(&line).await];
    let dropped = Arc::new(AtomicBool::new(false));
    let seen: Arc<Mutex<Vec<bool>>> = Arc::default();
    let other = || {
        let (dropped, seen) = (Arc::clone(&dropped), Arc::clone(&seen));
        let look = async move { seen.lock().unwrap().push(dropped.load(Ordering::SeqCst)) };
        let line = line.clone();
        let mut call = Box::pin(async move { line.run(&Pace::new(), look).await });
        assert!((&mut call).now_or_never().is_none());
        call
    };
    let before: Vec<_> = (0..3).map(|_| other()).collect();
    let told = Told(Arc::clone(&dropped));
    let pace = Pace::new();
    let mut given_up = Box::pin(line.run(&pace, async move {
        let _told = told;
        std::future::pending::<()>().await;
    }));
    assert!((&mut given_up).now_or_never().is_none());
    drop(given_up);
    assert!(!dropped.load(Ordering::SeqCst), "it was dropped here");
    // One thread, so that there is an order.
    let [one, _other] = kept;
    drop(one);
    timeout(LIMIT, futures::future::join_all(before)).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [true; 3]);
}

#[tokio::test]
async fn what_is_kept_is_dropped_on_the_threads_and_in_its_context_wherever_it_is_let_go_of() {
    let threads = start(1);
    let line = threads.of("tests");
    let (place, dropped) = mpsc::channel();
    let made = |line: &Line| {
        let (place, line) = (place.clone(), line.clone());
        async move { Kept::new(Place(place), line) }
    };
    let where_dropped = || dropped.recv_timeout(LIMIT).unwrap();
    let is_on_threads = |(name, in_context): (String, bool)| name.starts_with("guest-") && in_context;
    drop(line.run(&Pace::new(), made(&line)).await);
    assert!(is_on_threads(where_dropped()));
    // By a call.
    let kept = line.run(&Pace::new(), made(&line)).await;
    line.run(&Pace::new(), async move { drop(kept) }).await;
    assert!(is_on_threads(where_dropped()));
    // By a thread without a runtime.
    let kept = line.run(&Pace::new(), made(&line)).await;
    thread::spawn(move || drop(kept)).join().unwrap();
    assert!(is_on_threads(where_dropped()));
    // As a result that nobody takes.
    let (begun, begins) = oneshot::channel();
    let (until, kept) = mpsc::channel::<()>();
    let making = made(&line);
    let pace = Pace::new();
    let mut call = Box::pin(line.run(&pace, async move {
        begun.send(()).unwrap();
        let _ = kept.recv();
        making.await
    }));
    tokio::select! {
        _ = &mut call => unreachable!("it is kept"),
        begins = begins => begins.unwrap(),
    }
    drop(until);
    assert_eq!(line.run(&Pace::new(), async { 7 }).await, 7);
    drop(call);
    assert!(is_on_threads(where_dropped()));
    // As the last that holds the threads.
    let kept = line.run(&Pace::new(), made(&line)).await;
    let queue = queue(&threads);
    drop((line, threads));
    drop(kept);
    assert!(is_on_threads(where_dropped()));
    until_ended(queue).await;
    // Here, where there are none.
    let line = Threads::none().of("tests");
    drop(line.run(&Pace::new(), made(&line)).await);
    assert!(!where_dropped().0.starts_with("guest-"));
}

#[tokio::test]
async fn a_call_that_is_given_up_is_dropped_in_its_callers_context() {
    let threads = start(1);
    let (place, dropped) = mpsc::channel();
    let place = Place(place);
    let mut call = Box::pin(threads.run(async move {
        let _place = place;
        sleep(LIMIT * 2).await;
    }));
    assert!(timeout(Duration::from_millis(20), &mut call).await.is_err());
    drop(call);
    let (name, in_context) = dropped.recv_timeout(LIMIT).unwrap();
    assert!(name.starts_with("guest-") && in_context, "{name}");
}

#[tokio::test]
async fn a_panic_while_something_is_dropped_ends_neither_the_process_nor_a_thread() {
    let threads = start(1);
    for waits in [true, false] {
        let mut call = Box::pin(threads.run(async move {
            let _bad = Bad;
            if waits {
                std::future::pending::<()>().await;
            }
            spin().await;
        }));
        assert!(timeout(Duration::from_millis(20), &mut call).await.is_err());
        drop(call);
    }
    let line = threads.of("tests");
    let making = line.clone();
    drop(line.run(&Pace::new(), async move { Kept::new(Bad, making) }).await);
    for _ in 0..10 {
        assert_eq!(timeout(LIMIT, threads.run(async { 7 })).await.unwrap(), 7);
    }
}

#[tokio::test]
async fn a_processors_number_is_its_own_until_nobody_has_its_line() {
    let threads = start(1);
    let number = |line: &Line| line.place.as_ref().unwrap().number;
    let (first, second) = (threads.of("a"), threads.of("b"));
    let again = threads.of("a");
    assert_eq!([number(&first), number(&second), number(&again)], [0, 1, 0]);
    drop(first);
    assert_eq!(number(&threads.of("c")), 2);
    // A call has the line as well.
    let mut call = Box::pin(async move { again.run(&Pace::new(), std::future::pending::<()>()).await });
    assert!((&mut call).now_or_never().is_none());
    assert_eq!(number(&threads.of("c")), 2);
    drop(call);
    until("the end of the first processor", || number(&threads.of("c")) == 0).await;
    assert_eq!(number(&threads.of("b")), 1);
}
