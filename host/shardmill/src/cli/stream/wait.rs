//! Waits until a stream is active, and shows that it does.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use shardmill_cause::{code, with_causes};
use shardmill_stream::{Kind, StreamStatus};
use tokio::time::{Instant, sleep};

use crate::cli::access::Access;
use crate::cli::{Failure, text};

/// DescribeStreamSummary takes 20 calls a second in an account.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The first looks come sooner: a stream on this machine is there at once.
const FIRST_LOOK: Duration = Duration::from_millis(100);
/// A stream that was just created need not be known everywhere yet; and a service that does not answer is put up with.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for as long as it takes. `what` is what it waits for, as a person would say it.
pub(super) async fn until_active(access: &Access, what: &str, quiet: bool) -> Result<(), Failure> {
    let bar = bar(quiet);
    let waited = access.unless_stopped(look_until_active(access, what, &bar)).await;
    bar.finish_and_clear();
    waited.unwrap_or_else(|| {
        let help =
            format!("the service goes on with it; `shardmill stream describe {}` shows how far it is", access.stream);
        Err(Failure::running(format!("interrupted: {what} is under way")).code(code::command::INTERRUPTED).help(help))
    })
}

async fn look_until_active(access: &Access, what: &str, bar: &ProgressBar) -> Result<(), Failure> {
    let stream = &access.stream;
    let mut pause = FIRST_LOOK;
    let mut silent_since: Option<Instant> = None;
    loop {
        match access.kinesis.describe(stream).await {
            Ok(info) => match info.status {
                StreamStatus::Active => return Ok(()),
                StreamStatus::Deleting => {
                    return Err(Failure::running(format!("stream {stream} is being deleted"))
                        .code(code::command::STREAM_CHANGE));
                }
                status => {
                    silent_since = None;
                    let shards = text::counted(u64::from(info.open_shards), "open shard");
                    bar.set_message(format!("{what}: {status}, {shards}"));
                }
            },
            Err(error) if error.is_transient() || error.kind() == Kind::NotFound => {
                if silent_since.get_or_insert_with(Instant::now).elapsed() >= PATIENCE {
                    return Err(error.into());
                }
                bar.set_message(format!("{what}: {}", text::line(&with_causes(&error))));
            }
            Err(error) => return Err(error.into()),
        }
        sleep(pause).await;
        pause = (pause * 2).min(LOOK_EVERY);
    }
}

/// On a terminal: what is waited for, and for how long.
pub(super) fn bar(quiet: bool) -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if quiet {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    let style = ProgressStyle::with_template("  {spinner} {msg}  {elapsed}");
    let bar = bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
