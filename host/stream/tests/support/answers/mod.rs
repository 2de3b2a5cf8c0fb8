//! Answers of GetRecords as services might send them, well and badly, made up from a seed and written in JSON or CBOR
//! in all the ways that these allow.

#![allow(dead_code, reason = "each test binary uses its part")]

mod cbor;
mod json;

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

/// A value of an answer.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Integer(i64),
    /// As JSON writes it.
    Number(String),
    Text(String),
    Data(Vec<u8>),
    /// Milliseconds since 1970, a multiple of 125: exact in seconds as an `f64`.
    Time(u64),
    List(Vec<Value>),
    Map(Vec<(String, Value)>),
}

/// Makes answers up.
pub(crate) struct Author {
    rng: SmallRng,
    /// Whether something may be wrong with them, or mean different things in JSON and CBOR.
    odd: bool,
}

// === impl Author ===

impl Author {
    pub(crate) fn new(seed: u64, odd: bool) -> Self {
        Self { rng: SmallRng::seed_from_u64(seed), odd }
    }

    fn one_in(&mut self, many: u32) -> bool {
        self.rng.random_ratio(1, many)
    }

    fn oddly(&mut self, many: u32) -> bool {
        self.odd && self.one_in(many)
    }

    pub(crate) fn answer(&mut self) -> Value {
        let mut fields = vec![("Records".to_owned(), self.records())];
        if !self.one_in(4) {
            let iterator = match self.rng.random_range(0..8) {
                0 => Value::Null,
                1 => Value::Text(String::new()),
                2 if self.odd => Value::Integer(7),
                _ => Value::Text(self.text(80)),
            };
            fields.push(("NextShardIterator".to_owned(), iterator));
        }
        if !self.one_in(4) {
            let behind = match self.rng.random_range(0..8) {
                0 => Value::Null,
                1 => Value::Integer(self.rng.random_range(-5..0)),
                2 if self.odd => self.odd_number(),
                3 => Value::Integer(i64::MAX),
                _ => Value::Integer(self.rng.random_range(0..100_000)),
            };
            fields.push(("MillisBehindLatest".to_owned(), behind));
        }
        if self.one_in(3) {
            let count = self.rng.random_range(0..3);
            let children =
                if self.one_in(5) { Value::Null } else { Value::List((0..count).map(|_| self.child()).collect()) };
            fields.push(("ChildShards".to_owned(), children));
        }
        if self.oddly(20) {
            fields.remove(0);
        }
        self.finish(fields)
    }

    fn records(&mut self) -> Value {
        if self.oddly(30) {
            return Value::Null;
        }
        let mut number = self.rng.random_range(0..1_000_u64);
        let count = self.rng.random_range(0..6);
        let records = (0..count).map(|_| {
            number += self.rng.random_range(1..2_000);
            self.record(number)
        });
        Value::List(records.collect())
    }

    fn record(&mut self, number: u64) -> Value {
        if self.oddly(100) {
            return Value::Null;
        }
        let number = match self.rng.random_range(0..50) {
            0 => format!("{number:030}"),
            1 if self.odd => self.text(5),
            2 if self.odd => "5".to_owned(),
            3 if self.odd => String::new(),
            _ => number.to_string(),
        };
        let key = if self.oddly(100) { Value::Null } else { Value::Text(self.text(20)) };
        let data = match self.rng.random_range(0..30) {
            0 => Value::Null,
            1 if self.odd => Value::Text("A===".to_owned()),
            _ => {
                let length = self.rng.random_range(0..100);
                Value::Data((0..length).map(|_| self.rng.random()).collect())
            }
        };
        let mut fields = vec![
            ("SequenceNumber".to_owned(), Value::Text(number)),
            ("Data".to_owned(), data),
            ("PartitionKey".to_owned(), key),
        ];
        if !self.one_in(6) {
            let time = match self.rng.random_range(0..10) {
                0 => Value::Null,
                1..5 if self.odd => self.odd_number(),
                5 if self.odd => Value::Text("2026-07-01T00:00:00.5+02:00".to_owned()),
                _ => Value::Time(self.rng.random_range(11_000_000_000..20_000_000_000_u64) * 125),
            };
            fields.push(("ApproximateArrivalTimestamp".to_owned(), time));
        }
        if self.one_in(3) {
            let encryption = if self.one_in(4) { Value::Null } else { Value::Text("KMS".to_owned()) };
            fields.push(("EncryptionType".to_owned(), encryption));
        }
        if self.oddly(60) {
            let lost = self.rng.random_range(0..fields.len());
            fields.remove(lost);
        }
        self.finish(fields)
    }

