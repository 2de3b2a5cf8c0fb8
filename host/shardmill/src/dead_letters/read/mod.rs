//! Letters read back from where they are kept, each once: a letter may be stored twice.

mod folder;
mod order;
mod stream;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shardmill_cause::with_causes;
use shardmill_engine::DeadLetter;
use shardmill_stream::Kinesis;

use super::identity::Identity;
use crate::cli::Failure;
use folder::FolderReader;
use stream::StreamReader;

/// Where letters are kept.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    /// Files in a folder.
    Folder(PathBuf),
    /// Records of a stream, by its name or ARN, with its region's service.
    Stream(String, Kinesis),
}

/// Which letters are wanted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filter {
    /// What its id begins with.
    pub(crate) id: Option<String>,
    /// The processor that gave it up.
    pub(crate) processor: Option<String>,
    /// When it was given up at the earliest, in milliseconds since 1970.
    pub(crate) since: Option<u64>,
    /// What its reason contains, in letters of either case.
    pub(crate) reason: Option<String>,
}

/// A letter that was found.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) letter: DeadLetter,
    pub(crate) identity: Identity,
    /// The place that it is in, by its number.
    pub(crate) place: usize,
}

/// Brings the letters of some places, one place after another.
pub(crate) struct Letters {
    places: Vec<Place>,
    /// The next place to be opened.
    next: usize,
    reading: Option<Reading>,
    filter: Filter,
    now: u64,
    /// What has been brought, by record and consumer.
    seen: HashSet<(Identity, u32)>,
    consumers: HashMap<(Arc<str>, Arc<str>), u32>,
    repeats: u64,
}

enum Reading {
    Folder(FolderReader),
    Stream(Box<StreamReader>),
}

// === impl Filter ===

impl Filter {
    fn wants(&self, letter: &DeadLetter, identity: &Identity) -> bool {
        self.processor.as_ref().is_none_or(|processor| **processor == *letter.processor)
            && self.since.is_none_or(|since| letter.given_up_at >= since)
            && self.reason.as_ref().is_none_or(|text| letter.reason.to_lowercase().contains(&text.to_lowercase()))
            && self.id.as_ref().is_none_or(|id| identity.id.begins_with(id))
    }
}

// === impl Letters ===

impl Letters {
    /// `now` is in milliseconds since 1970.
    pub(crate) fn new(places: Vec<Place>, filter: Filter, now: u64) -> Self {
        Self {
            places,
            next: 0,
            reading: None,
            filter,
            now,
            seen: HashSet::new(),
            consumers: HashMap::new(),
            repeats: 0,
        }
    }

    /// The next letter that is wanted and has not been brought. Of letters that are the same the first one comes.
    pub(crate) async fn next(&mut self) -> Result<Option<Found>, Failure> {
        loop {
            let letter = match &mut self.reading {
                Some(Reading::Folder(reader)) => reader.next().map_err(|error| unreadable(&error))?,
                Some(Reading::Stream(reader)) => reader.next().await?,
                None => {
                    if !self.open_next().await? {
                        return Ok(None);
                    }
                    continue;
                }
            };
            let Some(letter) = letter else {
                self.reading = None;
                continue;
            };
            let identity = Identity::of(&letter);
            if !self.filter.wants(&letter, &identity) {
                continue;
            }
            let count = u32::try_from(self.consumers.len()).unwrap_or(u32::MAX);
            let consumer = (Arc::clone(&letter.application), Arc::clone(&letter.processor));
            let consumer = *self.consumers.entry(consumer).or_insert(count);
            if self.seen.insert((identity, consumer)) {
                return Ok(Some(Found { letter, identity, place: self.next - 1 }));
            }
            self.repeats += 1;
        }
    }

    /// How many letters were passed over because they had been brought.
    pub(crate) fn repeats(&self) -> u64 {
        self.repeats
    }

    /// How many letters are left in the place that is being read, wanted or not, if that is known.
    pub(crate) fn left(&self) -> Option<usize> {
        match &self.reading {
            Some(Reading::Folder(reader)) => Some(reader.len()),
            Some(Reading::Stream(_)) | None => None,
        }
    }

    /// Whether there was one.
    async fn open_next(&mut self) -> Result<bool, Failure> {
        let Some(place) = self.places.get(self.next) else { return Ok(false) };
        self.reading = Some(match place {
            Place::Folder(folder) => {
                Reading::Folder(FolderReader::open(folder).map_err(|error| unreadable_folder(folder, &error))?)
            }
            Place::Stream(stream, kinesis) => {
                let reader = StreamReader::open(kinesis.clone(), stream, self.filter.since, self.now).await?;
                Reading::Stream(Box::new(reader))
            }
        });
        self.next += 1;
        Ok(true)
    }
}

/// A folder that is not there, or that this process may not read.
pub(crate) fn unreadable_folder(folder: &Path, error: &std::io::Error) -> Failure {
    Failure::configuration(format!("dead letters cannot be read from the folder {}: {error}", folder.display()))
        .help("name the folder that workers write to, as this machine sees it")
}

fn unreadable(error: &std::io::Error) -> Failure {
    Failure::running(format!("a dead letter cannot be read: {}", with_causes(error)))
}
