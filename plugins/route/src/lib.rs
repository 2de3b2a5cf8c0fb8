//! Sends each JSON record to one of several outputs, by the value of a field. What it sends is what it got, byte for
//! byte.

mod path;
mod settings;

use shardmill_guest::prelude::*;

pub use path::Path;
pub use settings::{InvalidJson, Settings};

/// The processor.
#[derive(Debug)]
pub struct Route {
    settings: Settings,
}

// === impl Route ===

impl RecordProcessor for Route {
    type Config = Settings;

    fn new(settings: Settings) -> Result<Route, Error> {
        settings.check().map_err(Error::reject)?;
        Ok(Route { settings })
    }

    fn process_record(
        &mut self,
        _shard: &ShardContext,
        record: Record<'_>,
        outcome: &mut RecordOutcome<'_, '_>,
    ) -> Result<(), RecordError> {
        let value = match self.settings.field.find(record.data()) {
            Ok(value) => value,
            Err(error) => return self.invalid_json(&error, record, outcome),
        };
        let route = value.as_deref().and_then(|value| self.settings.routes.get(value));
        let Some(output) = route.or(self.settings.default.as_ref()) else {
            match value {
                Some(value) => outcome.skip(format_args!("no route for {value:?}")),
                None => outcome.skip(format_args!("no value at {}", self.settings.field)),
            }
            return Ok(());
        };
        match &self.settings.partition_key {
            None => outcome.emit(output).bytes(record.data())?,
            Some(path) => {
                let key = path
                    .find(record.data())?
                    .ok_or_else(|| RecordError::for_good(format_args!("no value at {path} to be the partition key")))?;
                outcome.emit(output).partition_key(&key).bytes(record.data())?;
            }
        }
        Ok(())
    }
}

impl Route {
    fn invalid_json(
        &self,
        error: &serde_json::Error,
        record: Record<'_>,
        outcome: &mut RecordOutcome<'_, '_>,
    ) -> Result<(), RecordError> {
        match &self.settings.invalid_json {
            InvalidJson::Fail => Err(RecordError::for_good(format_args!("invalid JSON: {error}"))),
            InvalidJson::Skip => {
                outcome.skip(format_args!("invalid JSON: {error}"));
                Ok(())
            }
            InvalidJson::Output(name) => Ok(outcome.emit(name).bytes(record.data())?),
        }
    }
}

shardmill_guest::processor!(Route);
