//! Dead letters from a user's side: a worker that gives records up, and `shardmill dead-letters`: list, show and replay, in
//! folders and streams, on the local backend.

mod folder;
mod interrupted;
mod letters;
mod marks;
mod mistakes;
mod places;
mod targets;
mod trust;
mod worker;
