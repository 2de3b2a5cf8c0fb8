//! What a component imports and exports, read before it is compiled: most guests that cannot run can be refused in a
//! millisecond, with a reason that names what to change.

use std::collections::BTreeSet;

use wasmparser::{
    ComponentAlias, ComponentExternalKind, ComponentImport, ComponentOuterAliasKind, ComponentTypeRef, Encoding,
    Parser, Payload,
};

use crate::module::{Abi, Form};
use crate::nesting::{self, Unread};
use crate::shape::{OUTSIDE, TooMuch};
use crate::{Grants, Need};

const CONTRACT: &str = "shardmill:processor";
/// The version of the contract that this host was built with. Versions that differ in the last number alone are
/// compatible: WIT's rule for packages below 1.0.
pub(crate) const CONTRACT_VERSION: &str = "0.1.0";

/// Said of an import that this host has never heard of.
const UNKNOWN: &str = "this host does not have it: build the guest without it";

/// The names at the outside of a component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) imports: Vec<String>,
    pub(crate) exports: Vec<String>,
    /// The imports that are there for their types alone, by their places: other interfaces are written with those types, as
    /// `wasi:http/types` is with the duration of `wasi:clocks`. Nothing of theirs can be called.
    types_alone: BTreeSet<usize>,
}

/// Why a file has no interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unreadable {
    NotWasm,
    CoreModule,
    Broken(String),
    TooMuch(TooMuch),
}

/// Which part of the contract a component fulfils.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Contract {
    pub(crate) abi: Abi,
    pub(crate) form: Form,
    pub(crate) hooks: bool,
}

/// Why a component does not fulfil the contract.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoContract {
    /// It exports neither form.
    OtherWorld,
    /// It exports this interface of another version.
    OtherVersion(String),
    /// It exports both forms.
    BothForms,
}

/// A name such as `wasi:cli/stdout@0.2.6`.
struct Name<'a> {
    package: &'a str,
    interface: &'a str,
    version: &'a str,
}

// === impl Interface ===

impl Interface {
    /// Of a file that holds too much it reads no more than it takes to tell.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Unreadable> {
        if !bytes.starts_with(b"\0asm") {
            return Err(Unreadable::NotWasm);
        }
        let mut interface = Self { imports: Vec::new(), exports: Vec::new(), types_alone: BTreeSet::new() };
        // Of each type of the outermost component, whether it is that of an instance that has types alone.
        let mut types: Vec<bool> = Vec::new();
        // Components nest: only what stands at depth 0 is the outside.
        let mut depth = 0;
        for payload in Parser::new(0).parse_all(bytes) {
            match payload.map_err(broken)? {
                Payload::Version { encoding: Encoding::Module, .. } if depth == 0 => {
                    return Err(Unreadable::CoreModule);
                }
                Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
                Payload::End(_) => depth -= 1,
                Payload::ComponentTypeSection(section) if depth == 0 => {
                    types.extend(nesting::types_alone(bytes, section.range())?);
                }
                Payload::ComponentAliasSection(section) if depth == 0 => {
                    for alias in section {
                        let is_type = match alias.map_err(broken)? {
                            ComponentAlias::InstanceExport { kind, .. } => kind == ComponentExternalKind::Type,
                            ComponentAlias::Outer { kind, .. } => kind == ComponentOuterAliasKind::Type,
                            ComponentAlias::CoreInstanceExport { .. } => false,
                        };
                        types.extend(is_type.then_some(false));
                    }
                }
                Payload::ComponentImportSection(section) if depth == 0 => {
                    for import in section {
                        let ComponentImport { name, ty, .. } = import.map_err(broken)?;
                        match ty {
                            ComponentTypeRef::Type(_) => types.push(false),
                            ComponentTypeRef::Instance(index) if types.get(index as usize) == Some(&true) => {
                                interface.types_alone.insert(interface.imports.len());
                            }
                            _ => {}
                        }
                        interface.imports.push(name.name.to_owned());
                        interface.bounded()?;
                    }
                }
                Payload::ComponentExportSection(section) if depth == 0 => {
                    for export in section {
                        let export = export.map_err(broken)?;
                        types.extend((export.kind == ComponentExternalKind::Type).then_some(false));
                        interface.exports.push(export.name.name.to_owned());
                        interface.bounded()?;
                    }
                }
                _ => {}
            }
        }
        Ok(interface)
    }

    /// Asked after each name: a file has room for millions of them.
    fn bounded(&self) -> Result<(), Unreadable> {
        let is_bounded = self.imports.len() + self.exports.len() <= OUTSIDE;
        is_bounded.then_some(()).ok_or(Unreadable::TooMuch(TooMuch::Outside))
    }

    /// Which part of the contract the exports fulfil.
    pub(crate) fn contract(&self) -> Result<Contract, NoContract> {
        let mut rows = false;
        let mut columnar = false;
        let mut hooks = false;
        for export in &self.exports {
            let Some(name) = Name::parse(export).filter(|name| name.package == CONTRACT) else { continue };
            let known = match name.interface {
                "batch" => &mut rows,
                "columnar" => &mut columnar,
                "hooks" => &mut hooks,
                _ => continue,
            };
            if !is_compatible(name.version, CONTRACT_VERSION) {
                return Err(NoContract::OtherVersion(export.clone()));
            }
            *known = true;
        }
        let form = match (rows, columnar) {
            (true, false) => Form::Rows,
            (false, true) => Form::Columnar,
            (true, true) => return Err(NoContract::BothForms),
            (false, false) => return Err(NoContract::OtherWorld),
        };
        Ok(Contract { abi: Abi::V0_1, form, hooks })
    }

    /// The grants without which the component cannot run.
    pub(crate) fn needs(&self) -> BTreeSet<Need> {
        let needs = self.called().filter_map(|import| match judge(import) {
            Import::Needs(need) => Some(need),
            Import::Given | Import::Never(_) => None,
        });
        needs.collect()
    }

    /// The imports that nobody is granted, each with the reason.
    pub(crate) fn never_granted(&self) -> Vec<String> {
        let refused = self.called().filter_map(|import| match judge(import) {
            Import::Never(reason) => Some(format!("{import} ({reason})")),
            Import::Given | Import::Needs(_) => None,
        });
        refused.collect()
    }

    /// The imports that these grants of a processor do not cover, each with the line of the configuration that does.
    pub(crate) fn not_granted(&self, processor: &str, grants: &Grants) -> Vec<String> {
        let refused = self.called().filter_map(|import| match judge(import) {
            Import::Needs(need) if !grants.cover(need) => {
                Some(format!("{import} (add `{}` to [processors.{processor}.grants])", need.line()))
            }
            _ => None,
        });
        refused.collect()
    }

    /// The imports that there is something to call of.
    fn called(&self) -> impl Iterator<Item = &str> {
        let called = self.imports.iter().enumerate().filter(|(place, _)| !self.types_alone.contains(place));
        called.map(|(_, import)| import.as_str())
    }
}

