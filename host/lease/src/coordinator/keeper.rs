use std::sync::Arc;
use std::time::Duration;

use shardmill_cause::with_causes;
use tokio_util::sync::CancellationToken;

use crate::fence::Lost;
use crate::writer::{Error, Writer};

/// A renewal that failed is repeated this many times before the next one would be due.
const RETRIES_PER_INTERVAL: u32 = 6;

/// How a lease ended.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) lost: Lost,
}

/// Renews a lease until it ends, and waits until its user has let it go.
pub(super) async fn keep(
    writer: Arc<Writer>,
    interval: Duration,
    draining: CancellationToken,
    gone: CancellationToken,
) -> Kept {
    let lost = renew(&writer, interval, &draining).await;
    let key = &writer.lease().key;
    let epoch = writer.lease().epoch;
    match &lost {
        Lost::Released => match writer.release().await {
            Ok(()) => tracing::info!(lease = %key, %epoch, "lease released"),
            Err(error) => {
                let error = with_causes(&error);
                tracing::warn!(lease = %key, %epoch, error, "lease let go, and not released: it is free when it has expired");
            }
        },
        Lost::Completed => tracing::info!(lease = %key, %epoch, "lease completed: its shard is done"),
        lost => tracing::warn!(lease = %key, %epoch, reason = %lost, "lease lost"),
    }
    writer.surroundings().recorder.ended(&lost);
    gone.cancelled().await;
    Kept { lost }
}

async fn renew(writer: &Writer, interval: Duration, draining: &CancellationToken) -> Lost {
    let clock = &writer.surroundings().clock;
    let mut fails = false;
    loop {
        let pause = if fails {
            interval / RETRIES_PER_INTERVAL
        } else {
            interval.saturating_sub(clock.now().saturating_since(writer.renewed_at()))
        };
        tokio::select! {
            biased;
            lost = writer.fence().lost() => return lost,
            () = tokio::time::sleep(pause) => {}
        }
        match writer.renew(interval / 2).await {
            Ok(()) => {
                if fails {
                    tracing::info!(lease = %writer.lease().key, "lease is renewed again");
                }
                fails = false;
                if writer.is_handing_off() {
                    draining.cancel();
                }
            }
            Err(Error::Lost(lost)) => return lost,
            Err(error) => {
                if !fails {
                    let error = with_causes(&error);
                    tracing::warn!(lease = %writer.lease().key, error, "lease cannot be renewed; trying until it expires");
                }
                fails = true;
            }
        }
    }
}
