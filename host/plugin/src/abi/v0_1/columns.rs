//! Outputs in columns. Everything here comes from the guest as it likes: each length and index is checked before it is
//! used.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use shardmill_record::UserRecord;

use super::columnar::{self, OutputColumns};
use super::convert;
use crate::{InvalidOutcome, Mask, Outcome, Output};

/// Lengths that belong to an output: partition key, explicit hash key, data.
const SPANS: usize = 3;

pub(super) fn outcome(outcome: columnar::Outcome, mask: &Mask) -> Result<Outcome, InvalidOutcome> {
    Ok(Outcome {
        done: convert::done(outcome.done),
        failed: convert::failed(outcome.failed, mask),
        skipped: convert::skipped(outcome.skipped, mask),
        checkpoint: convert::position(outcome.checkpoint, mask)?,
        outputs: outputs(outcome.outputs, mask)?,
        mask: mask.clone(),
    })
}

fn outputs(columns: OutputColumns, mask: &Mask) -> Result<Vec<Output>, InvalidOutcome> {
    let count = columns.name_indexes.len();
    for (column, entries, expected) in
        [("lengths", columns.lengths.len(), SPANS.saturating_mul(count)), ("causes", columns.causes.len(), count)]
    {
        if entries != expected {
            return Err(InvalidOutcome::ColumnLength { column, entries, expected, outputs: count });
        }
    }
    let names: Vec<Arc<str>> = columns.names.into_iter().map(Arc::from).collect();
    // Payloads stay where the guest's arena was copied to.
    let arena = Bytes::from(columns.arena);
    let mut end = 0;
    let mut outputs = Vec::with_capacity(count);
    for (output, ((index, lengths), cause)) in
        columns.name_indexes.into_iter().zip(columns.lengths.chunks_exact(SPANS)).zip(columns.causes).enumerate()
    {
        let name = names.get(index as usize).ok_or(InvalidOutcome::NameIndex { output, index, names: names.len() })?;
        let mut span = |length: u32| take(&mut end, length, arena.len(), output);
        let partition_key = text(&arena, span(lengths[0])?, output, "a partition key")?;
        let hash_key = text(&arena, span(lengths[1])?, output, "an explicit hash key")?;
        let data = arena.slice(span(lengths[2])?);
        let explicit_hash_key =
            if hash_key.is_empty() { None } else { Some(convert::hash_key(output, hash_key, mask)?) };
        let record = UserRecord { partition_key: partition_key.to_owned(), explicit_hash_key, data };
        outputs.push(Output { name: name.clone(), record, cause: convert::cause(cause) });
    }
    if end != arena.len() {
        return Err(InvalidOutcome::ArenaTooLong { rest: arena.len() - end });
    }
    Ok(outputs)
}

/// The next bytes of the arena.
fn take(end: &mut usize, length: u32, arena: usize, output: usize) -> Result<Range<usize>, InvalidOutcome> {
    let start = *end;
    let next = start.checked_add(length as usize).filter(|next| *next <= arena);
    *end = next.ok_or(InvalidOutcome::ArenaTooShort { output, arena })?;
    Ok(start..*end)
}

