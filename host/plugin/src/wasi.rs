use wasmtime::component::{HasData, Linker, ResourceTable};
use wasmtime_wasi::cli::{WasiCli, WasiCliView as _};
use wasmtime_wasi::clocks::{WasiClocks, WasiClocksView as _};
use wasmtime_wasi::filesystem::{WasiFilesystem, WasiFilesystemView as _};
use wasmtime_wasi::p2::bindings::{cli, clocks, filesystem, io, random};
use wasmtime_wasi::random::{WasiRandom, WasiRandomView as _};
use wasmtime_wasi::{WasiCtx, WasiCtxBuilder};

use crate::Need;
use crate::guest_log::{GuestLog, Source};
use crate::host::Host;
use crate::http;
use crate::stdio::Capture;

/// Random bytes that a guest may ask for at once: the host makes them before it copies them.
const RANDOM_BYTES: u64 = 1 << 20;

/// The context of one instance: these variables of an environment, no arguments, no files, no sockets, nothing to read.
pub(crate) fn context(log: &GuestLog, variables: &[(String, String)]) -> WasiCtx {
    WasiCtxBuilder::new()
        .envs(variables)
        .stdout(Capture::new(log.clone(), Source::Stdout))
        .stderr(Capture::new(log.clone(), Source::Stderr))
        .max_random_size(RANDOM_BYTES)
        .build()
}

/// Links what of WASI 0.2 is granted and nothing else. Standard libraries import `cli`, `io` and `filesystem` whether
/// they use them or not, so every guest has these, with nothing behind them but the log and the variables. So has every
/// guest the seed of hash tables.
pub(crate) fn link(linker: &mut Linker<Host>, has: impl Fn(Need) -> bool) -> wasmtime::Result<()> {
    io::error::add_to_linker::<_, Table>(linker, |host| &mut host.table)?;
    io::poll::add_to_linker::<_, Table>(linker, |host| &mut host.table)?;
    io::streams::add_to_linker::<_, Table>(linker, |host| &mut host.table)?;
    cli::environment::add_to_linker::<_, WasiCli>(linker, Host::cli)?;
    cli::exit::add_to_linker::<_, WasiCli>(linker, Host::cli)?;
    cli::stdin::add_to_linker::<_, WasiCli>(linker, Host::cli)?;
    cli::stdout::add_to_linker::<_, WasiCli>(linker, Host::cli)?;
    cli::stderr::add_to_linker::<_, WasiCli>(linker, Host::cli)?;
    cli::terminal_input::add_to_linker::<_, WasiCli>(linker, Host::cli)?;
    cli::terminal_output::add_to_linker::<_, WasiCli>(linker, Host::cli)?;
    cli::terminal_stdin::add_to_linker::<_, WasiCli>(linker, Host::cli)?;
    cli::terminal_stdout::add_to_linker::<_, WasiCli>(linker, Host::cli)?;
    cli::terminal_stderr::add_to_linker::<_, WasiCli>(linker, Host::cli)?;
    filesystem::types::add_to_linker::<_, WasiFilesystem>(linker, Host::filesystem)?;
    filesystem::preopens::add_to_linker::<_, WasiFilesystem>(linker, Host::filesystem)?;
    random::insecure_seed::add_to_linker::<_, WasiRandom>(linker, Host::random)?;
    if has(Need::Clocks) {
        clocks::wall_clock::add_to_linker::<_, WasiClocks>(linker, Host::clocks)?;
        clocks::monotonic_clock::add_to_linker::<_, WasiClocks>(linker, Host::clocks)?;
    }
    if has(Need::Random) {
        random::random::add_to_linker::<_, WasiRandom>(linker, Host::random)?;
        random::insecure::add_to_linker::<_, WasiRandom>(linker, Host::random)?;
    }
    if has(Need::Http) {
        http::link(linker)?;
    }
    Ok(())
}

struct Table;

impl HasData for Table {
    type Data<'a> = &'a mut ResourceTable;
}
