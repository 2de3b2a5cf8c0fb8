//! The long-lived producer: handles that put records, and one task, the driver, that owns everything else.
//!
//! A handle checks a record, finds room for it and leaves it in the inbox (`shared`); the driver takes it into the plan,
//! starts requests as tasks, and tells who waits (`pending`) what became of it. `sink`
//! and `queue` are other ways in.

mod drain;
mod driver;
mod flushes;
mod losses;
mod pending;
mod queue;
mod room;
mod shared;
mod sink;
mod spooling;

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_kinesis::Client;
use shardmill_record::UserRecord;
use shardmill_spool::Spool;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::{BatchOptions, BatchSender, Failed, MessageId, Metrics, Options, PutError};
use drain::Drain;
use driver::Driver;
use shared::{Command, Shared};
use spooling::Spooling;

pub use pending::Pending;
pub use queue::{Offered, Overflow, Queue};
pub use sink::{PutSink, SinkError};

/// Sends records to one stream for as long as it lives, put together as the KPL does. Cheap to clone; all clones are one,
/// and any number of tasks may use them.
///
/// Records that one task puts one after another keep their order by key, as [`Options::ordering`] says. When the last clone is
/// gone, what was accepted is still sent, as long as the runtime lives; [`close`](Self::close) waits for it.
#[derive(Debug, Clone)]
pub struct Producer(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
    spool: Option<Spool>,
}

/// Records that are accepted and neither acknowledged nor given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backlog {
    /// How many there are.
    pub records: usize,
    /// Their partition keys and payloads.
    pub bytes: usize,
}

/// What was not stored when a producer was closed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Left {
    /// User records that were given up while it was being closed, of all kinds: 0 if everything was stored.
    pub records: u64,
    /// Their partition keys and payloads, in bytes.
    pub bytes: u64,
    /// How many of them the service may have stored all the same: an answer was lost, or had not come yet.
    pub may_be_stored: u64,
    /// User records of the stream that wait in the spool, those of earlier times too. They are safe, and no part of the
    /// numbers above.
    pub spooled: u64,
    /// Those of them whose results nobody was waiting for, in the order in which they were given up. The others are in the
    /// results of their [`Pending`].
    pub unclaimed: Vec<Failed>,
}

// === impl Producer ===

