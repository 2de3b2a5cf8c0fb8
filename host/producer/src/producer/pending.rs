use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::sync::oneshot;

use crate::{Acknowledged, Failed, MessageId};

/// Whom to tell what becomes of a record; nobody, if it was only put.
pub(super) type Ticket = Option<oneshot::Sender<Result<Acknowledged, Failed>>>;

/// A record that is accepted: what becomes of it, as a future. Dropping it leaves the record on its way; if it fails then,
/// that counts as nobody's.
#[derive(Debug)]
#[must_use = "the record is sent in any case; `Producer::put` is for those who do not want to know"]
pub struct Pending {
    message_id: MessageId,
    result: oneshot::Receiver<Result<Acknowledged, Failed>>,
}

// === impl Pending ===

impl Pending {
    pub(super) fn new(message_id: MessageId) -> (Self, Ticket) {
        let (ticket, result) = oneshot::channel();
        (Self { message_id, result }, Some(ticket))
    }

    /// The record's.
    pub fn message_id(&self) -> MessageId {
        self.message_id
    }
}

impl Future for Pending {
    type Output = Result<Acknowledged, Failed>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let result = ready!(Pin::new(&mut self.result).poll(context));
        // Also when its task is dropped, see `Driver::drop`.
        Poll::Ready(result.expect("a producer resolves all that it has accepted"))
    }
}
