mod budget;

use std::borrow::Cow;
use std::cell::LazyCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use shardmill_record::ShardId;
use tokio::time::Instant;
use tracing::Level;

pub(crate) use budget::Budget;

use crate::ShardContext;
use crate::mask::Mask;
use crate::metrics::ProcessorMetrics;
use crate::text::clean;

/// How much of a call's standard error is kept to explain a crash.
const TAIL_BYTES: usize = 2 << 10;
/// What JSON adds to a field: quotes, a colon and a comma.
const FIELD_BYTES: usize = 6;

/// What one instance says, on its way to the host's log under the target `guest`. Clones speak for the same instance.
#[derive(Debug, Clone)]
pub(crate) struct GuestLog(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    processor: Arc<str>,
    /// Shared by all instances of the processor.
    budget: Arc<Budget>,
    line_bytes: usize,
    metrics: ProcessorMetrics,
    mask: Mask,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The shard that the current call is about.
    place: Option<(Arc<str>, ShardId)>,
    stdout: Line,
    stderr: Line,
    /// The last lines of standard error in the current call.
    tail: String,
}

/// A line that a guest has not ended yet.
#[derive(Debug, Default)]
struct Line {
    bytes: Vec<u8>,
    /// Whether the line is longer than what is kept of it.
    is_cut: bool,
}

/// Where a guest's line came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// The contract's `logging`.
    Log,
    Stdout,
    Stderr,
}

// === impl GuestLog ===

impl GuestLog {
    pub(crate) fn new(
        processor: Arc<str>,
        budget: Arc<Budget>,
        line_bytes: usize,
        metrics: ProcessorMetrics,
        mask: Mask,
    ) -> Self {
        Self(Arc::new(Inner { processor, budget, line_bytes, metrics, mask, state: Mutex::default() }))
    }

    /// A call begins: what is said from now on is about this shard.
    pub(crate) fn begin(&self, shard: Option<&ShardContext>) {
        let mut state = self.state();
        state.place = shard.map(|shard| (shard.stream.clone(), shard.shard.clone()));
        state.tail.clear();
    }

    /// A call has ended: what was said without a line's end is said now. Returns the last lines of standard error, and of
    /// what was logged as an error.
    pub(crate) fn end(&self) -> String {
        for source in [Source::Stdout, Source::Stderr] {
            self.end_line(source);
        }
        std::mem::take(&mut self.state().tail)
    }

    /// Whether a line of this level would be kept.
    pub(crate) fn enabled(&self, level: Level) -> bool {
        is_enabled(level) && self.0.budget.has_some(Instant::now())
    }

    /// One line with its fields.
    pub(crate) fn line(&self, level: Level, source: Source, message: &str, fields: &[(String, String)]) {
        // How a guest of the kit says why it crashes.
        let is_last_word = level == Level::ERROR;
        self.tell(level, source, is_last_word, || self.0.mask.within(message, self.0.line_bytes), fields);
    }

