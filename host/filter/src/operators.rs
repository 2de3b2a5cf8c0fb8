//! From a list in a pattern to its conditions.

use std::ops::Bound;

use crate::condition::{Conditions, Kind, Test};
use crate::error::{Error, Path};
use crate::letters::AnyCase;
use crate::number::Number;
use crate::tree::Tree;

const PREFIX: &str = "prefix";
const SUFFIX: &str = "suffix";
const ANY_CASE: &str = "equals-ignore-case";
const NUMERIC: &str = "numeric";
const EXISTS: &str = "exists";
const ANYTHING_BUT: &str = "anything-but";

const ALLOWED: &str = "`prefix`, `suffix`, `equals-ignore-case`, `numeric`, `exists` and `anything-but`";
const COMPARISONS: &str = "`=`, `<`, `<=`, `>` and `>=`";
const NUMERIC_FORM: &str = "`numeric` takes a comparison and a number, such as [\">\", 0], or a range that begins with \
                            its lower end, such as [\">\", 0, \"<=\", 5]";

/// The operators, here and in EventBridge, whose names are no fields' names inside `$or`: who writes conditions there
/// would else ask for a field that no body has.
pub(crate) fn is_operator(name: &str) -> bool {
    [PREFIX, SUFFIX, ANY_CASE, NUMERIC, EXISTS, ANYTHING_BUT, "wildcard", "cidr"].contains(&name)
}

/// Whether an entry of an object of fields can only be an operator that is not in a list.
pub(crate) fn is_misplaced(name: &str, value: &Tree) -> bool {
    match (name, value) {
        (ANYTHING_BUT, _) => true,
        (NUMERIC, Tree::List(list)) => {
            list.first().is_some_and(|first| matches!(first, Tree::Text(text) if comparison(text).is_some()))
        }
        _ => false,
    }
}

/// The conditions of a list at a field of this kind.
pub(crate) fn conditions(list: &[Tree], kind: Kind, path: &Path<'_>) -> Result<Conditions, Error> {
    if list.is_empty() {
        return Err(path.error("the list is empty, so nothing would match: name at least one value or condition"));
    }
    let mut conditions = Conditions::default();
    for (index, tree) in list.iter().enumerate() {
        let path = path.index(index);
        match tree {
            Tree::Text(text) => conditions.texts.push(kind.text(text, &path)?),
            Tree::Number(number) => conditions.numbers.push(kind.number(*number, &path)?),
            Tree::Null => {
                kind.other("null", &path)?;
                conditions.null = true;
            }
            Tree::Bool(value) => {
                kind.other("true or false", &path)?;
                *if *value { &mut conditions.yes } else { &mut conditions.no } = true;
            }
            Tree::List(_) => {
                return Err(path.error(
                    "a list in the list: values stand side by side, and an array in a record matches if one of its \
                     elements does",
                ));
            }
            Tree::Fields(fields) => operator(&mut conditions, fields, kind, &path)?,
        }
    }
    conditions.sort();
    Ok(conditions)
}

/// One condition that is an object, such as `{"prefix": "a"}`.
fn operator(into: &mut Conditions, fields: &[(String, Tree)], kind: Kind, path: &Path<'_>) -> Result<(), Error> {
    let (name, value) = only(fields, path)?;
    let here = path.key(name);
    let test = match name {
        PREFIX => match value {
            Tree::Fields(fields) => Test::PrefixAnyCase(any_case_within(fields, kind, &here)?),
            _ => Test::Prefix(text(value, kind, &here)?),
        },
        SUFFIX => match value {
            Tree::Fields(fields) => Test::SuffixAnyCase(any_case_within(fields, kind, &here)?),
            _ => Test::Suffix(text(value, kind, &here)?),
        },
        ANY_CASE => Test::Equals(AnyCase::new(&text(value, kind, &here)?)),
        NUMERIC => match range(value, kind, &here)? {
            (Bound::Included(from), Bound::Included(to)) if from == to => {
                into.numbers.push(from);
                return Ok(());
            }
            (from, to) => Test::Within(from, to),
        },
        EXISTS => {
            let Tree::Bool(exists) = value else {
                return Err(here.error(format!("`exists` takes true or false, and this is {}", value.kind())));
            };
            *if *exists { &mut into.present } else { &mut into.absent } = true;
            return Ok(());
        }
        ANYTHING_BUT => anything_but(value, kind, &here)?,
        _ => return Err(here.error(format!("`{name}` is no operator; allowed are {ALLOWED}"))),
    };
    into.tests.push(test);
    Ok(())
}

