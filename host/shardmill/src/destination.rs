//! A Kinesis stream as a destination of outputs.

use async_trait::async_trait;
use shardmill_cause::with_causes;
use shardmill_engine::{Destination, SendError};
use shardmill_lease::Fence;
use shardmill_producer::{BatchSender, Error, Permit, Stopped};
use shardmill_record::UserRecord;

/// One output of a processor.
pub(crate) struct StreamDestination {
    output: String,
    producer: BatchSender,
}

// === impl StreamDestination ===

impl StreamDestination {
    pub(crate) fn new(output: String, producer: BatchSender) -> Self {
        Self { output, producer }
    }
}

#[async_trait]
impl Destination for StreamDestination {
    async fn send(&self, records: Vec<UserRecord>, fence: &Fence) -> Result<(), SendError> {
        let fence = fence.clone();
        let permit = Permit::new(move || fence.check().map_err(|_| Stopped));
        match self.producer.send(records, &permit).await {
            Ok(_sent) => Ok(()),
            Err(Error::Stopped { .. }) => Err(SendError::Fenced),
            Err(error) => {
                let reason = with_causes(&error);
                Err(SendError::Refused { output: self.output.clone(), reason })
            }
        }
    }
}
