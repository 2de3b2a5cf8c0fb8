//! Version 0.1 of the contract.

mod bindings;
mod columns;
mod convert;
pub mod fuzzing;
#[cfg(test)]
mod hostile;
mod imports;

use shardmill_record::Batch;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{ComponentNamedList, Instance, InstancePre, Lift, Linker, Lower};
use wasmtime::{Result, Store};

use self::bindings::exports::shardmill::processor::{batch, columnar, hooks};
use self::bindings::shardmill::processor::types;
use super::{Event, Returned};
use crate::host::Host;
use crate::interface::Contract;
use crate::{Form, HookOutcome, Need, Outcome, ShardContext};

/// Where a component's exports are.
#[derive(Clone)]
pub(crate) struct Indices {
    process: ProcessIndices,
    hooks: Option<hooks::GuestIndices>,
}

#[derive(Clone)]
enum ProcessIndices {
    Rows(batch::GuestIndices),
    Columnar(columnar::GuestIndices),
}

/// One instance's exports.
pub(crate) struct Exports {
    process: Process,
    hooks: Option<hooks::Guest>,
}

enum Process {
    Rows(batch::Guest),
    Columnar(columnar::Guest),
}

/// What guests of this version may import.
pub(crate) fn link(linker: &mut Linker<Host>, has: impl Fn(Need) -> bool) -> Result<()> {
    imports::link(linker, has)
}

// === impl Indices ===

