//! Guests that were compiled from `tests/guests`, run by the whole room: what they may do, and what they may not.

mod calls;
mod containment;
mod fixtures;
mod forge;
mod hostile;
mod loading;
mod pool;
mod reach;
mod speech;
mod support;
mod threads;
