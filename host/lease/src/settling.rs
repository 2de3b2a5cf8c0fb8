//! Whether a fleet stands still, so that it is worth moving leases for the sake of balance.
//!
//! In a deploy workers come and go one after another, and the next change is a moment away: what is moved to a newcomer
//! now would have to move again to those that come after it. What leavers leave is enough to fill the newcomers.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::balance::Member;
use crate::{Moment, WorkerId};

/// Remembers who was there, and when that changed.
#[derive(Debug, Default)]
pub(crate) struct Settling {
    /// Who is there, and whether it leaves.
    members: Option<BTreeMap<WorkerId, bool>>,
    joined: Option<Moment>,
    left: Option<Moment>,
}

// === impl Settling ===

impl Settling {
    /// Takes in who is there at `now`. Returns whether the fleet stands still: nobody has come or gone for `shortly`; and
    /// where both has happened within `deploy`, or members run different things, for `deploy`.
    pub(crate) fn observe(&mut self, now: Moment, members: &[Member], shortly: Duration, deploy: Duration) -> bool {
        let is_there: BTreeMap<WorkerId, bool> =
            members.iter().map(|member| (member.worker.clone(), member.is_leaving)).collect();
        let before = self.members.replace(is_there.clone());
        let before = before.as_ref();
        let has_joined = is_there.keys().any(|worker| before.is_none_or(|before| !before.contains_key(worker)));
        let has_left = before.is_some_and(|before| {
            before.iter().any(|(worker, was_leaving)| match is_there.get(worker) {
                // Its end was told before.
                None => !was_leaving,
                Some(is_leaving) => *is_leaving && !was_leaving,
            })
        });
        if has_joined {
            self.joined = Some(now);
        }
        if has_left {
            self.left = Some(now);
        }
        let within = |at: Option<Moment>, time: Duration| at.is_some_and(|at| now.saturating_since(at) < time);
        let changed = self.joined.max(self.left);
        let is_mixed = members.windows(2).any(|pair| pair[0].generation != pair[1].generation);
        let is_deploy = is_mixed || (within(self.joined, deploy) && within(self.left, deploy));
        !within(changed, if is_deploy { deploy.max(shortly) } else { shortly })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: u64, generation: u64, is_leaving: bool) -> Member {
        let worker = WorkerId::parse(&format!("w{id}")).unwrap();
        Member { worker, is_leaving, joined: id, generation, max: None }
    }

    /// At which of these seconds the fleet stands still.
    fn settled(fleets: &[(u64, Vec<Member>)]) -> Vec<u64> {
        let mut settling = Settling::default();
        let (shortly, deploy) = (Duration::from_secs(2), Duration::from_secs(30));
        let is_settled = |(second, members): &&(u64, Vec<Member>)| {
            settling.observe(Moment::since_origin(Duration::from_secs(*second)), members, shortly, deploy)
        };
        fleets.iter().filter(is_settled).map(|(second, _)| *second).collect()
    }

    #[test]
    fn a_fleet_that_only_grows_or_only_shrinks_settles_soon() {
        let one = || vec![member(0, 0, false)];
        let two = || vec![member(0, 0, false), member(1, 0, false)];
        let grows = [(0, one()), (1, one()), (2, one()), (10, two()), (11, two()), (12, two())];
        assert_eq!(settled(&grows), [2, 12]);
        let leaves = || vec![member(0, 0, false), member(1, 0, true)];
        let shrinks = [(0, two()), (40, leaves()), (41, leaves()), (42, leaves()), (43, one()), (44, one())];
        assert_eq!(settled(&shrinks), [42, 43, 44], "that it has gone was known");
    }

    #[test]
    fn while_workers_come_and_go_and_while_they_differ_it_does_not_settle_for_longer() {
        let replaced = |second| if second < 10 { vec![member(0, 0, false)] } else { vec![member(1, 0, false)] };
        let fleets: Vec<_> = (0..60).map(|second| (second, replaced(second))).collect();
        let settled_at = settled(&fleets);
        assert!(
            settled_at.iter().all(|second| *second < 10 || *second >= 40) && settled_at.contains(&40),
            "{settled_at:?}"
        );
        let mixed: Vec<_> = (0..60).map(|second| (second, vec![member(0, 0, false), member(1, 1, false)])).collect();
        assert_eq!(settled(&mixed)[0], 30);
    }
}
