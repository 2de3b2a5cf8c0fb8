//! A line of JSON: whether it is one, and what is at a place in it, as it is written there.
//!
//! A parser into values would take numbers for what they are worth, so that two large ones become one, and would not go
//! deeper than its stack.

use std::borrow::Cow;

use memchr::{memchr, memchr2, memmem};
use serde::de::IgnoredAny;

/// What is at a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found<'a> {
    Nothing,
    Text(Cow<'a, str>),
    /// Its characters.
    Number(&'a str),
    /// Another kind of value, as a person would call it.
    Other(&'static str),
}

/// The document of a line, or why it is none.
pub(super) fn document(line: &[u8]) -> Result<&str, String> {
    let text = std::str::from_utf8(line).map_err(|error| format!("no UTF-8 at byte {}", error.valid_up_to() + 1))?;
    let _syntax: IgnoredAny = serde_json::from_str(text).map_err(|error| said(&error, 0))?;
    // What is passed over is not looked into: an escaped half of a character may be there.
    if memmem::find(line, b"\\u").is_some() {
        let mut scan = Scan { text, at: 0 };
        while let Some(start) = memchr(b'"', &line[scan.at..]) {
            scan.at += start;
            let before = scan.at;
            let quoted = scan.quoted();
            let _text: String = serde_json::from_str(quoted).map_err(|error| said(&error, before))?;
        }
    }
    Ok(text)
}

/// What is at this pointer (RFC 6901) of a document. Of members with the same name it is the last one.
pub(super) fn find<'a>(document: &'a str, pointer: &str) -> Found<'a> {
    let mut scan = Scan { text: document, at: 0 };
    scan.space();
    for name in pointer.split('/').skip(1) {
        if !scan.enter(&name.replace("~1", "/").replace("~0", "~")) {
            return Found::Nothing;
        }
    }
    match scan.next() {
        Some(b'"') => text(scan.quoted()).map_or(Found::Nothing, Found::Text),
        Some(b'-' | b'0'..=b'9') => Found::Number(scan.plain()),
        Some(b't' | b'f') => Found::Other("a truth value"),
        Some(b'[') => Found::Other("a list"),
        Some(b'{') => Found::Other("an object"),
        _null => Found::Nothing,
    }
}

/// What a parser says of a line that begins so many bytes before what it was given.
pub(super) fn said(error: &serde_json::Error, before: usize) -> String {
    let said = error.to_string();
    match said.rsplit_once(" at line ") {
        Some((what, _)) => format!("{what} at column {}", before + error.column()),
        None => said,
    }
}

/// Goes over a document that is known to be good.
struct Scan<'a> {
    text: &'a str,
    at: usize,
}

// === impl Scan ===

impl<'a> Scan<'a> {
    fn next(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.next() {
            self.at += 1;
        }
    }

    /// The text that begins here, with its quotes.
    fn quoted(&mut self) -> &'a str {
        let (start, bytes) = (self.at, self.text.as_bytes());
        self.at += 1;
        while let Some(found) = memchr2(b'"', b'\\', bytes.get(self.at..).unwrap_or_default()) {
            self.at += found + 1;
            if bytes[self.at - 1] == b'"' {
                return &self.text[start..self.at];
            }
            self.at += 1;
        }
        self.at = bytes.len();
        &self.text[start..]
    }

    /// The number or the word that begins here.
    fn plain(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        let end = rest.find([',', ']', '}', ' ', '\t', '\n', '\r']).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    /// Goes over the value that begins here.
    fn pass(&mut self) {
        let mut depth = 0_usize;
        while let Some(next) = self.next() {
            match next {
                b'"' => {
                    self.quoted();
                }
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                }
                b'}' | b']' => {
                    depth = depth.saturating_sub(1);
                    self.at += 1;
                }
                b',' | b':' | b' ' | b'\t' | b'\n' | b'\r' => self.at += 1,
                _plain => {
                    self.plain();
                }
            }
            if depth == 0 {
                return;
            }
        }
    }

    /// Goes into the object or the list that begins here, to a member of it; whether there is such a one.
    fn enter(&mut self, name: &str) -> bool {
        match self.next() {
            Some(b'{') => self.enter_object(name),
            Some(b'[') => self.enter_list(name),
            _other => false,
        }
    }

    fn enter_object(&mut self, name: &str) -> bool {
        let mut found = None;
        self.at += 1;
        self.space();
        while self.next() == Some(b'"') {
            let quoted = self.quoted();
            self.space();
            // The colon.
            self.at += 1;
            self.space();
            if text(quoted).is_some_and(|text| text == name) {
                found = Some(self.at);
            }
            self.pass();
            self.over_comma();
        }
        self.at = found.unwrap_or(self.at);
        found.is_some()
    }

    fn enter_list(&mut self, name: &str) -> bool {
        let is_plain = name == "0" || !name.starts_with(['0', '+']);
        let Some(index) = name.parse::<usize>().ok().filter(|_| is_plain) else { return false };
        self.at += 1;
        self.space();
        for _before in 0..index {
            if matches!(self.next(), None | Some(b']')) {
                return false;
            }
            self.pass();
            self.over_comma();
        }
        !matches!(self.next(), None | Some(b']'))
    }

    fn over_comma(&mut self) {
        self.space();
        if self.next() == Some(b',') {
            self.at += 1;
            self.space();
        }
    }
}

