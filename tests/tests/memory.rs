//! Memory stays within its bounds, however many shards there are and however full they are, and does not grow with time.

use std::collections::BTreeMap;
use std::time::Duration;

use shardmill_tests::raw::{self, Raw};
use shardmill_tests::{Config, Guests, Services, Tail, Worker, Writer, assert_each_once, leases, memory};
use tokio::time::Instant;

const MIB: u64 = 1 << 20;
const BUDGET: u64 = 64 * MIB;
/// The worker may take so much more than its budget, above what it takes without any record: for outputs on their way, what
/// guests and connections keep, and what was freed and is not given back to the system.
const BESIDE: u64 = 64 * MIB;
/// More than one page of 10 MiB.
const RECORDS_PER_SHARD: u64 = 11;
const RECORD: usize = (1 << 20) - 16;

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / MIB as f64)
}

fn assert_bounded(base: u64, peak: u64) {
    assert!(
        peak <= base + BUDGET + BESIDE,
        "{} at most, {} of it before the first record: more than the budget of {} and {} above",
        mebibytes(peak),
        mebibytes(base),
        mebibytes(BUDGET),
        mebibytes(BESIDE),
    );
}

/// Fills each shard with more than a page, and has a worker read all of them at once.
async fn full_shards(shards: u64) {
    let services = Services::start().await;
    services.create_stream("input", i32::try_from(shards).expect("few shards")).await;
    services.create_stream("output", 1).await;
    let config = Guests::new()
        .top(&format!("memory = {BUDGET}"))
        .with("digest", "guest_columnar", "digest", ["input", "output"], "")
        .text();

    // What a worker takes that has every lease and nothing to read.
    let mut idle = Worker::start_with(&services, &config);
    idle.ready().await;
    let holds_all =
        async |worker: &mut Worker| (worker.metric("shardmill_shards", "").await as u64 == shards).then_some(());
    idle.until("all leases", holds_all).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let base = memory::peak(idle.pid());
    idle.stop().await;

    let mut expected = BTreeMap::new();
    for shard in services.shards("input").await {
        let hash_key = shard.hash_key_range().expect("a range").starting_hash_key().to_owned();
        let record = |number: u64| {
            let byte = u8::try_from((number * 37) % 256).expect("below 256");
            Raw { hash_key: Some(hash_key.clone()), ..Raw::new("key", vec![byte; RECORD]) }
        };
        let records: Vec<Raw> = (0..RECORDS_PER_SHARD).map(record).collect();
        let numbers = raw::put(&services, "input", &records).await;
        expected.insert(shard.shard_id().to_owned(), numbers);
    }

    let mut worker = Worker::start_with(&services, &config);
    let all = shards * RECORDS_PER_SHARD;
    let mut reserved = 0.0_f64;
    worker
        .until_within(Duration::from_secs(300), "all records", async |worker| {
            worker.logged("INFO", "admin server").first()?;
            reserved = reserved.max(worker.metric("shardmill_memory_reserved_bytes", "").await);
            (worker.records_done().await >= all).then_some(())
        })
        .await;
    let peak = memory::peak(worker.pid());
    let above = peak.saturating_sub(base);
    println!(
        "{shards} shards: {} at rest, {} at most, {} above: {:.2} times the budget of {}; {} reserved at most",
        mebibytes(base),
        mebibytes(peak),
        mebibytes(above),
        above as f64 / BUDGET as f64,
        mebibytes(BUDGET),
        mebibytes(reserved as u64),
    );
    assert_eq!(worker.metric("shardmill_memory_budget_bytes", "").await as u64, BUDGET);
    assert!(reserved as u64 <= BUDGET, "{reserved} bytes are reserved");
    assert_eq!(worker.records_done().await, all);
    worker.stop().await;
    assert_bounded(base, peak);

    // Every record, once, and in the order of its shard: sequence numbers name the shard as well.
    let mut found: Vec<String> = Vec::new();
    for (_, data) in raw::user_records(&services, "output").await {
        let text = String::from_utf8(data).expect("lines");
        found.extend(text.lines().map(|line| line.split_once('/').expect("a position").0.to_owned()));
    }
    for (shard, numbers) in &expected {
        let of_shard: Vec<&String> = found.iter().filter(|number| numbers.contains(number)).collect();
        assert!(of_shard.into_iter().eq(numbers), "{shard}");
    }
    assert_eq!(found.len() as u64, all);
}

