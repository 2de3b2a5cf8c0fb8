//! What a plugin says while it is tried: its lines are kept for the call in which they were said, and not mixed into what
//! the host has to say.

use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::cli::{Failure, output, text};

/// Where guests' lines go, among all that is logged.
const GUEST: &str = "guest";

/// The lines of guests since they were taken last. Clones hear the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Heard(Arc<Mutex<Vec<Line>>>);

/// One line of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) level: Level,
    pub(super) message: String,
    /// Its fields as JSON, where it has some.
    fields: Option<String>,
    /// Where it was said, where that is not the log: `stdout` or `stderr`.
    source: Option<String>,
}

/// What an event has beside its level.
#[derive(Debug, Default)]
struct Said {
    message: String,
    fields: Option<String>,
    source: Option<String>,
    /// Of an event of the host.
    others: String,
}

// === impl Heard ===

impl Heard {
    /// Listens from now on, in the whole process: to guests from this level on, and to the host's warnings,
    /// which go to standard error. `RUST_LOG` may want more of the host.
    pub(super) fn listen(level: Level) -> Result<Self, Failure> {
        let heard = Self::default();
        let guests = level.to_string().to_lowercase();
        let wanted = std::env::var("RUST_LOG").unwrap_or_default();
        let directives = format!("warn,{wanted},{GUEST}={guests}");
        let filter = EnvFilter::try_new(directives.replace(",,", ",")).map_err(|_| {
            Failure::configuration(format!(
                "RUST_LOG is `{wanted}`, which is no log filter: a level or directives are expected"
            ))
        })?;
        // An error only says that a log is set up already, by a program that uses this crate as a library.
        let _already = tracing_subscriber::registry().with(filter).with(heard.clone()).try_init();
        Ok(heard)
    }

    /// What was said since the last time.
    pub(super) fn take(&self) -> Vec<Line> {
        std::mem::take(&mut *self.lines())
    }

    fn lines(&self) -> MutexGuard<'_, Vec<Line>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Subscriber> Layer<S> for Heard {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let mut said = Said::default();
        event.record(&mut said);
        let level = *event.metadata().level();
        if event.metadata().target() == GUEST {
            let Said { message, fields, source, .. } = said;
            self.lines().push(Line { level, message, fields, source });
        } else {
            output::say(text::line(&format!("{level} {}{}", said.message, said.others)));
        }
    }
}

// === impl Line ===

impl Line {
    /// For people, in one line: what it says and its fields.
    pub(super) fn text(&self) -> String {
        let fields = self.fields().into_iter().fold(String::new(), |mut text, (name, value)| {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            // A text takes all that is written to it.
            let _ = write!(text, " {name}={value}");
            text
        });
        let source = self.source.as_ref().map(|source| format!(" ({source})")).unwrap_or_default();
        text::line(&format!("{}{fields}{source}", self.message))
    }

    pub(super) fn json(&self) -> Value {
        let mut line = json!({ "level": self.level.to_string(), "message": self.message });
        let fields = self.fields();
        if !fields.is_empty() {
            line["fields"] = fields.into();
        }
        if let Some(source) = &self.source {
            line["source"] = source.as_str().into();
        }
        line
    }

    fn fields(&self) -> Map<String, Value> {
        self.fields.as_deref().and_then(|fields| serde_json::from_str(fields).ok()).unwrap_or_default()
    }
}

// === impl Said ===

impl Said {
    fn hear(&mut self, field: &Field, value: String) {
        match field.name() {
            "message" => self.message = value,
            "fields" => self.fields = Some(value),
            "source" => self.source = Some(value),
            name => {
                let _ = write!(self.others, " {name}={value}");
            }
        }
    }
}

impl Visit for Said {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.hear(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.hear(field, format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_guests_are_kept_with_what_they_have() {
        let heard = Heard::default();
        let subscriber = tracing_subscriber::registry().with(EnvFilter::new("warn,guest=info")).with(heard.clone());
        tracing::subscriber::with_default(subscriber, || {
            let (source, fields) = (None::<&str>, Some(r#"{"carrier":"AA","n":"1"}"#));
            tracing::event!(target: "guest", Level::WARN, processor = "p", source, fields, "{}", "a\u{1b} line");
            tracing::event!(target: "guest", Level::INFO, source = Some("stdout"), "printed");
            tracing::event!(target: "guest", Level::DEBUG, "not wanted");
            tracing::info!("of the host");
        });
        let lines = heard.take();
        assert_eq!(
            lines.iter().map(Line::text).collect::<Vec<_>>(),
            ["a\\u{1b} line carrier=AA n=1", "printed (stdout)"]
        );
        let expected = json!({ "level": "WARN", "message": "a\u{1b} line", "fields": { "carrier": "AA", "n": "1" } });
        assert_eq!(lines[0].json(), expected);
        assert_eq!(lines[1].json(), json!({ "level": "INFO", "message": "printed", "source": "stdout" }));
        assert_eq!(heard.take(), []);
    }
}
