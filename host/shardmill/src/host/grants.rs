//! What the configuration grants is looked up where it is: in the host's environment and in files.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use shardmill_plugin::{Grants, Secret};

use crate::admin::is_open;
use crate::config::{self, SecretSource, Variable};

/// No secret is as large as this; a device is.
const MOST_BYTES: u64 = 64 << 10;
/// Shorter ones cannot be hidden in what a guest says.
const LEAST_BYTES: usize = 4;

/// Why something that is granted is not there. No error holds a value.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such variable.
    #[error("the environment variable {variable} is not set, and {what} is to have its value")]
    NotSet {
        /// The variable.
        variable: String,
        /// What wants it.
        what: String,
    },
    /// A variable is no text.
    #[error("the environment variable {variable} is not UTF-8, and {what} is to have its value")]
    NotText {
        /// The variable.
        variable: String,
        /// What wants it.
        what: String,
    },
    /// A file cannot be read.
    #[error("the file {} of {what} cannot be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What wants it.
        what: String,
        /// Why.
        source: io::Error,
    },
    /// A secret that is none.
    #[error("{what} is {reason}: a secret is a text of {LEAST_BYTES} to {MOST_BYTES} bytes without NUL")]
    Invalid {
        /// Which one.
        what: String,
        /// What it is in place of one.
        reason: &'static str,
    },
}

/// Looks up what a processor is granted. Secrets are read each time that this is called.
pub(super) fn read(grants: &config::Grants) -> Result<Grants, Error> {
    let mut environment = BTreeMap::new();
    for (name, variable) in &grants.environment {
        let value = match variable {
            Variable::Value(value) => value.clone(),
            Variable::Host(variable) => of_host(variable, || format!("`{name}` of `grants.environment`"))?,
        };
        environment.insert(name.clone(), value);
    }
    let mut secrets = BTreeMap::new();
    for (name, source) in &grants.secrets {
        secrets.insert(name.clone(), secret(name, source)?);
    }
    Ok(Grants { environment, secrets, ..without_values(grants) })
}

/// What a processor is granted, but for values that may be where it runs alone.
pub(super) fn without_values(grants: &config::Grants) -> Grants {
    Grants {
        clocks: grants.clocks,
        random: grants.random,
        metrics: grants.metrics,
        http: grants.http.clone(),
        ..Grants::default()
    }
}

fn of_host(variable: &str, what: impl FnOnce() -> String) -> Result<String, Error> {
    std::env::var(variable).map_err(|error| {
        let (variable, what) = (variable.to_owned(), what());
        match error {
            std::env::VarError::NotPresent => Error::NotSet { variable, what },
            std::env::VarError::NotUnicode(_) => Error::NotText { variable, what },
        }
    })
}

fn secret(name: &str, source: &SecretSource) -> Result<Secret, Error> {
    let what = || format!("`{name}` of `grants.secrets`");
    let text = match source {
        SecretSource::Variable(variable) => of_host(variable, what)?,
        SecretSource::File(path) => {
            let text = read_file(path).map_err(|source| Error::Read { path: path.clone(), what: what(), source })?;
            if is_open(path) {
                tracing::warn!(
                    secret = name, file = %path.display(),
                    "every user of this machine can read the secret's file: take that right away (chmod o-r)"
                );
            }
            let line = text.strip_suffix('\n').unwrap_or(&text);
            line.strip_suffix('\r').unwrap_or(line).to_owned()
        }
    };
    let reason = match text.len() {
        0 => "empty",
        length if length < LEAST_BYTES => "too short",
        length if length as u64 > MOST_BYTES => "too long",
        _ if text.contains('\0') => "no text",
        _ => return Ok(Secret::new(text)),
    };
    Err(Error::Invalid { what: what(), reason })
}

fn read_file(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(MOST_BYTES + 3).read_to_end(&mut bytes)?;
    // Its error would show the bytes.
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn of(source: SecretSource) -> Result<Grants, Error> {
        read(&config::Grants { secrets: BTreeMap::from([("TOKEN".to_owned(), source)]), ..config::Grants::default() })
    }

    #[test]
    fn a_secret_is_what_its_file_holds_without_the_end_of_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        for (held, expected) in
            [("hunter22", "hunter22"), ("hunter22\n", "hunter22"), ("hunter22\r\n", "hunter22"), (" a b\n\n", " a b\n")]
        {
            fs::write(&path, held).unwrap();
            let grants = of(SecretSource::File(path.clone())).unwrap();
            assert_eq!(grants.secrets["TOKEN"], Secret::new(expected));
        }
    }

    #[test]
    fn what_is_no_secret_is_refused_without_showing_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        for (held, reason) in [
            (&b""[..], "empty"),
            (b"\n", "empty"),
            (b"q9z\n", "too short"),
            (b"q9zq9z\0", "no text"),
            (b"q9zq9z\xff", "not UTF-8"),
            (&[b'q'; 70_000], "too long"),
        ] {
            fs::write(&path, held).unwrap();
            let error = of(SecretSource::File(path.clone())).unwrap_err();
            let told = format!("{error} {error:?}");
            assert!(told.contains(reason) && told.contains("TOKEN"), "{told}");
            assert!(!told.contains("q9z") && !told.contains("qqqq"), "{told}");
        }
        let absent = of(SecretSource::File(folder.path().join("absent"))).unwrap_err().to_string();
        assert!(absent.contains("absent") && absent.contains("cannot be read"), "{absent}");
        let unset = of(SecretSource::Variable("SHARDMILL_TEST_NO_SUCH_SECRET".to_owned())).unwrap_err().to_string();
        assert!(unset.contains("SHARDMILL_TEST_NO_SUCH_SECRET is not set") && unset.contains("TOKEN"), "{unset}");
    }

    #[test]
    fn a_variable_is_its_value_or_that_of_the_host() {
        let environment = BTreeMap::from([
            ("REGION".to_owned(), Variable::Value("north".to_owned())),
            ("WAY".to_owned(), Variable::Host("PATH".to_owned())),
        ]);
        let grants = read(&config::Grants { environment, ..config::Grants::default() }).unwrap();
        let path = std::env::var("PATH").unwrap();
        assert_eq!(grants.environment, BTreeMap::from([("REGION".into(), "north".into()), ("WAY".into(), path)]));
        let environment = BTreeMap::from([("A".to_owned(), Variable::Host("SHARDMILL_TEST_NO_SUCH".to_owned()))]);
        let unset = read(&config::Grants { environment, ..config::Grants::default() }).unwrap_err().to_string();
        assert!(unset.contains("SHARDMILL_TEST_NO_SUCH is not set") && unset.contains("grants.environment"), "{unset}");
    }
}
