//! The processor of the benchmarks: it looks at every byte of every payload, and emits nothing.
#![cfg(target_arch = "wasm32")]

use shardmill_guest::prelude::*;

struct CountBytes {
    seen: u64,
}

impl Processor for CountBytes {
    type Config = NoConfig;

    fn new(_: NoConfig) -> Result<Self, Error> {
        Ok(CountBytes { seen: 0 })
    }

    fn process(&mut self, _: &ShardContext, batch: &Batch<'_>) -> Result<Outcome, Error> {
        for record in batch {
            self.seen += record.data().iter().filter(|byte| **byte == b'a').count() as u64;
        }
        // Or the compiler would see that nobody reads it.
        std::hint::black_box(self.seen);
        Ok(batch.outcome())
    }
}

shardmill_guest::processor!(CountBytes);
