use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};

use crate::condition::{Conditions, Kind};
use crate::error::{Error, Path};
use crate::metadata::Field;
use crate::operators::{conditions, is_misplaced, is_operator};
use crate::tree::{self, Tree};
use crate::{MAX_DEPTH, MAX_VALUES};

/// A pattern that records are held against: an object whose keys are fields of a record, and whose values say what the
/// fields must hold.
///
/// In configuration: JSON in quotes, as in an event source mapping of Lambda, or a table of the same shape.
#[derive(Debug, Clone, PartialEq)]
pub struct Pattern {
    pub(crate) top: Top,
}

/// What must hold of a record, all of it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Top(pub(crate) Vec<TopNeed>);

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TopNeed {
    Metadata(Field, Conditions),
    /// The body as text.
    Text(Conditions),
    /// The body as JSON.
    Data(Fields),
    /// One of these.
    Or(Vec<Top>),
}

/// What must hold of an object in a body, all of it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Fields {
    pub(crate) fields: Vec<(String, Rule)>,
    /// Of each of these lists, one.
    pub(crate) or: Vec<Vec<Fields>>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Rule {
    Value(Conditions),
    Object(Fields),
}

const DATA: &str = "data";
const OR: &str = "$or";

// === impl Pattern ===

impl Pattern {
    /// Reads a pattern from JSON.
    ///
    /// # Errors
    ///
    /// What is wrong, where in the pattern, and what is allowed there.
    pub fn parse(json: &str) -> Result<Self, Error> {
        let tree = serde_json::from_str::<Tree>(json).map_err(|error| {
            let data = error.classify() == serde_json::error::Category::Data;
            Error::whole(if data { error.to_string() } else { format!("the pattern is not JSON: {error}") })
        })?;
        Self::from_tree(&tree)
    }

    /// Takes a pattern that is JSON already.
    ///
    /// # Errors
    ///
    /// As [`Pattern::parse`].
    pub fn from_value(value: &serde_json::Value) -> Result<Self, Error> {
        Self::from_tree(&value.into())
    }

    fn from_tree(tree: &Tree) -> Result<Self, Error> {
        let Tree::Fields(fields) = tree else {
            return Err(Error::whole(format!(
                "a pattern is an object, such as {{\"data\": {{\"status\": [\"paid\"]}}}}, and this is {}",
                tree.kind()
            )));
        };
        if tree.depth() > MAX_DEPTH {
            return Err(Error::whole(format!("objects and lists stand in each other more than {MAX_DEPTH} deep")));
        }
        if tree.values() > MAX_VALUES {
            return Err(Error::whole(format!("{} values are too many: {MAX_VALUES} are allowed", tree.values())));
        }
        Ok(Self { top: top(fields, &Path::top())? })
    }
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PatternVisitor)
    }
}

struct PatternVisitor;

impl<'de> Visitor<'de> for PatternVisitor {
    type Value = Pattern;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a pattern: JSON in quotes, such as '{\"data\": {\"status\": [\"paid\"]}}', or a table")
    }

    fn visit_str<E: serde::de::Error>(self, json: &str) -> Result<Pattern, E> {
        Pattern::parse(json).map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pattern, A::Error> {
        let fields = tree::fields(&mut map)?;
        Pattern::from_tree(&Tree::Fields(fields)).map_err(A::Error::custom)
    }
}

fn top(fields: &[(String, Tree)], path: &Path<'_>) -> Result<Top, Error> {
    not_empty(fields, path)?;
    let mut needs = Vec::with_capacity(fields.len());
    for (name, value) in fields {
        let here = path.key(name);
        needs.push(match (name.as_str(), value) {
            (OR, _) => TopNeed::Or(branches(value, &here, top)?),
            (DATA, Tree::Fields(fields)) => TopNeed::Data(object(fields, &here, false)?),
            (DATA, Tree::List(list)) => TopNeed::Text(conditions(list, Kind::Text, &here)?),
            (DATA, _) => {
                return Err(here.error(format!(
                    "an object of the body's fields is expected, or a list for a body that is text, and this is {}",
                    value.kind()
                )));
            }
            _ => {
                let Some(field) = Field::named(name) else {
                    let names: Vec<_> = Field::ALL.iter().map(|field| format!("`{}`", field.name())).collect();
                    return Err(here.error(format!(
                        "`{name}` is no field of a record; allowed are `{DATA}` for the body, {} and `{OR}`",
                        names.join(", ")
                    )));
                };
                let Tree::List(list) = value else {
                    return Err(here.error(format!("a list is expected, and this is {}", value.kind())));
                };
                TopNeed::Metadata(field, conditions(list, field.kind(), &here)?)
            }
        });
    }
    Ok(Top(needs))
}

fn object(fields: &[(String, Tree)], path: &Path<'_>, in_or: bool) -> Result<Fields, Error> {
    not_empty(fields, path)?;
    let mut result = Fields { fields: Vec::new(), or: Vec::new() };
    for (name, value) in fields {
        let here = path.key(name);
        if name == OR {
            result.or.push(branches(value, &here, |fields, path| object(fields, path, true))?);
            continue;
        }
        if is_misplaced(name, value) || in_or && is_operator(name) {
            return Err(here.error(format!(
                "`{name}` is an operator, and would be taken for a field here: conditions stand in a list, such as \
                 {{\"field\": [{{\"{name}\": …}}]}}"
            )));
        }
        let rule = match value {
            Tree::List(list) => Rule::Value(conditions(list, Kind::Any, &here)?),
            Tree::Fields(fields) => Rule::Object(object(fields, &here, in_or)?),
            _ => {
                return Err(here.error(format!(
                    "a list of values and conditions is expected, or an object of fields, and this is {}",
                    value.kind()
                )));
            }
        };
        result.fields.push((name.clone(), rule));
    }
    Ok(result)
}

fn not_empty(fields: &[(String, Tree)], path: &Path<'_>) -> Result<(), Error> {
    if fields.is_empty() { Err(path.error("the object names no field: name at least one")) } else { Ok(()) }
}

fn branches<T>(
    value: &Tree,
    path: &Path<'_>,
    parse: impl Fn(&[(String, Tree)], &Path<'_>) -> Result<T, Error>,
) -> Result<Vec<T>, Error> {
    const FORM: &str = "`$or` takes a list of two or more objects of fields";
    let Tree::List(list) = value else {
        return Err(path.error(format!("{FORM}, and this is {}", value.kind())));
    };
    if list.len() < 2 {
        return Err(path.error(format!("{FORM}, and this list has {}", list.len())));
    }
    let each = |(index, value): (usize, &Tree)| {
        let here = path.index(index);
        match value {
            Tree::Fields(fields) => parse(fields, &here),
            _ => Err(here.error(format!("{FORM}, and this is {}", value.kind()))),
        }
    };
    list.iter().enumerate().map(each).collect()
}
