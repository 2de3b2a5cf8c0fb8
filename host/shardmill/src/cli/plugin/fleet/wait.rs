//! Waits until a fleet does what is wanted of it, and says how far it is.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};
use shardmill_cause::with_causes;
use shardmill_lease::Roster;
use shardmill_lease::store::Sidecar;
use tokio::time::{Instant, sleep};

use super::{failed, progress};
use crate::cli::{Failure, output};
use crate::config::Leases;
use crate::fleet::deployment::Deployment;
use crate::fleet::history::Why;
use crate::fleet::life::{Life, Lives};
use crate::fleet::outlook::{self, Member, Progress};
use crate::fleet::{self, documents};
use crate::host::Class;
use crate::unix_ms;

/// What is waited for.
pub(super) struct Waiting<'a> {
    pub(super) processor: &'a str,
    pub(super) sidecar: &'a dyn Sidecar,
    pub(super) leases: &'a Leases,
    /// The document as it was written.
    pub(super) deployment: &'a Deployment,
    pub(super) limit: Duration,
    pub(super) is_quiet: bool,
}

/// How it ended.
pub(super) struct Waited {
    pub(super) progress: Progress,
    /// Why it was not waited for any longer, if not all is done.
    pub(super) undone: Option<String>,
}

// === impl Waiting ===

impl Waiting<'_> {
    /// Until all that live run what they should, or none of them is about to any more, or the time is over.
    pub(super) async fn until_done(&self) -> Result<Waited, Failure> {
        let bar = bar(self.is_quiet);
        let waited = self.look_until_done(&bar).await;
        bar.finish_and_clear();
        waited
    }

    async fn look_until_done(&self, bar: &ProgressBar) -> Result<Waited, Failure> {
        let start = Instant::now();
        let mut lives = Lives::new(self.leases);
        let mut said: Option<String> = None;
        // Since when nobody gets on with it.
        let mut stuck: Option<Instant> = None;
        loop {
            let now = Instant::now();
            let is_late = now.duration_since(start) >= self.limit;
            let (deployment, roster) = match self.look().await {
                Ok(looked) => looked,
                Err(error) if is_passing(&error) && !is_late => {
                    bar.set_message(format!("{}: {}", self.processor, with_causes(&error)));
                    sleep(self.pace()).await;
                    continue;
                }
                Err(error) => return Err(failed(error)),
            };
            lives.observe(&roster, now, unix_ms::now());
            let members = outlook::members(&roster, &lives, now);
            if deployment.is_another_wanted(self.deployment) {
                let progress = Progress::of(self.processor, self.deployment, &members);
                return Ok(Waited { progress, undone: Some(overtaken(&deployment)) });
            }
            // As it is now: a worker may have come with a file that is newer, and is not meant.
            let progress = Progress::of(self.processor, &deployment, &members);
            self.tell(&progress, bar, &mut said);
            // Some may live of which that is not clear yet.
            let is_clear = members.iter().all(|member| member.life != Life::Unproven);
            if progress.is_done() && is_clear {
                return Ok(Waited { progress, undone: None });
            }
            // Who does not answer may be there all the same; and whoever has failed tries once more.
            let patience = self.leases.expiry.max(fleet::pace(self.leases) * 4);
            if progress.pending > 0 || !is_clear {
                stuck = None;
            } else if now.duration_since(*stuck.get_or_insert(now)) >= patience {
                let undone = match progress.should {
                    0 => "no worker lives that should run it".to_owned(),
                    _ => "not all workers can".to_owned(),
                };
                return Ok(Waited { progress, undone: Some(undone) });
            }
            if is_late {
                let undone = format!("not within {}", humantime::format_duration(self.limit));
                return Ok(Waited { progress, undone: Some(undone) });
            }
            sleep(self.pace()).await;
        }
    }

    async fn look(&self) -> Result<(Deployment, Roster), documents::Error> {
        let roster = async { Roster::read(self.sidecar).await.map_err(documents::Error::from) };
        let (found, roster) = tokio::try_join!(documents::read(self.sidecar, self.processor), roster)?;
        Ok((found.deployment, roster))
    }

    fn pace(&self) -> Duration {
        (self.leases.scan / 2).clamp(Duration::from_millis(100), Duration::from_secs(2))
    }

    fn tell(&self, progress: &Progress, bar: &ProgressBar, said: &mut Option<String>) {
        let line = format!("{}: {}", self.processor, progress::line(progress));
        bar.set_length(progress.should as u64);
        bar.set_position(progress.have as u64);
        bar.set_message(line.clone());
        // Where no bar is seen, what changes is said.
        if bar.is_hidden() && !self.is_quiet && said.as_ref() != Some(&line) {
            output::say(&line);
            *said = Some(line);
        }
    }
}

impl Waited {
    pub(super) fn json(&self) -> Value {
        let Progress { have, should, troubles, .. } = &self.progress;
        let troubles: serde_json::Map<_, _> =
            troubles.iter().map(|(worker, reason)| (worker.clone(), json!(reason))).collect();
        json!({ "run_it": have, "should_run_it": should, "troubles": troubles, "undone": self.undone })
    }
}

/// Whether asking again may help.
fn is_passing(error: &documents::Error) -> bool {
    matches!(error, documents::Error::Store(error) if Class::of_store(error) == Class::Unavailable)
}

