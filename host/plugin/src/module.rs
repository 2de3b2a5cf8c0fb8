//! A guest that has been loaded: its interface is known, its code is compiled.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use wasmtime::component::Component;

use crate::interface::{CONTRACT_VERSION, Contract, Interface, NoContract, Unreadable};
use crate::shape::{self, TooMuch};
use crate::text::clean;
use crate::{Digest, Grants, Need};

/// A guest that has been loaded. Cheap to clone.
#[derive(Clone)]
pub struct Module(Arc<Inner>);

struct Inner {
    name: String,
    digest: Digest,
    contract: Contract,
    interface: Interface,
    size: usize,
    component: Component,
}

/// The version of the contract that a guest was built for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Abi {
    /// `shardmill:processor@0.1`.
    V0_1,
}

/// How a guest takes its batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// One value a record: the interface `batch`.
    Rows,
    /// One value a column: the interface `columnar`.
    Columnar,
}

/// Why a file cannot be loaded as a guest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The bytes are something else, compiled code included.
    #[error("{name} is not WebAssembly: a component is expected, as `cargo build --target wasm32-wasip2` writes it")]
    NotWasm {
        /// The guest's name.
        name: String,
    },
    /// The bytes are a module without the component model's wrapping.
    #[error(
        "{name} is a core module, not a component: build it for wasm32-wasip2, or wrap a module that was built with \
         the contract's bindings with `wasm-tools component new`"
    )]
    CoreModule {
        /// The guest's name.
        name: String,
    },
    /// The bytes begin as WebAssembly and do not go on so.
    #[error("{name} is not valid WebAssembly: {reason}; it may have been cut short: build it or copy it again")]
    Broken {
        /// The guest's name.
        name: String,
        /// What is wrong, and where.
        reason: String,
    },
    /// The component is made for another host.
    #[error(
        "{name} is not a processor: it exports {exports}; let it export shardmill:processor/batch@{CONTRACT_VERSION} \
         or shardmill:processor/columnar@{CONTRACT_VERSION}, as `shardmill_guest::processor!` does"
    )]
    OtherWorld {
        /// The guest's name.
        name: String,
        /// What it exports.
        exports: Names,
    },
    /// The component is made for another version of the contract.
    #[error(
        "{name} exports {found}, and this host runs version {CONTRACT_VERSION}: rebuild the guest with the contract of \
         this version, or run it with the host that it was built for"
    )]
    OtherVersion {
        /// The guest's name.
        name: String,
        /// The export.
        found: String,
    },
    /// The component does not say which form it wants.
    #[error("{name} exports both shardmill:processor/batch and shardmill:processor/columnar: export one of them")]
    BothForms {
        /// The guest's name.
        name: String,
    },
    /// The component wants what it cannot have.
    #[error("{name} imports what it is not granted: {imports}")]
    NotGranted {
        /// The guest's name.
        name: String,
        /// The imports, each with the reason, or with the line of the configuration that grants it.
        imports: Names,
    },
    /// What it imports or exports has the contract's names and other types.
    #[error(
        "{name} does not fulfil the contract: {reason}; rebuild it with the contract's files of version \
         {CONTRACT_VERSION}, which are in wit/v0.1"
    )]
    Types {
        /// The guest's name.
        name: String,
        /// What is different.
        reason: String,
    },
    /// The code is not valid, or uses what this host does not have.
    #[error("{name} cannot be compiled: {reason}; build it for wasm32-wasip2 without what is named here")]
    Compile {
        /// The guest's name.
        name: String,
        /// What the compiler says.
        reason: String,
    },
    /// The file is larger than the limit.
    #[error(
        "{name} has {bytes} bytes, and {limit} are allowed: raise `limits.plugin-size`, or build it smaller (strip it, and \
         leave out what it does not need)"
    )]
    TooLarge {
        /// The guest's name.
        name: String,
        /// Its size.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// It holds more of something than any guest needs.
    #[error("{name} is not compiled: {reason}; build it of fewer and smaller parts")]
    TooMuch {
        /// The guest's name.
        name: String,
        /// What there is too much of.
        reason: String,
    },
    /// Compiling it takes longer than the limit.
    #[error(
        "compiling {name} takes longer than the {limit:?} that it may take: raise `limits.compile-timeout`, or build it of \
         smaller functions"
    )]
    CompileTime {
        /// The guest's name.
        name: String,
        /// The limit.
        limit: Duration,
    },
    /// No process can be started to compile it in.
    #[error(
        "{name} is not compiled: no process can be started to compile it in ({reason}): give the host a process and some \
         memory more, or try again when the machine has them"
    )]
    NoProcess {
        /// The guest's name.
        name: String,
        /// What the operating system says.
        reason: String,
    },
    /// The program that compiles is another one than the one that runs.
    #[error(
        "{name} is not compiled: the program that compiles guests has been replaced by another version of this one: \
         restart the host"
    )]
    OtherProgram {
        /// The guest's name.
        name: String,
    },
    /// The process that compiled it ended before it was done.
    #[error(
        "{name} was not compiled: the process that compiles has ended ({how}), as it does when it needs more than the \
         {memory} bytes of memory that it may take: raise `limits.compile-memory`, or build the guest of smaller functions"
    )]
    CompileEnded {
        /// The guest's name.
        name: String,
        /// Bytes of memory that it may take.
        memory: u64,
        /// How it ended, and what it said.
        how: String,
    },
}

