//! The log: lines on standard error, for people or as JSON.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::config::{Log, LogFormat};

/// Why the log cannot be set up.
#[derive(Debug, thiserror::Error)]
#[error(
    "`{filter}` is not a log filter: a level (error, warn, info, debug, trace) or directives such as \"info,shardmill_lease=debug\" are expected"
)]
pub struct Error {
    filter: String,
}

/// Sets up the process's log. `RUST_LOG` takes the place of the configured filter. A second call changes nothing.
pub fn init(log: &Log) -> Result<(), Error> {
    let text = std::env::var("RUST_LOG").ok().filter(|text| !text.is_empty()).unwrap_or_else(|| log.filter.clone());
    // The local backend's parts log each answer that is an error; the host says itself what an error means.
    let quiet = "ferrokinesis=off,dynoxide=off";
    let filter = EnvFilter::try_new(format!("{quiet},{text}")).map_err(|_| Error { filter: text })?;
    let colored = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colored);
    // An error only says that a log is set up already, by a program that uses this crate as a library.
    let _already = match log.format {
        LogFormat::Human => builder.with_target(false).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    Ok(())
}
