//! What the command line of `shardmill tail` says.

use std::time::Duration;

use clap::{Args, ValueEnum};
use shardmill_record::{OutOfRange, Position, ShardId};

use super::filter::Field;
use super::show::Output;
use super::start::{self, Start};
use crate::cli::{Failure, access};
use crate::unix_ms;

pub(crate) const EXAMPLES: &str = "\
Examples:
  shardmill tail orders                                     what comes from now on, until Ctrl-C
  shardmill tail orders --from trim-horizon --until-idle    all that there is, then the end
  shardmill tail orders --from 15m --key customer-7         of one key, of the last quarter of an hour
  shardmill tail orders --where /status=failed --where /attempt=3 --max-records 10
  shardmill tail orders --json | jq -r .data
  shardmill tail orders --from 2h --to 1h --output data > payloads        what is in the records, byte for byte
  shardmill tail orders --from 1h --to now --json | shardmill put copy --format tail-json
  shardmill tail orders --shard shardId-000000000000 --after 4957…/2
  shardmill tail flights --endpoint-url http://127.0.0.1:4567

KPL aggregates are taken apart. Records of a shard are shown in order, and a shard that follows a split or a merge after
its parents. No lease is taken and no checkpoint moves; but reads count with those of other consumers of the shard that
poll, so that they are kept slow (--reads-per-second).

With --json a record is one line: `position` is what --from and --after take, `arrived_at` is in milliseconds since 1970,
and the payload is `data` if it is UTF-8, else `data_base64`. Characters that a terminal would obey are shown escaped, but for
--output data, which is for files and pipes. Whatever is to be said besides is said on standard error.

A record whose key does not belong to its shard is marked (`out_of_range`): a producer had an old list of the shards, and most
likely has put it into the right shard as well.";

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The stream, by its name or ARN.
    #[arg(value_name = "STREAM", value_parser = access::stream)]
    pub(super) stream: String,
    /// Begin there: trim-horizon, latest, how long ago (15m), a day, a time (2026-07-01T12:00:00Z), or with --shard the
    /// position of a record.
    #[arg(long, value_name = "WHERE", default_value = "latest", value_parser = from)]
    pub(super) from: Start,
    /// Begin behind the record at this position.
    #[arg(long, value_name = "POSITION", conflicts_with = "from", requires = "shards", value_parser = start::position)]
    pub(super) after: Option<Position>,
    /// End with what has arrived before this time: `now`, how long ago (15m), a day, or a time, which may be still to come. A
    /// shard has come so far when a whole page of it is later, or it is read to its tip after that.
    #[arg(long, value_name = "TIME", value_parser = to)]
    pub(super) to: Option<u64>,
    /// Read this shard alone, and not what follows it; may be given more than once.
    #[arg(long = "shard", value_name = "ID", value_parser = shard_id)]
    pub(super) shards: Vec<ShardId>,
    /// Show records of this partition key; may be given more than once, for any of them.
    #[arg(long = "key", value_name = "KEY")]
    pub(super) keys: Vec<String>,
    /// Show records whose payload contains this text; may be given more than once, for all of them.
    #[arg(long, value_name = "TEXT")]
    pub(super) contains: Vec<String>,
    /// Show records whose payload is JSON with this value at this JSON pointer, such as /user/id=42; may be given more than
    /// once, for all of them.
    #[arg(long = "where", value_name = "POINTER=VALUE", value_parser = Field::parse)]
    pub(super) fields: Vec<Field>,
    /// End when so many records have been shown.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) max_records: Option<u64>,
    /// End when all shards are read to their tips and nothing has come for so long (5s if no time is named).
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "5s", value_parser = quiet)]
    pub(super) until_idle: Option<Duration>,
    /// How often a shard is read, of the 5 times a second that all its consumers have together; and as much of its
    /// 2 MiB a second.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=5))]
    pub(super) reads_per_second: u32,
    /// What becomes of copies outside the range of hash keys of their shard, as they come of a producer whose list of shards
    /// was old: `deliver` shows and marks them, `drop` leaves them out.
    #[arg(long, value_enum, default_value = "deliver", value_name = "WHAT")]
    pub(super) out_of_range: Copies,
    /// Print a JSON object for each record, one a line: the same as --output json.
    #[arg(long, conflicts_with = "output")]
    pub(super) json: bool,
    /// What is printed of a record: a line for people, a JSON object, or its payload as it is.
    #[arg(long, value_enum, default_value = "text")]
    pub(super) output: Output,
    /// What follows each payload of --output data: a line's end unless it is named; \n, \t, \0 and \\ stand for themselves, and
    /// an empty text for nothing.
    #[arg(long, value_name = "TEXT", value_parser = separator)]
    pub(super) separator: Option<Separator>,
    #[command(flatten)]
    pub(super) access: access::Arguments,
}

