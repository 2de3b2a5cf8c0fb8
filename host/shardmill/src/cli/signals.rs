//! SIGTERM and Ctrl-C.

use tokio_util::sync::CancellationToken;

use super::Failure;

/// A token that is cancelled at the first SIGTERM or SIGINT. The second one ends the process at once: whoever
/// presses Ctrl-C twice does not want to wait.
pub(crate) fn stop_at_signal() -> Result<CancellationToken, Failure> {
    use tokio::signal::unix::{SignalKind, signal};

    let stop = CancellationToken::new();
    let failed = |error| Failure::running(format!("signals cannot be received: {error}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let token = stop.clone();
    tokio::spawn(async move {
        let mut next = async || {
            tokio::select! {
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
            }
        };
        let name = next().await;
        tracing::info!(signal = name, "stopping: what is in flight is finished, checkpointed and released");
        token.cancel();
        let name = next().await;
        tracing::warn!(signal = name, "stopping at once; what is in flight will be repeated");
        std::process::exit(130);
    });
    Ok(stop)
}
