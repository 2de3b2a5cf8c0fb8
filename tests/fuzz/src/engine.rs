//! libFuzzer, which `scripts/fuzz.py` makes of the sources in the crate `libfuzzer-sys`.

#![allow(unsafe_code, reason = "libFuzzer is C++")]

use std::ffi::{CString, c_char, c_int};
use std::os::unix::ffi::OsStringExt as _;
use std::sync::OnceLock;
use std::{env, panic, process, ptr, slice};

#[link(name = "fuzzer", kind = "static")]
#[cfg_attr(target_os = "macos", link(name = "c++"))]
#[cfg_attr(not(target_os = "macos"), link(name = "stdc++"))]
unsafe extern "C" {
    fn LLVMFuzzerRunDriver(
        count: *mut c_int,
        arguments: *mut *mut *mut c_char,
        run: extern "C" fn(*const u8, usize) -> c_int,
    ) -> c_int;
}

/// The engine hands nothing on to what it calls.
static TARGET: OnceLock<fn(&[u8])> = OnceLock::new();

/// Runs a target as libFuzzer's options among the program's arguments say, and ends the process.
pub fn run(target: fn(&[u8])) -> ! {
    TARGET.get_or_init(|| target);
    // The engine keeps the input of a process that is aborted.
    let say = panic::take_hook();
    panic::set_hook(Box::new(move |panicked| {
        say(panicked);
        process::abort();
    }));
    let owned = env::args_os().map(|argument| CString::new(argument.into_vec()).expect("no argument has a NUL"));
    // It keeps them, and writes to the list.
    let mut arguments: Vec<*mut c_char> = owned.map(CString::into_raw).chain([ptr::null_mut()]).collect();
    let mut count = c_int::try_from(arguments.len() - 1).expect("there are few arguments");
    let mut first = arguments.as_mut_ptr();
    // SAFETY: it gets as many texts as it is told of, with a null pointer behind them, as `main` does, and all of them live on.
    let code = unsafe { LLVMFuzzerRunDriver(&raw mut count, &raw mut first, one_input) };
    process::exit(code)
}

extern "C" fn one_input(data: *const u8, size: usize) -> c_int {
    // SAFETY: libFuzzer hands over so many bytes, which are there until this returns. Of none it may hand over no pointer.
    let bytes = if size == 0 { &[] } else { unsafe { slice::from_raw_parts(data, size) } };
    if let Some(target) = TARGET.get() {
        target(bytes);
    }
    0
}
