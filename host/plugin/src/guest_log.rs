use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use shardmill_record::ShardId;
use tokio::time::Instant;
use tracing::Level;

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

/// A token bucket of lines: as many at once as in a second.
#[derive(Debug)]
pub(crate) struct Budget {
    per_second: f64,
    tokens: Mutex<Tokens>,
}

#[derive(Debug)]
struct Tokens {
    left: f64,
    at: Instant,
    /// Lines that were dropped since the last one that was kept.
    dropped: u64,
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
        let message = self.masked(message);
        if level == Level::ERROR {
            // How a guest of the kit says why it crashes, whether or not the line has room in the log.
            keep_tail(&mut self.state().tail, &clean(&message, self.0.line_bytes));
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
        let message = clean(&message, self.0.line_bytes);
        let fields =
            (!fields.is_empty()).then(|| self.fields(fields, self.0.line_bytes - message.len().min(self.0.line_bytes)));
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
        let text = String::from_utf8_lossy(&bytes);
        let mut text = if is_cut { self.0.mask.beginning(&text) } else { self.0.mask.text(&text) }.into_owned();
        if is_cut {
            text.push('…');
        }
        if source == Source::Stderr {
            keep_tail(&mut self.state().tail, &clean(&text, self.0.line_bytes));
        }
        let level = if source == Source::Stderr { Level::WARN } else { Level::INFO };
        self.line(level, source, &text, &[]);
    }

    /// As JSON, as many as have room.
    fn fields(&self, fields: &[(String, String)], room: usize) -> String {
        let mut kept = serde_json::Map::new();
        let mut left = room;
        for (name, value) in fields {
            let (name, value) = (clean(&self.masked(name), left), clean(&self.masked(value), left));
            match left.checked_sub(name.len() + value.len() + FIELD_BYTES) {
                Some(rest) => left = rest,
                None => break,
            }
            kept.insert(name, value.into());
        }
        serde_json::Value::Object(kept).to_string()
    }

    /// A text without secrets, as far as a line can show it.
    fn masked<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let Inner { mask, line_bytes, .. } = &*self.0;
        if mask.is_empty() {
            return text.into();
        }
        // A secret that begins within the line is looked at whole. What comes after it has no room.
        let end = text.floor_char_boundary(line_bytes.saturating_add(mask.reach()));
        if end == text.len() { mask.text(text) } else { format!("{}…", mask.beginning(&text[..end])).into() }
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

// === impl Budget ===

impl Budget {
    pub(crate) fn new(per_second: u32) -> Self {
        let per_second = f64::from(per_second);
        Self { per_second, tokens: Mutex::new(Tokens { left: per_second, at: Instant::now(), dropped: 0 }) }
    }

    fn has_some(&self, now: Instant) -> bool {
        self.at(now).left >= 1.0
    }

    /// Takes one line's token. Returns how many lines had none since the last one that had.
    fn take(&self, now: Instant) -> Option<u64> {
        let mut tokens = self.at(now);
        if tokens.left < 1.0 {
            tokens.dropped += 1;
            return None;
        }
        tokens.left -= 1.0;
        Some(std::mem::take(&mut tokens.dropped))
    }

    fn at(&self, now: Instant) -> MutexGuard<'_, Tokens> {
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = now.saturating_duration_since(tokens.at);
        tokens.left = (tokens.left + passed.as_secs_f64() * self.per_second).min(self.per_second);
        tokens.at = tokens.at.max(now);
        tokens
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_budget_allows_a_second_at_once_and_counts_the_rest() {
        let budget = Budget::new(10);
        let start = Instant::now();
        let kept = (0..25).filter(|_| budget.take(start).is_some()).count();
        assert_eq!(kept, 10);
        assert!(!budget.has_some(start));
        let later = start + Duration::from_millis(250);
        assert_eq!(budget.take(later), Some(15));
        assert_eq!(budget.take(later), Some(0));
        assert_eq!(budget.take(later), None);
        let much_later = start + Duration::from_secs(3600);
        assert_eq!((0..25).filter(|_| budget.take(much_later).is_some()).count(), 10);
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
