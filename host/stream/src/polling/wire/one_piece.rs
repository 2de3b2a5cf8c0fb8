//! An answer's body in one buffer from its first byte. The SDK would gather the pieces that come in, and copy them all
//! when the last one is there: for a moment the answer would be in memory twice.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::OnceLock;
use std::task::{Context, Poll};

use aws_smithy_types::body::SdkBody;
use aws_smithy_types::byte_stream::ByteStream;
use bytes::Bytes;
use http_body::{Body, Frame};

use super::Format;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What is set aside at once for an answer at most: more than any should have, and nothing that a wrong number could do
/// harm with.
const MOST_AT_ONCE: u64 = 16 << 20;

/// An answer is larger than it may be, and was not received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the answer has {bytes} bytes or more, and was not to be received")]
pub(crate) struct TooLarge {
    /// What it says that it has, or what had come when it was too much.
    pub(crate) bytes: u64,
    /// How it is written.
    pub(crate) format: Format,
}

/// How much may be received, and whether it was more.
#[derive(Debug, Clone, Default)]
pub(super) struct Bound {
    most: Option<u64>,
    refused: Arc<OnceLock<TooLarge>>,
}

/// What gathers a body.
type Gathering = Pin<Box<dyn Future<Output = Result<Bytes, BoxError>> + Send + Sync>>;

/// The body as one frame; nothing once it was given.
struct OnePiece(Option<Gathering>);

// === impl TooLarge ===

impl TooLarge {
    /// What the service has counted of it, about: keys and payloads. In JSON payloads are a third longer, in base64.
    pub(crate) fn counted(self) -> u64 {
        match self.format {
            Format::Json => self.bytes - self.bytes / 4,
            Format::Cbor => self.bytes,
        }
    }
}

// === impl Bound ===

impl Bound {
    pub(super) fn new(most: Option<u64>) -> Self {
        Self { most, refused: Arc::default() }
    }

    pub(super) fn refused(&self) -> Option<TooLarge> {
        self.refused.get().copied()
    }

    fn check(&self, bytes: u64, format: Format) -> Result<(), TooLarge> {
        if self.most.is_some_and(|most| bytes > most) {
            let refused = self.refused.get_or_init(|| TooLarge { bytes, format });
            return Err(*refused);
        }
        Ok(())
    }
}

// === impl OnePiece ===

/// The same body, gathered as it comes. `length` is what the answer says of it.
pub(super) fn in_one_piece(body: SdkBody, length: Option<u64>, format: Format, bound: Bound) -> SdkBody {
    SdkBody::from_body_1_x(OnePiece(Some(Box::pin(gather(body, length, format, bound)))))
}

async fn gather(body: SdkBody, length: Option<u64>, format: Format, bound: Bound) -> Result<Bytes, BoxError> {
    bound.check(length.unwrap_or(0), format)?;
    let mut pieces = ByteStream::new(body);
    let Some(first) = pieces.next().await.transpose()? else { return Ok(Bytes::new()) };
    bound.check(first.len() as u64, format)?;
    let Some(second) = pieces.next().await.transpose()? else { return Ok(first) };
    // Where it does not say how long it is, what was set aside for it: a buffer that grows is larger than what is in it, and
    // for a moment there are two.
    let at_once = length.or(bound.most).unwrap_or(MOST_AT_ONCE).min(MOST_AT_ONCE);
    let mut whole = Vec::with_capacity(usize::try_from(at_once).unwrap_or(0).max(first.len()));
    whole.extend_from_slice(&first);
    drop(first);
    let mut next = Some(second);
    while let Some(piece) = next {
        bound.check(whole.len() as u64 + piece.len() as u64, format)?;
        whole.extend_from_slice(&piece);
        drop(piece);
        next = pieces.next().await.transpose()?;
    }
    whole.shrink_to_fit();
    Ok(whole.into())
}

impl Body for OnePiece {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(gathering) = &mut self.0 else { return Poll::Ready(None) };
        let gathered = std::task::ready!(gathering.as_mut().poll(context));
        self.0 = None;
        Poll::Ready(Some(gathered.map(Frame::data)))
    }
}

impl fmt::Debug for OnePiece {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "OnePiece({})", if self.0.is_some() { "to come" } else { "given" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A body that comes in these pieces.
    struct Pieces(Vec<&'static [u8]>);

    impl Body for Pieces {
        type Data = Bytes;
        type Error = BoxError;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
            let next = if self.0.is_empty() { None } else { Some(self.0.remove(0)) };
            Poll::Ready(next.map(|piece| match piece {
                b"broken" => Err("broken".into()),
                piece => Ok(Frame::data(Bytes::from_static(piece))),
            }))
        }
    }

    async fn gathered(pieces: &[&'static [u8]], length: Option<u64>, bound: &Bound) -> Result<Vec<Bytes>, String> {
        let body = SdkBody::from_body_1_x(Pieces(pieces.to_vec()));
        let body = in_one_piece(body, length, Format::Json, bound.clone());
        let collected = ByteStream::new(body).collect().await.map_err(|error| shardmill_cause::with_causes(&error))?;
        Ok(collected.into_segments().collect())
    }

    #[tokio::test]
    async fn pieces_become_one_that_belongs_to_nobody_else() {
        for length in [None, Some(9), Some(3), Some(1 << 40)] {
            let whole = gathered(&[b"abc", b"", b"def", b"ghi"], length, &Bound::default()).await.unwrap();
            assert_eq!(whole, [&b"abcdefghi"[..]], "{length:?}");
            let whole = whole.into_iter().next().unwrap().try_into_mut().unwrap();
            assert_eq!(whole.capacity(), 9, "no more is kept than came");
        }
        assert_eq!(gathered(&[b"abc"], Some(3), &Bound::default()).await.unwrap(), [&b"abc"[..]]);
        let nothing = gathered(&[], Some(0), &Bound::default()).await.unwrap();
        assert_eq!(nothing.iter().map(Bytes::len).sum::<usize>(), 0);
        assert!(gathered(&[b"abc", b"broken"], Some(9), &Bound::default()).await.unwrap_err().contains("broken"));
    }

    #[tokio::test]
    async fn what_is_larger_than_it_may_be_is_not_received() {
        for (length, refused) in [(Some(9), 9), (None, 6), (Some(1), 6)] {
            let bound = Bound::new(Some(5));
            gathered(&[b"abc", b"def", b"ghi"], length, &bound).await.unwrap_err();
            assert_eq!(bound.refused(), Some(TooLarge { bytes: refused, format: Format::Json }), "{length:?}");
        }
        let bound = Bound::new(Some(9));
        gathered(&[b"abc", b"def", b"ghi"], Some(9), &bound).await.unwrap();
        assert_eq!(bound.refused(), None);
    }

    #[test]
    fn the_service_counts_what_is_in_it_and_not_how_it_is_written() {
        let counted = |format| TooLarge { bytes: 4_000_000, format }.counted();
        assert_eq!([Format::Json, Format::Cbor].map(counted), [3_000_000, 4_000_000]);
    }
}
