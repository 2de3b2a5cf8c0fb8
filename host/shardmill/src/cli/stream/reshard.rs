//! What may be split and merged, and where.

use shardmill_record::{HashKey, HashKeyRange, ShardId};
use shardmill_stream::Shard;

/// Why shards cannot be changed as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(in crate::cli) enum Error {
    #[error("stream {stream} has no shard {shard}; its open shards: {}", Named(open))]
    NoShard { stream: String, shard: ShardId, open: Vec<ShardId> },
    #[error("{0} is closed, and cannot be changed any more; {followed}", followed = Followed(.1))]
    Closed(ShardId, Vec<ShardId>),
    #[error("{0} takes one hash key ({1}), and cannot be split")]
    OneKey(ShardId, HashKey),
    #[error("{0} cannot be split at {1}: it takes {range}, and each half must take something, so {least} to {most} is allowed",
        range = .2, least = .2.start.get().saturating_add(1), most = .2.end)]
    Outside(ShardId, HashKey, HashKeyRange),
    #[error("a shard is merged with another one, and {0} is named twice")]
    Same(ShardId),
    #[error("{0} and {1} do not lie beside each other, and cannot be merged; beside {0}: {beside}", beside = Named(.2))]
    Apart(ShardId, ShardId, Vec<ShardId>),
}

/// Ids in a sentence.
struct Named<'a>(&'a [ShardId]);

/// What has taken a shard's place, in a sentence.
struct Followed<'a>(&'a [ShardId]);

/// So many are named.
const MOST_NAMED: usize = 20;

/// Where a shard is split: at this hash key, or in its middle.
pub(super) fn split(stream: &str, shards: &[Shard], id: &ShardId, at: Option<HashKey>) -> Result<HashKey, Error> {
    let HashKeyRange { start, end } = open(stream, shards, id)?.range;
    if start >= end {
        return Err(Error::OneKey(id.clone(), start));
    }
    // The lower half is never the smaller one by more than a key.
    let middle = HashKey::new(start.get() + (end.get() - start.get()) / 2 + 1);
    let at = at.unwrap_or(middle);
    if at <= start || at > end {
        return Err(Error::Outside(id.clone(), at, HashKeyRange { start, end }));
    }
    Ok(at)
}

/// Two shards that can be merged, the lower one first.
pub(super) fn merge<'a>(
    stream: &str,
    shards: &'a [Shard],
    first: &ShardId,
    second: &ShardId,
) -> Result<[&'a ShardId; 2], Error> {
    if first == second {
        return Err(Error::Same(first.clone()));
    }
    let (one, other) = (open(stream, shards, first)?, open(stream, shards, second)?);
    if is_below(one, other) {
        return Ok([&one.id, &other.id]);
    }
    if is_below(other, one) {
        return Ok([&other.id, &one.id]);
    }
    let beside = shards.iter().filter(|shard| shard.is_open() && (is_below(shard, one) || is_below(one, shard)));
    Err(Error::Apart(first.clone(), second.clone(), beside.map(|shard| shard.id.clone()).collect()))
}

fn is_below(lower: &Shard, upper: &Shard) -> bool {
    lower.range.end.get().checked_add(1) == Some(upper.range.start.get())
}

fn open<'a>(stream: &str, shards: &'a [Shard], id: &ShardId) -> Result<&'a Shard, Error> {
    match shards.iter().find(|shard| shard.id == *id) {
        Some(shard) if shard.is_open() => Ok(shard),
        Some(shard) => {
            let children = shardmill_stream::lineage::children_of(&shard.id, shards);
            Err(Error::Closed(id.clone(), children.into_iter().map(|child| child.id.clone()).collect()))
        }
        None => {
            let open = shards.iter().filter(|shard| shard.is_open()).map(|shard| shard.id.clone()).collect();
            Err(Error::NoShard { stream: stream.to_owned(), shard: id.clone(), open })
        }
    }
}

