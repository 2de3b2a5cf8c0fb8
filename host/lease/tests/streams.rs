//! Streams that are deleted and created again, and the leases of those that are gone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use shardmill_lease::change::Change;
use shardmill_lease::store::memory::{Call, Fault, Memory};
use shardmill_lease::store::{
    Document, Ensured, Error, KeyForm, Listing, Sidecar, Store, StreamClaim, StreamIdentity, claim_stream,
    retire_leases,
};
use shardmill_lease::{Lease, LeaseKey, NewLease, StreamKey, TokioClock, WorkerId};
use shardmill_record::{Checkpoint, ShardId};

const ARN: &str = "arn:aws:kinesis:us-east-1:123456789012:stream/orders";

fn stream(created_at: u64, key_form: KeyForm) -> StreamIdentity {
    StreamIdentity { arn: ARN.to_owned(), created_at, key_form }
}

fn shard(index: usize) -> ShardId {
    ShardId::parse(&format!("shardId-{index:012}")).unwrap()
}

fn key(stream: Option<&StreamKey>, index: usize) -> LeaseKey {
    stream.map_or_else(|| LeaseKey::of_shard(&shard(index)), |stream| LeaseKey::of_stream(stream, &shard(index)))
}

async fn create(store: &Memory, stream: Option<&StreamKey>, shards: usize) {
    for index in 0..shards {
        let key = key(stream, index);
        let lease = NewLease { key, checkpoint: Checkpoint::TrimHorizon, start_at: None, parents: vec![], range: None };
        assert!(store.create(&lease).await.unwrap());
    }
}

