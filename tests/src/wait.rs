//! Waiting with a limit.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

/// Between two looks.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(40);

/// The output of a future that must be there within this time.
pub async fn within<T>(limit: Duration, what: &str, future: impl Future<Output = T>) -> T {
    match timeout(limit, future).await {
        Ok(output) => output,
        Err(_elapsed) => panic!("not within {limit:?}: {what}"),
    }
}

/// Looks again and again until there is something; `what` says what was waited for.
pub async fn eventually<T>(limit: Duration, what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < deadline, "not within {limit:?}: {what}");
        sleep(LOOK_EVERY).await;
    }
}
