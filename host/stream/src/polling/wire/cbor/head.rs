//! An item's first bytes: its type and its number or length.

/// An item's type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Major {
    Unsigned,
    Negative,
    Bytes,
    Text,
    List,
    Map,
    Tag,
    /// Simple values, floating-point numbers, and the break.
    Other,
}

/// An item's type and argument: a number, a length, a count, a tag, or a floating-point number's bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) major: Major,
    /// `None`: up to a break, or the break itself.
    pub(super) argument: Option<u64>,
}

// === impl Head ===

impl Head {
    /// And its length; `None` if there is no head here, or not all of it.
    #[inline]
    pub(super) fn read(bytes: &[u8]) -> Option<(Self, usize)> {
        let first = *bytes.first()?;
        let major = major(first);
        let (argument, length) = match first & 0x1f {
            small @ 0..24 => (Some(u64::from(small)), 1),
            24 => (Some(u64::from(*bytes.get(1)?)), 2),
            25 => (Some(u16::from_be_bytes(*bytes.get(1..)?.first_chunk()?).into()), 3),
            26 => (Some(u32::from_be_bytes(*bytes.get(1..)?.first_chunk()?).into()), 5),
            27 => (Some(u64::from_be_bytes(*bytes.get(1..)?.first_chunk()?)), 9),
            31 if !matches!(major, Major::Unsigned | Major::Negative | Major::Tag) => (None, 1),
            _ => return None,
        };
        Some((Self { major, argument }, length))
    }
}

#[inline]
fn major(first: u8) -> Major {
    match first >> 5 {
        0 => Major::Unsigned,
        1 => Major::Negative,
        2 => Major::Bytes,
        3 => Major::Text,
        4 => Major::List,
        5 => Major::Map,
        6 => Major::Tag,
        _ => Major::Other,
    }
}

/// What begins with this byte, for messages.
pub(super) fn describe(first: u8) -> &'static str {
    match (major(first), first & 0x1f) {
        (_, 28..=30) | (Major::Unsigned | Major::Negative | Major::Tag, 31) => "a byte that begins nothing",
        (Major::Unsigned | Major::Negative, _) => "a whole number",
        (Major::Bytes, _) => "a byte string",
        (Major::Text, _) => "a text",
        (Major::List, _) => "a list",
        (Major::Map, _) => "a map",
        (Major::Tag, _) => "a tag",
        (Major::Other, 25..=27) => "a floating-point number",
        (Major::Other, 31) => "a break",
        (Major::Other, _) => "a simple value",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_of_every_length_are_read() {
        let read = |bytes: &[u8]| Head::read(bytes).map(|(head, length)| (head.major, head.argument, length));
        assert_eq!(read(&[0x17]), Some((Major::Unsigned, Some(23), 1)));
        assert_eq!(read(&[0x38, 99]), Some((Major::Negative, Some(99), 2)));
        assert_eq!(read(&[0x59, 1, 2, 7]), Some((Major::Bytes, Some(0x102), 3)));
        assert_eq!(read(&[0x7a, 1, 2, 3, 4]), Some((Major::Text, Some(0x102_0304), 5)));
        assert_eq!(read(&[0x9b, 0, 0, 0, 0, 0, 0, 0, 9]), Some((Major::List, Some(9), 9)));
        assert_eq!(read(&[0xbf]), Some((Major::Map, None, 1)));
        assert_eq!(read(&[0xff]), Some((Major::Other, None, 1)));
        for none in [&[][..], &[0x18], &[0x19, 1], &[0x1b, 0, 0, 0, 0, 0, 0, 0], &[0x1c], &[0x1f], &[0x3f], &[0xdf]] {
            assert_eq!(read(none), None, "{none:?}");
        }
    }
}
