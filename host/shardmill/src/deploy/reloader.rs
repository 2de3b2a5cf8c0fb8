//! The configuration and the plugins' files, read again while everything runs.
//!
//! A reload is one: the file is checked whole, the versions of plugins that it asks for are made, and only when all of that
//! is good does anything change. What cannot be applied while everything runs is named with its keys.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use futures::future::join_all;
use serde::Serialize;
use shardmill_cause::{code, with_causes};
use shardmill_engine::watchdog;
use shardmill_plugin::Digest;
use tokio::io::AsyncReadExt as _;
use tokio::sync::{MutexGuard as WorkGuard, watch};
use toml::Table;

use super::prepare::{self, Prepared};
use super::slot::Work;
use super::{Deployer, GrantError, MAX_PLUGIN, Refusal, Setup, Slot};
use crate::config::{self, Change, Config, diff};
use crate::telemetry;

/// Reads the configuration and the plugins again. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Reloader(Arc<Inner>);

struct Inner {
    deployer: Deployer,
    /// The configuration's file, if it came from one.
    path: Option<PathBuf>,
    live: Live,
    /// Held while something is read again: one after the other.
    state: tokio::sync::Mutex<State>,
    told: Mutex<Told>,
}

/// What is asked for each time that it is needed.
pub(crate) struct Live {
    pub(crate) watchdog: watch::Sender<watchdog::Options>,
    /// Whether files are watched.
    pub(crate) is_watching: watch::Sender<bool>,
}

/// The configurations that count.
struct State {
    /// As the process was started: what differs from it and is not live needs a restart.
    started: Config,
    written: Table,
    /// As it was applied last.
    applied: Table,
    warnings: Vec<String>,
}

/// What `/v1/status` tells of the configuration.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Told {
    /// Its file.
    pub(crate) file: Option<String>,
    /// Since when it is as it is, such as `2026-01-01T00:00:00Z`.
    pub(crate) since: String,
    /// Why the file as it is now is not taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) refused: Option<String>,
    /// The keys that are other ones in the file, and need a restart.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) needs_restart: Vec<String>,
    /// The plugins' files that the file names which is not taken: it may be taken when they have changed.
    #[serde(skip)]
    waiting_for: BTreeSet<PathBuf>,
}

/// Why something is read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// A signal.
    Signal,
    /// The admin API.
    Request,
    /// A file has changed.
    File,
}

/// What came of it.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    /// Why nothing has changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) refused: Option<String>,
    /// The keys that were changed and are in force now.
    pub(crate) applied: Vec<String>,
    /// The keys that are other ones in the file, and need a restart.
    pub(crate) needs_restart: Vec<String>,
    /// By processor, what has become of its plugin.
    pub(crate) processors: BTreeMap<String, PluginReport>,
    /// Whether the same may be taken at another time.
    #[serde(skip)]
    pub(crate) is_passing: bool,
}

/// What came of it for one plugin.
#[derive(Debug, Serialize)]
#[serde(tag = "result", rename_all = "kebab-case")]
pub(crate) enum PluginReport {
    Switched { from: String, to: String },
    Unchanged,
    Refused { reason: String },
}

/// A processor whose plugin is looked at, and its right to be another one.
struct Turn<'a> {
    slot: &'a Arc<Slot>,
    work: WorkGuard<'a, Work>,
    setup: Setup,
    file: Digest,
    /// If it is to be another one.
    prepared: Option<Prepared>,
}

// === impl Reloader ===

impl Reloader {
    /// `source`: the file that the configuration came from, and its text.
    pub(crate) fn new(deployer: Deployer, config: Config, source: Option<config::Source>, live: Live) -> Self {
        let (path, written) = match source {
            // It was read as a configuration.
            Some(config::Source { path, text }) => (Some(path), toml::from_str(&text).unwrap_or_default()),
            None => (None, Table::new()),
        };
        let file = path.as_ref().map(|path| path.display().to_string());
        let told = Told { file, since: now(), ..Told::default() };
        let warnings = config.warnings.clone();
        let applied = written.clone();
        let state = State { started: config, written, applied, warnings };
        Self(Arc::new(Inner { deployer, path, live, state: state.into(), told: told.into() }))
    }

    pub(crate) fn deployer(&self) -> &Deployer {
        &self.0.deployer
    }

