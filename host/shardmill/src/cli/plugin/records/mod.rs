//! Records for a plugin, out of files in place of a stream.

mod batching;

use std::path::{Path, PathBuf};

use clap::Args;
use shardmill_cause::{Coded, code, with_causes};
use shardmill_record::{Record, SequenceNumber, ShardId, UserRecord};

pub(super) use self::batching::{Batching, Fate, Handed};
use crate::cli::put::tail_json::{self, Origin};
use crate::cli::put::{Bad, Format, Input, InputArguments, InputError, Item, Key, Place, Reading, Rules};
use crate::cli::{Failure, output};
use crate::unix_ms;

/// How Kinesis' own numbers begin; where a record stands among the others follows.
const FIRST_DIGITS: &str = "495900000000000000000000000000000000";

#[derive(Debug, Args)]
pub(super) struct RecordArguments {
    /// Records: JSON lines, as `shardmill tail --json` prints them or payloads, plain lines, or CSV; `-` for standard
    /// input. May be given again.
    #[arg(long = "records", value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    input: InputArguments,
    /// When records arrived whose lines do not say it: a time such as 2026-07-01T12:00:00Z. Now, unless this is named.
    #[arg(long, value_name = "TIME", value_parser = time)]
    arrived_at: Option<u64>,
    /// The shard of records whose lines do not say it.
    #[arg(long, value_name = "ID", default_value = "shardId-000000000000", value_parser = ShardId::parse)]
    shard: ShardId,
    /// So many records in a batch; by default as many as the configuration says.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    batch: Option<u32>,
}

/// Records that are being read, one after another.
#[derive(Debug)]
pub(super) struct Records {
    reading: Reading,
    read: std::vec::IntoIter<Item>,
    names: Vec<String>,
    rules: Rules,
    /// Whether lines are those of `shardmill tail --json`; `None` before the first one has said it.
    is_tail: Option<bool>,
    shard: ShardId,
    arrived_at: u64,
    /// How many there were.
    count: u64,
}

/// A record as it would come from a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) place: Place,
    pub(super) shard: ShardId,
    pub(super) sequence_number: SequenceNumber,
    pub(super) sub_sequence_number: u64,
    /// In milliseconds since 1970.
    pub(super) arrived_at: u64,
    pub(super) record: UserRecord,
}

/// A place that holds no record.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NoRecord {
    pub(super) place: Place,
    pub(super) reason: String,
}

// === impl RecordArguments ===

impl RecordArguments {
    /// The files that are read; standard input is not among them.
    pub(super) fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(PathBuf::as_path).filter(|file| *file != Path::new("-"))
    }

    /// Whether something is read that can be read once only.
    pub(super) fn reads_standard_input(&self) -> bool {
        self.files.iter().any(|file| file == Path::new("-"))
    }

    /// How many records make a batch, if that is said.
    pub(super) fn batch(&self) -> Option<usize> {
        self.batch.map(|records| records as usize)
    }

    pub(super) fn open(&self) -> Result<Records, Failure> {
        let mut rules = self.input.rules(&self.files)?;
        let is_tail = match rules.format {
            Format::TailJson => Some(true),
            Format::Lines | Format::Jsonl if self.input.is_open() => None,
            _other => Some(false),
        };
        if is_tail == Some(true) {
            // What else stands in their lines is wanted as well.
            rules.format = Format::Lines;
        }
        let input = Input::open(&self.files).map_err(|error| unreadable(&error))?;
        let names = input.names();
        let reading = input.start(rules.clone()).map_err(|error| {
            Failure::running(format!("the records cannot be read: {error}")).code(code::input::UNREADABLE)
        })?;
        let arrived_at = self.arrived_at.unwrap_or_else(unix_ms::now);
        let (read, shard) = (Vec::new().into_iter(), self.shard.clone());
        Ok(Records { reading, read, names, rules, is_tail, shard, arrived_at, count: 0 })
    }
}

// === impl Records ===

impl Records {
    /// The next record, or what is none; `None` at the end.
    ///
    /// # Errors
    /// If nothing more can be read.
    pub(super) async fn next(&mut self) -> Result<Option<Result<Given, NoRecord>>, Failure> {
        loop {
            if let Some(item) = self.read.next() {
                let place = item.place;
                return Ok(Some(self.given(item).map_err(|reason| NoRecord { place, reason })));
            }
            match self.reading.next().await {
                Some(Ok(items)) => self.read = items.into_iter(),
                Some(Err(error)) => return Err(unreadable(&error)),
                None => return Ok(None),
            }
        }
    }

    /// Where a place is, for people.
    pub(super) fn name(&self, place: Place) -> String {
        match &self.names[..] {
            [_only] => format!("line {}", place.line),
            names => format!("{}, line {}", names.get(place.file).map_or("", String::as_str), place.line),
        }
    }

    /// The file of a place.
    pub(super) fn file(&self, place: Place) -> &str {
        self.names.get(place.file).map_or("", String::as_str)
    }

