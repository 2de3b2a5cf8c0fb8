//! What changes the version that a processor of this worker runs, as the fleet's side needs it.

use std::path::PathBuf;
use std::time::SystemTime;

use async_trait::async_trait;
use shardmill_cause::with_causes;
use shardmill_plugin::Digest;

use crate::deploy::{Candidate, Deployer};

/// Changes versions.
#[async_trait]
pub(crate) trait Switch: Send + Sync + 'static {
    /// Lets a processor run this module from its next batches on.
    ///
    /// # Errors
    /// Why it is refused; nothing has changed then.
    async fn switch(&self, processor: &str, module: Fetched) -> Result<(), String>;

    /// What a processor runs. `None` for one that this worker has not.
    fn running(&self, processor: &str) -> Option<Running>;

    /// Tells no more that this version was refused: nobody wants it any more.
    fn forget_refused(&self, processor: &str, digest: &Digest);
}

#[async_trait]
impl Switch for Deployer {
    async fn switch(&self, processor: &str, module: Fetched) -> Result<(), String> {
        let Fetched { bytes, digest, from } = module;
        let candidate = Candidate { bytes, from, expect: Some(digest) };
        self.deploy(processor, candidate).await.map(drop).map_err(|refusal| with_causes(&refusal))
    }

    fn running(&self, processor: &str) -> Option<Running> {
        let running = self.running().remove(processor)?;
        let (path, file) = self.own(processor)?;
        Some(Running { digest: running.digest, since: running.since, path, file })
    }

    fn forget_refused(&self, processor: &str, digest: &Digest) {
        self.forget_refused(processor, digest);
    }
}

/// A module that has the digest that was wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fetched {
    pub(crate) bytes: Vec<u8>,
    pub(crate) digest: Digest,
    /// Where it comes from, as it is shown to people.
    pub(crate) from: String,
}

/// What a processor runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Running {
    pub(crate) digest: Digest,
    pub(crate) since: SystemTime,
    /// The file that the configuration names.
    pub(crate) path: PathBuf,
    /// The last version of that which was taken: what runs unless another one was deployed.
    pub(crate) file: Digest,
}