/// How many of the names in an error are shown, and how much of each.
const SHOWN: usize = 20;
const SHOWN_BYTES: usize = 500;

/// Names in an error, one after another. They are a guest's: of a great many or of a long one a part is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names(pub Vec<String>);

// === impl Module ===

impl Module {
    /// Looks at a file's bytes without compiling them.
    pub(crate) fn check(name: &str, bytes: &[u8]) -> Result<(Interface, Contract), Error> {
        let owned = || name.to_owned();
        let interface = Interface::read(bytes).map_err(|unreadable| match unreadable {
            Unreadable::NotWasm => Error::NotWasm { name: owned() },
            Unreadable::CoreModule => Error::CoreModule { name: owned() },
            Unreadable::Broken(reason) => Error::Broken { name: owned(), reason: clean(&reason, SHOWN_BYTES) },
            Unreadable::TooMuch(reason) => Error::TooMuch { name: owned(), reason: reason.to_string() },
        })?;
        let contract = interface.contract().map_err(|reason| match reason {
            NoContract::OtherWorld => Error::OtherWorld { name: owned(), exports: Names(interface.exports.clone()) },
            NoContract::OtherVersion(found) => Error::OtherVersion { name: owned(), found: clean(&found, SHOWN_BYTES) },
            NoContract::BothForms => Error::BothForms { name: owned() },
        })?;
        refused(name, interface.never_granted())?;
        Ok((interface, contract))
    }

    /// The same, and counts what the compiler would have to do.
    pub(crate) fn before_compiling(name: &str, bytes: &[u8]) -> Result<(Interface, Contract), Error> {
        let checked = Self::check(name, bytes)?;
        let too_much = |reason: TooMuch| Error::TooMuch { name: name.to_owned(), reason: reason.to_string() };
        shape::check(bytes).map_err(too_much)?;
        Ok(checked)
    }

    pub(crate) fn new(
        name: String,
        digest: Digest,
        (interface, contract): (Interface, Contract),
        size: usize,
        component: Component,
    ) -> Self {
        Self(Arc::new(Inner { name, digest, contract, interface, size, component }))
    }

    /// What the configuration or the command line calls it.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The digest of its bytes.
    pub fn digest(&self) -> Digest {
        self.0.digest
    }

    /// The version of the contract.
    pub fn abi(&self) -> Abi {
        self.0.contract.abi
    }

    /// How it takes its batches.
    pub fn form(&self) -> Form {
        self.0.contract.form
    }

    /// Whether it has hooks.
    pub fn hooks(&self) -> bool {
        self.0.contract.hooks
    }

    /// What it imports, in its own order.
    pub fn imports(&self) -> &[String] {
        &self.0.interface.imports
    }

    /// What it exports, in its own order.
    pub fn exports(&self) -> &[String] {
        &self.0.interface.exports
    }

    /// Bytes of the component, uncompiled.
    pub fn size(&self) -> usize {
        self.0.size
    }

    pub(crate) fn contract(&self) -> Contract {
        self.0.contract
    }

    pub(crate) fn component(&self) -> &Component {
        &self.0.component
    }

    /// The grants without which it cannot run, as its imports tell. What it wants of its environment they do not tell.
    pub fn needs(&self) -> BTreeSet<Need> {
        self.0.interface.needs()
    }

    /// Whether a processor's grants cover the imports.
    ///
    /// # Errors
    /// If they do not: each import, with the line of the configuration that grants it.
    pub fn check_grants(&self, processor: &str, grants: &Grants) -> Result<(), Error> {
        refused(&self.0.name, self.0.interface.not_granted(processor, grants))
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Module({}, {})", self.0.name, self.0.digest)
    }
}

/// Whether bytes are a whole component that exports the contract and imports nothing that is never granted: what can be
/// told in a millisecond, without compiling. Of a file that somebody is writing they are not, as a rule.
///
/// # Errors
/// What is wrong, as [`crate::Runtime::load`] says it.
pub fn check(name: &str, bytes: &[u8]) -> Result<(), Error> {
    Module::check(name, bytes).map(drop)
}

fn refused(name: &str, imports: Vec<String>) -> Result<(), Error> {
    if imports.is_empty() {
        return Ok(());
    }
    Err(Error::NotGranted { name: name.to_owned(), imports: Names(imports) })
}

// === impl Abi ===

impl fmt::Display for Abi {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V0_1 => formatter.write_str("shardmill:processor@0.1"),
        }
    }
}

// === impl Form ===

impl fmt::Display for Form {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Rows => "rows",
            Self::Columnar => "columnar",
        })
    }
}

// === impl Names ===

impl fmt::Display for Names {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return formatter.write_str("nothing");
        }
        let shown: Vec<_> = self.0.iter().take(SHOWN).map(|name| clean(name, SHOWN_BYTES)).collect();
        formatter.write_str(&shown.join(", "))?;
        match self.0.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(formatter, " and {more} more"),
        }
    }
}
