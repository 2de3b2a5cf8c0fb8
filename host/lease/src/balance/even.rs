use super::{Assigned, Balance, View, Why};

/// Everybody the same number of leases: no two differ by more than one, and no lease moves that need not.
///
/// A move takes from who has most and gives to who has least, and only where they differ by two or more: so it never
/// turns the difference round, and an even table stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Even {
    /// The most leases that move from one living worker to another in one round, so that a fleet is not busy with
    /// handing over alone.
    pub moves: usize,
}

// === impl Even ===

impl Default for Even {
    fn default() -> Self {
        Self { moves: usize::MAX }
    }
}

impl Balance for Even {
    fn assign(&self, view: &View<'_>) -> Vec<Assigned> {
        let mut assigned = Vec::new();
        let mut loads = view.settle(&mut assigned);
        if !view.is_settled {
            return assigned;
        }
        let mut movable = view.movable();
        for _ in 0..self.moves {
            // Who has most may have nothing that can move: all of it is on its way.
            let giver =
                loads.busiest_first().find_map(|place| Some((place, movable.get_mut(loads.worker(place))?.pop()?)));
            let Some((from, seat)) = giver else { break };
            let Some(to) = loads.least(loads.count(from).saturating_sub(1)) else { break };
            loads.take(from);
            loads.give(to);
            assigned.push(Assigned { key: seat.key.clone(), to: loads.worker(to).clone(), why: Why::Balance });
        }
        assigned
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashSet};

    use proptest::prelude::*;

    use super::super::{Member, Place, Seat};
    use super::*;
    use crate::{LeaseKey, WorkerId};

    fn worker(id: usize) -> WorkerId {
        WorkerId::parse(&format!("w{id:03}")).unwrap()
    }

    fn member(id: usize) -> Member {
        Member { worker: worker(id), is_leaving: false, joined: id as u64, generation: 0, max: None }
    }

    fn seat(index: usize, place: Place) -> Seat {
        Seat { key: LeaseKey::parse(&format!("shardId-{index:012}")).unwrap(), place, avoid: None, throughput: 0.0 }
    }

    /// Each worker holds so many.
    fn holding(counts: &[usize]) -> Vec<Seat> {
        let owners = counts.iter().enumerate().flat_map(|(id, count)| std::iter::repeat_n(id, *count));
        owners.enumerate().map(|(index, id)| seat(index, Place::With(worker(id)))).collect()
    }

    fn carry_out(seats: &mut [Seat], assigned: &[Assigned]) {
        for Assigned { key, to, .. } in assigned {
            let seat = seats.iter_mut().find(|seat| seat.key == *key).expect("a lease of the table");
            seat.place = Place::With(to.clone());
        }
    }

    fn counts(members: &[Member], seats: &[Seat]) -> BTreeMap<WorkerId, usize> {
        let mut counts: BTreeMap<_, _> = members.iter().map(|member| (member.worker.clone(), 0)).collect();
        for seat in seats {
            if let Place::With(worker) | Place::OnTheWay(worker) = &seat.place {
                *counts.entry(worker.clone()).or_default() += 1;
            }
        }
        counts
    }

    fn assign(members: &[Member], seats: &[Seat]) -> Vec<Assigned> {
        Even::default().assign(&View { members, seats, is_settled: true, salt: 7 })
    }

    fn any_member(id: usize) -> impl Strategy<Value = Member> {
        let parts = (prop::bool::weighted(0.2), 0..4u64, prop::option::weighted(0.2, 0..12usize));
        parts.prop_map(move |(is_leaving, joined, max)| Member {
            worker: worker(id),
            is_leaving,
            joined,
            generation: joined / 2,
            max,
        })
    }

    fn any_place(workers: usize) -> impl Strategy<Value = Place> {
        prop_oneof![
            2 => Just(Place::Free(Why::Unowned)),
            1 => Just(Place::Free(Why::Expired)),
            6 => (0..workers).prop_map(|id| Place::With(worker(id))),
            1 => (0..workers).prop_map(|id| Place::OnTheWay(worker(id))),
            1 => Just(Place::Out),
        ]
    }

