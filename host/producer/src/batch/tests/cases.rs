//! What ends a batch that cannot be sent.

use std::time::Duration;

use tokio::time::Instant;

use crate::answer::Kind;
use crate::batch::sending::{End, Sending};
use crate::mapping::{Found, Listed};
use crate::plan::tests::model::Service;
use crate::plan::tests::{failure, record};
use crate::plan::{Next, Rules};
use crate::{BatchOptions, InvalidRecord, Permit, Stopped};

#[test]
fn a_record_that_breaks_a_rule_ends_a_batch_before_it_begins() {
    let rules = Rules::of_batches(&BatchOptions { record_max_bytes: 10 << 20, ..BatchOptions::default() }.options());
    let (permit, now) = (Permit::always(), Instant::now());
    let known = |record_max_bytes| Found { map: Service::new(1).map(), record_max_bytes };
    let refused = |sending: Sending| match sending.finish() {
        Err((End::Refused { index, reason }, _)) => (index, reason),
        other => panic!("{other:?}"),
    };
    let large = vec![record("k", 1), record("k", 2 << 20), record("", 1)];
    let too_large = InvalidRecord::TooLarge { bytes: (2 << 20) + 1, allowed: 1 << 20 };
    // What the stream takes is known, or is not, and then what any stream takes counts.
    let known_before = Some((now, known(Some(1 << 20))));
    let sending = Sending::new(large.clone(), rules, &rules.rates(), known_before, now);
    assert!(sending.is_over());
    assert_eq!(refused(sending), (1, too_large));
    let sending = Sending::new(large.clone(), rules, &rules.rates(), None, now);
    assert!(sending.is_over());
    assert_eq!(refused(sending), (2, InvalidRecord::PartitionKey(0)));
    // It becomes known before anything is sent.
    let mut sending = Sending::new(large[..2].to_vec(), rules, &rules.rates(), None, now);
    assert!(!sending.is_over());
    let listed = Listed { began: now, result: Ok(known(Some(1 << 20))), failing_for: Duration::ZERO };
    assert!(sending.listed(listed, &permit, now).is_none());
    assert!(matches!(sending.next(&permit, now), Next::Wait(None)) && sending.is_over());
    assert_eq!(refused(sending), (1, too_large));
}

#[test]
fn shards_that_nobody_may_list_end_a_batch_that_has_no_map_and_no_other() {
    let rules = Rules::of_batches(&BatchOptions::default().options());
    let (permit, now) = (Permit::always(), Instant::now());
    let denied = || failure(Kind::Operator("grant it"), "AccessDeniedException");
    let listed = || Listed { began: now, result: Err(denied()), failing_for: Duration::ZERO };
    let mut sending = Sending::new(vec![record("k", 1)], rules, &rules.rates(), None, now);
    assert!(sending.listed(listed(), &permit, now).is_none());
    let Err((End::Rejected { operation, refusal }, sent)) = sending.finish() else { panic!("it is rejected") };
    assert_eq!((operation, refusal.advice, sent), ("ListShards", "grant it", vec![None]));
    let known = Found { map: Service::new(1).map(), record_max_bytes: None };
    let mut sending = Sending::new(vec![record("k", 1)], rules, &rules.rates(), Some((now, known)), now);
    assert!(sending.listed(listed(), &permit, now).is_none());
    assert!(!sending.is_over() && matches!(sending.next(&permit, now), Next::Send(_)));
    // One that may pass is tried again, as long as the permit holds.
    let lost = || Listed { result: Err(failure(Kind::Unknown, "timeout")), ..listed() };
    let mut sending = Sending::new(vec![record("k", 1)], rules, &rules.rates(), None, now);
    assert!(sending.listed(lost(), &permit, now).is_some() && !sending.is_over());
    assert!(sending.listed(lost(), &Permit::new(|| Err(Stopped)), now).is_some() && sending.is_over());
}
