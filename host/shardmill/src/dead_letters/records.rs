//! Dead letters in a stream: one of their own, or that of an output.

use std::sync::Arc;

use async_trait::async_trait;
use shardmill_engine::{DeadLetter, DeadLetterError, DeadLetters, Destination, SendError};
use shardmill_lease::Fence;

use super::metrics::PlaceMetrics;
use super::parts;

/// A destination that takes dead letters as records.
pub(crate) struct Records {
    /// As messages name it.
    place: String,
    destination: Arc<dyn Destination>,
    metrics: PlaceMetrics,
}

// === impl Records ===

impl Records {
    pub(crate) fn new(place: String, destination: Arc<dyn Destination>, metrics: PlaceMetrics) -> Self {
        Self { place, destination, metrics }
    }
}

#[async_trait]
impl DeadLetters for Records {
    async fn store(&self, letters: Vec<DeadLetter>, fence: &Fence) -> Result<(), DeadLetterError> {
        let count = letters.len();
        let _waiting = self.metrics.waiting(count);
        let records = letters.iter().flat_map(parts::records).collect();
        drop(letters);
        match self.destination.send(records, fence).await {
            Ok(()) => {
                self.metrics.stored(count);
                Ok(())
            }
            Err(SendError::Fenced) => Err(DeadLetterError::Fenced),
            Err(SendError::Refused { reason, .. }) => {
                self.metrics.failed();
                Err(DeadLetterError::Refused { place: self.place.clone(), reason })
            }
        }
    }
}
