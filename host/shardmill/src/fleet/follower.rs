//! Lets one processor of this worker run what the fleet wants of it: looks at its document, fetches the module, and switches.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rand::Rng as _;
use shardmill_cause::{Coded, code, with_causes};
use shardmill_lease::Roster;
use shardmill_lease::store::Sidecar;
use shardmill_plugin::Digest;
use tokio::sync::oneshot;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::board::{Board, Standing};
use super::deployment::{Aim, Asked, Deployment};
use super::documents::{self, Read};
use super::fetch::Fetcher;
use super::metrics::Metrics;
use super::moved::Moved;
use super::shelf::Shelf;
use super::source::Source;
use super::switch::{Fetched, Running, Switch};
use crate::unix_ms;

/// How much sooner or later than its time a look comes.
const JITTER: f64 = 0.25;
/// The longest wait before a version is tried again that cannot be had.
const LONGEST_WAIT: Duration = Duration::from_secs(300);
/// After so many looks the worker that leads sees whether one of those is left that were to have a version first.
const LOOKS: u32 = 8;
/// How long a start waits for what is wanted; then the file runs meanwhile.
const START: Duration = Duration::from_secs(15);

/// Of what a follower is made.
pub(crate) struct Parts {
    pub(crate) processor: String,
    /// This worker's id.
    pub(crate) worker: String,
    /// Where the document is.
    pub(crate) sidecar: Arc<dyn Sidecar>,
    pub(crate) switch: Arc<dyn Switch>,
    pub(crate) fetcher: Fetcher,
    pub(crate) shelf: Shelf,
    pub(crate) board: Board,
    pub(crate) metrics: Metrics,
    /// Whether this worker leads the fleet of the consumer in whose table the document is.
    pub(crate) leads: Box<dyn Fn() -> bool + Send + Sync>,
    /// From one look to the next.
    pub(crate) pace: Duration,
}

/// Lets one processor run what is wanted.
pub(crate) struct Follower {
    parts: Parts,
    /// The file that the configuration names.
    path: PathBuf,
    /// What is in it, as it was when this worker took it last.
    file: Digest,
    /// What ran at the last look.
    ran: Digest,
    /// The document as it was read last.
    deployment: Deployment,
    /// The last decision that this worker was to carry out: which version, and the number of the decision.
    decided: Decision,
    /// The last one that was done here, or that somebody has passed over for this worker.
    done: Option<Decision>,
    /// The version of the file that was put on the shelf last.
    kept: Option<Digest>,
    failing: Option<Failing>,
    /// The file of which the log tells that it is newer than what was deployed.
    newer: Option<Digest>,
    /// Whether the log tells that the document makes no sense.
    is_unread: bool,
    /// What the metrics show.
    shown: Option<Digest>,
    moved: Moved,
    looks: u32,
}

/// Which version, and the number of the command for it.
type Decision = (Digest, u64);

/// A version that cannot be had.
#[derive(Debug)]
struct Failing {
    decision: Decision,
    reason: String,
    /// Whether it was fetched and refused.
    is_refused: bool,
    attempts: u32,
    next: Instant,
}

/// Starts followers, and waits until each has looked once and done what is wanted, so that the first batches see that
/// version already; or a while. They end with `stop`.
pub(crate) async fn start(followers: Vec<Follower>, stop: &CancellationToken) -> JoinSet<()> {
    let mut running = JoinSet::new();
    let mut looks = Vec::new();
    for follower in followers {
        let (looked, has_looked) = oneshot::channel();
        running.spawn(follower.run(stop.clone(), looked));
        looks.push(has_looked);
    }
    tokio::select! {
        _looked = timeout(START, futures::future::join_all(looks)) => {}
        () = stop.cancelled() => {}
    }
    running
}

// === impl Follower ===

impl Follower {
    /// A follower of a processor that runs its file. `None` if this worker has no such processor.
    pub(crate) fn new(parts: Parts) -> Option<Self> {
        let Running { digest: ran, path, file, .. } = parts.switch.running(&parts.processor)?;
        Some(Self {
            parts,
            path,
            file,
            ran,
            deployment: Deployment::new(),
            decided: (file, 0),
            done: None,
            kept: None,
            failing: None,
            newer: None,
            is_unread: false,
            shown: None,
            moved: Moved::default(),
            looks: 0,
        })
    }

