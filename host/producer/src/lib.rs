//! Puts user records into a stream with PutRecords, and says when the service has them: what the Kinesis Producer Library
//! does, without a daemon beside the program.
//!
//! Two ways in. A [`Producer`] lives as long as the program: records are put one by one from any number of tasks, are put
//! together in KPL aggregates, and each of them can say what became of it. A [`BatchSender`] sends one batch whole and
//! comes back when the service has all of it.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use shardmill_producer::{Acknowledged, Metrics, Options, Producer};
//! use shardmill_record::UserRecord;
//!
//! # async fn example(client: aws_sdk_kinesis::Client) -> Result<(), Box<dyn std::error::Error>> {
//! let producer = Producer::start(client, "clicks".to_owned(), Options::default(), Metrics::default(), 7);
//! let record = UserRecord { partition_key: "ann".to_owned(), explicit_hash_key: None, data: "click".into() };
//! let pending = producer.put_with_result(record).await?;
//! match pending.await? {
//!     Acknowledged::Stored(receipt) => println!("{} {}", receipt.shard, receipt.sequence_number),
//!     // Only with a spool.
//!     Acknowledged::Spooled { .. } => println!("on the disk, until the stream takes it"),
//! }
//! let left = producer.close(Duration::from_secs(10)).await;
//! assert_eq!(left.records, 0);
//! # Ok(())
//! # }
//! ```
//!
//! PutRecords keeps no order: entries of one request fail one by one, and one that is sent again lands behind later
//! ones of its key. So the order of keys is the producer's business: with [`Ordering::Key`] a request holds at most one
//! Kinesis record for each shard, a KPL aggregate of what is waiting for that shard, and the shard's next one is sent
//! when the last one is acknowledged.
//!
//! Delivery is at least once: where an answer was lost the whole Kinesis record is sent again, and PutRecords has no means
//! against its being stored twice. Such records are counted, and [`Receipt::may_be_repeated`] names them.
//!
//! The rooms: `shard_map` says to which shard a hash key goes, `plan` what to send next and what an answer means for it,
//! both pure; `call` puts, `answer` sorts what the service says, `listing` asks for the shards, and `mapping` when, `trouble`
//! tells the log; `producer` and `batch` drive them.

mod answer;
mod backoff;
mod batch;
mod call;
mod coded;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod limits;
mod listing;
mod mapping;
mod metrics;
mod options;
mod permit;
mod plan;
mod producer;
mod result;
mod shard_map;
mod trouble;

pub use batch::{BatchSender, Error, Sent};
pub use error::{InvalidRecord, Stopped};
pub use metrics::Metrics;
pub use options::{BatchOptions, InvalidOption, Options, Ordering};
pub use permit::Permit;
pub use producer::{Backlog, Left, Offered, Overflow, Pending, Producer, PutSink, Queue, SinkError};
pub use result::{Acknowledged, Failed, MessageId, PutError, Reason, Receipt, Refusal};
