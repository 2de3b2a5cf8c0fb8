//! By what a dead letter is known: the record that it is about.

use std::fmt;

use sha2::{Digest as _, Sha256};
use shardmill_engine::DeadLetter;

const ID_BYTES: usize = 10;
const DIGEST_BYTES: usize = 16;

/// Names a record in its shard: the same in every letter about it, whoever gave it up. Of what processors have made of a
/// record, each processor's is named for itself. 20 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LetterId([u8; ID_BYTES]);

/// A record and what is in it: a stream that was deleted and created again may have another record in the same place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Identity {
    pub(crate) id: LetterId,
    payload: [u8; DIGEST_BYTES],
}

// === impl LetterId ===

impl LetterId {
    pub(crate) fn of(letter: &DeadLetter) -> Self {
        let position = &letter.position;
        let place = [&*letter.stream_arn, letter.shard.as_str(), position.sequence_number.as_str()];
        let mut digest = Sha256::new();
        for text in place {
            // With its length, so that no two places have one text.
            digest.update((text.len() as u64).to_le_bytes());
            digest.update(text);
        }
        digest.update(position.sub_sequence_number.to_le_bytes());
        if letter.hops > 0 {
            // A record may cause several, in several processors.
            for text in [&*letter.processor, &letter.partition_key] {
                digest.update((text.len() as u64).to_le_bytes());
                digest.update(text);
            }
            digest.update(letter.hops.to_le_bytes());
        }
        Self(head(&digest.finalize()))
    }

    /// Whether its text begins with this one.
    pub(crate) fn begins_with(&self, text: &str) -> bool {
        self.to_string().starts_with(text)
    }

    fn parse(text: &str) -> Option<Self> {
        bytes(text).map(Self)
    }
}

impl fmt::Display for LetterId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&hex(&self.0))
    }
}

// === impl Identity ===

impl Identity {
    pub(crate) fn of(letter: &DeadLetter) -> Self {
        Self { id: LetterId::of(letter), payload: head(&Sha256::digest(&letter.data)) }
    }

    /// From the texts that name it.
    pub(crate) fn parse(id: &str, payload: &str) -> Option<Self> {
        Some(Self { id: LetterId::parse(id)?, payload: bytes(payload)? })
    }

    /// The digest of the payload, as text.
    pub(crate) fn payload(&self) -> String {
        hex(&self.payload)
    }
}

fn head<const N: usize>(digest: &[u8]) -> [u8; N] {
    std::array::from_fn(|index| digest[index])
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != 2 * N || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; N];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::super::letter::tests::letter;
    use super::*;

    #[test]
    fn letters_about_one_record_have_one_id_and_others_have_others() {
        let first = letter(1);
        let mut again = first.clone();
        (again.attempts, again.worker, again.lease_epoch) = (2, "another".into(), 9);
        (again.reason, again.processor, again.given_up_at) = ("other".to_owned(), "audit".into(), 5);
        // As another processor's configuration names the same stream.
        again.stream = again.stream_arn.clone();
        assert_eq!(Identity::of(&first), Identity::of(&again));
        let mut recreated = first.clone();
        recreated.data = "other".into();
        assert_eq!(LetterId::of(&recreated), LetterId::of(&first));
        assert_ne!(Identity::of(&recreated), Identity::of(&first));
        let mut sub = first.clone();
        sub.position.sub_sequence_number = 1;
        let mut stream = first.clone();
        stream.stream_arn = stream.stream_arn.replace("eu-west-1", "us-east-1").into();
        let [mut behind, mut key] = [first.clone(), first.clone()];
        behind.hops = 1;
        (key.hops, key.partition_key) = (1, "another".to_owned());
        assert_ne!(LetterId::of(&behind), LetterId::of(&key));
        for other in [letter(2), sub, stream, behind, key] {
            assert_ne!(LetterId::of(&other), LetterId::of(&first));
        }
    }

    #[test]
    fn the_text_reads_back_and_stays_what_it_was() {
        let identity = Identity::of(&letter(1));
        let (id, payload) = (identity.id.to_string(), identity.payload());
        assert_eq!(Identity::parse(&id, &payload), Some(identity));
        // Marks of letters that were sent again are kept by it.
        assert_eq!((id.len(), payload.len()), (20, 32));
        assert!(identity.id.begins_with(&id[..6]) && !identity.id.begins_with("zz"));
        for (id, payload) in
            [(&id[1..], payload.as_str()), (&id[..], "é"), ("", ""), (&id[..], "g".repeat(32).as_str())]
        {
            assert_eq!(Identity::parse(id, payload), None);
        }
    }
}
