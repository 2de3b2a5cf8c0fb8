//! Which flights are kept, and what they look like then.

use flight_delays::FlightDelays;
use serde_json::{Value, json};
use shardmill_guest::testing::{self, Inspected, TestRecord, Verdict, record};

fn processor() -> FlightDelays {
    let airlines = json!({ "UA": "United Air Lines Inc.", "Ä✈": "Österreichische „Flüge“ 🛫" });
    testing::configured(json!({ "minutes": 15, "airlines": airlines })).unwrap()
}

fn flight(carrier: &str, dep_delay: Value) -> Value {
    json!({
        "year": 2013, "month": 1, "day": 1, "dep_time": 533, "sched_dep_time": 529, "dep_delay": dep_delay,
        "carrier": carrier, "flight": 1714, "tailnum": "N24211", "origin": "LGA", "dest": "IAH",
        "air_time": 227, "distance": 1416,
    })
}

fn run(records: Vec<impl Into<TestRecord>>) -> Inspected {
    testing::run(&mut processor(), records).unwrap()
}

fn reason(result: &Inspected, index: usize) -> &str {
    match &result.verdicts()[index] {
        Verdict::Failed { reason, retry: false } => reason,
        other => panic!("{other:?} instead of a failure for good"),
    }
}

#[test]
fn a_late_flight_is_sent_on_whole_with_its_airline_by_carrier() {
    let late = flight("UA", json!(42));
    let result = run(vec![record(late.to_string()).partition_key("N24211").explicit_hash_key(9)]);
    assert!(result.all_done());
    let delays = result.outputs("delays");
    assert_eq!(delays.len(), 1);
    let mut expected = late;
    expected["airline"] = json!("United Air Lines Inc.");
    assert_eq!(delays[0].json(), expected);
    assert_eq!((delays[0].partition_key.as_str(), &delays[0].explicit_hash_key), ("UA", &None));
}

#[test]
fn late_is_more_than_the_minutes() {
    let delays = [json!(-4), json!(0), json!(15), json!(15.5), json!(16), json!(u64::MAX)];
    let result = run(delays.iter().map(|delay| flight("UA", delay.clone())).collect());
    assert!(result.all_done());
    let kept: Vec<Value> = result.outputs("delays").iter().map(|output| output.json()["dep_delay"].clone()).collect();
    assert_eq!(kept, delays[3..]);
}

#[test]
fn a_flight_that_never_left_is_done_and_not_late() {
    let result = run(vec![flight("UA", Value::Null), flight("UA", json!("NA"))]);
    assert!(result.all_done());
    assert!(result.all_outputs().is_empty());
}

#[test]
fn a_carrier_without_a_name_stands_for_itself() {
    let result = run(vec![flight("ZZ", json!(16))]);
    assert_eq!(result.outputs("delays")[0].json()["airline"], "ZZ");
}

#[test]
fn any_unicode_goes_through() {
    let mut late = flight("Ä✈", json!(99));
    late["dest"] = json!("\u{0}\u{1f}\"\\ 東京 👩‍✈️");
    let escaped = r#"{"carrier":"\u00c4\u2708","dep_delay":16}"#;
    let result = run(vec![late.to_string(), escaped.to_owned()]);
    assert!(result.all_done());
    for output in result.outputs("delays") {
        assert_eq!(output.partition_key, "Ä✈");
        assert_eq!(output.json()["airline"], "Österreichische „Flüge“ 🛫");
    }
    assert_eq!(result.outputs("delays")[0].json()["dest"], late["dest"]);
}

#[test]
fn what_is_no_flight_fails_for_good_alone_and_says_why() {
    let result = run(vec![
        "not JSON".to_owned(),
        String::new(),
        "[]".to_owned(),
        r#"{"carrier":"UA"}"#.to_owned(),
        r#"{"dep_delay":20}"#.to_owned(),
        r#"{"carrier":"UA","dep_delay":"soon"}"#.to_owned(),
        r#"{"carrier":"","dep_delay":20}"#.to_owned(),
        r#"{"carrier":"UA","dep_delay":20} {}"#.to_owned(),
        flight("UA", json!(20)).to_string(),
    ]);
    let told = [
        "expected ident",
        "EOF while parsing",
        "missing field `carrier`",
        "missing field `dep_delay`",
        "missing field `carrier`",
        "expected minutes, null or \"NA\"",
        "1 to 256 characters, this one has 0",
        "trailing characters",
    ];
    for (index, told) in told.iter().enumerate() {
        if index == 2 {
            continue; // An empty array is read as a flight of no fields; its message is serde's.
        }
        assert!(reason(&result, index).contains(told), "{index}: {}", reason(&result, index));
    }
    reason(&result, 2);
    assert_eq!(result.verdicts()[8], Verdict::Done);
    assert_eq!(result.outputs("delays").len(), 1);
}

#[test]
fn data_that_is_not_utf8_fails_for_good() {
    let result = run(vec![record(b"{\"carrier\":\"\xff\",\"dep_delay\":20}")]);
    assert!(reason(&result, 0).contains("invalid unicode"), "{}", reason(&result, 0));
}

#[test]
fn the_same_flights_give_the_same_bytes() {
    let flights: Vec<Value> = (0..50).map(|minutes| flight("UA", json!(minutes))).collect();
    let once = run(flights.clone());
    let again = run(flights);
    assert_eq!(once.all_outputs().len(), 34);
    assert_eq!(once.all_outputs(), again.all_outputs());
}

#[test]
fn fifteen_minutes_are_the_default_and_a_misspelt_key_is_refused() {
    let mut processor: FlightDelays = testing::configured(json!({})).unwrap();
    let result = testing::run(&mut processor, [flight("UA", json!(15)), flight("UA", json!(16))]).unwrap();
    assert_eq!(result.outputs("delays").len(), 1);
    let refused = testing::configured::<FlightDelays>(json!({ "minute": 1 })).unwrap_err();
    assert!(refused.contains("unknown field `minute`"), "{refused}");
}