/// What stands in quotes.
fn text(quoted: &str) -> Option<Cow<'_, str>> {
    if quoted.contains('\\') {
        return serde_json::from_str(quoted).ok().map(Cow::Owned);
    }
    quoted.get(1..quoted.len().checked_sub(1)?).map(Cow::Borrowed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value};

    use super::*;

    #[test]
    fn a_number_is_what_stands_there() {
        let json = r#" { "a" : [ 1e2 , -0.50 ,123456789012345678901234567890] , "b":1e999,"a/b":{"~":7}, "a":[8] } "#;
        assert_eq!(document(json.as_bytes()), Ok(json));
        assert_eq!(find(json, "/b"), Found::Number("1e999"));
        assert_eq!(find(json, "/a~1b/~0"), Found::Number("7"));
        assert_eq!(find(json, "/a/0"), Found::Number("8"), "of two the last one, as any reader takes it");
        let list = "[1e2,-0.50, 123456789012345678901234567890]";
        assert_eq!((find(list, "/0"), find(list, "/1")), (Found::Number("1e2"), Found::Number("-0.50")));
        assert_eq!(find(list, "/2"), Found::Number("123456789012345678901234567890"));
        for pointer in ["/3", "/00", "/+1", "/-", "/x", "/0/0"] {
            assert_eq!(find(list, pointer), Found::Nothing, "{pointer}");
        }
        assert_eq!(find("7", ""), Found::Number("7"));
    }

    #[test]
    fn depth_is_no_matter_and_what_is_no_text_is_no_json() {
        let deep = format!("{{\"a\":{}{},\"k\":1}}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(document(deep.as_bytes()).map(|json| find(json, "/k")), Ok(Found::Number("1")));
        let told = |line: &[u8]| document(line).unwrap_err();
        assert_eq!(told(b"{\"a\":\"\xff\"}"), "no UTF-8 at byte 7");
        assert!(told(br#"{"a":"\ud800"}"#).contains("column 13"), "{}", told(br#"{"a":"\ud800"}"#));
        assert!(told(br#"{"\ud800":1}"#).contains("at column"));
        assert!(document(br#"{"a":"\ud83d\ude00 \\ud800"}"#).is_ok());
        assert_eq!(told(b"oops"), "expected value at column 1");
        assert!(document(b"1 2").is_err() && document(b"").is_err() && document(b"{").is_err());
    }

    fn value() -> impl Strategy<Value = Value> {
        let name = prop::sample::select(vec!["", "a", "b", "a/b", "~", "0", "1", "\"", "\\", "é\n"]);
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 30, 4, move |inner| {
            let member = (name.clone(), inner.clone());
            prop_oneof![
                prop::collection::vec(inner, 0..4).prop_map(Value::from),
                prop::collection::vec(member, 0..4).prop_map(|members| {
                    Value::Object(
                        members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Map<_, _>>(),
                    )
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_place_is_found_where_a_parser_finds_it(
            value in value(),
            pointer in prop::collection::vec(prop::sample::select(vec!["a", "b", "a~1b", "~0", "0", "1", ""]), 0..4),
            pretty: bool,
        ) {
            let pointer: String = pointer.iter().map(|name| format!("/{name}")).collect();
            let json = if pretty { format!("{value:#}") } else { value.to_string() };
            prop_assert_eq!(document(json.as_bytes()), Ok(&*json));
            let found = match value.pointer(&pointer) {
                Some(Value::String(text)) => Found::Text(text.into()),
                Some(Value::Number(number)) => {
                    prop_assert_eq!(find(&json, &pointer), Found::Number(&number.to_string()));
                    return Ok(());
                }
                Some(Value::Bool(_)) => Found::Other("a truth value"),
                Some(Value::Array(_)) => Found::Other("a list"),
                Some(Value::Object(_)) => Found::Other("an object"),
                Some(Value::Null) | None => Found::Nothing,
            };
            prop_assert_eq!(find(&json, &pointer), found);
        }

        #[test]
        fn no_line_breaks_it(line in prop::collection::vec(prop::sample::select(b"{}[]\",:\\u0d8 ".to_vec()), 0..20)) {
            if let Ok(json) = document(&line) {
                for pointer in ["", "/", "/0", "/u/0"] {
                    find(json, pointer);
                }
            }
        }
    }
}
