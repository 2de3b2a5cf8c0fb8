//! Leases in memory: for simulations and tests, with faults.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;

use super::{Document, Ensured, Error, Listing, Sidecar, Store};
use crate::change::{self, Change};
use crate::{Lease, LeaseKey, NewLease};

/// The name that errors give for the table.
const TABLE: &str = "in memory";

/// A table in memory. Clones share it; each may have faults of its own, like workers on different networks.
#[derive(Clone, Default)]
pub struct Memory {
    tables: Arc<Mutex<Tables>>,
    faults: Option<Arc<Faults>>,
}

/// Decides what goes wrong with each call.
type Faults = dyn Fn(&Call<'_>) -> Fault + Send + Sync;

#[derive(Default)]
struct Tables {
    leases: BTreeMap<LeaseKey, Lease>,
    documents: HashMap<String, Document>,
    history: Option<Vec<Applied>>,
}

/// A call that is about to be made.
#[derive(Debug, Clone, Copy)]
pub enum Call<'a> {
    /// [`Store::list`].
    List,
    /// [`Store::get`].
    Get(&'a LeaseKey),
    /// [`Store::create`].
    Create(&'a NewLease),
    /// [`Store::write`].
    Write(&'a Lease, &'a Change),
    /// [`Store::delete`].
    Delete(&'a Lease),
    /// [`Sidecar::document`].
    Document(&'a str),
    /// [`Sidecar::documents`].
    Documents(&'a str),
    /// [`Sidecar::put_document`].
    PutDocument(&'a str),
    /// [`Sidecar::delete_document`].
    DeleteDocument(&'a str),
}

/// What goes wrong with a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    #[default]
    None,
    /// The request takes this long to arrive.
    Delay(Duration),
    /// Refused for lack of capacity.
    Throttle,
    /// Refused for lack of a permission.
    Forbid,
    /// The request is lost: nothing is applied, and the caller does not know.
    LoseRequest,
    /// The answer is lost: it is applied, and the caller does not know.
    LoseAnswer,
    /// The caller gives up at once, and the request arrives after this long.
    ArriveLate(Duration),
}

/// A write that was applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// What was done; `None` for a creation or deletion.
    pub change: Option<Change>,
    /// The row before.
    pub before: Option<Lease>,
    /// The row afterwards.
    pub after: Option<Lease>,
}

#[derive(Debug, thiserror::Error)]
#[error("injected fault")]
struct Injected;

// === impl Memory ===

impl Memory {
    /// A table without history and faults.
    pub fn new() -> Self {
        Self::default()
    }

    /// A table that remembers every write in order.
    pub fn recording() -> Self {
        let memory = Self::default();
        memory.tables().history = Some(Vec::new());
        memory
    }

    /// The same table, seen through faults.
    pub fn with_faults(&self, faults: impl Fn(&Call<'_>) -> Fault + Send + Sync + 'static) -> Self {
        Self { tables: self.tables.clone(), faults: Some(Arc::new(faults)) }
    }

    /// Takes the writes since the last call out of the history.
    pub fn take_history(&self) -> Vec<Applied> {
        self.tables().history.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// All rows, without faults.
    pub fn rows(&self) -> Vec<Lease> {
        self.tables().leases.values().cloned().collect()
    }

    /// One row, without faults.
    pub fn row(&self, key: &LeaseKey) -> Option<Lease> {
        self.tables().leases.get(key).cloned()
    }

    /// Puts a row as it is, as another system might.
    pub fn put_row(&self, lease: Lease) {
        self.tables().leases.insert(lease.key.clone(), lease);
    }

    /// Deletes a row, as an operator might.
    pub fn remove_row(&self, key: &LeaseKey) {
        self.tables().leases.remove(key);
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        // Every access leaves the tables whole.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does a read under the faults.
    async fn read<T>(&self, call: Call<'_>, read: impl FnOnce(&Tables) -> T) -> Result<T, Error> {
        match self.fault(&call) {
            Fault::None => {}
            Fault::Delay(time) => tokio::time::sleep(time).await,
            Fault::Throttle => return Err(throttled()),
            Fault::Forbid => return Err(forbidden()),
            Fault::LoseRequest | Fault::LoseAnswer | Fault::ArriveLate(_) => return Err(unavailable()),
        }
        Ok(read(&self.tables()))
    }

    /// Does a write under the faults.
    async fn change<T: Send + 'static>(
        &self,
        call: Call<'_>,
        write: impl FnOnce(&mut Tables) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        match self.fault(&call) {
            Fault::None => {}
            Fault::Delay(time) => {
                // As on a network: who gives up waiting does not stop a request that is on its way.
                let memory = self.clone();
                let arriving = tokio::spawn(async move {
                    tokio::time::sleep(time).await;
                    write(&mut memory.tables())
                });
                return arriving.await.unwrap_or_else(|_| Err(unknown()));
            }
            Fault::Throttle => return Err(throttled()),
            Fault::Forbid => return Err(forbidden()),
            Fault::LoseRequest => return Err(unknown()),
            Fault::LoseAnswer => {
                let _lost = write(&mut self.tables());
                return Err(unknown());
            }
            Fault::ArriveLate(time) => {
                let memory = self.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(time).await;
                    let _lost = write(&mut memory.tables());
                });
                return Err(unknown());
            }
        }
        write(&mut self.tables())
    }

    fn fault(&self, call: &Call<'_>) -> Fault {
        self.faults.as_ref().map_or(Fault::None, |faults| faults(call))
    }
}

#[async_trait]
impl Store for Memory {
    fn lease_table(&self) -> &str {
        TABLE
    }

    async fn ensure(&self) -> Result<Ensured, Error> {
        Ok(if self.tables().leases.is_empty() { Ensured::Created } else { Ensured::Existing })
    }

    async fn list(&self) -> Result<Listing, Error> {
        let leases = self.read(Call::List, |tables| tables.leases.values().cloned().collect()).await?;
        Ok(Listing { leases, invalid: Vec::new() })
    }

    async fn get(&self, key: &LeaseKey) -> Result<Option<Lease>, Error> {
        self.read(Call::Get(key), |tables| tables.leases.get(key).cloned()).await
    }

    async fn create(&self, lease: &NewLease) -> Result<bool, Error> {
        let row = lease.clone().into_lease();
        let create = move |tables: &mut Tables| {
            if tables.leases.contains_key(&row.key) {
                return Ok(false);
            }
            tables.note(None, None, Some(&row));
            tables.leases.insert(row.key.clone(), row);
            Ok(true)
        };
        self.change(Call::Create(lease), create).await
    }

    async fn write(&self, known: &Lease, change: &Change) -> Result<Lease, Error> {
        let refused = |refused| Error::Refused { key: known.key.clone(), refused };
        change::apply(known, change).map_err(refused)?;
        let call = Call::Write(known, change);
        let (known, change) = (known.clone(), change.clone());
        let write = move |tables: &mut Tables| {
            let current = tables.leases.get(&known.key).cloned();
            let Some(row) = current.filter(|row| change::holds(change.guard(), &known, row)) else {
                return Err(tables.conflict(&known.key));
            };
            let after =
                change::apply(&row, &change).map_err(|refused| Error::Refused { key: known.key.clone(), refused })?;
            tables.note(Some(&change), Some(&row), Some(&after));
            tables.leases.insert(known.key.clone(), after.clone());
            Ok(after)
        };
        self.change(call, write).await
    }

    async fn delete(&self, known: &Lease) -> Result<(), Error> {
        let call = Call::Delete(known);
        let known = known.clone();
        let delete = move |tables: &mut Tables| {
            let Some(row) = tables.leases.get(&known.key).cloned() else {
                return Ok(());
            };
            if !change::holds(change::Guard::Owners, &known, &row) {
                return Err(tables.conflict(&known.key));
            }
            tables.note(None, Some(&row), None);
            tables.leases.remove(&known.key);
            Ok(())
        };
        self.change(call, delete).await
    }
}

#[async_trait]
impl Sidecar for Memory {
    fn sidecar_table(&self) -> &str {
        TABLE
    }

    async fn document(&self, key: &str) -> Result<Option<Document>, Error> {
        self.read(Call::Document(key), |tables| tables.documents.get(key).cloned()).await
    }

    async fn put_document(&self, key: &str, body: &Value, version: Option<u64>) -> Result<bool, Error> {
        let call = Call::PutDocument(key);
        let (key, body) = (key.to_owned(), body.clone());
        let put = move |tables: &mut Tables| {
            let current = tables.documents.get(&key).map(|document| document.version);
            if current != version {
                return Ok(false);
            }
            tables.documents.insert(key, Document { version: version.unwrap_or(0) + 1, body });
            Ok(true)
        };
        self.change(call, put).await
    }

    async fn documents(&self, prefix: &str) -> Result<BTreeMap<String, Document>, Error> {
        let read = |tables: &Tables| {
            let found = tables.documents.iter().filter(|(key, _)| key.starts_with(prefix));
            found.map(|(key, document)| (key.clone(), document.clone())).collect()
        };
        self.read(Call::Documents(prefix), read).await
    }

    async fn delete_document(&self, key: &str, version: u64) -> Result<bool, Error> {
        let call = Call::DeleteDocument(key);
        let key = key.to_owned();
        let delete = move |tables: &mut Tables| {
            let is_other = tables.documents.get(&key).is_some_and(|document| document.version != version);
            if !is_other {
                tables.documents.remove(&key);
            }
            Ok(!is_other)
        };
        self.change(call, delete).await
    }
}

// === impl Tables ===

impl Tables {
    fn note(&mut self, change: Option<&Change>, before: Option<&Lease>, after: Option<&Lease>) {
        if let Some(history) = &mut self.history {
            history.push(Applied { change: change.cloned(), before: before.cloned(), after: after.cloned() });
        }
    }

    fn conflict(&self, key: &LeaseKey) -> Error {
        Error::Conflict { key: key.clone(), current: self.leases.get(key).cloned().map(Box::new) }
    }
}

fn throttled() -> Error {
    Error::Throttled { table: TABLE.to_owned(), source: Box::new(Injected) }
}

fn forbidden() -> Error {
    Error::NotPermitted {
        action: "everything",
        table: TABLE.to_owned(),
        remedy: "ask nicely",
        source: Box::new(Injected),
    }
}

fn unavailable() -> Error {
    Error::Unavailable { table: TABLE.to_owned(), source: Box::new(Injected) }
}

fn unknown() -> Error {
    Error::Unknown { table: TABLE.to_owned(), source: Box::new(Injected) }
}
