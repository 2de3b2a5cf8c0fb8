//! A guest's call stack, as an operator reads it.
//!
//! The names in it are the guest's, and as long as it likes. wasmtime can write a call stack by itself, but undoes C++'s
//! mangling too, where a name of a hundred bytes can stand for one of gigabytes: its parts refer to each other. So only
//! Rust's names are undone here, and each into a bounded text.

use std::fmt::{self, Write};

use wasmtime::{FrameInfo, WasmBacktrace};

use crate::text::clean;

/// Bytes of one name, as it is shown.
const NAME_BYTES: usize = 200;
/// Bytes of a mangled name that is worth undoing.
const MANGLED_BYTES: usize = 2000;

/// A text that takes no more than it has room for.
struct Bounded {
    text: String,
    bytes: usize,
}

/// The frames, innermost first, each on a line of its own.
pub(crate) fn frames(backtrace: &WasmBacktrace) -> String {
    let lines = backtrace.frames().iter().enumerate().map(|(number, frame)| {
        let module = clean(frame.module().name().unwrap_or("?"), NAME_BYTES);
        let offset = frame.module_offset().map(|offset| format!("{offset:#x} ")).unwrap_or_default();
        format!("{number}: {offset}{module}!{}", function(frame))
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn function(frame: &FrameInfo) -> String {
    match frame.func_name() {
        Some(name) => shown(name),
        None => format!("function {}", frame.func_index()),
    }
}

fn shown(name: &str) -> String {
    let short = (name.len() <= MANGLED_BYTES).then(|| rustc_demangle::try_demangle(name).ok()).flatten();
    let Some(demangled) = short else { return clean(name, NAME_BYTES) };
    let mut bounded = Bounded { text: String::new(), bytes: NAME_BYTES };
    // An error says that it is full.
    let is_cut = write!(bounded, "{demangled:#}").is_err();
    let text = clean(&bounded.text, NAME_BYTES);
    if is_cut { text + "…" } else { text }
}

// === impl Bounded ===

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.saturating_sub(self.text.len());
        if text.len() <= room {
            self.text.push_str(text);
            return Ok(());
        }
        self.text.extend(text.char_indices().take_while(|(at, one)| at + one.len_utf8() <= room).map(|(_, one)| one));
        Err(fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_undone_where_they_are_rusts_and_cut_in_any_case() {
        assert_eq!(shown("_ZN4core9panicking5panic17h0123456789abcdefE"), "core::panicking::panic");
        assert_eq!(shown("process\nbatch"), "process\\nbatch");
        // In C++ each part of this is twice the one before.
        let bomb = format!("_Z1f1AIiiE{}", ('0'..='9').map(|n| format!("S_IS{n}_S{n}_E")).collect::<String>());
        for name in [bomb, "x".repeat(100_000), format!("_ZN{}{}17h0123456789abcdefE", 1500, "x".repeat(1500))] {
            assert!(shown(&name).len() <= NAME_BYTES + 2 * '…'.len_utf8(), "{} bytes", shown(&name).len());
        }
    }
}