/// What a worker does when it finds that the stream was created again, and how many leases it removed.
async fn start_anew(store: &Memory, me: &str, old: &StreamIdentity, new: &StreamIdentity) -> Option<usize> {
    let mut removed = None;
    loop {
        match claim_stream(store, new).await.unwrap() {
            StreamClaim::Same => return removed,
            StreamClaim::Earlier(found) => {
                assert_eq!(found, *old);
                removed = retire_leases(store, &TokioClock::default(), me, &found, Some(new)).await.unwrap();
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_was_created_again_begins_with_no_lease_whoever_holds_the_old_ones() {
    let store = Memory::new();
    let (old, new) = (stream(1_000, KeyForm::Shard), stream(2_000, KeyForm::Shard));
    assert_eq!(claim_stream(&store, &old).await.unwrap(), StreamClaim::Same);
    create(&store, None, 40).await;
    let worker = WorkerId::parse("alive").unwrap();
    let held = store.row(&key(None, 0)).unwrap();
    let held = store.write(&held, &Change::Take { worker }).await.unwrap();
    // A holder goes on renewing, between the listing and the removal.
    let renewals = Arc::new(AtomicUsize::new(0));
    let (table, counted) = (store.clone(), Arc::clone(&renewals));
    let busy = store.with_faults(move |call| {
        if let Call::Delete(known) = call
            && known.key == held.key
            && counted.fetch_add(1, Ordering::SeqCst) < 3
        {
            let (table, known) = (table.clone(), (*known).clone());
            tokio::spawn(async move { table.write(&known, &Change::Renew).await });
            return Fault::Delay(Duration::from_millis(50));
        }
        Fault::None
    });
    assert_eq!(start_anew(&busy, "one", &old, &new).await, Some(40));
    assert!(renewals.load(Ordering::SeqCst) > 3, "it had to be tried again");
    assert_eq!(store.rows(), []);
    assert_eq!(claim_stream(&store, &new).await.unwrap(), StreamClaim::Same);
    assert_eq!(claim_stream(&store, &old).await.unwrap(), StreamClaim::Later(new), "who comes late is told so");
}

#[tokio::test(start_paused = true)]
async fn of_many_workers_that_start_anew_at_once_none_removes_a_new_lease() {
    for slow_by in [0, 50, 3_000, 9_000, 15_000, 25_000, 60_000, 120_000] {
        let store = Memory::new();
        let (old, new) = (stream(1_000, KeyForm::Shard), stream(2_000, KeyForm::Shard));
        claim_stream(&store, &old).await.unwrap();
        create(&store, None, 10).await;
        // The first worker has listed the old leases, and is suspended.
        let first = {
            let (old, new) = (old.clone(), new.clone());
            let pausing = Pausing { store: store.clone(), pause: Duration::from_millis(slow_by) };
            let clock = TokioClock::default();
            tokio::spawn(async move { retire_leases(&pausing, &clock, "slow", &old, Some(&new)).await.unwrap() })
        };
        tokio::time::sleep(Duration::from_millis(10)).await;
        // The second finishes, and its coordinator creates the new leases at once: rows like the old ones.
        start_anew(&store, "second", &old, &new).await;
        create(&store, None, 10).await;
        let created = store.rows();
        let _removed = first.await.unwrap();
        assert_eq!(store.rows(), created, "slow by {slow_by} ms: a new lease was removed");
        assert_eq!(claim_stream(&store, &new).await.unwrap(), StreamClaim::Same);
    }
}

/// A store whose user is suspended for a while after it has listed the leases.
struct Pausing {
    store: Memory,
    pause: Duration,
}

#[async_trait]
impl Store for Pausing {
    fn lease_table(&self) -> &str {
        self.store.lease_table()
    }

    async fn ensure(&self) -> Result<Ensured, Error> {
        self.store.ensure().await
    }

    async fn list(&self) -> Result<Listing, Error> {
        let listing = self.store.list().await;
        tokio::time::sleep(self.pause).await;
        listing
    }

    async fn get(&self, key: &LeaseKey) -> Result<Option<Lease>, Error> {
        self.store.get(key).await
    }

    async fn create(&self, lease: &NewLease) -> Result<bool, Error> {
        self.store.create(lease).await
    }

    async fn write(&self, known: &Lease, change: &Change) -> Result<Lease, Error> {
        self.store.write(known, change).await
    }

    async fn delete(&self, known: &Lease) -> Result<(), Error> {
        self.store.delete(known).await
    }
}

#[async_trait]
impl Sidecar for Pausing {
    fn sidecar_table(&self) -> &str {
        self.store.sidecar_table()
    }

    async fn document(&self, key: &str) -> Result<Option<Document>, Error> {
        self.store.document(key).await
    }

    async fn put_document(&self, key: &str, body: &Value, version: Option<u64>) -> Result<bool, Error> {
        self.store.put_document(key, body, version).await
    }

    async fn documents(&self, prefix: &str) -> Result<BTreeMap<String, Document>, Error> {
        self.store.documents(prefix).await
    }

    async fn delete_document(&self, key: &str, version: u64) -> Result<bool, Error> {
        self.store.delete_document(key, version).await
    }
}

#[tokio::test(start_paused = true)]
async fn in_a_table_of_many_streams_only_the_leases_of_the_one_that_is_gone_go() {
    let store = Memory::new();
    let (old, new) = (stream(1_000_000, KeyForm::MultiStream), stream(2_000_000, KeyForm::MultiStream));
    let elsewhere =
        StreamIdentity { arn: ARN.replace("us-east-1", "eu-west-1"), ..stream(3_000_000, KeyForm::MultiStream) };
    for claimed in [&old, &elsewhere] {
        assert_eq!(claim_stream(&store, claimed).await.unwrap(), StreamClaim::Same);
        create(&store, claimed.stream_key().as_ref(), 3).await;
    }
    create(&store, StreamKey::parse("123456789012:removed:5").as_ref(), 2).await;

    let clock = TokioClock::default();
    assert_eq!(retire_leases(&store, &clock, "one", &old, None).await.unwrap(), Some(3), "the stream is gone");
    assert_eq!(retire_leases(&store, &clock, "two", &old, None).await.unwrap(), None, "and that was done");
    assert_eq!(store.rows().len(), 5, "others stay: {:?}", store.rows());
    assert_eq!(start_anew(&store, "one", &old, &new).await, Some(0));
    assert_eq!(claim_stream(&store, &elsewhere).await.unwrap(), StreamClaim::Same);

    let single = StreamIdentity { key_form: KeyForm::Shard, ..new };
    assert_eq!(claim_stream(&store, &single).await.unwrap(), StreamClaim::OtherForm(KeyForm::MultiStream));
}

#[tokio::test(start_paused = true)]
async fn a_table_that_a_kcl_made_says_its_form_by_its_rows() {
    let many = Memory::new();
    create(&many, StreamKey::parse("123456789012:orders:5").as_ref(), 2).await;
    let form = claim_stream(&many, &stream(5_000, KeyForm::Shard)).await.unwrap();
    assert_eq!(form, StreamClaim::OtherForm(KeyForm::MultiStream));
    assert_eq!(claim_stream(&many, &stream(5_000, KeyForm::MultiStream)).await.unwrap(), StreamClaim::Same);
    let one = Memory::new();
    create(&one, None, 2).await;
    let form = claim_stream(&one, &stream(5_000, KeyForm::MultiStream)).await.unwrap();
    assert_eq!(form, StreamClaim::OtherForm(KeyForm::Shard));
    assert_eq!(claim_stream(&one, &stream(5_000, KeyForm::Shard)).await.unwrap(), StreamClaim::Same);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_dies_while_it_removes_leases_is_followed_by_another() {
    let store = Memory::new();
    let (old, new) = (stream(1_000, KeyForm::Shard), stream(2_000, KeyForm::Shard));
    claim_stream(&store, &old).await.unwrap();
    create(&store, None, 5).await;
    let stuck = store.with_faults(|call| match call {
        Call::Delete(lease) if lease.key != key(None, 0) => Fault::Delay(Duration::from_secs(3_600)),
        _ => Fault::None,
    });
    let dying = {
        let (old, new) = (old.clone(), new.clone());
        tokio::spawn(async move { retire_leases(&stuck, &TokioClock::default(), "dying", &old, Some(&new)).await })
    };
    tokio::time::sleep(Duration::from_secs(1)).await;
    dying.abort();
    assert_eq!(store.rows().len(), 4);
    assert_eq!(start_anew(&store, "next", &old, &new).await, Some(4));
    assert_eq!(store.rows(), []);
}
