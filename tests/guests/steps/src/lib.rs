//! A guest that takes each JSON record apart, counts a field of it up and writes it again, so many times. The benchmark of
//! pipelines runs it as three processors of one step each, and as one of three.

use serde_json::Value;
use shardmill_guest::prelude::*;

/// The guest's configuration.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// How often.
    pub steps: u32,
}

/// The processor.
#[derive(Debug)]
pub struct Steps {
    settings: Settings,
}

// === impl Steps ===

impl RecordProcessor for Steps {
    type Config = Settings;

    fn new(settings: Settings) -> Result<Steps, Error> {
        Ok(Steps { settings })
    }

    fn process_record(
        &mut self,
        _shard: &ShardContext,
        record: Record<'_>,
        outcome: &mut RecordOutcome<'_, '_>,
    ) -> Result<(), RecordError> {
        let mut data = step(record.data())?;
        for _ in 1..self.settings.steps {
            data = step(&data)?;
        }
        outcome.emit("on").bytes(&data)?;
        Ok(())
    }
}

shardmill_guest::processor!(Steps);

/// The record with its `steps` one higher.
fn step(data: &[u8]) -> Result<Vec<u8>, RecordError> {
    let mut value: Value =
        serde_json::from_slice(data).map_err(|error| RecordError::for_good(format_args!("no JSON: {error}")))?;
    let steps = value["steps"].as_u64().unwrap_or(0);
    value["steps"] = (steps + 1).into();
    serde_json::to_vec(&value).map_err(|error| RecordError::for_good(format_args!("{error}")))
}

#[cfg(test)]
mod tests {
    use shardmill_guest::testing;

    use super::*;

    #[test]
    fn each_step_counts_one_up() {
        let mut steps = <Steps as RecordProcessor>::new(Settings { steps: 3 }).unwrap();
        let result = testing::run(&mut steps, ["{\"n\":1}", "{\"steps\":4}"]).unwrap();
        let data: Vec<Value> =
            result.outputs("on").iter().map(|output| serde_json::from_slice(&output.data).unwrap()).collect();
        assert_eq!(data[0], serde_json::json!({ "n": 1, "steps": 3 }));
        assert_eq!(data[1]["steps"], 7);
    }
}
