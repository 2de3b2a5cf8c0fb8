//! Another version of a plugin beside the one that runs.

use shardmill_plugin::{Failure, Instance, Module, Plugin, Runtime};
use tokio::time::Instant;

use super::{Refusal, Setup, Slot, trial};

/// A version that is ready.
pub(super) struct Prepared {
    pub(super) plugin: Plugin,
    /// Instances that have run `init`: shards go on at once with them.
    pub(super) warm: Vec<Instance>,
    pub(super) from: String,
}

/// From a file's bytes.
pub(super) async fn load(
    runtime: &Runtime,
    slot: &Slot,
    setup: &Setup,
    bytes: Vec<u8>,
    from: &str,
) -> Result<Prepared, Refusal> {
    // A file that is no guest is refused before anything is compiled.
    let module = runtime.load_within(from, bytes, &setup.load).await?;
    start(runtime, slot, setup, module, from.to_owned()).await
}

/// Of a module that has been loaded.
pub(super) async fn start(
    runtime: &Runtime,
    slot: &Slot,
    setup: &Setup,
    module: Module,
    from: String,
) -> Result<Prepared, Refusal> {
    let plugin = Plugin::new(runtime, module, setup.settings.clone())?;
    let first = plugin.instance().await.map_err(Refusal::Start)?;
    let mut warm = Vec::new();
    match &setup.trial {
        // What it has seen of the trial is nothing that real records should meet.
        Some(trial) => trial::run(trial, &plugin, first).await?,
        None => warm.push(first),
    }
    warm_up(&plugin, slot.pool().instances().max(1), &mut warm).await?;
    Ok(Prepared { plugin, warm, from })
}

/// Makes as many instances as the version before has: shards that are busy would each wait for the `init` of its own. One
/// after the other, because calls want the threads too, and for no longer than one start may take.
async fn warm_up(plugin: &Plugin, wanted: usize, warm: &mut Vec<Instance>) -> Result<(), Refusal> {
    let began = Instant::now();
    while warm.len() < wanted && (warm.is_empty() || began.elapsed() < plugin.limits().start_timeout) {
        match plugin.instance().await {
            Ok(instance) => warm.push(instance),
            // There is one, and others may be made when they are needed.
            Err(Failure::Host(reason)) if !warm.is_empty() => {
                tracing::debug!(processor = plugin.processor(), reason, "fewer warm instances than there were");
                return Ok(());
            }
            Err(failure) => return Err(Refusal::Start(failure)),
        }
    }
    Ok(())
}
