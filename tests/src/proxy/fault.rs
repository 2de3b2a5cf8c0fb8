//! What goes wrong, and when.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use super::call::{Call, Service};

/// What becomes of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// Not carried out; the service's answer is this error code, with HTTP status 400.
    Refused(&'static str),
    /// Not carried out; the answer is this HTTP status, and no reason.
    Status(u16),
    /// Carried out after so long, whether or not the worker still waits for it.
    Late(Duration),
    /// Carried out at once, and answered after so long.
    LateAnswer(Duration),
    /// Not carried out, and never answered.
    Hang,
    /// Not carried out; the connection is reset.
    Reset,
    /// Carried out; the connection is closed without an answer.
    AnswerLost,
    /// Carried out; the connection is closed in the middle of the answer.
    AnswerCut,
    /// Carried out; the answer is whole for HTTP, and half of its JSON is missing.
    HalfJson,
    /// Carried out; in the answer's text the second takes the place of the first.
    Says(&'static str, &'static str),
    /// PutRecords: each entry fails with this chance, at least one does, and is not stored; the others are carried out.
    Partial {
        /// From 0 to 1.
        chance: f64,
        /// The code that is reported for each.
        code: &'static str,
    },
    /// PutRecords: one entry is not stored, and the answer says that it is. No service does that: with it a test shows
    /// that a check finds what is lost.
    Swallowed,
}

/// A fault, and the calls that it befalls: all of them, unless something is said.
#[derive(Debug, Clone)]
pub struct Rule {
    fault: Fault,
    service: Option<Service>,
    operation: Option<&'static str>,
    stream: Option<String>,
    shard: Option<String>,
    table: Option<String>,
    link: Option<String>,
    outside_region: Option<String>,
    probability: f64,
    after: u64,
    times: u64,
}

/// A rule at work.
#[derive(Debug)]
pub(super) struct Active {
    pub(super) rule: Rule,
    dice: Mutex<SmallRng>,
    matched: AtomicU64,
    injected: AtomicU64,
    is_over: AtomicBool,
}

/// A rule that was given to a proxy: what it has done, and its end.
#[derive(Debug, Clone)]
pub struct Injected(pub(super) Arc<Active>);

/// What a code stands for, in the words of AWS where they matter to a reader.
pub(super) fn message(code: &str) -> String {
    let known = match code {
        "ExpiredTokenException" => "The security token included in the request is expired",
        "UnrecognizedClientException" => "The security token included in the request is invalid.",
        "InvalidSignatureException" => "Credential should be scoped to a valid region. ",
        "AccessDeniedException" => "User: arn:aws:iam::123456789012:user/tests is not authorized to perform this",
        "ProvisionedThroughputExceededException" => "Rate exceeded for a shard or a table in account 123456789012.",
        "KMSAccessDeniedException" => "User is not authorized to decrypt records with the key alias/tests",
        "KMSDisabledException" => "arn:aws:kms:us-east-1:123456789012:key/tests is disabled.",
        "ResourceNotFoundException" => "Stream or table under account 123456789012 not found.",
        other => return format!("{other} from the tests' proxy"),
    };
    known.to_owned()
}

/// The body of an error.
pub(super) fn refusal(service: Service, code: &str) -> Value {
    let prefix = match service {
        Service::Kinesis => "",
        Service::DynamoDb => "com.amazonaws.dynamodb.v20120810#",
    };
    json!({ "__type": format!("{prefix}{code}"), "message": message(code) })
}

// === impl Rule ===

impl Rule {
    /// A rule for every call.
    pub fn new(fault: Fault) -> Rule {
        Rule {
            fault,
            service: None,
            operation: None,
            stream: None,
            shard: None,
            table: None,
            link: None,
            outside_region: None,
            probability: 1.0,
            after: 0,
            times: u64::MAX,
        }
    }

    /// Only calls of this service.
    #[must_use]
    pub fn service(self, service: Service) -> Rule {
        Rule { service: Some(service), ..self }
    }

    /// Only calls of this operation.
    #[must_use]
    pub fn operation(self, operation: &'static str) -> Rule {
        Rule { operation: Some(operation), ..self }
    }

    /// Only calls about this stream.
    #[must_use]
    pub fn stream(self, stream: &str) -> Rule {
        Rule { stream: Some(stream.to_owned()), ..self }
    }

    /// Only calls that read this shard.
    #[must_use]
    pub fn shard(self, shard: &str) -> Rule {
        Rule { shard: Some(shard.to_owned()), ..self }
    }

    /// Only calls about this table.
    #[must_use]
    pub fn table(self, table: &str) -> Rule {
        Rule { table: Some(table.to_owned()), ..self }
    }

    /// Only calls that come over the link of this name.
    #[must_use]
    pub fn link(self, link: &str) -> Rule {
        Rule { link: Some(link.to_owned()), ..self }
    }

    /// Only calls that are signed for another region than this.
    #[must_use]
    pub fn outside_region(self, region: &str) -> Rule {
        Rule { outside_region: Some(region.to_owned()), ..self }
    }