    fn child(&mut self) -> Value {
        let id = |number: u32| Value::Text(format!("shardId-{number:012}"));
        let parents = (0..self.rng.random_range(0..3)).map(id).collect();
        let mut fields = vec![
            ("ShardId".to_owned(), id(self.rng.random_range(0..100))),
            ("ParentShards".to_owned(), Value::List(parents)),
        ];
        let key = |number: u128| Value::Text(number.to_string());
        let range = vec![
            ("StartingHashKey".to_owned(), key(self.rng.random())),
            ("EndingHashKey".to_owned(), key(self.rng.random())),
        ];
        fields.push(("HashKeyRange".to_owned(), self.finish(range)));
        if self.oddly(10) {
            let lost = self.rng.random_range(0..fields.len());
            if self.one_in(2) {
                fields.remove(lost);
            } else {
                fields[lost].1 = Value::Null;
            }
        }
        self.finish(fields)
    }

    /// In any order, with fields that nobody knows, and some that come twice.
    fn finish(&mut self, mut fields: Vec<(String, Value)>) -> Value {
        if self.one_in(4) {
            let name = if self.one_in(4) { "__type".to_owned() } else { format!("X{}", self.text(8)) };
            let value = self.anything(4);
            fields.push((name, value));
        }
        if self.one_in(8) && !fields.is_empty() {
            let twice = self.rng.random_range(0..fields.len());
            let again = fields[twice].clone();
            fields.push(again);
        }
        if self.one_in(2) {
            fields.shuffle(&mut self.rng);
        }
        Value::Map(fields)
    }

    fn anything(&mut self, depth: u32) -> Value {
        match self.rng.random_range(0..if depth == 0 { 5 } else { 7 }) {
            0 => Value::Null,
            1 => Value::Bool(self.rng.random()),
            2 => Value::Integer(self.rng.random()),
            3 => Value::Number("-0.5e-7".to_owned()),
            4 => Value::Text(self.text(10)),
            5 => Value::List((0..self.rng.random_range(0..4)).map(|_| self.anything(depth - 1)).collect()),
            _ => {
                let count = self.rng.random_range(0..4);
                Value::Map((0..count).map(|_| (self.text(6), self.anything(depth - 1))).collect())
            }
        }
    }

    fn odd_number(&mut self) -> Value {
        let milliseconds = self.rng.random_range(0..4_000_000_000_000_u64);
        let odd = [
            "0",
            "-0",
            "-1",
            "007",
            "1.44E9",
            "1.441215410867E9",
            "1e400",
            "-1e400",
            "9223372036854775807",
            "9223372036854775808",
            "18446744073709551616",
            "1.",
            "-.5",
            "1e",
            "1-2",
            "+5",
            "-",
            "1.2.3",
            "1.5",
            "1E+3",
            "9007199254740993.0",
            "0.9999999999",
            "true",
            "[]",
            "{}",
            "\"1\"",
            "1e15",
            "1e16",
        ];
        Value::Number(match self.rng.random_range(0..4) {
            0 => odd[self.rng.random_range(0..odd.len())].to_owned(),
            1 => format!("{:e}", milliseconds as f64 / 1_000.0),
            2 => format!("{}.{:03}", milliseconds / 1_000, milliseconds % 1_000),
            _ => format!("{}", milliseconds as f64 / 1_000_000.0),
        })
    }

    /// Any characters, those that JSON escapes and those beyond 16 bits among them.
    fn text(&mut self, most: usize) -> String {
        let length = self.rng.random_range(0..=most);
        let special =
            ['"', '\\', '/', '\u{8}', '\u{c}', '\n', '\r', '\t', '\0', '\u{1f}', 'é', '€', '😀', '\u{10ffff}'];
        (0..length)
            .map(|_| match self.rng.random_range(0..10) {
                0 => special[self.rng.random_range(0..special.len())],
                1 => self.rng.random(),
                _ => self.rng.random_range('a'..='z'),
            })
            .collect()
    }

    /// Damages an answer in a few places.
    pub(crate) fn damage(&mut self, bytes: &mut Vec<u8>) {
        let tokens: [&[u8]; 24] = [
            b"{",
            b"}",
            b"[",
            b"]",
            b",",
            b":",
            b"\"",
            b"\\",
            b"\\u",
            b"\\ud800",
            b"\\udc00",
            b"null",
            b"nul",
            b"true",
            b"-",
            b"1e5",
            b".",
            b" ",
            b"\0",
            b"\xff",
            b"\xc3",
            b"=",
            b"A",
            b"{\"Records\":[]}",
        ];
        for _ in 0..self.rng.random_range(1..4) {
            if bytes.is_empty() {
                return;
            }
            let at = self.rng.random_range(0..bytes.len());
            match self.rng.random_range(0..6) {
                0 => bytes.truncate(at),
                1 => bytes[at] = self.rng.random(),
                2 => {
                    bytes.remove(at);
                }
                3 => {
                    let token = tokens[self.rng.random_range(0..tokens.len())];
                    bytes.splice(at..at, token.iter().copied());
                }
                4 => {
                    let end = (at + self.rng.random_range(1..20)).min(bytes.len());
                    let copied = bytes[at..end].to_vec();
                    bytes.splice(at..at, copied);
                }
                _ => bytes[at] ^= 1 << self.rng.random_range(0..8),
            }
        }
    }
}
