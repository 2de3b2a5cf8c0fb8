//! The types that a component declares, read one declaration after the other.
//!
//! The type of a component or of an instance holds declarations, each of which may be such a type again. Whoever reads them
//! with a function that calls itself, as wasmparser does, goes as deep as they nest, and a file of some kilobytes nests
//! deeper than any stack: that ends the process, and no error is returned. Here they are counted first, with what is left to
//! read at each depth in a list.

use std::ops::Range;

use wasmparser::{
    BinaryReader, BinaryReaderError, ComponentAlias, ComponentExternName, ComponentImport, ComponentType,
    ComponentTypeRef, CoreType, TypeBounds,
};

/// How deep types, and components, may nest. Those of WASI and of the contract nest two deep.
pub(crate) const DEPTH: usize = 100;

/// How the types of components and of instances begin.
const COMPONENT: u8 = 0x41;
const INSTANCE: u8 = 0x42;

/// Why types are not read to the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unread {
    /// They nest deeper than [`DEPTH`].
    Deep,
    /// They are not valid, and what is wrong.
    Broken(String),
}

/// An outermost type that is being read.
#[derive(Debug, Default)]
struct Outermost {
    is_instance: bool,
    exports: usize,
    /// Those that are types, and no resources of its own.
    types: usize,
}

/// For each type of a section of types, which is at this place of a file, whether it is that of an instance of types: one
/// without functions, and without resources of its own.
pub(crate) fn types_alone(bytes: &[u8], section: Range<usize>) -> Result<Vec<bool>, Unread> {
    let place = section.start;
    let mut reader = BinaryReader::new(bytes.get(section).unwrap_or_default(), place);
    let mut found = Vec::new();
    let mut outermost = Outermost::default();
    // At each depth, how much is still to be read there.
    let mut left = vec![reader.read_var_u32()?];
    while let Some(count) = left.last_mut() {
        let Some(rest) = count.checked_sub(1) else {
            left.pop();
            if left.len() == 1 {
                found.push(outermost.is_types_alone());
            }
            continue;
        };
        *count = rest;
        let depth = left.len();
        if depth > 1 && !outermost.declares_type(&mut reader, depth == 2)? {
            continue;
        }
        let head = reader.clone().read_u8()?;
        if head != COMPONENT && head != INSTANCE {
            // No other type holds types.
            reader.read::<ComponentType<'_>>()?;
            if depth == 1 {
                found.push(false);
            }
            continue;
        }
        if depth > DEPTH {
            return Err(Unread::Deep);
        }
        reader.read_u8()?;
        if depth == 1 {
            outermost = Outermost { is_instance: head == INSTANCE, ..Outermost::default() };
        }
        left.push(reader.read_var_u32()?);
    }
    Ok(found)
}

// === impl Outermost ===

impl Outermost {
    /// Reads a declaration, and of that of a type only that it is one, which is returned. `is_own`: it is not one of a type
    /// that it holds.
    fn declares_type(&mut self, reader: &mut BinaryReader<'_>, is_own: bool) -> Result<bool, Unread> {
        let place = reader.original_position();
        match reader.read_u8()? {
            0x00 => {
                reader.read::<CoreType<'_>>()?;
            }
            0x01 => return Ok(true),
            0x02 => {
                reader.read::<ComponentAlias<'_>>()?;
            }
            0x03 => {
                reader.read::<ComponentImport<'_>>()?;
            }
            0x04 => {
                reader.read::<ComponentExternName<'_>>()?;
                let exported: ComponentTypeRef = reader.read()?;
                if is_own {
                    self.exports += 1;
                    self.types += usize::from(matches!(exported, ComponentTypeRef::Type(TypeBounds::Eq(_))));
                }
            }
            other => {
                return Err(Unread::Broken(format!("no declaration begins with {other:#04x} (at offset {place:#x})")));
            }
        }
        Ok(false)
    }

    fn is_types_alone(&self) -> bool {
        self.is_instance && self.types > 0 && self.types == self.exports
    }
}

// === impl Unread ===

impl From<BinaryReaderError> for Unread {
    fn from(error: BinaryReaderError) -> Self {
        Self::Broken(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(section: &[u8]) -> Result<Vec<bool>, Unread> {
        types_alone(section, 0..section.len())
    }

    /// Types one in the other, so many of them.
    fn nested(head: u8, depth: usize) -> Vec<u8> {
        [&[1][..], &[head, 1, 1].repeat(depth - 1), &[head, 0]].concat()
    }

    #[test]
    fn types_nest_so_deep_and_no_deeper() {
        for head in [COMPONENT, INSTANCE] {
            assert_eq!(read(&nested(head, DEPTH)), Ok(vec![false]));
            assert_eq!(read(&nested(head, DEPTH + 1)), Err(Unread::Deep));
            // A few bytes each: as deep as no stack.
            assert_eq!(read(&nested(head, 10_000_000)), Err(Unread::Deep));
        }
    }

    #[test]
    fn what_stands_behind_types_that_nest_is_read_as_well() {
        // Two instance types and a string; of the first one's two types the inner one has a function, which is not its own.
        let inner = [&[INSTANCE, 2][..], &[1, 0x40, 0, 1, 0], b"\x04\0\x01f\x01\0"].concat();
        let first = [&[INSTANCE, 3, 1][..], &inner, &[1, 0x77], b"\x04\0\x01d\x03\0\x01"].concat();
        let second = [&[INSTANCE, 1][..], b"\x04\0\x01t\x03\x01"].concat();
        let section = [&[3][..], &first, &second, &[0x73]].concat();
        assert_eq!(read(&section), Ok(vec![true, false, false]));
        assert!(matches!(read(&section[..section.len() - 1]), Err(Unread::Broken(_))));
        assert!(matches!(read(&[1, INSTANCE, 1, 9]), Err(Unread::Broken(reason)) if reason.contains("0x09")));
        assert!(matches!(read(&[0xff, 0xff, 0xff, 0xff, 0x0f]), Err(Unread::Broken(_))), "more than there is");
    }
}
