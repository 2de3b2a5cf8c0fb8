//! What a guest returns in rows, of a batch or of a hook, and what it says in place of an outcome: any that the types allow.
//!
//! An outcome is carried out as the contract says, each record with one end, or refused as a whole with a reason; and it is refused
//! only if it breaks the contract.

use arbitrary::{Result, Unstructured};
use shardmill_plugin::fuzzing::outcome::{self as guest, batch, hooks, types};
use shardmill_plugin::{Cause, Output};
use shardmill_record::HashKey;

use super::outcome::{self, Call, Common};
use super::steers;

/// See the module.
pub fn run(bytes: &[u8]) {
    let mut from = Unstructured::new(bytes);
    // Bytes that are used up are zeros: there is always an outcome.
    let ran = match from.arbitrary::<u8>() {
        Ok(0..0xC0) => batch(&mut from),
        Ok(0xC0..0xF0) => hook(&mut from),
        _ => error(&mut from),
    };
    ran.unwrap_or_default();
}

fn batch(from: &mut Unstructured<'_>) -> Result<()> {
    let call = outcome::call(from)?;
    let Common { done, failed, skipped, checkpoint } = outcome::common(from)?;
    let outputs = outputs(from)?;
    let read = guest::rows(batch::Outcome { done, failed, skipped, checkpoint, outputs: outputs.clone() });
    if let Ok(read) = &read {
        are_as_written(&read.outputs, &outputs);
    }
    outcome::check(read, &call);
    Ok(())
}

fn hook(from: &mut Unstructured<'_>) -> Result<()> {
    let (call, id) = (outcome::call(from)?, from.int_in_range(0..=2)?);
    let written = hooks::HookOutcome { checkpoint: outcome::position(from)?, outputs: outputs(from)? };
    let read = guest::hook(written);
    match read.and_then(|read| read.settle(id, &outcome::knows, &call.limits)) {
        Ok(settled) => {
            assert!(settled.outputs.iter().all(|output| output.cause == Cause::Hook(id)));
            assert!(settled.outputs.len() <= call.limits.outputs);
        }
        Err(invalid) => outcome::is_said(&invalid, &Call { records: 0, ..call }),
    }
    Ok(())
}

fn error(from: &mut Unstructured<'_>) -> Result<()> {
    let message = outcome::text(from)?;
    let error = match from.int_in_range(0..=2)? {
        0 => types::ProcessError::Retry(types::RetryError { message, after_ms: from.arbitrary()? }),
        1 => types::ProcessError::Reject(message),
        _ => types::ProcessError::StopShard(message),
    };
    let said = guest::error(error).to_string();
    assert!(said.len() < 2100 && !said.contains(steers), "{said:?}");
    Ok(())
}

fn outputs(from: &mut Unstructured<'_>) -> Result<Vec<types::Output>> {
    outcome::list(from, |from| {
        Ok(types::Output {
            name: outcome::name(from)?,
            partition_key: outcome::text(from)?,
            explicit_hash_key: if from.ratio(1, 4)? { Some(outcome::digits(from)?) } else { None },
            data: outcome::text(from)?.into_bytes(),
            cause: outcome::cause(from)?,
        })
    })
}

fn are_as_written(read: &[Output], written: &[types::Output]) {
    assert_eq!(read.len(), written.len());
    for (read, written) in read.iter().zip(written) {
        assert_eq!((&*read.name, &read.record.partition_key), (written.name.as_str(), &written.partition_key));
        assert_eq!(read.record.data, written.data);
        let hash_key = written.explicit_hash_key.as_ref().map(|digits| digits.parse::<HashKey>().expect("it was read"));
        assert_eq!(read.record.explicit_hash_key, hash_key);
    }
}
