//! How much a component makes the host do before any of it runs, counted before that is done.
//!
//! A component can be small and mean much: it may instantiate a component that instantiates another one a thousand times,
//! and so on, and the compiler writes all of that out. What else makes a compiler slow is bounded by where it runs
//! (`compiler.rs`).

use wasmparser::{
    ComponentAlias, ComponentExternalKind, ComponentInstance, ComponentOuterAliasKind, ComponentTypeRef, Encoding,
    Instance, Parser, Payload,
};

use crate::nesting::{self, DEPTH, Unread};

/// Instances of core modules and of components, all that come of a component when it is instantiated once. A Python guest
/// has some fifty.
const INSTANCES: u64 = 2_000;
/// Imports and exports together, at the component's outside. WASI and the contract have some fifty.
pub(crate) const OUTSIDE: usize = 1_000;
/// Components that one component can name, whether it holds them or not: the compiler's own limit.
const COMPONENTS: usize = 1_000;
/// Functions of all core modules together. The engines of JavaScript and Python have some tens of thousands.
const FUNCTIONS: u64 = 500_000;
/// Bytes of one function. The loop of an interpreter, which is the largest that is in use, has some hundred thousand.
const FUNCTION_BYTES: usize = 2 << 20;

/// Why a component is not compiled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TooMuch {
    #[error("it is made of more than {INSTANCES} instances of modules and components, which is the most")]
    Instances,
    #[error("it instantiates a component that it does not hold itself, which this host does not do")]
    Elsewhere,
    #[error("it has more than {OUTSIDE} imports and exports, which is the most")]
    Outside,
    #[error("it has types or components in one another, more than {DEPTH} deep, which is the most")]
    Depth,
    #[error("it has a component that names more than {COMPONENTS} others, which is the most")]
    Components,
    #[error("it has more than {FUNCTIONS} functions, which is the most")]
    Functions,
    #[error("it has a function of {bytes} bytes, and {FUNCTION_BYTES} are the most")]
    Function { bytes: usize },
}

/// A component that is being read.
#[derive(Debug, Default)]
struct Level {
    /// What comes of it when it is instantiated.
    instances: u64,
    /// For each component that it can instantiate, what comes of that one; `None` where it comes from elsewhere.
    components: Vec<Option<u64>>,
}

/// Counts what comes of a component. What cannot be read is not counted: the compiler says what is wrong with it.
pub(crate) fn check(bytes: &[u8]) -> Result<(), TooMuch> {
    let mut levels: Vec<Option<Level>> = Vec::new();
    let (mut outside, mut functions) = (0, 0);
    for payload in Parser::new(0).parse_all(bytes) {
        let Ok(payload) = payload else { return Ok(()) };
        let depth = levels.len();
        match payload {
            Payload::Version { encoding: Encoding::Module, .. } => levels.push(None),
            Payload::Version { encoding: Encoding::Component, .. } if depth == DEPTH => return Err(TooMuch::Depth),
            Payload::Version { encoding: Encoding::Component, .. } => levels.push(Some(Level::default())),
            Payload::ComponentTypeSection(section)
                if nesting::types_alone(bytes, section.range()) == Err(Unread::Deep) =>
            {
                return Err(TooMuch::Depth);
            }
            Payload::End(_) => {
                let ended = levels.pop().flatten();
                if let (Some(ended), Some(Some(outer))) = (ended, levels.last_mut()) {
                    outer.components.push(Some(ended.instances));
                }
            }
            Payload::FunctionSection(section) => functions += u64::from(section.count()),
            Payload::CodeSectionEntry(body) => {
                let bytes = body.range().len();
                if bytes > FUNCTION_BYTES {
                    return Err(TooMuch::Function { bytes });
                }
            }
            Payload::ComponentImportSection(section) => {
                outside += if depth == 1 { section.count() as usize } else { 0 };
                let Some(Some(level)) = levels.last_mut() else { continue };
                let components = section.into_iter().flatten();
                let components = components.filter(|import| matches!(import.ty, ComponentTypeRef::Component(_)));
                // As many as are too many, of any number.
                level.components.extend(components.map(|_| None).take(COMPONENTS + 1));
            }
            Payload::ComponentExportSection(section) => {
                outside += if depth == 1 { section.count() as usize } else { 0 };
                let Some(Some(level)) = levels.last_mut() else { continue };
                for export in section.into_iter().flatten() {
                    if export.kind == ComponentExternalKind::Component {
                        // An export has an index of its own.
                        level.push(level.component(export.index))?;
                    }
                }
            }
            Payload::ComponentAliasSection(section) => {
                for alias in section.into_iter().flatten() {
                    if let Some(component) = aliased(&levels, &alias)
                        && let Some(Some(level)) = levels.last_mut()
                    {
                        level.push(component)?;
                    }
                }
            }
            Payload::InstanceSection(section) => {
                let Some(Some(level)) = levels.last_mut() else { continue };
                let instances = section.into_iter().flatten();
                let instances = instances.filter(|instance| matches!(instance, Instance::Instantiate { .. }));
                level.instances = level.instances.saturating_add(instances.count() as u64);
            }
            Payload::ComponentInstanceSection(section) => {
                let Some(Some(level)) = levels.last_mut() else { continue };
                for instance in section.into_iter().flatten() {
                    let ComponentInstance::Instantiate { component_index, .. } = instance else { continue };
                    let inner = level.component(component_index).ok_or(TooMuch::Elsewhere)?;
                    level.instances = level.instances.saturating_add(inner).saturating_add(1);
                }
            }
            _ => {}
        }
        // Of all levels only the innermost has changed.
        if let Some(Some(level)) = levels.last() {
            if level.instances > INSTANCES {
                return Err(TooMuch::Instances);
            }
            if level.components.len() > COMPONENTS {
                return Err(TooMuch::Components);
            }
        }
        if outside > OUTSIDE {
            return Err(TooMuch::Outside);
        }
        if functions > FUNCTIONS {
            return Err(TooMuch::Functions);
        }
    }
    Ok(())
}

