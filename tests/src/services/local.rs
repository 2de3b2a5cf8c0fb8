//! The services that the binary has built in.

use std::collections::BTreeMap;
use std::time::Duration;

use tempfile::TempDir;

use super::Services;
use crate::process::{Process, command};
use crate::wait::eventually;

impl Services {
    /// Starts services on free ports.
    pub async fn start() -> Services {
        Services::start_with(&[]).await
    }

    /// Starts services that refuse what is beyond the limits of a shard, as AWS does.
    pub async fn start_limited() -> Services {
        Services::start_with(&["--enforce-limits"]).await
    }

    /// Services with a stream `input` and a stream `output` of so many shards.
    pub async fn with_streams(input_shards: i32, output_shards: i32) -> Services {
        Services::start().await.and_streams(input_shards, output_shards).await
    }

    async fn start_with(arguments: &[&str]) -> Services {
        let folder = TempDir::new().expect("a temporary folder");
        let mut local = command();
        local.args(["local", "--json"]).args(arguments);
        let mut process = Process::start(local, folder.path());
        let environment: BTreeMap<String, String> =
            eventually(Duration::from_secs(20), "the line that `shardmill local --json` prints", async || {
                assert!(process.ended().is_none(), "`shardmill local` has ended: {}", process.stderr());
                process.stdout().strip_suffix('\n').map(|line| serde_json::from_str(line).expect("one line of JSON"))
            })
            .await;
        Services::new(environment, vec![process], folder)
    }
}
