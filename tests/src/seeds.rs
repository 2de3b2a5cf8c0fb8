//! With which seeds a test runs.

/// `SHARDMILL_TEST_SEED` alone if it is set; else these, and as many more by chance as `SHARDMILL_TEST_SEEDS` says.
pub fn seeds(fixed: &[u64]) -> Vec<u64> {
    let number = |name: &str| {
        let text = std::env::var(name).ok()?;
        Some(text.parse::<u64>().unwrap_or_else(|error| panic!("{name}={text}: {error}")))
    };
    match number("SHARDMILL_TEST_SEED") {
        Some(seed) => vec![seed],
        None => {
            let more = number("SHARDMILL_TEST_SEEDS").unwrap_or(0);
            fixed.iter().copied().chain((0..more).map(|_| rand::random())).collect()
        }
    }
}
