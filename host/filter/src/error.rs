use std::fmt;

/// Why a filter or a pattern is refused: where in the pattern, and what is allowed there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Error {
    /// From the pattern's top, such as `data.items[0].prefix`; empty if it is about the whole.
    path: String,
    what: String,
}

/// A place in a pattern. Linked on the stack while the pattern is read, and written out only if there is an error.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

#[derive(Debug, Clone, Copy)]
enum Step<'a> {
    Top,
    Key(&'a str),
    Index(usize),
}

// === impl Error ===

impl Error {
    /// About the whole.
    pub(crate) fn whole(what: impl Into<String>) -> Self {
        Self { path: String::new(), what: what.into() }
    }

    /// The place in the pattern, such as `data.items[0].prefix`; empty if the error is about the whole.
    pub fn path(&self) -> &str {
        &self.path
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            formatter.write_str(&self.what)
        } else {
            write!(formatter, "at `{}`: {}", self.path, self.what)
        }
    }
}

// === impl Path ===

impl<'a> Path<'a> {
    pub(crate) fn top() -> Self {
        Self { parent: None, step: Step::Top }
    }

    pub(crate) fn key(&'a self, name: &'a str) -> Self {
        Self { parent: Some(self), step: Step::Key(name) }
    }

    pub(crate) fn index(&'a self, index: usize) -> Self {
        Self { parent: Some(self), step: Step::Index(index) }
    }

    /// An error at this place.
    pub(crate) fn error(&self, what: impl Into<String>) -> Error {
        Error { path: self.to_string(), what: what.into() }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(formatter)?;
        }
        let first = self.parent.is_none_or(|parent| matches!(parent.step, Step::Top));
        match self.step {
            Step::Top => Ok(()),
            Step::Index(index) => write!(formatter, "[{index}]"),
            Step::Key(name) => {
                let dot = if first { "" } else { "." };
                if is_plain(name) { write!(formatter, "{dot}{name}") } else { write!(formatter, "{dot}{name:?}") }
            }
        }
    }
}

/// Whether a key is read rightly without quotes.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|letter| letter.is_alphanumeric() || matches!(letter, '_' | '-' | '$'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_written_as_one_would_find_them() {
        let top = Path::top();
        let data = top.key("data");
        let list = data.key("a.b");
        let index = list.index(3);
        assert_eq!(top.to_string(), "");
        assert_eq!(index.key("anything-but").to_string(), "data.\"a.b\"[3].anything-but");
        assert_eq!(index.error("no").to_string(), "at `data.\"a.b\"[3]`: no");
        assert_eq!(Error::whole("no").to_string(), "no");
    }
}
