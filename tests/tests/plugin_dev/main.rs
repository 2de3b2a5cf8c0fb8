//! What a person does who writes a processor: `shardmill plugin new`, `test`, `test --watch` and `bench`, without a stream.

mod bench;
mod cli;
mod scaffold;
mod trial;
mod trial_flow;
mod watch;
