//! Where a module is: a path that workers can read, or a URL.

use std::fmt;
use std::path::{Path, PathBuf};

use hyper::Uri;

use super::deployment::SOURCE;
use crate::text;

/// Where a module is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    File(PathBuf),
    Url(Url),
}

/// An address that begins with `http://` or `https://`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Url(Uri);

/// Why a text is no source.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Invalid {
    #[error("it names nothing")]
    Empty,
    #[error("it is longer than {SOURCE} characters")]
    TooLong,
    #[error("{0}:// is not understood: a path is expected, or an address that begins with https://")]
    Scheme(String),
    #[error("it is not an address: {0}")]
    Address(String),
    #[error("it holds a user or a password, which would be kept in the fleet's table: leave them out")]
    Credentials,
}

// === impl Source ===

impl Source {
    /// A text with `://` is an address, every other one a path.
    pub(crate) fn parse(text: &str) -> Result<Self, Invalid> {
        if text.is_empty() {
            return Err(Invalid::Empty);
        }
        if text.chars().count() > SOURCE {
            return Err(Invalid::TooLong);
        }
        match text.split_once("://") {
            Some((scheme, _)) if scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
                Url::parse(text).map(Self::Url)
            }
            _path => Ok(Self::File(PathBuf::from(text))),
        }
    }

    /// As it is written for workers: they do not run in the folder in which the command does.
    pub(crate) fn absolute(self) -> std::io::Result<Self> {
        match self {
            Self::File(path) => std::path::absolute(path).map(Self::File),
            url @ Self::Url(_) => Ok(url),
        }
    }

    /// The whole text, with whatever secret an address may hold. `None` for a path that is no text.
    pub(crate) fn written(&self) -> Option<String> {
        match self {
            Self::File(path) => path.to_str().map(str::to_owned),
            Self::Url(url) => Some(url.0.to_string()),
        }
    }

    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Url(_) => None,
        }
    }
}

/// For people and logs: without the query, in which addresses that are signed hold what lets everybody in.
impl fmt::Display for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => formatter.write_str(&text::line(&path.display().to_string())),
            Self::Url(url) => url.fmt(formatter),
        }
    }
}

// === impl Url ===

impl Url {
    pub(crate) fn parse(text: &str) -> Result<Self, Invalid> {
        let uri: Uri = text.parse().map_err(|error| Invalid::Address(format!("{error}")))?;
        match uri.scheme_str() {
            Some("http" | "https") => {}
            Some(other) => return Err(Invalid::Scheme(text::line(other))),
            None => return Err(Invalid::Address("it has no scheme".to_owned())),
        }
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        if authority.contains('@') {
            return Err(Invalid::Credentials);
        }
        if uri.host().is_none_or(str::is_empty) {
            return Err(Invalid::Address("it names no host".to_owned()));
        }
        Ok(Self(uri))
    }

    pub(crate) fn as_uri(&self) -> &Uri {
        &self.0
    }

    /// Whether nobody on the way can read or change what comes.
    pub(crate) fn is_private(&self) -> bool {
        let host = self.0.host().unwrap_or_default().trim_matches(['[', ']']);
        let is_here =
            host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
        self.0.scheme_str() == Some("https") || is_here
    }

    /// Whether it looks like one that is signed, which holds for a while only.
    pub(crate) fn is_signed(&self) -> bool {
        let query = self.0.query().unwrap_or_default().to_ascii_lowercase();
        let mut names = query.split('&').map(|pair| pair.split('=').next().unwrap_or_default());
        names.any(|name| matches!(name, "x-amz-signature" | "x-goog-signature" | "signature" | "sig"))
    }

    /// Where an answer from here sends its reader. What was private stays so.
    pub(crate) fn redirected(&self, location: &str) -> Result<Self, String> {
        let next = match location.as_bytes() {
            [b'/', b'/', ..] => format!("{}:{location}", self.0.scheme_str().unwrap_or("https")),
            [b'/', ..] => {
                let authority = self.0.authority().map_or("", |authority| authority.as_str());
                format!("{}://{authority}{location}", self.0.scheme_str().unwrap_or("https"))
            }
            _absolute => location.to_owned(),
        };
        let next = Self::parse(&next).map_err(|invalid| format!("a redirection from {self} is no good: {invalid}"))?;
        if self.is_private() && !next.is_private() {
            return Err(format!("{self} redirects to {next}, which is not https"));
        }
        Ok(next)
    }
}

impl fmt::Display for Url {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = self.0.to_string();
        let shown = whole.split('?').next().unwrap_or_default();
        formatter.write_str(&text::line(shown))?;
        formatter.write_str(if whole.contains('?') { "?…" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_a_path_or_an_address_without_a_password() {
        for (text, shown) in [
            ("route.wasm", "route.wasm"),
            ("/app/a b.wasm", "/app/a b.wasm"),
            ("https://plugins.example/route.wasm", "https://plugins.example/route.wasm"),
            ("http://127.0.0.1:8080/a?X-Amz-Signature=secret", "http://127.0.0.1:8080/a?…"),
            ("./a://b", "./a://b"),
            ("/a\u{1b}[2J", "/a\\u{1b}[2J"),
        ] {
            let source = Source::parse(text).unwrap();
            assert_eq!((source.to_string().as_str(), source.written().as_deref()), (shown, Some(text)));
        }
        assert_eq!(Source::parse(""), Err(Invalid::Empty));
        assert_eq!(Source::parse("s3://bucket/a"), Err(Invalid::Scheme("s3".to_owned())));
        assert_eq!(Source::parse("https://me:secret@host/a"), Err(Invalid::Credentials));
        assert!(matches!(Source::parse("https://"), Err(Invalid::Address(_))));
        assert!(matches!(Source::parse("https://a b/c"), Err(Invalid::Address(_))));
        assert_eq!(Source::parse(&"x".repeat(SOURCE + 1)), Err(Invalid::TooLong));
    }

    #[test]
    fn what_is_private_stays_so_over_redirections() {
        let url = |text| Url::parse(text).unwrap();
        let from = url("https://plugins.example:8443/a?b");
        for (location, to) in [
            ("/c?d", "https://plugins.example:8443/c?d"),
            ("//other.example/c", "https://other.example/c"),
            ("https://third.example/c", "https://third.example/c"),
        ] {
            assert_eq!(from.redirected(location).map(|to| to.0.to_string()), Ok(to.to_owned()));
        }
        for location in ["http://plugins.example/c", "ftp://plugins.example/c", "c", "", "https://a@b/"] {
            assert!(from.redirected(location).is_err(), "{location}");
        }
        assert!(url("http://plugins.example/a").redirected("http://other.example/a").is_ok());
        for (text, is_private) in [
            ("https://a/", true),
            ("http://localhost:1/", true),
            ("http://[::1]:1/", true),
            ("http://127.0.0.2/", true),
            ("http://10.0.0.1/", false),
            ("http://localhost.example/", false),
        ] {
            assert_eq!(url(text).is_private(), is_private, "{text}");
        }
        assert!(url("https://b.s3.amazonaws.com/a?X-Amz-Date=1&X-Amz-Signature=2").is_signed());
        assert!(!url("https://a/?versionId=sig").is_signed());
    }
}
