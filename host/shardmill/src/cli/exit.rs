//! Failures of a command: what is shown, and the exit status.

use std::process::ExitCode;

use miette::{Diagnostic, MietteHandlerOpts, Report};
use shardmill_cause::{Code, Coded, code, with_causes};

use super::{output, text};
use crate::config;
use crate::host::Class;

/// The statuses follow the BSD convention of sysexits, where it has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Running = 1,
    Usage = 2,
    Unavailable = 69,
    Stopped = 70,
    Deferred = 75,
    NotPermitted = 77,
    Configuration = 78,
}

/// A command that failed.
#[derive(Debug)]
pub struct Failure {
    status: Status,
    code: Code,
    report: Report,
}

#[derive(Debug, thiserror::Error, Diagnostic)]
#[error("{message}")]
struct Plain {
    message: String,
    #[help]
    help: Option<String>,
}

// === impl Failure ===

impl Failure {
    /// Messages hold names of files, and what services and other people have written: nothing of it is a command to a
    /// terminal.
    fn plain(status: Status, message: impl Into<String>, help: Option<String>) -> Self {
        let message = text::lines(&message.into());
        let help = help.map(|help| text::lines(&help));
        Self { status, code: status.code(), report: Report::new(Plain { message, help }) }
    }

    pub(super) fn of_class(class: Class, message: String) -> Self {
        match class {
            Class::Configuration => Self::configuration(message),
            Class::NotPermitted => Self::not_permitted(message),
            Class::Unavailable => Self::unavailable(message),
            Class::Stopped => Self::stopped(message),
            Class::Running => Self::running(message),
        }
    }

    /// The command line asks for what cannot be.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::plain(Status::Usage, message, None)
    }

    /// Something failed while it ran.
    pub fn running(message: impl Into<String>) -> Self {
        Self::plain(Status::Running, message, None)
    }

    /// A service or a port is not available.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::plain(Status::Unavailable, message, None)
    }

    /// A record cannot be processed, and the failure policy says that this is the end.
    pub fn stopped(message: impl Into<String>) -> Self {
        Self::plain(Status::Stopped, message, None)
    }

    /// Something is kept and not done yet.
    pub fn deferred(message: impl Into<String>) -> Self {
        Self::plain(Status::Deferred, message, None)
    }

    /// A service refuses.
    pub fn not_permitted(message: impl Into<String>) -> Self {
        Self::plain(Status::NotPermitted, message, None)
    }

    /// The configuration or a plugin is wrong.
    pub fn configuration(message: impl Into<String>) -> Self {
        Self::plain(Status::Configuration, message, None)
    }

    /// Adds what to do; nothing where that is empty.
    #[must_use]
    pub fn help(self, help: impl Into<String>) -> Self {
        let help = help.into();
        Self::plain(self.status, self.report.to_string(), (!help.is_empty()).then_some(help)).code(self.code)
    }

    /// Says more than its status does.
    #[must_use]
    pub fn code(self, code: Code) -> Self {
        Self { code, ..self }
    }

    /// What has failed, without what to do.
    pub(crate) fn message(&self) -> String {
        self.report.to_string()
    }

    /// The first of what has failed, for the exit status; the others are shown now.
    pub(super) fn first(failures: impl IntoIterator<Item = Self>) -> Result<(), Self> {
        let mut failures = failures.into_iter();
        let Some(first) = failures.next() else { return Ok(()) };
        for failure in failures {
            let _first_counts = failure.report();
        }
        Err(first)
    }

    /// In the place of what could not be had.
    pub(super) fn json(&self) -> serde_json::Value {
        serde_json::json!({ "error": self.message(), "code": self.code.name() })
    }

    /// Shows the failure on standard error and gives the exit status.
    pub fn report(self) -> ExitCode {
        output::say(format_args!("{}\n{}", format!("{:?}", self.report).trim_end(), more(self.code)));
        ExitCode::from(self.status as u8)
    }
}

// === impl Status ===

impl Status {
    /// What can be said of a failure of which nothing else is known.
    fn code(self) -> Code {
        match self {
            Self::Usage => code::command::USAGE,
            Self::Stopped => code::engine::STOPPED,
            Self::Running | Self::Unavailable | Self::Deferred | Self::NotPermitted | Self::Configuration => {
                code::command::FAILED
            }
        }
    }
}

/// The line beneath a failure, beside its help.
pub(super) fn more(code: Code) -> String {
    format!("  code: {code} (`shardmill explain {code}` says more)")
}

/// Failures are shown in lines as long as they are: ids of shards, which are copied from them, would be broken at their
/// hyphens.
pub(super) fn keep_lines_whole() {
    // Fails where a program that uses this crate as a library has a way of its own.
    let _own = miette::set_hook(Box::new(|_| Box::new(MietteHandlerOpts::new().wrap_lines(false).build())));
}

impl From<config::Error> for Failure {
    fn from(error: config::Error) -> Self {
        Self { status: Status::Configuration, code: Coded::code(&error), report: Report::new(error) }
    }
}

impl From<crate::telemetry::Error> for Failure {
    fn from(error: crate::telemetry::Error) -> Self {
        Self::configuration(error.to_string()).code(error.code())
    }
}

impl From<crate::Error> for Failure {
    fn from(error: crate::Error) -> Self {
        Self::of_class(error.class(), with_causes(&error)).code(error.code())
    }
}

impl From<&shardmill_producer::Error> for Failure {
    fn from(error: &shardmill_producer::Error) -> Self {
        use shardmill_producer::Error;

        let message = with_causes(error);
        let failure = match error {
            Error::Rejected { .. } if error.is_denied() => Self::not_permitted(message),
            Error::Rejected { .. } => Self::unavailable(message),
            Error::Refused { .. } | Error::Stopped { .. } => Self::running(message),
        };
        failure.code(error.code())
    }
}

impl From<shardmill_spool::Error> for Failure {
    fn from(error: shardmill_spool::Error) -> Self {
        use shardmill_spool::Error;

        let message = with_causes(&error);
        let code = error.code();
        let failure = match error {
            Error::InUse { .. } | Error::Taken { .. } => Self::unavailable(message),
            Error::NotThere(_) | Error::Options(_) | Error::Foreign { .. } | Error::NotPrivate { .. } => {
                Self::configuration(message)
            }
            _other => Self::running(message),
        };
        failure.code(code)
    }
}

impl From<shardmill_stream::Error> for Failure {
    fn from(error: shardmill_stream::Error) -> Self {
        Self::of_class(Class::of_stream(error.kind()), with_causes(&error)).code(error.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_message_is_a_command_to_a_terminal_and_no_help_is_none() {
        let failure = Failure::running("no column\n a\u{1b}[2J").help("try b\u{202e}");
        assert_eq!(failure.message(), "no column\n a\\u{1b}[2J");
        let shown = failure.report.help().expect("help").to_string();
        assert_eq!(shown, "try b\\u{202e}");
        assert!(Failure::running("a").help("").report.help().is_none());
    }

    #[test]
    fn a_code_outlives_the_help_that_is_added() {
        let failure = Failure::running("no column").code(code::input::COLUMNS).help("try b");
        assert_eq!(failure.json()["code"], code::input::COLUMNS.name());
        assert_eq!(Failure::usage("a").json()["code"], code::command::USAGE.name());
        assert!(more(failure.code).contains(&format!("`shardmill explain {}`", code::input::COLUMNS)));
    }
}