    /// Only this part of the calls, from 0 to 1, as the proxy's seed has it.
    #[must_use]
    pub fn probability(self, probability: f64) -> Rule {
        Rule { probability, ..self }
    }

    /// Only after so many calls that would match.
    #[must_use]
    pub fn after(self, calls: u64) -> Rule {
        Rule { after: calls, ..self }
    }

    /// Only so often.
    #[must_use]
    pub fn times(self, times: u64) -> Rule {
        Rule { times, ..self }
    }

    fn matches(&self, link: &str, call: &Call) -> bool {
        let is = |wanted: &Option<String>, found: Option<&str>| wanted.is_none() || wanted.as_deref() == found;
        let is_splittable =
            !matches!(self.fault, Fault::Partial { .. } | Fault::Swallowed) || call.operation == "PutRecords";
        let is_elsewhere = self.outside_region.is_none() || self.outside_region != call.region;
        is_splittable
            && is_elsewhere
            && self.service.is_none_or(|service| service == call.service)
            && self.operation.is_none_or(|operation| operation == call.operation)
            && is(&self.stream, call.stream.as_deref())
            && is(&self.shard, call.shard.as_deref())
            && is(&self.table, call.table.as_deref())
            && is(&self.link, Some(link))
    }
}

// === impl Active ===

impl Active {
    pub(super) fn new(rule: Rule, seed: u64) -> Active {
        Active {
            rule,
            dice: Mutex::new(SmallRng::seed_from_u64(seed)),
            matched: AtomicU64::new(0),
            injected: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        }
    }

    /// The fault, if this call is to have it. Counted as injected then.
    pub(super) fn strike(&self, link: &str, call: &Call) -> Option<Fault> {
        if self.is_over.load(SeqCst) || !self.rule.matches(link, call) {
            return None;
        }
        // Thrown for each call that matches, so that the same seed says the same of the same one.
        let thrown = self.throw(|dice| dice.random::<f64>());
        let is_due = self.matched.fetch_add(1, SeqCst) >= self.rule.after && thrown < self.rule.probability;
        let count = |injected| (injected < self.rule.times).then_some(injected + 1);
        let strikes = is_due && self.injected.fetch_update(SeqCst, SeqCst, count).is_ok();
        strikes.then(|| self.rule.fault.clone())
    }

    pub(super) fn throw<T>(&self, throw: impl FnOnce(&mut SmallRng) -> T) -> T {
        throw(&mut self.dice.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn count(&self) -> u64 {
        self.injected.load(SeqCst)
    }

    pub(super) fn end(&self) {
        self.is_over.store(true, SeqCst);
    }
}

// === impl Injected ===

impl Injected {
    /// How many calls it has befallen.
    pub fn count(&self) -> u64 {
        self.0.count()
    }

    /// Ends it: no further call is befallen.
    pub fn end(&self) {
        self.0.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(operation: &str) -> Call {
        Call {
            service: Service::Kinesis,
            operation: operation.to_owned(),
            region: Some("us-east-1".to_owned()),
            stream: Some("input".to_owned()),
            shard: None,
            table: None,
            body: Value::Null,
        }
    }

    #[test]
    fn a_rule_befalls_what_it_names() {
        let strikes = |rule: Rule| Active::new(rule, 7).strike("first", &call("GetRecords")).is_some();
        let rule = || Rule::new(Fault::Hang);
        for right in [
            rule(),
            rule().service(Service::Kinesis).operation("GetRecords").stream("input").link("first"),
            rule().outside_region("eu-west-1"),
        ] {
            assert!(strikes(right.clone()), "{right:?}");
        }
        for wrong in [
            rule().service(Service::DynamoDb),
            rule().operation("PutRecords"),
            rule().stream("output"),
            rule().shard("shardId-000000000000"),
            rule().table("leases"),
            rule().link("second"),
            rule().outside_region("us-east-1"),
            rule().probability(0.0),
            rule().after(1),
            rule().times(0),
            Rule::new(Fault::Partial { chance: 1.0, code: "InternalFailure" }),
            Rule::new(Fault::Swallowed),
        ] {
            assert!(!strikes(wrong.clone()), "{wrong:?}");
        }
    }

    #[test]
    fn the_same_seed_befalls_the_same_calls() {
        let struck = |seed| {
            let active = Active::new(Rule::new(Fault::Hang).probability(0.3).after(5).times(20), seed);
            let struck: Vec<bool> = (0..200).map(|_| active.strike("first", &call("GetRecords")).is_some()).collect();
            assert_eq!(struck.iter().filter(|struck| **struck).count() as u64, active.count());
            assert!(active.count() == 20 && !struck[..5].contains(&true));
            active.end();
            assert!(active.strike("first", &call("GetRecords")).is_none());
            struck
        };
        assert_eq!(struck(1), struck(1));
        assert_ne!(struck(1), struck(2));
    }
}
