//! Records for other streams, written straight into the columns that go to the host.

use std::io::Write;

use serde::Serialize;

/// The longest partition key that Kinesis takes (PutRecord, `PartitionKey`), in Unicode characters.
const LONGEST_PARTITION_KEY: usize = 256;

/// An output that cannot exist. No further attempt can help.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The partition key is empty or too long.
    #[error(
        "output {output:?}: a partition key has 1 to {LONGEST_PARTITION_KEY} characters, this one has {characters}"
    )]
    PartitionKey {
        /// The output's name.
        output: String,
        /// The key's length in Unicode characters.
        characters: usize,
    },
    /// The value cannot be written as JSON.
    #[error("output {output:?}: the value cannot be written as JSON: {source}")]
    Json {
        /// The output's name.
        output: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// All outputs of a call together are more than the interface can carry.
    #[error("output {output:?}: the outputs of one batch exceed 4 GiB")]
    TooLarge {
        /// The output's name.
        output: String,
    },
}

/// Why an output exists. The host orders, identifies and drops outputs by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The record at this place of the batch. If it is reported as failed, the output is dropped.
    Record(u32),
    /// The batch as a whole.
    Batch,
    /// The call of a hook.
    Hook(u64),
}

/// An output in the making. It exists once it is given its data: end with [`json`](Emit::json),
/// [`bytes`](Emit::bytes) or [`text`](Emit::text).
#[derive(Debug)]
#[must_use = "an output exists once it is given its data: end with json, bytes or text"]
pub struct Emit<'o, 'k> {
    columns: &'o mut Columns,
    name: &'k str,
    cause: Cause,
    partition_key: &'k str,
    /// The explicit hash key of the record that caused the output; holds as long as its partition key does.
    inherited_hash_key: Option<&'k str>,
    explicit_hash_key: Option<u128>,
}

/// The outputs of one call, in the columns of the interface.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    pub(crate) names: Vec<String>,
    pub(crate) name_indexes: Vec<u32>,
    pub(crate) arena: Vec<u8>,
    /// Three a row: partition key, explicit hash key (0: none), data.
    pub(crate) lengths: Vec<u32>,
    pub(crate) causes: Vec<Cause>,
}

/// One output read back from the columns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    pub(crate) name: &'a str,
    pub(crate) partition_key: &'a str,
    pub(crate) explicit_hash_key: Option<&'a str>,
    pub(crate) data: &'a [u8],
    pub(crate) cause: Cause,
}

/// A point to which the columns can go back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    rows: usize,
    bytes: usize,
}

// === impl Emit ===

impl<'o, 'k> Emit<'o, 'k> {
    /// An output with a partition key of its own.
    pub(crate) fn new(columns: &'o mut Columns, name: &'k str, cause: Cause, partition_key: &'k str) -> Self {
        Emit { columns, name, cause, partition_key, inherited_hash_key: None, explicit_hash_key: None }
    }

    pub(crate) fn inherit_hash_key(mut self, key: Option<&'k str>) -> Self {
        self.inherited_hash_key = key;
        self
    }

    /// 1 to 256 Unicode characters. Without, an output has the partition key and the explicit hash key of the
    /// record that caused it; another partition key leaves that explicit hash key behind.
    pub fn partition_key(mut self, key: &'k str) -> Self {
        if key != self.partition_key {
            self.inherited_hash_key = None;
        }
        self.partition_key = key;
        self
    }

    /// Takes the place of the partition key's MD5 as the hash key, so it decides on the shard.
    pub fn explicit_hash_key(mut self, key: u128) -> Self {
        self.explicit_hash_key = Some(key);
        self
    }

    /// Completes the output with a value as JSON.
    ///
    /// # Errors
    /// If the value cannot be JSON, or the partition key is not 1 to 256 characters long. There is no output then.
    pub fn json<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Error> {
        let name = self.name;
        self.complete(|arena| {
            serde_json::to_writer(arena, value).map_err(|source| Error::Json { output: name.to_owned(), source })
        })
    }

    /// Completes the output with bytes as they are.
    ///
    /// # Errors
    /// If the partition key is not 1 to 256 characters long. There is no output then.
    pub fn bytes(self, data: &[u8]) -> Result<(), Error> {
        self.complete(|arena| {
            arena.extend_from_slice(data);
            Ok(())
        })
    }

