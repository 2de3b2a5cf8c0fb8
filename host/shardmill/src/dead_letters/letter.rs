//! A dead letter as text: one JSON object in one line, from which it is restored byte for byte.
//!
//! The payload is base64, whatever it holds: one form is one way to read it back.

use std::borrow::Cow;

use base64_simd::STANDARD;
use serde::{Deserialize, Serialize};
use shardmill_cause::{Code, Coded, code};
use shardmill_engine::DeadLetter;
use shardmill_record::{HashKey, Position, SequenceNumber, ShardId};

use super::identity::LetterId;

/// Of the form; a reader refuses what is newer than it knows.
const VERSION: u32 = 1;
/// Of what a guest says why, in bytes: a guest may say as much as an outcome may hold.
const MAX_REASON: usize = 16 << 10;

/// As it is written. Names are part of the contract with whoever reads the files and streams (`docs/dead-letters.md`).
#[derive(Debug, Serialize, Deserialize)]
struct Written<'a> {
    dead_letter: u32,
    /// For readers of the text; made of the fields below.
    #[serde(borrow)]
    id: Cow<'a, str>,
    #[serde(borrow)]
    application: Cow<'a, str>,
    #[serde(borrow)]
    processor: Cow<'a, str>,
    #[serde(borrow)]
    stream: Cow<'a, str>,
    #[serde(borrow)]
    stream_arn: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "is_zero")]
    hops: u32,
    #[serde(borrow)]
    shard: Cow<'a, str>,
    #[serde(borrow)]
    sequence_number: Cow<'a, str>,
    sub_sequence_number: u64,
    #[serde(borrow)]
    partition_key: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    explicit_hash_key: Option<String>,
    arrived_at: u64,
    given_up_at: u64,
    attempts: u32,
    #[serde(borrow)]
    reason: Cow<'a, str>,
    #[serde(borrow)]
    plugin: Cow<'a, str>,
    #[serde(borrow)]
    worker: Cow<'a, str>,
    lease_epoch: u64,
    #[serde(borrow)]
    data: Cow<'a, str>,
}

/// What tells a dead letter from any other JSON.
#[derive(Debug, Deserialize)]
struct Marker {
    dead_letter: u32,
}

/// Why a text is no dead letter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotALetter {
    /// Something else.
    #[error("it is no dead letter")]
    Other,
    /// From a newer program.
    #[error("it is a dead letter of version {0}, and this program reads versions up to {VERSION}: use a newer one")]
    Newer(u32),
    /// Damaged.
    #[error("it is a damaged dead letter: {0}")]
    Damaged(String),
}

impl Coded for NotALetter {
    fn code(&self) -> Code {
        match self {
            Self::Other | Self::Newer(_) | Self::Damaged(_) => code::dead_letters::NOT_A_LETTER,
        }
    }
}

/// One line, without its end.
pub(crate) fn to_json(letter: &DeadLetter) -> String {
    let written = Written {
        dead_letter: VERSION,
        id: LetterId::of(letter).to_string().into(),
        application: (&*letter.application).into(),
        processor: (&*letter.processor).into(),
        stream: (&*letter.stream).into(),
        stream_arn: (&*letter.stream_arn).into(),
        hops: letter.hops,
        shard: letter.shard.as_str().into(),
        sequence_number: letter.position.sequence_number.as_str().into(),
        sub_sequence_number: letter.position.sub_sequence_number,
        partition_key: letter.partition_key.as_str().into(),
        explicit_hash_key: letter.explicit_hash_key.map(|key| key.to_string()),
        arrived_at: letter.arrived_at,
        given_up_at: letter.given_up_at,
        attempts: letter.attempts,
        reason: shortened(&letter.reason),
        plugin: (&*letter.plugin).into(),
        worker: (&*letter.worker).into(),
        lease_epoch: letter.lease_epoch,
        data: STANDARD.encode_to_string(&letter.data).into(),
    };
    serde_json::to_string(&written).expect("texts and numbers can be written")
}

