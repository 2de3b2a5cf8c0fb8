//! What a guest of this version may import from the host.

use tracing::Level;
use wasmtime::component::{HasSelf, Linker};

use super::bindings::shardmill::processor::{configuration, logging, metrics, types};
use crate::Need;
use crate::guest_log::Source;
use crate::guest_metrics::Measurement;
use crate::host::Host;

pub(super) fn link(linker: &mut Linker<Host>, has: impl Fn(Need) -> bool) -> wasmtime::Result<()> {
    types::add_to_linker::<_, HasSelf<Host>>(linker, |host| host)?;
    logging::add_to_linker::<_, HasSelf<Host>>(linker, |host| host)?;
    configuration::add_to_linker::<_, HasSelf<Host>>(linker, |host| host)?;
    if has(Need::Metrics) {
        metrics::add_to_linker::<_, HasSelf<Host>>(linker, |host| host)?;
    }
    Ok(())
}

fn level(level: logging::Level) -> Level {
    match level {
        logging::Level::Trace => Level::TRACE,
        logging::Level::Debug => Level::DEBUG,
        logging::Level::Info => Level::INFO,
        logging::Level::Warn => Level::WARN,
        logging::Level::Error => Level::ERROR,
    }
}

impl types::Host for Host {}

impl logging::Host for Host {
    fn enabled(&mut self, asked: logging::Level) -> bool {
        self.log.enabled(level(asked))
    }

    fn log(&mut self, asked: logging::Level, message: String, fields: Vec<(String, String)>) {
        self.log.line(level(asked), Source::Log, &message, &fields);
    }
}

impl configuration::Host for Host {
    fn all(&mut self) -> String {
        self.configuration.text().to_owned()
    }

    fn get(&mut self, key: String) -> Option<String> {
        self.configuration.get(&key)
    }
}

impl metrics::Host for Host {
    fn add(&mut self, name: String, labels: Vec<(String, String)>, by: u64) {
        self.measure(&name, labels, Measurement::Add(by));
    }

    fn set(&mut self, name: String, labels: Vec<(String, String)>, value: f64) {
        self.measure(&name, labels, Measurement::Set(value));
    }

    fn observe(&mut self, name: String, labels: Vec<(String, String)>, value: f64) {
        self.measure(&name, labels, Measurement::Observe(value));
    }
}
