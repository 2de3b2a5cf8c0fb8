//! A guest written with the kit that looks at every byte and does little with it: for each batch it emits how often a
//! byte occurs in the payloads. The benchmark of the guest call runs it as a component and calls it natively.

mod occurrences;

use shardmill_guest::prelude::*;

pub use occurrences::occurrences;

/// The guest's configuration.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The byte to count. Without, no payload is looked at: what is left is the call.
    pub byte: Option<u8>,
    /// Whether nothing is emitted.
    #[serde(default)]
    pub silent: bool,
}

/// The processor.
#[derive(Debug)]
pub struct Count {
    settings: Settings,
}

// === impl Count ===

impl Processor for Count {
    type Config = Settings;

    fn new(settings: Settings) -> Result<Count, Error> {
        Ok(Count { settings })
    }

    fn process(&mut self, _shard: &ShardContext, batch: &Batch<'_>) -> Result<Outcome, Error> {
        let mut outcome = batch.outcome();
        let total: u64 = match self.settings.byte {
            Some(byte) => batch.iter().map(|record| occurrences(record.data(), byte)).sum(),
            None => 0,
        };
        if self.settings.silent {
            // Or the compiler would see that nobody reads it.
            std::hint::black_box(total);
        } else {
            outcome.emit_for_batch("out", "occurrences").json(&total)?;
        }
        Ok(outcome)
    }
}

shardmill_guest::processor!(Count);

#[cfg(test)]
mod tests {
    use shardmill_guest::testing;

    use super::*;

    #[test]
    fn occurrences_are_summed_over_the_batch() {
        let mut count = Count::new(Settings { byte: Some(b','), ..Settings::default() }).unwrap();
        let result = testing::run(&mut count, ["a,b,c", "", ",", "none"]).unwrap();
        assert!(result.all_done());
        assert_eq!(result.outputs("out")[0].data, b"3");
    }
}
