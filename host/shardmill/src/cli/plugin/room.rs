//! Which plugin a command is about and what it may do: as a configuration says it, or the command line, in the words of a
//! configuration.

use std::path::{Path, PathBuf};

use clap::Args;
use prometheus_client::registry::Registry;
use serde_json::Value;
use shardmill_cause::{Coded, code, with_causes};
use shardmill_plugin::{Metrics, Module, Need, Plugin, Pool, Pooled, Runtime, module};

use crate::cli::{Failure, text};
use crate::config::{self, Config, Processor};
use crate::host;

/// The processor of a command line without a configuration.
const PROCESSOR: &str = "test";
/// A command calls one, and what is left of one that broke down may take a moment to end.
const INSTANCES: usize = 4;

#[derive(Debug, Args)]
pub(super) struct RoomArguments {
    /// The component. It may be left out with --config, which names one.
    #[arg(value_name = "FILE.wasm", required_unless_present = "config")]
    file: Option<PathBuf>,
    /// Take `config`, limits, grants, outputs, filter and batches of a processor from this configuration. No service is
    /// touched.
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Which processor of the configuration; not needed if there is only one.
    #[arg(long, value_name = "NAME", requires = "config")]
    processor: Option<String>,
    /// What the plugin gets as its `config`: a JSON object.
    #[arg(long, value_name = "JSON", conflicts_with = "config", value_parser = object)]
    guest_config: Option<Value>,
    /// What the plugin may use up, as `limits` of a processor: 'memory = "32 MiB", batch-timeout = "2s"'.
    #[arg(long, value_name = "TOML", conflicts_with = "config")]
    limits: Option<String>,
    /// What the plugin may do, as `grants` of a processor: 'clocks = true'.
    #[arg(long, value_name = "TOML", conflicts_with = "config")]
    grants: Option<String>,
}

/// A plugin with what is said of it.
#[derive(Debug)]
pub(super) struct Room {
    config: Config,
    processor: Processor,
    /// Whether a configuration's file says it, with the names of outputs.
    has_config: bool,
}

/// A plugin that is loaded.
pub(super) struct Loaded {
    pub(super) module: Module,
    pub(super) plugin: Plugin,
    pub(super) metrics: Metrics,
    /// Where its metrics are.
    pub(super) registry: Registry,
    pub(super) pool: Pool,
}

// === impl RoomArguments ===

impl RoomArguments {
    /// The configuration's file, if there is one.
    pub(super) fn config(&self) -> Option<&Path> {
        self.config.as_deref()
    }

    pub(super) fn open(&self) -> Result<Room, Failure> {
        let (config, name) = match &self.config {
            Some(path) => {
                let config = config::load_without_plugins(path)?;
                let name = self.chosen(path, &config)?;
                (config, name)
            }
            None => (config::parse("the command line", &self.as_configuration(), Path::new(""))?, PROCESSOR.to_owned()),
        };
        let Config { mut processors, .. } = config;
        let Some(mut processor) = processors.remove(&name) else {
            return Err(Failure::usage(format!("there is no processor {name}")).code(code::deploy::NO_PROCESSOR));
        };
        // The others run somewhere else, and so do the instances that work at the same time.
        processor.limits.instances = INSTANCES;
        if let Some(file) = &self.file {
            processor.plugin.clone_from(file);
        }
        if let Some(given) = &self.guest_config {
            processor.config.clone_from(given);
        }
        let processors = [(name, processor.clone())].into();
        let config = Config { processors, ..config };
        Ok(Room { config, processor, has_config: self.config.is_some() })
    }

    fn chosen(&self, path: &Path, config: &Config) -> Result<String, Failure> {
        let names: Vec<&str> = config.processors.keys().map(String::as_str).collect();
        let path = path.display();
        match (&self.processor, &names[..]) {
            (Some(name), _) if config.processors.contains_key(name) => Ok(name.clone()),
            (Some(name), _) => {
                let message = format!("{path} has no processor `{}`", text::line(name));
                Err(Failure::usage(message).help(format!("it has {}", names.join(", "))))
            }
            (None, [only]) => Ok((*only).to_owned()),
            (None, _) => {
                let message = format!("{path} has {} processors, and one is tried at a time", names.len());
                Err(Failure::usage(message).help(format!("say --processor with one of {}", names.join(", "))))
            }
        }
    }

    /// What the command line says, in the form in which everything is checked and has its default.
    fn as_configuration(&self) -> String {
        let table = |name: &str, given: &Option<String>| {
            let Some(given) = given.as_deref().map(str::trim) else { return String::new() };
            if given.starts_with('{') { format!("{name} = {given}\n") } else { format!("{name} = {{ {given} }}\n") }
        };
        let (limits, grants) = (table("limits", &self.limits), table("grants", &self.grants));
        format!(
            "application = \"test\"\n[processors.{PROCESSOR}]\nstream = \"test\"\nplugin = \"plugin\"\n{limits}{grants}"
        )
    }
}

// === impl Room ===

impl Room {
    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    pub(super) fn processor(&self) -> &Processor {
        &self.processor
    }

    /// The component's file.
    pub(super) fn file(&self) -> &Path {
        &self.processor.plugin
    }

    /// What the plugin's stream is called.
    pub(super) fn stream(&self) -> &str {
        self.processor.stream_ids().next().unwrap_or("test")
    }

    /// Whether a record may be sent to an output of this name: without a configuration to any.
    pub(super) fn knows_output(&self, name: &str) -> bool {
        !self.has_config || self.processor.outputs.contains_key(name)
    }

    /// The bytes of the component.
    pub(super) async fn read(&self) -> Result<Vec<u8>, Failure> {
        let file = self.file();
        tokio::fs::read(file).await.map_err(|error| {
            let shown = file.display();
            let failure =
                Failure::configuration(format!("the plugin {shown} cannot be read: {error}")).code(code::config::FILE);
            failure.help("build it (cargo build --release --target wasm32-wasip2), or name another file")
        })
    }