    /// Goes on until `stop`. `looked` is told after the first look.
    async fn run(mut self, stop: CancellationToken, looked: oneshot::Sender<()>) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.follow(looked) => {}
        }
    }

    async fn follow(&mut self, looked: oneshot::Sender<()>) {
        self.look().await;
        // Whoever has started this may not wait any more.
        let _ = looked.send(());
        loop {
            self.keep_file().await;
            let jitter = rand::rng().random_range(1.0 - JITTER..1.0 + JITTER);
            sleep(self.parts.pace.mul_f64(jitter)).await;
            self.look().await;
        }
    }

    /// Looks once, and does what is wanted.
    pub(crate) async fn look(&mut self) {
        let Some(running) = self.running() else { return };
        // Known also while the document cannot be read.
        self.show(&running);
        if let Err(error) = self.read().await {
            self.unread(&error);
        }
        let Some(running) = self.running() else { return };
        let decision = self.decision();
        self.decided = decision;
        if running.digest == decision.0 {
            self.settle(decision);
        } else if self.done != Some(decision) && self.is_due(decision) {
            self.attempt(decision).await;
        }
        if let Some(running) = self.running() {
            self.show(&running);
        }
        self.refill().await;
    }

    /// What runs. If somebody has told this worker by itself to run something else, that stays until the next decision.
    fn running(&mut self) -> Option<Running> {
        let running = self.parts.switch.running(&self.parts.processor)?;
        self.path.clone_from(&running.path);
        let is_another_file = std::mem::replace(&mut self.file, running.file) != running.file;
        let is_another = std::mem::replace(&mut self.ran, running.digest) != running.digest;
        // A file that was changed under a running worker is what runs from then on, and its file.
        if is_another && !(is_another_file && running.digest == running.file) {
            self.settle(self.decided);
        }
        Some(running)
    }

    /// Whether anybody has let something else run since the last look, or changed the file.
    fn is_overtaken(&self) -> bool {
        let running = self.parts.switch.running(&self.parts.processor);
        running.is_none_or(|running| (running.digest, running.file) != (self.ran, self.file))
    }

    fn aim(&self) -> Aim<'_> {
        self.deployment.aim(&self.parts.worker, &self.file)
    }

    fn decision(&self) -> Decision {
        let aim = self.aim();
        (aim.digest, aim.revision)
    }

    /// Nothing is left to do about a decision.
    fn settle(&mut self, decision: Decision) {
        self.done = Some(decision);
        self.fail(None);
    }

    /// Whatever failed before, and is not wanted any more, is not told any longer.
    fn fail(&mut self, failing: Option<Failing>) {
        let before = std::mem::replace(&mut self.failing, failing);
        let version = |failing: &Failing| failing.decision.0;
        let now = self.failing.as_ref().map(version);
        if let Some(before) = before.filter(|before| before.is_refused && Some(version(before)) != now) {
            self.parts.switch.forget_refused(&self.parts.processor, &before.decision.0);
        }
    }

    /// Reads the document, and notes this worker's file in it if that is not known.
    async fn read(&mut self) -> Result<(), documents::Error> {
        let Parts { sidecar, processor, worker, .. } = &self.parts;
        let found = documents::read(&**sidecar, processor).await?;
        let asked = Asked { by: worker.clone(), at: unix_ms::now() };
        let (file, path) = (self.file, self.path.display().to_string());
        let learn = |deployment: &mut Deployment| deployment.learn(&file, &path, &asked);
        let Read { deployment, .. } = documents::change(&**sidecar, processor, found, learn).await?;
        let is_newer = deployment.wanted().is_some() && deployment.is_newer(&file);
        if is_newer && self.newer != Some(file) {
            tracing::info!(
                processor, file = path, digest = %file,
                "the plugin's file is newer than what was deployed by command, and runs"
            );
        }
        self.newer = is_newer.then_some(file);
        self.deployment = deployment;
        if std::mem::take(&mut self.is_unread) {
            tracing::info!(processor, "it can be seen again which version of the plugin is wanted");
        }
        Ok(())
    }

    /// Says once that it is not known what is wanted. A table that does not answer is told of by who keeps leases there.
    fn unread(&mut self, error: &documents::Error) {
        let (processor, reason) = (&self.parts.processor, with_causes(error));
        if matches!(error, documents::Error::Store(_)) {
            tracing::debug!(processor, reason, "it cannot be seen which version of the plugin is wanted");
        } else if !std::mem::replace(&mut self.is_unread, true) {
            tracing::warn!(
                processor,
                reason,
                code = %error.code(),
                "it cannot be seen which version of the plugin is wanted; what runs goes on"
            );
        }
    }

    fn is_due(&self, decision: Decision) -> bool {
        let failing = self.failing.as_ref().filter(|failing| failing.decision == decision);
        failing.is_none_or(|failing| failing.next <= Instant::now())
    }

    async fn attempt(&mut self, decision: Decision) {
        let tried = match self.fetch(&self.aim()).await {
            // The next look sees what that was.
            Ok(_) if self.is_overtaken() => return,
            Ok(fetched) => {
                self.parts.switch.switch(&self.parts.processor, fetched).await.map_err(|reason| (reason, true))
            }
            Err(reason) => Err((reason, false)),
        };
        let Err((reason, is_refused)) = tried else {
            self.settle(decision);
            return;
        };
        let Parts { processor, metrics, pace, .. } = &self.parts;
        metrics.failed(processor);
        let before = self.failing.as_ref().filter(|failing| failing.decision == decision);
        // What switches tells of what it refuses.
        if !is_refused && before.is_none_or(|before| before.reason != reason) {
            tracing::warn!(
                processor, digest = %decision.0, reason, code = %code::deploy::UNAVAILABLE,
                "the version of the plugin that is wanted cannot be had; the one that runs goes on, and it is tried again"
            );
        }
        let attempts = before.map_or(0, |before| before.attempts).saturating_add(1);
        let wait = pace.saturating_mul(1 << attempts.min(16)).min(LONGEST_WAIT);
        self.fail(Some(Failing { decision, reason, is_refused, attempts, next: Instant::now() + wait }));
    }

    async fn fetch(&self, aim: &Aim<'_>) -> Result<Fetched, String> {
        let Aim { digest, source, .. } = *aim;
        let source = match source {
            Some(source) => Source::parse(source).map_err(|invalid| format!("its source is no good: {invalid}"))?,
            None => Source::File(self.path.clone()),
        };
        let (from, shelf) = (source.to_string(), self.parts.shelf.clone());
        // A disk that hangs must not hang the rest.
        let kept = spawn_blocking(move || shelf.take(&digest)).await.ok().flatten();
        let bytes = match kept {
            Some(bytes) => bytes,
            None => self.fetch_and_keep(&source, &digest).await?,
        };
        Ok(Fetched { bytes, digest, from })
    }

    async fn fetch_and_keep(&self, source: &Source, digest: &Digest) -> Result<Vec<u8>, String> {
        let Parts { fetcher, shelf, .. } = &self.parts;
        let bytes = fetcher.fetch_exactly(source, digest).await?;
        let (shelf, digest) = (shelf.clone(), *digest);
        let putting = spawn_blocking(move || {
            shelf.put(&digest, &bytes);
            bytes
        });
        putting.await.map_err(|error| error.to_string())
    }

    /// Keeps the module of the file as well, so that there is a way back to it when another one is in its place.
    async fn keep_file(&mut self) {
        let file = self.file;
        if self.kept.replace(file) == Some(file) || !self.parts.shelf.is_there() {
            return;
        }
        let shelf = self.parts.shelf.clone();
        let is_kept = spawn_blocking(move || shelf.take(&file).is_some()).await;
        if is_kept.is_ok_and(|is_kept| !is_kept) {
            // What is in the file now may be another one already.
            let _ = self.fetch_and_keep(&Source::File(self.path.clone()), &file).await;
        }
    }

    fn show(&mut self, running: &Running) {
        let (aim, decision) = (self.aim(), self.decision());
        let differs = running.digest != aim.digest;
        let failing = self.failing.as_ref().filter(|failing| failing.decision == decision && differs);
        let standing = Standing {
            running: running.digest,
            since: running.since,
            file: self.file,
            aim: aim.digest,
            revision: aim.revision,
            source: aim.source.map(|source| Source::parse(source).map_or_else(|_| String::new(), |it| it.to_string())),
            wanted: self.deployment.wanted().map(|wanted| (wanted.digest, self.deployment.share())),
            trouble: failing.map(|failing| failing.reason.clone()),
            is_refused: failing.is_some_and(|failing| failing.is_refused),
            is_local: differs && self.done == Some(decision),
        };
        let Parts { processor, board, metrics, .. } = &self.parts;
        metrics.show(processor, self.shown.as_ref(), &running.digest, standing.is_as_wanted());
        self.shown = Some(running.digest);
        board.put(processor, standing);
    }

    /// Lets another worker have what is wanted when all of those have gone that were to have it first.
    async fn refill(&mut self) {
        if self.deployment.share().is_all() || self.deployment.wanted().is_none() || !(self.parts.leads)() {
            self.moved = Moved::default();
            return;
        }
        self.looks = (self.looks + 1) % LOOKS;
        if self.looks != 0 {
            return;
        }
        let Parts { sidecar, processor, .. } = &self.parts;
        let Ok(roster) = Roster::read(&**sidecar).await else { return };
        let living = self.moved.since_last(&roster);
        let living: Vec<&str> = living.iter().map(|worker| worker.as_str()).collect();
        if !self.deployment.clone().refill(&living) {
            return;
        }
        let refilled = match documents::read(&**sidecar, processor).await {
            Ok(found) => documents::change(&**sidecar, processor, found, |deployment| deployment.refill(&living)).await,
            Err(error) => Err(error),
        };
        if let Ok(Read { deployment, .. }) = refilled {
            tracing::info!(
                processor,
                "none of the workers lives that were to have the wanted plugin first: another one has it"
            );
            self.deployment = deployment;
        }
    }
}

#[cfg(test)]
mod tests;
