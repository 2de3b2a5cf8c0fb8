//! What has to go together where records fail.

use std::time::Duration;

use shardmill_cause::code::config as code;
use shardmill_engine::{CheckpointBy, Delivery, Then};

use super::check::{Checked, HOUR, count, helped, time, wrong};
use super::{Failure, Retry, file};

const MILLISECOND: Duration = Duration::from_millis(1);
/// As it is shown.
const YEAR: Duration = Duration::from_secs(31_557_600);

pub(super) fn retry(processor: &str, file: &file::Retry, delivery: Delivery) -> Checked<Retry> {
    let at = |key| ["processors", processor, "retry", key];
    let attempts = match delivery {
        Delivery::AtLeastOnce => 10,
        Delivery::AtMostOnce => 1,
    };
    let backoff = time(&at("backoff"), file.backoff, Duration::from_millis(200), [Duration::ZERO, HOUR])?;
    let longest = time(&at("max-backoff"), file.max_backoff, Duration::from_secs(30).max(backoff), [backoff, HOUR]);
    let attempts = count(&at("attempts"), file.attempts, attempts, [1, 1_000_000])?;
    if attempts > 1 && delivery == Delivery::AtMostOnce {
        let more =
            wrong(code::TOGETHER, &at("attempts"), format!("{attempts} attempts hand a record over more than once"));
        return helped(more, "1 is what `delivery = \"at-most-once\"` allows; records that fail are given up");
    }
    Ok(Retry {
        attempts,
        backoff,
        max_backoff: helped(longest, format!("it is the longest wait, and {backoff:?} (`backoff`) the shortest"))?,
    })
}

/// `place`: whether there is one for dead letters.
pub(super) fn failure(processor: &str, file: &file::Failure, delivery: Delivery, place: bool) -> Checked<Failure> {
    let at = |key| ["processors", processor, "failure", key];
    let then = file.then.unwrap_or_default();
    if then == Then::DeadLetter && !place {
        let nowhere = wrong(code::MISSING, &at("then"), "there is no place for dead letters");
        return helped(nowhere, format!("add a table [processors.{processor}.dead-letters] that says where they go"));
    }
    // A batch is not to be given up for one record of it; where the shard stops, nothing is lost.
    let bisect = matches!(then, Then::Skip | Then::DeadLetter) && delivery == Delivery::AtLeastOnce;
    let bisect = file.bisect.unwrap_or(bisect);
    if bisect && delivery == Delivery::AtMostOnce {
        let split = wrong(code::TOGETHER, &at("bisect"), "parts of a batch that failed are handed over once more");
        return helped(split, "false is what `delivery = \"at-most-once\"` allows");
    }
    let max_age = match file.max_age {
        None => None,
        given => Some(time(&at("max-age"), given, HOUR, [MILLISECOND, YEAR])?),
    };
    Ok(Failure { bisect, tolerance: file.tolerance.unwrap_or_default(), max_age, then })
}

/// A guest cannot hold back a checkpoint that passes its records first.
pub(super) fn checkpoint_by(processor: &str, given: Option<CheckpointBy>, delivery: Delivery) -> Checked<CheckpointBy> {
    let by = given.unwrap_or_default();
    if by == CheckpointBy::Guest && delivery == Delivery::AtMostOnce {
        let both = wrong(
            code::TOGETHER,
            &["processors", processor, "checkpoint"],
            "the checkpoint passes records before the guest sees them",
        );
        return helped(both, "leave it out, or set `delivery` to \"at-least-once\"");
    }
    Ok(by)
}
