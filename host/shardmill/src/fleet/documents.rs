//! Reads and writes the documents of plugins, in sidecar tables.

use serde_json::json;
use shardmill_cause::with_causes;
use shardmill_lease::store::{self, Document, Sidecar};

use super::deployment::{Deployment, FORMAT};
use super::home;

/// How often a change is tried anew that others were ahead of.
const TRIES: usize = 5;

/// A document as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) deployment: Deployment,
    /// `None` if there is no document yet.
    pub(crate) version: Option<u64>,
}

/// Why a document cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Store(#[from] store::Error),
    #[error("document {key} of table {table} makes no sense: {problem}; delete it to begin anew")]
    Unreadable { table: String, key: String, problem: String },
    #[error(
        "document {key} of table {table} was written by a later version of Shardmill, which this one must not change"
    )]
    Later { table: String, key: String },
}

/// Reads the document of a processor; a new one if there is none.
pub(crate) async fn read(sidecar: &dyn Sidecar, processor: &str) -> Result<Read, Error> {
    let key = home::key(processor);
    let Some(Document { version, body }) = sidecar.document(&key).await? else {
        return Ok(Read { deployment: Deployment::new(), version: None });
    };
    let table = || sidecar.sidecar_table().to_owned();
    // The form is looked at first: a later one may have anything in it.
    if body.get("format").and_then(serde_json::Value::as_u64).is_some_and(|format| format > FORMAT.into()) {
        return Err(Error::Later { table: table(), key });
    }
    match serde_json::from_value::<Deployment>(body) {
        Ok(deployment) if deployment.is_known_form() => Ok(Read { deployment, version: Some(version) }),
        Ok(_other) => Err(Error::Unreadable { table: table(), key, problem: "it has no known form".to_owned() }),
        Err(error) => Err(Error::Unreadable { table: table(), key, problem: with_causes(&error) }),
    }
}

/// Writes a document if it is still as it was read. `false` if somebody else has written it.
pub(crate) async fn write(sidecar: &dyn Sidecar, processor: &str, read: &Read) -> Result<bool, store::Error> {
    let key = home::key(processor);
    match sidecar.put_document(&key, &json!(read.deployment), read.version).await {
        // The answer is lost. What was written says so itself.
        Err(error @ store::Error::Unknown { .. }) => match sidecar.document(&key).await {
            Ok(Some(Document { version, body }))
                if version == read.version.unwrap_or(0) + 1 && body == json!(read.deployment) =>
            {
                Ok(true)
            }
            Ok(found) if found.as_ref().map(|found| found.version) != read.version => Ok(false),
            _not_known => Err(error),
        },
        written => written,
    }
}

