//! Commands about streams from a user's side: `shardmill tail`, `put` and `stream`, on the local backend, and where that
//! knows less than Kinesis does, on an independent emulator.

mod cli;
mod put;
mod stream;
mod tail;
