//! Compiling a guest, which is the one thing that a guest makes the host do before any limit of its own holds: a few bytes
//! can keep a compiler busy for hours and fill the machine's memory, and a thread that compiles cannot be ended.
//!
//! So it is done in a process of its own, which is ended when its time is over, may take so much memory and no more, gives
//! way to everything else, and is the first to go when the machine runs out of memory. It gets the component on its
//! standard input and answers with sealed code. Where there is no program that can do that, compiling runs on a thread of
//! this process: then its time bounds the wait alone.

use std::ffi::OsString;
use std::io;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, Signal};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;
use tokio::time::timeout;
use wasmtime::Engine;

use crate::cache::{Compatibility, Sealed};
use crate::text::clean;
use crate::{Digest, LoadLimits, runtime};

/// How the process ends that was given what cannot be compiled: the number that sysexits.h has for bad data.
const INVALID: u8 = 65;
/// How it ends if it cannot be confined, or has not the memory that it takes.
const UNCONFINED: u8 = 71;
const NO_MEMORY: u8 = 70;
/// What the standard library and wasmtime say where they notice that there is no memory, and do not end at once.
const OUT_OF_MEMORY: &str = "out of memory";
/// Bytes of compiled code. That of a component of 18 MB has some 60 MB.
const CODE_BYTES: u64 = 1 << 30;
/// What is kept of what the compiler says.
const REASON_BYTES: usize = 4 << 10;
/// The compiler comes after everything else that wants to run.
const NICE: i32 = 10;
/// Threads that compile one guest, where there are as many processors: each takes some of the memory.
const THREADS: usize = 8;
/// Where the compiler's pool of threads looks for their number.
const THREADS_VARIABLE: &str = "RAYON_NUM_THREADS";

/// A program that compiles guests in a process of its own: one that calls [`compile_guest`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiler {
    program: PathBuf,
    arguments: Vec<OsString>,
}

/// Why there is no code.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// The component is not one that can be compiled.
    Invalid(String),
    /// It takes longer than it may.
    Time(Duration),
    /// The process ended, as it does when it wants more memory than it may have.
    Ended(String),
}

// === impl Compiler ===

impl Compiler {
    /// The program is called with these arguments and, after them, the bytes of memory that it may take.
    pub fn new(program: impl Into<PathBuf>, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        Self { program: program.into(), arguments: arguments.into_iter().map(Into::into).collect() }
    }

    /// Compiles in a process of its own. `None` if there is none to be had.
    pub(crate) async fn compile(&self, bytes: &[u8], limits: &LoadLimits) -> Option<Result<Vec<u8>, Stopped>> {
        let mut command = Command::new(&self.program);
        let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get).min(THREADS);
        command.env(THREADS_VARIABLE, threads.to_string());
        command.args(&self.arguments).arg(limits.compile_memory_bytes.to_string()).kill_on_drop(true);
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = spawned
            .inspect_err(|error| {
                tracing::warn!(
                    program = %self.program.display(), %error,
                    "no process can be started to compile a guest in: it is compiled in this one, and its memory is not bounded"
                );
            })
            .ok()?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let ending = async {
            let hand_over = async {
                if let Some(mut stdin) = stdin {
                    // One that does not want the rest says why.
                    let _ = stdin.write_all(bytes).await;
                }
            };
            tokio::join!(hand_over, read(stdout, CODE_BYTES), read(stderr, REASON_BYTES as u64), child.wait())
        };
        let Ok(((), code, said, status)) = timeout(limits.compile_timeout, ending).await else {
            return Some(Err(Stopped::Time(limits.compile_timeout)));
        };
        Some(answer(status, code, &said))
    }
}

/// Everything up to so many bytes. What ends too early shows in how the process ends.
async fn read(from: Option<impl AsyncRead + Unpin>, bytes: u64) -> Vec<u8> {
    let mut read = Vec::new();
    if let Some(from) = from {
        let _ = from.take(bytes).read_to_end(&mut read).await;
    }
    read
}

fn answer(status: io::Result<ExitStatus>, code: Vec<u8>, said: &[u8]) -> Result<Vec<u8>, Stopped> {
    let said = String::from_utf8_lossy(said);
    let said = clean(said.trim(), REASON_BYTES);
    match status {
        Ok(status) if status.success() => Ok(code),
        Ok(status) if status.code() == Some(INVALID.into()) => Err(Stopped::Invalid(said)),
        Ok(status) => Err(Stopped::Ended(format!("{status}: {said}"))),
        Err(error) => Err(Stopped::Ended(error.to_string())),
    }
}

