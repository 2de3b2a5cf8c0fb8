//! What a component imports and exports, read before it is compiled: most guests that cannot run can be refused in a
//! millisecond, with a reason that names what to change.

use wasmparser::{Encoding, Parser, Payload};

use crate::Grants;
use crate::module::{Abi, Form};

const CONTRACT: &str = "shardmill:processor";
/// The version of the contract that this host was built with. Versions that differ in the last number alone are
/// compatible: WIT's rule for packages below 1.0.
pub(crate) const CONTRACT_VERSION: &str = "0.1.0";

/// The names at the outside of a component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) imports: Vec<String>,
    pub(crate) exports: Vec<String>,
}

/// Why a file has no interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unreadable {
    NotWasm,
    CoreModule,
    Broken(String),
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
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Unreadable> {
        if !bytes.starts_with(b"\0asm") {
            return Err(Unreadable::NotWasm);
        }
        let mut interface = Self { imports: Vec::new(), exports: Vec::new() };
        // Components nest: only what stands at depth 0 is the outside.
        let mut depth = 0;
        for payload in Parser::new(0).parse_all(bytes) {
            match payload.map_err(broken)? {
                Payload::Version { encoding: Encoding::Module, .. } if depth == 0 => {
                    return Err(Unreadable::CoreModule);
                }
                Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
                Payload::End(_) => depth -= 1,
                Payload::ComponentImportSection(section) if depth == 0 => {
                    for import in section {
                        interface.imports.push(import.map_err(broken)?.name.name.to_owned());
                    }
                }
                Payload::ComponentExportSection(section) if depth == 0 => {
                    for export in section {
                        interface.exports.push(export.map_err(broken)?.name.name.to_owned());
                    }
                }
                _ => {}
            }
        }
        Ok(interface)
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

    /// The imports that these grants do not cover, each with the reason.
    pub(crate) fn not_granted(&self, grants: &Grants) -> Vec<String> {
        let refused = |import: &String| refusal(import, grants).map(|reason| format!("{import} ({reason})"));
        self.imports.iter().filter_map(refused).collect()
    }
}

fn broken(error: wasmparser::BinaryReaderError) -> Unreadable {
    Unreadable::Broken(error.to_string())
}

fn refusal(import: &str, grants: &Grants) -> Option<&'static str> {
    let Some(Name { package, interface, version }) = Name::parse(import) else {
        return Some("this host offers interfaces only");
    };
    let not_granted = match (package, interface) {
        (CONTRACT, "types" | "logging" | "configuration" | "metrics") => {
            let same = is_compatible(version, CONTRACT_VERSION);
            return (!same).then_some("another version of the contract than this host's: rebuild the guest");
        }
        ("wasi:sockets" | "wasi:http", _) => return Some("the network is never granted: build the guest without it"),
        ("wasi:io", "error" | "poll" | "streams") | ("wasi:filesystem", "types" | "preopens") => None,
        ("wasi:cli", "environment" | "exit" | "stdin" | "stdout" | "stderr") => None,
        ("wasi:cli", interface) if interface.starts_with("terminal-") => None,
        ("wasi:clocks", "wall-clock" | "monotonic-clock") => {
            (!grants.clocks).then_some("not granted to this processor: `grants = { clocks = true }` does so")
        }
        ("wasi:random", "random" | "insecure" | "insecure-seed") => {
            (!grants.random).then_some("not granted to this processor: `grants = { random = true }` does so")
        }
        (package, _) if package.starts_with("wasi:") && !is_compatible(version, "0.2.0") => None,
        _ => return Some("this host does not have it: build the guest without it"),
    };
    if !is_compatible(version, "0.2.0") {
        return Some("this host offers WASI 0.2: build the guest for wasm32-wasip2");
    }
    not_granted
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
mod tests {
    use super::*;

    fn interface(imports: &[&str], exports: &[&str]) -> Interface {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Interface { imports: owned(imports), exports: owned(exports) }
    }

    #[test]
    fn the_form_follows_from_the_exports() {
        let contract = |exports: &[&str]| interface(&[], exports).contract();
        let found = |form, hooks| Ok(Contract { abi: Abi::V0_1, form, hooks });
        assert_eq!(contract(&["shardmill:processor/batch@0.1.0"]), found(Form::Rows, false));
        assert_eq!(
            contract(&["shardmill:processor/columnar@0.1.7", "wasi:cli/run@0.2.0"]),
            found(Form::Columnar, false)
        );
        let both = ["shardmill:processor/hooks@0.1.0", "shardmill:processor/batch@0.1.0"];
        assert_eq!(contract(&both), found(Form::Rows, true));
        let hooks_alone = contract(&["shardmill:processor/hooks@0.1.0"]);
        assert_eq!(hooks_alone, Err(NoContract::OtherWorld));
        for version in ["0.2.0", "1.1.0", "0.1.0-rc.1", "0.1"] {
            let export = format!("shardmill:processor/batch@{version}");
            assert_eq!(contract(&[&export]), Err(NoContract::OtherVersion(export.clone())));
        }
    }

    #[test]
    fn what_a_standard_library_imports_is_granted() {
        let imports = [
            "shardmill:processor/types@0.1.0",
            "shardmill:processor/logging@0.1.0",
            "wasi:cli/environment@0.2.6",
            "wasi:cli/terminal-stdout@0.2.6",
            "wasi:io/streams@0.2.0",
            "wasi:filesystem/preopens@0.2.3",
            "wasi:clocks/wall-clock@0.2.6",
            "wasi:random/insecure-seed@0.2.6",
        ];
        assert_eq!(interface(&imports, &[]).not_granted(&Grants::default()), Vec::<String>::new());
        let refused = interface(&imports, &[]).not_granted(&Grants { clocks: false, random: false });
        assert_eq!(refused.len(), 2, "{refused:?}");
        assert!(refused[0].starts_with("wasi:clocks/wall-clock@0.2.6 "), "{refused:?}");
    }

    #[test]
    fn everything_else_is_refused_by_name() {
        let imports = [
            "wasi:sockets/tcp@0.2.6",
            "wasi:http/outgoing-handler@0.2.6",
            "wasi:cli/stdout@0.3.0",
            "wasi:clocks/monotonic-clock@0.3.0-rc-2025-09-16",
            "wasi:keyvalue/store@0.2.0",
            "shardmill:processor/state@0.1.0",
            "shardmill:processor/logging@0.2.0",
            "wasi:io/poll",
            "run",
        ];
        let refused = interface(&imports, &[]).not_granted(&Grants::default());
        assert_eq!(refused.len(), imports.len(), "{refused:?}");
        for (import, refused) in imports.iter().zip(&refused) {
            assert!(refused.starts_with(&format!("{import} (")), "{refused}");
        }
        assert!(refused[2].contains("WASI 0.2"), "{refused:?}");
    }
}
