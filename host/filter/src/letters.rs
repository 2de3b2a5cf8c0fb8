/// A text that is compared letter by letter, whatever the case: two letters are one if they are the same in lower case or
/// in upper case, by Unicode. No letter is two (`ß` is not `ss`).
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AnyCase(String);

// === impl AnyCase ===

impl AnyCase {
    pub(crate) fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    pub(crate) fn equals(&self, text: &[u8]) -> bool {
        if self.0.is_ascii() && text.is_ascii() {
            return self.0.as_bytes().eq_ignore_ascii_case(text);
        }
        str::from_utf8(text).is_ok_and(|text| begin(text.chars(), self.0.chars()) == Some(true))
    }

    pub(crate) fn starts(&self, text: &[u8]) -> bool {
        str::from_utf8(text).is_ok_and(|text| begin(text.chars(), self.0.chars()).is_some())
    }

    pub(crate) fn ends(&self, text: &[u8]) -> bool {
        str::from_utf8(text).is_ok_and(|text| begin(text.chars().rev(), self.0.chars().rev()).is_some())
    }
}

/// Whether a text begins with these letters, and if so, whether it ends with them.
fn begin(mut text: impl Iterator<Item = char>, letters: impl Iterator<Item = char>) -> Option<bool> {
    for letter in letters {
        if !text.next().is_some_and(|next| same(next, letter)) {
            return None;
        }
    }
    Some(text.next().is_none())
}

fn same(one: char, other: char) -> bool {
    one == other || one.to_lowercase().eq(other.to_lowercase()) || one.to_uppercase().eq(other.to_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_of_any_case_are_the_same_and_no_letter_is_two() {
        let equals = |one: &str, other: &str| AnyCase::new(one).equals(other.as_bytes());
        assert!(equals("", "") && equals("Straße", "STRAßE") && equals("ÄRGER", "ärger") && equals("ΣΑΣ", "σας"));
        assert!(!equals("strasse", "straße") && !equals("a", "ab") && !equals("ab", "a") && !equals("a", "b"));
    }

    #[test]
    fn begins_and_ends() {
        let text = AnyCase::new("äB");
        assert!(text.starts("ÄBc".as_bytes()) && !text.starts("cäb".as_bytes()) && !text.starts("Ä".as_bytes()));
        assert!(text.ends("cÄB".as_bytes()) && !text.ends("äbc".as_bytes()) && !text.ends(b"B"));
        assert!(AnyCase::new("").starts(b"") && AnyCase::new("").ends(b"x"));
    }

    #[test]
    fn what_is_no_text_is_no_match() {
        let text = AnyCase::new("a");
        assert!(!text.equals(b"a\xFF") && !text.starts(b"a\xFF") && !text.ends(b"\xFFa"));
    }
}