/// Compiles on a thread of this process. If the caller goes it ends all the same, and keeps what it was given until then.
pub(crate) async fn compile_here<Kept: Send + 'static>(
    engine: &Engine,
    guest: Digest,
    bytes: Arc<Vec<u8>>,
    limits: &LoadLimits,
    kept: Kept,
) -> Result<Sealed, Stopped> {
    let engine = engine.clone();
    let compiling = tokio::task::spawn_blocking(move || {
        let _kept = kept;
        let code = engine.precompile_component(&bytes).map_err(|error| invalid(&error))?;
        Ok(Compatibility::of(&engine).seal(&guest, &code))
    });
    match timeout(limits.compile_timeout, compiling).await {
        Ok(Ok(compiled)) => compiled,
        Ok(Err(stopped)) => Err(Stopped::Ended(stopped.to_string())),
        Err(_elapsed) => Err(Stopped::Time(limits.compile_timeout)),
    }
}

fn invalid(error: &wasmtime::Error) -> Stopped {
    Stopped::Invalid(clean(&format!("{error:#}"), REASON_BYTES))
}

/// What the program of a [`Compiler`] does: it compiles the component on standard input, within so many bytes of memory, and
/// writes the code to standard output for the host that started it.
///
/// Nothing else may have been started in the process: the limits hold for all of it.
pub fn compile_guest(memory_bytes: u64) -> ExitCode {
    if let Err(error) = confine(memory_bytes) {
        eprintln!("the compiler cannot be kept within {memory_bytes} bytes of memory: {error}");
        return ExitCode::from(UNCONFINED);
    }
    match serve(&mut io::stdin().lock(), &mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::from(if reason.contains(OUT_OF_MEMORY) { NO_MEMORY } else { INVALID })
        }
    }
}

fn serve(input: &mut impl io::Read, output: &mut impl io::Write) -> Result<(), String> {
    let mut bytes = Vec::new();
    input.read_to_end(&mut bytes).map_err(|error| format!("the component does not come: {error}"))?;
    let engine = runtime::compiling_engine().map_err(|error| format!("{error:#}"))?;
    let code = engine.precompile_component(&bytes).map_err(|error| format!("{error:#}"))?;
    let sealed = Compatibility::of(&engine).seal(&Digest::of(&bytes), &code);
    output.write_all(sealed.bytes()).map_err(|error| format!("the code is not taken: {error}"))
}

/// Binds this process, and all threads that it starts from now on.
fn confine(memory_bytes: u64) -> io::Result<()> {
    // A host that ends, however it does, wants no code any more.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    rustix::process::nice(NICE)?;
    // Where the machine runs out of memory this goes, and not the host. Some containers do not let anybody say so.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    // What is written to, of the heap and of anonymous mappings. Address space alone is no memory.
    for (resource, wanted) in [(Resource::Data, memory_bytes), (Resource::Core, 0)] {
        let most = rustix::process::getrlimit(resource).maximum;
        let limit = Some(most.map_or(wanted, |most| most.min(wanted)));
        rustix::process::setrlimit(resource, Rlimit { current: limit, maximum: limit })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The smallest component there is.
    const EMPTY: &[u8] = b"\0asm\x0d\0\x01\0";

    #[test]
    fn what_a_process_compiles_is_code_for_an_engine_with_a_pool() {
        let mut answer = Vec::new();
        serve(&mut &EMPTY[..], &mut answer).unwrap();
        let engine = runtime::engine(1).unwrap();
        let sealed = Compatibility::of(&engine).open(&Digest::of(EMPTY), answer).expect("what was sealed");
        sealed.component(&engine).unwrap();
        let reason = serve(&mut &b"\0asm\x0d\0\x01\0\xff"[..], &mut Vec::new()).unwrap_err();
        assert!(reason.contains("failed to parse"), "{reason}");
    }

    #[tokio::test]
    async fn a_program_that_is_not_there_leaves_compiling_to_this_process() {
        let compiler = Compiler::new("/nowhere/shardmill", ["compile-guest"]);
        assert!(compiler.compile(EMPTY, &LoadLimits::default()).await.is_none());
    }

    #[tokio::test]
    async fn a_process_has_its_time_and_says_how_it_ends() {
        let script = |text: &str| Compiler::new("/bin/sh", ["-c", text]);
        let limits = |compile_timeout| LoadLimits { compile_timeout, ..LoadLimits::default() };
        let (short, long) = (limits(Duration::from_millis(50)), limits(Duration::from_secs(60)));
        // It neither reads what it is given nor ends. Nothing of it is left: it holds no pipe of this process.
        let large = vec![0; 1 << 20];
        let stopped = script("exec sleep 1000").compile(&large, &short).await.unwrap().unwrap_err();
        assert!(matches!(stopped, Stopped::Time(time) if time == short.compile_timeout), "{stopped:?}");
        let stopped = script("echo no component >&2; exit 65").compile(&large, &long).await.unwrap().unwrap_err();
        assert!(matches!(&stopped, Stopped::Invalid(reason) if reason == "no component"), "{stopped:?}");
        let stopped = script("kill -ABRT $$").compile(EMPTY, &long).await.unwrap().unwrap_err();
        assert!(matches!(&stopped, Stopped::Ended(reason) if reason.contains("signal: 6")), "{stopped:?}");
        let answer = script("cat; printf $0").compile(b"code", &long).await.unwrap().unwrap();
        assert_eq!(answer, b"code2147483648");
    }
}
