//! What a processor is granted, as `check` shows it. Values of its environment may be of no concern to who reads it, and
//! secrets are not known here.

use std::fmt::Display;

use serde_json::{Map, Value, json};
use shardmill_plugin::HttpGrant;

use super::text;
use crate::config::{Grants, SecretSource, Variable};

/// A line for each kind; none if nothing is granted.
pub(super) fn lines(grants: &Grants) -> Vec<String> {
    let mut lines = Vec::new();
    let plain = [
        ("read the clocks and wait", grants.clocks),
        ("draw random numbers", grants.random),
        ("show metrics of its own", grants.metrics),
    ];
    lines.extend(plain.into_iter().filter(|(_, is_granted)| *is_granted).map(|(what, _)| what.to_owned()));
    for (name, variable) in &grants.environment {
        let from = match variable {
            Variable::Value(_) => "the configuration".to_owned(),
            Variable::Host(variable) => format!("the environment variable {variable}"),
        };
        lines.push(format!("read {name}, from {}", text::line(&from)));
    }
    for (name, source) in &grants.secrets {
        lines.push(format!("read the secret {name}, from {}", text::line(&place(source))));
    }
    if let Some(http) = &grants.http {
        lines.push(text::line(&reach(http)));
    }
    lines
}

fn place(source: &SecretSource) -> String {
    match source {
        SecretSource::Variable(variable) => format!("the environment variable {variable}"),
        SecretSource::File(path) => format!("the file {}", path.display()),
    }
}

fn reach(http: &HttpGrant) -> String {
    let mut reach = format!("send {} to {}", listed(&http.methods), listed(&http.hosts));
    if !http.allow_private.is_empty() {
        reach.push_str(&format!(", also at {}", listed(&http.allow_private)));
    }
    reach
}

fn listed<T: Display>(all: impl IntoIterator<Item = T>) -> String {
    let all: Vec<String> = all.into_iter().map(|one| one.to_string()).collect();
    all.join(", ")
}

/// With durations in milliseconds.
pub(super) fn as_json(grants: &Grants) -> Value {
    let environment: Map<String, Value> = grants
        .environment
        .iter()
        .map(|(name, variable)| {
            let from = match variable {
                Variable::Value(_) => Value::Null,
                Variable::Host(variable) => variable.as_str().into(),
            };
            (name.clone(), json!({ "from": from }))
        })
        .collect();
    let secrets: Map<String, Value> = grants
        .secrets
        .iter()
        .map(|(name, source)| {
            let source = match source {
                SecretSource::Variable(variable) => json!({ "env": variable }),
                SecretSource::File(path) => json!({ "file": path.display().to_string() }),
            };
            (name.clone(), source)
        })
        .collect();
    json!({
        "clocks": grants.clocks,
        "random": grants.random,
        "metrics": grants.metrics,
        "environment": environment,
        "secrets": secrets,
        "http": grants.http.as_ref().map(http),
    })
}

fn http(http: &HttpGrant) -> Value {
    let texts = |all: Vec<String>| Value::from(all);
    json!({
        "hosts": texts(http.hosts.iter().map(ToString::to_string).collect()),
        "methods": http.methods,
        "connect-timeout-ms": http.connect_timeout.as_millis(),
        "timeout-ms": http.timeout.as_millis(),
        "request-bytes": http.request_bytes,
        "response-bytes": http.response_bytes,
        "concurrency": http.concurrency,
        "allow-private": texts(http.allow_private.iter().map(ToString::to_string).collect()),
    })
}
