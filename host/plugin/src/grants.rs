//! What a guest may do besides computing. Nothing of it is granted unless the configuration does.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::HttpGrant;

/// What a guest may do. By default nothing: what every guest has besides are standard output and error (to the log), an
/// empty standard input, no arguments, no files, and a seed for hash tables.
///
/// The seed (`wasi:random/insecure-seed`) is no grant, because every program in Rust with a `HashMap` imports it. What it
/// gives away is a number that nobody else has; without it, whoever writes records could make all keys of such a table
/// collide.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grants {
    /// `wasi:clocks`: the time of day, a monotonic clock, and waiting.
    pub clocks: bool,
    /// `wasi:random`: random bytes, good for keys and ids.
    pub random: bool,
    /// The contract's `metrics`: numbers of its own among the host's.
    pub metrics: bool,
    /// What the guest finds in its environment, by name. Nothing of the host's own is there.
    pub environment: BTreeMap<String, String>,
    /// Values that the guest finds in its environment besides, and that the host shows to nobody: where the guest says
    /// one, in its log, in its failures or in labels of its metrics, the host writes `***`.
    pub secrets: BTreeMap<String, Secret>,
    /// `wasi:http/outgoing-handler`: requests to the hosts that are named.
    pub http: Option<HttpGrant>,
}

/// A value that only its guest is to see. It is not shown by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

/// A grant that a component cannot do without, because it imports what the grant gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Need {
    /// [`Grants::clocks`].
    Clocks,
    /// [`Grants::random`].
    Random,
    /// [`Grants::metrics`].
    Metrics,
    /// [`Grants::http`].
    Http,
}

// === impl Grants ===

impl Grants {
    /// Whether these grants have what is needed.
    pub fn cover(&self, need: Need) -> bool {
        match need {
            Need::Clocks => self.clocks,
            Need::Random => self.random,
            Need::Metrics => self.metrics,
            Need::Http => self.http.is_some(),
        }
    }

    /// What the guest finds in its environment, secrets included.
    pub(crate) fn variables(&self) -> Vec<(String, String)> {
        let plain = self.environment.iter().map(|(name, value)| (name.clone(), value.clone()));
        plain.chain(self.secrets.iter().map(|(name, secret)| (name.clone(), secret.text().to_owned()))).collect()
    }
}

// === impl Secret ===

impl Secret {
    /// Takes a value.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret(…)")
    }
}

// === impl Need ===

impl Need {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Clocks, Self::Random, Self::Metrics, Self::Http];

    /// The grant's key in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Clocks => "clocks",
            Self::Random => "random",
            Self::Metrics => "metrics",
            Self::Http => "http",
        }
    }

    /// The line of a configuration that grants it, in `[processors.NAME.grants]`.
    pub fn line(self) -> &'static str {
        match self {
            Self::Clocks => "clocks = true",
            Self::Random => "random = true",
            Self::Metrics => "metrics = true",
            Self::Http => r#"http = { hosts = ["HOST"] }"#,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_shown() {
        let secrets = BTreeMap::from([("TOKEN".to_owned(), Secret::new("hunter22"))]);
        let grants = Grants { secrets, ..Grants::default() };
        let shown = format!("{grants:?} {grants:#?}");
        assert!(shown.contains("TOKEN") && !shown.contains("hunter22"), "{shown}");
        assert_eq!(grants.variables(), [("TOKEN".to_owned(), "hunter22".to_owned())]);
    }

    #[test]
    fn nothing_is_granted_by_default() {
        for need in Need::ALL {
            assert!(!Grants::default().cover(need), "{need:?}");
        }
        assert_eq!(Grants::default().variables(), []);
    }
}
