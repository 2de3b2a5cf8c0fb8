//! Which names a crate of a processor can have.

/// The longest: a processor of a configuration has no longer one either.
const LONGEST: usize = 64;

/// Names that mean something to Rust or to cargo, and those of crates that a processor uses, with `_` for `-`.
const TAKEN: &str = "_ abstract alloc as async await become box break build const continue core crate deps do dyn else enum \
    examples extern false final fn for gen if impl in incremental let loop macro match mod move mut override priv \
    proc_macro pub ref return sdk self serde serde_json shardmill_guest static std struct super test thiserror trait true \
    try type typeof unsafe unsized use virtual where while wit_bindgen yield";

/// Whether a crate can have this name; what is wrong with it, if not.
pub(super) fn check(name: &str) -> Result<(), String> {
    let allowed =
        |character: char| character.is_ascii_lowercase() || character.is_ascii_digit() || "-_".contains(character);
    if name.is_empty() || name.len() > LONGEST {
        return Err(format!("it has {} characters, and 1 to {LONGEST} are allowed", name.chars().count()));
    }
    if let Some(wrong) = name.chars().find(|character| !allowed(*character)) {
        let wrong = wrong.escape_default();
        return Err(format!("`{wrong}` cannot be in it: lower-case letters of ASCII, digits, `-` and `_` can"));
    }
    if !name.starts_with(|first: char| first.is_ascii_lowercase()) {
        return Err("it begins with a letter".to_owned());
    }
    let as_in_code = name.replace('-', "_");
    if TAKEN.split_whitespace().any(|taken| taken == as_in_code) {
        return Err(
            "it means something else to Rust or cargo, or is one of the crates that a processor uses".to_owned()
        );
    }
    Ok(())
}

/// A name that can be, of one that cannot.
pub(super) fn suggestion(name: &str) -> Option<String> {
    let mut better = String::new();
    let mut before = None;
    for character in name.chars() {
        let begins_word = character.is_uppercase()
            && before.is_some_and(|before: char| before.is_lowercase() || before.is_ascii_digit());
        if begins_word || !(character.is_ascii_alphanumeric() || character == '_') {
            better.push('-');
        }
        if character.is_ascii_alphanumeric() || character == '_' {
            better.push(character.to_ascii_lowercase());
        }
        before = Some(character);
    }
    let parts: Vec<&str> = better.split('-').filter(|part| !part.is_empty()).collect();
    let joined = parts.join("-");
    let from_letter = joined.trim_start_matches(|first: char| !first.is_ascii_lowercase());
    [from_letter.to_owned(), format!("{from_letter}-processor")].into_iter().find(|better| check(better).is_ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn crates_have_names_that_cargo_takes() {
        for good in ["late-flights", "a", "x1_y", &"a".repeat(64)] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for (bad, said) in [
            ("", "0 characters"),
            (&*"a".repeat(65), "65 characters"),
            ("Late", "`L`"),
            ("späte", "`\\u{e4}`"),
            ("a b", "` `"),
            ("../a", "`.`"),
            ("a\"b", "`\\\"`"),
            ("1a", "begins with a letter"),
            ("-a", "begins with a letter"),
            ("fn", "means something else"),
            ("serde-json", "means something else"),
            ("shardmill-guest", "means something else"),
        ] {
            let told = check(bad).unwrap_err();
            assert!(told.contains(said), "{bad}: {told}");
        }
    }

    #[test]
    fn a_better_name_is_found_where_there_is_one() {
        let better = |name| suggestion(name);
        assert_eq!(better("LateFlights").as_deref(), Some("late-flights"));
        assert_eq!(better("Late Flights!").as_deref(), Some("late-flights"));
        assert_eq!(better("2nd_try").as_deref(), Some("nd_try"));
        assert_eq!(better("fn").as_deref(), Some("fn-processor"));
        assert_eq!((better(""), better("é")), (None, None));
    }

    proptest! {
        #[test]
        fn what_is_suggested_can_be(name in any::<String>()) {
            if let Some(better) = suggestion(&name) {
                prop_assert_eq!(check(&better), Ok(()));
            }
        }
    }
}
