//! Compiling a guest, which is the one thing that a guest makes the host do before any limit of its own holds: a few bytes
//! can keep a compiler busy for hours and fill the machine's memory, and a thread that compiles cannot be ended.
//!
//! So it is done in a process of its own, which is ended when its time is over, may take so much memory and no more, gives
//! way to everything else, and is the first to go when the machine runs out of memory. It gets the component on its
//! standard input and answers with sealed code. It has nothing of the host's environment, where secrets may be. Where there
//! is no program that can do that, compiling runs on a thread of this process: then its time bounds the wait alone.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, Signal};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;
use tokio::time::timeout;
use wasmtime::{Engine, OutOfMemory};

use crate::cache::{Compatibility, Sealed};
use crate::text::clean;
use crate::{Digest, LoadLimits, engine};

/// How the process ends that was given what cannot be compiled: the number that sysexits.h has for bad data.
const INVALID: u8 = 65;
/// How it ends if it cannot be confined, or has not the memory that it takes.
const UNCONFINED: u8 = 71;
const NO_MEMORY: u8 = 70;
/// Bytes of compiled code for each byte of a component. That of a component of 18 MB has some 60 MB.
const CODE_GROWTH: u64 = 16;
/// Bytes of compiled code that any component may have.
const CODE_BYTES: u64 = 64 << 20;
/// What is kept of what the compiler says.
const REASON_BYTES: usize = 4 << 10;
/// The compiler comes after everything else that wants to run.
const NICE: i32 = 10;
/// Threads that compile one guest, where there are as many processors: each takes some of the memory.
const THREADS: usize = 8;
/// Where the compiler's pool of threads looks for their number.
const THREADS_VARIABLE: &str = "RAYON_NUM_THREADS";
/// The process that wants the code, so that one that has lost it notices.
const HOST_VARIABLE: &str = "SHARDMILL_COMPILE_FOR";
/// Seconds that all threads of the compiler may compute together: the last bound of one that nobody ends any more.
const SECONDS_VARIABLE: &str = "SHARDMILL_COMPILE_SECONDS";

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
    /// The code has more than so many bytes.
    Code(u64),
    /// No process can be had just now.
    NoProcess(String),
}

/// Why the program of a [`Compiler`] has no code.
#[derive(Debug)]
enum Fault {
    NoMemory(String),
    Invalid(String),
}

// === impl Compiler ===

impl Compiler {
    /// The program is called with these arguments and, after them, the bytes of memory that it may take.
    pub fn new(program: impl Into<PathBuf>, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        Self { program: program.into(), arguments: arguments.into_iter().map(Into::into).collect() }
    }

    /// Compiles in a process of its own. `None` if there is no such program, or none that may be started; that a process
    /// cannot be had just now is no reason to do without its bounds.
    pub(crate) async fn compile(&self, bytes: &[u8], limits: &LoadLimits) -> Option<Result<Vec<u8>, Stopped>> {
        let mut child = match self.command(limits).spawn() {
            Ok(child) => child,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {
                tracing::warn!(
                    program = %self.program.display(), %error,
                    "no process can be started to compile a guest in: it is compiled in this one, and its memory is not bounded"
                );
                return None;
            }
            Err(error) => return Some(Err(Stopped::NoProcess(error.to_string()))),
        };
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let most = code_bytes(bytes);
        let ending = async {
            let hand_over = async {
                if let Some(mut stdin) = stdin {
                    // One that does not want the rest says why.
                    let _ = stdin.write_all(bytes).await;
                }
            };
            tokio::join!(hand_over, read(stdout, most + 1), read(stderr, REASON_BYTES as u64), child.wait())
        };
        let Ok(((), code, said, status)) = timeout(limits.compile_timeout, ending).await else {
            return Some(Err(Stopped::Time(limits.compile_timeout)));
        };
        if code.len() as u64 > most {
            return Some(Err(Stopped::Code(most)));
        }
        Some(answer(status, code, &said))
    }

