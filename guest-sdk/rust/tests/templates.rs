//! The crates that `shardmill plugin new` writes: their code, and the unit tests in it, against this kit.
// They are crates of their own elsewhere, where what is `pub` can be reached.
#![allow(unreachable_pub)]

#[rustfmt::skip]
#[path = "../../../host/shardmill/templates/plugin/batch/lib.rs"]
pub mod batch;

#[rustfmt::skip]
#[path = "../../../host/shardmill/templates/plugin/record/lib.rs"]
pub mod record;