    fn any_table() -> impl Strategy<Value = (Vec<Member>, Vec<Seat>)> {
        (1..8usize).prop_flat_map(|workers| {
            let members = (0..workers).map(any_member).collect::<Vec<_>>();
            let places = prop::collection::vec(any_place(workers), 0..60);
            let seats =
                places.prop_map(|places| places.into_iter().enumerate().map(|(index, place)| seat(index, place)));
            (members, seats.prop_map(Iterator::collect))
        })
    }

    proptest! {
        #[test]
        fn nothing_is_left_that_somebody_could_have_and_nobody_gets_what_it_must_not(
            (members, seats) in any_table(),
            is_settled: bool,
            salt: u64,
        ) {
            let assigned = Even::default().assign(&View { members: &members, seats: &seats, is_settled, salt });
            let keys: HashSet<_> = assigned.iter().map(|assigned| &assigned.key).collect();
            prop_assert_eq!(keys.len(), assigned.len(), "a lease moves once");
            for Assigned { key, to, why } in &assigned {
                let member = members.iter().find(|member| member.worker == *to).unwrap();
                prop_assert!(!member.is_leaving);
                let seat = seats.iter().find(|seat| seat.key == *key).unwrap();
                match &seat.place {
                    Place::Free(free) => prop_assert_eq!(free, why),
                    Place::With(from) => {
                        prop_assert_ne!(from, to);
                        prop_assert!(matches!(why, Why::Leaving | Why::Balance));
                    }
                    place => prop_assert!(false, "{:?} cannot move", place),
                }
            }
            let before = counts(&members, &seats);
            let mut after = seats.clone();
            carry_out(&mut after, &assigned);
            let counts = counts(&members, &after);
            for member in &members {
                let has = counts[&member.worker];
                // Nobody gets beyond its bound; who was beyond it keeps that.
                prop_assert!(member.max.is_none_or(|max| has <= max.max(before[&member.worker])));
            }
            let could_take = |member: &&Member| {
                !member.is_leaving && member.max.is_none_or(|max| counts[&member.worker] < max)
            };
            let is_homeless = |seat: &Seat| match &seat.place {
                Place::Free(_) => true,
                Place::With(worker) => members.iter().any(|member| member.is_leaving && member.worker == *worker),
                _ => false,
            };
            if members.iter().any(|member| could_take(&member)) {
                prop_assert!(!after.iter().any(is_homeless));
            }
        }

        /// What a worker leaves goes to the younger ones first, and so may be uneven for one round.
        #[test]
        fn two_rounds_make_it_even_and_the_next_does_nothing((members, seats) in any_table()) {
            let members: Vec<Member> = members.into_iter().map(|member| Member { max: None, ..member }).collect();
            let mut seats = seats;
            for seat in &mut seats {
                if let Place::OnTheWay(worker) = &seat.place {
                    seat.place = Place::With(worker.clone());
                }
            }
            for _ in 0..2 {
                let assigned = assign(&members, &seats);
                carry_out(&mut seats, &assigned);
            }
            let counts = counts(&members, &seats);
            let staying = members.iter().filter(|member| !member.is_leaving).map(|member| counts[&member.worker]);
            let staying: Vec<usize> = staying.collect();
            if let (Some(least), Some(most)) = (staying.iter().min(), staying.iter().max()) {
                prop_assert!(most - least <= 1, "{counts:?}");
            }
            prop_assert_eq!(assign(&members, &seats), Vec::new());
        }

        /// No rule can do with fewer moves: what is above the share has to go, and nothing else does.
        #[test]
        fn no_lease_moves_that_need_not(held in prop::collection::vec(0..30usize, 1..10)) {
            let members: Vec<Member> = (0..held.len()).map(member).collect();
            let total: usize = held.iter().sum();
            let (share, more) = (total / held.len(), total % held.len());
            // The largest keep one more, as many as there are over.
            let mut sorted = held.clone();
            sorted.sort_unstable_by(|left, right| right.cmp(left));
            let needed: usize = sorted
                .iter()
                .enumerate()
                .map(|(rank, count)| count.saturating_sub(share + usize::from(rank < more)))
                .sum();
            prop_assert_eq!(assign(&members, &holding(&held)).len(), needed);
        }
    }

