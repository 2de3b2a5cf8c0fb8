use std::panic::AssertUnwindSafe;
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use super::*;

/// No wait of a test is as long as this.
const LIMIT: Duration = Duration::from_secs(30);

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
    Arc::downgrade(threads.queue.as_ref().unwrap())
}

/// As a guest that spins: it gives way now and then, and never ends.
async fn spin() {
    loop {
        thread::sleep(Duration::from_millis(1));
        yield_now().await;
    }
}

/// Tells when it is dropped.
struct Told(Arc<AtomicBool>);

impl Drop for Told {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn whoever_has_come_and_whoever_has_given_way_are_served_in_turns_each_in_order() {
    let mut turns = Turns::new(10);
    (1..=4).for_each(|number| turns.push(number, Kind::GivenWay));
    (10..=11).for_each(|number| turns.push(number, Kind::Come));
    let order: Vec<i32> = std::iter::from_fn(|| turns.begin().map(|(number, _)| number)).collect();
    assert_eq!(order, [10, 1, 11, 2, 3, 4]);
}

#[test]
fn those_that_have_given_way_never_have_the_last_thread() {
    let mut turns = Turns::new(2);
    (0..5).for_each(|number| turns.push(number, Kind::GivenWay));
    let begin = |turns: &mut Turns<i32>| turns.begin().map(|(number, _)| number);
    assert_eq!([begin(&mut turns), begin(&mut turns), begin(&mut turns)], [Some(0), Some(1), None]);
    // Whoever comes has it, and leaves it to nobody else.
    turns.push(10, Kind::Come);
    assert_eq!([begin(&mut turns), begin(&mut turns)], [Some(10), None]);
    turns.end(Kind::Come);
    assert_eq!(begin(&mut turns), None);
    turns.end(Kind::GivenWay);
    assert_eq!([begin(&mut turns), begin(&mut turns)], [Some(2), None]);
}

#[test]
fn nobody_waits_for_ever_however_many_come_and_however_many_spin() {
    let mut turns = Turns::new(1);
    (0..5).for_each(|spinning| turns.push(spinning, Kind::GivenWay));
    turns.push(0, Kind::Come);
    let mut served = [0; 5];
    for turn in 0..1_000 {
        let (number, kind) = turns.begin().unwrap();
        turns.end(kind);
        match kind {
            Kind::GivenWay => {
                served[number] += 1;
                turns.push(number, kind);
            }
            // The next one comes as soon as this one is served.
            Kind::Come => {
                assert!(turn <= 2 * number, "call {number} had its turn at {turn}");
                turns.push(number + 1, kind);
            }
        }
    }
    assert_eq!(served, [100; 5]);
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