impl std::fmt::Display for Named<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ids: Vec<&str> = self.0.iter().take(MOST_NAMED).map(ShardId::as_str).collect();
        match self.0.len().checked_sub(MOST_NAMED) {
            _ if ids.is_empty() => formatter.write_str("none"),
            None | Some(0) => formatter.write_str(&ids.join(", ")),
            Some(more) => write!(formatter, "{} and {more} more", ids.join(", ")),
        }
    }
}

impl std::fmt::Display for Followed<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            [] => formatter.write_str("the stream does not name what took its place"),
            children => write!(formatter, "its place was taken by {}", Named(children)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cli::stream::description::tests::{id, shard};

    fn shards() -> Vec<Shard> {
        vec![
            shard("old", &[], (0, 199), false),
            shard("a", &["old"], (0, 99), true),
            shard("b", &["old"], (100, 199), true),
            shard("c", &[], (200, u128::MAX - 1), true),
            shard("one", &[], (u128::MAX, u128::MAX), true),
        ]
    }

    fn key(number: u128) -> HashKey {
        HashKey::new(number)
    }

    #[test]
    fn a_shard_is_split_in_its_middle_or_at_a_key_within_it() {
        let split = |name: &str, at: Option<u128>| split("orders", &shards(), &id(name), at.map(key));
        assert_eq!(split("a", None), Ok(key(50)));
        assert_eq!((split("b", Some(101)), split("b", Some(199))), (Ok(key(101)), Ok(key(199))));
        let told = |result: Result<HashKey, Error>| result.unwrap_err().to_string();
        for at in [0, 100, 200] {
            let error = told(split("b", Some(at)));
            assert!(error.contains("it takes 100..=199") && error.contains("101 to 199 is allowed"), "{error}");
        }
        assert!(told(split("one", None)).contains("takes one hash key"));
        assert!(told(split("old", None)).contains("its place was taken by a, b"));
        let alone = [shard("lost", &[], (0, 9), false)];
        let error = super::split("orders", &alone, &id("lost"), None).unwrap_err().to_string();
        assert!(error.ends_with("does not name what took its place"), "{error}");
        assert!(told(split("x", None)).contains("its open shards: a, b, c, one"));
    }

    #[test]
    fn neighbours_are_merged_in_whichever_order_they_are_named() {
        let shards = shards();
        let merge = |first: &str, second: &str| merge("orders", &shards, &id(first), &id(second));
        let (a, b) = (id("a"), id("b"));
        assert_eq!((merge("a", "b"), merge("b", "a")), (Ok([&a, &b]), Ok([&a, &b])));
        let told = |result: Result<[&ShardId; 2], Error>| result.unwrap_err().to_string();
        assert!(told(merge("a", "c")).ends_with("beside a: b"), "{}", told(merge("a", "c")));
        assert!(told(merge("c", "a")).ends_with("beside c: b, one"));
        assert!(told(merge("a", "a")).contains("named twice"));
        assert!(told(merge("a", "old")).contains("old is closed"));
        // The ring has a beginning and an end.
        assert!(merge("one", "a").is_err());
    }

    #[test]
    fn of_many_shards_some_are_named() {
        let many: Vec<ShardId> = (0..23).map(|number| id(&number.to_string())).collect();
        assert!(Named(&many).to_string().ends_with("18, 19 and 3 more"));
        assert_eq!(Named(&many[..1]).to_string(), "0");
    }

    proptest! {
        #[test]
        fn both_halves_of_a_middle_take_as_much(start: u128, width in 1..=u128::MAX) {
            let end = start.saturating_add(width);
            prop_assume!(start < end);
            let middle = split("s", &[shard("a", &[], (start, end), true)], &id("a"), None).unwrap().get();
            prop_assert!(start < middle && middle <= end);
            let (lower, upper) = (middle - start, end - middle + 1);
            prop_assert!(lower - upper <= 1, "{lower} {upper}");
        }
    }
}
