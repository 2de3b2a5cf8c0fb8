//! What the configuration grants is looked up where it is: in the host's environment and in files.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use futures::future::try_join_all;
use rustix::fs::OFlags;
use shardmill_plugin::{Grants, Secret};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use crate::config::{self, SecretSource, Variable};

/// No secret is as large as this; a device is.
const MOST_BYTES: u64 = 64 << 10;
/// Shorter ones cannot be hidden in what a guest says.
const LEAST_BYTES: usize = 4;
/// How long a file may take: one on a server that is gone would never answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Files that are read at a time. Each has a thread, for good if it hangs.
static READERS: Semaphore = Semaphore::const_new(8);

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
        /// Whether it is in a file.
        is_in_file: bool,
    },
}

/// What a file holds.
struct Held {
    text: String,
    /// Whether every user of this machine can read it.
    is_open: bool,
}

// === impl Error ===

impl Error {
    /// Whether it may be there at another time: a file can change, and the environment of a process does not.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::NotSet { .. } | Self::NotText { .. } => false,
            Self::Read { .. } => true,
            Self::Invalid { is_in_file, .. } => *is_in_file,
        }
    }
}

/// Looks up what a processor is granted. Secrets are read each time that this is called.
pub(crate) async fn read(grants: &config::Grants) -> Result<Grants, Error> {
    let mut environment = BTreeMap::new();
    for (name, variable) in &grants.environment {
        let value = match variable {
            Variable::Value(value) => value.clone(),
            Variable::Host(variable) => of_host(variable, || format!("`{name}` of `grants.environment`"))?,
        };
        environment.insert(name.clone(), value);
    }
    let secrets = grants.secrets.iter().map(|(name, source)| async move {
        let secret = secret(name, source).await;
        secret.map(|secret| (name.clone(), secret))
    });
    let secrets = try_join_all(secrets).await?.into_iter().collect();
    Ok(Grants { environment, secrets, ..without_values(grants) })
}