/// Reads a line.
pub(crate) fn from_json(text: &[u8]) -> Result<DeadLetter, NotALetter> {
    let Ok(Marker { dead_letter }) = serde_json::from_slice(text) else { return Err(NotALetter::Other) };
    if dead_letter > VERSION {
        return Err(NotALetter::Newer(dead_letter));
    }
    let damaged = |reason: &dyn std::fmt::Display| NotALetter::Damaged(reason.to_string());
    let written: Written<'_> = serde_json::from_slice(text).map_err(|error| damaged(&error))?;
    let sequence_number = SequenceNumber::parse(&written.sequence_number).map_err(|error| damaged(&error))?;
    let explicit_hash_key = match written.explicit_hash_key {
        Some(key) => Some(key.parse::<HashKey>().map_err(|error| damaged(&error))?),
        None => None,
    };
    let data = STANDARD.decode_to_vec(written.data.as_bytes());
    Ok(DeadLetter {
        application: written.application.into(),
        processor: written.processor.into(),
        stream: written.stream.into(),
        stream_arn: written.stream_arn.into(),
        hops: written.hops,
        shard: ShardId::parse(&written.shard).map_err(|error| damaged(&error))?,
        position: Position::new(sequence_number, written.sub_sequence_number),
        partition_key: written.partition_key.into_owned(),
        explicit_hash_key,
        data: data.map_err(|_| damaged(&"its payload is not base64"))?.into(),
        arrived_at: written.arrived_at,
        given_up_at: written.given_up_at,
        attempts: written.attempts,
        reason: written.reason.into_owned(),
        plugin: written.plugin.into(),
        worker: written.worker.into(),
        lease_epoch: written.lease_epoch,
    })
}

fn is_zero(hops: &u32) -> bool {
    *hops == 0
}

fn shortened(reason: &str) -> Cow<'_, str> {
    if reason.len() <= MAX_REASON {
        return reason.into();
    }
    let cut = reason.floor_char_boundary(MAX_REASON);
    format!("{}… ({} bytes more)", &reason[..cut], reason.len() - cut).into()
}

