use proptest::prelude::*;
use shardmill_record::{Position, SequenceNumber};

use super::*;
use crate::{LeaseKey, NewLease};

fn worker() -> impl Strategy<Value = WorkerId> {
    (0..3u8).prop_map(|n| WorkerId::parse(&format!("w{n}")).unwrap())
}

fn position() -> impl Strategy<Value = Checkpoint> {
    // Numbers of different lengths, so that an order by text would show.
    (0..2000u64, 0..3u64).prop_map(|(number, sub)| {
        Checkpoint::Position(Position::new(SequenceNumber::parse(&number.to_string()).unwrap(), sub))
    })
}

fn sentinel() -> impl Strategy<Value = Checkpoint> {
    prop_oneof![Just(Checkpoint::Latest), Just(Checkpoint::TrimHorizon), Just(Checkpoint::AtTimestamp)]
}

fn children() -> impl Strategy<Value = Vec<ShardId>> {
    proptest::collection::vec((0..4u8).prop_map(|n| ShardId::parse(&format!("shard-{n}")).unwrap()), 0..3)
}

fn restart() -> impl Strategy<Value = Restart> {
    prop_oneof![Just(Restart::TrimHorizon), (0..3u64).prop_map(Restart::At), (0..3u64).prop_map(Restart::Latest)]
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        3 => worker().prop_map(|worker| Change::Take { worker }),
        2 => worker().prop_map(|to| Change::HandOff { to }),
        2 => Just(Change::Renew),
        1 => (0..9u64).prop_map(|throughput| Change::Measure { throughput }),
        4 => prop_oneof![position(), sentinel(), Just(Checkpoint::ShardEnd)].prop_map(|to| Change::Checkpoint { to }),
        1 => Just(Change::Release),
        1 => Just(Change::Evict),
        1 => children().prop_map(|children| Change::Complete { children }),
        1 => (0..3u64).prop_map(|at| Change::SetStart { at }),
        1 => children().prop_map(|children| Change::AddChildren { children }),
        1 => restart().prop_map(|to| Change::Rewind { to }),
    ]
}

fn fresh(checkpoint: Checkpoint) -> Lease {
    let key = LeaseKey::parse("shardId-000000000000").unwrap();
    NewLease { key, checkpoint, start_at: None, parents: Vec::new(), range: None }.into_lease()
}

proptest! {
    #[test]
    fn every_sequence_of_changes_keeps_the_rules(start in sentinel(), changes in proptest::collection::vec(change(), 0..40)) {
        let mut lease = fresh(start);
        for change in changes {
            let Ok(after) = apply(&lease, &change) else { continue };
            let is_take = matches!(change, Change::Take { .. });
            let is_hand_off = matches!(change, Change::HandOff { .. });
            prop_assert_eq!(after.counter, lease.counter + u64::from(!is_hand_off));
            if is_hand_off {
                prop_assert_eq!(after.writer(), lease.writer(), "the old holder goes on");
            }
            let is_rewind = matches!(change, Change::Rewind { .. });
            prop_assert_eq!(after.epoch.0, lease.epoch.0 + u64::from(is_take || is_rewind));
            if is_rewind {
                prop_assert!(after.checkpoint.is_start(), "no record counts as done");
                prop_assert_eq!(after.writer(), lease.writer());
                prop_assert!(!lease.is_complete());
            } else {
                prop_assert!(after.checkpoint >= lease.checkpoint, "{:?} went back", change);
                prop_assert!(lease.start_at.is_none() || after.start_at == lease.start_at);
            }
            prop_assert!(lease.children.iter().all(|child| after.children.contains(child)));
            if lease.is_complete() {
                prop_assert!(!is_take && after.is_complete());
            }
            if after.is_complete() {
                prop_assert!(after.writer().is_none());
            }
            if lease.writer().is_none() {
                prop_assert!(is_take, "{:?} without a holder", change);
            }
            prop_assert_eq!(&after.key, &lease.key);
            lease = after;
        }
    }

    #[test]
    fn a_write_succeeds_only_on_the_row_it_was_computed_from(one in worker(), other in worker(), second in change()) {
        let held = apply(&fresh(Checkpoint::TrimHorizon), &Change::Take { worker: one.clone() }).unwrap();
        let taken = apply(&held, &Change::Take { worker: other.clone() }).unwrap();
        // A hand-off asks whoever holds the lease, at whatever counter.
        prop_assert_eq!(holds(second.guard(), &held, &taken), second.guard() == Guard::OwnersAlone && one == other);
        prop_assert!(holds(second.guard(), &held, &held));
    }
}

