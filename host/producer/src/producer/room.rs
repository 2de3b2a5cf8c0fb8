/// How many records and bytes may be pending. When one of the bounds is met nothing is let in before both are below 90 %:
/// whoever puts is stopped and goes on in strokes, and not record by record.
#[derive(Debug)]
pub(super) struct Room {
    max_records: usize,
    max_bytes: usize,
    records: usize,
    bytes: usize,
    is_stopped: bool,
}

// === impl Room ===

impl Room {
    pub(super) fn new(max_records: usize, max_bytes: usize) -> Self {
        Self { max_records, max_bytes, records: 0, bytes: 0, is_stopped: false }
    }

    pub(super) fn records(&self) -> usize {
        self.records
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether there was room for a record of this size. When nothing is pending there is room for any.
    pub(super) fn take(&mut self, bytes: usize) -> bool {
        let fits = self.records < self.max_records && self.bytes + bytes <= self.max_bytes;
        if self.records > 0 && (self.is_stopped || !fits) {
            self.is_stopped = true;
            return false;
        }
        self.records += 1;
        self.bytes += bytes;
        true
    }

    /// So many records are pending no more. Whether those who wait are to try again.
    pub(super) fn give_back(&mut self, records: usize, bytes: usize) -> bool {
        self.records -= records;
        self.bytes -= bytes;
        let is_below = self.records * 10 < self.max_records * 9 && self.bytes * 10 < self.max_bytes * 9;
        is_below && std::mem::take(&mut self.is_stopped)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn it_stops_at_the_bound_of_records_and_goes_on_below_nine_tenths() {
        let mut room = Room::new(10, 1_000_000);
        assert!((0..10).all(|_| room.take(1)));
        assert!(!room.take(1));
        assert!(!room.give_back(1, 1), "nine are nine tenths");
        assert!(!room.take(1), "there is room, and it is not time yet");
        assert!(room.give_back(1, 1));
        assert!(room.take(1) && room.take(1));
        assert!(!room.take(1));
    }

    #[test]
    fn it_stops_at_the_bound_of_bytes_and_goes_on_below_nine_tenths() {
        let mut room = Room::new(100, 1_000);
        assert!((0..10).all(|_| room.take(100)));
        assert!(!room.take(1));
        assert!(!room.give_back(1, 100));
        assert!(room.give_back(1, 100));
        assert!(!room.take(300), "more than there is room for");
        assert!(room.give_back(1, 100), "who waits for much room is told each time");
        assert!(room.take(300));
        assert_eq!((room.records(), room.bytes()), (8, 1_000));
    }

    #[test]
    fn a_room_for_one_takes_one_after_another() {
        let mut room = Room::new(1, 10);
        for _ in 0..3 {
            assert!(room.take(20), "nothing else is pending");
            assert!(!room.take(1));
            assert!(room.give_back(1, 20));
        }
    }

    proptest! {
        #[test]
        fn bounds_are_kept_and_nobody_waits_for_ever(
            max_records in 1..20usize, max_bytes in 100..2_000usize,
            steps in prop::collection::vec((any::<bool>(), 1..100usize), 1..200),
        ) {
            let mut room = Room::new(max_records, max_bytes);
            let mut inside = Vec::new();
            let mut waits = false;
            for (puts, bytes) in steps {
                if puts {
                    if room.take(bytes) {
                        inside.push(bytes);
                    } else {
                        waits = true;
                    }
                } else if !inside.is_empty() {
                    let bytes = inside.swap_remove(0);
                    waits &= !room.give_back(1, bytes);
                }
                prop_assert_eq!((room.records(), room.bytes()), (inside.len(), inside.iter().sum()));
                prop_assert!(room.records() <= max_records && room.bytes() <= max_bytes);
                prop_assert!(!waits || !inside.is_empty(), "somebody waits for nothing");
            }
        }
    }
}
