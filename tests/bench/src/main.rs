//! Figures and ratios, measured in one run on one machine.
//!
//! Everything that is compared is run in turns, so that what else the machine does meets both. Nothing here passes or
//! fails; `docs/benchmarks.md` says what the figures mean and what they do not.

mod child;
mod demo;
mod done;
mod flow;
mod guest_call;
mod guest_threads;
mod host;
mod hostile;
mod machine;
mod poison;
mod producer;
mod reload;
mod report;
mod sdk_loop;
mod start;
mod stream;

use std::fmt::Arguments as Text;
use std::io::Write as _;

use clap::{Parser, Subcommand};

use crate::machine::Machine;
use crate::report::Report;

/// Measures Shardmill on this machine.
#[derive(Debug, Parser)]
#[command(name = "shardmill-bench", version, about)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Print JSON, with every run's figure.
    #[arg(long, global = true, conflicts_with = "markdown")]
    json: bool,
    /// Print what docs/benchmarks.md holds.
    #[arg(long, global = true)]
    markdown: bool,
    #[command(subcommand)]
    what: Option<What>,
}

/// How much is measured.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// A first impression: fewer runs, fewer records.
    #[arg(long, global = true)]
    quick: bool,
    /// How often everything is measured. [default: 5, quick: 2]
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    runs: Option<u32>,
    /// Records of 100 B that are read in a run; a quarter of it of 1 KiB. [default: 1000000, quick: 200000]
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u64).range(1000..))]
    records: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Subcommand)]
enum What {
    /// Everything; so without a name.
    All,
    /// The whole host against a bare loop over the AWS SDK's GetRecords.
    Host,
    /// A guest's call against the same code called natively.
    GuestCall,
    /// How guests that never return slow what runs beside them.
    GuestThreads,
    /// How long records of one processor take beside hostile guests of another.
    Hostile,
    /// From a host's start to its first record.
    Start,
    /// The demo's whole run.
    Demo,
    /// A run with poison records against one without.
    Poison,
    /// Lanes against none, and a pipeline against one guest that does all of it.
    Flow,
    /// Records into aggregates and out of them, and puts against plain PutRecords.
    Producer,
    /// A thousand other versions of a plugin under load.
    Reload,
}

/// What this program starts itself as.
#[derive(Debug, Parser)]
#[command(name = "shardmill-bench")]
struct LoopArguments {
    #[command(subcommand)]
    what: LoopCommand,
}

#[derive(Debug, Subcommand)]
enum LoopCommand {
    SdkLoop(sdk_loop::Arguments),
}

// === impl Options ===

impl Options {
    pub(crate) fn runs(&self) -> u32 {
        self.runs.unwrap_or(if self.quick { 2 } else { 5 })
    }

    pub(crate) fn records(&self) -> u64 {
        self.records.unwrap_or(if self.quick { 200_000 } else { 1_000_000 })
    }
}

// === impl What ===

impl What {
    fn includes(self, other: What) -> bool {
        self == What::All || self == other
    }
}

#[tokio::main]
async fn main() {
    if std::env::args().nth(1).as_deref() == Some("sdk-loop") {
        let LoopCommand::SdkLoop(arguments) = LoopArguments::parse().what;
        return sdk_loop::run(&arguments).await;
    }
    let Arguments { options, json, markdown, what } = Arguments::parse();
    let what = what.unwrap_or(What::All);
    let mut sections = Vec::new();
    if what.includes(What::Host) {
        sections.push(host::run(&options).await);
    }
    if what.includes(What::GuestCall) {
        say(format_args!("guest-call"));
        sections.extend(guest_call::run(&options));
    }
    if what.includes(What::GuestThreads) {
        sections.push(guest_threads::run(&options).await);
    }
    if what.includes(What::Hostile) {
        sections.push(hostile::run(&options).await);
    }
    if what.includes(What::Start) {
        sections.push(start::run(&options).await);
    }
    if what.includes(What::Demo) {
        sections.push(demo::run(&options).await);
    }
    if what.includes(What::Poison) {
        sections.push(poison::run(&options).await);
    }
    if what.includes(What::Flow) {
        sections.extend(flow::run(&options).await);
    }
    if what.includes(What::Producer) {
        sections.extend(producer::run(&options).await);
    }
    if what.includes(What::Reload) {
        sections.extend(reload::run(&options).await);
    }
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--markdown").collect();
    let command = ["shardmill-bench".to_owned()].into_iter().chain(arguments).collect::<Vec<_>>().join(" ");
    let report = Report { machine: Machine::look(), command, sections };
    let text = match (json, markdown) {
        (true, _) => format!("{:#}\n", report.json()),
        (_, true) => report.markdown(),
        _ => report.text(),
    };
    // A reader that has gone wants no more.
    let _gone = std::io::stdout().write_all(text.as_bytes());
}

/// Tells how far the measuring is.
pub(crate) fn say(text: Text<'_>) {
    eprintln!("{text}");
}