    /// A runtime as a worker has it, with its cache of compiled code in this folder, if at all.
    pub(super) fn runtime(&self, cache_dir: Option<PathBuf>, metrics: Metrics) -> Result<Runtime, Failure> {
        let config = Config { cache_dir, ..self.config.clone() };
        Ok(host::runtime(&config, metrics)?)
    }

    /// Checks and compiles the component.
    pub(super) async fn module(&self, runtime: &Runtime, bytes: Vec<u8>) -> Result<Module, Failure> {
        let name = self.file().display().to_string();
        runtime
            .load_within(&name, bytes, &self.processor.limits.load)
            .await
            .map_err(|error| Failure::configuration(with_causes(&error)).code(error.code()))
    }

    /// Ties a module to what is said of it. It has started once: what `init` says is known.
    pub(super) async fn load(&self, bytes: Vec<u8>) -> Result<Loaded, Failure> {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let runtime = self.runtime(self.config.cache_dir.clone(), metrics.clone())?;
        let module = self.module(&runtime, bytes).await?;
        let plugin = host::plugin(&runtime, module.clone(), &self.processor).await.map_err(|error| match error {
            host::Error::Plugin { source: module::Error::NotGranted { .. }, .. } if !self.has_config => {
                Failure::from(error).help(format!("or say --grants '{}'", granted(&module)))
            }
            error => self.refused(error),
        })?;
        let pool = plugin.pool(1);
        Ok(Loaded { module, plugin, metrics, registry, pool })
    }

    /// An instance that is started, or the one that was used last.
    pub(super) async fn instance(&self, loaded: &Loaded) -> Result<Pooled, Failure> {
        let pooled = loaded.pool.get().await;
        pooled.map_err(|source| self.refused(host::does_not_start(&self.processor, source)))
    }

    /// What is told of a plugin that is not taken is about a configuration, and there may be none.
    fn refused(&self, error: host::Error) -> Failure {
        let failure = Failure::from(error);
        if self.has_config {
            return failure;
        }
        failure.help("here --guest-config is its `config`, --limits its `limits` and --grants its `grants`; or name a configuration with --config")
    }
}

/// What a plugin cannot do without, as `--grants` says it.
fn granted(module: &Module) -> String {
    module.needs().into_iter().map(Need::line).collect::<Vec<_>>().join(", ")
}

fn object(text: &str) -> Result<Value, String> {
    match serde_json::from_str(text) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_other) => Err("a JSON object is expected, such as {\"minutes\":15}".to_owned()),
        Err(error) => Err(format!("it is not JSON: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;
    use serde_json::json;
    use tempfile::TempDir;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        room: RoomArguments,
    }

    fn open(arguments: &[&str]) -> Result<Room, String> {
        let line = Line::try_parse_from([&["test"], arguments].concat()).map_err(|error| error.to_string())?;
        line.room.open().map_err(|failure| failure.message())
    }

    #[test]
    fn a_command_line_says_what_a_configuration_could() {
        let room = open(&[
            "a.wasm",
            "--guest-config",
            r#"{"minutes":15}"#,
            "--limits",
            "memory = \"32 MiB\", batch-timeout = \"2s\"",
            "--grants",
            "{ clocks = true }",
        ])
        .unwrap();
        let processor = room.processor();
        assert_eq!((processor.limits.memory, processor.limits.batch_timeout), (32 << 20, Duration::from_secs(2)));
        assert_eq!((processor.grants.clocks, processor.grants.random), (true, false));
        assert_eq!((&processor.config, room.file()), (&json!({ "minutes": 15 }), Path::new("a.wasm")));
        assert!(room.knows_output("any"));
        assert!(open(&["a.wasm", "--limits", "memory = \"1 KiB\""]).unwrap_err().contains("memory"));
        assert!(open(&["a.wasm", "--grants", "wings = true"]).unwrap_err().contains("wings"));
        assert!(open(&["a.wasm", "--guest-config", "[]"]).unwrap_err().contains("JSON object"));
        assert!(open(&[]).unwrap_err().contains("FILE.wasm"));
    }

    #[test]
    fn a_processor_of_a_configuration_is_the_only_one_or_the_one_that_is_named() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("shardmill.toml");
        let processor = |name: &str| {
            format!(
                "[processors.{name}]\nstream = \"in\"\nplugin = \"{name}.wasm\"\n[processors.{name}.outputs.out]\nstream = \"o\"\n"
            )
        };
        let config = ["--config", path.to_str().unwrap()];
        std::fs::write(&path, format!("application = \"a\"\n{}", processor("one"))).unwrap();
        let room = open(&config).unwrap();
        assert_eq!((room.file(), room.stream()), (&*folder.path().join("one.wasm"), "in"));
        assert!(room.knows_output("out") && !room.knows_output("other"));
        let file = open(&[&["b.wasm"], &config[..]].concat()).unwrap();
        assert_eq!(file.file(), Path::new("b.wasm"));

        std::fs::write(&path, format!("application = \"a\"\n{}{}", processor("one"), processor("two"))).unwrap();
        assert!(open(&config).unwrap_err().contains("has 2 processors"));
        let two = open(&[&config[..], &["--processor", "two"]].concat()).unwrap();
        assert_eq!((two.processor().name.as_str(), two.config().processors.len()), ("two", 1));
        assert!(open(&[&config[..], &["--processor", "three"]].concat()).unwrap_err().contains("no processor `three`"));
        assert!(open(&[&config[..], &["--limits", "memory = 1"]].concat()).unwrap_err().contains("cannot be used"));
    }
}
