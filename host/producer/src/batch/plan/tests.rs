//! Plans against a model of the service that fails what it likes, loses answers, and is resharded.

use std::collections::HashMap;

use bytes::Bytes;
use proptest::prelude::*;
use shardmill_record::aggregate::{AGGREGATE_PARTITION_KEY, decode};
use shardmill_record::{HashKeyRange, UserRecord};

use super::*;
use crate::limits::validate;
use crate::shard_map::OpenShard;

/// What the service does with one Kinesis record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Stored,
    Failed,
    LostBefore,
    LostAfter,
}

/// The stream: open shards, and what each shard that ever was holds, user record by user record.
struct Service {
    shards: Vec<OpenShard>,
    next_shard: usize,
    stored: Vec<Stored>,
    writes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Stored {
    shard: OpenShard,
    sequence_number: SequenceNumber,
    sub_sequence_number: u64,
    record: UserRecord,
}

fn number(record: &UserRecord) -> usize {
    usize::from_le_bytes(record.data[..8].try_into().unwrap())
}

// === impl Service ===

impl Service {
    fn new(shards: usize) -> Self {
        let mut service = Self { shards: Vec::new(), next_shard: 0, stored: Vec::new(), writes: 0 };
        service.reshard(shards);
        service
    }

    /// Other shards with other ranges in place of the open ones.
    fn reshard(&mut self, shards: usize) {
        let step = u128::MAX / shards as u128;
        let open = |index: usize| {
            let end = if index + 1 == shards { u128::MAX } else { (index as u128 + 1) * step - 1 };
            let range = HashKeyRange { start: HashKey::new(index as u128 * step), end: HashKey::new(end) };
            let id = ShardId::parse(&format!("shardId-{:012}", self.next_shard + index)).unwrap();
            OpenShard { id, range }
        };
        self.shards = (0..shards).map(open).collect();
        self.next_shard += shards;
    }

    fn map(&self) -> Arc<ShardMap> {
        Arc::new(ShardMap::new(self.shards.clone()))
    }

