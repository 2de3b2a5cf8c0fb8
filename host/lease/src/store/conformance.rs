//! What every store must do, as checks that panic. Run against each store by the tests.

use shardmill_record::{Checkpoint, HashKeyRange, ShardId};

use super::{Document, Error, KeyForm, Store, StreamClaim, StreamIdentity, claim_stream};
use crate::change::{self, Change, Restart};
use crate::{Lease, LeaseEpoch, LeaseKey, NewLease, WorkerId};

/// Runs all checks on an empty store.
pub async fn check_all<S: Store>(store: &S) {
    check_ensured_twice(store).await;
    check_one_creator_wins(store).await;
    check_every_change_reads_back(store).await;
    check_what_is_not_as_known_is_not_written(store).await;
    check_one_of_many_takers_wins(store).await;
    check_deletion(store).await;
    check_documents(store).await;
    check_stream_identity(store).await;
}

fn new_lease(id: &str) -> NewLease {
    NewLease {
        key: LeaseKey::parse(id).expect("a key"),
        checkpoint: Checkpoint::Latest,
        start_at: None,
        parents: vec![shard("shardId-000000000090"), shard("shardId-000000000089")],
        range: Some(HashKeyRange::ALL),
    }
}

fn shard(id: &str) -> ShardId {
    ShardId::parse(id).expect("a shard id")
}

fn worker(id: &str) -> WorkerId {
    WorkerId::parse(id).expect("a worker id")
}

async fn created(store: &dyn Store, id: &str) -> Lease {
    let new = new_lease(id);
    assert!(store.create(&new).await.expect("created"));
    store.get(&new.key).await.expect("read").expect("there")
}

async fn held(store: &dyn Store, id: &str) -> Lease {
    let lease = created(store, id).await;
    store.write(&lease, &Change::Take { worker: worker("a") }).await.expect("taken")
}

async fn check_ensured_twice(store: &dyn Store) {
    store.ensure().await.expect("tables are created or found");
    store.ensure().await.expect("tables are found");
}

async fn check_one_creator_wins(store: &dyn Store) {
    let new = new_lease("create-0");
    let creations = (0..8).map(|_| store.create(&new));
    let won = futures::future::join_all(creations).await.into_iter().filter(|created| matches!(created, Ok(true)));
    assert_eq!(won.count(), 1);
    let lease = store.get(&new.key).await.expect("read").expect("there");
    assert_eq!(lease, new.clone().into_lease());
    assert_eq!(lease.parents, [shard("shardId-000000000089"), shard("shardId-000000000090")]);
    assert_eq!((lease.counter, lease.epoch), (0, LeaseEpoch(0)));
    assert_eq!(store.get(&LeaseKey::parse("create-1").expect("a key")).await.expect("read"), None);
}

async fn check_every_change_reads_back(store: &dyn Store) {
    let mut lease = created(store, "change-0").await;
    let number = "49590338271490256608559692538361571095921575989136588898";
    let checkpoint = Checkpoint::parse(number, 7).expect("a position");
    let changes = [
        Change::Take { worker: worker("a") },
        Change::SetStart { at: 1_700_000_000_123 },
        Change::Renew,
        Change::Measure { throughput: 1_234_567 },
        Change::HandOff { to: worker("b") },
        Change::Renew,
        Change::Evict,
        Change::Take { worker: worker("b") },
        Change::Take { worker: worker("c") },
        Change::Checkpoint { to: checkpoint.clone() },
        Change::Rewind { to: Restart::At(1_700_000_000_456) },
        Change::Checkpoint { to: checkpoint },
        Change::Rewind { to: Restart::Latest(1_700_000_000_789) },
        Change::Rewind { to: Restart::TrimHorizon },
        Change::AddChildren { children: vec![shard("shardId-000000000091")] },
        Change::Release,
        Change::Take { worker: worker("a") },
        Change::Complete { children: vec![shard("shardId-000000000091"), shard("shardId-000000000092")] },
    ];
    for change in changes {
        let predicted = change::apply(&lease, &change).expect("applies");
        let written = store.write(&lease, &change).await.expect("written");
        assert_eq!(written, predicted, "the answer to {change:?}");
        lease = store.get(&lease.key).await.expect("read").expect("there");
        assert_eq!(lease, predicted, "the row after {change:?}");
    }
    assert_eq!((lease.counter, lease.epoch, lease.owner.clone()), (17, LeaseEpoch(7), None));
    assert!(lease.is_complete());
    let listed = store.list().await.expect("listed");
    assert_eq!(listed.leases.iter().find(|listed| listed.key == lease.key), Some(&lease));
    assert!(listed.invalid.is_empty());
}

