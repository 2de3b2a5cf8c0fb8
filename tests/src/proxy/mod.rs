//! A proxy between workers and their services that fails as networks and services do.
//!
//! A [`Proxy`] stands before Kinesis and DynamoDB, whoever plays them. Each worker gets a [`Link`] of its own, which can
//! be cut while another worker's is whole. [`Rule`]s say which [`Fault`] befalls which calls, and count what they have
//! done, so that a test can assert that there was something to survive. What was written can be asked for, in order and
//! by link: [`Proxy::writes`].
//!
//! Chances come from a seed, which is printed when a test fails. The same seed says the same of the nth call that a
//! rule meets; which call is the nth depends on the workers.

mod call;
mod fault;
mod http;
mod journal;
mod link;
mod put_records;
mod serve;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

pub use call::Service;
pub use fault::{Fault, Injected, Rule};
pub use journal::Write;
pub use link::{Held, Link};

use serde_json::Value;

use crate::services::Environment;
use fault::Active;
use serve::Shared;

/// A proxy, for as long as this lives.
#[derive(Debug)]
pub struct Proxy {
    shared: Arc<Shared>,
    surroundings: BTreeMap<String, String>,
    seed: u64,
}

// === impl Proxy ===

impl Proxy {
    /// Before services that are named by the variables of an AWS SDK, such as `AWS_ENDPOINT_URL_KINESIS`. What a link
    /// does not replace of these variables it hands on.
    pub fn new(services: &impl Environment, seed: u64) -> Proxy {
        let surroundings = services.environment().clone();
        Proxy { shared: Arc::new(Shared::new(&surroundings)), surroundings, seed }
    }

    /// A way to the services; its name must be new.
    pub fn link(&self, name: &str) -> Link {
        Link::new(name, Arc::clone(&self.shared), &self.surroundings)
    }

    /// Puts a rule behind those that there are. A call is befallen by the first rule that strikes.
    pub fn inject(&self, rule: Rule) -> Injected {
        let mut rules = self.shared.rules.lock().unwrap_or_else(PoisonError::into_inner);
        // Rules of one proxy must not throw the same dice.
        let seed = self.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(rules.len() as u64);
        let active = Arc::new(Active::new(rule, seed));
        rules.push(Arc::clone(&active));
        Injected(active)
    }

    /// Ends all rules.
    pub fn calm(&self) {
        let rules = self.shared.rules.lock().unwrap_or_else(PoisonError::into_inner);
        rules.iter().for_each(|rule| rule.end());
    }

    /// Kinesis records that PutRecords has stored and whose answers were kept from the worker: it has to send them
    /// again.
    pub fn untold(&self) -> u64 {
        self.shared.untold()
    }

    /// Reads that Kinesis itself has refused because a shard's limit was used up. An AWS SDK repeats them, so that nobody
    /// else may see them.
    pub fn throttled_reads(&self) -> u64 {
        self.shared.throttled_reads()
    }

    /// Remembers from now on what is written.
    pub fn keep_writes(&self) {
        self.shared.journal.keep();
    }

    /// The answers to PutRecords that were kept from workers, since [`Proxy::keep_writes`].
    pub fn untold_answers(&self) -> Vec<Value> {
        self.shared.journal.untold()
    }

    /// What was written, in the order in which the services answered.
    pub fn writes(&self) -> Vec<Write> {
        self.shared.journal.writes()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the proxy, with SHARDMILL_TEST_SEED={} ---", self.seed);
            let rules = self.shared.rules.lock().unwrap_or_else(PoisonError::into_inner);
            for active in rules.iter() {
                eprintln!("{} times {:?}", active.count(), active.rule);
            }
        }
    }
}
