//! A worker's configuration file.

use std::fmt::Write;
use std::path::PathBuf;

use crate::paths;

/// How a worker holds leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leases {
    /// Nothing expires, however busy the machine is: for tests where no worker dies.
    Lasting,
    /// A lease expires after 2 s without renewal.
    Brief,
    /// A lease expires after so many seconds without renewal.
    Seconds(u32),
}

/// A configuration with one processor, `copy`, that reads the stream `input`.
#[derive(Debug, Clone)]
pub struct Config {
    leases: Leases,
    inputs: String,
    leads_to: String,
    top: String,
    admin: String,
    holding: String,
    stream: String,
    plugin: &'static str,
    plugin_file: Option<PathBuf>,
    processor: String,
    guest: String,
    others: String,
}

// === impl Config ===

impl Config {
    /// The processor `route`, copying every record to the stream `output`.
    pub fn copy() -> Config {
        Config {
            leases: Leases::Lasting,
            inputs: r#"stream = "input""#.to_owned(),
            leads_to: r#"stream = "output""#.to_owned(),
            top: String::new(),
            admin: String::new(),
            holding: String::new(),
            stream: String::new(),
            plugin: "route",
            plugin_file: None,
            processor: String::new(),
            guest: "field = \"/n\"\ndefault = \"copies\"\n".to_owned(),
            others: String::new(),
        }
    }

    /// Another plugin in place of `route`, with none of its settings. It copies to its output `copies`.
    #[must_use]
    pub fn plugin(mut self, plugin: &'static str) -> Config {
        self.plugin = plugin;
        self.guest.clear();
        self
    }

    /// The plugin is in this file, which is the test's own.
    #[must_use]
    pub fn plugin_file(mut self, path: PathBuf) -> Config {
        self.plugin_file = Some(path);
        self
    }

    /// How leases are held.
    #[must_use]
    pub fn leases(mut self, leases: Leases) -> Config {
        self.leases = leases;
        self
    }

    /// The processor reads these streams in place of `input`, as a consumer of many.
    #[must_use]
    pub fn streams(mut self, streams: &[&str]) -> Config {
        self.inputs = format!("streams = {streams:?}");
        self
    }

    /// The processor reads this stream in place of `input`.
    #[must_use]
    pub fn reads(mut self, stream: &str) -> Config {
        self.inputs = format!("stream = {stream:?}");
        self
    }

    /// The copies go to this stream in place of `output`.
    #[must_use]
    pub fn output(mut self, stream: &str) -> Config {
        self.leads_to = format!("stream = {stream:?}");
        self
    }

    /// The copies go to another processor, which is among [the other sections](Config::others), in place of a stream.
    #[must_use]
    pub fn leads_to(mut self, processor: &str) -> Config {
        self.leads_to = format!("to = \"processor:{processor}\"");
        self
    }

    /// A line at the top of the file.
    #[must_use]
    pub fn top(mut self, line: &str) -> Config {
        push(&mut self.top, line);
        self
    }

    /// A line for the admin server.
    #[must_use]
    pub fn admin(mut self, line: &str) -> Config {
        push(&mut self.admin, line);
        self
    }

    /// A line for how leases are held.
    #[must_use]
    pub fn holding(mut self, line: &str) -> Config {
        push(&mut self.holding, line);
        self
    }

    /// A line for the stream that is read.
    #[must_use]
    pub fn stream(mut self, line: &str) -> Config {
        push(&mut self.stream, line);
        self
    }

    /// A line for the processor.
    #[must_use]
    pub fn processor(mut self, line: &str) -> Config {
        push(&mut self.processor, line);
        self
    }

    /// A line for the guest's own configuration.
    #[must_use]
    pub fn guest(mut self, line: &str) -> Config {
        push(&mut self.guest, line);
        self
    }

    /// A processor besides `copy` on the same stream: the guest that does as it is told, with lines of its own. What it
    /// emits goes to the stream `asides`.
    #[must_use]
    pub fn and_guest(mut self, name: &str, plugin: &str, processor: &str, guest: &str) -> Config {
        let plugin = paths::plugin(plugin);
        let section = format!(
            r#"
[processors.{name}]
stream = "input"
plugin = {plugin:?}
{processor}
[processors.{name}.config]
{guest}
[processors.{name}.outputs.out]
stream = "asides""#
        );
        push(&mut self.others, &section);
        self
    }

    /// Sections after all others.
    #[must_use]
    pub fn others(mut self, sections: &str) -> Config {
        push(&mut self.others, sections);
        self
    }

    /// The lease table of the processor `copy`.
    pub fn lease_table(&self) -> &'static str {
        "tests-copy"
    }

    /// The file's text.
    pub fn text(&self) -> String {
        let Config { top, admin, holding, inputs, leads_to, stream, plugin, processor, guest, others, .. } = self;
        let expiry = match self.leases {
            Leases::Lasting => 60,
            Leases::Brief => 2,
            Leases::Seconds(seconds) => seconds,
        };
        let plugin = self.plugin_file.clone().unwrap_or_else(|| paths::plugin(plugin));
        let compiled = paths::compiled();
        format!(
            r#"application = "tests"
cache-dir = {compiled:?}
{top}
[admin]
listen = "127.0.0.1:0"
{admin}
[log]
format = "json"

# What the tests' own guests want.
[defaults.processor.grants]
clocks = true
metrics = true

[leases]
renew = "300ms"
expiry = "{expiry}s"
scan = "200ms"
sync = "500ms"
{holding}
[streams.input]
idle = "200ms"
idle-max = "200ms"
{stream}
[processors.copy]
{inputs}
plugin = {plugin:?}
{processor}
[processors.copy.config]
{guest}
[processors.copy.outputs.copies]
{leads_to}
{others}"#
        )
    }
}

fn push(section: &mut String, line: &str) {
    writeln!(section, "{line}").expect("a text takes more text");
}
