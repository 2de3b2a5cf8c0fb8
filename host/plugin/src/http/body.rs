use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep, sleep_until};
use wasmtime_wasi_http::{Error, WasiBody};

use super::exchange::{Fault, Ticket};

/// Bytes of all header fields of an answer, and of its trailers.
pub(super) const HEADER_BYTES: usize = 32 << 10;

/// A request's body, as far as it may go.
pub(super) struct Bounded {
    pub(super) body: WasiBody,
    /// Bytes that it may still have.
    pub(super) left: u64,
    pub(super) limit: u64,
    pub(super) ticket: Arc<Ticket>,
}

/// An answer's body, as far as it may come, and as long.
pub(super) struct Answer {
    /// None once it has come to an end.
    body: Option<Incoming>,
    left: u64,
    limit: u64,
    /// The request is to be over.
    deadline: Pin<Box<Sleep>>,
    /// How long the guest would wait from one part to the next, if it says so.
    patience: Option<(Duration, Pin<Box<Sleep>>)>,
    ticket: Arc<Ticket>,
    /// What its instance may hold.
    _room: OwnedSemaphorePermit,
}

// === impl Bounded ===

impl Body for Bounded {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        let Some(Ok(frame)) = frame else { return Poll::Ready(frame) };
        if let Some(data) = frame.data_ref() {
            let Some(left) = self.left.checked_sub(data.len() as u64) else {
                return Poll::Ready(Some(Err(self.ticket.fail_request(self.limit))));
            };
            self.left = left;
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

// === impl Answer ===

impl Answer {
    pub(super) fn new(
        body: Incoming,
        limit: u64,
        deadline: Instant,
        patience: Option<Duration>,
        ticket: Arc<Ticket>,
        room: OwnedSemaphorePermit,
    ) -> Self {
        let patience = patience.map(|patience| (patience, Box::pin(sleep_until(Instant::now() + patience))));
        let deadline = Box::pin(sleep_until(deadline));
        Self { body: Some(body), left: limit, limit, deadline, patience, ticket, _room: room }
    }

    fn judge(&mut self, frame: &Frame<Bytes>) -> Result<(), Fault> {
        if let Some(data) = frame.data_ref() {
            let left = self.left.checked_sub(data.len() as u64);
            self.left = left.ok_or_else(|| Fault::too_large(Error::HttpResponseBodySize(Some(self.limit))))?;
        }
        match frame.trailers_ref().map(fields_bytes) {
            Some(bytes) if bytes > HEADER_BYTES => {
                let bytes = u32::try_from(bytes).ok();
                Err(Fault::too_large(Error::HttpResponseTrailerSectionSize(bytes)))
            }
            _ => Ok(()),
        }
    }

    fn is_over(&mut self, context: &mut Context<'_>) -> bool {
        let patience = self.patience.as_mut().map(|(_, patience)| patience.as_mut());
        self.deadline.as_mut().poll(context).is_ready()
            || patience.is_some_and(|patience| patience.poll(context).is_ready())
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = &mut *self;
        let Some(body) = &mut this.body else { return Poll::Ready(None) };
        let frame = match Pin::new(body).poll_frame(context) {
            Poll::Pending if this.is_over(context) => Err(Fault::timeout(Error::HttpResponseTimeout)),
            Poll::Pending => return Poll::Pending,
            Poll::Ready(None) => {
                this.body = None;
                return Poll::Ready(None);
            }
            // The connection ends with its time, and then this is why.
            Poll::Ready(Some(Err(_))) if this.is_over(context) => Err(Fault::timeout(Error::HttpResponseTimeout)),
            Poll::Ready(Some(Err(_))) => Err(Fault::failed(Error::HttpResponseIncomplete)),
            Poll::Ready(Some(Ok(frame))) => this.judge(&frame).map(|()| frame),
        };
        if let Some((patience, sleep)) = &mut this.patience {
            sleep.as_mut().reset(Instant::now() + *patience);
        }
        Poll::Ready(Some(frame.map_err(|fault| {
            // What is still to come is not waited for.
            this.body = None;
            this.ticket.fail(fault)
        })))
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map(Incoming::size_hint).unwrap_or_default()
    }
}

/// Bytes of names and values.
pub(super) fn fields_bytes(fields: &HeaderMap) -> usize {
    fields.iter().map(|(name, value)| name.as_str().len() + value.len()).sum()
}
