//! A worker process after another in one place, and what is done to them.
//!
//! Each worker process is a *life*: it has a link of the proxy and a worker id, both of its name, a file of the plugin and a
//! wall clock of its own. A worker that is replaced is another life on the same post.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::future::join_all;
use serde_json::Value;
use tokio::time::sleep;

use super::action::Deed;
use super::agent::{Agent, Life, Subject};
use super::clock::Clock;
use super::report::describe_deed;
use super::schedule::Timed;
use crate::{Environment, Link, Worker, another_build};

/// As often as this is the same build met again, which is compiled by then.
const BUILDS: u64 = 6;
/// What is no plugin.
const NO_PLUGIN: &[u8] = b"this is no plugin";

/// Where one worker runs after another.
#[derive(Debug)]
pub(super) struct Post<'a> {
    agent: &'a Agent<'a>,
    number: usize,
    started: usize,
    /// Which build of the plugin it has now.
    build: u64,
    living: Living,
    /// What ended lives had sent may still be carried out and noted.
    links: Vec<Link>,
}

#[derive(Debug)]
struct Living {
    name: String,
    post: usize,
    build: u64,
    from: Duration,
    link: Link,
    clock: Clock,
    plugin: PathBuf,
    worker: Worker,
}

/// What a worker is started with.
#[derive(Debug)]
struct Surroundings(BTreeMap<String, String>);

// === impl Living ===

impl Living {
    fn begin(agent: &Agent<'_>, post: usize, nth: usize, build: u64) -> Living {
        let name = format!("worker-{post}.{nth}");
        let folder = agent.home.join(&name);
        std::fs::create_dir(&folder).expect("a folder");
        let plugin = folder.join("plugin.wasm");
        put_in_place(&plugin, &built(agent, build));
        let clock = agent.clocks.clock(&folder);
        let link = agent.proxy.link(&name);
        let config = agent.config.clone().top(&format!("worker-id = {name:?}")).plugin_file(plugin.clone());
        let mut surroundings = Surroundings(link.environment().clone());
        surroundings.0.extend(clock.environment().iter().cloned());
        let from = agent.elapsed();
        let worker = Worker::start(&surroundings, &config);
        Living { name, post, build, from, link, clock, plugin, worker }
    }

    /// Notes its end.
    fn bury(&self, agent: &Agent<'_>) {
        let Living { name, post, build, from, worker, .. } = self;
        let (name, until) = (name.clone(), agent.elapsed());
        agent.bury(Life { name, post: *post, build: *build, from: *from, until, log: worker.stderr() });
    }
}

// === impl Post ===

impl<'a> Post<'a> {
    /// Starts the first worker of a post.
    pub(super) fn new(agent: &'a Agent<'a>, number: usize) -> Post<'a> {
        let living = Living::begin(agent, number, 1, 0);
        Post { agent, number, started: 1, build: 0, living, links: Vec::new() }
    }

    /// Does what is to be done to the workers of this post.
    pub(super) async fn suffer(&mut self, deeds: &[Timed<Deed>]) {
        for Timed { at, what } in deeds {
            self.agent.until(*at).await;
            self.assert_lives();
            let (whom, from) = (self.living.name.clone(), self.agent.elapsed());
            let mut note = describe_deed(*what);
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
                    old.bury(self.agent);
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
                Deed::Reload => note = self.reload().await,
                Deed::ReloadBad => note = self.reload_bad().await,
                Deed::FillDisk { time } => {
                    // Before, where it listens would not get into its log.
                    self.ready().await;
                    self.living.worker.limit_files(Some(0));
                    sleep(time).await;
                    self.assert_lives();
                    self.living.worker.limit_files(None);
                }
                Deed::SkewClock { seconds, time } => {
                    self.living.clock.set(seconds);
                    sleep(time).await;
                    self.living.clock.set(0);
                }
            }
            self.agent.note(what.name(), Subject::Life(whom), from, note);
        }
    }

    /// Puts another build in the place of the plugin, and waits until it runs.
    async fn reload(&mut self) -> String {
        self.ready().await;
        let before = plugin(&self.living.worker).await["digest"].clone();
        let build = self.build % BUILDS + 1;
        put_in_place(&self.living.plugin, &built(self.agent, build));
        self.living.worker.hang_up();
        let runs = async |worker: &mut Worker| (plugin(worker).await["digest"] != before).then_some(());
        self.living.worker.until("another build runs", runs).await;
        self.build = build;
        format!("build {build}")
    }

    /// Puts something else in the place of the plugin, waits until it is refused, and brings the plugin back.
    async fn reload_bad(&mut self) -> String {
        self.ready().await;
        let before = plugin(&self.living.worker).await["digest"].clone();
        put_in_place(&self.living.plugin, NO_PLUGIN);
        self.living.worker.hang_up();
        let refused = async |worker: &mut Worker| {
            let reason = plugin(worker).await["refused"]["reason"].as_str()?.to_owned();
            Some(reason)
        };
        let reason = self.living.worker.until("what is no plugin is refused", refused).await;
        assert_eq!(plugin(&self.living.worker).await["digest"], before, "what is refused changes nothing");
        put_in_place(&self.living.plugin, &built(self.agent, self.build));
        reason
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
        Living::begin(self.agent, self.number, self.started, self.build)
    }

    fn succeed(&mut self) {
        let successor = self.successor();
        let old = std::mem::replace(&mut self.living, successor);
        self.links.push(old.link);
    }

    fn bury(&self) {
        self.living.bury(self.agent);
    }
}

// === impl Surroundings ===

impl Environment for Surroundings {
    fn environment(&self) -> &BTreeMap<String, String> {
        &self.0
    }
}

/// What `/status` says of the plugin of the processor that reads the input.
async fn plugin(worker: &Worker) -> Value {
    worker.status().await["plugin"].take()
}

/// Puts a file in the place of another one, as a whole.
fn put_in_place(path: &Path, bytes: &[u8]) {
    let new = path.with_extension("new");
    std::fs::write(&new, bytes).expect("a file");
    std::fs::rename(&new, path).expect("another file");
}

/// Does to all posts what is to be done, side by side.
pub(super) async fn suffer(posts: &mut [Post<'_>], deeds: &[Vec<Timed<Deed>>]) {
    join_all(posts.iter_mut().zip(deeds).map(|(post, deeds)| post.suffer(deeds))).await;
}

/// A build of the plugin: all do the same.
fn built(agent: &Agent<'_>, number: u64) -> Vec<u8> {
    if number == 0 { agent.plugin.clone() } else { another_build(&agent.plugin, number) }
}