/// What becomes of records outside the range of their shard.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum Copies {
    Deliver,
    Drop,
}

/// What follows a payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Separator(pub(super) Vec<u8>);

// === impl Arguments ===

impl Arguments {
    /// Where it begins, where everything that is said of it goes together.
    pub(super) fn start(&self) -> Result<Start, Failure> {
        let start = match &self.after {
            Some(position) => Start::After(position.clone()),
            None => self.from.clone(),
        };
        let has_one_shard = matches!(self.shards.as_slice(), [_one]);
        if start.is_position() && !has_one_shard {
            return Err(Failure::usage("a position is one of one shard: name the shard with --shard ID"));
        }
        if let (Start::Time(from), Some(to)) = (&start, self.to)
            && to <= *from
        {
            return Err(Failure::usage("--to is not later than --from, so that there is nothing between them"));
        }
        if self.separator.is_some() && self.output() != Output::Data {
            return Err(Failure::usage("--separator is for --output data"));
        }
        Ok(start)
    }

    pub(super) fn output(&self) -> Output {
        if self.json { Output::Json } else { self.output }
    }

    pub(super) fn separator(&self) -> &[u8] {
        self.separator.as_ref().map_or(b"\n", |Separator(text)| text)
    }
}

// === impl Copies ===

impl From<Copies> for OutOfRange {
    fn from(copies: Copies) -> Self {
        match copies {
            Copies::Deliver => Self::Deliver,
            Copies::Drop => Self::Drop,
        }
    }
}

fn from(text: &str) -> Result<Start, String> {
    Start::parse(text, unix_ms::now())
}

fn shard_id(text: &str) -> Result<ShardId, String> {
    ShardId::parse(text).map_err(|error| error.to_string())
}

fn to(text: &str) -> Result<u64, String> {
    start::end(text, unix_ms::now())
}

fn quiet(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| {
        let is_name = text.starts_with(|first: char| !first.is_ascii_digit());
        let hint = if is_name { "; a stream is named in front of it: tail STREAM --until-idle" } else { "" };
        format!("a time such as 5s is expected ({error}){hint}")
    })
}

fn separator(text: &str) -> Result<Separator, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match (character, (character == '\\').then(|| characters.next()).flatten()) {
            ('\\', Some('n')) => bytes.push(b'\n'),
            ('\\', Some('t')) => bytes.push(b'\t'),
            ('\\', Some('0')) => bytes.push(b'\0'),
            ('\\', Some('\\')) => bytes.push(b'\\'),
            ('\\', _other) => return Err("behind a backslash n, t, 0 or another backslash is expected".to_owned()),
            (plain, _) => bytes.extend_from_slice(plain.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Ok(Separator(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_separator_is_a_text_with_a_few_that_cannot_be_typed() {
        assert_eq!(separator("\\n--\\0é"), Ok(Separator("\n--\0é".into())));
        assert_eq!(separator(""), Ok(Separator(Vec::new())));
        assert!(separator("\\x").is_err() && separator("\\").is_err());
    }

    #[test]
    fn a_stream_in_the_place_of_a_time_is_told() {
        assert_eq!(quiet("2s"), Ok(Duration::from_secs(2)));
        assert!(quiet("orders").unwrap_err().contains("tail STREAM --until-idle"));
        assert!(!quiet("5").unwrap_err().contains("STREAM"));
    }
}
