//! Guests in WebAssembly's text, each of which does one thing that no compiler would write.
//!
//! `tests/shells` holds components with the contract's types on the outside and one core module inside that does nothing,
//! made by `wasm-tools component embed --dummy` and `component new` of the worlds in `shells/README.md`. A test puts a
//! module of its own in its place.

use crate::forge::section;

const COLUMNS: &[u8] = include_bytes!("../../shells/columnar.wasm");
const ROWS: &[u8] = include_bytes!("../../shells/rows.wasm");

/// Where the answer of a guest that behaves is: zeros, which say that all went well.
pub(crate) const GOOD: u32 = 1024;
/// Where a test may put another one.
pub(crate) const BAD: u32 = 4096;

/// The parts of a guest that attacks when it is handed records, and takes an empty batch as anybody would. Each is the body
/// of a function, in text.
#[derive(Debug, Clone)]
pub(crate) struct Guest {
    pub(crate) in_rows: bool,
    /// Before all definitions.
    pub(crate) imports: String,
    /// After them: data, globals, tables, functions.
    pub(crate) more: String,
    /// Pages at first.
    pub(crate) memory: &'static str,
    /// `(param $old i32) (param $old_size i32) (param $align i32) (param $size i32) (result i32) (local $at i32)`.
    pub(crate) realloc: String,
    /// What runs before everything else.
    pub(crate) start: String,
    /// `(result i32)`.
    pub(crate) init: String,
    /// `(param $call i32) (result i32) (local $i i32)`.
    pub(crate) attack: String,
    /// After `process-batch`.
    pub(crate) post: String,
    /// `(result i32)`.
    pub(crate) assigned: String,
    /// `(result i32)`.
    pub(crate) shutdown: String,
}

/// Bytes of a guest's memory, as the contract lays values out.
#[derive(Debug, Clone)]
pub(crate) struct Bytes {
    at: u32,
    bytes: Vec<u8>,
}

impl Default for Guest {
    fn default() -> Self {
        let good = format!("(i32.const {GOOD})");
        Self {
            in_rows: false,
            imports: String::new(),
            more: String::new(),
            memory: "2",
            // Room is taken from the front, and given back when a batch is done.
            realloc: "(local.set $at (i32.and (i32.add (global.get $next) (i32.const 7)) (i32.const -8)))
                (global.set $next (i32.add (local.get $at) (local.get $size)))
                (local.get $at)"
                .to_owned(),
            start: String::new(),
            init: good.clone(),
            attack: good.clone(),
            post: String::new(),
            assigned: good.clone(),
            shutdown: good,
        }
    }
}

impl Guest {
    /// One that does this when it is handed records.
    pub(crate) fn attacking(attack: &str) -> Self {
        Self { attack: attack.to_owned(), ..Self::default() }
    }

    /// One that answers with these bytes, which begin at [`BAD`].
    pub(crate) fn answering(answer: &Bytes) -> Self {
        Self { more: answer.data(), ..Self::attacking(&format!("(i32.const {BAD})")) }
    }

    pub(crate) fn in_rows(self) -> Self {
        Self { in_rows: true, ..self }
    }

    pub(crate) fn with(mut self, more: &str) -> Self {
        self.more.push_str(more);
        self
    }

    pub(crate) fn importing(mut self, module: &str, name: &str, id: &str, signature: &str) -> Self {
        self.imports.push_str(&format!("(import \"{module}\" \"{name}\" (func {id} {signature}))\n"));
        self
    }

    pub(crate) fn logging(self) -> Self {
        self.importing("shardmill:processor/logging@0.1.0", "log", "$log", "(param i32 i32 i32 i32 i32)")
    }

    /// The core module's text.
    pub(crate) fn text(&self) -> String {
        let Self { imports, more, memory, realloc, start, init, attack, post, assigned, shutdown, .. } = self;
        let form = if self.in_rows { "shardmill:processor/batch@0.1.0" } else { "shardmill:processor/columnar@0.1.0" };
        let hooks = "shardmill:processor/hooks@0.1.0";
        let hook = "(param i64 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i64 i32 i32 i64 i32) (result i32)";
        let posts: String = ["assigned", "revoked", "shard-ended", "idle", "given-up", "shutdown"]
            .iter()
            .map(|name| format!("(func (export \"cabi_post_{hooks}#{name}\") (param i32))\n"))
            .collect();
        format!(
            r#"(module
{imports}
(memory (export "memory") {memory})
(global $next (mut i32) (i32.const 16384))
{more}
(func $realloc (export "cabi_realloc")
    (param $old i32) (param $old_size i32) (param $align i32) (param $size i32) (result i32) (local $at i32)
    {realloc})
(func (export "_initialize") {start})
(func (export "{form}#init") (param i32 i32) (result i32) {init})
(func (export "cabi_post_{form}#init") (param i32))
(func $attack (param $call i32) (result i32) (local $i i32) {attack})
(func (export "{form}#process-batch") (param $call i32) (result i32)
    (if (result i32) (i32.load offset=84 (local.get $call))
        (then (call $attack (local.get $call)))
        (else (i32.const {GOOD}))))
(func (export "cabi_post_{form}#process-batch") (param i32) {post} (global.set $next (i32.const 16384)))
(func (export "{hooks}#assigned") {hook} {assigned})
(func (export "{hooks}#revoked") (param i32) (result i32) (i32.const {GOOD}))
(func (export "{hooks}#shard-ended") {hook} (i32.const {GOOD}))
(func (export "{hooks}#idle") {hook} (i32.const {GOOD}))
(func (export "{hooks}#given-up") (param i32) (result i32) (i32.const {GOOD}))
(func (export "{hooks}#shutdown") (result i32) {shutdown})
{posts})"#
        )
    }

    /// The component.
    pub(crate) fn component(&self) -> Vec<u8> {
        let text = self.text();
        let module = wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        with_first_module(if self.in_rows { ROWS } else { COLUMNS }, &module)
    }
}

impl Bytes {
    pub(crate) fn at(at: u32) -> Self {
        Self { at, bytes: Vec::new() }
    }

    /// An outcome that says nothing, to be changed.
    pub(crate) fn outcome() -> Self {
        Self { at: BAD, bytes: vec![0; 104] }
    }

    /// A number at this place of it.
    pub(crate) fn set(mut self, place: usize, number: u32) -> Self {
        if self.bytes.len() < place + 4 {
            self.bytes.resize(place + 4, 0);
        }
        self.bytes[place..place + 4].copy_from_slice(&number.to_le_bytes());
        self
    }

    /// A list at this place of it.
    pub(crate) fn list(self, place: usize, at: u32, length: u32) -> Self {
        self.set(place, at).set(place + 4, length)
    }

    /// What defines it.
    pub(crate) fn data(&self) -> String {
        let escaped: String = self.bytes.iter().map(|byte| format!("\\{byte:02x}")).collect();
        format!("(data (i32.const {}) \"{escaped}\")\n", self.at)
    }
}

/// A component with this core module in the place of its first one.
fn with_first_module(component: &[u8], module: &[u8]) -> Vec<u8> {
    let (mut place, mut found) = (8, None);
    while place < component.len() && found.is_none() {
        let (id, start) = (component[place], place);
        let (mut length, mut shift) = (0, 0);
        loop {
            place += 1;
            length |= usize::from(component[place] & 0x7f) << shift;
            shift += 7;
            if component[place] & 0x80 == 0 {
                break;
            }
        }
        place += 1 + length;
        found = (id == 1).then_some(start..place);
    }
    let found = found.expect("a component with a core module");
    [&component[..found.start], &section(1, module), &component[found.end..]].concat()
}
