use std::collections::BTreeMap;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
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

/// Which stream a lease table belongs to: document `stream/<name>`.
///
/// A stream that is deleted and created again has the same name, ARN and shard ids; its creation time tells that the
/// checkpoints in the table belong to a stream that is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamIdentity {
    /// The stream's ARN.
    pub arn: String,
    /// When it was created, in milliseconds since 1970.
    pub created_at: u64,
    /// How the table's keys are made. Chosen with the first stream, never changed.
    pub key_form: KeyForm,
}

/// How lease keys are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyForm {
    /// The shard id: the table belongs to one stream.
    Shard,
    /// The KCL's multi-stream form, `account:stream:creationEpoch:shardId`.
    MultiStream,
}

/// What [`claim_stream`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamClaim {
    /// The table was used with this stream before, or is from now on.
    Same,
    /// The table belongs to another stream, or to one that was deleted: what is stored.
    Different(StreamIdentity),
}

/// Notes with the leases which stream they are for, the first time; afterwards, compares.
pub async fn claim_stream(
    sidecar: &dyn Sidecar,
    stream: &str,
    identity: &StreamIdentity,
) -> Result<StreamClaim, Error> {
    let key = format!("stream/{stream}");
    let invalid = |error: serde_json::Error| Error::InvalidDocument {
        table: sidecar.sidecar_table().to_owned(),
        key: key.clone(),
        problem: error.to_string(),
    };
    loop {
        if let Some(document) = sidecar.document(&key).await? {
            let stored = serde_json::from_value(document.body).map_err(invalid)?;
            return Ok(if stored == *identity { StreamClaim::Same } else { StreamClaim::Different(stored) });
        }
        let body = serde_json::to_value(identity).map_err(invalid)?;
        // If another worker is first, its document is read in the next round.
        if sidecar.put_document(&key, &body, None).await? {
            return Ok(StreamClaim::Same);
        }
    }
}
