//! A worker's configuration file.

use std::fmt::Write;

use crate::paths;

/// How a worker holds leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leases {
    /// Nothing expires, however busy the machine is: for tests where no worker dies.
    Lasting,
    /// A lease expires after 2 s without renewal.
    Brief,
}

/// A configuration with one processor, `copy`, that reads the stream `input`.
#[derive(Debug, Clone)]
pub struct Config {
    plugin: String,
    leases: Leases,
    top: String,
    stream: String,
    processor: String,
    guest: String,
    outputs: String,
}

// === impl Config ===

impl Config {
    /// The processor `route`, copying every record to the stream `output`.
    pub fn copy() -> Config {
        Config::with_plugin("route").guest(r#"field = "/n""#).guest(r#"default = "copies""#)
    }

    /// Another plugin, with an output `copies` to the stream `output`.
    pub fn with_plugin(plugin: &str) -> Config {
        Config {
            plugin: plugin.to_owned(),
            leases: Leases::Lasting,
            top: String::new(),
            stream: String::new(),
            processor: String::new(),
            guest: String::new(),
            outputs: "[processors.copy.outputs.copies]\nstream = \"output\"\n".to_owned(),
        }
    }

    /// How leases are held.
    #[must_use]
    pub fn leases(mut self, leases: Leases) -> Config {
        self.leases = leases;
        self
    }

    /// A line at the top of the file.
    #[must_use]
    pub fn top(mut self, line: &str) -> Config {
        push(&mut self.top, line);
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

    /// The lease table of the processor.
    pub fn lease_table(&self) -> &'static str {
        "tests-copy"
    }

    /// The file's text.
    pub fn text(&self) -> String {
        let Config { top, stream, processor, guest, outputs, .. } = self;
        let expiry = match self.leases {
            Leases::Lasting => "60s",
            Leases::Brief => "2s",
        };
        let plugin = paths::plugin(&self.plugin);
        let compiled = paths::compiled();
        format!(
            r#"application = "tests"
cache-dir = {compiled:?}
{top}
[admin]
listen = "127.0.0.1:0"

[log]
format = "json"

[leases]
renew = "300ms"
expiry = "{expiry}"
scan = "200ms"
sync = "500ms"

[streams.input]
idle = "200ms"
{stream}
[processors.copy]
stream = "input"
plugin = {plugin:?}
{processor}
[processors.copy.config]
{guest}
{outputs}"#
        )
    }
}

fn push(section: &mut String, line: &str) {
    writeln!(section, "{line}").expect("a text takes more text");
}
