//! The token that commands need.

use std::fmt;
use std::path::PathBuf;

use sha2::{Digest, Sha256};

use crate::config::TokenSource;

/// Shorter ones can be guessed.
const SHORTEST: usize = 16;
/// No token is as large as this; a device is.
const LONGEST: u64 = 4096;

/// A token. Only its digest is kept, and it is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    digest: [u8; 32],
}

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("the token's file {} cannot be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// There is no such variable.
    #[error("the environment variable {0} is not set, and is to hold the token")]
    NotSet(String),
    /// It is no token.
    #[error(
        "{0} holds no token: {SHORTEST} to {LONGEST} visible ASCII characters are expected, such as those of `openssl rand -hex 32`"
    )]
    Invalid(String),
}

// === impl Token ===

impl Token {
    /// Reads a token; white space around it does not count.
    pub fn read(source: &TokenSource) -> Result<Self, Error> {
        match source {
            TokenSource::File(path) => {
                let failed = |source| Error::Read { path: path.clone(), source };
                // A worker waits for nobody to write its token into a pipe.
                let bytes = crate::file::open(path).and_then(bytes).map_err(failed)?;
                if is_open(path) {
                    tracing::warn!(file = %path.display(), "every user of this machine can read the token's file, and tell shards what to do; take that right away (chmod o-r)");
                }
                Self::parse(&bytes).ok_or_else(|| Error::Invalid(format!("the file {}", path.display())))
            }
            TokenSource::Variable(name) => {
                let text = std::env::var_os(name).ok_or_else(|| Error::NotSet(name.clone()))?;
                let text = text.into_encoded_bytes();
                Self::parse(&text).ok_or_else(|| Error::Invalid(format!("the environment variable {name}")))
            }
        }
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let text = bytes.trim_ascii();
        let is_token = (SHORTEST..=LONGEST as usize).contains(&text.len()) && text.iter().all(u8::is_ascii_graphic);
        is_token.then(|| Self { digest: digest(text) })
    }

    /// Whether this is the token. Digests are compared: how long that takes tells nothing of the token.
    pub fn is(&self, given: &[u8]) -> bool {
        digest(given) == self.digest
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token(…)")
    }
}

/// A token's bytes, for who sends it: from a pipe as well, such as a shell's `<(command)`.
pub(crate) fn read(path: &std::path::Path) -> std::io::Result<Vec<u8>> {
    bytes(std::fs::File::open(path)?)
}

fn bytes(file: std::fs::File) -> std::io::Result<Vec<u8>> {
    use std::io::Read;

    let mut bytes = Vec::new();
    file.take(LONGEST + 2).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Whether everybody may read it.
fn is_open(path: &std::path::Path) -> bool {
    use std::os::unix::fs::PermissionsExt;

    std::fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o004 != 0)
}

fn digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_long_enough_and_never_shown() {
        let token = Token::parse(b"  0123456789abcdef\n").expect("a token");
        assert!(token.is(b"0123456789abcdef"));
        for other in [&b"0123456789abcdeF"[..], b"0123456789abcde", b"", b"0123456789abcdef "] {
            assert!(!token.is(other));
        }
        assert_eq!(format!("{token:?}"), "Token(…)");
        for none in [&b""[..], b"0123456789abcde", b"0123456789 abcdef", b"0123456789abcd\xffef", &[b'x'; 5000]] {
            assert_eq!(Token::parse(none), None);
        }
        let missing = TokenSource::Variable("SHARDMILL_TEST_NO_SUCH_TOKEN".to_owned());
        assert!(Token::read(&missing).unwrap_err().to_string().contains("SHARDMILL_TEST_NO_SUCH_TOKEN is not set"));
    }
}