    fn command(&self, limits: &LoadLimits) -> Command {
        let mut command = Command::new(&self.program);
        let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get).min(THREADS);
        let seconds = limits.compile_timeout.as_secs().saturating_add(1).saturating_mul(threads as u64);
        command.env_clear().env(THREADS_VARIABLE, threads.to_string());
        command.env(HOST_VARIABLE, std::process::id().to_string()).env(SECONDS_VARIABLE, seconds.to_string());
        command.args(&self.arguments).arg(limits.compile_memory_bytes.to_string()).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

/// Bytes that the code of a component may have.
fn code_bytes(component: &[u8]) -> u64 {
    CODE_BYTES.max((component.len() as u64).saturating_mul(CODE_GROWTH))
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
        let code = engine.precompile_component(&bytes).map_err(|error| Stopped::Invalid(reason(&error)))?;
        let most = code_bytes(&bytes);
        if code.len() as u64 > most {
            return Err(Stopped::Code(most));
        }
        Ok(Compatibility::of(&engine).seal(&guest, &code))
    });
    match timeout(limits.compile_timeout, compiling).await {
        Ok(Ok(compiled)) => compiled,
        Ok(Err(stopped)) => Err(Stopped::Ended(stopped.to_string())),
        Err(_elapsed) => Err(Stopped::Time(limits.compile_timeout)),
    }
}

/// As the operator may have it: names in it are the guest's.
fn reason(error: &wasmtime::Error) -> String {
    clean(&format!("{error:#}"), REASON_BYTES)
}

/// What the program of a [`Compiler`] does: it compiles the component on standard input, within so many bytes of memory, and
/// writes the code to standard output for the host that started it.
///
/// Nothing else may have been started in the process: the limits hold for all of it.
pub fn compile_guest(memory_bytes: u64) -> ExitCode {
    if let Err(error) = confine(memory_bytes) {
        say(&format!("the compiler cannot be kept within {memory_bytes} bytes of memory: {error}"));
        return ExitCode::from(UNCONFINED);
    }
    match serve(&mut io::stdin().lock(), &mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            say(fault.reason());
            ExitCode::from(fault.status())
        }
    }
}

/// Tells the host, which reads so much and no more, and may be gone.
fn say(reason: &str) {
    let _ = writeln!(io::stderr(), "{reason}");
}

fn serve(input: &mut impl io::Read, output: &mut impl io::Write) -> Result<(), Fault> {
    let mut bytes = Vec::new();
    input.read_to_end(&mut bytes).map_err(|error| Fault::of(&error.into(), "the component does not come"))?;
    let compile = || {
        let engine = engine::compiling()?;
        let code = engine.precompile_component(&bytes)?;
        Ok(Compatibility::of(&engine).seal(&Digest::of(&bytes), &code))
    };
    let sealed = compile().map_err(|error| Fault::of(&error, ""))?;
    output.write_all(sealed.bytes()).map_err(|error| Fault::of(&error.into(), "the code is not taken"))
}

/// Whether it is memory that is missing, as the standard library, the system or wasmtime says it.
fn is_out_of_memory(error: &wasmtime::Error) -> bool {
    error.is::<OutOfMemory>()
        || error.chain().any(|cause| {
            let of_system = cause.downcast_ref::<io::Error>().is_some_and(|error| {
                error.kind() == io::ErrorKind::OutOfMemory || error.raw_os_error() == Some(Errno::NOMEM.raw_os_error())
            });
            of_system || cause.is::<OutOfMemory>() || cause.downcast_ref::<Errno>() == Some(&Errno::NOMEM)
        })
}

/// Binds this process, and all threads that it starts from now on.
fn confine(memory_bytes: u64) -> io::Result<()> {
    // A host that ends, however it does, wants no code any more; nor does one that has ended already.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    if let Some(host) = number::<i32>(HOST_VARIABLE)
        && rustix::process::getppid().map(Pid::as_raw_pid) != Some(host)
    {
        return Err(io::Error::other("whoever has started it is gone"));
    }
    rustix::process::nice(NICE)?;
    // Where the machine runs out of memory this goes, and not the host. Some containers do not let anybody say so.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    // What is written to, of the heap and of anonymous mappings. Address space alone is no memory.
    let computing = number(SECONDS_VARIABLE).map(|seconds| (Resource::Cpu, seconds));
    for (resource, wanted) in [(Resource::Data, memory_bytes), (Resource::Core, 0)].into_iter().chain(computing) {
        let most = rustix::process::getrlimit(resource).maximum;
        let limit = Some(most.map_or(wanted, |most| most.min(wanted)));
        rustix::process::setrlimit(resource, Rlimit { current: limit, maximum: limit })?;
    }
    Ok(())
}