/// The only entry of an object that stands for one condition.
fn only<'a>(fields: &'a [(String, Tree)], path: &Path<'_>) -> Result<(&'a str, &'a Tree), Error> {
    match fields {
        [(name, value)] => Ok((name, value)),
        [] => Err(path.error(format!("a condition names one operator, and this one is empty; allowed are {ALLOWED}"))),
        [..] => {
            let names: Vec<_> = fields.iter().map(|(name, _)| format!("`{name}`")).collect();
            Err(path.error(format!(
                "a condition names one operator, and this one has {}; of several elements of the list one must match",
                names.join(", ")
            )))
        }
    }
}

fn text(value: &Tree, kind: Kind, path: &Path<'_>) -> Result<Box<str>, Error> {
    match value {
        Tree::Text(text) => kind.text(text, path),
        _ => Err(path.error(format!("a text is expected, and this is {}", value.kind()))),
    }
}

/// What stands in `{"prefix": {"equals-ignore-case": "a"}}`.
fn any_case_within(fields: &[(String, Tree)], kind: Kind, path: &Path<'_>) -> Result<AnyCase, Error> {
    match fields {
        [(name, value)] if name == ANY_CASE => Ok(AnyCase::new(&text(value, kind, &path.key(name))?)),
        _ => Err(path.error("a text is expected, or an object with `equals-ignore-case` alone")),
    }
}

fn range(value: &Tree, kind: Kind, path: &Path<'_>) -> Result<(Bound<Number>, Bound<Number>), Error> {
    let Tree::List(list) = value else {
        return Err(path.error(format!("{NUMERIC_FORM}, and this is {}", value.kind())));
    };
    let pair = |at: usize| -> Result<(&str, Number), Error> {
        let Some(Tree::Text(sign)) = list.get(at) else {
            return Err(path.index(at).error(NUMERIC_FORM));
        };
        let Some(sign) = comparison(sign) else {
            return Err(path.index(at).error(format!("`{sign}` is no comparison; allowed are {COMPARISONS}")));
        };
        match list.get(at + 1) {
            Some(Tree::Number(number)) => Ok((sign, kind.number(*number, &path.index(at + 1))?)),
            Some(other) => {
                Err(path.index(at + 1).error(format!("`{sign}` takes a number, and this is {}", other.kind())))
            }
            None => Err(path.error(format!("after `{sign}` a number is expected"))),
        }
    };
    let (sign, number) = pair(0)?;
    let from = match sign {
        ">" => Bound::Excluded(number),
        ">=" => Bound::Included(number),
        _ if list.len() > 2 => return Err(path.index(2).error(NUMERIC_FORM)),
        "<" => return Ok((Bound::Unbounded, Bound::Excluded(number))),
        "<=" => return Ok((Bound::Unbounded, Bound::Included(number))),
        _ => return Ok((Bound::Included(number), Bound::Included(number))),
    };
    if list.len() == 2 {
        return Ok((from, Bound::Unbounded));
    }
    let (sign, upper) = pair(2)?;
    let to = match sign {
        "<" => Bound::Excluded(upper),
        "<=" => Bound::Included(upper),
        _ => return Err(path.index(2).error("the upper end of a range is `<` or `<=`")),
    };
    if list.len() > 4 {
        return Err(path.index(4).error(NUMERIC_FORM));
    }
    if number.compare(upper).is_ge() {
        return Err(path.error("the lower end of the range is not below the upper end"));
    }
    Ok((from, to))
}

