//! What a guest returns in columns: any that the types allow, so with lengths, indexes and texts that do not go together.
//!
//! As in rows; and what is read is what stands in the arena, all of it.

use arbitrary::{Result, Unstructured};
use shardmill_plugin::Output;
use shardmill_plugin::fuzzing::outcome::{self as guest, columnar};
use shardmill_record::HashKey;

use super::outcome::{self, Common};

/// See the module.
pub fn run(bytes: &[u8]) {
    batch(&mut Unstructured::new(bytes)).unwrap_or_default();
}

fn batch(from: &mut Unstructured<'_>) -> Result<()> {
    let call = outcome::call(from)?;
    let Common { done, failed, skipped, checkpoint } = outcome::common(from)?;
    let outputs = columns(from)?;
    let read = guest::columns(columnar::Outcome { done, failed, skipped, checkpoint, outputs: outputs.clone() });
    if let Ok(read) = &read {
        are_in_the_arena(&read.outputs, &outputs);
    }
    outcome::check(read, &call);
    Ok(())
}

/// As a faithful guest writes them, and then perhaps with something else in one place.
fn columns(from: &mut Unstructured<'_>) -> Result<columnar::OutputColumns> {
    let names = outcome::list(from, outcome::name)?;
    let mut columns = columnar::OutputColumns {
        names,
        name_indexes: Vec::new(),
        arena: Vec::new(),
        lengths: Vec::new(),
        causes: Vec::new(),
    };
    for _ in 0..from.int_in_range(0..=6)? {
        columns.name_indexes.push(outcome::index(from)? % 3);
        columns.causes.push(outcome::cause(from)?);
        let hash_key = if from.ratio(1, 4)? { outcome::digits(from)? } else { String::new() };
        for text in [outcome::text(from)?, hash_key, outcome::text(from)?] {
            columns.lengths.push(u32::try_from(text.len()).expect("texts are short"));
            columns.arena.extend_from_slice(text.as_bytes());
        }
    }
    match from.arbitrary::<u8>()? {
        0..0x80 => {}
        0x80..0x90 => columns.arena.push(b'x'),
        0x90..0xA0 => columns.arena.truncate(columns.arena.len().saturating_sub(1)),
        0xA0..0xB0 => columns.lengths.push(from.arbitrary()?),
        0xB0..0xC0 => columns.causes.truncate(columns.causes.len().saturating_sub(1)),
        0xC0..0xE0 => change(from, &mut columns.lengths)?,
        0xE0..0xF0 => change(from, &mut columns.name_indexes)?,
        _ => change(from, &mut columns.arena)?,
    }
    Ok(columns)
}

fn change<'a, T: arbitrary::Arbitrary<'a>>(from: &mut Unstructured<'a>, column: &mut [T]) -> Result<()> {
    if let Some(last) = column.len().checked_sub(1) {
        column[from.int_in_range(0..=last)?] = from.arbitrary()?;
    }
    Ok(())
}

fn are_in_the_arena(read: &[Output], written: &columnar::OutputColumns) {
    assert_eq!(written.name_indexes.len(), read.len());
    assert_eq!((written.lengths.len(), written.causes.len()), (3 * read.len(), read.len()));
    let mut rest = &written.arena[..];
    let mut lengths = written.lengths.iter();
    let mut next = || {
        let (span, behind) = rest.split_at(*lengths.next().expect("three a record") as usize);
        rest = behind;
        span
    };
    for (output, index) in read.iter().zip(&written.name_indexes) {
        assert_eq!(*output.name, *written.names[*index as usize]);
        assert_eq!(output.record.partition_key.as_bytes(), next());
        let hash_key = str::from_utf8(next()).expect("it was read");
        let hash_key = (!hash_key.is_empty()).then(|| hash_key.parse::<HashKey>().expect("it was read"));
        assert_eq!(output.record.explicit_hash_key, hash_key);
        assert_eq!(output.record.data, next());
    }
    assert!(rest.is_empty(), "{} bytes belong to no output", rest.len());
}
