//! An application of the KCL for Java and this project on one lease table, one after the other: whatever one has left half
//! done the other carries on, and nothing is lost. The KCL is the one of Maven Central (`tests/kcl`), against the built-in
//! services.
//!
//! A KCL waits up to half a minute before it fills a table that is empty, so these tests are not among those of `make test`.

mod alive;
mod application;
mod back;
mod reshard;
mod table;
mod taken_over;

use shardmill_tests::{Config, Leases, Services, Worker};

use crate::application::Kcl;

/// How a program ends in the middle of its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// SIGTERM: what is in flight is checkpointed.
    Clean,
    /// SIGKILL.
    Killed,
}

// === impl End ===

impl End {
    async fn of_kcl(self, kcl: &mut Kcl) {
        match self {
            End::Clean => kcl.stop().await,
            End::Killed => kcl.kill().await,
        }
    }

    async fn of_worker(self, worker: &mut Worker) {
        match self {
            End::Clean => worker.stop().await,
            End::Killed => worker.kill().await,
        }
    }
}

/// The KCL has no release: its leases are free when they expire.
fn config() -> Config {
    Config::copy().leases(Leases::Brief).processor(r#"checkpoint-interval = "300ms""#)
}

async fn services(input_shards: i32) -> Services {
    Services::with_streams(input_shards, 2).await
}
