use std::collections::BTreeMap;

use async_trait::async_trait;
use serde_json::Value;

use super::Error;

/// Everything of ours that is not a lease: small JSON documents in a table of their own, because a KCL 2.x reads
/// every row of its lease table as a lease.
#[async_trait]
pub trait Sidecar: Send + Sync + 'static {
    /// The name of the table, for messages.
    fn sidecar_table(&self) -> &str;

    /// Reads a document, consistently.
    async fn document(&self, key: &str) -> Result<Option<Document>, Error>;

    /// Writes a document if its version is still the one given (`None`: if there is none), and makes its version one
    /// more. `false` if it is not: somebody else was first.
    async fn put_document(&self, key: &str, body: &Value, version: Option<u64>) -> Result<bool, Error>;

    /// All documents whose keys begin so, by key. Each is read whole, and not all at one moment; one that cannot be
    /// read is left out.
    async fn documents(&self, prefix: &str) -> Result<BTreeMap<String, Document>, Error>;

    /// Deletes a document if its version is still the one given. `false` if it is not; what is gone is deleted.
    async fn delete_document(&self, key: &str, version: u64) -> Result<bool, Error>;
}

/// A document of the sidecar table.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// How often it was written, from 1.
    pub version: u64,
    /// What it says.
    pub body: Value,
}
