//! Texts of guests on their way to people: of a bounded length, and with nothing in them that could pass for another line
//! of a log or steer a terminal.

/// How much of a reason that a guest gives is kept: it goes to the log, to `/readyz` and into dead letters.
pub(crate) const REASON_BYTES: usize = 2000;

/// At most so many bytes of a text (and a few more for what shows that it was cut), on one line.
pub(crate) fn clean(text: &str, bytes: usize) -> String {
    let mut clean = String::with_capacity(text.len().min(bytes));
    for character in text.chars() {
        if clean.len() + character.len_utf8() > bytes {
            clean.push('…');
            break;
        }
        if character.is_control() && character != '\t' {
            clean.extend(character.escape_default());
        } else {
            clean.push(character);
        }
    }
    clean
}

/// What a guest gives as the reason of something. Its secrets are hidden before ([`crate::mask::Mask::reason`]).
pub(crate) fn reason(text: String) -> String {
    let is_clean = text.len() <= REASON_BYTES && !text.chars().any(char::is_control);
    if is_clean { text } else { clean(&text, REASON_BYTES) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_cannot_forge_another_line_or_grow_without_bound() {
        assert_eq!(clean("a\nERROR b\x1b[31m\tc", 100), "a\\nERROR b\\u{1b}[31m\tc");
        assert_eq!(clean("ééé", 5), "éé…");
        assert_eq!(reason("as it is".to_owned()), "as it is");
        assert_eq!(reason("two\nlines".to_owned()), "two\\nlines");
        let cut = reason("é".repeat(5000));
        assert!(cut.len() <= REASON_BYTES + '…'.len_utf8() && cut.ends_with('…'), "{} bytes", cut.len());
    }
}