impl Indices {
    /// Finds the exports, and checks their types.
    pub(crate) fn find(pre: &InstancePre<Host>, contract: Contract) -> Result<Self> {
        const BATCH: &str = "shardmill:processor/batch@0.1.0";
        const COLUMNAR: &str = "shardmill:processor/columnar@0.1.0";
        const HOOKS: &str = "shardmill:processor/hooks@0.1.0";
        type Context<'a> = types::ShardContext<'a>;
        type Init = (std::result::Result<(), String>,);
        type Processed<Outcome> = (std::result::Result<Outcome, types::ProcessError>,);
        type Hook = Processed<hooks::HookOutcome>;
        let process = match contract.form {
            Form::Rows => {
                type Rows<'a> = &'a [batch::UserRecord<'a>];
                check_type::<(&str,), Init>(pre, BATCH, "init")?;
                check_type::<(Context<'_>, Rows<'_>), Processed<batch::Outcome>>(pre, BATCH, "process-batch")?;
                ProcessIndices::Rows(batch::GuestIndices::new(pre)?)
            }
            Form::Columnar => {
                type Columns<'a> = columnar::RecordColumns<'a>;
                check_type::<(&str,), Init>(pre, COLUMNAR, "init")?;
                check_type::<(Context<'_>, Columns<'_>), Processed<columnar::Outcome>>(pre, COLUMNAR, "process-batch")?;
                ProcessIndices::Columnar(columnar::GuestIndices::new(pre)?)
            }
        };
        let hooks = if contract.hooks {
            type GivenUp<'a> = &'a [hooks::GivenUpRecord<'a>];
            check_type::<(u64, Context<'_>), Hook>(pre, HOOKS, "assigned")?;
            check_type::<(u64, Context<'_>, u64), Hook>(pre, HOOKS, "revoked")?;
            check_type::<(u64, Context<'_>), Hook>(pre, HOOKS, "shard-ended")?;
            check_type::<(u64, Context<'_>), Hook>(pre, HOOKS, "idle")?;
            check_type::<(u64, Context<'_>, GivenUp<'_>), Hook>(pre, HOOKS, "given-up")?;
            check_type::<(), Init>(pre, HOOKS, "shutdown")?;
            Some(hooks::GuestIndices::new(pre)?)
        } else {
            None
        };
        Ok(Self { process, hooks })
    }

    pub(crate) fn load(&self, store: &mut Store<Host>, instance: &Instance) -> Result<Exports> {
        let process = match &self.process {
            ProcessIndices::Rows(indices) => Process::Rows(indices.load(&mut *store, instance)?),
            ProcessIndices::Columnar(indices) => Process::Columnar(indices.load(&mut *store, instance)?),
        };
        let hooks = match &self.hooks {
            Some(indices) => Some(indices.load(&mut *store, instance)?),
            None => None,
        };
        Ok(Exports { process, hooks })
    }
}

/// Whether a function has the contract's types, before there is an instance: the name alone does not tell.
fn check_type<Params, Returned>(pre: &InstancePre<Host>, interface: &str, name: &str) -> Result<()>
where
    Params: ComponentNamedList + Lower,
    Returned: ComponentNamedList + Lift,
{
    let exports = pre.component();
    let found = exports.get_export_index(None, interface);
    let function = found.and_then(|interface| exports.get_export(Some(&interface), name));
    let Some((ComponentItem::ComponentFunc(function), _)) = function else {
        wasmtime::bail!("{interface} has no function `{name}`");
    };
    let typed = function.typecheck::<Params, Returned>(&pre.instance_type());
    typed.map_err(|error| error.context(format!("`{name}` of {interface} has other types than the contract's")))
}

// === impl Exports ===

impl Exports {
    pub(crate) async fn init(&self, store: &mut Store<Host>, config: &str) -> Result<std::result::Result<(), String>> {
        match &self.process {
            Process::Rows(guest) => guest.call_init(store, config).await,
            Process::Columnar(guest) => guest.call_init(store, config).await,
        }
    }

    pub(crate) async fn process_batch(
        &self,
        store: &mut Store<Host>,
        shard: &ShardContext,
        records: &Batch,
    ) -> Result<Returned<Outcome>> {
        let context = convert::shard_context(shard);
        let mask = store.data().mask().clone();
        match &self.process {
            Process::Rows(guest) => {
                let returned = guest.call_process_batch(store, context, &convert::rows(records)).await?;
                Ok(returned
                    .map(|outcome| convert::rows_outcome(outcome, &mask))
                    .map_err(|error| convert::process_error(error, &mask)))
            }
            Process::Columnar(guest) => {
                let returned = guest.call_process_batch(store, context, convert::columns(records)).await?;
                Ok(returned
                    .map(|outcome| columns::outcome(outcome, &mask))
                    .map_err(|error| convert::process_error(error, &mask)))
            }
        }
    }

    /// Tells the guest of an event; nothing happens if it has no hooks.
    pub(crate) async fn hook(
        &self,
        store: &mut Store<Host>,
        id: u64,
        shard: &ShardContext,
        event: Event,
    ) -> Result<Returned<HookOutcome>> {
        let Some(guest) = &self.hooks else { return Ok(Ok(Ok(HookOutcome::default()))) };
        let (context, mask) = (convert::shard_context(shard), store.data().mask().clone());
        let returned = match event {
            Event::Assigned => guest.call_assigned(store, id, context).await?,
            Event::Revoked { time_left_ms } => guest.call_revoked(store, id, context, time_left_ms).await?,
            Event::ShardEnded => guest.call_shard_ended(store, id, context).await?,
            Event::Idle => guest.call_idle(store, id, context).await?,
            Event::GivenUp(records) => {
                let records: Vec<_> = records.iter().map(convert::given_up_record).collect();
                guest.call_given_up(store, id, context, &records).await?
            }
        };
        Ok(returned
            .map(|outcome| convert::hook_outcome(outcome, &mask))
            .map_err(|error| convert::process_error(error, &mask)))
    }

    /// Tells the guest that its instance ends; nothing happens if it has no hooks.
    pub(crate) async fn shutdown(&self, store: &mut Store<Host>) -> Result<std::result::Result<(), String>> {
        match &self.hooks {
            Some(guest) => guest.call_shutdown(store).await,
            None => Ok(Ok(())),
        }
    }
}
