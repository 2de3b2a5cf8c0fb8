//! The log: lines on standard error, for people or as JSON.

use std::fmt::Write as _;
use std::io::{self, IsTerminal};
use std::sync::OnceLock;

use tracing_subscriber::EnvFilter;

use crate::config::{Log, LogFormat};
use crate::text;

/// Why the log cannot be set up.
#[derive(Debug, thiserror::Error)]
#[error(
    "`{filter}` is not a log filter: a level (error, warn, info, debug, trace) or directives such as \"info,shardmill_lease=debug\" are expected"
)]
pub struct Error {
    filter: String,
}

/// Puts another filter in the place of the log's.
type SetFilter = Box<dyn Fn(EnvFilter) + Send + Sync>;

/// Of the log that [`init`] has set up.
static SET_FILTER: OnceLock<SetFilter> = OnceLock::new();

/// Whether the log has another filter now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Changed {
    Yes,
    /// Not, and why.
    No(&'static str),
}

/// Sets up the process's log. `RUST_LOG` takes the place of the configured filter. A second call changes nothing.
pub fn init(log: &Log) -> Result<(), Error> {
    let filter = filter(&of_environment().unwrap_or_else(|| log.filter.clone()))?;
    let colored = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let json = log.format == LogFormat::Json;
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(move || Out { colored, json }).with_ansi(colored);
    // An error only says that a log is set up already, by a program that uses this crate as a library.
    match log.format {
        LogFormat::Human => {
            let builder = builder.with_target(false).with_filter_reloading();
            let handle = builder.reload_handle();
            keep(builder.try_init().is_ok(), Box::new(move |filter| _ = handle.reload(filter)));
        }
        LogFormat::Json => {
            let builder = builder.json().flatten_event(true).with_filter_reloading();
            let handle = builder.reload_handle();
            keep(builder.try_init().is_ok(), Box::new(move |filter| _ = handle.reload(filter)));
        }
    }
    Ok(())
}

/// Puts another filter in the place of the configured one.
pub(crate) fn set_filter(text: &str) -> Result<Changed, Error> {
    if of_environment().is_some() {
        return Ok(Changed::No("RUST_LOG takes its place"));
    }
    let Some(set) = SET_FILTER.get() else { return Ok(Changed::No("another log was set up")) };
    set(filter(text)?);
    Ok(Changed::Yes)
}

fn keep(is_ours: bool, set: SetFilter) {
    if is_ours {
        let _earlier = SET_FILTER.set(set);
    }
}

fn of_environment() -> Option<String> {
    std::env::var("RUST_LOG").ok().filter(|text| !text.is_empty())
}

fn filter(text: &str) -> Result<EnvFilter, Error> {
    // The local backend's parts log each answer that is an error; the host says itself what an error means.
    // And what traces guests' requests shows their paths, which may have secrets in them.
    let quiet = "ferrokinesis=off,dynoxide=off,wasmtime_wasi_http=off";
    EnvFilter::try_new(format!("{quiet},{text}")).map_err(|_| Error { filter: text.to_owned() })
}

/// Standard error. Values are what services and other people have written, and no commands to a terminal; where nobody reads
/// the log, the work goes on.
#[derive(Debug, Clone, Copy)]
struct Out {
    colored: bool,
    json: bool,
}

// === impl Out ===

impl io::Write for Out {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        // The formatter writes texts.
        let shown = self.shown(&String::from_utf8_lossy(event));
        let _unread = io::stderr().lock().write_all(shown.as_bytes());
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Out {
    fn shown(self, event: &str) -> String {
        let mut shown = String::with_capacity(event.len());
        let mut rest = event;
        while let Some(character) = rest.chars().next() {
            let color = if self.colored { color(rest) } else { 0 };
            let (part, after) = rest.split_at(color.max(character.len_utf8()));
            rest = after;
            if color > 0 || character == '\n' || !text::is_hazardous(character) {
                shown.push_str(part);
            } else if self.json {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    // A text takes all that is written to it.
                    let _ = write!(shown, "\\u{unit:04x}");
                }
            } else {
                shown.extend(character.escape_default());
            }
        }
        shown
    }
}

/// How long the change of colour is with which a text begins; 0 if it begins with something else.
fn color(text: &str) -> usize {
    let Some(numbers) = text.strip_prefix("\u{1b}[") else { return 0 };
    let end = numbers.find(|character: char| !character.is_ascii_digit() && character != ';');
    match end {
        Some(end) if numbers[end..].starts_with('m') => "\u{1b}[".len() + end + "m".len(),
        _other => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_all_that_a_terminal_obeys_of_a_line() {
        let event = "\u{1b}[33m WARN\u{1b}[0m a\u{1b}[2Jb\u{9b}2J\u{202e}c é\n";
        let out = |colored, json| Out { colored, json }.shown(event);
        assert_eq!(out(true, false), "\u{1b}[33m WARN\u{1b}[0m a\\u{1b}[2Jb\\u{9b}2J\\u{202e}c é\n");
        assert!(!out(false, false).contains('\u{1b}'));
        let json = Out { colored: false, json: true }.shown("{\"a\":\"\u{9b}2J\u{202e}\"}\n");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap()["a"], "\u{9b}2J\u{202e}");
        assert!(!json.trim_end().chars().any(text::is_hazardous));
    }
}
