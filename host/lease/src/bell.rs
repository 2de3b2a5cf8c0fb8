use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

use crate::LeaseKey;

/// Calls the coordinator to look now: something has changed, and these leases may be free.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    keys: Mutex<Vec<LeaseKey>>,
    notify: Notify,
}

// === impl Bell ===

impl Bell {
    pub(crate) fn ring(&self, keys: Vec<LeaseKey>) {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).extend(keys);
        self.notify.notify_one();
    }

    /// Waits for a call, and returns the leases of all that came since.
    pub(crate) async fn rung(&self) -> Vec<LeaseKey> {
        self.notify.notified().await;
        std::mem::take(&mut self.keys.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
