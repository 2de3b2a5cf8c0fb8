//! The command line: what a user types and what comes back.

mod access;
mod check;
mod coded;
mod dead_letters;
mod demo;
mod exit;
mod explain;
mod fleet_status;
mod grants;
mod graph;
mod local;
mod output;
mod pace;
mod plugin;
mod put;
mod remote;
mod run;
mod signals;
mod spool;
mod stream;
mod table;
mod tail;
mod when;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use shardmill_cause::code;

use crate::admin::commands::Command as Order;
use crate::text;
pub use exit::Failure;
pub(crate) use signals::{outlive_file_limits, stop_at_signal};

const EXAMPLES: &str = "\
Examples:
  shardmill demo                              flights through a processor, all on this machine
  shardmill check --config shardmill.toml     is the configuration good, do the plugins load? --graph draws it
  shardmill run --config shardmill.toml       run until SIGTERM or Ctrl-C
  shardmill status                            what does a running worker do, and how far is it?
  shardmill status --config shardmill.toml    and the whole fleet?
  shardmill pause orders                      tell it to rest; resume, restart and rewind likewise
  shardmill plugin new late-flights           a processor to begin with; test, bench and inspect likewise
  shardmill plugin test my_plugin.wasm --records events.jsonl     what does it make of these records?
  shardmill plugin deploy orders orders.wasm  another version of a plugin while the worker runs
  shardmill plugin deploy orders URL -c shardmill.toml    to all workers; list, history and rollback likewise
  shardmill dead-letters list -c shardmill.toml      which records were given up, and why?
  shardmill tail orders                       what comes into a stream?
  shardmill put orders events.jsonl --key-field /user    records into a stream
  shardmill stream describe orders            a stream's shards; list, create, split, merge, scale and delete likewise
  shardmill spool drain --folder /var/lib/orders     send what an outage left on the disk
  shardmill explain SM0303                    what does the code of an error mean, and what is to be done?

AWS is reached as the AWS SDKs do: AWS_REGION, AWS_PROFILE, AWS_ENDPOINT_URL_KINESIS, instance roles, ...
Exit status: 0 done, 1 failed while running, 2 wrong usage, 69 a service or port is not available,
70 stopped by a failure policy, 75 not done yet and kept, 77 not permitted, 78 wrong configuration or plugin.";

/// Runs WebAssembly processors on Amazon Kinesis streams.
#[derive(Debug, Parser)]
#[command(name = "shardmill", version, about, after_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the processors of a configuration until SIGTERM or Ctrl-C, then drain, checkpoint and release.
    #[command(after_help = run::EXAMPLES)]
    Run(run::Arguments),
    /// Show what a running worker does: its shards, their lag and checkpoints, and what stands still; or a whole fleet.
    #[command(after_help = remote::EXAMPLES)]
    Status(remote::StatusArguments),
    /// Let shards of a running worker rest: nothing is read, leases are kept.
    #[command(after_help = remote::EXAMPLES)]
    Pause(remote::Arguments),
    /// Let paused shards go on from their last checkpoint.
    #[command(after_help = remote::EXAMPLES)]
    Resume(remote::Arguments),
    /// Let stopped shards begin again from their last checkpoint.
    #[command(after_help = remote::EXAMPLES)]
    Restart(remote::Arguments),
    /// Let shards begin somewhere else, before or behind where they are.
    #[command(after_help = remote::EXAMPLES)]
    Rewind(remote::RewindArguments),
    /// Let a running worker read its configuration and its plugins again, as SIGHUP does.
    #[command(after_help = remote::EXAMPLES)]
    Reload(remote::ReloadArguments),
    /// Check a configuration and load its plugins, without touching any service; draw it.
    #[command(after_help = check::EXAMPLES)]
    Check(check::Arguments),
    /// Flights into a stream, through a processor, out to another stream: all on this machine, with no AWS.
    Demo(demo::Arguments),
    /// Kinesis and DynamoDB on loopback ports of this machine, in memory, until Ctrl-C.
    #[command(after_help = local::EXAMPLES)]
    Local(local::Arguments),
    /// Look at records that were given up, and send them again.
    #[command(subcommand)]
    DeadLetters(dead_letters::Command),
    /// Show the records of a stream: what is in it, and what comes.
    #[command(after_help = tail::EXAMPLES)]
    Tail(tail::Arguments),
    /// Put records into a stream: lines, JSON lines or CSV, from files or standard input.
    #[command(after_help = put::EXAMPLES)]
    Put(put::Arguments),
    /// Make streams, look at them, change their shards, and delete them.
    #[command(subcommand)]
    Stream(stream::Command),
    /// Look at records that wait on the disk for their stream, send them, or drop them.
    #[command(subcommand)]
    Spool(spool::Command),
    /// Begin a plugin, try it, measure it, look at it, and deploy it.
    #[command(subcommand)]
    Plugin(plugin::Command),
    /// Say what the code of an error means, what is kept where it happens, and what to do; or list all codes.
    #[command(after_help = explain::EXAMPLES)]
    Explain(explain::Arguments),
    /// Compile the component on standard input, for the host that has started this.
    #[command(name = crate::compile::COMMAND, hide = true)]
    CompileGuest {
        /// Bytes of memory that it may take.
        memory: u64,
    },
}