    /// What is told of the configuration.
    pub(crate) fn told(&self) -> Told {
        self.lock_told().clone()
    }

    /// What should be known, a sentence for each.
    pub(crate) fn notes(&self) -> Vec<String> {
        let told = self.lock_told();
        let refused =
            told.refused.iter().map(|reason| format!("the configuration as it is now is not taken: {reason}"));
        let keys = told.needs_restart.join(", ");
        let restart =
            (!keys.is_empty()).then(|| format!("the configuration has changed where that needs a restart: {keys}"));
        refused.chain(restart).collect()
    }

    /// Whether the configuration as it is now is not taken.
    pub(crate) fn is_refused(&self) -> bool {
        self.lock_told().refused.is_some()
    }

    /// Files that the configuration names which is not taken.
    pub(super) fn waiting_for(&self) -> BTreeSet<PathBuf> {
        self.lock_told().waiting_for.clone()
    }

    /// The configuration's file.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// Whether files are to be watched.
    pub(crate) fn is_watching(&self) -> watch::Receiver<bool> {
        self.0.live.is_watching.subscribe()
    }

    /// Whether a text is that of the configuration that was applied last.
    pub(crate) async fn is_applied(&self, text: &[u8]) -> bool {
        let table = std::str::from_utf8(text).ok().and_then(|text| toml::from_str::<Table>(text).ok());
        let state = self.0.state.lock().await;
        !self.is_refused() && table.is_some_and(|table| table == state.applied)
    }

    /// Reads the configuration and the plugins' files again, and applies what can be.
    pub(crate) async fn reload(&self, why: Why) -> Report {
        let mut state = self.0.state.lock().await;
        let loaded = match self.0.path.clone() {
            Some(path) => match load(path).await {
                Ok(loaded) => Some(loaded),
                Err(reason) => {
                    let report = Report { is_passing: true, ..Report::default() };
                    return self.refuse(why, report, reason, BTreeSet::new());
                }
            },
            None => None,
        };
        let written = loaded.as_ref().map_or_else(|| state.applied.clone(), |(_, table)| table.clone());
        let plan = Plan::of(&state, &written);
        let config = loaded.as_ref().map(|(config, _)| config);
        let (turns, mut report) = self.prepare(&state.started, config, &plan).await;
        if let Some(processor) = report.processors.iter().find_map(|(name, report)| report.refused().then_some(name)) {
            let reason = report.processors[processor].reason();
            let reason = format!("the plugin of processor {processor} is refused: {reason}");
            let files = config.into_iter().flat_map(|config| config.processors.values());
            let files = files.map(|processor| processor.plugin.clone()).collect();
            return self.refuse(why, report, reason, files);
        }
        for turn in turns {
            let name = turn.slot.processor().to_owned();
            report.processors.insert(name, self.switch(turn));
        }
        if let Some((config, _)) = loaded {
            self.apply(&mut state, config, &plan);
        }
        state.applied = plan.applied;
        report.applied = plan.live;
        report.needs_restart = plan.needs_restart;
        self.tell(why, &report);
        report
    }

    /// Makes what is to be another version, of all processors before anything changes.
    async fn prepare(&self, started: &Config, config: Option<&Config>, plan: &Plan) -> (Vec<Turn<'_>>, Report) {
        let (mut turns, mut report) = (Vec::new(), Report::default());
        let (mut granted, mut missing) = (Vec::new(), Vec::new());
        for (slot, work, setup) in self.look_up(started, config, plan).await {
            match setup {
                Ok(setup) => granted.push((slot, work, setup)),
                Err(error) => missing.push((slot.processor().to_owned(), Refusal::from(error))),
            }
        }
        if !missing.is_empty() {
            // All of it may be there when the same file is read again. Until then nothing is made.
            report.is_passing = missing.iter().all(|(_, refusal)| refusal.is_passing());
            let refused = missing.into_iter().map(|(name, refusal)| (name, PluginReport::of(&refusal)));
            report.processors = refused.collect();
            return (turns, report);
        }
        for (slot, work, setup) in granted {
            let name = slot.processor().to_owned();
            let bytes = match read(&setup.path).await {
                Ok(bytes) => bytes,
                Err(refusal) => {
                    // What runs goes on; a configuration that names such a file is refused when it is read.
                    report.is_passing = true;
                    report.processors.insert(name, PluginReport::of(&refusal));
                    continue;
                }
            };
            let file = Digest::of(&bytes);
            let made = self.make(slot, &work, &setup, (file, bytes)).await;
            match made {
                Ok(prepared) => turns.push(Turn { slot, work, setup, file, prepared }),
                Err((digest, refusal)) => {
                    let path = setup.path.display().to_string();
                    let refusal = self.0.deployer.refused(slot, digest, &path, refusal);
                    report.is_passing |= refusal.is_passing();
                    report.processors.insert(name, PluginReport::of(&refusal));
                }
            }
        }
        (turns, report)
    }