impl Producer {
    /// Starts a producer. `stream` is a name, or the ARN of a stream in the client's region. Takes the client's endpoint,
    /// credentials and connections. Its retries and timeouts are not used: an answer that was lost must be seen here,
    /// because what is sent again may come twice. Nothing is called before the first record is put. `seed` is for the jitter
    /// of the back-off.
    ///
    /// An option that is out of its bounds counts as the nearest one that is not; [`Options::check`] tells.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(client: Client, stream: String, options: Options, metrics: Metrics, seed: u64) -> Self {
        let options = options.within_bounds();
        let metrics = Arc::new(metrics.of_stream(&stream));
        let shared = Arc::new(Shared::new(stream.into(), &options, metrics));
        let driver = Driver::new(&client, Arc::clone(&shared), &options, seed);
        tokio::spawn(driver.run());
        Self(Arc::new(Handle { shared, spool: None }))
    }

    /// Starts a producer with a spool. What its stream does not take in time goes to the disk, and from there to the
    /// stream when that is back: when a record's time is over, when the service refuses records until somebody has
    /// mended something, when nothing could be stored for [`Options::spool_after`], and what is left when the producer
    /// is closed. From then on all that is put goes there, so that keys keep their order, until the spool has nothing
    /// of the stream any more. What is in the spool from an earlier time comes first.
    ///
    /// A record that is in the spool counts as [acknowledged](crate::Acknowledged::Spooled): it survives the end of this
    /// process, however that comes. Until a record is acknowledged it is in memory only.
    ///
    /// # Errors
    /// [`shardmill_spool::Error::Taken`] if there is a producer with this spool for this stream already.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start_with_spool(
        client: Client,
        stream: String,
        options: Options,
        metrics: Metrics,
        seed: u64,
        spool: &Spool,
    ) -> Result<Self, shardmill_spool::Error> {
        let options = options.within_bounds();
        let sender = Arc::new(spool.sender(&stream)?);
        let batch_options = BatchOptions::from(options.clone());
        let batches = BatchSender::new(client.clone(), stream.clone(), batch_options, metrics.clone(), seed);
        let metrics = Arc::new(metrics.of_stream(&stream));
        let shared = Arc::new(Shared::new(stream.into(), &options, metrics));
        let driver = Driver::new(&client, Arc::clone(&shared), &options, seed);
        let spooling = Spooling::new(Arc::clone(&sender), options.spool_after);
        let drain =
            Drain::start(sender, batches.of_spool(driver.shards(), driver.troubles()), Arc::clone(&shared), seed);
        let driver = driver.spools(spooling, drain);
        tokio::spawn(driver.run());
        Ok(Self(Arc::new(Handle { shared, spool: Some(spool.clone()) })))
    }

    /// The stream's name or ARN, as it was given.
    pub fn stream(&self) -> &str {
        &self.shared().stream
    }

    /// Accepts a record when there is room for it. What becomes of it is nobody's: if it is given up, that is
    /// [counted](Self::failures), and told in the log when it begins and when it is over.
    ///
    /// # Errors
    /// [`PutError::Invalid`] and [`PutError::Closed`], with the record.
    ///
    /// # Cancellation
    /// If this is dropped, the record was not accepted.
    pub async fn put(&self, record: UserRecord) -> Result<MessageId, PutError> {
        self.when_there_is_room(record, Shared::accept).await
    }

    /// Accepts a record when there is room for it, and promises to say what becomes of it.
    ///
    /// # Errors
    /// [`PutError::Invalid`] and [`PutError::Closed`], with the record.
    ///
    /// # Cancellation
    /// If this is dropped, the record was not accepted.
    pub async fn put_with_result(&self, record: UserRecord) -> Result<Pending, PutError> {
        self.when_there_is_room(record, Shared::accept_pending).await
    }

    /// Accepts a record at once or not at all; see [`put`](Self::put).
    ///
    /// # Errors
    /// [`PutError`], with the record.
    pub fn try_put(&self, record: UserRecord) -> Result<MessageId, PutError> {
        let (record, hash_key) = self.shared().check(record)?;
        self.shared().accept(record, hash_key)
    }

    /// Accepts a record at once or not at all; see [`put_with_result`](Self::put_with_result).
    ///
    /// # Errors
    /// [`PutError`], with the record.
    pub fn try_put_with_result(&self, record: UserRecord) -> Result<Pending, PutError> {
        let (record, hash_key) = self.shared().check(record)?;
        self.shared().accept_pending(record, hash_key)
    }

    /// A sink of records. Its end waits until all of them are acknowledged.
    pub fn sink(&self) -> PutSink {
        PutSink::new(self.clone())
    }

    /// A queue for so many records in front of this producer, at least 1, for those who cannot wait for room.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn queue(&self, capacity: usize, overflow: Overflow) -> Queue {
        Queue::start(self.clone(), capacity, overflow)
    }

    /// Sends what was accepted without waiting for more, and comes back when all of it is acknowledged or given up.
    ///
    /// # Cancellation
    /// If this is dropped, what was accepted is sent all the same.
    pub async fn flush(&self) {
        let (done, flushed) = oneshot::channel();
        if self.shared().command(|below| Command::Flush { below, done: Some(done) }) {
            // It is dropped if the driver goes, and then everything is resolved.
            let _ = flushed.await;
        }
    }

    /// Accepts nothing more, sends what was accepted, and comes back when all of it is acknowledged or given up, `within` at
    /// the latest: what is left then is given up as [`Reason::Stopped`](crate::Reason::Stopped), and told; with a spool it goes
    /// there, for which the disk has ten seconds more. What is in the spool stays there. A second call
    /// waits for the first, or for less if it says so. Whoever comes first is told what is left, the others find nothing.
    ///
    /// # Cancellation
    /// If this is dropped, the producer is closed all the same, and another call is told what is left.
    pub async fn close(&self, within: Duration) -> Left {
        let (done, closed) = oneshot::channel();
        let deadline = Instant::now().checked_add(within);
        if !self.shared().command(|_| Command::Close { deadline, done }) {
            return self.shared().take_left();
        }
        // It is dropped if the driver goes with its runtime.
        let _ = closed.await;
        self.shared().take_left()
    }

    /// Comes back when nothing of the stream is in the spool, or on its way there; at once where there is no spool.
    pub async fn drained(&self) {
        if let Some(spool) = &self.0.spool {
            spool.until_none(self.stream()).await;
        }
    }

    /// How many records were given up whose results nobody waited for.
    pub fn failures(&self) -> u64 {
        self.shared().failures()
    }

    /// What is accepted and neither acknowledged nor given up.
    pub fn backlog(&self) -> Backlog {
        let (records, bytes) = self.shared().pending();
        Backlog { records, bytes }
    }

    fn shared(&self) -> &Shared {
        &self.0.shared
    }

    /// Sends what was accepted without waiting for more.
    fn send_now(&self) {
        self.shared().command(|below| Command::Flush { below, done: None });
    }

    async fn when_there_is_room<T>(
        &self,
        record: UserRecord,
        accept: impl Fn(&Shared, UserRecord, shardmill_record::HashKey) -> Result<T, PutError>,
    ) -> Result<T, PutError> {
        let (mut record, hash_key) = self.shared().check(record)?;
        // Whoever puts without a pause lets others run now and then, the driver among them.
        tokio::task::coop::consume_budget().await;
        if !self.shared().is_awaited() {
            match accept(self.shared(), record, hash_key) {
                Err(PutError::Full(back)) => record = back,
                done => return done,
            }
        }
        let _turn = self.shared().turn().await;
        loop {
            // Before it is tried: room that is made in between counts.
            let room_made = self.shared().room_made.notified();
            match accept(self.shared(), record, hash_key) {
                Err(PutError::Full(back)) => record = back,
                done => return done,
            }
            room_made.await;
        }
    }
}

// === impl Handle ===

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.abandon();
    }
}

// === impl Left ===

impl Left {
    fn add(&mut self, failed: &Failed) {
        self.records += 1;
        self.bytes += crate::limits::size(&failed.record) as u64;
        self.may_be_stored += u64::from(failed.may_be_stored);
    }
}
