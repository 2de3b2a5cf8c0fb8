//! What can be seen of a file without reading it.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;

/// What changes with a file's contents: another file in its place, by way of links or without, or another time or size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    file: [u64; 3],
    /// Of its contents, and of anything about it: a copy may keep the former.
    times: [(i64, i64); 2],
}

// === impl Identity ===

impl Identity {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self {
            file: [metadata.dev(), metadata.ino(), metadata.size()],
            times: [(metadata.mtime(), metadata.mtime_nsec()), (metadata.ctime(), metadata.ctime_nsec())],
        }
    }

    /// Of some file, another one for each number.
    #[cfg(test)]
    pub(crate) fn of_number(number: u64) -> Self {
        Self { file: [1, number, 10], times: [(0, 0); 2] }
    }
}
