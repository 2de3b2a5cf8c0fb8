//! What the end-to-end tests are made of: the real binary as child processes, real sockets, the AWS SDK.
//!
//! A test starts [`Services`] (`shardmill local`, or emulators that others have made), writes to a stream with a
//! [`Writer`], runs one [`Worker`] or more (`shardmill run`) with a [`Config`], and looks at what came out with a
//! [`Tail`] and at the lease table with [`leases::rows`]. Each test has services, folders and ports of its own, so that
//! tests run side by side.
//!
//! What can go wrong between a worker and its services a [`Proxy`] does: the worker is started on a [`Link`] of it.
//!
//! Every wait has a limit. When a test fails, the logs of its workers are printed.

#![expect(clippy::missing_panics_doc, reason = "a panic is how a test fails")]

pub mod chaos;
mod checks;
mod codecs;
mod config;
mod guests;
mod histogram;
pub mod history;
pub mod leases;
pub mod memory;
pub mod paths;
mod process;
mod proxy;
pub mod raw;
pub mod reliability;
mod seeds;
mod services;
mod shard_reader;
mod tail;
mod wait;
mod worker;
mod writer;

pub use checks::{TakenUp, assert_each_once, assert_order_of_keys, assert_taken_up, firsts, numbers, positions};
pub use codecs::Codec;
pub use config::{Config, Leases};
pub use guests::{Guests, another_build};
pub use histogram::Histogram;
pub use process::{Finished, Process, assert_says, command, isolated, run, run_within};
pub use proxy::{Fault, Held, Injected, Link, Proxy, Rule, Service, Write};
pub use seeds::seeds;
pub use services::{Environment, Services};
pub use tail::{Found, Tail};
pub use wait::{eventually, within};
pub use worker::Worker;
pub use writer::Writer;
