use std::fmt;
use std::sync::Arc;

use serde_json::Value;

type Say = dyn Fn() -> Option<Value> + Send + Sync;

/// What a worker says of itself in its row of the fleet, for people and programs that look at it ([`crate::Roster`]): a
/// JSON value that means nothing to leases. It is asked for at every beat, from the loop that looks after all leases, so
/// it must be at hand and must not wait for anything. Clones are one.
#[derive(Clone, Default)]
pub struct Note(Option<Arc<Say>>);

// === impl Note ===

impl Note {
    /// The most that a note may be, as JSON text in bytes: the leader reads all rows at every scan. A larger one is left
    /// out.
    pub const MAX_BYTES: usize = 16 * 1024;

    /// A note that says this, whenever the row is written.
    pub fn new(say: impl Fn() -> Option<Value> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(say)))
    }

    /// What it says now.
    pub(crate) fn taken(&self) -> Option<Value> {
        let note = self.0.as_ref()?()?;
        (note.to_string().len() <= Self::MAX_BYTES).then_some(note)
    }
}

impl fmt::Debug for Note {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if self.0.is_some() { "Note(..)" } else { "Note" })
    }
}

impl PartialEq for Note {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (None, None) => true,
            (Some(left), Some(right)) => Arc::ptr_eq(left, right),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_says_what_it_says_at_the_time_and_one_that_is_too_large_says_nothing() {
        let said = Arc::new(std::sync::Mutex::new("short".to_owned()));
        let saying = Arc::clone(&said);
        let note = Note::new(move || Some(Value::from(saying.lock().unwrap().clone())));
        assert_eq!(note.taken(), Some(Value::from("short")));
        *said.lock().unwrap() = "x".repeat(Note::MAX_BYTES);
        assert_eq!(note.taken(), None, "with its quotes it is larger than allowed");
        assert_eq!(Note::default().taken(), None);
        assert!(note == note.clone() && note != Note::default());
    }
}
