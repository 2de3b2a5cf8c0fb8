use std::ops::Bound;

use crate::letters::AnyCase;
use crate::number::Number;
use crate::state::State;

/// A value that is neither an object nor a list.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Scalar<'a> {
    Null,
    Bool(bool),
    Number(Number),
    /// UTF-8, but for a body that is matched as text and may be anything.
    Text(&'a [u8]),
}

/// What a field can hold, and so what can be asked of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A field of a body.
    Any,
    Text,
    Number,
}

/// The list that stands at a field: the field matches if one of the list's conditions does.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Conditions {
    pub(crate) null: bool,
    pub(crate) yes: bool,
    pub(crate) no: bool,
    /// Whether any value matches.
    pub(crate) present: bool,
    /// Whether it matches that there is no value.
    pub(crate) absent: bool,
    /// Equals one of these. Sorted once they are all there.
    pub(crate) texts: Vec<Box<str>>,
    /// Equals one of these. Sorted once they are all there.
    pub(crate) numbers: Vec<Number>,
    pub(crate) tests: Vec<Test>,
}

/// A condition that is not an equality.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Test {
    Prefix(Box<str>),
    Suffix(Box<str>),
    Equals(AnyCase),
    PrefixAnyCase(AnyCase),
    SuffixAnyCase(AnyCase),
    Within(Bound<Number>, Bound<Number>),
    /// Any value but these texts, numbers among them.
    NoText(Vec<Box<str>>),
    /// Any value but these numbers, texts among them.
    NoNumber(Vec<Number>),
    /// Any value but what one of these takes.
    None(Vec<Test>),
}

// === impl Conditions ===

impl Conditions {
    /// Puts everything in the order in which it is looked up.
    pub(crate) fn sort(&mut self) {
        self.texts.sort_unstable();
        self.texts.dedup();
        self.numbers.sort_unstable_by(|one, other| one.compare(*other));
        self.numbers.dedup();
    }

    pub(crate) fn match_value(&self, value: &Scalar<'_>) -> State {
        if self.present || self.equals(value) || self.tests.iter().any(|test| test.matches(value)) {
            State::Holds
        } else {
            State::Fails
        }
    }

    pub(crate) fn match_absence(&self) -> State {
        if self.absent { State::Absent } else { State::Fails }
    }

    fn equals(&self, value: &Scalar<'_>) -> bool {
        match value {
            Scalar::Null => self.null,
            Scalar::Bool(true) => self.yes,
            Scalar::Bool(false) => self.no,
            Scalar::Number(number) => has_number(&self.numbers, *number),
            Scalar::Text(text) => has_text(&self.texts, text),
        }
    }
}

// === impl Test ===

impl Test {
    fn matches(&self, value: &Scalar<'_>) -> bool {
        match (self, value) {
            (Self::None(tests), _) => !tests.iter().any(|test| test.matches(value)),
            (Self::NoText(texts), Scalar::Text(text)) => !has_text(texts, text),
            (Self::NoNumber(numbers), Scalar::Number(number)) => !has_number(numbers, *number),
            (Self::NoText(_) | Self::NoNumber(_), _) => true,
            (Self::Prefix(prefix), Scalar::Text(text)) => text.starts_with(prefix.as_bytes()),
            (Self::Suffix(suffix), Scalar::Text(text)) => text.ends_with(suffix.as_bytes()),
            (Self::Equals(letters), Scalar::Text(text)) => letters.equals(text),
            (Self::PrefixAnyCase(letters), Scalar::Text(text)) => letters.starts(text),
            (Self::SuffixAnyCase(letters), Scalar::Text(text)) => letters.ends(text),
            (Self::Within(from, to), Scalar::Number(number)) => {
                let above = match from {
                    Bound::Included(from) => number.compare(*from).is_ge(),
                    Bound::Excluded(from) => number.compare(*from).is_gt(),
                    Bound::Unbounded => true,
                };
                above
                    && match to {
                        Bound::Included(to) => number.compare(*to).is_le(),
                        Bound::Excluded(to) => number.compare(*to).is_lt(),
                        Bound::Unbounded => true,
                    }
            }
            _ => false,
        }
    }
}

/// The texts are sorted, which they are by their bytes.
fn has_text(texts: &[Box<str>], text: &[u8]) -> bool {
    texts.binary_search_by(|one| one.as_bytes().cmp(text)).is_ok()
}

fn has_number(numbers: &[Number], number: Number) -> bool {
    numbers.binary_search_by(|one| one.compare(number)).is_ok()
}
