//! The bytes of a plugin's file, as far as they are read before the compiler gets them.
//!
//! Every answer comes within bounded time, memory and depth (libFuzzer's), and says what is wrong in one line of bounded length.

use shardmill_plugin::{fuzzing, module};

use super::steers;

/// Twenty names of 500 bytes, each with the line that grants it, and what is around them.
const SAID_BYTES: usize = 20_000;

/// See the module.
pub fn run(bytes: &[u8]) {
    let judged = fuzzing::before_compiling("guest.wasm", bytes);
    if let Err(refused) = module::check("guest.wasm", bytes) {
        assert_eq!(judged, Err(refused), "a file is judged alike while it is written and when it is loaded");
    }
    if let Err(refused) = judged {
        let said = refused.to_string();
        assert!(said.starts_with("guest.wasm ") && said.len() <= SAID_BYTES, "{} bytes: {said}", said.len());
        assert!(!said.contains(steers), "{said:?}");
    }
}
