use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use crate::number::Number;

/// A pattern as it was written, in JSON or as a table. Unlike `serde_json::Value` it refuses what would be lost: keys that
/// are there twice, numbers that are none, and dates.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Tree {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Tree>),
    /// In the order in which they were written.
    Fields(Vec<(String, Tree)>),
}

/// What the `toml` crate hands a date over as.
const TOML_DATE: &str = "$__toml_private_datetime";

struct TreeVisitor;

// === impl Tree ===

impl Tree {
    /// What it is, for an error.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "true or false",
            Self::Number(_) => "a number",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Fields(_) => "an object",
        }
    }

    /// How many levels of objects and lists there are.
    pub(crate) fn depth(&self) -> usize {
        match self {
            Self::List(list) => 1 + list.iter().map(Self::depth).max().unwrap_or(0),
            Self::Fields(fields) => 1 + fields.iter().map(|(_, tree)| tree.depth()).max().unwrap_or(0),
            _ => 0,
        }
    }

    /// How many values there are, in all lists and objects.
    pub(crate) fn values(&self) -> usize {
        match self {
            Self::List(list) => list.iter().map(Self::values).sum(),
            Self::Fields(fields) => fields.iter().map(|(_, tree)| tree.values()).sum(),
            _ => 1,
        }
    }
}

impl From<&serde_json::Value> for Tree {
    fn from(value: &serde_json::Value) -> Self {
        match value {
            serde_json::Value::Null => Self::Null,
            serde_json::Value::Bool(value) => Self::Bool(*value),
            serde_json::Value::String(text) => Self::Text(text.clone()),
            serde_json::Value::Array(list) => Self::List(list.iter().map(Self::from).collect()),
            serde_json::Value::Object(fields) => {
                Self::Fields(fields.iter().map(|(name, value)| (name.clone(), value.into())).collect())
            }
            serde_json::Value::Number(number) => Self::Number(match (number.as_u64(), number.as_i64()) {
                (Some(value), _) => value.into(),
                (None, Some(value)) => value.into(),
                (None, None) => Number::double(number.as_f64().unwrap_or_default()),
            }),
        }
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

// === impl TreeVisitor ===

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a part of a pattern")
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Tree, E> {
        Ok(Tree::Number(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Tree, E> {
        Ok(Tree::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Tree, E> {
        if value.is_finite() {
            Ok(Tree::Number(Number::double(value)))
        } else {
            Err(E::custom(format_args!("`{value}` is a number in TOML alone, and no record can have it")))
        }
    }

    fn visit_str<E>(self, text: &str) -> Result<Tree, E> {
        Ok(Tree::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Tree, E> {
        Ok(Tree::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Tree, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element()? {
            values.push(value);
        }
        Ok(Tree::List(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tree, A::Error> {
        fields(&mut map).map(Tree::Fields)
    }
}

/// The entries of an object.
pub(crate) fn fields<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Vec<(String, Tree)>, A::Error> {
    let mut fields: Vec<(String, Tree)> = Vec::new();
    while let Some(name) = map.next_key::<String>()? {
        if name == TOML_DATE {
            return Err(A::Error::custom("JSON has no dates: write it as a text, in quotes"));
        }
        if fields.iter().any(|(other, _)| *other == name) {
            return Err(A::Error::custom(format_args!("the key {name:?} is there twice: only one would count")));
        }
        fields.push((name, map.next_value()?));
    }
    Ok(fields)
}