fn overtaken(deployment: &Deployment) -> String {
    let command = deployment.history().entries().iter().rfind(|entry| entry.why != Why::File);
    let by = command.map_or("somebody", |entry| entry.by.as_str());
    format!("something else is wanted now, by {by}")
}

/// Those among whom a share is counted.
pub(super) async fn members(sidecar: &dyn Sidecar, leases: &Leases) -> Result<Vec<Member>, Failure> {
    let (roster, lives) = fleet::life::survey(sidecar, leases).await.map_err(failed)?;
    Ok(outlook::members(&roster, &lives, Instant::now()))
}

fn bar(is_quiet: bool) -> ProgressBar {
    let bar = ProgressBar::new(0);
    if is_quiet {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    let style = ProgressStyle::with_template("  [{bar:20}] {pos}/{len}  {wide_msg}  {elapsed}");
    let bar = bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use shardmill_lease::store::memory::Memory;
    use shardmill_plugin::Digest;

    use super::*;
    use crate::fleet::deployment::{Asked, Order};
    use crate::fleet::documents::Read;
    use crate::fleet::share::Share;

    const LIMIT: Duration = Duration::from_secs(120);

    /// A fleet in which `two` is wanted, and whose workers were started with `one`.
    struct Scene {
        table: Memory,
        leases: Leases,
        read: Read,
    }

    impl Scene {
        async fn new() -> Self {
            let text = "application = \"t\"\n[processors.copy]\nstream = \"s\"\nplugin = \"a.wasm\"\n";
            let leases = crate::config::parse("shardmill.toml", text, Path::new("")).unwrap().leases;
            let table = Memory::new();
            let mut read = documents::read(&table, "copy").await.unwrap();
            read.deployment.learn(&digest("one"), "/one.wasm", &by("w"));
            let mut scene = Self { table, leases, read };
            scene.order("two").await;
            scene
        }

        async fn order(&mut self, name: &str) {
            let order = Order { digest: digest(name), source: name.to_owned(), share: Share::ALL, is_rollback: false };
            self.read.deployment.order(order, &[], &by("ops"));
            self.write().await;
        }

        async fn write(&mut self) {
            assert!(documents::write(&self.table, "copy", &self.read).await.unwrap());
            self.read.version = Some(self.read.version.unwrap_or(0) + 1);
        }

        /// A worker writes its row every second. `at`: when, by its own clock.
        fn lives(&self, worker: &'static str, at: u64, running: &str, file: &str, trouble: Option<&str>) {
            let plugin = json!({
                "running": digest(running).to_string(),
                "since": 1,
                "file": digest(file).to_string(),
                "aim": self.read.deployment.aim(worker, &digest(file)).digest.to_string(),
                "revision": self.read.deployment.aim(worker, &digest(file)).revision,
                "trouble": trouble,
            });
            let note = json!({ "at": at, "plugins": { "copy": plugin } });
            let row = json!({ "run": worker, "joined": 1, "is_leaving": false, "max": null, "note": note });
            let table = self.table.clone();
            tokio::spawn(async move {
                let mut version = None;
                while table.put_document(&format!("fleet/worker/{worker}"), &row, version).await.unwrap() {
                    version = Some(version.unwrap_or(0) + 1);
                    sleep(Duration::from_secs(1)).await;
                }
            });
        }

        async fn wait(&self, deployment: &Deployment) -> Waited {
            // The first rows are written.
            sleep(Duration::from_millis(1)).await;
            let Self { table, leases, .. } = self;
            let waiting =
                Waiting { processor: "copy", sidecar: table, leases, deployment, limit: LIMIT, is_quiet: true };
            waiting.until_done().await.unwrap_or_else(|failure| panic!("{}", failure.message()))
        }
    }

    fn digest(name: &str) -> Digest {
        Digest::of(name.as_bytes())
    }

    fn by(name: &str) -> Asked {
        Asked { by: name.to_owned(), at: 1 }
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_whose_clock_is_wrong_is_waited_for_as_well() {
        let scene = Scene::new().await;
        scene.lives("good", unix_ms::now(), "two", "one", None);
        scene.lives("late", 7, "one", "one", Some("gone"));
        let waited = scene.wait(&scene.read.deployment).await;
        assert_eq!(waited.undone.as_deref(), Some("not all workers can"));
        assert_eq!(waited.progress.troubles, [("late".to_owned(), "gone".to_owned())]);
        assert_eq!((waited.progress.have, waited.progress.should), (1, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_comes_with_a_newer_file_is_not_meant_and_another_command_is_the_end() {
        let mut scene = Scene::new().await;
        let ordered = scene.read.deployment.clone();
        scene.lives("old", unix_ms::now(), "two", "one", None);
        scene.read.deployment.learn(&digest("image"), "/image.wasm", &by("new"));
        scene.write().await;
        scene.lives("new", unix_ms::now(), "image", "image", None);
        let waited = scene.wait(&ordered).await;
        assert_eq!((waited.undone, waited.progress.have, waited.progress.should), (None, 1, 1));
        scene.order("three").await;
        let waited = scene.wait(&ordered).await;
        assert_eq!(waited.undone.as_deref(), Some("something else is wanted now, by ops"));
    }

    #[tokio::test(start_paused = true)]
    async fn where_nobody_lives_that_is_the_end() {
        let scene = Scene::new().await;
        let waited = scene.wait(&scene.read.deployment).await;
        assert_eq!(waited.undone.as_deref(), Some("no worker lives that should run it"));
    }
}
