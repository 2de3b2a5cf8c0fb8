//! A guest that copies records to its output `copies`, and that single records make go wrong: a payload that begins with
//! `{"poison":"…"` says how. It plays a processor that is good but for some records.

use std::time::Duration;

use shardmill_guest::prelude::*;

/// What the payload of a poison record begins with.
const POISON: &[u8] = br#"{"poison":""#;
/// What the payload of a record begins with up to which the checkpoint may go.
const MARK: &[u8] = br#"{"mark":"#;

/// The guest's configuration.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Settings {
    /// Whether poison records are like all others.
    pub mended: bool,
    /// How long each batch takes, in milliseconds.
    pub takes: u64,
    /// Whether the log tells of each call.
    pub tells: bool,
    /// The hooks that never return.
    pub hangs: Vec<String>,
}

/// The processor.
#[derive(Debug)]
pub struct Poison {
    settings: Settings,
}

// === impl Poison ===

impl Processor for Poison {
    type Config = Settings;

    fn new(settings: Settings) -> Result<Poison, Error> {
        let poison = Poison { settings };
        poison.tell("init");
        Ok(poison)
    }

    fn process(&mut self, shard: &ShardContext, batch: &Batch<'_>) -> Result<Outcome, Error> {
        let first = batch.iter().next().map(|record| {
            let position = record.position();
            format!("{}/{}", position.sequence_number, position.sub_sequence_number)
        });
        let first = first.unwrap_or_default();
        self.tell(&format!("batch of {} at attempt {} from {first}", batch.len(), shard.attempt));
        if self.settings.takes > 0 {
            std::thread::sleep(Duration::from_millis(self.settings.takes));
        }
        let mut outcome = batch.outcome();
        for record in batch {
            if record.data().starts_with(MARK) {
                outcome.checkpoint(record.position());
            }
            match self.poison(record.data()) {
                b"" => outcome.emit("copies", record).bytes(record.data())?,
                b"trap" => panic!("this record is poison"),
                b"hang" => hang(),
                b"reject" => return Err(Error::reject("this batch is poison")),
                b"retry" => return Err(Error::retry("this batch is poison")),
                b"stop" => return Err(Error::stop_shard("look at this")),
                b"fail" => outcome.fail(record, "this record is poison"),
                b"final" => outcome.fail_for_good(record, "this record is poison"),
                b"nowhere" => outcome.emit("nowhere", record).bytes(record.data())?,
                other => {
                    return Err(Error::reject(format_args!("a poison unheard of: {}", String::from_utf8_lossy(other))));
                }
            }
        }
        Ok(outcome)
    }
}

impl Hooks for Poison {
    fn assigned(&mut self, _shard: &ShardContext, _outcome: &mut HookOutcome) -> Result<(), Error> {
        self.hook("assigned");
        Ok(())
    }

    fn revoked(&mut self, _: &ShardContext, time_left: Duration, _: &mut HookOutcome) -> Result<(), Error> {
        self.tell(&format!("{} ms are left", time_left.as_millis()));
        self.hook("revoked");
        Ok(())
    }

    fn shard_ended(&mut self, _shard: &ShardContext, _outcome: &mut HookOutcome) -> Result<(), Error> {
        self.hook("shard-ended");
        Ok(())
    }

    fn given_up(&mut self, _: &ShardContext, records: &[GivenUpRecord], _: &mut HookOutcome) -> Result<(), Error> {
        for record in records {
            self.tell(&format!("given up after {} attempts: {}", record.attempts, record.reason));
        }
        self.hook("given-up");
        Ok(())
    }

    fn shutdown(&mut self) -> Result<(), Error> {
        self.hook("shutdown");
        Ok(())
    }
}

impl Poison {
    /// What makes a record poison; nothing if it is none.
    fn poison<'a>(&self, data: &'a [u8]) -> &'a [u8] {
        let kind = data.strip_prefix(POISON).filter(|_| !self.settings.mended);
        kind.map_or(b"", |kind| kind.split(|byte| *byte == b'"').next().unwrap_or_default())
    }

    fn hook(&self, name: &str) {
        self.tell(name);
        if self.settings.hangs.iter().any(|hangs| hangs == name) {
            hang();
        }
    }

    fn tell(&self, text: &str) {
        if self.settings.tells {
            info!("told: {text}");
        }
    }
}

fn hang() -> ! {
    loop {
        std::hint::black_box(());
    }
}

shardmill_guest::processor!(Poison, hooks);

#[cfg(test)]
mod tests {
    use shardmill_guest::testing;

    use super::*;

    #[test]
    fn records_are_copied_but_for_poison() {
        let mut guest = Poison::new(Settings::default()).unwrap();
        let result = testing::run(&mut guest, [r#"{"n":1}"#, r#"{"poison":"final","n":2}"#, r#"{"n":3}"#]).unwrap();
        assert!(!result.all_done());
        assert_eq!(result.outputs("copies").len(), 2);
        let rejected = testing::run(&mut guest, [r#"{"poison":"reject"}"#]);
        assert!(matches!(rejected, Err(Error::Reject { .. })), "{rejected:?}");
        let mut mended = Poison::new(Settings { mended: true, ..Settings::default() }).unwrap();
        assert!(testing::run(&mut mended, [r#"{"poison":"trap"}"#]).unwrap().all_done());
    }
}
