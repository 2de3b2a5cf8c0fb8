//! What a guest may do, as a user writes it and as it is meant.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer};
use shardmill_cause::Coded;
use shardmill_cause::code::config as code;
use shardmill_plugin::{HostPattern, HttpGrant};
use toml::Value;

use super::check::{self, Checked, HOUR, MIB, count, helped, line, size, time, wrong};
use super::units::{Count, Size, Time};
use super::{Grants, SecretSource, Variable};

const MILLISECOND: Duration = Duration::from_millis(1);
/// No program has as long a name for one.
const NAME_BYTES: usize = 128;
/// Where a secret may be.
const PLACES: [&str; 2] = ["env", "file"];
const NOT_HERE: &str = "a secret is not written here, but where it is: { env = \"VARIABLE\" } or { file = \"FILE\" }";
const EACH_NAME: &str = "each in quotes: letters of ASCII, digits and `_`, and no digit at the beginning";

/// The table `grants`. A processor's own is put over that of `defaults`, key by key, and name by name in `environment` and
/// `secrets`.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct Written {
    clocks: Option<bool>,
    random: Option<bool>,
    metrics: Option<bool>,
    environment: BTreeMap<String, WrittenVariable>,
    secrets: WrittenSecrets,
    http: Option<Http>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(
    untagged,
    expecting = "a value in quotes, { from = \"VARIABLE\" } for the value that the host's own has, or `false` for none"
)]
enum WrittenVariable {
    Value(String),
    Host(HostVariable),
    /// `false` takes back what `defaults` grants.
    Back(bool),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct HostVariable {
    from: String,
}

/// Where a secret is.
#[derive(Debug, Clone)]
enum WrittenSecret {
    /// `{ env = "VARIABLE" }` or `{ file = "FILE" }`.
    At(SecretSource),
    /// `false` takes back what `defaults` grants.
    Back,
}

/// Secrets by name.
#[derive(Debug, Default, Clone)]
struct WrittenSecrets(BTreeMap<String, WrittenSecret>);

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct Http {
    hosts: Option<Vec<String>>,
    methods: Option<Vec<String>>,
    connect_timeout: Option<Time>,
    timeout: Option<Time>,
    request_bytes: Option<Size>,
    response_bytes: Option<Size>,
    concurrency: Option<Count>,
    allow_private: Option<Vec<String>>,
}

// === impl Written ===

impl Written {
    pub(super) fn over(own: Option<&Self>, defaults: Option<&Self>) -> Self {
        let empty = Self::default();
        let (own, defaults) = (own.unwrap_or(&empty), defaults.unwrap_or(&empty));
        Self {
            clocks: own.clocks.or(defaults.clocks),
            random: own.random.or(defaults.random),
            metrics: own.metrics.or(defaults.metrics),
            environment: merged(&defaults.environment, &own.environment, |own| {
                matches!(own, WrittenVariable::Back(false))
            }),
            secrets: WrittenSecrets(merged(&defaults.secrets.0, &own.secrets.0, |own| {
                matches!(own, WrittenSecret::Back)
            })),
            http: match (&own.http, &defaults.http) {
                (Some(own), Some(defaults)) => Some(own.over(defaults)),
                (own, defaults) => own.as_ref().or(defaults.as_ref()).cloned(),
            },
        }
    }
}

/// What is taken back is in neither. What takes back something that was not there stays, and is a mistake.
fn merged<T: Clone>(
    defaults: &BTreeMap<String, T>,
    own: &BTreeMap<String, T>,
    takes_back: impl Fn(&T) -> bool,
) -> BTreeMap<String, T> {
    let mut merged = defaults.clone();
    for (name, value) in own {
        let before = merged.insert(name.clone(), value.clone());
        if before.is_some_and(|before| !takes_back(&before)) && takes_back(value) {
            merged.remove(name);
        }
    }
    merged
}

fn nothing_to_take_back<T>(path: &[&str]) -> Checked<T> {
    let nothing = wrong(
        code::NO_SUCH,
        path,
        "`false` takes back what `defaults` grants, and nothing of this name is granted there",
    );
    helped(nothing, "leave it away, or correct the name")
}

// === impl WrittenSecret ===

impl<'de> Deserialize<'de> for WrittenSecret {
    // Not by serde's own types: whatever stands here may be the secret, and their errors show it.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = Value::deserialize(deserializer).map_err(|_| D::Error::custom(NOT_HERE))?;
        let table = match written {
            Value::Table(table) => table,
            Value::Boolean(false) => return Ok(Self::Back),
            _the_secret => return Err(D::Error::custom(NOT_HERE)),
        };
        if let Some(other) = table.keys().find(|key| !PLACES.contains(&key.as_str())) {
            let shown = check::shown(other);
            return Err(D::Error::custom(format!("unknown field `{shown}`: a secret is in `env` or `file`")));
        }
        let mut places = table.into_iter();
        match (places.next(), places.next()) {
            (Some((key, Value::String(place))), None) => Ok(Self::At(match key.as_str() {
                "env" => SecretSource::Variable(place),
                _ => SecretSource::File(place.into()),
            })),
            (Some(_), None) => Err(D::Error::custom(NOT_HERE)),
            _none_or_both => Err(D::Error::custom("a secret is in one place: name `env` or `file`")),
        }
    }
}