/// What an import asks for.
enum Import {
    /// What every guest has.
    Given,
    Needs(Need),
    Never(&'static str),
}

fn broken(error: wasmparser::BinaryReaderError) -> Unreadable {
    Unreadable::Broken(error.to_string())
}

impl From<Unread> for Unreadable {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::Deep => Self::TooMuch(TooMuch::Depth),
            Unread::Broken(reason) => Self::Broken(reason),
        }
    }
}

fn judge(import: &str) -> Import {
    let Some(Name { package, interface, version }) = Name::parse(import) else {
        return Import::Never("this host offers interfaces only");
    };
    if package == CONTRACT {
        let needs = match interface {
            "types" | "logging" | "configuration" => Import::Given,
            "metrics" => Import::Needs(Need::Metrics),
            _ => return Import::Never(UNKNOWN),
        };
        if !is_compatible(version, CONTRACT_VERSION) {
            return Import::Never("another version of the contract than this host's: rebuild the guest");
        }
        return needs;
    }
    let needs = match (package, interface) {
        ("wasi:sockets", _) => {
            let reason =
                "sockets are never granted: build the guest without them, or with requests of wasi:http, which can be";
            return Import::Never(reason);
        }
        ("wasi:http", "types" | "outgoing-handler") => Import::Needs(Need::Http),
        ("wasi:io", "error" | "poll" | "streams") | ("wasi:filesystem", "types" | "preopens") => Import::Given,
        ("wasi:cli", "environment" | "exit" | "stdin" | "stdout" | "stderr") => Import::Given,
        ("wasi:cli", interface) if interface.starts_with("terminal-") => Import::Given,
        ("wasi:clocks", "wall-clock" | "monotonic-clock") => Import::Needs(Need::Clocks),
        // Every hash table of Rust wants it.
        ("wasi:random", "insecure-seed") => Import::Given,
        ("wasi:random", "random" | "insecure") => Import::Needs(Need::Random),
        (package, _) if package.starts_with("wasi:") && !is_compatible(version, "0.2.0") => Import::Given,
        _ => return Import::Never(UNKNOWN),
    };
    if !is_compatible(version, "0.2.0") {
        return Import::Never("this host offers WASI 0.2: build the guest for wasm32-wasip2");
    }
    needs
}

/// Whether both are releases with the same first two numbers.
fn is_compatible(version: &str, with: &str) -> bool {
    let series = |version: &str| {
        let mut numbers = version.split('.').map(|number| number.parse::<u32>().ok());
        let series = (numbers.next()??, numbers.next()??);
        numbers.next()??;
        numbers.next().is_none().then_some(series)
    };
    series(version).is_some() && series(version) == series(with)
}

// === impl Name ===

impl<'a> Name<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let (package, rest) = text.split_once('/')?;
        let (interface, version) = rest.split_once('@').unwrap_or((rest, ""));
        Some(Self { package, interface, version })
    }
}

#[cfg(test)]
mod tests;
