//! Carries a schedule out: on worker processes, their networks, the input's shards and the services.
//!
//! Each worker process is a *life*: it has a link of the proxy and a worker id of its own, both of its name. A worker that
//! is replaced is another life on the same post.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use tokio::time::{Instant, sleep, sleep_until};

use super::action::{Deed, Reshard, Trouble, Weather};
use super::is_closed;
use super::report::{describe_deed, describe_trouble};
use super::schedule::Timed;
use crate::services::hash_key_range;
use crate::{Config, Fault, Injected, Link, Proxy, Rule, Services, Worker};

const THROTTLED: &str = "ProvisionedThroughputExceededException";

/// Far less than a sender waits.
const SLOW: Duration = Duration::from_millis(400);

/// Something that was done. Times are from the start of the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The name of the action.
    pub what: &'static str,
    /// The life to which it was done; `None` if it was done to the services.
    pub whom: Option<String>,
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
    proxy: &'a Proxy,
    config: Config,
    began: Instant,
    events: Mutex<Vec<Event>>,
    lives: Mutex<Vec<Life>>,
}

/// Where one worker runs after another.
#[derive(Debug)]
pub(super) struct Post<'a> {
    agent: &'a Agent<'a>,
    number: usize,
    started: usize,
    living: Living,
    /// What ended lives had sent may still be carried out and noted.
    links: Vec<Link>,
}

#[derive(Debug)]
struct Living {
    name: String,
    from: Duration,
    link: Link,
    worker: Worker,
}

// === impl Agent ===

