//! Carries a schedule out: on worker processes, their networks, the input's shards and the services.

use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::{Instant, sleep, sleep_until};

use super::action::{Forget, Reshard, Weather};
use super::clock::Library;
use super::is_closed;
use super::post::Post;
use super::report::describe_trouble;
use super::rules::rules;
use super::schedule::Timed;
use crate::services::hash_key_range;
use crate::{Config, Injected, Proxy, Services, leases, paths};

/// Something that was done. Times are from the start of the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The name of the action.
    pub what: &'static str,
    /// The life to which it was done; `None` if it was done to the services.
    pub whom: Option<String>,
    /// The input's shard to which it was done, the first one of two.
    pub shard: Option<String>,
    /// Its start.
    pub from: Duration,
    /// Its end.
    pub until: Duration,
    /// More about it.
    pub note: String,
}

/// A worker process from its start to its end. Times are from the start of the run.
#[derive(Debug)]
pub struct Life {
    /// Its worker id and the name of its link.
    pub name: String,
    /// Where it ran, counted from 1: one process after another.
    pub post: usize,
    /// With which build of its plugin it was started.
    pub build: u64,
    /// When it was started.
    pub from: Duration,
    /// When it had ended.
    pub until: Duration,
    /// Everything that it wrote to standard error.
    pub log: String,
}

/// Where all of it is done.
#[derive(Debug)]
pub(super) struct Agent<'a> {
    services: &'a Services,
    pub(super) proxy: &'a Proxy,
    pub(super) config: Config,
    /// With a folder for each life.
    pub(super) home: &'a Path,
    pub(super) plugin: Vec<u8>,
    pub(super) clocks: Library,
    /// By a clock that counts up, and by that on the wall, in milliseconds since 1970.
    began: OnceLock<(Instant, u64)>,
    events: Mutex<Vec<Event>>,
    lives: Mutex<Vec<Life>>,
}

/// To what something was done.
#[derive(Debug)]
pub(super) enum Subject {
    Life(String),
    Shard(String),
    Services,
}

// === impl Event ===

impl Event {
    /// To whom or to what it was done.
    pub(super) fn subject(&self) -> &str {
        self.whom.as_deref().or(self.shard.as_deref()).unwrap_or("all")
    }
}

// === impl Agent ===

impl<'a> Agent<'a> {
    /// `config` is that of all workers, without an id; its plugin is replaced by the one of this name, of which each life has
    /// a file of its own, in a folder in `home`.
    pub(super) fn new(
        services: &'a Services,
        proxy: &'a Proxy,
        config: Config,
        plugin: &str,
        home: &'a Path,
    ) -> Agent<'a> {
        let plugin = std::fs::read(paths::plugin(plugin)).expect("a plugin");
        let clocks = Library::build(home);
        let (events, lives) = (Mutex::default(), Mutex::default());
        Agent { services, proxy, config, home, plugin, clocks, began: OnceLock::new(), events, lives }
    }

    /// Begins the run, whose first workers may have been started before.
    pub(super) fn begin(&self) {
        self.began();
    }

    /// When the run has begun, in milliseconds since 1970.
    pub(super) fn began_at(&self) -> u64 {
        self.began().1
    }

    /// How long the run lasts.
    pub(super) fn elapsed(&self) -> Duration {
        self.began.get().map_or(Duration::ZERO, |(began, _)| began.elapsed())
    }

    /// Waits for a moment of the run.
    pub(super) async fn until(&self, at: Duration) {
        sleep_until(self.began().0 + at).await;
    }

    fn began(&self) -> (Instant, u64) {
        *self.began.get_or_init(|| {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970");
            (Instant::now(), u64::try_from(since.as_millis()).expect("a time in range"))
        })
    }

    /// Starts so many workers.
    pub(super) fn start(&self, workers: usize) -> Vec<Post<'_>> {
        (1..=workers).map(|number| Post::new(self, number)).collect()
    }

    /// Does to the input's shards what is to be done.
    pub(super) async fn reshard(&self, stream: &str, reshards: &[Timed<Reshard>]) {
        for Timed { at, what } in reshards {
            self.until(*at).await;
            let open = self.open_shards(stream).await;
            let from = self.elapsed();
            let (index, note) = match *what {
                Reshard::Split { index } => {
                    self.services.split(stream, &open[index]).await;
                    (index, String::new())
                }
                Reshard::Merge { index } => {
                    self.services.merge(stream, &open[index], &open[index + 1]).await;
                    (index, format!("and {}", open[index + 1]))
                }
            };
            self.note(what.name(), Subject::Shard(open[index].clone()), from, note);
        }
    }

    /// Deletes the rows of the lease table that are to be deleted.
    pub(super) async fn forget(&self, stream: &str, rows: &[Timed<Forget>]) {
        for Timed { at, what } in rows {
            self.until(*at).await;
            let mut open = self.open_shards(stream).await;
            let shard = open.swap_remove(what.index % open.len());
            let from = self.elapsed();
            let row = leases::delete(self.services, self.config.lease_table(), &shard).await;
            let note = match row {
                Some(row) => format!("held by {}", row.owner.as_deref().unwrap_or("nobody")),
                None => "was not there".to_owned(),
            };
            self.note(Forget::NAME, Subject::Shard(shard), from, note);
        }
    }

    /// Lets go wrong what is to go wrong with the services.
    pub(super) async fn weather(&self, input: &str, output: &str, weather: &[Timed<Weather>]) {
        for Timed { at, what } in weather {
            self.until(*at).await;
            let from = self.elapsed();
            let rules = rules(what, input, output, self.config.lease_table());
            let injected: Vec<Injected> = rules.into_iter().map(|rule| self.proxy.inject(rule)).collect();
            sleep(what.time).await;
            injected.iter().for_each(Injected::end);
            let befallen = injected.iter().map(Injected::count).sum();
            self.note(
                what.trouble.name(),
                Subject::Services,
                from,
                describe_trouble(what.trouble, what.chance, befallen),
            );
        }
    }

    /// What was done and which workers have lived, in the order of time.
    pub(super) fn into_past(self) -> (Vec<Event>, Vec<Life>) {
        let mut events = self.events.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut lives = self.lives.into_inner().unwrap_or_else(PoisonError::into_inner);
        events.sort_by_key(|event| event.from);
        lives.sort_by_key(|life| life.from);
        (events, lives)
    }

    /// In the order of their hash keys.
    async fn open_shards(&self, stream: &str) -> Vec<String> {
        let mut open = self.services.shards(stream).await;
        open.retain(|shard| !is_closed(shard));
        open.sort_by_key(|shard| hash_key_range(shard).start);
        open.iter().map(|shard| shard.shard_id().to_owned()).collect()
    }

    /// Notes that a worker has ended.
    pub(super) fn bury(&self, life: Life) {
        self.lives.lock().unwrap_or_else(PoisonError::into_inner).push(life);
    }

    /// Notes what was done, from a moment until now.
    pub(super) fn note(&self, what: &'static str, subject: Subject, from: Duration, note: String) {
        let (whom, shard) = match subject {
            Subject::Life(name) => (Some(name), None),
            Subject::Shard(shard) => (None, Some(shard)),
            Subject::Services => (None, None),
        };
        let event = Event { what, whom, shard, from, until: self.elapsed(), note };
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }
}
