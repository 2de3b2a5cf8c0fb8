use std::pin::Pin;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use futures::{FutureExt, Sink};
use shardmill_record::UserRecord;

use super::{Pending, Producer};
use crate::{Failed, PutError};

/// As many records of a sink are unacknowledged at once, unless it is told otherwise.
const AT_MOST: usize = 1_000;

/// A sink of records into a [`Producer`]. It takes as many as may be unacknowledged at once, and holds its source back
/// then. Its flush and its close end when all of them are acknowledged. The first record that is given up is an error
/// of whatever is asked next, once: what was to be done then is not done, and has to be asked again. Further ones are
/// counted among the producer's [failures](Producer::failures). A sink that is dropped leaves its records on their way.
/// The producer stays open.
#[derive(Debug)]
#[must_use = "a sink does nothing unless something is sent into it"]
pub struct PutSink {
    producer: Producer,
    at_most: usize,
    /// A record that waits for room in the producer.
    starting: Option<Starting>,
    pending: FuturesUnordered<Pending>,
    /// The first since it was told.
    error: Option<SinkError>,
    /// Whether something came since the producer was told to wait for no more.
    is_unsent: bool,
}

struct Starting(BoxFuture<'static, Result<Pending, PutError>>);

/// Why a sink of records failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SinkError {
    /// A record was not accepted.
    #[error(transparent)]
    Put(Box<PutError>),
    /// A record was given up.
    #[error(transparent)]
    Failed(Box<Failed>),
}

// === impl PutSink ===

impl PutSink {
    pub(super) fn new(producer: Producer) -> Self {
        Self {
            producer,
            at_most: AT_MOST,
            starting: None,
            pending: FuturesUnordered::new(),
            error: None,
            is_unsent: false,
        }
    }

    /// Lets so many records be unacknowledged at once, at least 1; 1,000 otherwise.
    pub fn at_most(mut self, records: usize) -> Self {
        self.at_most = records.max(1);
        self
    }

    /// How many records are unacknowledged, as far as it has been looked.
    pub fn unacknowledged(&self) -> usize {
        self.pending.len() + usize::from(self.starting.is_some())
    }

    /// Takes in what has become of records.
    fn look(&mut self, context: &mut Context<'_>) -> Result<(), SinkError> {
        if let Some(Starting(starting)) = &mut self.starting
            && let Poll::Ready(started) = starting.poll_unpin(context)
        {
            self.starting = None;
            match started {
                Ok(pending) => self.pending.push(pending),
                Err(error) => self.fails(error.into()),
            }
        }
        while let Poll::Ready(Some(result)) = self.pending.poll_next_unpin(context) {
            if let Err(failed) = result {
                self.fails(SinkError::Failed(Box::new(failed)));
            }
        }
        self.error.take().map_or(Ok(()), Err)
    }

    fn fails(&mut self, error: SinkError) {
        if self.error.is_some() {
            self.untold(&error);
        } else {
            self.error = Some(error);
        }
    }

    /// Counts what nobody is told.
    fn untold(&self, error: &SinkError) {
        self.producer.shared().fails();
        tracing::debug!(stream = self.producer.stream(), %error, "a record was given up that was sent into a sink");
    }
}

impl Drop for PutSink {
    fn drop(&mut self) {
        if let Some(error) = self.error.take() {
            self.untold(&error);
        }
        let Some(Starting(starting)) = self.starting.take() else { return };
        let producer = self.producer.clone();
        let put = async move {
            if starting.await.is_err() {
                producer.shared().loses();
            }
        };
        match tokio::runtime::Handle::try_current() {
            // It was taken, so it is sent.
            Ok(runtime) => drop(runtime.spawn(put)),
            Err(_) => self.producer.shared().loses(),
        }
    }
}

impl Sink<UserRecord> for PutSink {
    type Error = SinkError;

    fn poll_ready(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), SinkError>> {
        self.look(context)?;
        if self.starting.is_none() && self.pending.len() < self.at_most {
            return Poll::Ready(Ok(()));
        }
        // What is there waits for no more, for no more comes.
        if self.starting.is_none() && std::mem::take(&mut self.is_unsent) {
            self.producer.send_now();
        }
        Poll::Pending
    }

    fn start_send(mut self: Pin<&mut Self>, record: UserRecord) -> Result<(), SinkError> {
        self.is_unsent = true;
        match self.producer.try_put_with_result(record) {
            Ok(pending) => self.pending.push(pending),
            Err(PutError::Full(record)) => {
                let producer = self.producer.clone();
                self.starting = Some(Starting(async move { producer.put_with_result(record).await }.boxed()));
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), SinkError>> {
        self.look(context)?;
        if self.starting.is_none() && std::mem::take(&mut self.is_unsent) {
            self.producer.send_now();
        }
        if self.unacknowledged() > 0 { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    fn poll_close(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), SinkError>> {
        self.poll_flush(context)
    }
}

// === impl SinkError ===

impl From<PutError> for SinkError {
    fn from(error: PutError) -> Self {
        Self::Put(Box::new(error))
    }
}

impl std::fmt::Debug for Starting {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Starting")
    }
}
