use super::{Assigned, Balance, Place, Seat, View, Why};

/// Everybody about the same bytes a second, for streams whose shards carry very different loads.
///
/// Within the dead band nothing moves: throughput is never still, and leases would follow it to and fro.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Throughput {
    /// How far from the mean a worker's load may be, as a part of the mean, before leases move: above 0.
    pub dead_band: f64,
    /// The most leases that move from one living worker to another in one round: the figures of the next round show
    /// what these moves have done.
    pub moves: usize,
}

// === impl Throughput ===

impl Default for Throughput {
    fn default() -> Self {
        Self { dead_band: 0.1, moves: 8 }
    }
}

impl Balance for Throughput {
    fn assign(&self, view: &View<'_>) -> Vec<Assigned> {
        let mut assigned = Vec::new();
        let mut counts = view.settle(&mut assigned);
        if !view.is_settled || counts.len() == 0 {
            return assigned;
        }
        let mut carried = vec![0.0; counts.len()];
        let mut add = |worker, seat: &Seat| {
            if let Some(place) = counts.place_of(worker) {
                carried[place] += seat.throughput.max(0.0);
            }
        };
        let given: std::collections::HashMap<_, _> = assigned.iter().map(|given| (&given.key, &given.to)).collect();
        for seat in view.seats {
            match (given.get(&seat.key), &seat.place) {
                (Some(to), _) => add(to, seat),
                (None, Place::With(worker) | Place::OnTheWay(worker)) => add(worker, seat),
                (None, Place::Free(_) | Place::Out) => {}
            }
        }
        let mean = carried.iter().sum::<f64>() / carried.len() as f64;
        let mut movable = view.movable();
        let mut moves = Vec::new();
        while moves.len() < self.moves {
            let by_load = |left: &usize, right: &usize| carried[*left].total_cmp(&carried[*right]);
            let Some(from) = (0..carried.len()).max_by(by_load) else { break };
            let Some(to) = (0..carried.len()).filter(|place| counts.has_room(*place)).min_by(by_load) else { break };
            let gap = carried[from] - carried[to];
            let is_within_band =
                carried[from] <= mean * (1.0 + self.dead_band) && carried[to] >= mean * (1.0 - self.dead_band);
            if is_within_band {
                break;
            }
            // The one that brings both closest together; one larger than the gap would turn it round.
            let seats = movable.get_mut(counts.worker(from)).map(std::mem::take).unwrap_or_default();
            let distance = |seat: &&Seat| (seat.throughput - gap / 2.0).abs();
            let fitting = |seat: &&&Seat| seat.throughput > 0.0 && seat.throughput < gap;
            let Some(seat) = seats
                .iter()
                .copied()
                .filter(|seat| fitting(&seat))
                .min_by(|left, right| distance(left).total_cmp(&distance(right)))
            else {
                break;
            };
            movable.insert(counts.worker(from), seats.into_iter().filter(|other| other.key != seat.key).collect());
            carried[from] -= seat.throughput;
            carried[to] += seat.throughput;
            counts.take(from);
            counts.give(to);
            moves.push(Assigned { key: seat.key.clone(), to: counts.worker(to).clone(), why: Why::Balance });
        }
        assigned.extend(moves);
        assigned
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Member;
    use super::*;
    use crate::{LeaseKey, WorkerId};

    fn worker(id: usize) -> WorkerId {
        WorkerId::parse(&format!("w{id}")).unwrap()
    }

    fn members(count: usize) -> Vec<Member> {
        (0..count)
            .map(|id| Member { worker: worker(id), is_leaving: false, joined: 0, generation: 0, max: None })
            .collect()
    }

    fn seats(loads: &[(usize, f64)]) -> Vec<Seat> {
        let seat = |(index, (owner, throughput)): (usize, &(usize, f64))| Seat {
            key: LeaseKey::parse(&format!("shardId-{index:012}")).unwrap(),
            place: Place::With(worker(*owner)),
            avoid: None,
            throughput: *throughput,
        };
        loads.iter().enumerate().map(seat).collect()
    }

    fn carried(workers: usize, seats: &[Seat]) -> Vec<f64> {
        let mut carried = vec![0.0; workers];
        for seat in seats {
            let Place::With(owner) = &seat.place else { continue };
            carried[owner.as_str()[1..].parse::<usize>().unwrap()] += seat.throughput;
        }
        carried
    }

    fn spread(carried: &[f64]) -> f64 {
        carried.iter().copied().fold(f64::MIN, f64::max) - carried.iter().copied().fold(f64::MAX, f64::min)
    }

    proptest! {
        /// However the loads are, rounds come to an end, and none makes the spread larger.
        #[test]
        fn rounds_bring_workers_closer_and_end(
            workers in 1..6usize,
            loads in prop::collection::vec((0..6usize, 0.0..1e6f64), 0..40),
        ) {
            let loads: Vec<_> = loads.into_iter().map(|(owner, load)| (owner % workers, load)).collect();
            let (members, mut seats) = (members(workers), seats(&loads));
            let mut rounds = 0;
            loop {
                let before = spread(&carried(workers, &seats));
                let assigned = Throughput::default().assign(&View { members: &members, seats: &seats, is_settled: true, salt: 0 });
                if assigned.is_empty() {
                    break;
                }
                for given in assigned {
                    let seat = seats.iter_mut().find(|seat| seat.key == given.key).unwrap();
                    seat.place = Place::With(given.to);
                }
                prop_assert!(spread(&carried(workers, &seats)) <= before * (1.0 + 1e-9));
                rounds += 1;
                prop_assert!(rounds < 200, "no end");
            }
        }
    }

    #[test]
    fn a_heavy_shard_gets_a_worker_for_itself() {
        let mut seats = seats(&[(0, 900.0), (0, 300.0), (0, 300.0), (1, 100.0), (1, 200.0)]);
        let members = members(2);
        for given in Throughput::default().assign(&View { members: &members, seats: &seats, is_settled: true, salt: 0 })
        {
            seats.iter_mut().find(|seat| seat.key == given.key).unwrap().place = Place::With(given.to);
        }
        assert_eq!(carried(2, &seats), [900.0, 900.0]);
    }

    #[test]
    fn within_the_dead_band_nothing_moves() {
        let seats = seats(&[(0, 50.0), (0, 54.0), (1, 48.0), (1, 48.0)]);
        let view = View { members: &members(2), seats: &seats, is_settled: true, salt: 0 };
        assert_eq!(Throughput::default().assign(&view), Vec::new());
    }
}