    /// `message` is asked for if it is needed, because hiding secrets in it takes a while: last words are kept whether or not
    /// the line has room in the log.
    fn tell<'a>(
        &self,
        level: Level,
        source: Source,
        is_last_word: bool,
        message: impl FnOnce() -> Cow<'a, str>,
        fields: &[(String, String)],
    ) {
        let line_bytes = self.0.line_bytes;
        let message = LazyCell::new(|| clean(&message(), line_bytes));
        if is_last_word {
            keep_tail(&mut self.state().tail, &message);
        }
        if !is_enabled(level) {
            return;
        }
        let Some(dropped) = self.0.budget.take(Instant::now()) else {
            self.0.metrics.log_line_dropped();
            return;
        };
        let place = self.state().place.clone();
        if dropped > 0 {
            let message = format!("{dropped} lines were over the processor's limit and are not here");
            self.emit(Level::WARN, None, place.as_ref(), &message, None);
        }
        let fields = (!fields.is_empty()).then(|| self.fields(fields, line_bytes - message.len().min(line_bytes)));
        self.emit(level, Some(source), place.as_ref(), &message, fields.as_deref());
    }

    /// Bytes of standard output or error: a line for each line.
    pub(crate) fn write(&self, source: Source, bytes: &[u8]) {
        let mut pieces = bytes.split(|byte| *byte == b'\n');
        let mut piece = pieces.next();
        while let Some(bytes) = piece {
            self.state().line(source).push(bytes, self.0.line_bytes);
            piece = pieces.next();
            if piece.is_some() {
                self.end_line(source);
            }
        }
    }

    fn end_line(&self, source: Source) {
        let Line { bytes, is_cut } = std::mem::take(self.state().line(source));
        if bytes.is_empty() {
            return;
        }
        let mask = &self.0.mask;
        let message = || {
            if is_cut {
                // A part of a character is no part of a secret that begins before it.
                let text = String::from_utf8_lossy(whole_characters(&bytes));
                Cow::from(format!("{}…", mask.beginning(&text)))
            } else {
                Cow::from(mask.text(&String::from_utf8_lossy(&bytes)).into_owned())
            }
        };
        let (level, is_last_word) = match source {
            Source::Stderr => (Level::WARN, true),
            Source::Stdout | Source::Log => (Level::INFO, false),
        };
        self.tell(level, source, is_last_word, message, &[]);
    }

    /// As JSON, as many as have room.
    fn fields(&self, fields: &[(String, String)], room: usize) -> String {
        let mut kept = serde_json::Map::new();
        let mut left = room;
        for (name, value) in fields {
            let (name, value) = (self.0.mask.shown(name, left), self.0.mask.shown(value, left));
            match left.checked_sub(name.len() + value.len() + FIELD_BYTES) {
                Some(rest) => left = rest,
                None => break,
            }
            kept.insert(name, value.into());
        }
        serde_json::Value::Object(kept).to_string()
    }

    fn emit(
        &self,
        level: Level,
        source: Option<Source>,
        place: Option<&(Arc<str>, ShardId)>,
        message: &str,
        fields: Option<&str>,
    ) {
        let processor = &*self.0.processor;
        let stream = place.map(|(stream, _)| &**stream);
        let shard = place.map(|(_, shard)| shard.as_str());
        let source = source.and_then(Source::name);
        macro_rules! emit {
            ($level:expr) => {
                tracing::event!(target: "guest", $level, processor, stream, shard, source, fields, "{message}")
            };
        }
        match level {
            Level::TRACE => emit!(Level::TRACE),
            Level::DEBUG => emit!(Level::DEBUG),
            Level::INFO => emit!(Level::INFO),
            Level::WARN => emit!(Level::WARN),
            Level::ERROR => emit!(Level::ERROR),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_enabled(level: Level) -> bool {
    match level {
        Level::TRACE => tracing::enabled!(target: "guest", Level::TRACE),
        Level::DEBUG => tracing::enabled!(target: "guest", Level::DEBUG),
        Level::INFO => tracing::enabled!(target: "guest", Level::INFO),
        Level::WARN => tracing::enabled!(target: "guest", Level::WARN),
        Level::ERROR => tracing::enabled!(target: "guest", Level::ERROR),
    }
}

/// Bytes without the beginning of a character at their end.
fn whole_characters(bytes: &[u8]) -> &[u8] {
    let begins = |place: &usize| bytes[*place] & 0b1100_0000 != 0b1000_0000;
    // No character is longer than four bytes.
    let Some(last) = (bytes.len().saturating_sub(4)..bytes.len()).rev().find(begins) else { return bytes };
    let is_begun = std::str::from_utf8(&bytes[last..]).is_err_and(|error| error.error_len().is_none());
    if is_begun { &bytes[..last] } else { bytes }
}

fn keep_tail(tail: &mut String, line: &str) {
    if !tail.is_empty() {
        tail.push_str(" | ");
    }
    tail.push_str(line);
    let mut cut = tail.len().saturating_sub(TAIL_BYTES);
    while !tail.is_char_boundary(cut) {
        cut += 1;
    }
    tail.drain(..cut);
}

// === impl State ===

impl State {
    fn line(&mut self, source: Source) -> &mut Line {
        if source == Source::Stderr { &mut self.stderr } else { &mut self.stdout }
    }
}

// === impl Line ===

impl Line {
    fn push(&mut self, bytes: &[u8], limit: usize) {
        let room = limit.saturating_sub(self.bytes.len()).min(bytes.len());
        self.bytes.extend_from_slice(&bytes[..room]);
        self.is_cut |= room < bytes.len();
    }
}

// === impl Source ===

impl Source {
    /// The log's own lines are the ordinary case and are not marked.
    fn name(self) -> Option<&'static str> {
        match self {
            Self::Log => None,
            Self::Stdout => Some("stdout"),
            Self::Stderr => Some("stderr"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::cell::Cell;

    use super::*;
    use crate::{Metrics, Secret};

    fn log(secret: &str, line_bytes: usize, per_second: u32) -> GuestLog {
        let (budget, metrics) = (Arc::new(Budget::new(per_second)), Metrics::default().of_processor("flights"));
        GuestLog::new("flights".into(), budget, line_bytes, metrics, Mask::new(&[Secret::new(secret)]))
    }

    #[test]
    fn secrets_are_looked_for_in_what_is_kept_and_nowhere_else() {
        // Nobody listens in this test: no level is enabled.
        let log = log("hunter22", 100, 1);
        let looks = Cell::new(0);
        let message = || {
            looks.set(looks.get() + 1);
            Cow::from("it is ***")
        };
        log.tell(Level::DEBUG, Source::Log, false, message, &[]);
        log.tell(Level::INFO, Source::Stdout, false, message, &[]);
        assert_eq!(looks.get(), 0);
        log.tell(Level::ERROR, Source::Log, true, message, &[]);
        assert_eq!((looks.get(), log.end().as_str()), (1, "it is ***"));
        // And where somebody does, but the processor has said enough.
        let subscriber = tracing_subscriber::fmt().with_max_level(Level::INFO).with_writer(std::io::sink).finish();
        tracing::subscriber::with_default(subscriber, || {
            for _ in 0..5 {
                log.tell(Level::INFO, Source::Log, false, message, &[]);
            }
        });
        assert_eq!(looks.get(), 2);
    }

    proptest! {
        #[test]
        fn a_line_that_is_cut_within_a_character_tells_nothing_of_a_secret(before in "[a-zä€🔑]{0,6}", cut in 0usize..60) {
            let log = log("GEHEIMÄ€🔑N", cut, 1);
            log.write(Source::Stderr, format!("{before}GEHEIMÄ€🔑N and more\n").as_bytes());
            let told = log.end();
            prop_assert!(!told.contains(|letter: char| "GEHIMÄN".contains(letter)), "{}", told);
            if cut < before.len() {
                prop_assert!(told.trim_end_matches('…').len() <= cut, "{}", told);
            }
        }

        #[test]
        fn only_a_character_that_is_not_whole_is_taken_off(text in "[aä€🔑]{1,4}", cut in 0usize..17, junk in any::<Vec<u8>>()) {
            let cut = cut.min(text.len());
            let whole = &text.as_bytes()[..text.floor_char_boundary(cut)];
            prop_assert_eq!(whole_characters(&text.as_bytes()[..cut]), whole);
            prop_assert!(junk.starts_with(whole_characters(&junk)));
        }
    }

    #[test]
    fn a_line_cannot_grow_without_bound() {
        let mut line = Line::default();
        (0..1000).for_each(|_| line.push(b"abc", 10));
        assert_eq!((line.bytes.as_slice(), line.is_cut), (b"abcabcabca".as_slice(), true));
        let mut tail = String::new();
        (0..1000).for_each(|number| keep_tail(&mut tail, &format!("é{number}")));
        assert!(tail.len() <= TAIL_BYTES && tail.ends_with("é998 | é999"), "{tail}");
    }
}