    /// Looks up what each processor is granted, with the right to make another version of it. One that is not in the file any
    /// more goes on until the restart.
    async fn look_up(
        &self,
        started: &Config,
        config: Option<&Config>,
        plan: &Plan,
    ) -> Vec<(&Arc<Slot>, WorkGuard<'_, Work>, Result<Setup, GrantError>)> {
        let looks = self.0.deployer.0.slots.values().map(|slot| async move {
            let work = slot.work().await;
            let name = slot.processor();
            let setup = match config.filter(|_| !plan.waiting.contains(name)) {
                Some(config) => setup(started, config, name).await?,
                None => slot.setup().again().await,
            };
            Some((slot, work, setup))
        });
        // At once: files of secrets may take their time.
        join_all(looks).await.into_iter().flatten().collect()
    }

    /// Another version, if there is to be one. What somebody has deployed in other ways stays until the file changes.
    async fn make(
        &self,
        slot: &Arc<Slot>,
        work: &Work,
        setup: &Setup,
        (file, bytes): (Digest, Vec<u8>),
    ) -> Result<Option<Prepared>, (Digest, Refusal)> {
        let running = slot.running();
        let digest = if file == work.file { running.digest } else { file };
        if digest == running.digest && setup.settings == slot.setup().settings {
            return Ok(None);
        }
        let refused = |refusal| (digest, refusal);
        if self.0.deployer.0.stopping.is_cancelled() {
            return Err(refused(Refusal::Stopping));
        }
        slot.until_ended().await;
        let runtime = &self.0.deployer.0.runtime;
        let prepared = if digest == running.digest {
            let module = slot.pool().plugin().module().clone();
            prepare::start(runtime, slot, setup, module, running.from).await
        } else {
            prepare::load(runtime, slot, setup, bytes, &setup.path.display().to_string()).await
        };
        prepared.map(Some).map_err(refused)
    }

    fn switch(&self, turn: Turn<'_>) -> PluginReport {
        let Turn { slot, mut work, setup, file, prepared } = turn;
        slot.set_setup(setup);
        slot.set_file_trouble(None);
        let is_new = std::mem::replace(&mut work.file, file) != file;
        let report = match prepared {
            Some(prepared) => PluginReport::of_deployed(self.0.deployer.switch(slot, prepared)),
            None => {
                if is_new {
                    self.0.deployer.unchanged(slot);
                }
                PluginReport::Unchanged
            }
        };
        // One that was refused before is not made again, and not taken.
        if slot.running().digest == file {
            slot.set_own(file);
        }
        report
    }

    /// Puts in force what is no plugin's.
    fn apply(&self, state: &mut State, config: Config, plan: &Plan) {
        for warning in config.warnings.iter().filter(|warning| !state.warnings.contains(warning)) {
            tracing::warn!("{warning}");
        }
        state.warnings = config.warnings;
        if plan.live.iter().any(|key| key == "log.filter") {
            match telemetry::set_filter(&config.log.filter) {
                Ok(telemetry::Changed::Yes) => {}
                Ok(telemetry::Changed::No(why)) => tracing::warn!("`log.filter` has no effect: {why}"),
                // It was checked with everything else.
                Err(error) => tracing::warn!(%error, "the log's filter stays as it was"),
            }
        }
        self.0.live.watchdog.send_if_modified(|options| replace(options, config.watchdog));
        self.0.live.is_watching.send_if_modified(|is_watching| replace(is_watching, config.reload.watch));
    }

