//! Lines for the host's log: [`trace!`](crate::trace!), [`debug!`](crate::debug!), [`info!`](crate::info!),
//! [`warn!`](crate::warn!) and [`error!`](crate::error!).
//!
//! The host adds the processor and the shard, and bounds rate and length. A line that the host would not keep is
//! not even put together. Natively, lines go to standard error and to [`testing::logs`](crate::testing::logs).

use std::fmt::Arguments;

/// How much a line matters, least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Each step.
    Trace,
    /// What helps to find a fault.
    Debug,
    /// What an operator may want to know.
    Info,
    /// What an operator should look at.
    Warn,
    /// What an operator must look at.
    Error,
}

/// Whether a line of this level would be kept: ask before working out something costly for one.
pub fn enabled(level: Level) -> bool {
    #[cfg(target_arch = "wasm32")]
    return crate::component::log_enabled(level);
    #[cfg(not(target_arch = "wasm32"))]
    return crate::testing::log_enabled(level);
}

/// Writes a line with fields. The macros are the usual way.
pub fn write(level: Level, message: Arguments<'_>, fields: &[(&str, &dyn std::fmt::Display)]) {
    let message = message.to_string();
    let fields = fields.iter().map(|(key, value)| ((*key).to_owned(), value.to_string())).collect();
    #[cfg(target_arch = "wasm32")]
    crate::component::log(level, &message, fields);
    #[cfg(not(target_arch = "wasm32"))]
    crate::testing::log(level, message, fields);
}

/// Writes a line of a level given as a value: `log!(level, "text {}", 1)`, or with fields
/// `log!(level, key = value, other = value; "text")`.
#[macro_export]
macro_rules! log {
    ($level:expr, $($key:ident = $value:expr),+ ; $($message:tt)+) => {{
        let level: $crate::log::Level = $level;
        if $crate::log::enabled(level) {
            $crate::log::write(level, ::core::format_args!($($message)+), &[$((::core::stringify!($key), &$value)),+]);
        }
    }};
    ($level:expr, $($message:tt)+) => {{
        let level: $crate::log::Level = $level;
        if $crate::log::enabled(level) {
            $crate::log::write(level, ::core::format_args!($($message)+), &[]);
        }
    }};
}

/// Writes a line of level error: `error!("text {}", 1)`, or with fields `error!(key = value; "text")`.
#[macro_export]
macro_rules! error {
    ($($line:tt)+) => { $crate::log!($crate::log::Level::Error, $($line)+) };
}

/// Writes a line of level warn: `warn!("text {}", 1)`, or with fields `warn!(key = value; "text")`.
#[macro_export]
macro_rules! warn {
    ($($line:tt)+) => { $crate::log!($crate::log::Level::Warn, $($line)+) };
}

/// Writes a line of level info: `info!("text {}", 1)`, or with fields `info!(key = value; "text")`.
#[macro_export]
macro_rules! info {
    ($($line:tt)+) => { $crate::log!($crate::log::Level::Info, $($line)+) };
}

/// Writes a line of level debug: `debug!("text {}", 1)`, or with fields `debug!(key = value; "text")`.
#[macro_export]
macro_rules! debug {
    ($($line:tt)+) => { $crate::log!($crate::log::Level::Debug, $($line)+) };
}

/// Writes a line of level trace: `trace!("text {}", 1)`, or with fields `trace!(key = value; "text")`.
#[macro_export]
macro_rules! trace {
    ($($line:tt)+) => { $crate::log!($crate::log::Level::Trace, $($line)+) };
}