fn comparison(text: &str) -> Option<&str> {
    ["=", "<", "<=", ">", ">="].contains(&text).then_some(text)
}

fn anything_but(value: &Tree, kind: Kind, path: &Path<'_>) -> Result<Test, Error> {
    const FORM: &str = "`anything-but` takes a text, a number, a list of texts, a list of numbers, or an object with \
                        `prefix`, `suffix` or `equals-ignore-case`";
    match value {
        Tree::Text(text) => Ok(Test::NoText(vec![kind.text(text, path)?])),
        Tree::Number(number) => Ok(Test::NoNumber(vec![kind.number(*number, path)?])),
        Tree::Fields(fields) => {
            let [(name, value)] = fields.as_slice() else {
                return Err(path.error(format!("{FORM} alone")));
            };
            let here = path.key(name);
            let test: fn(Box<str>) -> Test = match name.as_str() {
                PREFIX => Test::Prefix,
                SUFFIX => Test::Suffix,
                ANY_CASE => |text| Test::Equals(AnyCase::new(&text)),
                _ => return Err(here.error(format!("`{name}` is not for `anything-but`: {FORM}"))),
            };
            let texts = match value {
                Tree::Text(_) => vec![text(value, kind, &here)?],
                Tree::List(list) if !list.is_empty() => (list.iter().enumerate())
                    .map(|(index, value)| text(value, kind, &here.index(index)))
                    .collect::<Result<_, _>>()?,
                _ => return Err(here.error("a text is expected, or a list of texts with at least one")),
            };
            if name != ANY_CASE && texts.iter().any(|text| text.is_empty()) {
                return Err(here.error(format!("every text has an empty {name}, so no text would match")));
            }
            Ok(Test::None(texts.into_iter().map(test).collect()))
        }
        Tree::List(list) => {
            let (mut texts, mut numbers) = (Vec::new(), Vec::new());
            for (index, value) in list.iter().enumerate() {
                let here = path.index(index);
                match value {
                    Tree::Text(text) => texts.push(kind.text(text, &here)?),
                    Tree::Number(number) => numbers.push(kind.number(*number, &here)?),
                    _ => return Err(here.error(format!("{FORM}, and this is {}", value.kind()))),
                }
            }
            match (texts.is_empty(), numbers.is_empty()) {
                (false, true) => {
                    texts.sort_unstable();
                    Ok(Test::NoText(texts))
                }
                (true, false) => {
                    numbers.sort_unstable_by(|one, other| one.compare(*other));
                    Ok(Test::NoNumber(numbers))
                }
                (true, true) => Err(path.error(format!("{FORM}, and this list is empty"))),
                (false, false) => Err(path.error(format!("{FORM}, and this list has both texts and numbers"))),
            }
        }
        Tree::Null | Tree::Bool(_) => Err(path.error(format!("{FORM}, and this is {}", value.kind()))),
    }
}

// === impl Kind ===

impl Kind {
    fn text(self, text: &str, path: &Path<'_>) -> Result<Box<str>, Error> {
        if self == Self::Number {
            return Err(path.error("it is a number here, which no text matches: write it without quotes"));
        }
        Ok(text.into())
    }

    fn number(self, number: Number, path: &Path<'_>) -> Result<Number, Error> {
        if self == Self::Text {
            return Err(path.error("it is a text here, which no number matches: write it in quotes"));
        }
        Ok(number)
    }

    fn other(self, what: &str, path: &Path<'_>) -> Result<(), Error> {
        match self {
            Self::Any => Ok(()),
            Self::Text => Err(path.error(format!("it is a text here, and never {what}"))),
            Self::Number => Err(path.error(format!("it is a number here, and never {what}"))),
        }
    }
}