    /// `files`: what may have to change before it is taken.
    fn refuse(&self, why: Why, mut report: Report, reason: String, files: BTreeSet<PathBuf>) -> Report {
        self.0.deployer.0.metrics.configuration("refused");
        let is_news = {
            let mut told = self.lock_told();
            let is_news = told.refused.as_ref() != Some(&reason);
            told.refused = Some(reason.clone());
            told.waiting_for = files;
            is_news
        };
        // A file that is looked at again and again is told of once; who asks is answered.
        if is_news || why != Why::File {
            tracing::warn!(why = why.as_str(), reason, code = %code::deploy::NOT_TAKEN, "the configuration is not taken: nothing has changed");
        }
        report.refused = Some(reason);
        report
    }

    fn tell(&self, why: Why, report: &Report) {
        let Report { applied, needs_restart, processors, .. } = report;
        let switched = processors.values().any(|report| matches!(report, PluginReport::Switched { .. }));
        let has_changed = switched || !applied.is_empty();
        self.0.deployer.0.metrics.configuration(if has_changed { "applied" } else { "unchanged" });
        let is_known = {
            let mut told = self.lock_told();
            let was_refused = told.refused.take().is_some();
            told.waiting_for.clear();
            if has_changed {
                told.since = now();
            }
            let is_known = told.needs_restart == *needs_restart && !was_refused;
            told.needs_restart.clone_from(needs_restart);
            is_known
        };
        let (why, applied, keys) = (why.as_str(), applied.join(", "), needs_restart.join(", "));
        if has_changed || is_known || keys.is_empty() {
            tracing::info!(why, applied, "the configuration was read again");
        }
        if !keys.is_empty() && !is_known {
            tracing::warn!(
                why,
                keys,
                "the configuration has changed where that needs a restart: these keys stay as they were until then"
            );
        }
    }

    fn lock_told(&self) -> MutexGuard<'_, Told> {
        self.0.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is to be done about a configuration.
struct Plan {
    /// Keys that are applied.
    live: Vec<String>,
    needs_restart: Vec<String>,
    /// Processors whose plugins stay as they are until the restart, because their outputs differ: another version might name
    /// outputs that are not there yet.
    waiting: BTreeSet<String>,
    /// What is in force then.
    applied: Table,
}

// === impl Plan ===

impl Plan {
    fn of(state: &State, written: &Table) -> Self {
        let since_start = diff(&state.written, written);
        let waiting: BTreeSet<String> = since_start
            .iter()
            .filter(|change| change.is_of_outputs())
            .filter_map(|change| change.processor().map(str::to_owned))
            .collect();
        let waits = |change: &Change| change.processor().is_some_and(|name| waiting.contains(name));
        let (waiting_live, live): (Vec<Change>, Vec<Change>) =
            diff(&state.applied, written).into_iter().filter(|change| change.is_live).partition(waits);
        let restart = since_start.into_iter().filter(|change| !change.is_live);
        let needs_restart: BTreeSet<String> = restart.chain(waiting_live).map(|change| change.key()).collect();
        let mut applied = written.clone();
        for name in &waiting {
            keep_section(&mut applied, &state.applied, name);
        }
        Self {
            live: live.iter().map(Change::key).collect(),
            needs_restart: needs_restart.into_iter().collect(),
            waiting,
            applied,
        }
    }
}

/// Puts a processor's section back.
fn keep_section(table: &mut Table, from: &Table, name: &str) {
    let section = from.get("processors").and_then(|processors| processors.get(name));
    let processors = table.get_mut("processors").and_then(toml::Value::as_table_mut);
    if let (Some(section), Some(processors)) = (section, processors) {
        processors.insert(name.to_owned(), section.clone());
    }
}

/// What a configuration says of a processor that was there at the start. What the engine was made with stays as it was then.
async fn setup(started: &Config, config: &Config, name: &str) -> Option<Result<Setup, GrantError>> {
    let mut processor = config.processors.get(name)?.clone();
    let before = started.processors.get(name)?;
    processor.limits.outcome = before.limits.outcome;
    processor.limits.outputs = before.limits.outputs;
    processor.outputs.clone_from(&before.outputs);
    Some(Setup::of(started, &processor).await)
}

/// The configuration's file, checked whole; or what is wrong with it, in one line.
async fn load(path: PathBuf) -> Result<(Config, Table), String> {
    let loading =
        tokio::task::spawn_blocking(move || config::load_with_source(&path).map_err(|error| error.sentence()));
    let (config, source) = loading.await.map_err(|stopped| stopped.to_string())??;
    // Not the whole error, which shows lines.
    let table = toml::from_str(&source.text).map_err(|error| error.message().to_owned())?;
    Ok((config, table))
}

/// A plugin's file.
pub(super) async fn read(path: &Path) -> Result<Vec<u8>, Refusal> {
    let read = async {
        let mut bytes = Vec::new();
        crate::file::open_async(path).await?.take(MAX_PLUGIN as u64 + 1).read_to_end(&mut bytes).await?;
        if bytes.len() > MAX_PLUGIN {
            return Err(std::io::Error::new(std::io::ErrorKind::FileTooLarge, "it is larger than 128 MiB"));
        }
        Ok(bytes)
    };
    read.await.map_err(|source| Refusal::Read { path: path.to_owned(), source })
}

fn replace<T: PartialEq>(place: &mut T, value: T) -> bool {
    let is_other = *place != value;
    *place = value;
    is_other
}

fn now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

// === impl Why ===

impl Why {
    fn as_str(self) -> &'static str {
        match self {
            Self::Signal => "SIGHUP",
            Self::Request => "request",
            Self::File => "changed file",
        }
    }
}