    /// Completes the output with text, as UTF-8.
    ///
    /// # Errors
    /// As [`bytes`](Emit::bytes).
    pub fn text(self, data: &str) -> Result<(), Error> {
        self.bytes(data.as_bytes())
    }

    fn complete(self, write_data: impl FnOnce(&mut Vec<u8>) -> Result<(), Error>) -> Result<(), Error> {
        // No text has more characters than bytes, so most keys need no counting.
        if self.partition_key.is_empty() || self.partition_key.len() > LONGEST_PARTITION_KEY {
            let characters = self.partition_key.chars().count();
            if !(1..=LONGEST_PARTITION_KEY).contains(&characters) {
                return Err(Error::PartitionKey { output: self.name.to_owned(), characters });
            }
        }
        let mark = self.columns.mark();
        let written = self.columns.append(self.name, self.cause, |arena| {
            arena.extend_from_slice(self.partition_key.as_bytes());
            let key_end = arena.len();
            match (self.explicit_hash_key, self.inherited_hash_key) {
                // Writing to a Vec cannot fail.
                (Some(key), _) => drop(write!(arena, "{key}")),
                (None, Some(key)) => arena.extend_from_slice(key.as_bytes()),
                (None, None) => {}
            }
            let hash_key_end = arena.len();
            write_data(arena)?;
            Ok([key_end, hash_key_end])
        });
        if written.is_err() {
            self.columns.go_back(mark);
        }
        written
    }
}

// === impl Columns ===

impl Columns {
    /// `write` appends one row to the arena and tells where its first two parts end.
    fn append(
        &mut self,
        name: &str,
        cause: Cause,
        write: impl FnOnce(&mut Vec<u8>) -> Result<[usize; 2], Error>,
    ) -> Result<(), Error> {
        let too_large = || Error::TooLarge { output: name.to_owned() };
        let start = self.arena.len();
        let [first_end, second_end] = write(&mut self.arena)?;
        u32::try_from(self.arena.len()).map_err(|_| too_large())?;
        // Each is at most the arena's length, which has just been found to fit.
        let lengths = [first_end - start, second_end - first_end, self.arena.len() - second_end];
        self.lengths.extend(lengths.map(|length| length as u32));
        let name_index = self.name_index(name);
        self.name_indexes.push(name_index);
        self.causes.push(cause);
        Ok(())
    }

    fn name_index(&mut self, name: &str) -> u32 {
        // From the end: outputs of one name tend to follow each other. A processor has a handful of them.
        let index = self.names.iter().rposition(|known| known == name).unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        });
        // There are no more names than rows, and fewer rows than bytes, which fit.
        index as u32
    }

    pub(crate) fn mark(&self) -> Mark {
        Mark { rows: self.causes.len(), bytes: self.arena.len() }
    }

    /// Forgets the rows since the mark. Their names stay known, which the interface allows.
    pub(crate) fn go_back(&mut self, mark: Mark) {
        self.name_indexes.truncate(mark.rows);
        self.lengths.truncate(mark.rows * 3);
        self.causes.truncate(mark.rows);
        self.arena.truncate(mark.bytes);
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        let (lengths, _) = self.lengths.as_chunks::<3>();
        let mut rest = self.arena.as_slice();
        lengths.iter().zip(&self.name_indexes).zip(&self.causes).map_while(move |((lengths, name), cause)| {
            let (partition_key, after) = rest.split_at_checked(lengths[0] as usize)?;
            let (explicit_hash_key, after) = after.split_at_checked(lengths[1] as usize)?;
            let (data, after) = after.split_at_checked(lengths[2] as usize)?;
            rest = after;
            let explicit_hash_key = std::str::from_utf8(explicit_hash_key).ok()?;
            Some(Row {
                name: self.names.get(*name as usize)?,
                partition_key: std::str::from_utf8(partition_key).ok()?,
                explicit_hash_key: (!explicit_hash_key.is_empty()).then_some(explicit_hash_key),
                data,
                cause: *cause,
            })
        })
    }
}