/// What the host says in the environment.
fn number<N: std::str::FromStr>(variable: &str) -> Option<N> {
    std::env::var(variable).ok()?.parse().ok()
}

// === impl Fault ===

impl Fault {
    fn of(error: &wasmtime::Error, what: &str) -> Self {
        let separator = if what.is_empty() { "" } else { ": " };
        let reason = clean(&format!("{what}{separator}{error:#}"), REASON_BYTES);
        if is_out_of_memory(error) { Self::NoMemory(reason) } else { Self::Invalid(reason) }
    }

    fn reason(&self) -> &str {
        let (Self::NoMemory(reason) | Self::Invalid(reason)) = self;
        reason
    }

    fn status(&self) -> u8 {
        match self {
            Self::NoMemory(_) => NO_MEMORY,
            Self::Invalid(_) => INVALID,
        }
    }
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
        let engine = engine::with_pool(1).unwrap();
        let sealed = Compatibility::of(&engine).open(&Digest::of(EMPTY), answer).expect("what was sealed");
        sealed.component(&engine).unwrap();
        let fault = serve(&mut &b"\0asm\x0d\0\x01\0\xff"[..], &mut Vec::new()).unwrap_err();
        assert!(fault.status() == INVALID && fault.reason().contains("failed to parse"), "{fault:?}");
    }

    #[test]
    fn memory_is_missing_where_the_system_says_so_and_not_where_a_guest_does() {
        let missing: [wasmtime::Error; 3] = [
            io::Error::from(io::ErrorKind::OutOfMemory).into(),
            io::Error::from_raw_os_error(Errno::NOMEM.raw_os_error()).into(),
            OutOfMemory::new(7).into(),
        ];
        for error in missing {
            let fault = Fault::of(&error.context("compiling"), "the component does not come");
            assert!(fault.status() == NO_MEMORY && fault.reason().starts_with("the component does not"), "{fault:?}");
        }
        let fault = Fault::of(&wasmtime::format_err!("unknown import: `out of memory\n`{}", "x".repeat(9000)), "");
        assert_eq!(fault.status(), INVALID);
        // The host reads no more than this.
        let reason = fault.reason();
        assert!(reason.len() <= REASON_BYTES + 3 && !reason.contains('\n'), "{} bytes", reason.len());
    }

    #[tokio::test]
    async fn a_process_that_cannot_be_had_is_no_reason_to_compile_without_bounds() {
        // More arguments than the system takes.
        let compiler = Compiler::new("/bin/true", ["x".repeat(16 << 20)]);
        let stopped = compiler.compile(EMPTY, &LoadLimits::default()).await.expect("no other way").unwrap_err();
        assert!(matches!(&stopped, Stopped::NoProcess(reason) if reason.contains("os error 7")), "{stopped:?}");
    }

    #[tokio::test]
    async fn a_process_knows_nothing_of_the_hosts_environment() {
        assert!(std::env::var_os("PATH").is_some());
        let compiler = Compiler::new("/bin/sh", ["-c", "cat >&2; /usr/bin/env >&2; exit 65"]);
        let stopped = compiler.compile(b"", &LoadLimits::default()).await.unwrap().unwrap_err();
        let Stopped::Invalid(said) = stopped else { panic!("{stopped:?}") };
        let names: Vec<_> = said.split("\\n").filter_map(|line| Some(line.split_once('=')?.0)).collect();
        // And what a shell sets by itself.
        let known = [THREADS_VARIABLE, HOST_VARIABLE, SECONDS_VARIABLE, "PWD", "OLDPWD", "SHLVL", "_", "PATH"];
        assert!(names.contains(&THREADS_VARIABLE) && names.contains(&HOST_VARIABLE), "{said}");
        assert!(names.iter().all(|name| known.contains(name)), "{said}");
    }

    #[tokio::test]
    async fn code_is_bounded_by_the_size_of_its_component() {
        assert_eq!([code_bytes(&[]), code_bytes(&vec![0; 8 << 20])], [64 << 20, 128 << 20]);
        let compiler = Compiler::new("/bin/sh", ["-c", "cat /dev/zero"]);
        let stopped = compiler.compile(EMPTY, &LoadLimits::default()).await.unwrap().unwrap_err();
        assert!(matches!(stopped, Stopped::Code(CODE_BYTES)), "{stopped:?}");
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