#[cfg(test)]
pub(super) mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;

    /// Of the stream of [`letter`].
    pub(crate) const ARN: &str = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders";

    /// Any letter at all.
    pub(crate) fn letters() -> impl Strategy<Value = DeadLetter> {
        let names = (".{0,20}", ".{0,20}", ".{0,20}", "[a-zA-Z0-9_.-]{1,40}", ".{0,20}", ".{0,30}", ".{0,60}");
        let record = ("[0-9]{1,60}", any::<u64>(), ".{0,40}", prop::option::of(any::<u128>()));
        let data = prop::collection::vec(any::<u8>(), 0..2_000);
        let numbers = (any::<u64>(), any::<u64>(), any::<u32>(), any::<u64>());
        (names, record, data, numbers, "(?s).{0,200}").prop_map(|(names, record, data, numbers, reason)| DeadLetter {
            application: names.0.into(),
            processor: names.1.into(),
            stream: names.2.into(),
            stream_arn: names.6.into(),
            hops: numbers.2 % 3,
            shard: ShardId::parse(&names.3).unwrap(),
            position: Position::new(SequenceNumber::parse(&record.0).unwrap(), record.1),
            partition_key: record.2,
            explicit_hash_key: record.3.map(HashKey::new),
            data: data.into(),
            arrived_at: numbers.0,
            given_up_at: numbers.1,
            attempts: numbers.2,
            reason,
            plugin: names.4.into(),
            worker: names.5.into(),
            lease_epoch: numbers.3,
        })
    }

    /// A letter of the record with this number in a shard.
    pub(crate) fn letter(number: u64) -> DeadLetter {
        DeadLetter {
            application: "shop".into(),
            processor: "enrich".into(),
            stream: "orders".into(),
            stream_arn: ARN.into(),
            hops: 0,
            shard: ShardId::parse("shardId-000000000003").unwrap(),
            position: Position::new(SequenceNumber::parse(&format!("4957{number:08}")).unwrap(), 0),
            partition_key: format!("customer-{}", number % 7),
            explicit_hash_key: None,
            data: Bytes::from(format!("{{\"order\":{number}}}")),
            arrived_at: 1_750_000_000_000 + number,
            given_up_at: 1_750_000_060_000 + number,
            attempts: 10,
            reason: "no such customer".to_owned(),
            plugin: "9f".repeat(32).into(),
            worker: "worker-1".into(),
            lease_epoch: 3,
        }
    }

    proptest! {
        #[test]
        fn any_letter_is_one_line_and_comes_back_as_it_was(letter in letters()) {
            let line = to_json(&letter);
            prop_assert!(!line.contains(['\n', '\r']));
            let read = from_json(line.as_bytes()).unwrap();
            // Equal as a number is not enough: services find records by the text.
            prop_assert_eq!(read.position.sequence_number.as_str(), letter.position.sequence_number.as_str());
            prop_assert_eq!(read, letter);
        }

        #[test]
        fn what_is_cut_or_changed_is_judged_without_a_panic(
            letter in letters(),
            cut: prop::sample::Index,
            at: prop::sample::Index,
            byte: u8,
        ) {
            let mut line = to_json(&letter).into_bytes();
            prop_assert!(from_json(&line[..cut.index(line.len())]).is_err());
            let at = at.index(line.len());
            line[at] = byte;
            let _judged = from_json(&line);
        }
    }

    #[test]
    fn a_line_is_what_readers_were_told() {
        let mut letter = letter(1);
        letter.explicit_hash_key = Some(HashKey::new(u128::MAX));
        let plugin = "9f".repeat(32);
        let expected = format!(
            concat!(
                r#"{{"dead_letter":1,"id":"{}","application":"shop","processor":"enrich","stream":"orders","#,
                r#""stream_arn":"arn:aws:kinesis:eu-west-1:123456789012:stream/orders","#,
                r#""shard":"shardId-000000000003","sequence_number":"495700000001","sub_sequence_number":0,"#,
                r#""partition_key":"customer-1","explicit_hash_key":"340282366920938463463374607431768211455","#,
                r#""arrived_at":1750000000001,"given_up_at":1750000060001,"attempts":10,"#,
                r#""reason":"no such customer","plugin":"{}","worker":"worker-1","lease_epoch":3,"#,
                r#""data":"eyJvcmRlciI6MX0="}}"#
            ),
            LetterId::of(&letter),
            plugin
        );
        assert_eq!(to_json(&letter), expected);
    }

    #[test]
    fn a_reason_without_end_is_cut_between_characters() {
        let mut letter = letter(1);
        letter.reason = format!("a{}", "é".repeat(MAX_REASON));
        let read = from_json(to_json(&letter).as_bytes()).unwrap();
        assert!(read.reason.len() < MAX_REASON + 40, "{}", read.reason.len());
        assert!(read.reason.ends_with("é… (16386 bytes more)"), "{} bytes", read.reason.len());
        assert_eq!(read.data, letter.data);
    }

    #[test]
    fn what_is_no_letter_is_told_apart_from_what_is_a_damaged_or_a_newer_one() {
        for text in ["", "{}", "7", "{\"order\":1}", "{\"dead_letter\":\"yes\"}", "\u{1}"] {
            assert_eq!(from_json(text.as_bytes()), Err(NotALetter::Other), "{text}");
        }
        assert_eq!(from_json(b"{\"dead_letter\":2,\"where\":\"elsewhere\"}"), Err(NotALetter::Newer(2)));
        let line = to_json(&letter(1));
        for (good, bad) in [
            ("4957", "x957"),
            ("shardId-", "shard id"),
            ("eyJv", "\u{e9}"),
            ("\"attempts\":10", "\"attempts\":-1"),
            ("\"worker\":", "\"work\":"),
        ] {
            let bad = line.replace(good, bad);
            assert!(matches!(from_json(bad.as_bytes()), Err(NotALetter::Damaged(_))), "{bad}");
        }
        // A later version may add to it.
        let more = line.replace("{\"dead_letter\":1", "{\"dead_letter\":1,\"trace\":{\"span\":7}");
        assert_eq!(from_json(more.as_bytes()), Ok(letter(1)));
    }
}