/// What a processor is granted, but for values that may be where it runs alone.
pub(crate) fn without_values(grants: &config::Grants) -> Grants {
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

async fn secret(name: &str, source: &SecretSource) -> Result<Secret, Error> {
    let what = || format!("`{name}` of `grants.secrets`");
    let text = match source {
        SecretSource::Variable(variable) => of_host(variable, what)?,
        SecretSource::File(path) => {
            let held = read_in_time(path, PATIENCE).await;
            let Held { text, is_open } =
                held.map_err(|source| Error::Read { path: path.clone(), what: what(), source })?;
            if is_open {
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
    Err(Error::Invalid { what: what(), reason, is_in_file: matches!(source, SecretSource::File(_)) })
}

/// Reads a file on a thread of its own: one that hangs holds up neither what else runs nor the process' end.
async fn read_in_time(path: &Path, patience: Duration) -> io::Result<Held> {
    let path = path.to_owned();
    let reading = async move {
        // Nobody closes it.
        let turn = READERS.acquire().await.map_err(io::Error::other)?;
        let (give, take) = oneshot::channel();
        thread::Builder::new().name("secrets".to_owned()).spawn(move || {
            let _nobody_waits = give.send(read_file(&path));
            drop(turn);
        })?;
        take.await.map_err(io::Error::other)?
    };
    let late = || io::Error::new(io::ErrorKind::TimedOut, format!("it is not read within {patience:?}"));
    timeout(patience, reading).await.unwrap_or_else(|_elapsed| Err(late()))
}

fn read_file(path: &Path) -> io::Result<Held> {
    let wrong = |what| io::Error::new(io::ErrorKind::InvalidData, what);
    // Whoever opens a pipe would wait for somebody who writes to it.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(wrong("it is no regular file"));
    }
    let mut bytes = Vec::new();
    file.take(MOST_BYTES + 3).read_to_end(&mut bytes)?;
    // Its error would show the bytes.
    let text = String::from_utf8(bytes).map_err(|_| wrong("it is not UTF-8"))?;
    Ok(Held { text, is_open: metadata.mode() & 0o004 != 0 })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    async fn of(source: SecretSource) -> Result<Grants, Error> {
        let secrets = BTreeMap::from([("TOKEN".to_owned(), source)]);
        read(&config::Grants { secrets, ..config::Grants::default() }).await
    }

    #[tokio::test]
    async fn a_secret_is_what_its_file_holds_without_the_end_of_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        for (held, expected) in
            [("hunter22", "hunter22"), ("hunter22\n", "hunter22"), ("hunter22\r\n", "hunter22"), (" a b\n\n", " a b\n")]
        {
            fs::write(&path, held).unwrap();
            let grants = of(SecretSource::File(path.clone())).await.unwrap();
            assert_eq!(grants.secrets["TOKEN"], Secret::new(expected));
        }
    }

    #[tokio::test]
    async fn what_is_no_secret_is_refused_without_showing_it() {
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
            let error = of(SecretSource::File(path.clone())).await.unwrap_err();
            assert!(error.is_passing(), "the file may be another one");
            let told = format!("{error} {error:?}");
            assert!(told.contains(reason) && told.contains("TOKEN"), "{told}");
            assert!(!told.contains("q9z") && !told.contains("qqqq"), "{told}");
        }
        let absent = of(SecretSource::File(folder.path().join("absent"))).await.unwrap_err().to_string();
        assert!(absent.contains("absent") && absent.contains("cannot be read"), "{absent}");
        let unset = of(SecretSource::Variable("SHARDMILL_TEST_NO_SUCH_SECRET".to_owned())).await.unwrap_err();
        assert!(!unset.is_passing(), "the environment stays as it is");
        let unset = unset.to_string();
        assert!(unset.contains("SHARDMILL_TEST_NO_SUCH_SECRET is not set") && unset.contains("TOKEN"), "{unset}");
    }

    #[tokio::test]
    async fn what_is_no_regular_file_is_refused_and_not_waited_for() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};

        let folder = tempfile::tempdir().unwrap();
        let (pipe, link) = (folder.path().join("pipe"), folder.path().join("link"));
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        std::os::unix::fs::symlink("pipe", &link).unwrap();
        for path in [&pipe, &link, folder.path(), Path::new("/dev/zero")] {
            let refused = of(SecretSource::File(path.to_owned())).await.unwrap_err().to_string();
            assert!(refused.contains("no regular file"), "{}: {refused}", path.display());
        }
        // By way of a link a secret is what it is.
        fs::write(folder.path().join("token"), "hunter22").unwrap();
        std::os::unix::fs::symlink("token", folder.path().join("to-it")).unwrap();
        of(SecretSource::File(folder.path().join("to-it"))).await.unwrap();
    }

    #[tokio::test]
    async fn a_file_that_hangs_is_given_up() {
        // As many as may be read at a time do not answer.
        let all = READERS.acquire_many(8).await.unwrap();
        let late = read_in_time(Path::new("/"), Duration::from_millis(50)).await.err().unwrap();
        drop(all);
        assert_eq!((late.kind(), late.to_string().as_str()), (io::ErrorKind::TimedOut, "it is not read within 50ms"));
    }

    #[tokio::test]
    async fn a_variable_is_its_value_or_that_of_the_host() {
        let environment = BTreeMap::from([
            ("REGION".to_owned(), Variable::Value("north".to_owned())),
            ("WAY".to_owned(), Variable::Host("PATH".to_owned())),
        ]);
        let grants = read(&config::Grants { environment, ..config::Grants::default() }).await.unwrap();
        let path = std::env::var("PATH").unwrap();
        assert_eq!(grants.environment, BTreeMap::from([("REGION".into(), "north".into()), ("WAY".into(), path)]));
        let environment = BTreeMap::from([("A".to_owned(), Variable::Host("SHARDMILL_TEST_NO_SUCH".to_owned()))]);
        let unset = read(&config::Grants { environment, ..config::Grants::default() }).await.unwrap_err().to_string();
        assert!(unset.contains("SHARDMILL_TEST_NO_SUCH is not set") && unset.contains("grants.environment"), "{unset}");
    }
}
