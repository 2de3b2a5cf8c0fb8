//! Keeps the flights that left late, and adds the airline's name: a plugin to copy from.

mod delay;

use std::borrow::Cow;
use std::collections::BTreeMap;

use shardmill_guest::prelude::*;

/// The `config` table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// A flight is late if it left more than so many minutes after its time.
    #[serde(default = "fifteen")]
    minutes: u32,
    /// Names of airlines by their carrier code. A code without a name stands for itself.
    #[serde(default)]
    airlines: BTreeMap<String, String>,
}

/// The processor.
#[derive(Debug)]
pub struct FlightDelays {
    settings: Settings,
}

/// What has to be known of a flight to tell whether it is kept.
#[derive(Debug, Deserialize)]
struct Flight<'a> {
    #[serde(borrow)]
    carrier: Cow<'a, str>,
    /// In minutes. A flight that never left has none, but it has the field.
    #[serde(deserialize_with = "delay::minutes")]
    dep_delay: Option<f64>,
}

/// A flight with all its fields, known here or not.
type WholeFlight = BTreeMap<String, serde_json::Value>;

// === impl FlightDelays ===

impl RecordProcessor for FlightDelays {
    type Config = Settings;

    fn new(settings: Settings) -> Result<FlightDelays, Error> {
        Ok(FlightDelays { settings })
    }

    fn process_record(
        &mut self,
        _shard: &ShardContext,
        record: Record<'_>,
        outcome: &mut RecordOutcome<'_, '_>,
    ) -> Result<(), RecordError> {
        let flight: Flight = record.json()?;
        if !flight.dep_delay.is_some_and(|delay| delay > f64::from(self.settings.minutes)) {
            return Ok(());
        }
        // Most flights are on time: only of the others the rest is read.
        let mut delayed: WholeFlight = record.json()?;
        delayed.insert("airline".to_owned(), self.airline(&flight.carrier).into());
        outcome.emit("delays").partition_key(&flight.carrier).json(&delayed)?;
        Ok(())
    }
}

impl FlightDelays {
    fn airline<'a>(&'a self, carrier: &'a str) -> &'a str {
        self.settings.airlines.get(carrier).map_or(carrier, String::as_str)
    }
}

/// What the aviation authorities of the USA count as late.
fn fifteen() -> u32 {
    15
}

shardmill_guest::processor!(FlightDelays);