#[tokio::test]
async fn sixteen_shards_of_full_pages_stay_within_the_budget() {
    full_shards(16).await;
}

/// The same bound: it does not grow with the shards.
#[tokio::test]
#[ignore = "takes a minute and a gigabyte: `make soak`"]
async fn sixty_four_shards_of_full_pages_stay_within_the_budget() {
    full_shards(64).await;
}

/// One guest is a hundred times slower than its stream: 96 KiB each 300 ms, of 2 MiB a second from each of 16 shards. The other
/// one reads the same shards.
#[tokio::test]
async fn a_slow_guest_keeps_its_leases_within_its_memory_and_a_fast_one_keeps_its_pace_beside_it() {
    const SHARDS: u64 = 16;
    const RECORDS: u64 = 170;
    const ALL: u64 = SHARDS * RECORDS;
    const EXPIRY: Duration = Duration::from_secs(5);
    let services = Services::start().await;
    services.create_stream("input", i32::try_from(SHARDS).expect("few shards")).await;
    for output in ["digests", "asides"] {
        services.create_stream(output, 1).await;
    }
    let slowly = "batch = { records = 1 }\nlimits = { instances = 1 }";
    let config = Guests::new()
        .top(&format!("memory = {BUDGET}"))
        .with("fast", "guest_columnar", "digest", ["input", "digests"], "")
        .with("slow", "guest_rows", "nap", ["input", "asides"], slowly)
        .text()
        .replace("expiry = \"60s\"", &format!("renew = \"500ms\"\nexpiry = \"{}s\"", EXPIRY.as_secs()));

    let mut idle = Worker::start_with(&services, &config);
    idle.ready().await;
    let holds_all =
        async |worker: &mut Worker| (worker.metric("shardmill_shards", "").await as u64 == 2 * SHARDS).then_some(());
    idle.until("all leases", holds_all).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let base = memory::peak(idle.pid());
    idle.stop().await;

    for shard in services.shards("input").await {
        let hash_key = shard.hash_key_range().expect("a range").starting_hash_key().to_owned();
        let record = |_| Raw { hash_key: Some(hash_key.clone()), ..Raw::new("key", vec![7; 96 << 10]) };
        let records: Vec<Raw> = (0..RECORDS).map(record).collect();
        raw::put(&services, "input", &records).await;
    }

    let mut worker = Worker::start_with(&services, &config);
    worker.ready().await;
    worker.until("all leases", holds_all).await;
    let rows = async || [leases::rows(&services, "tests-fast").await, leases::rows(&services, "tests-slow").await];
    let holders = |rows: [BTreeMap<String, leases::Row>; 2]| {
        rows.map(|rows| rows.into_iter().map(|(shard, row)| (shard, row.owner, row.epoch)).collect::<Vec<_>>())
    };
    let (held, since) = (holders(rows().await), Instant::now());
    let (mut reserved, mut reserved_by_slow, mut waiting) = (0.0_f64, 0.0_f64, 0.0_f64);
    let done = async |worker: &mut Worker, processor: &str| {
        worker.metric("shardmill_records_done_total", &format!("processor=\"{processor}\"")).await as u64
    };
    worker
        .until_within(Duration::from_secs(300), "the fast one has all", async |worker| {
            let of_slow = "processor=\"slow\"";
            let reserved_now = worker.metric("shardmill_processor_memory_reserved_bytes", of_slow).await;
            reserved = reserved.max(worker.metric("shardmill_memory_reserved_bytes", "").await);
            reserved_by_slow = reserved_by_slow.max(reserved_now);
            waiting = waiting.max(worker.metric("shardmill_shards_waiting_for_memory", of_slow).await);
            (done(worker, "fast").await >= ALL).then_some(())
        })
        .await;
    let slow = done(&mut worker, "slow").await;
    // Longer than a lease lasts that is not renewed.
    tokio::time::sleep_until(since + 3 * EXPIRY).await;
    let later = worker
        .until("the slow one goes on", async |worker| Some(done(worker, "slow").await).filter(|later| *later > slow))
        .await;
    let peak = memory::peak(worker.pid());
    println!(
        "{} at rest, {} at most, {} above a budget of {}; {} reserved at most, {} by the slow one, {waiting} of its shards \
         wait; it has {slow} of {ALL} records when the fast one has all, then {later}",
        mebibytes(base),
        mebibytes(peak),
        mebibytes(peak.saturating_sub(base)),
        mebibytes(BUDGET),
        mebibytes(reserved as u64),
        mebibytes(reserved_by_slow as u64),
    );
    assert!(slow * 10 < ALL, "the slow one has done {slow} of {ALL} meanwhile");
    assert!(reserved as u64 <= BUDGET && reserved_by_slow > 0.0 && waiting > 0.0);
    assert_eq!(holders(rows().await), held, "no lease has changed hands");
    assert_eq!(worker.metric("shardmill_lease_lost_total", "").await as u64, 0);
    worker.stop().await;
    assert_bounded(base, peak);
}