/// Changes a document in a way that is right whatever others have done to it meanwhile. `change` says whether there is
/// anything to change. What it is in the end.
pub(crate) async fn change(
    sidecar: &dyn Sidecar,
    processor: &str,
    mut found: Read,
    mut change: impl FnMut(&mut Deployment) -> bool + Send,
) -> Result<Read, Error> {
    for _ in 0..TRIES {
        if !change(&mut found.deployment) {
            return Ok(found);
        }
        if write(sidecar, processor, &found).await? {
            found.version = Some(found.version.unwrap_or(0) + 1);
            return Ok(found);
        }
        found = read(sidecar, processor).await?;
    }
    // Others write it again and again; the next look tries anew.
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use shardmill_lease::store::Store as _;
    use shardmill_lease::store::dynamodb::{DynamoDb, Timeouts};
    use shardmill_lease::store::memory::{Call, Fault, Memory};
    use shardmill_plugin::Digest;

    use super::*;
    use crate::aws::Clients;
    use crate::config::Aws;
    use crate::fleet::deployment::{Asked, Order};
    use crate::fleet::share::Share;
    use crate::local::Local;

    fn asked() -> Asked {
        Asked { by: "me".to_owned(), at: 1 }
    }

    fn order(name: &str) -> Order {
        let digest = Digest::of(name.as_bytes());
        Order { digest, source: name.to_owned(), share: Share::ALL, is_rollback: false }
    }

    #[tokio::test]
    async fn of_two_that_decide_at_once_one_is_told() {
        let table = Memory::new();
        let mut first = read(&table, "copy").await.unwrap();
        let mut second = first.clone();
        first.deployment.order(order("a"), &[], &asked());
        second.deployment.order(order("b"), &[], &asked());
        assert!(write(&table, "copy", &first).await.unwrap());
        assert!(!write(&table, "copy", &second).await.unwrap());
        let found = read(&table, "copy").await.unwrap();
        assert_eq!((found.version, &found.deployment), (Some(1), &first.deployment));
        assert_eq!(read(&table, "other").await.unwrap().version, None);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn dynamodb_keeps_a_long_history_and_lets_one_of_two_write() {
        let local = Local::start(crate::local::Options::default()).await.unwrap();
        let aws = Aws { dynamodb_endpoint: Some(local.endpoints().dynamodb.clone()), ..Aws::default() };
        let client = Clients::new(&crate::aws::local(), &aws).dynamodb;
        let table = DynamoDb::new(client, "tests-copy", Timeouts::default());
        assert!(matches!(read(&table, "copy").await, Err(Error::Store(store::Error::NoTable { .. }))));
        table.ensure().await.unwrap();
        let mut found = read(&table, "copy").await.unwrap();
        for number in 0..25 {
            // As long as signed addresses are.
            found.deployment.order(order(&format!("{number}-{}", "x".repeat(2_000))), &[], &asked());
        }
        let mut rival = found.clone();
        rival.deployment.order(order("rival"), &[], &asked());
        assert!(write(&table, "copy", &found).await.unwrap());
        assert!(!write(&table, "copy", &rival).await.unwrap());
        let kept = read(&table, "copy").await.unwrap();
        assert_eq!((kept.version, &kept.deployment), (Some(1), &found.deployment));
        local.stop().await;
    }

    #[tokio::test]
    async fn an_answer_that_is_lost_is_found_out() {
        let table = Memory::new();
        for (fault, is_written) in [(Fault::LoseAnswer, true), (Fault::LoseRequest, false)] {
            let processor = format!("{fault:?}");
            let faulty = table.with_faults(move |call| match call {
                Call::PutDocument(_) => fault,
                _ => Fault::None,
            });
            let mut found = read(&faulty, &processor).await.unwrap();
            found.deployment.order(order("a"), &[], &asked());
            let written = write(&faulty, &processor, &found).await;
            assert_eq!(written.is_ok_and(|written| written), is_written, "{fault:?}");
        }
    }

    #[tokio::test]
    async fn a_change_is_made_to_what_others_have_left() {
        let table = Memory::new();
        let rival = table.clone();
        let stale = read(&table, "copy").await.unwrap();
        let mut theirs = stale.clone();
        theirs.deployment.order(order("theirs"), &[], &asked());
        assert!(write(&rival, "copy", &theirs).await.unwrap());
        let calls = AtomicUsize::new(0);
        let file = Digest::of(b"file");
        let learnt = change(&table, "copy", stale, |deployment| {
            calls.fetch_add(1, Ordering::Relaxed);
            deployment.learn(&file, "/app/a.wasm", &asked())
        });
        let learnt = learnt.await.unwrap();
        assert_eq!((calls.load(Ordering::Relaxed), learnt.version), (2, Some(2)));
        assert!(learnt.deployment.wanted().is_some() && !learnt.deployment.is_newer(&file));
        assert_eq!(read(&table, "copy").await.unwrap(), learnt);
    }

    #[tokio::test]
    async fn what_makes_no_sense_or_comes_from_a_later_version_is_left_alone() {
        let table = Memory::new();
        for (processor, body, said) in [
            ("later", json!({ "format": 2, "wanted": 7 }), "later version"),
            ("odd", json!({ "format": 1, "wanted": 7 }), "makes no sense"),
            ("empty", json!({}), "makes no sense"),
        ] {
            table.put_document(&home::key(processor), &body, None).await.unwrap();
            let error = read(&table, processor).await.unwrap_err().to_string();
            assert!(error.contains(said) && error.contains(&home::key(processor)), "{error}");
        }
    }
}
