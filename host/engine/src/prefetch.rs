//! How far a shard is read ahead of its processing.

/// A shard is read on while less than each of these was read of it and not begun. The page whose records are being
/// processed does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefetch {
    /// Pages, 1 or more. One at a time is asked for.
    pub pages: u64,
    /// Kinesis records, 1 or more.
    pub records: u64,
    /// Bytes as the service sent them, 1 or more.
    pub bytes: u64,
}

/// What was read and not begun.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ReadAhead {
    pub(crate) pages: u64,
    pub(crate) records: u64,
    pub(crate) bytes: u64,
}

// === impl Prefetch ===

impl Default for Prefetch {
    /// A full page, or a few that are not.
    fn default() -> Self {
        Self { pages: 4, records: 10_000, bytes: 4 << 20 }
    }
}

impl Prefetch {
    /// Whether another page may be asked for.
    pub(crate) fn allows(&self, read: ReadAhead) -> bool {
        let is_below = read.pages < self.pages && read.records < self.records && read.bytes < self.bytes;
        // With nothing there whatever is set must let one in.
        is_below || read.pages == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_the_three_ends_it_and_the_first_page_always_comes() {
        let prefetch = Prefetch { pages: 3, records: 100, bytes: 1000 };
        for (read, allowed) in [
            ((0, 0, 0), true),
            ((2, 99, 999), true),
            ((3, 0, 0), false),
            ((1, 100, 1), false),
            ((1, 1, 1000), false),
            ((0, 100, 1000), true),
        ] {
            let (pages, records, bytes) = read;
            assert_eq!(prefetch.allows(ReadAhead { pages, records, bytes }), allowed, "{read:?}");
        }
    }
}
