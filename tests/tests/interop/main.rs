//! The end-to-end runs on services that others have made: what is right only because the built-in ones were made by the
//! same hands goes wrong here. What each emulator gets wrong stands at its constructor in `Services`, and is not tested.

mod aggregates;
mod calls;
mod kinesis_local;
mod lease_store;
mod ministack;
mod runs;
