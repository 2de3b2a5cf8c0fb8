//! The `config` table.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::Path;

/// The `config` table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Settings {
    /// Where the value is that decides.
    pub field: Path,
    /// Names of outputs by value.
    #[serde(default)]
    pub routes: BTreeMap<String, String>,
    /// The output for all other values, and for records without one. Without, these records are skipped.
    #[serde(default)]
    pub default: Option<String>,
    /// Where the partition key of an output is. Without, it is that of the record.
    #[serde(default)]
    pub partition_key: Option<Path>,
    /// What to do with records that are not JSON.
    #[serde(default)]
    pub invalid_json: InvalidJson,
}

/// What to do with records that are not JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub enum InvalidJson {
    /// They fail for good.
    #[default]
    Fail,
    /// They are skipped.
    Skip,
    /// They go to this output, under their own partition key.
    Output(String),
}

// === impl Settings ===

impl Settings {
    /// Refuses what can only be a mistake.
    ///
    /// # Errors
    /// What the mistake is.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.routes.is_empty() && self.default.is_none() {
            return Err("config has neither `routes` nor `default`, so it would send nothing anywhere");
        }
        let invalid = match &self.invalid_json {
            InvalidJson::Output(name) => Some(name),
            InvalidJson::Fail | InvalidJson::Skip => None,
        };
        if self.routes.values().chain(&self.default).chain(invalid).any(String::is_empty) {
            return Err("config names an output by an empty text");
        }
        Ok(())
    }
}

// === impl InvalidJson ===

impl From<String> for InvalidJson {
    fn from(text: String) -> InvalidJson {
        match text.as_str() {
            "fail" => InvalidJson::Fail,
            "skip" => InvalidJson::Skip,
            _ => InvalidJson::Output(text),
        }
    }
}
