//! Signals: SIGTERM, Ctrl-C, and one that is better an error.

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::Failure;

/// Makes a write beyond the limit on the size of files an error, which is told and tried again, and no signal that ends the
/// process. For good: a handler stays. Within a runtime.
pub(crate) fn outlive_file_limits() -> std::io::Result<()> {
    signal(SignalKind::from_raw(Signal::XFSZ.as_raw())).map(drop)
}

/// A token that is cancelled at the first SIGTERM or SIGINT. The second one ends the process at once: whoever
/// presses Ctrl-C twice does not want to wait.
pub(crate) fn stop_at_signal() -> Result<CancellationToken, Failure> {
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
