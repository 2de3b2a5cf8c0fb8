//! Memory stays within its bounds, however many shards there are and however full they are, and does not grow with time.

use std::collections::BTreeMap;
use std::time::Duration;

use shardmill_tests::raw::{self, Raw};
use shardmill_tests::{Config, Guests, Services, Tail, Worker, Writer, assert_each_once, memory};
use tokio::time::Instant;

const MIB: u64 = 1 << 20;
const BUDGET: u64 = 64 * MIB;
/// The worker may take so many times its budget, above what it takes without any record. A byte of the budget is a byte as
/// the service sends it: it is received, taken apart into a batch, copied into the guest, and what the guest makes of it
/// is on its way out, while the same bytes stay reserved; and what was freed is not always given back to the system.
const FACTOR: u64 = 4;
/// More than one page of 10 MiB.
const RECORDS_PER_SHARD: u64 = 11;
const RECORD: usize = (1 << 20) - 16;

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / MIB as f64)
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
    assert!(
        peak <= base + FACTOR * BUDGET,
        "{} at most, {} of it before the first record: more than {FACTOR} times the budget of {} above",
        mebibytes(peak),
        mebibytes(base),
        mebibytes(BUDGET),
    );

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
    worker.until("all records", async |worker| (worker.records_done().await >= all).then_some(())).await;
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
