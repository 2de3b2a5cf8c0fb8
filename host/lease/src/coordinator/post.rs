use std::time::Duration;

use tokio::time::timeout;

use crate::fleet::{PostRow, read};
use crate::store::Error;
use crate::writer::Surroundings;
use crate::{Moment, WorkerId};

/// A post that one worker of the fleet has at a time. Whoever has it writes its row at every round; when the row has
/// stood still for the expiry, the next one takes it.
///
/// Two may believe for a moment that they have it. What they do with it must bear that.
#[derive(Debug)]
pub(super) struct Post {
    key: &'static str,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Another worker has it, as far as this one knows.
    Vacant { seen: Option<Seen> },
    /// This one has it: the version that it wrote last, and when it sent that.
    Held { version: u64, since: Moment },
}

/// The row of another worker that has the post.
#[derive(Debug)]
struct Seen {
    version: u64,
    /// When it was first seen as it is.
    since: Moment,
    run: Option<String>,
    /// How often that run was seen to have written it.
    writes: u32,
}

/// So many times a leader writes its row from when a worker sees it first until what it has planned for that worker is
/// there: it may be about to look when it is seen first, writes once more before it looks, and again when it has planned.
const ROUND: u32 = 2;

/// Who asks.
#[derive(Debug, Clone)]
pub(super) struct Identity {
    pub(super) worker: WorkerId,
    pub(super) run: String,
    /// No other run of this worker lives.
    pub(super) runs_once: bool,
}

// === impl Post ===

impl Post {
    pub(super) const fn new(key: &'static str) -> Self {
        Self { key, state: State::Vacant { seen: None } }
    }

    /// Whether this worker has it, as of its last successful write.
    pub(super) fn is_held(&self, now: Moment, expiry: Duration) -> bool {
        matches!(self.state, State::Held { since, .. } if now.saturating_since(since) < expiry)
    }

    /// For how long another worker that has it has been silent, as far as this one saw.
    pub(super) fn silence(&self, now: Moment) -> Option<Duration> {
        match &self.state {
            State::Vacant { seen: Some(Seen { since, .. }) } => Some(now.saturating_since(*since)),
            _ => None,
        }
    }

    /// Whether another worker has it that was seen to go through a whole round.
    pub(super) fn is_led(&self) -> bool {
        matches!(self.state, State::Vacant { seen: Some(Seen { writes: ROUND.., .. }) })
    }

    /// Keeps the post, or takes it if it is free.
    pub(super) async fn seek(&mut self, surroundings: &Surroundings, me: &Identity) -> Result<(), Error> {
        if let State::Held { version, .. } = self.state {
            return self.write(surroundings, me, Some(version)).await;
        }
        let asked = timeout(surroundings.write_timeout, surroundings.store.document(self.key)).await;
        let Some(document) = asked.map_err(|_| surroundings.no_answer())?? else {
            return self.write(surroundings, me, None).await;
        };
        let now = surroundings.clock.now();
        let State::Vacant { seen } = &mut self.state else { return Ok(()) };
        let row = read::<PostRow>(&document);
        let is_own =
            row.as_ref().is_some_and(|row| row.run == me.run || (me.runs_once && row.worker == me.worker.as_str()));
        let (version, run) = (document.version, row.map(|row| row.run));
        let since = match seen {
            Some(seen) if seen.version == version => seen.since,
            before => {
                let same = before.take().filter(|before| before.run == run);
                let writes = same.map_or(0, |before| before.writes.saturating_add(1));
                before.insert(Seen { version, since: now, run, writes }).since
            }
        };
        if is_own || now.saturating_since(since) >= surroundings.expiry {
            return self.write(surroundings, me, Some(document.version)).await;
        }
        Ok(())
    }

    /// Gives the post up, for others to take at once.
    pub(super) async fn resign(&mut self, surroundings: &Surroundings) {
        if let State::Held { version, .. } = self.state {
            self.state = State::Vacant { seen: None };
            // Not given up in time, it is taken when it has stood still.
            let _ = timeout(surroundings.write_timeout, surroundings.store.delete_document(self.key, version)).await;
        }
    }

    async fn write(&mut self, surroundings: &Surroundings, me: &Identity, version: Option<u64>) -> Result<(), Error> {
        let row = PostRow { worker: me.worker.to_string(), run: me.run.clone() };
        let body = serde_json::json!(row);
        let sent = surroundings.clock.now();
        match timeout(surroundings.write_timeout, surroundings.store.put_document(self.key, &body, version)).await {
            Ok(Ok(true)) => {
                self.state = State::Held { version: version.unwrap_or(0) + 1, since: sent };
                Ok(())
            }
            // Somebody else was first, or an earlier write of ours whose answer was lost: the next round reads it.
            Ok(Ok(false)) => {
                self.state = State::Vacant { seen: None };
                Ok(())
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(surroundings.no_answer()),
        }
    }
}
