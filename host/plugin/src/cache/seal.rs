//! Compiled code with what says that it is as the compiler wrote it.

use std::hash::{Hash, Hasher};

use sha2::{Digest as _, Sha256};
use wasmtime::Engine;
use wasmtime::component::Component;

use crate::Digest;

const MAGIC: &[u8; 16] = b"shardmill-code-1";
/// Bytes before the code.
pub(super) const HEADER_BYTES: usize = MAGIC.len() + 32;

/// The digest of all that compiled code depends on besides the guest: version, machine, settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Compatibility([u8; 32]);

/// Compiled code behind a digest of itself, of its guest and of what it is compatible with: as it stands in the cache, and
/// as a process that compiles hands it over.
pub(crate) struct Sealed(Vec<u8>);

// === impl Compatibility ===

impl Compatibility {
    pub(crate) fn of(engine: &Engine) -> Self {
        let mut hasher = Sha256Hasher(Sha256::new());
        engine.precompile_compatibility_hash().hash(&mut hasher);
        Self(hasher.0.finalize().into())
    }

    /// Enough of it to tell the files of one version from those of another.
    pub(crate) fn short(&self) -> String {
        Digest::of(&self.0).to_string()[..16].to_owned()
    }

    fn digest(&self, guest: &Digest, code: &[u8]) -> [u8; 32] {
        let hash = Sha256::new().chain_update(guest.as_bytes()).chain_update(self.0);
        hash.chain_update(code).finalize().into()
    }

    /// Seals what the compiler has made of a guest.
    pub(crate) fn seal(&self, guest: &Digest, code: &[u8]) -> Sealed {
        Sealed([MAGIC.as_slice(), &self.digest(guest, code), code].concat())
    }

    /// `None` if these bytes are not what was sealed, for this guest and for this engine.
    pub(crate) fn open(&self, guest: &Digest, bytes: Vec<u8>) -> Option<Sealed> {
        let (header, code) = bytes.split_at_checked(HEADER_BYTES)?;
        let (magic, digest) = header.split_at(MAGIC.len());
        let is_whole = magic == MAGIC && digest == self.digest(guest, code);
        is_whole.then_some(Sealed(bytes))
    }
}

// === impl Sealed ===

impl Sealed {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Makes a component of it.
    ///
    /// # Errors
    /// If the code is for another engine after all.
    #[allow(unsafe_code, reason = "there is no other way to load compiled code")]
    pub(crate) fn component(&self, engine: &Engine) -> wasmtime::Result<Component> {
        // SAFETY: these bytes were made by wasmtime's compiler from a component, with an engine of the same compatibility,
        // and are as they were made: their digest, which covers guest and compatibility too, is the one that was made with
        // them. Nobody else could make both: they come from this process, from a pipe of a process that runs this very
        // program, or from a file that this user alone can write, in a directory that this user alone can write. They are
        // in memory of this process since before the check, so nobody can change them after it.
        unsafe { Component::deserialize(engine, &self.0[HEADER_BYTES..]) }
    }
}

/// The standard hashers do not promise the same result in another process.
struct Sha256Hasher(Sha256);

impl Hasher for Sha256Hasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        let digest: [u8; 32] = self.0.clone().finalize().into();
        u64::from_le_bytes(std::array::from_fn(|index| digest[index]))
    }
}
