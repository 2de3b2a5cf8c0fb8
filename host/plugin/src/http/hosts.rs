//! Which hosts a guest may reach, as a configuration lists them, and what a request asks for. Pure.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use http::Uri;

const HTTPS: u16 = 443;
const HTTP: u16 = 80;
/// The rules of DNS.
const NAME_BYTES: usize = 253;
const LABEL_BYTES: usize = 63;

/// One entry of a list of hosts: `api.example.com`, `*.example.com:8443`, `http://10.0.0.7:8080`, `[2001:db8::1]`.
///
/// It is about https unless it begins with `http://`, and about the scheme's own port unless it names one. `*.` stands for
/// one label or more: `*.example.com` is every name below `example.com`, and not `example.com` itself. `*` alone is every
/// host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPattern {
    is_secure: bool,
    host: Hosts,
    port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Hosts {
    Any,
    /// What every name of them ends with, from its dot on.
    Below(String),
    One(Host),
}

/// Where a request goes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Target {
    /// Whether it goes over TLS.
    pub(crate) is_secure: bool,
    pub(crate) host: Host,
    /// Whether its name ends with a dot: it is looked up as it is, and not below the machine's own domain.
    pub(crate) is_absolute: bool,
    pub(crate) port: u16,
}

/// A host, by its name in small letters or by its address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Host {
    Name(String),
    Address(IpAddr),
}

/// Why a text is no entry of a list of hosts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHost {
    /// Neither https nor http.
    #[error("`{0}` begins with another scheme than https:// and http://")]
    Scheme(String),
    /// A path, a query or a user.
    #[error("`{0}` says more than a host and its port: a host is granted as a whole, or not at all")]
    More(String),
    /// No port number.
    #[error("`{0}` has no port from 1 to 65535 after its colon; an address that has colons itself stands in brackets")]
    Port(String),
    /// No name and no address.
    #[error(
        "`{0}` is no host: a name such as \"api.example.com\" or \"*.example.com\" is expected, or an address, in brackets if \
         it has colons; letters beyond ASCII are written as DNS has them (xn--…)"
    )]
    Host(String),
}

// === impl HostPattern ===

impl HostPattern {
    pub(crate) fn matches(&self, target: &Target) -> bool {
        let is_host = match (&self.host, &target.host) {
            (Hosts::Any, _) => true,
            (Hosts::Below(ending), Host::Name(name)) => name.len() > ending.len() && name.ends_with(ending.as_str()),
            (Hosts::Below(_), Host::Address(_)) => false,
            (Hosts::One(one), asked) => one == asked,
        };
        is_host && self.is_secure == target.is_secure && self.port == target.port
    }

    /// The address, if it is one.
    pub fn address(&self) -> Option<IpAddr> {
        match self.host {
            Hosts::One(Host::Address(address)) => Some(address),
            _ => None,
        }
    }
}

impl FromStr for HostPattern {
    type Err = InvalidHost;

    fn from_str(text: &str) -> Result<Self, InvalidHost> {
        let owned = || text.to_owned();
        let (is_secure, rest) = match text.split_once("://") {
            None => (true, text),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (true, rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (false, rest),
            Some(_) => return Err(InvalidHost::Scheme(owned())),
        };
        if rest.contains(['/', '\\', '?', '#', '@']) {
            return Err(InvalidHost::More(owned()));
        }
        let (host, port) = split_port(rest).ok_or_else(|| InvalidHost::Port(owned()))?;
        let host = if host == "*" {
            Some(Hosts::Any)
        } else if let Some(below) = host.strip_prefix("*.") {
            name(below).map(|name| Hosts::Below(format!(".{name}")))
        } else {
            Host::parse(host).map(Hosts::One)
        };
        let host = host.ok_or_else(|| InvalidHost::Host(owned()))?;
        Ok(Self { is_secure, host, port: port.unwrap_or(default_port(is_secure)) })
    }
}

/// As it is parsed, with nothing that goes without saying.
impl fmt::Display for HostPattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_scheme(formatter, self.is_secure)?;
        match &self.host {
            Hosts::Any => formatter.write_str("*")?,
            Hosts::Below(ending) => write!(formatter, "*{ending}")?,
            Hosts::One(host) => write!(formatter, "{host}")?,
        }
        write_port(formatter, self.is_secure, self.port)
    }
}

// === impl Target ===

impl Target {
    /// Where a request for this goes; nothing if it is not clear to everybody who reads it.
    pub(crate) fn of(uri: &Uri) -> Option<Self> {
        let is_secure = match uri.scheme_str()? {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        // Not `host` and `port` of the authority: those drop a user and a port that is none.
        let authority = uri.authority()?.as_str();
        let (host, port) = split_port(authority)?;
        let (is_absolute, port) = (host.ends_with('.'), port.unwrap_or(default_port(is_secure)));
        Some(Self { is_secure, host: Host::parse(host)?, is_absolute, port })
    }
}

/// As the entry of a list that allows it and nothing else.
impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_scheme(formatter, self.is_secure)?;
        write!(formatter, "{}", self.host)?;
        write_port(formatter, self.is_secure, self.port)
    }
}

// === impl Host ===

impl Host {
    fn parse(text: &str) -> Option<Self> {
        if let Some(rest) = text.strip_prefix('[') {
            let address: Ipv6Addr = rest.strip_suffix(']')?.parse().ok()?;
            return Some(Self::Address(IpAddr::V6(address).to_canonical()));
        }
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            return Some(Self::Address(address.into()));
        }
        name(text).map(Self::Name)
    }
}

impl fmt::Display for Host {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => formatter.write_str(name),
            Self::Address(IpAddr::V4(address)) => write!(formatter, "{address}"),
            Self::Address(IpAddr::V6(address)) => write!(formatter, "[{address}]"),
        }
    }
}

fn default_port(is_secure: bool) -> u16 {
    if is_secure { HTTPS } else { HTTP }
}

fn write_scheme(formatter: &mut fmt::Formatter<'_>, is_secure: bool) -> fmt::Result {
    formatter.write_str(if is_secure { "" } else { "http://" })
}

fn write_port(formatter: &mut fmt::Formatter<'_>, is_secure: bool, port: u16) -> fmt::Result {
    if port == default_port(is_secure) { Ok(()) } else { write!(formatter, ":{port}") }
}

/// The host, and the port behind its colon if there is one.
fn split_port(text: &str) -> Option<(&str, Option<u16>)> {
    let end = if text.starts_with('[') { text.find(']')? + 1 } else { text.find(':').unwrap_or(text.len()) };
    let (host, rest) = text.split_at(end);
    if rest.is_empty() {
        return Some((host, None));
    }
    let digits = rest.strip_prefix(':')?;
    // `parse` would take a sign.
    let port: u16 = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())??;
    (port > 0).then_some((host, Some(port)))
}

/// A name in small letters, without the dot that may end it.
fn name(text: &str) -> Option<String> {
    let text = text.strip_suffix('.').unwrap_or(text);
    let is_label = |label: &str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        (1..=LABEL_BYTES).contains(&label.len())
            && label.bytes().all(allowed)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let is_name = text.len() <= NAME_BYTES && text.split('.').all(is_label);
    // Resolvers take what ends in a number for an address, in forms of old (`127.1`, `0x7f000001`, `2130706433`).
    let is_number = |label: &str| match label.strip_prefix("0x").or_else(|| label.strip_prefix("0X")) {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => label.bytes().all(|byte| byte.is_ascii_digit()),
    };
    (is_name && !text.rsplit('.').next().is_some_and(is_number)).then(|| text.to_ascii_lowercase())
}

#[cfg(test)]
mod tests;
