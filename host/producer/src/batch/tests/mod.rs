//! Batches without a network.

mod cases;
mod simulation;