#[test]
fn a_hand_off_leaves_the_old_holder_the_right_to_write_and_release_passes_it_on() {
    let [old, new] = ["old", "new"].map(|id| WorkerId::parse(id).unwrap());
    let held = apply(&fresh(Checkpoint::TrimHorizon), &Change::Take { worker: old.clone() }).unwrap();
    let handing = apply(&held, &Change::HandOff { to: new.clone() }).unwrap();
    assert_eq!(apply(&handing, &Change::HandOff { to: new.clone() }), Err(Refused::OwnLease));
    assert_eq!(apply(&handing, &Change::HandOff { to: old.clone() }), Ok(held.clone()), "taken back");
    assert_eq!(apply(&held, &Change::HandOff { to: old.clone() }), Err(Refused::OwnLease));
    let third = WorkerId::parse("third").unwrap();
    let turned = apply(&handing, &Change::HandOff { to: third.clone() }).unwrap();
    assert_eq!((turned.writer(), turned.owner.as_ref()), (Some(&old), Some(&third)));
    assert!(holds(Guard::Writer, &held, &handing), "the counter is untouched, the old holder still writes");
    assert!(!holds(Guard::Owners, &held, &handing));
    assert_eq!(handing.writer(), Some(&old));
    let rewind = Change::Rewind { to: Restart::TrimHorizon };
    assert!(!holds(rewind.guard(), &held, &handing), "nor is it rewound unseen: the new holder waits for this epoch");
    assert_eq!(apply(&handing, &rewind), Err(Refused::OnItsWay { to: new.clone() }));
    let passed = apply(&handing, &Change::Release).unwrap();
    assert_eq!((passed.owner, passed.checkpoint_owner), (Some(new), None));
}

#[test]
fn a_rewind_writes_what_a_kcl_reads_and_work_goes_on_from_there() {
    let worker = WorkerId::parse("w").unwrap();
    let held = apply(&fresh(Checkpoint::Latest), &Change::Take { worker }).unwrap();
    let started = apply(&held, &Change::SetStart { at: 5 }).unwrap();
    let to = Checkpoint::parse("100", 3).unwrap();
    let done = apply(&started, &Change::Checkpoint { to }).unwrap();
    for (to, checkpoint, start_at) in [
        (Restart::TrimHorizon, "TRIM_HORIZON", None),
        (Restart::At(7), "AT_TIMESTAMP", Some(7)),
        (Restart::Latest(9), "LATEST", Some(9)),
    ] {
        let rewound = apply(&done, &Change::Rewind { to }).unwrap();
        assert_eq!((rewound.checkpoint.as_str(), rewound.start_at), (checkpoint, start_at));
        assert_eq!(rewound.checkpoint.sub_sequence_number(), 0);
        assert_eq!(rewound.epoch, done.epoch.next());
        let to = Checkpoint::parse("7", 0).unwrap();
        let again = apply(&rewound, &Change::Checkpoint { to: to.clone() }).unwrap();
        assert_eq!(again.checkpoint, to, "before where it was");
    }
    assert_eq!(apply(&fresh(Checkpoint::Latest), &Change::Rewind { to: Restart::At(1) }), Err(Refused::NotHeld));
}

#[test]
fn owner_switches_count_other_workers_until_a_checkpoint() {
    let take = |lease: &Lease, id: &str| apply(lease, &Change::Take { worker: WorkerId::parse(id).unwrap() }).unwrap();
    let mut lease = take(&fresh(Checkpoint::TrimHorizon), "a");
    lease = take(&take(&lease, "a"), "b");
    assert_eq!(lease.owner_switches_since_checkpoint, 1);
    let to = Checkpoint::parse("7", 0).unwrap();
    lease = apply(&lease, &Change::Checkpoint { to }).unwrap();
    assert_eq!(lease.owner_switches_since_checkpoint, 0);
}