async fn check_what_is_not_as_known_is_not_written(store: &dyn Store) {
    let old = held(store, "guard-0").await;
    let current = store.write(&old, &Change::Renew).await.expect("renewed");
    let position = Checkpoint::parse("5", 0).expect("a position");
    let another = Lease { owner: Some(worker("b")), ..current.clone() };
    let changes = [
        Change::Take { worker: worker("b") },
        Change::Renew,
        Change::Checkpoint { to: position.clone() },
        Change::Release,
        Change::Evict,
        Change::Complete { children: Vec::new() },
        Change::SetStart { at: 1 },
        Change::Rewind { to: Restart::TrimHorizon },
    ];
    for change in changes {
        for known in [&old, &another] {
            match store.write(known, &change).await {
                Err(Error::Conflict { key, current: told }) => {
                    assert_eq!(key, current.key);
                    assert!(told.is_none_or(|told| *told == current), "the conflict tells the row as it is");
                }
                result => panic!("{change:?} on a row that moved: {result:?}"),
            }
        }
    }
    let gone = Lease { key: LeaseKey::parse("guard-gone").expect("a key"), ..current.clone() };
    assert!(matches!(store.write(&gone, &Change::Renew).await, Err(Error::Conflict { current: None, .. })));
    assert_eq!(store.get(&gone.key).await.expect("read"), None, "a write creates no row");
    let ahead = store.write(&current, &Change::Checkpoint { to: position }).await.expect("checkpointed");
    let back = Change::Checkpoint { to: Checkpoint::parse("4", 0).expect("a position") };
    assert!(matches!(store.write(&ahead, &back).await, Err(Error::Refused { .. })));
    assert_eq!(store.get(&ahead.key).await.expect("read"), Some(ahead));
}

async fn check_one_of_many_takers_wins(store: &dyn Store) {
    let lease = created(store, "race-0").await;
    let workers: Vec<WorkerId> = (0..16).map(|n| worker(&format!("w{n}"))).collect();
    let changes: Vec<Change> = workers.iter().map(|worker| Change::Take { worker: worker.clone() }).collect();
    let results = futures::future::join_all(changes.iter().map(|change| store.write(&lease, change))).await;
    let winners: Vec<_> = results.into_iter().filter_map(Result::ok).collect();
    assert_eq!(winners.len(), 1);
    assert_eq!(store.get(&lease.key).await.expect("read").as_ref(), winners.first());
}

async fn check_deletion(store: &dyn Store) {
    let lease = held(store, "delete-0").await;
    let moved = store.write(&lease, &Change::Renew).await.expect("renewed");
    assert!(matches!(store.delete(&lease).await, Err(Error::Conflict { .. })));
    store.delete(&moved).await.expect("deleted");
    assert_eq!(store.get(&lease.key).await.expect("read"), None);
    store.delete(&moved).await.expect("what is gone is deleted");
}

async fn check_documents(store: &dyn Store) {
    let body = serde_json::json!({"text": "ü\"", "list": [1, null]});
    assert_eq!(store.document("d").await.expect("read"), None);
    assert!(!store.put_document("d", &body, Some(1)).await.expect("answered"));
    assert!(store.put_document("d", &body, None).await.expect("written"));
    assert!(!store.put_document("d", &body, None).await.expect("answered"));
    assert_eq!(store.document("d").await.expect("read"), Some(Document { version: 1, body }));
    let next = serde_json::json!(2);
    assert!(store.put_document("d", &next, Some(1)).await.expect("written"));
    assert!(!store.put_document("d", &next, Some(1)).await.expect("answered"));
    let second = Document { version: 2, body: next };
    assert_eq!(store.document("d").await.expect("read"), Some(second.clone()));
    assert!(store.put_document("d/e", &serde_json::json!(3), None).await.expect("written"));
    let third = Document { version: 1, body: serde_json::json!(3) };
    let found = |prefix: &'static str| async move { store.documents(prefix).await.expect("read") };
    assert_eq!(found("d").await, [("d".to_owned(), second), ("d/e".to_owned(), third.clone())].into());
    assert_eq!(found("d/").await, [("d/e".to_owned(), third)].into());
    assert!(!store.delete_document("d", 1).await.expect("answered"));
    assert!(store.delete_document("d", 2).await.expect("deleted"));
    assert!(store.delete_document("d", 2).await.expect("what is gone is deleted"));
    assert_eq!(store.document("d").await.expect("read"), None);
}

async fn check_stream_identity(store: &dyn Store) {
    let arn = "arn:aws:kinesis:us-east-1:123456789012:stream/orders".to_owned();
    let identity = StreamIdentity { arn, created_at: 1_700_000_000_000, key_form: KeyForm::Shard };
    let claim = |identity: StreamIdentity| async move { claim_stream(store, &identity).await.expect("claimed") };
    assert_eq!(claim(identity.clone()).await, StreamClaim::Same);
    assert_eq!(claim(identity.clone()).await, StreamClaim::Same);
    let later = StreamIdentity { created_at: 1_800_000_000_000, ..identity.clone() };
    assert_eq!(claim(later).await, StreamClaim::Earlier(identity.clone()));
    let earlier = StreamIdentity { created_at: 1_600_000_000_000, ..identity.clone() };
    assert_eq!(claim(earlier).await, StreamClaim::Later(identity.clone()));
    for arn in [
        "arn:aws:kinesis:eu-west-1:123456789012:stream/orders",
        "arn:aws:kinesis:us-east-1:210987654321:stream/orders",
        "arn:aws:kinesis:us-east-1:123456789012:stream/returns",
    ] {
        let other = StreamIdentity { arn: arn.to_owned(), ..identity.clone() };
        assert_eq!(claim(other).await, StreamClaim::OtherStream(identity.clone()), "{arn}");
        let of_many = StreamIdentity { arn: arn.to_owned(), key_form: KeyForm::MultiStream, ..identity.clone() };
        assert_eq!(claim(of_many).await, StreamClaim::OtherForm(KeyForm::Shard), "{arn}");
    }
    assert_eq!(store.documents("stream/").await.expect("read").len(), 1, "what is refused leaves nothing behind");
}
