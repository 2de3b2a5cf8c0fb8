//! `shardmill dead-letters`: look at records that were given up, and send them again.

mod list;
mod payload;
mod places;
mod replay;
mod sender;
mod show;

use clap::{Args, Subcommand};

use super::{Failure, when};
use crate::dead_letters::read::Filter;
use crate::unix_ms;
use places::Places;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List dead letters, those of each shard in the order of its records.
    #[command(after_help = list::EXAMPLES)]
    List(list::Arguments),
    /// Show a dead letter with its payload.
    #[command(after_help = show::EXAMPLES)]
    Show(show::Arguments),
    /// Send the records of dead letters again, as they were: key, hash key and payload.
    #[command(after_help = replay::EXAMPLES)]
    Replay(replay::Arguments),
}

/// Which letters.
#[derive(Debug, Args)]
struct Wanted {
    /// Only those that this processor gave up.
    #[arg(long, value_name = "NAME")]
    processor: Option<String>,
    /// Only those whose records came from this stream, by its name or ARN.
    #[arg(long, value_name = "STREAM")]
    from: Option<String>,
    /// Only those that were given up since then: a time such as 2026-07-01T12:00:00Z, a day, or how long ago, such as 2h.
    #[arg(long, value_name = "TIME", value_parser = since)]
    since: Option<u64>,
    /// Only those whose reason contains this text, in letters of either case.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

pub(super) async fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::List(arguments) => list::list(arguments).await,
        Command::Show(arguments) => show::show(arguments).await,
        Command::Replay(arguments) => replay::replay(arguments).await,
    }
}

// === impl Wanted ===

impl Wanted {
    fn filter(&self, id: Option<&str>, places: &Places) -> Filter {
        Filter {
            application: places.application().map(str::to_owned),
            id: id.map(str::to_ascii_lowercase),
            processor: self.processor.clone(),
            from: self.from.clone(),
            since: self.since,
            reason: self.reason.clone(),
        }
    }
}

/// Letters that the configuration's application has nothing to do with, as they are told; nothing if there are none.
fn passed_over(others: u64) -> String {
    match others {
        0 => String::new(),
        1 => " 1 letter of another application is passed over.".to_owned(),
        others => format!(" {others} letters of other applications are passed over."),
    }
}

fn since(text: &str) -> Result<u64, String> {
    since_at(text, unix_ms::now())
}

fn since_at(text: &str, now: u64) -> Result<u64, String> {
    if let Some(at) = when::ago(text, now) {
        return Ok(at);
    }
    let time = humantime::parse_rfc3339_weak(&when::beginning(text));
    time.map(unix_ms::of)
        .map_err(|_| "a time such as 2026-07-01T12:00:00Z, a day, or how long ago, such as 2h".to_owned())
}

/// The beginning of an id, long enough not to be a slip.
fn id(text: &str) -> Result<String, String> {
    if (4..=20).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(text.to_ascii_lowercase());
    }
    Err("an id of `dead-letters list` is expected, or at least its first 4 digits".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_moment_a_day_or_how_long_ago() {
        let now = 1_790_000_000_000;
        for (text, milliseconds) in [
            ("2h", 1_790_000_000_000 - 7_200_000),
            ("1m 30s", 1_790_000_000_000 - 90_000),
            ("90000days", 0),
            ("2026-09-21", 1_789_948_800_000),
            ("2026-09-21T14:13:20Z", 1_790_000_000_000),
            ("2026-09-21 14:13:20", 1_790_000_000_000),
            ("2026-09-21T14:13:20.500Z", 1_790_000_000_500),
        ] {
            assert_eq!(since_at(text, now), Ok(milliseconds), "{text}");
        }
        for text in ["", "yesterday", "1790000000000", "2026-13-01", "2h ago", "éééééé"] {
            assert!(since_at(text, now).is_err(), "{text}");
        }
    }

    #[test]
    fn an_id_is_hexadecimal_and_may_be_cut() {
        assert_eq!(id("9F3c"), Ok("9f3c".to_owned()));
        for text in ["", "9f3", "9f3x", "-9f3c", &"9".repeat(21)] {
            assert!(id(text).is_err(), "{text}");
        }
    }
}
