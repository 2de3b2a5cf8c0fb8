//! Every operator, with what it takes and what it does not.

use crate::check;

/// The table of operators of the Lambda guide, in its order, on bodies of its kind.
#[test]
fn the_operators_that_lambda_lists() {
    let cases: &[(&str, &[&str], &[&str])] = &[
        (r#"{"UserID": [null]}"#, &[r#"{"UserID": null}"#], &[r#"{"UserID": "null"}"#, r#"{"UserID": 0}"#, "{}"]),
        (r#"{"LastName": [""]}"#, &[r#"{"LastName": ""}"#], &[r#"{"LastName": " "}"#, r#"{"LastName": null}"#, "{}"]),
        (r#"{"Name": ["Alice"]}"#, &[r#"{"Name": "Alice"}"#], &[r#"{"Name": "alice"}"#, r#"{"Name": "Alice "}"#, "{}"]),
        (
            r#"{"Name": [{"equals-ignore-case": "alice"}]}"#,
            &[r#"{"Name": "ALICE"}"#, r#"{"Name": "alice"}"#],
            &[r#"{"Name": "Alices"}"#, r#"{"Name": ["x"]}"#, "{}"],
        ),
        (
            r#"{"Location": ["New York"], "Day": ["Monday"]}"#,
            &[r#"{"Day": "Monday", "Location": "New York", "Hour": 1}"#],
            &[r#"{"Location": "New York"}"#, r#"{"Location": "New York", "Day": "Tuesday"}"#],
        ),
        (
            r#"{"PaymentType": ["Credit", "Debit"]}"#,
            &[r#"{"PaymentType": "Credit"}"#, r#"{"PaymentType": "Debit"}"#],
            &[r#"{"PaymentType": "Cash"}"#],
        ),
        (
            r#"{"$or": [{"Location": ["New York"]}, {"Day": ["Monday"]}]}"#,
            &[r#"{"Location": "New York"}"#, r#"{"Location": "Paris", "Day": "Monday"}"#],
            &[r#"{"Location": "Monday", "Day": "New York"}"#, "{}"],
        ),
        (
            r#"{"Weather": [{"anything-but": ["Raining"]}]}"#,
            &[r#"{"Weather": "Sunny"}"#, r#"{"Weather": ""}"#],
            &[r#"{"Weather": "Raining"}"#, "{}"],
        ),
        (
            r#"{"Price": [{"numeric": ["=", 100]}]}"#,
            &[r#"{"Price": 100}"#],
            &[r#"{"Price": 101}"#, r#"{"Price": "100"}"#],
        ),
        (
            r#"{"Price": [{"numeric": [">", 10, "<=", 20]}]}"#,
            &[r#"{"Price": 10.5}"#, r#"{"Price": 20}"#],
            &[r#"{"Price": 10}"#, r#"{"Price": 20.000001}"#, r#"{"Price": "15"}"#, "{}"],
        ),
        (
            r#"{"ProductName": [{"exists": true}]}"#,
            &[r#"{"ProductName": "x"}"#, r#"{"ProductName": null}"#, r#"{"ProductName": false}"#],
            &["{}", r#"{"ProductName": {}}"#, r#"{"ProductName": {"x": 1}}"#, r#"{"ProductName": []}"#],
        ),
        (
            r#"{"ProductName": [{"exists": false}]}"#,
            &["{}", r#"{"ProductName": {"x": 1}}"#, r#"{"ProductName": []}"#, "1"],
            &[r#"{"ProductName": "x"}"#, r#"{"ProductName": null}"#],
        ),
        (
            r#"{"Region": [{"prefix": "us-"}]}"#,
            &[r#"{"Region": "us-east-1"}"#, r#"{"Region": "us-"}"#],
            &[r#"{"Region": "eu-us-"}"#, r#"{"Region": "us"}"#, r#"{"Region": "US-east-1"}"#],
        ),
        (
            r#"{"FileName": [{"suffix": ".png"}]}"#,
            &[r#"{"FileName": "a.png"}"#, r#"{"FileName": ".png"}"#],
            &[r#"{"FileName": "a.png2"}"#, r#"{"FileName": "a.PNG"}"#],
        ),
    ];
    for (fields, matched, not_matched) in cases {
        check(&format!("{{\"data\": {fields}}}"), matched, not_matched);
    }
}

#[test]
fn what_eventbridge_has_besides() {
    check(
        r#"{"data": {"service": [{"prefix": {"equals-ignore-case": "EventB"}}]}}"#,
        &[r#"{"service": "eventbridge"}"#],
        &[r#"{"service": "event"}"#, r#"{"service": 1}"#],
    );
    check(
        r#"{"data": {"service": [{"suffix": {"equals-ignore-case": "tBridge"}}]}}"#,
        &[r#"{"service": "eventBRIDGE"}"#],
        &[r#"{"service": "bridge"}"#],
    );
    check(
        r#"{"data": {"ok": [true]}}"#,
        &[r#"{"ok": true}"#],
        &[r#"{"ok": false}"#, r#"{"ok": "true"}"#, r#"{"ok": 1}"#],
    );
    check(r#"{"data": {"ok": [false]}}"#, &[r#"{"ok": false}"#], &[r#"{"ok": true}"#, r#"{"ok": null}"#, "{}"]);
}

/// It takes values of any kind, `null` among them; a field that is absent has none.
#[test]
fn anything_but() {
    let excluded = |condition: &str| format!("{{\"data\": {{\"x\": [{{\"anything-but\": {condition}}}]}}}}");
    check(
        &excluded(r#""a""#),
        &[r#"{"x": "b"}"#, r#"{"x": null}"#, r#"{"x": true}"#, r#"{"x": 1}"#, r#"{"x": ["a", "b"]}"#],
        &[r#"{"x": "a"}"#, "{}", r#"{"x": []}"#, r#"{"x": ["a"]}"#, r#"{"x": {"a": 1}}"#],
    );
    check(&excluded(r#"["b", "a"]"#), &[r#"{"x": "c"}"#], &[r#"{"x": "a"}"#, r#"{"x": "b"}"#]);
    check(
        &excluded("0"),
        &[r#"{"x": 1}"#, r#"{"x": "0"}"#, r#"{"x": null}"#],
        &[r#"{"x": 0}"#, r#"{"x": -0.0}"#, "{}"],
    );
    check(&excluded("[200, 100.5]"), &[r#"{"x": 100}"#], &[r#"{"x": 100.50}"#, r#"{"x": 2e2}"#]);
    check(
        &excluded(r#"{"prefix": "init"}"#),
        &[r#"{"x": "run"}"#, r#"{"x": 12}"#, r#"{"x": null}"#],
        &[r#"{"x": "initial"}"#, "{}"],
    );
    check(&excluded(r#"{"prefix": ["a", "b"]}"#), &[r#"{"x": "c"}"#], &[r#"{"x": "ax"}"#, r#"{"x": "bx"}"#]);
    check(&excluded(r#"{"suffix": ".png"}"#), &[r#"{"x": "a.jpg"}"#], &[r#"{"x": "a.png"}"#]);
    check(&excluded(r#"{"suffix": ["1", "2"]}"#), &[r#"{"x": "a3"}"#, r#"{"x": 1}"#], &[r#"{"x": "a2"}"#]);
    check(&excluded(r#"{"equals-ignore-case": "init"}"#), &[r#"{"x": "inits"}"#], &[r#"{"x": "INIT"}"#]);
    check(&excluded(r#"{"equals-ignore-case": ["a", "b"]}"#), &[r#"{"x": "c"}"#], &[r#"{"x": "A"}"#, r#"{"x": "B"}"#]);
}

#[test]
fn numeric() {
    let numeric = |list: &str| format!("{{\"data\": {{\"x\": [{{\"numeric\": {list}}}]}}}}");
    check(&numeric(r#"["<", 5]"#), &[r#"{"x": 4.9}"#, r#"{"x": -1e300}"#], &[r#"{"x": 5}"#]);
    check(&numeric(r#"["<=", 5]"#), &[r#"{"x": 5.0}"#], &[r#"{"x": 5.1}"#]);
    check(&numeric(r#"[">", 5]"#), &[r#"{"x": 5.1}"#, r#"{"x": 1e300}"#], &[r#"{"x": 5}"#, r#"{"x": true}"#]);
    check(&numeric(r#"[">=", 5]"#), &[r#"{"x": 5}"#], &[r#"{"x": 4}"#, r#"{"x": null}"#]);
    check(&numeric(r#"[">=", -1.5, "<", 0]"#), &[r#"{"x": -1.5}"#, r#"{"x": -0.1}"#], &[r#"{"x": 0}"#, r#"{"x": -2}"#]);
    check(&numeric(r#"["=", 301.8]"#), &[r#"{"x": 3.018e2}"#], &[r#"{"x": 301}"#]);
}

/// EventBridge compares them as numbers, although its guide speaks of texts.
#[test]
fn numbers_are_equal_however_they_are_written() {
    check(
        r#"{"data": {"x": [300]}}"#,
        &[r#"{"x": 300}"#, r#"{"x": 300.0}"#, r#"{"x": 3.0e2}"#, r#"{"x": 3E+2}"#],
        &[r#"{"x": 300.1}"#, r#"{"x": "300"}"#],
    );
    check(r#"{"data": {"x": [3.0e2]}}"#, &[r#"{"x": 300}"#], &[r#"{"x": 30}"#]);
    check(r#"{"data": {"x": [0.1]}}"#, &[r#"{"x": 0.10}"#, r#"{"x": 1e-1}"#], &[r#"{"x": 0.100001}"#]);
    check(r#"{"data": {"x": [0]}}"#, &[r#"{"x": -0}"#, r#"{"x": 0.0}"#], &[]);
}

#[test]
fn whole_numbers_are_exact_to_64_bits() {
    check(
        r#"{"data": {"x": [9007199254740993]}}"#,
        &[r#"{"x": 9007199254740993}"#],
        &[r#"{"x": 9007199254740992}"#, r#"{"x": 9007199254740994}"#, r#"{"x": 9007199254740992.0}"#],
    );
    check(
        r#"{"data": {"x": [{"numeric": [">", 18446744073709551614]}]}}"#,
        &[r#"{"x": 18446744073709551615}"#],
        &[r#"{"x": 18446744073709551614}"#],
    );
    check(
        r#"{"data": {"x": [-9223372036854775808]}}"#,
        &[r#"{"x": -9223372036854775808}"#],
        &[r#"{"x": -9223372036854775807}"#],
    );
}

#[test]
fn conditions_of_a_list_are_alternatives() {
    check(
        r#"{"data": {"x": ["a", {"prefix": "b"}, 1, {"numeric": [">", 10]}, null, {"exists": false}]}}"#,
        &[r#"{"x": "a"}"#, r#"{"x": "bc"}"#, r#"{"x": 1}"#, r#"{"x": 11}"#, r#"{"x": null}"#, "{}"],
        &[r#"{"x": "c"}"#, r#"{"x": 2}"#, r#"{"x": false}"#],
    );
}

#[test]
fn a_long_list_is_looked_up() {
    let values: Vec<String> = (0..2000).rev().map(|value| format!("\"v{value}\", {value}")).collect();
    let pattern = format!("{{\"data\": {{\"x\": [{}]}}}}", values.join(", "));
    check(
        &pattern,
        &[r#"{"x": "v0"}"#, r#"{"x": "v1999"}"#, r#"{"x": 0}"#, r#"{"x": 1234}"#],
        &[r#"{"x": "v2000"}"#, r#"{"x": 2000}"#, r#"{"x": 0.5}"#, r#"{"x": ""}"#],
    );
}