// === impl PluginReport ===

impl PluginReport {
    fn of(refusal: &Refusal) -> Self {
        Self::Refused { reason: with_causes(refusal) }
    }

    fn of_deployed(deployed: super::Deployed) -> Self {
        match deployed {
            super::Deployed::Switched { from, to } => Self::Switched { from: from.to_string(), to: to.to_string() },
            super::Deployed::Unchanged => Self::Unchanged,
        }
    }

    fn refused(&self) -> bool {
        matches!(self, Self::Refused { .. })
    }

    fn reason(&self) -> String {
        match self {
            Self::Refused { reason } => reason.clone(),
            _other => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STARTED: &str = "
        [processors.a]
        plugin = \"a.wasm\"
        config = { minutes = 1 }
        [processors.b]
        plugin = \"b.wasm\"
        [processors.b.outputs.o]
        stream = \"s\"
    ";

    fn plans(texts: &[&str]) -> Vec<Plan> {
        let table = |text: &str| toml::from_str::<Table>(text).unwrap();
        let parsed = "application = \"t\"\n[processors.a]\nstream = \"s\"\nplugin = \"a.wasm\"";
        let started = config::parse("test", parsed, Path::new("")).unwrap();
        let mut state = State { started, written: table(STARTED), applied: table(STARTED), warnings: Vec::new() };
        let mut plans = Vec::new();
        for text in texts {
            let plan = Plan::of(&state, &table(text));
            state.applied = plan.applied.clone();
            plans.push(plan);
        }
        plans
    }

    #[test]
    fn what_needs_a_restart_is_named_until_it_is_as_it_was() {
        let more = STARTED.replace("minutes = 1", "minutes = 2") + "\n[leases]\nexpiry = \"20s\"";
        let plans = plans(&[&more, &more, STARTED]);
        let told: Vec<_> = plans.iter().map(|plan| (plan.live.clone(), plan.needs_restart.clone())).collect();
        let keys = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>();
        let expected = [
            (keys(&["processors.a.config"]), keys(&["leases.expiry"])),
            (keys(&[]), keys(&["leases.expiry"])),
            (keys(&["processors.a.config"]), keys(&[])),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn a_plugin_waits_for_the_restart_with_the_outputs_that_go_with_it() {
        let more = STARTED.replace("b.wasm", "b2.wasm") + "\n[processors.b.outputs.more]\nstream = \"t\"";
        let less = STARTED.replace("b.wasm", "b2.wasm");
        let plans = plans(&[&more, &more, &less]);
        let waits = ["processors.b.outputs.more", "processors.b.plugin"];
        for plan in &plans[..2] {
            assert_eq!((plan.live.len(), &plan.needs_restart[..]), (0, &waits.map(str::to_owned)[..]));
            assert!(plan.waiting.contains("b") && !plan.waiting.contains("a"));
        }
        assert_eq!((&plans[2].live[..], plans[2].needs_restart.len()), (&["processors.b.plugin".to_owned()][..], 0));
    }
}