/// Every lease has tasks, a reader and what is shown of it: what that takes without a record.
#[tokio::test]
async fn a_thousand_idle_leases_take_a_tenth_of_a_megabyte_each_at_most() {
    const LEASES: u64 = 1000;
    const STREAMS: [&str; 2] = ["one", "two"];
    let at_rest = async |shards: i32| {
        let services = Services::start().await;
        let mut config = Guests::new();
        for stream in STREAMS {
            services.create_stream(stream, shards).await;
            config = config.with(stream, "guest_columnar", "digest", [stream, "output"], "");
        }
        services.create_stream("output", 1).await;
        let mut worker = Worker::start_with(&services, &config.text());
        worker.ready().await;
        let held = shards as u64 * STREAMS.len() as u64;
        worker
            .until_within(Duration::from_secs(120), "all leases", async |worker| {
                (worker.metric("shardmill_shards", "").await as u64 == held).then_some(())
            })
            .await;
        // Every shard has been read several times.
        tokio::time::sleep(Duration::from_secs(5)).await;
        let resident = memory::resident(worker.pid());
        worker.stop().await;
        resident
    };
    let (few, many) = (at_rest(1).await, at_rest(i32::try_from(LEASES / 2).expect("few")).await);
    let above = many.saturating_sub(few);
    println!(
        "{LEASES} idle leases: {}, 2 idle leases: {}: {:.1} KiB each",
        mebibytes(many),
        mebibytes(few),
        above as f64 / LEASES as f64 / 1024.0
    );
    assert!(above < 100_000_000, "{} above a worker with 2 leases", mebibytes(above));
}

/// A worker under a constant load for `SOAK_SECONDS` (60). What it has resident in the last third of the time is compared with
/// the second third, which is after everything has warmed up.
#[tokio::test]
#[ignore = "takes minutes: `make soak`"]
async fn memory_is_flat_under_a_constant_load() {
    const GROWTH: u64 = 8 * MIB;
    let seconds = std::env::var("SOAK_SECONDS").map_or(60, |text| text.parse().expect("SOAK_SECONDS is a number"));
    let run = Duration::from_secs(seconds);
    let services = Services::with_streams(4, 2).await;
    let mut writer = Writer::new(&services, "input", 200).with_aggregates().padded(300);
    let mut worker = Worker::start_ready(&services, &Config::copy()).await;
    let started = Instant::now();
    let mut samples: Vec<(Duration, u64)> = Vec::new();
    let mut tick = tokio::time::interval(Duration::from_millis(200));
    while started.elapsed() < run {
        tick.tick().await;
        writer.put(300).await;
        samples.push((started.elapsed(), memory::resident(worker.pid())));
        if samples.len().is_multiple_of(100) {
            println!("{:>4} s: {}", started.elapsed().as_secs(), mebibytes(samples[samples.len() - 1].1));
        }
    }
    let all = writer.count();
    worker.until_records(all).await;
    let third = |index: u32| {
        let (from, to) = (run * index / 3, run * (index + 1) / 3);
        let mut of_third: Vec<u64> =
            samples.iter().filter(|(at, _)| (from..to).contains(at)).map(|(_, bytes)| *bytes).collect();
        of_third.sort_unstable();
        (of_third[of_third.len() / 2], of_third[of_third.len() - 1])
    };
    let ((median, most), (later_median, later_most)) = (third(1), third(2));
    println!(
        "{all} records in {seconds} s; median {} then {}, most {} then {}",
        mebibytes(median),
        mebibytes(later_median),
        mebibytes(most),
        mebibytes(later_most),
    );
    worker.stop().await;
    assert!(
        later_median <= median + GROWTH,
        "the median grew from {} to {}",
        mebibytes(median),
        mebibytes(later_median)
    );
    assert!(later_most <= most + GROWTH, "the most grew from {} to {}", mebibytes(most), mebibytes(later_most));
    assert_each_once(&Tail::all(&services, "output").await, 0..all);
}
