//! Leases: which worker processes which shard, how far it is, and who may still write.
//!
//! A [`Coordinator`] takes a worker's share of the leases in a [`store::Store`], renews them, and hands each to the
//! user as a [`HeldLease`]. A held lease's [`Fence`] says at every moment whether it is still held; all writes to it go
//! through one writer. The rules are pure: [`change`] (what a write does), `observer` (what has expired),
//! [`balance`] (who should have what), [`audit`](mod@audit) (what nobody reads), [`clear`] (what can be deleted).

pub mod audit;
pub mod balance;
mod bell;
pub mod change;
pub mod clear;
mod clock;
mod coded;
mod coordinator;
mod fence;
mod fleet;
mod held;
mod lease;
mod metrics;
mod note;
mod observer;
#[doc(hidden)]
pub mod one_lease;
mod options;
mod recorder;
mod roster;
mod settling;
pub mod store;
mod twin;
mod writer;

pub use clock::{Clock, Moment, SystemClock, TokioClock};
pub use coordinator::{Coordinator, Event, ForeignWorker, Handle, RunError, ShardSource, Survey, TableTrouble, View};
pub use fence::{Fence, Lost};
pub use held::HeldLease;
pub use lease::{InvalidName, Lease, LeaseEpoch, LeaseKey, NewLease, StreamKey, WorkerId};
pub use metrics::Metrics;
pub use note::Note;
pub use options::{Invalid as InvalidOptions, Options, Takeover};
pub use roster::{FleetWorker, Roster};
pub use twin::Twin;
pub use writer::Error;
