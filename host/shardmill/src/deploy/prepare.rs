//! Another version of a plugin beside the one that runs.

use shardmill_plugin::{Failure, Instance, Module, Plugin, Pool, Runtime};
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
    let pool = slot.pool();
    let wanted = warm(pool.size(), pool.instances(), plugin.instances_of_processor());
    let first = plugin.instance().await.map_err(Refusal::Start)?;
    let mut ready = Vec::new();
    match &setup.trial {
        // What it has seen of the trial is nothing that real records should meet.
        Some(trial) => trial::run(trial, &plugin, first).await?,
        None => ready.push(first),
    }
    warm_up(&plugin, wanted, &mut ready).await?;
    Ok(Prepared { plugin, warm: ready, from })
}

/// How many instances are made beforehand: as many as the version before has, and no more than the engine keeps room for when
/// `all` that there are of the processor stay: calls that hang have an instance of a version that was current long ago. Those
/// that a pool has beyond its size while some are replaced must have room as well, in the next pool and in the one before.
fn warm(size: usize, had: usize, all: usize) -> usize {
    let beyond = 2 * Pool::BEYOND as usize;
    let room = Pool::reserve(size).saturating_sub(all.saturating_add(beyond));
    had.min(room).max(1)
}

/// Makes as many instances as the version before has, or as there is room for: shards that are busy would each wait for
/// the `init` of its own. One after the other, because calls want the threads too, and for no longer than one start may
/// take.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_warm_as_there_were_before_while_there_is_room_for_them() {
        assert_eq!([warm(4, 0, 0), warm(4, 1, 1), warm(4, 4, 4), warm(1, 1, 1)], [1, 1, 4, 1]);
        assert_eq!(warm(256, 256, 256), 256);
    }

    #[test]
    fn deploys_one_after_the_other_over_calls_that_hang_stay_within_what_is_reserved() {
        for size in 1..=64 {
            for hung in 0..=size {
                // The calls of the first version hang, and of each later one all that are warm are there when the next comes.
                let mut last = size - hung;
                for deploy in 0..5 {
                    let had = size.min(hung + last);
                    let next = warm(size, had, hung + last);
                    let beyond = 2 * Pool::BEYOND as usize;
                    assert!(
                        hung + last + next + beyond <= Pool::reserve(size),
                        "deploy {deploy}: {hung} of {size} hang, {last} of the version before, {next} of the next"
                    );
                    assert!(hung > 0 || next == size, "in a deploy over nothing that hangs, as many as before");
                    last = next;
                }
            }
        }
    }
}