    fn put(&mut self, entry: &Entry, fate: Fate) -> Outcome {
        if matches!(fate, Fate::Failed) {
            return Outcome::Failed;
        }
        if fate == Fate::LostBefore {
            return Outcome::Unknown;
        }
        let hash_key = entry.explicit_hash_key.unwrap_or_else(|| HashKey::of_partition_key(&entry.partition_key));
        let shard = self.shards.iter().find(|shard| shard.range.contains(hash_key)).unwrap().clone();
        self.writes += 1;
        let sequence_number = SequenceNumber::parse(&self.writes.to_string()).unwrap();
        for (sub, record) in unpack(entry).into_iter().enumerate() {
            let (shard, sequence_number) = (shard.clone(), sequence_number.clone());
            self.stored.push(Stored { shard, sequence_number, sub_sequence_number: sub as u64, record });
        }
        match fate {
            Fate::LostAfter => Outcome::Unknown,
            _ => Outcome::Stored { shard: shard.id, sequence_number },
        }
    }
}

fn unpack(entry: &Entry) -> Vec<UserRecord> {
    let Ok(aggregate) = decode(&entry.data) else {
        let Entry { partition_key, explicit_hash_key, data, .. } = entry.clone();
        return vec![UserRecord { partition_key, explicit_hash_key, data }];
    };
    assert_eq!(entry.partition_key, AGGREGATE_PARTITION_KEY);
    let records = aggregate.records(&entry.data).map(|sub| UserRecord {
        partition_key: sub.partition_key.to_owned(),
        explicit_hash_key: sub.explicit_hash_key,
        data: Bytes::copy_from_slice(sub.data),
    });
    records.collect()
}

fn any_records() -> impl Strategy<Value = Vec<UserRecord>> {
    let hash_key = prop_oneof![4 => Just(None), 1 => any::<u128>().prop_map(|key| Some(HashKey::new(key)))];
    let record = ("[a-h]", hash_key, 8..60usize);
    prop::collection::vec(record, 0..40).prop_map(|records| {
        let record = |(number, (partition_key, explicit_hash_key, length)): (usize, (String, _, usize))| {
            let mut data = number.to_le_bytes().to_vec();
            data.resize(length, 0);
            UserRecord { partition_key, explicit_hash_key, data: data.into() }
        };
        records.into_iter().enumerate().map(record).collect()
    })
}

fn any_rules() -> impl Strategy<Value = Rules> {
    let aggregate = prop_oneof![Just(None), (20..400usize).prop_map(Some)];
    let ordering = prop_oneof![2 => Just(Ordering::Key), 1 => Just(Ordering::None)];
    // A request has room for the largest Kinesis record, as the service's limits have.
    (ordering, aggregate, 1..6usize, 401..1_200usize).prop_map(
        |(ordering, aggregate_max_bytes, max_entries, max_bytes)| Rules {
            ordering,
            aggregate_max_bytes,
            max_entries,
            max_bytes,
        },
    )
}

fn check_limits(request: &Request, plan: &Plan) {
    let rules = &plan.rules;
    let bytes: usize = request.entries.iter().map(|entry| entry.partition_key.len() + entry.data.len()).sum();
    assert_eq!(bytes, request.bytes);
    assert!(bytes <= rules.max_bytes && request.entries.len() <= rules.max_entries);
    for entry in &request.entries {
        let records: Vec<_> = entry.records.iter().map(|index| plan.records[*index].record.clone()).collect();
        assert_eq!(unpack(entry), records);
        let shards: Vec<_> = records.iter().map(|record| plan.map.predict(record.hash_key())).collect();
        assert!(shards.iter().all(|shard| *shard == shards[0]), "records of one shard are together");
        if records.len() > 1 {
            assert!(entry.data.len() <= rules.aggregate_max_bytes.unwrap());
            assert_eq!(entry.explicit_hash_key, Some(records[0].hash_key()));
        } else {
            assert_eq!(entry.data, records[0].data, "a record alone is not framed");
        }
    }
    if rules.ordering == Ordering::Key {
        let mut lanes: Vec<_> = request.entries.iter().map(|entry| entry.lane).collect();
        lanes.sort_unstable();
        lanes.dedup();
        assert_eq!(lanes.len(), request.entries.len(), "one Kinesis record for each shard");
    }
}

/// Runs a plan to its end. `fates` are used up one for each Kinesis record, then everything is stored; the stream is
/// resharded before the requests that `reshards` names.
fn run(
    records: &[UserRecord],
    rules: Rules,
    fates: &[Fate],
    shards: usize,
    reshards: &[(usize, usize)],
) -> (Service, Vec<Sent>, Counts) {
    let mut service = Service::new(shards);
    let mut fates = fates.iter().copied();
    let mut plan = Plan::new(records.to_vec(), rules, service.map());
    let mut now = Instant::now();
    let mut sum = Counts::default();
    let mut requests = 0;
    loop {
        match plan.next(now) {
            Next::Done => break,
            Next::Wait(until) => {
                assert!(until > now);
                now = until;
            }
            Next::Send(request) => {
                check_limits(&request, &plan);
                if let Some((_, shards)) = reshards.iter().find(|(before, _)| *before == requests) {
                    service.reshard(*shards);
                }
                requests += 1;
                let put = |entry| service.put(entry, fates.next().unwrap_or(Fate::Stored));
                let outcomes: Vec<_> = request.entries.iter().map(put).collect();
                let map =
                    if plan.surprise(&request, &outcomes).is_some() { service.map() } else { Arc::clone(plan.map()) };
                let settled =
                    plan.settle(request, &outcomes, &map, now, |failures| Duration::from_millis(failures.into()));
                sum.acknowledged += settled.counts.acknowledged;
                sum.retries += settled.counts.retries;
                sum.possible_repeats += settled.counts.possible_repeats;
                sum.misplaced += settled.counts.misplaced;
            }
        }
    }
    assert_eq!(sum.acknowledged, records.len() as u64);
    let sent: Vec<_> = plan.into_sent().into_iter().flatten().collect();
    (service, sent, sum)
}

/// For each key, the records as a reader meets them that leaves out what is outside its shard's range.
fn read(service: &Service) -> HashMap<(String, Option<HashKey>), Vec<usize>> {
    let mut by_key: HashMap<_, Vec<usize>> = HashMap::new();
    for stored in &service.stored {
        let record = &stored.record;
        if stored.shard.range.contains(record.hash_key()) {
            let key = (record.partition_key.clone(), record.explicit_hash_key);
            by_key.entry(key).or_default().push(number(record));
        }
    }
    by_key
}

fn given(records: &[UserRecord]) -> HashMap<(String, Option<HashKey>), Vec<usize>> {
    let mut by_key: HashMap<_, Vec<usize>> = HashMap::new();
    for record in records {
        let key = (record.partition_key.clone(), record.explicit_hash_key);
        by_key.entry(key).or_default().push(number(record));
    }
    by_key
}

fn sorted(
    mut by_key: HashMap<(String, Option<HashKey>), Vec<usize>>,
) -> HashMap<(String, Option<HashKey>), Vec<usize>> {
    by_key.values_mut().for_each(|numbers| numbers.sort_unstable());
    by_key
}

fn check_sent(service: &Service, records: &[UserRecord], sent: &[Sent]) {
    assert_eq!(sent.len(), records.len());
    for (record, sent) in records.iter().zip(sent) {
        let is_it = |stored: &&Stored| {
            stored.shard.id == sent.shard
                && stored.sequence_number == sent.sequence_number
                && stored.sub_sequence_number == sent.sub_sequence_number
        };
        assert_eq!(service.stored.iter().find(is_it).map(|stored| &stored.record), Some(record));
        assert!(sent.attempts >= 1);
    }
}

fn fates(lost: bool) -> impl Strategy<Value = Vec<Fate>> {
    let fate = if lost {
        prop_oneof![3 => Just(Fate::Stored), 1 => Just(Fate::Failed), 1 => Just(Fate::LostBefore), 1 => Just(Fate::LostAfter)]
            .boxed()
    } else {
        prop_oneof![1 => Just(Fate::Stored), 1 => Just(Fate::Failed)].boxed()
    };
    prop::collection::vec(fate, 0..60)
}

proptest! {
    #[test]
    fn without_lost_answers_every_record_is_stored_once_and_keys_keep_their_order(
        records in any_records(), rules in any_rules(), fates in fates(false), shards in 1..6usize,
    ) {
        let (service, sent, sum) = run(&records, rules, &fates, shards, &[]);
        check_sent(&service, &records, &sent);
        prop_assert_eq!((sum.possible_repeats, sum.misplaced), (0, 0));
        match rules.ordering {
            Ordering::Key => prop_assert_eq!(read(&service), given(&records)),
            Ordering::None => prop_assert_eq!(sorted(read(&service)), given(&records)),
        }
    }

    #[test]
    fn lost_answers_bring_repeats_and_nothing_else(
        records in any_records(), rules in any_rules(), fates in fates(true), shards in 1..6usize,
    ) {
        let (service, sent, sum) = run(&records, rules, &fates, shards, &[]);
        check_sent(&service, &records, &sent);
        let repeats = service.stored.len() - records.len();
        prop_assert!(repeats as u64 <= sum.possible_repeats);
        let mut firsts = read(&service);
        for numbers in firsts.values_mut() {
            let mut seen = std::collections::HashSet::new();
            numbers.retain(|number| seen.insert(*number));
        }
        match rules.ordering {
            Ordering::Key => prop_assert_eq!(firsts, given(&records)),
            Ordering::None => prop_assert_eq!(sorted(firsts), given(&records)),
        }
    }

    #[test]
    fn a_stream_that_is_resharded_keeps_every_record_once_and_in_order_where_it_belongs(
        records in any_records(), rules in any_rules(), fates in fates(false), shards in 1..6usize,
        reshards in prop::collection::vec((0..6usize, 1..6usize), 1..3),
    ) {
        let (service, sent, sum) = run(&records, rules, &fates, shards, &reshards);
        check_sent(&service, &records, &sent);
        prop_assert_eq!(service.stored.len() as u64, records.len() as u64 + sum.misplaced);
        match rules.ordering {
            Ordering::Key => prop_assert_eq!(read(&service), given(&records)),
            Ordering::None => prop_assert_eq!(sorted(read(&service)), given(&records)),
        }
    }

    #[test]
    fn a_map_that_knows_half_of_the_stream_costs_aggregates_and_nothing_else(
        records in any_records(), rules in any_rules(), shards in 2..6usize,
    ) {
        let mut service = Service::new(shards);
        let map = Arc::new(ShardMap::new(service.shards[1..].to_vec()));
        let mut plan = Plan::new(records.clone(), rules, Arc::clone(&map));
        let now = Instant::now();
        while let Next::Send(request) = plan.next(now) {
            check_limits(&request, &plan);
            let outcomes: Vec<_> = request.entries.iter().map(|entry| service.put(entry, Fate::Stored)).collect();
            let unknown = request.entries.iter().any(|entry| entry.lane == map.len());
            prop_assert_eq!(plan.surprise(&request, &outcomes), unknown.then_some(Surprise::Shard));
            prop_assert!(request.entries.iter().all(|entry| entry.lane < map.len() || entry.len() == 1));
            plan.settle(request, &outcomes, &map, now, |_| Duration::ZERO);
        }
        prop_assert_eq!(read(&service), given(&records));
    }
}

fn record(key: &str, length: usize) -> UserRecord {
    UserRecord { partition_key: key.to_owned(), explicit_hash_key: None, data: vec![7; length].into() }
}

#[test]
fn a_shard_that_fails_is_left_alone_for_longer_each_time_and_others_go_on() {
    let service = Service::new(2);
    let map = service.map();
    let keys: Vec<_> = (0..50).map(|index| format!("key-{index}")).collect();
    let first = keys.iter().find(|key| map.predict(HashKey::of_partition_key(key)) == Some(0)).unwrap();
    let second = keys.iter().find(|key| map.predict(HashKey::of_partition_key(key)) == Some(1)).unwrap();
    let rules = Rules { aggregate_max_bytes: None, ..Rules::new(&BatchOptions::default()) };
    let records = vec![record(first, 1), record(second, 1), record(second, 2)];
    let mut plan = Plan::new(records, rules, Arc::clone(&map));
    let delay = |failures| Duration::from_secs(1u64 << failures);
    let stored = |lane: usize| Outcome::Stored {
        shard: map.shard(lane).id.clone(),
        sequence_number: SequenceNumber::parse("1").unwrap(),
    };
    let start = Instant::now();

    let Next::Send(request) = plan.next(start) else { panic!("two shards are ready") };
    assert_eq!(request.entries.iter().map(|entry| entry.lane).collect::<Vec<_>>(), [0, 1]);
    let settled = plan.settle(request, &[Outcome::Failed, stored(1)], &map, start, delay);
    assert_eq!(settled.failing_for, Some(Duration::ZERO));
    let Next::Send(request) = plan.next(start) else { panic!("one shard is ready") };
    assert_eq!(request.entries.iter().map(|entry| entry.lane).collect::<Vec<_>>(), [1]);
    let settled = plan.settle(request, &[stored(1)], &map, start, delay);
    assert_eq!((settled.failing_for, plan.is_failing()), (None, true));

    let Next::Wait(until) = plan.next(start) else { panic!("no shard is ready") };
    assert_eq!(until, start + Duration::from_secs(2));
    let Next::Send(request) = plan.next(until) else { panic!("the shard is ready again") };
    let settled = plan.settle(request, &[Outcome::Failed], &map, until, delay);
    assert_eq!(settled.failing_for, Some(Duration::from_secs(2)));
    let Next::Wait(later) = plan.next(until) else { panic!("it failed again") };
    assert_eq!(later, until + Duration::from_secs(4));
    let Next::Send(request) = plan.next(later) else { panic!("the shard is ready again") };
    let settled = plan.settle(request, &[stored(0)], &map, later, delay);
    assert_eq!((settled.failing_for, plan.is_failing()), (None, false));
    assert!(matches!(plan.next(later), Next::Done));
    assert_eq!(plan.into_sent()[0].as_ref().unwrap().attempts, 3);
}

#[test]
fn the_services_limits_are_kept_at_their_real_size() {
    let service = Service::new(1);
    let options = BatchOptions { ordering: Ordering::None, aggregate: false, ..BatchOptions::default() };
    let mut plan = Plan::new(vec![record("k", 9); 600], Rules::new(&options), service.map());
    let Next::Send(request) = plan.next(Instant::now()) else { panic!("there is something to send") };
    assert_eq!((request.entries.len(), request.bytes), (500, 5_000));

    let largest = vec![record("k", MAX_RECORD_BYTES - 1); 6];
    assert!(largest.iter().all(|record| validate(record, MAX_RECORD_BYTES).is_ok()));
    let mut plan = Plan::new(largest, Rules::new(&options), service.map());
    let Next::Send(request) = plan.next(Instant::now()) else { panic!("there is something to send") };
    assert_eq!((request.entries.len(), request.bytes), (5, 5 << 20));

    let options = BatchOptions { aggregate_max_bytes: usize::MAX, ..BatchOptions::default() };
    let mut plan = Plan::new(vec![record("k", 1_000); 3_000], Rules::new(&options), service.map());
    let Next::Send(request) = plan.next(Instant::now()) else { panic!("there is something to send") };
    assert_eq!(request.entries.len(), 1);
    assert!((MAX_RECORD_BYTES - 1_100..=MAX_RECORD_BYTES).contains(&request.bytes));

    let mut plan = Plan::new(vec![record("k", 1_000); 3_000], Rules::new(&BatchOptions::default()), service.map());
    let Next::Send(request) = plan.next(Instant::now()) else { panic!("there is something to send") };
    assert!((50_000..=51_201).contains(&request.bytes));
}

#[test]
fn what_went_to_a_shard_that_is_closed_again_is_sent_again_but_for_its_first_record() {
    let mut service = Service::new(1);
    let mut plan = Plan::new(vec![record("a", 1), record("b", 2), record("c", 3)], rules(), service.map());
    let now = Instant::now();
    let Next::Send(request) = plan.next(now) else { panic!("there is something to send") };
    service.reshard(4);
    let outcomes: Vec<_> = request.entries.iter().map(|entry| service.put(entry, Fate::Stored)).collect();
    // Before the shards were listed. Nobody knows any more what range the shard had.
    service.reshard(3);
    assert_eq!(plan.surprise(&request, &outcomes), Some(Surprise::Aggregate));
    let settled = plan.settle(request, &outcomes, &service.map(), now, |_| Duration::ZERO);
    assert_eq!((settled.counts.acknowledged, settled.counts.misplaced), (1, 2));
    while let Next::Send(request) = plan.next(now) {
        let outcomes: Vec<_> = request.entries.iter().map(|entry| service.put(entry, Fate::Stored)).collect();
        plan.settle(request, &outcomes, &service.map(), now, |_| Duration::ZERO);
    }
    assert!(plan.into_sent().iter().all(Option::is_some));
}

fn rules() -> Rules {
    Rules::new(&BatchOptions::default())
}
