//! Dead letters: records that are given up, kept with why and with all that it takes to process them again.
//!
//! `letter` is their form, one JSON object; `identity` by what they are known. They are kept in a `folder` or as `records` of
//! a stream, in `parts` where they are too large for one. `read` brings them back for the command line, and `marks` notes
//! which have been sent again.

mod folder;
pub(crate) mod identity;
mod letter;
mod marks;
mod metrics;
mod parts;
pub(crate) mod read;
mod records;
pub(crate) mod replay;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shardmill_engine::{DeadLetters, Destination};
use shardmill_producer::BatchSender;

use crate::aws::Clients;
use crate::config::{self, Processor};
use crate::destination::StreamDestination;
use folder::Folder;
use records::Records;

#[cfg(test)]
pub(crate) use letter::tests::letter as any_letter;
pub(crate) use letter::to_json;
pub(crate) use marks::Marks;
pub(crate) use metrics::Metrics;

/// A folder that dead letters cannot be kept in.
#[derive(Debug, thiserror::Error)]
#[error("dead letters cannot be kept in the folder {}: {source}; correct `folder` in [processors.{processor}.dead-letters], or let this process write there", path.display())]
pub struct Error {
    processor: String,
    path: PathBuf,
    source: io::Error,
}

/// What places are made of.
pub(crate) struct Surroundings<'a> {
    pub(crate) worker: &'a str,
    pub(crate) clients: &'a Clients,
    pub(crate) producer_metrics: &'a shardmill_producer::Metrics,
    pub(crate) metrics: &'a Metrics,
}

/// The place for a processor's dead letters, if it has one. Looks at a folder, and at no stream.
///
/// # Panics
/// Outside a tokio runtime.
pub(crate) fn place(
    processor: &Processor,
    outputs: &BTreeMap<String, Arc<dyn Destination>>,
    surroundings: &Surroundings<'_>,
) -> Result<Option<Arc<dyn DeadLetters>>, Error> {
    let Some(place) = &processor.dead_letters else { return Ok(None) };
    let metrics = |place| surroundings.metrics.of_place(&processor.name, place);
    Ok(Some(match place {
        config::DeadLetters::Folder { path, file_bytes } => {
            let folder = open(path, *file_bytes, processor, surroundings.worker, metrics("folder"))?;
            Arc::new(folder)
        }
        config::DeadLetters::Stream { stream, aggregate } => {
            let options = shardmill_producer::BatchOptions { aggregate: *aggregate, ..Default::default() };
            let producer = BatchSender::new(
                surroundings.clients.producer_of(stream).clone(),
                stream.clone(),
                options,
                surroundings.producer_metrics.clone(),
                rand::random(),
            );
            let destination = Arc::new(StreamDestination::new("dead letters".to_owned(), producer));
            Arc::new(Records::new(format!("the stream {stream}"), destination, metrics("stream")))
        }
        config::DeadLetters::Output { output } => {
            // The configuration names no other: it is checked when it is read.
            let Some(destination) = outputs.get(output) else { return Ok(None) };
            Arc::new(Records::new(format!("the output {output}"), Arc::clone(destination), metrics("output")))
        }
    }))
}

fn open(
    path: &Path,
    file_bytes: u64,
    processor: &Processor,
    worker: &str,
    metrics: metrics::PlaceMetrics,
) -> Result<Folder, Error> {
    Folder::open(path, file_bytes, &processor.name, worker, rand::random(), metrics).map_err(|source| Error {
        processor: processor.name.clone(),
        path: path.to_owned(),
        source,
    })
}