impl<'a> Agent<'a> {
    /// `config` is that of all workers, without an id.
    pub(super) fn new(services: &'a Services, proxy: &'a Proxy, config: Config) -> Agent<'a> {
        let (events, lives) = (Mutex::default(), Mutex::default());
        Agent { services, proxy, config, began: Instant::now(), events, lives }
    }

    /// How long the run lasts.
    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Waits for a moment of the run.
    pub(super) async fn until(&self, at: Duration) {
        sleep_until(self.began + at).await;
    }

    /// Starts so many workers.
    pub(super) fn start(&self, workers: usize) -> Vec<Post<'_>> {
        let post =
            |number| Post { agent: self, number, started: 1, living: self.give_life(number, 1), links: Vec::new() };
        (1..=workers).map(post).collect()
    }

    /// Does to the input's shards what is to be done.
    pub(super) async fn reshard(&self, stream: &str, reshards: &[Timed<Reshard>]) {
        for Timed { at, what } in reshards {
            self.until(*at).await;
            let open = self.open_shards(stream).await;
            let from = self.elapsed();
            let note = match *what {
                Reshard::Split { index } => {
                    self.services.split(stream, &open[index]).await;
                    open[index].clone()
                }
                Reshard::Merge { index } => {
                    self.services.merge(stream, &open[index], &open[index + 1]).await;
                    format!("{} and {}", open[index], open[index + 1])
                }
            };
            self.note(what.name(), None, from, note);
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
            self.note(what.trouble.name(), None, from, describe_trouble(what.trouble, what.chance, befallen));
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

    fn give_life(&self, post: usize, nth: usize) -> Living {
        let name = format!("worker-{post}.{nth}");
        let link = self.proxy.link(&name);
        let config = self.config.clone().top(&format!("worker-id = {name:?}"));
        let from = self.elapsed();
        Living { worker: Worker::start(&link, &config), name, from, link }
    }

    fn bury(&self, living: &Living) {
        let Living { name, from, worker, .. } = living;
        let life = Life { name: name.clone(), from: *from, until: self.elapsed(), log: worker.stderr() };
        self.lives.lock().unwrap_or_else(PoisonError::into_inner).push(life);
    }

    fn note(&self, what: &'static str, whom: Option<String>, from: Duration, note: String) {
        let event = Event { what, whom, from, until: self.elapsed(), note };
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }
}

// === impl Post ===

impl Post<'_> {
    /// Does what is to be done to the workers of this post.
    pub(super) async fn suffer(&mut self, deeds: &[Timed<Deed>]) {
        for Timed { at, what } in deeds {
            self.agent.until(*at).await;
            self.assert_lives();
            let (whom, from) = (self.living.name.clone(), self.agent.elapsed());
            match *what {
                Deed::Kill { pause } => {
                    self.living.worker.kill().await;
                    self.bury();
                    sleep(pause).await;
                    self.succeed();
                }
                Deed::Roll => {
                    // Before, a signal may find a process that does not listen yet.
                    self.ready().await;
                    self.living.worker.stop().await;
                    self.bury();
                    self.succeed();
                }
                Deed::Surge => {
                    self.ready().await;
                    let successor = self.successor();
                    let mut old = std::mem::replace(&mut self.living, successor);
                    self.ready().await;
                    old.worker.stop().await;
                    self.agent.bury(&old);
                    self.links.push(old.link);
                }
                Deed::Freeze { time } => {
                    self.living.worker.suspend();
                    sleep(time).await;
                    self.living.worker.resume();
                }
                Deed::CutOff { time, held } => {
                    self.living.link.cut();
                    sleep(time).await;
                    self.living.link.restore(held);
                }
            }
            self.agent.note(what.name(), Some(whom), from, describe_deed(*what));
        }
    }

    /// Waits until the worker is ready.
    pub(super) async fn ready(&mut self) {
        self.living.worker.ready().await;
    }

    /// Ends the worker in good order.
    pub(super) async fn stop(&mut self) {
        self.living.worker.stop().await;
        self.bury();
    }

    /// What the worker says of itself.
    pub(super) async fn readiness(&self) -> String {
        let (status, text) = self.living.worker.get("/readyz").await;
        format!("{}: {status} {}", self.living.name, text.trim())
    }

    fn assert_lives(&mut self) {
        let ended = self.living.worker.ended();
        assert!(ended.is_none(), "{} has ended by itself with {ended:?}", self.living.name);
    }

    fn successor(&mut self) -> Living {
        self.started += 1;
        self.agent.give_life(self.number, self.started)
    }

    fn succeed(&mut self) {
        let successor = self.successor();
        let old = std::mem::replace(&mut self.living, successor);
        self.links.push(old.link);
    }

    fn bury(&self) {
        self.agent.bury(&self.living);
    }
}

/// Does to all posts what is to be done, side by side.
pub(super) async fn suffer(posts: &mut [Post<'_>], deeds: &[Vec<Timed<Deed>>]) {
    join_all(posts.iter_mut().zip(deeds).map(|(post, deeds)| post.suffer(deeds))).await;
}

fn rules(weather: &Weather, input: &str, output: &str, table: &str) -> Vec<Rule> {
    let Weather { trouble, chance, .. } = *weather;
    match trouble {
        Trouble::ReadsThrottled => {
            vec![Rule::new(Fault::Refused(THROTTLED)).operation("GetRecords").stream(input).probability(chance)]
        }
        Trouble::PutsThrottled => {
            let faults = [Fault::Refused(THROTTLED), Fault::Partial { chance: 0.5, code: THROTTLED }];
            faults.map(|fault| Rule::new(fault).operation("PutRecords").stream(output).probability(chance / 2.0)).into()
        }
        Trouble::PutsSlow => {
            vec![Rule::new(Fault::Late(SLOW)).operation("PutRecords").stream(output).probability(chance)]
        }
        Trouble::LeaseWritesThrottled => {
            vec![Rule::new(Fault::Refused(THROTTLED)).operation("UpdateItem").table(table).probability(chance)]
        }
        Trouble::LeaseAnswersLost => {
            vec![Rule::new(Fault::AnswerLost).operation("UpdateItem").table(table).probability(chance)]
        }
    }
}
