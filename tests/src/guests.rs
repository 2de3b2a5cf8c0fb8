//! A configuration of guests that do as they are told, each with streams of its own.

use std::fmt::Write;

use crate::paths;

/// Another build of a component: it does the same, and has another digest. A component may have any number of sections that
/// nobody reads.
pub fn another_build(component: &[u8], number: u64) -> Vec<u8> {
    const NAME: &[u8] = b"build";
    let number = number.to_string();
    let length = u8::try_from(1 + NAME.len() + number.len()).expect("a short section");
    // A custom section: its id, its length, its name with the name's length, and what is in it.
    let head = [0, length, NAME.len() as u8];
    [component, &head, NAME, number.as_bytes()].concat()
}

/// A configuration whose processors are the tests' own guests.
#[derive(Debug, Clone)]
pub struct Guests {
    top: String,
    processors: String,
}

// === impl Guests ===

impl Guests {
    /// Without any processor, and with leases that last.
    pub fn new() -> Guests {
        Guests { top: String::new(), processors: String::new() }
    }

    /// A line at the top of the file.
    #[must_use]
    pub fn top(mut self, line: &str) -> Guests {
        writeln!(self.top, "{line}").expect("a text takes more text");
        self
    }

    /// A processor that reads a stream and does something; its output `out` goes to another stream. `lines` are settings
    /// of the processor.
    #[must_use]
    pub fn with(mut self, name: &str, plugin: &str, does: &str, [input, output]: [&str; 2], lines: &str) -> Guests {
        let plugin = paths::plugin(plugin);
        let section = format!(
            r#"
[processors.{name}]
stream = "{input}"
plugin = {plugin:?}
config = {{ do = "{does}" }}
{lines}
[processors.{name}.outputs.out]
stream = "{output}"
"#
        );
        self.processors.push_str(&section);
        self
    }

    /// The file's text.
    pub fn text(&self) -> String {
        let Guests { top, processors } = self;
        let compiled = paths::compiled();
        format!(
            r#"application = "tests"
cache-dir = {compiled:?}
{top}
[admin]
listen = "127.0.0.1:0"
[log]
format = "json"
# What the tests' own guests want.
[defaults.processor.grants]
clocks = true
metrics = true
[leases]
expiry = "60s"
scan = "200ms"
{processors}"#
        )
    }
}

impl Default for Guests {
    fn default() -> Self {
        Self::new()
    }
}