/// The component that an alias names, if it is one of a component.
fn aliased(levels: &[Option<Level>], alias: &ComponentAlias<'_>) -> Option<Option<u64>> {
    match alias {
        ComponentAlias::InstanceExport { kind: ComponentExternalKind::Component, .. } => Some(None),
        ComponentAlias::Outer { kind: ComponentOuterAliasKind::Component, count, index } => {
            let place = levels.len().checked_sub(1 + *count as usize);
            let level = place.and_then(|place| levels[place].as_ref());
            Some(level.and_then(|level| level.component(*index)))
        }
        _ => None,
    }
}

// === impl Level ===

impl Level {
    fn push(&mut self, component: Option<u64>) -> Result<(), TooMuch> {
        self.components.push(component);
        if self.components.len() > COMPONENTS { Err(TooMuch::Components) } else { Ok(()) }
    }

    fn component(&self, index: u32) -> Option<u64> {
        self.components.get(index as usize).copied().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leb(mut number: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while number >= 0x80 {
            bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        bytes.push(number as u8);
        bytes
    }

    fn section(id: u8, contents: &[u8]) -> Vec<u8> {
        [&[id], leb(contents.len()).as_slice(), contents].concat()
    }

    fn vector(items: &[Vec<u8>]) -> Vec<u8> {
        [leb(items.len()), items.concat()].concat()
    }

    fn component(sections: &[Vec<u8>]) -> Vec<u8> {
        [b"\0asm\x0d\0\x01\0".to_vec(), sections.concat()].concat()
    }

    /// Instances of the component of this index.
    fn instances(of: u8, count: usize) -> Vec<u8> {
        section(5, &vector(&vec![vec![0, of, 0]; count]))
    }

    /// Instances of an empty core module.
    fn core_instances(count: usize) -> Vec<u8> {
        let module = section(1, b"\0asm\x01\0\0\0");
        [module, section(2, &vector(&vec![vec![0, 0, 0]; count]))].concat()
    }

    #[test]
    fn instances_are_counted_through_all_components() {
        assert_eq!(check(&component(&[core_instances(INSTANCES as usize)])), Ok(()));
        assert_eq!(check(&component(&[core_instances(INSTANCES as usize + 1)])), Err(TooMuch::Instances));
        // An instance of a component is one, and those that are in it.
        let inner = component(&[core_instances(3)]);
        let most = INSTANCES as usize / 4;
        assert_eq!(check(&component(&[section(4, &inner), instances(0, most)])), Ok(()));
        assert_eq!(check(&component(&[section(4, &inner), instances(0, most + 1)])), Err(TooMuch::Instances));
        // Each level a hundred of the one before, twelve deep: as written a kilobyte each, and 10^24 instances.
        let mut bomb = component(&[core_instances(1)]);
        for _ in 0..12 {
            bomb = component(&[section(4, &bomb), instances(0, 100)]);
        }
        assert_eq!(check(&bomb), Err(TooMuch::Instances));
    }

    #[test]
    fn a_component_is_the_same_under_another_index() {
        let inner = component(&[core_instances(3)]);
        // `(alias outer 1 0 (component))`, from a component beside it.
        let alias = section(6, &vector(&[vec![4, 2, 1, 0]]));
        let most = INSTANCES as usize / 4;
        for (count, expected) in [(most - 1, Ok(())), (most, Ok(())), (most + 1, Err(TooMuch::Instances))] {
            let beside = component(&[alias.clone(), instances(0, count)]);
            assert_eq!(check(&component(&[section(4, &inner), section(4, &beside)])), expected, "{count}");
        }
        // One that is not there, or is handed in.
        assert_eq!(check(&component(&[instances(0, 1)])), Err(TooMuch::Elsewhere));
    }

    #[test]
    fn functions_and_names_are_counted() {
        let types = section(1, &[1, 0x60, 0, 0]);
        let module = |count: usize, code: &[u8]| {
            let functions = section(3, &vector(&vec![vec![0]; count]));
            let body = [leb(code.len()), code.to_vec()].concat();
            let module =
                [b"\0asm\x01\0\0\0".to_vec(), types.clone(), functions, section(10, &vector(&[body]))].concat();
            component(&[section(1, &module)])
        };
        let nops = |count: usize| [&[0], vec![1; count].as_slice(), &[0x0b]].concat();
        assert_eq!(check(&module(1, &nops(FUNCTION_BYTES - 2))), Ok(()));
        let bytes = FUNCTION_BYTES + 1;
        assert_eq!(check(&module(1, &nops(FUNCTION_BYTES - 1))), Err(TooMuch::Function { bytes }));
        assert_eq!(check(&module(FUNCTIONS as usize + 1, &nops(1))), Err(TooMuch::Functions));
        let import = |number: usize| {
            let name = format!("a:b/c@0.1.{number}");
            [&[0], leb(name.len()).as_slice(), name.as_bytes(), &[5, 0]].concat()
        };
        let imports = |count: usize| {
            let imports: Vec<_> = (0..count).map(import).collect();
            component(&[section(7, &[1, 0x42, 0]), section(10, &vector(&imports))])
        };
        assert_eq!(check(&imports(OUTSIDE)), Ok(()));
        assert_eq!(check(&imports(OUTSIDE + 1)), Err(TooMuch::Outside));
    }

    #[test]
    fn types_and_components_nest_so_deep_and_no_deeper() {
        let types = |depth: usize| [&[1][..], &[0x42, 1, 1].repeat(depth - 1), &[0x42, 0]].concat();
        let nested = |depth: usize| component(&[section(4, &component(&[section(7, &types(depth))]))]);
        assert_eq!(check(&nested(DEPTH)), Ok(()));
        assert_eq!(check(&nested(DEPTH + 1)), Err(TooMuch::Depth));
        assert_eq!(check(&nested(1_000_000)), Err(TooMuch::Depth));
        let components = |depth: usize| (1..depth).fold(component(&[]), |inner, _| component(&[section(4, &inner)]));
        assert_eq!(check(&components(DEPTH)), Ok(()));
        assert_eq!(check(&components(DEPTH + 1)), Err(TooMuch::Depth));
    }

    #[test]
    fn components_that_are_named_over_and_over_are_counted() {
        let inner = component(&[]);
        // `(alias outer 0 0 (component))`: the component itself again.
        let named = |count: usize| section(6, &vector(&vec![vec![4, 2, 0, 0]; count]));
        assert_eq!(check(&component(&[section(4, &inner), named(COMPONENTS - 1)])), Ok(()));
        assert_eq!(check(&component(&[section(4, &inner), named(COMPONENTS)])), Err(TooMuch::Components));
    }

    #[test]
    fn what_cannot_be_read_is_for_the_compiler_to_tell() {
        for bytes in [&b""[..], b"\0asm", b"\0asm\x0d\0\x01\0\x04\xff", b"no wasm"] {
            assert_eq!(check(bytes), Ok(()));
        }
    }
}
