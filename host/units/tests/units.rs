//! Units as a TOML file writes them.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use shardmill_units::{Count, Size, Time, size, time};

/// Fields of every kind.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Options {
    #[serde(with = "time")]
    wait: Duration,
    #[serde(with = "size")]
    most: usize,
    #[serde(deserialize_with = "size::deserialize")]
    disk: u64,
}

#[derive(Debug, Deserialize)]
struct Kept {
    time: Option<Time>,
    size: Option<Size>,
    count: Option<Count>,
}

fn error(text: &str) -> String {
    toml::from_str::<Kept>(text).unwrap_err().message().to_owned()
}

#[test]
fn options_are_read_with_their_units_and_come_back_as_they_were() {
    let read: Options = toml::from_str("wait = \"1m 30s\"\nmost = \"50 KiB\"\ndisk = 7\n").unwrap();
    assert_eq!(read, Options { wait: Duration::from_secs(90), most: 51_200, disk: 7 });
    assert_eq!(toml::from_str::<Options>(&toml::to_string(&read).unwrap()).unwrap(), read);
}

#[test]
fn values_are_shown_in_the_largest_unit_that_is_exact() {
    let kept: Kept = toml::from_str("time = \"90s\"\nsize = \"1024 MiB\"\ncount = 5\n").unwrap();
    assert_eq!(kept.time.unwrap().to_string(), "1m 30s");
    assert_eq!(kept.size.unwrap().to_string(), "1 GiB");
    assert_eq!(kept.count.unwrap().to_string(), "5");
    assert_eq!([Size(1), Size(1025)].map(|size| size.to_string()), ["1 byte", "1025 bytes"]);
}

#[test]
fn what_is_none_is_told_what_is_expected() {
    for text in ["time = 3", "time = \"3\"", "time = \"soon\""] {
        assert!(error(text).contains("a duration with its unit in quotes"), "{text}: {}", error(text));
    }
    for text in ["size = \"much\"", "size = -1", "size = true"] {
        assert!(error(text).contains("a size such as \"64 MiB\""), "{text}: {}", error(text));
    }
    for text in ["count = \"3\"", "count = -1", "count = 1.5"] {
        assert!(error(text).contains("a whole number, without quotes"), "{text}: {}", error(text));
    }
}
