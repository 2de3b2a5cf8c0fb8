//! A change as update and condition expressions.
//!
//! The update is the difference between the lease as known and as it will be, attribute by attribute: whatever else
//! the row holds stays, but for a pending checkpoint when there is a new one.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use shardmill_record::ShardId;

use super::row::{kilobytes, n, shard_set};
use super::schema;
use crate::change::Guard;
use crate::{Lease, WorkerId};

type Names = HashMap<String, String>;
type Values = HashMap<String, AttributeValue>;

/// What `UpdateItem` takes.
#[derive(Debug)]
pub(super) struct Expression {
    pub(super) update: String,
    pub(super) condition: String,
    pub(super) names: Names,
    pub(super) values: Values,
}

#[derive(Debug, Default)]
struct Differences {
    set: Vec<String>,
    remove: Vec<String>,
    add: Vec<String>,
    names: Names,
    values: Values,
}

/// The write that makes `after` of a row that is as `known`.
pub(super) fn expression(known: &Lease, after: &Lease, guard: Guard) -> Expression {
    let mut differences = Differences::default();
    if known.counter != after.counter {
        differences.set(schema::LEASE_COUNTER, n(after.counter));
    }
    if known.epoch != after.epoch {
        differences.set(schema::LEASE_EPOCH, n(after.epoch.get()));
    }
    differences.owner(schema::LEASE_OWNER, known.owner.as_ref(), after.owner.as_ref());
    differences.owner(schema::CHECKPOINT_OWNER, known.checkpoint_owner.as_ref(), after.checkpoint_owner.as_ref());
    if known.checkpoint != after.checkpoint {
        differences.set(schema::CHECKPOINT, AttributeValue::S(after.checkpoint.as_str().to_owned()));
        differences.set(schema::CHECKPOINT_SUB_SEQUENCE_NUMBER, n(after.checkpoint.sub_sequence_number()));
        // As a KCL's checkpoint does: one that takes the lease back would hand its application a pending checkpoint that
        // was passed long ago.
        schema::PENDING.iter().for_each(|attribute| differences.remove(attribute));
    }
    if known.owner_switches_since_checkpoint != after.owner_switches_since_checkpoint {
        differences.set(schema::OWNER_SWITCHES, n(after.owner_switches_since_checkpoint));
    }
    if let Some(throughput) = after.throughput.filter(|_| known.throughput != after.throughput) {
        differences.set(schema::THROUGHPUT, kilobytes(throughput));
    }
    match after.start_at {
        _ if known.start_at == after.start_at => {}
        Some(at) => differences.set(schema::START_AT, n(at)),
        None => differences.remove(schema::START_AT),
    }
    differences.children(known, after);
    differences.into_expression(known, guard)
}

/// The condition that a row is as known, with its names and values.
pub(super) fn condition(known: &Lease, guard: Guard) -> (String, Names, Values) {
    let mut names = Names::new();
    let mut values = Values::new();
    let mut name = |attribute: &str| {
        names.insert(format!("#{attribute}"), attribute.to_owned());
        format!("#{attribute}")
    };
    let [counter, owner, checkpoint_owner] =
        [schema::LEASE_COUNTER, schema::LEASE_OWNER, schema::CHECKPOINT_OWNER].map(&mut name);
    let mut is = |attribute: &str, value: &str, worker: Option<&WorkerId>| match worker {
        Some(worker) => {
            values.insert(value.to_owned(), AttributeValue::S(worker.as_str().to_owned()));
            format!("{attribute} = {value}")
        }
        None => format!("attribute_not_exists({attribute})"),
    };
    let owners = match guard {
        Guard::Writer => {
            let writes = is(&checkpoint_owner, ":known_writer", known.writer());
            let nobody_else = format!("attribute_not_exists({checkpoint_owner})");
            let owns = is(&owner, ":known_writer", known.writer());
            format!("({writes} OR ({nobody_else} AND {owns}))")
        }
        Guard::Owners | Guard::OwnersAlone => {
            let owner = is(&owner, ":known_owner", known.owner.as_ref());
            let checkpoint_owner = is(&checkpoint_owner, ":known_checkpoint_owner", known.checkpoint_owner.as_ref());
            format!("{owner} AND {checkpoint_owner}")
        }
    };
    if guard == Guard::OwnersAlone {
        names.remove(&counter);
        return (owners, names, values);
    }
    values.insert(":known_counter".to_owned(), n(known.counter));
    (format!("{counter} = :known_counter AND {owners}"), names, values)
}

// === impl Differences ===

impl Differences {
    fn name(&mut self, attribute: &str) -> String {
        let name = format!("#{attribute}");
        self.names.insert(name.clone(), attribute.to_owned());
        name
    }

    fn set(&mut self, attribute: &str, value: AttributeValue) {
        let name = self.name(attribute);
        self.set.push(format!("{name} = :{attribute}"));
        self.values.insert(format!(":{attribute}"), value);
    }

    fn remove(&mut self, attribute: &str) {
        let name = self.name(attribute);
        self.remove.push(name);
    }

    fn owner(&mut self, attribute: &str, known: Option<&WorkerId>, after: Option<&WorkerId>) {
        match after {
            _ if known == after => {}
            Some(worker) => self.set(attribute, AttributeValue::S(worker.as_str().to_owned())),
            None => self.remove(attribute),
        }
    }

    /// Added to the set, not set: a KCL writes children without moving the counter.
    fn children(&mut self, known: &Lease, after: &Lease) {
        let is_new = |child: &&ShardId| !known.children.contains(child);
        let new: Vec<ShardId> = after.children.iter().filter(is_new).cloned().collect();
        if !new.is_empty() {
            let name = self.name(schema::CHILDREN);
            self.add.push(format!("{name} :children"));
            self.values.insert(":children".to_owned(), shard_set(&new));
        }
    }

    fn into_expression(self, known: &Lease, guard: Guard) -> Expression {
        let (condition, names, values) = condition(known, guard);
        let clauses = [("SET", self.set), ("REMOVE", self.remove), ("ADD", self.add)];
        let clauses = clauses.into_iter().filter(|(_, parts)| !parts.is_empty());
        let update = clauses.map(|(verb, parts)| format!("{verb} {}", parts.join(", "))).collect::<Vec<_>>().join(" ");
        Expression {
            update,
            condition,
            names: self.names.into_iter().chain(names).collect(),
            values: self.values.into_iter().chain(values).collect(),
        }
    }
}
