//! `shardmill dead-letters` from a user's side: list, show and replay, in folders and streams, on the local backend.

mod folder;
mod interrupted;
mod letters;
mod mistakes;
mod places;
