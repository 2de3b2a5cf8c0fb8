//! One command for a whole fleet: which version of a plugin is wanted is a document in the sidecar table of its consumer,
//! and each worker looks at it, fetches the module, and switches to it.
//!
//! What is decided is plain data: [`deployment`] and [`history`] (what a document says and how it changes), [`share`] (which
//! workers are in), [`home`] (which table), [`note`] (what a worker tells of itself), [`life`] and [`outlook`] (what who looks
//! from outside makes of it). Around them [`documents`] reads and writes, [`fetch`] brings modules, [`shelf`] keeps them, and
//! a [`follower`] per processor does what is wanted.

pub(crate) mod board;
pub(crate) mod deployment;
pub(crate) mod documents;
pub(crate) mod fetch;
pub(crate) mod follower;
pub(crate) mod history;
pub(crate) mod home;
pub(crate) mod life;
pub(crate) mod metrics;
pub(crate) mod moved;
pub(crate) mod note;
pub(crate) mod outlook;
pub(crate) mod share;
pub(crate) mod shelf;
pub(crate) mod source;
pub(crate) mod switch;

use std::time::Duration;

use crate::config::Leases;

/// Digests as 64 hexadecimal digits.
pub(crate) mod hex {
    use serde::{Deserialize, Deserializer, Serializer, de};
    use shardmill_plugin::Digest;

    pub(crate) fn serialize<S: Serializer>(digest: &Digest, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(digest)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Digest, D::Error> {
        let text = String::deserialize(deserializer)?;
        Digest::parse(&text).ok_or_else(|| de::Error::custom("a SHA-256 is 64 hexadecimal digits"))
    }
}

/// From one look of a worker at a document to the next.
pub(crate) fn pace(leases: &Leases) -> Duration {
    (leases.scan * 2).clamp(Duration::from_millis(100), Duration::from_secs(60))
}
