//! Letters read back from where they are kept.
//!
//! All places are looked through once for where each letter is (`index`), and then letters are read in `order`: that of
//! each shard's records, whichever place they are in and whenever they were stored. A worker that dies stores letters again
//! behind later ones, so that no place by itself has that order. What stays in memory is where letters are, about 300 bytes
//! for each; the letters of a `stream` are written to a temporary file.

mod index;
mod order;
mod stream;

use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::iter::Peekable;
use std::path::PathBuf;

use shardmill_cause::code;
use shardmill_engine::DeadLetter;
use shardmill_stream::Kinesis;

use super::identity::{Identity, LetterId};
use crate::cli::Failure;
use crate::config::may_be_one;
pub(crate) use index::unreadable_folder;
use index::{Entry, Index, LetterFile};
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
    /// The application that gave it up. Letters of others are counted.
    pub(crate) application: Option<String>,
    /// What its id begins with.
    pub(crate) id: Option<String>,
    /// The processor that gave it up.
    pub(crate) processor: Option<String>,
    /// The stream that its record came from, by its name or ARN.
    pub(crate) from: Option<String>,
    /// When it was given up at the earliest, in milliseconds since 1970.
    pub(crate) since: Option<u64>,
    /// What its reason contains, in letters of either case.
    pub(crate) reason: Option<String>,
}

/// What a consumer has said of a record, with all copies of it.
#[derive(Debug)]
pub(crate) struct Found {
    /// The first copy.
    pub(crate) letter: DeadLetter,
    pub(crate) identity: Identity,
    /// The places that have copies, by their numbers.
    pub(crate) places: BTreeSet<usize>,
    /// How many copies there are.
    pub(crate) copies: u64,
}

/// Brings the letters of places.
pub(crate) struct Letters {
    files: Vec<LetterFile>,
    entries: Peekable<std::vec::IntoIter<Entry>>,
    /// Records that stand next.
    ready: VecDeque<Vec<Found>>,
    /// The file that was read last, with its number: the next letter is most often in the same one.
    open: Option<(usize, File)>,
    /// Files that could not be read, by their numbers.
    unread: BTreeSet<usize>,
    others: u64,
}

// === impl Filter ===

impl Filter {
    fn wants(&self, letter: &DeadLetter) -> bool {
        self.processor.as_ref().is_none_or(|processor| **processor == *letter.processor)
            && self.from.as_ref().is_none_or(|stream| may_be_one(stream, &letter.stream_arn))
            && self.since.is_none_or(|since| letter.given_up_at >= since)
            && self.reason.as_ref().is_none_or(|text| letter.reason.to_lowercase().contains(&text.to_lowercase()))
            && self.id.as_ref().is_none_or(|id| LetterId::of(letter).begins_with(id))
    }

    fn is_of_application(&self, letter: &DeadLetter) -> bool {
        self.application.as_ref().is_none_or(|application| **application == *letter.application)
    }
}

// === impl Letters ===

impl Letters {
    /// Looks through places. `now` is in milliseconds since 1970.
    ///
    /// # Cancellation
    /// If this is dropped, the file in hand is looked through to its end, on a thread of its own.
    pub(crate) async fn open(places: &[Place], filter: Filter, now: u64) -> Result<Self, Failure> {
        let since = filter.since;
        let mut index = Index::new(filter);
        for (number, place) in places.iter().enumerate() {
            match place {
                Place::Folder(folder) => {
                    let folder = folder.clone();
                    for file in apart(move || index::files(&folder)).await?? {
                        index = apart(move || index.scan(number, file)).await?;
                    }
                }
                Place::Stream(stream, kinesis) => {
                    let reader = StreamReader::open(kinesis.clone(), stream, since, now).await?;
                    index.keep(number, reader).await?;
                }
            }
        }
        let Index { files, entries, unread, others, .. } = index;
        let entries = apart(move || order::in_order(entries)).await?.into_iter().peekable();
        Ok(Self { files, entries, ready: VecDeque::new(), open: None, unread, others })
    }

    /// The letters about the next record, one for each consumer that gave it up, copies taken together.
    pub(crate) fn next(&mut self) -> Option<Vec<Found>> {
        loop {
            if let Some(record) = self.ready.pop_front() {
                return Some(record);
            }
            let first = self.entries.next()?;
            self.take(&first);
            while let Some(copy) = self.entries.next_if(|next| first.is_at(next)) {
                self.take(&copy);
            }
        }
    }

    /// How many letters are left, copies included.
    pub(crate) fn left(&self) -> usize {
        self.entries.len()
    }

    /// How many letters of other applications were passed over.
    pub(crate) fn others(&self) -> u64 {
        self.others
    }

    /// An error if files could not be read. The log has named them.
    pub(crate) fn all_read(&self) -> Result<(), Failure> {
        match self.unread.len() {
            0 => Ok(()),
            files => {
                Err(Failure::running(format!("{files} files could not be read; the letters in them are left out"))
                    .code(code::dead_letters::PLACE)
                    .help("the warnings above say which and why; the same command comes back to them"))
            }
        }
    }

    fn take(&mut self, entry: &Entry) {
        let file = &self.files[entry.file];
        let letter = match file.read(entry, &mut self.open) {
            Ok(letter) => letter,
            Err(error) => {
                if self.unread.insert(entry.file) {
                    index::tell_unread(file, &error);
                }
                return;
            }
        };
        let identity = Identity::of(&letter);
        // A stream that was deleted and created again may have another record in the same place.
        let known = self.ready.iter().position(|record| record.iter().any(|found| found.identity == identity));
        let known = known.unwrap_or_else(|| {
            self.ready.push_back(Vec::new());
            self.ready.len() - 1
        });
        let record = &mut self.ready[known];
        let is_of = |found: &&mut Found| {
            (&found.letter.application, &found.letter.processor) == (&letter.application, &letter.processor)
        };
        match record.iter_mut().find(is_of) {
            Some(found) => {
                found.places.insert(file.place);
                found.copies += 1;
            }
            None => record.push(Found { letter, identity, places: BTreeSet::from([file.place]), copies: 1 }),
        }
    }
}

/// On a thread where it keeps nobody waiting.
async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| {
        Failure::running(format!("dead letters cannot be looked through: {error}")).code(code::dead_letters::PLACE)
    })
}
