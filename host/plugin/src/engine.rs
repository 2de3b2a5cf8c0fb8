//! Engines, and what of one an instance of a guest may take.
//!
//! Memories, tables and core instances come from a pool of all processors together. There is a share of it for each
//! instance that there may be, and no guest is loaded that needs more than one: however many instances others have, the
//! shares of a processor are there.

use wasmtime::{Config, Engine, InstanceAllocationStrategy, PoolingAllocationConfig};

use crate::runtime::Error;

/// Core instances of one instance of a guest; a Python guest has 38. They are counted, and nothing is set aside.
pub(crate) const CORE_INSTANCES: u32 = 256;
/// Memories of one: a guest has one for each program that it is made of. Each takes 4 GiB of the address space.
pub(crate) const MEMORIES: u32 = 8;
/// Where the address space has no room for so many.
const FEWER_MEMORIES: [u32; 2] = [4, 2];
/// Tables of one: a program has up to three.
pub(crate) const TABLES: u32 = 16;
/// Entries of one table; compilers that put every function of a large program into one table need tens of thousands.
const TABLE_ENTRIES: usize = 100_000;

/// What is reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Reserve {
    instances: u32,
    /// Of each.
    memories: u32,
}

/// An engine that compiles the same code as one with instances, and takes no address space.
pub(crate) fn compiling() -> wasmtime::Result<Engine> {
    Engine::new(&config())
}

/// An engine whose instances come from a pool that is reserved once, as large as the address space allows: a pool for
/// 256 instances reserves 8 TiB of it, which a limit on the process (`ulimit -v`) may refuse.
pub(crate) fn with_pool(max_instances: u32) -> Result<Engine, Error> {
    let wanted = max_instances.max(1);
    for reserve in reserves(wanted) {
        match Engine::new(config().allocation_strategy(pool(reserve))) {
            Ok(engine) => {
                let Reserve { instances, memories } = reserve;
                if instances < wanted {
                    tracing::warn!(
                        instances,
                        wanted,
                        "the address space has room for fewer guest instances than configured: raise `ulimit -v`"
                    );
                } else if memories < MEMORIES {
                    tracing::info!(
                        memories,
                        "the address space has no room for guests of more memories than this: raise `ulimit -v` for such"
                    );
                }
                return Ok(engine);
            }
            Err(error) => tracing::debug!(?reserve, %error, "no pool of this size"),
        }
    }
    tracing::warn!("no pool of guest instances fits the address space: each is given its memory when it is made");
    let strategy = InstanceAllocationStrategy::OnDemand;
    Engine::new(config().allocation_strategy(strategy)).map_err(|error| Error::Engine(format!("{error:#}")))
}

/// What is tried to reserve, one after the other. Most guests have one memory, so all instances with fewer memories are more
/// than fewer instances.
fn reserves(wanted: u32) -> impl Iterator<Item = Reserve> {
    let all = [MEMORIES].into_iter().chain(FEWER_MEMORIES);
    let all = all.map(move |memories| Reserve { instances: wanted, memories });
    let [.., fewest] = FEWER_MEMORIES;
    let part = [2, 4, 16].map(|part| Reserve { instances: wanted.div_ceil(part), memories: fewest });
    all.chain(part)
}

fn config() -> Config {
    let mut config = Config::new();
    config.wasm_component_model(true).epoch_interruption(true);
    config
}

fn pool(Reserve { instances, memories }: Reserve) -> PoolingAllocationConfig {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(instances)
        .total_stacks(instances)
        .total_core_instances(instances.saturating_mul(CORE_INSTANCES))
        .total_memories(instances.saturating_mul(memories))
        .total_tables(instances.saturating_mul(TABLES))
        .max_core_instances_per_component(CORE_INSTANCES)
        .max_memories_per_component(memories)
        .max_tables_per_component(TABLES)
        .max_memories_per_module(memories)
        .max_tables_per_module(TABLES)
        .table_elements(TABLE_ENTRIES);
    pool
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_instances_are_reserved_before_fewer_are() {
        let reserves: Vec<_> = reserves(10).map(|reserve| (reserve.instances, reserve.memories)).collect();
        assert_eq!(reserves, [(10, 8), (10, 4), (10, 2), (5, 2), (3, 2), (1, 2)]);
    }
}
