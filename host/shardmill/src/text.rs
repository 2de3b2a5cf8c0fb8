//! Texts of others, as a terminal can be trusted with them.

use std::fmt::Write as _;

use crate::unix_ms;

/// A text in one line, without what a terminal would take for a command or what would show it in another order.
pub(crate) fn line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    push_line(&mut line, text);
    line
}

/// The same of a text that may have lines.
pub(crate) fn lines(text: &str) -> String {
    let mut lines = String::with_capacity(text.len());
    push_escaped(&mut lines, text, |character| character == '\n');
    lines
}

/// A text in one line of at most so many characters.
pub(crate) fn short(text: &str, longest: usize) -> String {
    let mut short = line(text);
    if let Some((at, _)) = short.char_indices().nth(longest) {
        short.truncate(at);
        short.push('…');
    }
    short
}

/// `1 shard`, `2 shards`.
pub(crate) fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// A text in one line, at the end of another one.
pub(crate) fn push_line(out: &mut String, text: &str) {
    push_escaped(out, text, |_| false);
}

/// The same, but for characters that are wanted as they are.
pub(crate) fn push_escaped(out: &mut String, text: &str, is_kept: impl Fn(char) -> bool) {
    for character in text.chars() {
        if is_hazardous(character) && !is_kept(character) {
            out.extend(character.escape_default());
        } else {
            out.push(character);
        }
    }
}

/// A JSON value in one line. What is hazardous stands escaped in its texts, so that it is the same value for who reads
/// the JSON.
pub(crate) fn json(value: &serde_json::Value) -> String {
    let plain = value.to_string();
    if !plain.chars().any(is_hazardous) {
        return plain;
    }
    let mut escaped = String::with_capacity(plain.len() + 16);
    for character in plain.chars() {
        if is_hazardous(character) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                // A text takes all that is written to it.
                let _ = write!(escaped, "\\u{unit:04x}");
            }
        } else {
            escaped.push(character);
        }
    }
    escaped
}

/// A time in milliseconds since 1970 as people read it.
pub(crate) fn time(milliseconds: u64) -> String {
    humantime::format_rfc3339_millis(unix_ms::time(milliseconds)).to_string()
}

/// The same, shorter.
pub(crate) fn second(milliseconds: u64) -> String {
    humantime::format_rfc3339_seconds(unix_ms::time(milliseconds)).to_string()
}

/// Whether a terminal would obey a character, show it as nothing, or show others in another order because of it: control
/// characters, line and paragraph separators, and those that turn the direction of texts, join, hide or tag.
pub(crate) fn is_hazardous(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_shown_and_not_sent() {
        assert_eq!(line("a\u{1b}[2Jb\r\nc\t\u{7f} é"), "a\\u{1b}[2Jb\\r\\nc\\t\\u{7f} é");
        // The introducer of one byte that has two in UTF-8, and a text that is turned round.
        assert_eq!(line("\u{9b}2J \u{202e}gnp.exe"), "\\u{9b}2J \\u{202e}gnp.exe");
        assert_eq!(line("a\u{2066}c\u{2028}d\u{feff}"), "a\\u{2066}c\\u{2028}d\\u{feff}");
        assert_eq!(line("नमस्ते e\u{301} 👍 \u{a0}"), "नमस्ते e\u{301} 👍 \u{a0}");
        assert_eq!(json(&json!({ "a": "\u{9b}\u{202e}\u{7f}é" })), r#"{"a":"\u009b\u202e\u007fé"}"#);
    }

    #[test]
    fn long_texts_are_cut_at_a_character() {
        assert_eq!((short("ééé", 3), short("éééé", 3)), ("ééé".to_owned(), "ééé…".to_owned()));
        assert_eq!(short("a\nb", 9), "a\\nb");
    }

    #[test]
    fn any_time_can_be_shown() {
        assert_eq!(time(1_790_000_000_123), "2026-09-21T14:13:20.123Z");
        assert_eq!(second(1_790_000_000_999), "2026-09-21T14:13:20Z");
        assert!(time(u64::MAX).starts_with("9999-12-31"));
    }

    proptest! {
        #[test]
        fn nothing_hazardous_is_left_and_json_stays_what_it_is(text in any::<String>()) {
            prop_assert!(!line(&text).chars().any(is_hazardous));
            let value = json!({ "text": text, "in": [text] });
            let shown = json(&value);
            prop_assert!(!shown.chars().any(is_hazardous), "{shown}");
            prop_assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), value);
        }
    }
}