    fn given(&mut self, item: Item) -> Result<Given, String> {
        let mut record = item.record.map_err(|bad| bad.to_string())?;
        let is_tail = *self.is_tail.get_or_insert_with(|| tail_json::is_one(&record.data));
        let mut origin = Origin::default();
        if is_tail {
            let told = |reason| Bad::Tail(reason).to_string();
            origin = tail_json::origin(&record.data).map_err(told)?;
            record = tail_json::record(&record.data).map_err(told)?;
        }
        self.count += 1;
        if self.count == 1 && self.rules.format == Format::Lines && begins_json(&record.data) {
            output::say(format_args!(
                "each line is a record, and the first one begins JSON that has several: `jq -c '.[]'` makes a line of each \
                 element of an array, and `jq -c .` of each object"
            ));
        }
        if !is_tail && self.rules.key == Key::Random {
            // Another one for each, and the same ones in the next run.
            record.partition_key = format!("record-{}", self.count);
        }
        let sequence_number = origin.sequence_number.unwrap_or_else(|| format!("{FIRST_DIGITS}{:020}", self.count));
        let shard = origin.shard.map_or_else(|| Ok(self.shard.clone()), |shard| ShardId::parse(&shard));
        Ok(Given {
            place: item.place,
            shard: shard.map_err(|error| error.to_string())?,
            sequence_number: SequenceNumber::parse(&sequence_number).map_err(|error| error.to_string())?,
            sub_sequence_number: origin.sub_sequence_number.unwrap_or(0),
            arrived_at: origin.arrived_at.unwrap_or(self.arrived_at),
            record,
        })
    }
}

// === impl Given ===

impl Given {
    /// What a batch has of it; its explicit hash key is needed as text.
    pub(super) fn as_record<'a>(&'a self, explicit_hash_key: Option<&'a str>) -> Record<'a> {
        Record {
            sequence_number: self.sequence_number.as_str(),
            sub_sequence_number: self.sub_sequence_number,
            partition_key: &self.record.partition_key,
            explicit_hash_key,
            approximate_arrival: self.arrived_at,
            data: &self.record.data,
        }
    }
}

/// Whether a line is where an array or an object begins whose elements are on lines of their own.
fn begins_json(line: &[u8]) -> bool {
    matches!(line.trim_ascii(), b"[" | b"{" | b"[{")
}

fn unreadable(error: &InputError) -> Failure {
    Failure::running(with_causes(error)).code(error.code())
}

fn time(text: &str) -> Result<u64, String> {
    humantime::parse_rfc3339_weak(text).map(unix_ms::of).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use tempfile::TempDir;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        records: RecordArguments,
    }

    /// Of each record its key, its payload, its number, its shard and its arrival; or what is wrong.
    async fn all(name: &str, text: &str, options: &[&str]) -> Vec<Result<String, String>> {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        let arguments = [&["x", "--arrived-at", "1970-01-01T00:00:01Z", "--records", path.to_str().unwrap()], options];
        let mut records = Line::parse_from(arguments.concat()).records.open().unwrap();
        let mut found = Vec::new();
        while let Some(next) = records.next().await.unwrap() {
            found.push(match next {
                Ok(Given { shard, sequence_number, sub_sequence_number, arrived_at, record, place: _ }) => {
                    let (key, data) = (record.partition_key, String::from_utf8(record.data.to_vec()).unwrap());
                    let number = sequence_number.as_str().trim_start_matches(FIRST_DIGITS).trim_start_matches('0');
                    Ok(format!("{key} {data} {number}/{sub_sequence_number} {shard} {arrived_at}"))
                }
                Err(bad) => Err(format!("{}: {}", records.name(bad.place), bad.reason)),
            });
        }
        found
    }

    #[tokio::test]
    async fn lines_are_records_with_keys_and_numbers_that_do_not_change() {
        let found = all("a.txt", "one\n\ntwo\n", &[]).await;
        let expected = ["record-1 one 1/0 shardId-000000000000 1000", "record-2 two 2/0 shardId-000000000000 1000"];
        assert_eq!(found, expected.map(|record| Ok(record.to_owned())));
        let found = all("a.csv", "k,v\na,1\n", &["--key-column", "k", "--shard", "s-1"]).await;
        assert_eq!(found, [Ok(r#"a {"k":"a","v":"1"} 1/0 s-1 1000"#.to_owned())]);
        let found = all("a.jsonl", "{\"k\":7}\n{\n", &["--key-field", "/k"]).await;
        assert_eq!(found[0].as_deref(), Ok(r#"7 {"k":7} 1/0 shardId-000000000000 1000"#));
        assert!(found[1].as_ref().unwrap_err().starts_with("line 2: it is not JSON"), "{found:?}");
    }

    #[tokio::test]
    async fn lines_of_tail_are_known_by_the_first_one_and_keep_where_they_were() {
        let text = concat!(
            r#"{"stream":"a","shard":"s-7","sequence_number":"4957","sub_sequence_number":2,"arrived_at":5,"partition_key":"k","data":"x"}"#,
            "\n",
            r#"{"partition_key":"l","data_base64":"eQ=="}"#,
            "\noops\n",
            r#"{"partition_key":"l","data":"z","sequence_number":"no"}"#,
        );
        for options in [&[][..], &["--format", "tail-json"]] {
            let found = all("a.jsonl", text, options).await;
            assert_eq!(found[0].as_deref(), Ok("k x 4957/2 s-7 5"));
            assert_eq!(found[1].as_deref(), Ok("l y 2/0 shardId-000000000000 1000"));
            assert!(found[2].as_ref().unwrap_err().starts_with("line 3: it is not"), "{found:?}");
            assert!(found[3].as_ref().unwrap_err().contains("line 4: `no` is not a sequence number"), "{found:?}");
        }
        // Who says how the input is written is believed.
        let found = all("a.jsonl", r#"{"partition_key":"l","data":"z"}"#, &["--format", "jsonl"]).await;
        assert!(found[0].as_ref().unwrap().starts_with("record-1 {"), "{found:?}");
    }
}
