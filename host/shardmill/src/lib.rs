//! Shardmill as a library: a typed configuration becomes a running [`Host`], of which the `shardmill` binary is one
//! user.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let config = shardmill::config::load("shardmill.toml".as_ref())?;
//! let host = shardmill::Host::builder(config).build().await?;
//! let stop = tokio_util::sync::CancellationToken::new();
//! host.run(stop).await?;
//! # Ok(()) }
//! ```

pub mod admin;
pub mod aws;
pub mod cli;
mod coded;
mod compile;
pub mod config;
mod dead_letters;
mod deploy;
mod destination;
mod file;
mod fleet;
mod guest;
mod host;
pub mod local;
pub mod telemetry;
mod text;
mod unix_ms;
mod watching;

pub use host::{Bounds, Builder, Error, Host};
