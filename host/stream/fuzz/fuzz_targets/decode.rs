//! Any bytes as the answer to a GetRecords. Read as JSON, they must give what the SDK makes of them, or be refused as
//! it refuses them; read as CBOR, anything but a panic.

#![no_main]

#[path = "../../tests/support/differential.rs"]
mod differential;

use differential::Bench;
use libfuzzer_sys::fuzz_target;

thread_local! {
    static BENCH: Bench = Bench::new();
}

fuzz_target!(|body: &[u8]| {
    BENCH.with(|bench| {
        bench.check_json(body).ok();
        bench.check_cbor(body).ok();
    });
});