fn text<'a>(
    arena: &'a Bytes,
    span: Range<usize>,
    output: usize,
    what: &'static str,
) -> Result<&'a str, InvalidOutcome> {
    std::str::from_utf8(&arena[span]).map_err(|_| InvalidOutcome::NotText { output, what })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use shardmill_record::HashKey;

    use super::super::bindings::shardmill::processor::types::Cause;
    use super::*;

    fn two() -> OutputColumns {
        OutputColumns {
            names: vec!["a".into(), "b".into()],
            name_indexes: vec![1, 0],
            arena: b"key7datak".to_vec(),
            lengths: vec![3, 1, 4, 1, 0, 0],
            causes: vec![Cause::Record(3), Cause::Batch],
        }
    }

    fn changed(change: impl FnOnce(&mut OutputColumns)) -> InvalidOutcome {
        let mut columns = two();
        change(&mut columns);
        outputs(columns, &Mask::default()).unwrap_err()
    }

    #[test]
    fn columns_are_read_in_the_arenas_order() {
        let outputs = outputs(two(), &Mask::default()).unwrap();
        let first = UserRecord {
            partition_key: "key".into(),
            explicit_hash_key: Some(HashKey::new(7)),
            data: Bytes::from_static(b"data"),
        };
        let second = UserRecord { partition_key: "k".into(), explicit_hash_key: None, data: Bytes::new() };
        let output = |name: &str, record, cause| Output { name: name.into(), record, cause };
        let expected = [output("b", first, crate::Cause::Record(3)), output("a", second, crate::Cause::Batch)];
        assert_eq!(outputs, expected);
    }

    #[test]
    fn an_error_names_the_output() {
        let length = |column, entries, expected| InvalidOutcome::ColumnLength { column, entries, expected, outputs: 2 };
        assert_eq!(changed(|columns| columns.causes.truncate(1)), length("causes", 1, 2));
        assert_eq!(changed(|columns| columns.lengths.push(0)), length("lengths", 7, 6));
        let index = InvalidOutcome::NameIndex { output: 1, index: 2, names: 2 };
        assert_eq!(changed(|columns| columns.name_indexes[1] = 2), index);
        let short = InvalidOutcome::ArenaTooShort { output: 1, arena: 9 };
        assert_eq!(changed(|columns| columns.lengths[5] = u32::MAX), short);
        assert_eq!(changed(|columns| columns.arena.push(0)), InvalidOutcome::ArenaTooLong { rest: 1 });
        let text = InvalidOutcome::NotText { output: 1, what: "a partition key" };
        assert_eq!(changed(|columns| columns.arena[8] = 0xff), text);
        assert!(matches!(changed(|columns| columns.arena[3] = b'x'), InvalidOutcome::HashKey { output: 0, .. }));
    }

    fn lengths() -> impl Strategy<Value = Vec<u32>> {
        let length = prop_oneof![4 => 0u32..4, 1 => any::<u32>()];
        prop::collection::vec(length, 0..9)
    }

    proptest! {
        #[test]
        fn hostile_columns_are_an_error_or_make_sense(
            names in prop::collection::vec("[a-c]", 0..3),
            name_indexes in prop::collection::vec(prop_oneof![4 => 0u32..3, 1 => any::<u32>()], 0..4),
            arena in prop::collection::vec(prop_oneof![Just(b'1'), Just(b'a'), Just(0xffu8)], 0..12),
            lengths in lengths(),
            causes in 0usize..4,
        ) {
            let columns = OutputColumns {
                names: names.clone(),
                name_indexes: name_indexes.clone(),
                arena: arena.clone(),
                lengths: lengths.clone(),
                causes: vec![Cause::Batch; causes],
            };
            if let Ok(outputs) = outputs(columns, &Mask::default()) {
                prop_assert_eq!(outputs.len(), causes);
                prop_assert_eq!(lengths.iter().map(|length| *length as usize).sum::<usize>(), arena.len());
                for (output, index) in outputs.iter().zip(name_indexes) {
                    prop_assert_eq!(&*output.name, &*names[index as usize]);
                }
            }
        }

        #[test]
        fn what_a_faithful_guest_writes_is_read_back(
            records in prop::collection::vec(("[a-zé]{0,5}", any::<Option<u128>>(), any::<Vec<u8>>()), 0..8),
        ) {
            let mut columns = OutputColumns {
                names: vec!["out".into()],
                name_indexes: vec![0; records.len()],
                arena: Vec::new(),
                lengths: Vec::new(),
                causes: vec![Cause::Batch; records.len()],
            };
            for (key, hash_key, data) in &records {
                let hash_key = hash_key.map(|number| number.to_string()).unwrap_or_default();
                for bytes in [key.as_bytes(), hash_key.as_bytes(), data] {
                    columns.arena.extend_from_slice(bytes);
                    columns.lengths.push(bytes.len() as u32);
                }
            }
            let read: Vec<_> = outputs(columns, &Mask::default())
                .unwrap()
                .into_iter()
                .map(|Output { record, .. }| (record.partition_key, record.explicit_hash_key.map(HashKey::get), record.data.to_vec()))
                .collect();
            prop_assert_eq!(read, records);
        }
    }
}