// === impl WrittenSecrets ===

impl<'de> Deserialize<'de> for WrittenSecrets {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SecretsVisitor)
    }
}

struct SecretsVisitor;

impl<'de> Visitor<'de> for SecretsVisitor {
    type Value = WrittenSecrets;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a table of secrets: { NAME = { env = \"VARIABLE\" } }")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<WrittenSecrets, A::Error> {
        BTreeMap::deserialize(MapAccessDeserializer::new(map)).map(WrittenSecrets)
    }

    // Whatever is no table: without its text.

    fn visit_str<E: serde::de::Error>(self, _: &str) -> Result<WrittenSecrets, E> {
        Err(E::custom(NOT_HERE))
    }

    fn visit_i64<E: serde::de::Error>(self, _: i64) -> Result<WrittenSecrets, E> {
        Err(E::custom(NOT_HERE))
    }

    fn visit_u64<E: serde::de::Error>(self, _: u64) -> Result<WrittenSecrets, E> {
        Err(E::custom(NOT_HERE))
    }

    fn visit_i128<E: serde::de::Error>(self, _: i128) -> Result<WrittenSecrets, E> {
        Err(E::custom(NOT_HERE))
    }

    fn visit_u128<E: serde::de::Error>(self, _: u128) -> Result<WrittenSecrets, E> {
        Err(E::custom(NOT_HERE))
    }

    fn visit_f64<E: serde::de::Error>(self, _: f64) -> Result<WrittenSecrets, E> {
        Err(E::custom(NOT_HERE))
    }

    fn visit_bool<E: serde::de::Error>(self, _: bool) -> Result<WrittenSecrets, E> {
        Err(E::custom(NOT_HERE))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<WrittenSecrets, A::Error> {
        Err(A::Error::custom(NOT_HERE))
    }
}

// === impl Http ===

impl Http {
    fn over(&self, defaults: &Self) -> Self {
        let (own, defaults) = (self.clone(), defaults.clone());
        Self {
            hosts: own.hosts.or(defaults.hosts),
            methods: own.methods.or(defaults.methods),
            connect_timeout: own.connect_timeout.or(defaults.connect_timeout),
            timeout: own.timeout.or(defaults.timeout),
            request_bytes: own.request_bytes.or(defaults.request_bytes),
            response_bytes: own.response_bytes.or(defaults.response_bytes),
            concurrency: own.concurrency.or(defaults.concurrency),
            allow_private: own.allow_private.or(defaults.allow_private),
        }
    }
}

/// Paths of files are relative to `folder`.
pub(super) fn grants(processor: &str, file: Written, folder: &Path) -> Checked<Grants> {
    let at = |table, name: &str| ["processors", processor, "grants", table, name].map(str::to_owned);
    let at = |table, name: &str| -> Vec<String> { at(table, name).into() };
    let mut environment = BTreeMap::new();
    for (name, value) in file.environment {
        let path = at("environment", &name);
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        variable_name(&path, &name)?;
        let variable = match value {
            WrittenVariable::Value(value) if value.contains('\0') => {
                return wrong(code::GRANT, &path, "a variable of an environment holds no NUL");
            }
            WrittenVariable::Value(value) => Variable::Value(value),
            WrittenVariable::Back(false) => return nothing_to_take_back(&path),
            WrittenVariable::Back(true) => {
                return wrong(
                    code::GRANT,
                    &path,
                    "`true` is no value: write it in quotes if it is meant, or `false` for no variable",
                );
            }
            WrittenVariable::Host(HostVariable { from }) => {
                line(&path, &from)?;
                Variable::Host(from)
            }
        };
        environment.insert(name, variable);
    }
    let mut secrets = BTreeMap::new();
    for (name, secret) in file.secrets.0 {
        let path = at("secrets", &name);
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        variable_name(&path, &name)?;
        if environment.contains_key(&name) {
            let both = wrong(code::TWICE, &path, "there is a variable of this name in `environment` already");
            return helped(both, "secrets are variables of the guest's environment too: give one of them another name");
        }
        let source = match secret {
            WrittenSecret::Back => return nothing_to_take_back(&path),
            WrittenSecret::At(SecretSource::File(file)) if file.as_os_str().is_empty() => {
                return wrong(code::MISSING, &path, "it names no file");
            }
            WrittenSecret::At(SecretSource::File(file)) => SecretSource::File(folder.join(file)),
            WrittenSecret::At(SecretSource::Variable(variable)) => {
                line(&path, &variable)?;
                SecretSource::Variable(variable)
            }
        };
        secrets.insert(name, source);
    }
    Ok(Grants {
        clocks: file.clocks.unwrap_or_default(),
        random: file.random.unwrap_or_default(),
        metrics: file.metrics.unwrap_or_default(),
        environment,
        secrets,
        http: match file.http {
            Some(file) => http(processor, file)?,
            None => None,
        },
    })
}

fn variable_name(path: &[&str], name: &str) -> Checked<()> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let begins = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    if !begins || name.len() > NAME_BYTES || !name.bytes().all(allowed) {
        let shown = check::shown(name);
        return helped(wrong(code::GRANT, path, format!("`{shown}` is no name of a variable")), EACH_NAME);
    }
    Ok(())
}

fn http(processor: &str, file: Http) -> Checked<Option<HttpGrant>> {
    let at = |key| ["processors", processor, "grants", "http", key];
    let Some(hosts) = file.hosts else {
        let none = wrong(code::MISSING, &at("hosts"), "without hosts there is nothing to reach");
        return helped(none, "name them: hosts = [\"api.example.com\", \"*.internal.example:8443\"]");
    };
    let mut patterns = Vec::new();
    for host in &hosts {
        match host.parse::<HostPattern>() {
            Ok(pattern) => patterns.push(pattern),
            Err(error) => return wrong(error.code(), &at("hosts"), check::escaped(&error.to_string())),
        }
    }
    // How a processor takes back what `defaults` grants.
    if patterns.is_empty() {
        return Ok(None);
    }
    let default = HttpGrant::new(Vec::new());
    let number = |default: usize| u32::try_from(default).unwrap_or(u32::MAX);
    let mut methods = default.methods;
    if let Some(given) = file.methods {
        for method in &given {
            let is_method = !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-');
            if !is_method || method == "CONNECT" {
                let shown = check::shown(method);
                let no_method =
                    wrong(code::GRANT, &at("methods"), format!("`{shown}` is no method that can be granted"));
                return helped(
                    no_method,
                    "methods are in capital letters: \"GET\", \"POST\"; tunnels (CONNECT) are never granted",
                );
            }
        }
        methods = given.into_iter().collect();
    }
    let mut allow_private = Vec::new();
    for network in file.allow_private.iter().flatten() {
        let parsed = network.parse().or_else(|_| network.parse().map(|address: std::net::IpAddr| address.into()));
        let Ok(network) = parsed else {
            let shown = check::shown(network);
            let no_network = wrong(code::GRANT, &at("allow-private"), format!("`{shown}` is no network"));
            return helped(
                no_network,
                "an address and the length of its prefix, such as \"10.1.0.0/16\" or \"fd12::/16\"",
            );
        };
        allow_private.push(network);
    }
    let timeout = time(&at("timeout"), file.timeout, default.timeout, [MILLISECOND, HOUR])?;
    let connecting = default.connect_timeout.min(timeout);
    let connect_timeout = time(&at("connect-timeout"), file.connect_timeout, connecting, [MILLISECOND, timeout]);
    let grant = HttpGrant {
        hosts: patterns,
        methods,
        connect_timeout: helped(connect_timeout, "a request's `timeout` has its connection in it")?,
        timeout,
        request_bytes: size(&at("request-bytes"), file.request_bytes, default.request_bytes, [0, 1024 * MIB])?,
        response_bytes: size(&at("response-bytes"), file.response_bytes, default.response_bytes, [0, 1024 * MIB])?,
        concurrency: count(&at("concurrency"), file.concurrency, number(default.concurrency), [1, 1000])? as usize,
        allow_private,
    };
    if let Some((host, what)) = grant.out_of_reach().next() {
        let address = host.address().map(|address| address.to_string()).unwrap_or_default();
        let unreachable = wrong(code::GRANT, &at("hosts"), format!("`{host}` is {what}, and these are not reached"));
        return helped(unreachable, format!("add \"{address}\" to `allow-private` if it is meant"));
    }
    Ok(Some(grant))
}
