//! The body of an answer to GetRecords. Read as JSON, it must give what the SDK makes of it, or be refused as the SDK
//! refuses it; read as CBOR, anything but a panic.

use crate::differential::Bench;

thread_local! {
    static BENCH: Bench = Bench::new();
}

/// See the module.
pub fn run(bytes: &[u8]) {
    BENCH.with(|bench| {
        bench.check_json(bytes).ok();
        bench.check_cbor(bytes).ok();
    });
}
