//! Commands about streams from a user's side: `shardmill tail`, `put` and `stream`, on the local backend, and where that
//! knows less than Kinesis does, on an independent emulator.

mod cli;
mod put;
mod put_ends;
mod put_input;
mod round_trip;
mod stream;
mod tail;
