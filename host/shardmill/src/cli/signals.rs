//! Signals: SIGTERM, Ctrl-C, SIGHUP, and one that is better an error.

use rustix::process::Signal as Number;
use shardmill_cause::code;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::Failure;

/// Makes a write beyond the limit on the size of files an error, which is told and tried again, and no signal that ends the
/// process. For good: a handler stays. Within a runtime.
pub(crate) fn outlive_file_limits() -> std::io::Result<()> {
    signal(SignalKind::from_raw(Number::XFSZ.as_raw())).map(drop)
}

/// A token that is cancelled at the first SIGTERM, SIGINT, or SIGHUP unless somebody has set it aside (`nohup`). The second
/// one ends the process at once: whoever presses Ctrl-C twice does not want to wait.
pub(crate) fn stop_at_signal() -> Result<CancellationToken, Failure> {
    // A handler would take the place of what `nohup` has set.
    let hangup = match takes_hangup() {
        true => Some(listen(SignalKind::hangup())?),
        false => None,
    };
    stop_at(hangup)
}

/// The same, but that SIGHUP is no reason to stop: what comes second receives it, also where somebody has set it aside.
pub(crate) fn stop_or_hang_up() -> Result<(CancellationToken, Signal), Failure> {
    let hangup = listen(SignalKind::hangup())?;
    Ok((stop_at(None)?, hangup))
}

fn stop_at(mut hangup: Option<Signal>) -> Result<CancellationToken, Failure> {
    let stop = CancellationToken::new();
    let mut terminate = listen(SignalKind::terminate())?;
    let mut interrupt = listen(SignalKind::interrupt())?;
    let token = stop.clone();
    tokio::spawn(async move {
        let mut next = async || {
            tokio::select! {
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
                () = hung_up(&mut hangup) => "SIGHUP",
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

fn listen(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind)
        .map_err(|error| Failure::running(format!("signals cannot be received: {error}")).code(code::process::MACHINE))
}

async fn hung_up(hangup: &mut Option<Signal>) {
    match hangup {
        Some(hangup) => {
            hangup.recv().await;
        }
        None => std::future::pending().await,
    }
}

/// Whether SIGHUP ends this process, as far as that can be seen.
fn takes_hangup() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| !ignores(&status, Number::HUP))
}

/// Whether a signal is ignored, by what Linux says of a process; one of which it says nothing counts as ignored.
fn ignores(status: &str, signal: Number) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_none_or(|mask| mask >> (signal.as_raw() - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_is_set_aside_is_left_alone() {
        let status = |mask: &str| format!("Name:\tshardmill\nSigBlk:\t0000000000000001\nSigIgn:\t{mask}\n");
        assert!(ignores(&status("0000000000001001"), Number::HUP));
        assert!(!ignores(&status("0000000000001000"), Number::HUP));
        assert!(ignores("Name:\tshardmill\n", Number::HUP));
    }

    #[tokio::test]
    async fn a_run_hears_of_a_hangup_and_goes_on() {
        let (stop, mut hangup) = stop_or_hang_up().unwrap();
        rustix::process::kill_process(rustix::process::getpid(), Number::HUP).unwrap();
        assert!(hangup.recv().await.is_some());
        assert!(!stop.is_cancelled());
    }
}