    #[test]
    fn two_four_four_gets_even_and_three_three_four_stays() {
        let members: Vec<Member> = (0..3).map(member).collect();
        assert_eq!(assign(&members, &holding(&[2, 4, 4])).len(), 1);
        assert_eq!(assign(&members, &holding(&[3, 3, 4])), Vec::new());
    }

    #[test]
    fn moves_of_a_round_are_bounded() {
        let members: Vec<Member> = (0..2).map(member).collect();
        let seats = holding(&[10, 0]);
        let assigned = Even { moves: 2 }.assign(&View { members: &members, seats: &seats, is_settled: true, salt: 0 });
        assert_eq!(assigned.len(), 2);
    }

    #[test]
    fn a_worker_that_leaves_keeps_its_leases_where_nobody_else_is() {
        let alone = Member { is_leaving: true, ..member(0) };
        assert_eq!(assign(&[alone], &holding(&[3])), Vec::new());
    }

    /// Moves of a deploy in which new workers start beside the old ones, which then leave one after another.
    fn surge(workers: usize, leases: usize, settles_between: bool, generation: u64) -> (usize, Vec<usize>) {
        let mut members: Vec<Member> = (0..workers).map(member).collect();
        let mut seats = holding(&vec![leases / workers; workers]);
        let mut moves = 0;
        let mut round = |members: &[Member], seats: &mut Vec<Seat>, is_settled| {
            let assigned = Even::default().assign(&View { members, seats, is_settled, salt: moves as u64 });
            moves += assigned.len();
            carry_out(seats, &assigned);
        };
        for id in workers..2 * workers {
            members.push(Member { generation, ..member(id) });
            round(&members, &mut seats, false);
        }
        round(&members, &mut seats, settles_between);
        for _ in 0..workers {
            members[0].is_leaving = true;
            round(&members, &mut seats, false);
            members.remove(0);
        }
        round(&members, &mut seats, true);
        (moves, counts(&members, &seats).into_values().collect())
    }

    #[test]
    fn a_surge_deploy_moves_each_lease_about_once() {
        for settles_between in [false, true] {
            let (moves, counts) = surge(100, 1000, settles_between, 1);
            assert_eq!(moves, 1000);
            assert_eq!(counts, [10; 100]);
            // A restart of the same thing does not show who is next to leave.
            let (moves, counts) = surge(100, 1000, settles_between, 0);
            assert!(moves <= 1200, "{moves} moves of 1000 leases");
            assert_eq!(counts, [10; 100]);
        }
    }

    /// A StatefulSet's pods restart one after another: what a pod leaves goes to those that are through already.
    #[test]
    fn a_rolling_restart_moves_each_lease_about_once() {
        let (workers, leases) = (10, 100);
        let mut members: Vec<Member> = (0..workers).map(member).collect();
        let mut seats = holding(&vec![leases / workers; workers]);
        let mut moves = 0;
        for id in 0..workers {
            members[0].is_leaving = true;
            let assigned =
                Even::default().assign(&View { members: &members, seats: &seats, is_settled: false, salt: 3 });
            moves += assigned.len();
            carry_out(&mut seats, &assigned);
            members.remove(0);
            members.push(member(workers + id));
        }
        let assigned = assign(&members, &seats);
        moves += assigned.len();
        carry_out(&mut seats, &assigned);
        // The first one's leases go to pods that restart later, and so move twice; the last one comes empty.
        assert!(moves <= leases + 3 * (leases / workers), "{moves} moves");
        assert_eq!(counts(&members, &seats).into_values().collect::<Vec<_>>(), [10; 10]);
    }
}
