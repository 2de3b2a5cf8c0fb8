//! Both senders against a Kinesis service in this process that fails in all the ways that PutRecords can.

mod batch;
mod close;
mod faults;
mod put;
mod sink_and_queue;
mod spool;
mod support;