#[derive(Debug, Args)]
struct ConfigArguments {
    /// The configuration file.
    #[arg(long, short, value_name = "FILE", env = "SHARDMILL_CONFIG")]
    config: PathBuf,
}

/// The command line of this process; one that is wrong ends it with 2, and with the code of that.
pub fn arguments() -> Arguments {
    Arguments::try_parse().unwrap_or_else(|error| {
        let is_wrong = error.use_stderr();
        // Where nobody reads it, the status says it.
        let _unread = error.print();
        if is_wrong {
            output::say(format_args!("{}", exit::more(code::command::USAGE).trim_start()));
        }
        std::process::exit(error.exit_code())
    })
}

/// Carries out a command line.
pub fn run(arguments: Arguments) -> ExitCode {
    if let Command::CompileGuest { memory } = arguments.command {
        // Before anything else is started, since it binds the whole process.
        return crate::compile::compile(memory);
    }
    crate::compile::is_this_program();
    exit::keep_lines_whole();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            return Failure::running(format!("the async runtime cannot start: {error}"))
                .code(code::process::MACHINE)
                .report();
        }
    };
    let result = runtime.block_on(async {
        if let Err(error) = outlive_file_limits() {
            return Err(Failure::running(format!("signals cannot be received: {error}")).code(code::process::MACHINE));
        }
        match arguments.command {
            Command::Run(arguments) => run::run(&arguments).await,
            Command::Status(arguments) => remote::status(&arguments).await,
            Command::Pause(arguments) => remote::order(Order::Pause, &arguments).await,
            Command::Resume(arguments) => remote::order(Order::Resume, &arguments).await,
            Command::Restart(arguments) => remote::order(Order::Restart, &arguments).await,
            Command::Rewind(arguments) => remote::rewind(&arguments).await,
            Command::Reload(arguments) => remote::reload(&arguments).await,
            Command::Check(arguments) => check::check(&arguments).await,
            Command::Demo(arguments) => demo::run(arguments).await,
            Command::Local(arguments) => local::run(&arguments).await,
            Command::DeadLetters(command) => dead_letters::run(&command).await,
            Command::Tail(arguments) => tail::tail(&arguments).await,
            Command::Put(arguments) => put::put(&arguments).await,
            Command::Stream(command) => stream::run(&command).await,
            Command::Spool(command) => spool::run(&command).await,
            Command::Plugin(command) => plugin::run(&command).await,
            Command::Explain(arguments) => explain::explain(&arguments),
            Command::CompileGuest { .. } => Ok(()),
        }
    });
    // A blocking call that hangs (a file system, a name look-up) must not keep a stopped process alive.
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
