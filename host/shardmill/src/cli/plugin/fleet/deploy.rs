//! `shardmill plugin deploy` of a fleet.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use shardmill_cause::code;
use shardmill_lease::store::dynamodb::DynamoDb;
use shardmill_plugin::Digest;

use super::wait::{self, Waited, Waiting};
use super::{Place, failed, progress};
use crate::cli::{Failure, output, text};
use crate::fleet::deployment::{Asked, Order};
use crate::fleet::documents::{self, Read};
use crate::fleet::fetch::{Fetcher, is_exactly};
use crate::fleet::history::Entry;
use crate::fleet::outlook;
use crate::fleet::share::Share;
use crate::fleet::source::Source;
use crate::unix_ms;

/// How often a document is written again that a worker has written meanwhile, which is no other decision.
const TRIES: usize = 20;

#[derive(Debug, Args)]
#[command(next_help_heading = "A fleet")]
pub(in crate::cli) struct FleetArguments {
    /// The configuration of a fleet, all of whose workers are meant, in place of one that is asked by its admin server. No
    /// token is needed, but access to the lease table.
    #[arg(long, short, value_name = "FILE", conflicts_with = "token_file")]
    pub(in crate::cli) config: Option<PathBuf>,
    /// Where workers find the module, if that is not where this command does: a path on each of their machines, or an
    /// https address.
    #[arg(long = "as", value_name = "PATH|URL", value_parser = Source::parse, requires = "config")]
    source: Option<Source>,
    /// How many of the workers that live run it; the others run what was there before. A later one of the same version only
    /// adds to a smaller share.
    #[arg(long, value_name = "P%", default_value = "100%", requires = "config")]
    share: Share,
    /// What the SHA-256 of the module must be, in hexadecimal digits. Without it, it is that of what this command finds.
    #[arg(long = "sha256", value_name = "DIGEST", value_parser = sha256, requires = "config")]
    expected: Option<Digest>,
    /// Let workers fetch over http as well, where others on the way can read the module. They check its SHA-256 all the
    /// same; where this command fetches over http too, say with --sha256 what that must be.
    #[arg(long, requires = "config")]
    plain_http: bool,
    /// Wait until each worker that should run it does, at most so long (5m if no time is named).
    #[arg(
        long,
        value_name = "TIME",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "5m",
        value_parser = humantime::parse_duration,
        requires = "config"
    )]
    wait: Option<Duration>,
}

/// What is told of what is done.
#[derive(Debug, Clone, Copy)]
pub(super) struct Telling {
    /// How long it is waited for.
    pub(super) wait: Option<Duration>,
    pub(super) json: bool,
}

/// `shardmill plugin deploy` with `--config`, which is this file.
pub(in crate::cli) async fn deploy(
    config: &Path,
    processor: &str,
    from: Option<&Source>,
    arguments: &FleetArguments,
    json: bool,
) -> Result<(), Failure> {
    let place = Place::open(config).await?;
    let telling = Telling { wait: arguments.wait, json };
    let deployed = async {
        let tables = place.home(processor)?;
        // Whatever is decided from here on was not seen by who typed this.
        let before = documents::read(&tables, processor).await.map_err(failed)?;
        let order = match from {
            Some(from) => another(&place, processor, from, arguments).await?,
            None => same(processor, &before, arguments).await?,
        };
        carry_out(&place, processor, &tables, &before, &order, telling).await
    };
    place.unless_stopped(deployed).await
}

/// The version that is wanted already, for a share of its own.
async fn same(processor: &str, before: &Read, arguments: &FleetArguments) -> Result<Order, Failure> {
    let wanted = before.deployment.wanted().ok_or_else(|| {
        Failure::usage(format!("{processor}: no version was deployed whose share could be another one"))
            .code(code::fleet::OTHER_WANTED)
            .help("name a module: a file, or an https address")
    })?;
    if let Some(expected) = arguments.expected.filter(|expected| *expected != wanted.digest) {
        let wanted = wanted.digest;
        return Err(Failure::usage(format!("{processor}: what is wanted is {wanted}, and not {expected}"))
            .code(code::fleet::OTHER_WANTED)
            .help("name the module: a file, or an https address"));
    }
    let source = match &arguments.source {
        Some(source) => {
            is_good(source, &wanted.digest, arguments).await?;
            written(source)?
        }
        None => wanted.source.clone(),
    };
    Ok(Order { digest: wanted.digest, source, share: arguments.share, is_rollback: false })
}

/// What is in a file or at an address, which is checked first.
async fn another(place: &Place, processor: &str, from: &Source, arguments: &FleetArguments) -> Result<Order, Failure> {
    is_private(from, arguments)?;
    let bytes = fetch(from).await?;
    let digest = Digest::of(&bytes);
    if let Some(expected) = &arguments.expected {
        is_exactly(from, &bytes, expected).map_err(Failure::configuration)?;
    }
    check(place, processor, from, bytes).await?;
    let source = arguments.source.as_ref().unwrap_or(from);
    if source == from {
        warn_of_signed(source);
    } else {
        is_good(source, &digest, arguments).await?;
    }
    Ok(Order { digest, source: written(source)?, share: arguments.share, is_rollback: false })
}

/// Sees whether workers can find this module there, as far as that can be seen from here.
async fn is_good(source: &Source, digest: &Digest, arguments: &FleetArguments) -> Result<(), Failure> {
    is_private(source, arguments)?;
    if let Source::Url(_) = source {
        is_exactly(source, &fetch(source).await?, digest).map_err(Failure::configuration)?;
    }
    warn_of_signed(source);
    Ok(())
}

async fn fetch(source: &Source) -> Result<Vec<u8>, Failure> {
    Fetcher::new().fetch(source).await.map_err(|reason| match source {
        Source::File(_) => Failure::configuration(reason).code(code::deploy::UNAVAILABLE),
        Source::Url(_) => Failure::unavailable(reason).code(code::deploy::UNAVAILABLE),
    })
}

fn warn_of_signed(source: &Source) {
    if matches!(source, Source::Url(url) if url.is_signed()) {
        output::say(
            "warning: the address is signed and holds for a while only: workers that start later cannot use it",
        );
    }
}

/// Writes what is asked for, says so, and waits for it if that is wished.
pub(super) async fn carry_out(
    place: &Place,
    processor: &str,
    tables: &DynamoDb,
    before: &Read,
    order: &Order,
    telling: Telling,
) -> Result<(), Failure> {
    let leases = &place.config.leases;
    let (digest, share) = (order.digest, order.share);
    let members = wait::members(tables, leases).await?;
    let living = outlook::living(&members);
    let is_for_people = !telling.json;
    let written = write(processor, tables, before, order, &living).await?;
    let taken = living.iter().filter(|worker| written.deployment.includes(worker)).count();
    if is_for_people {
        let all = text::counted(living.len() as u64, "worker");
        output::line(format_args!(
            "{processor}: {} is wanted for {share}: {taken} of {all} that live, from {}",
            digest.short(),
            progress::shown(&order.source)
        ));
    }
    let Some(limit) = telling.wait else {
        if is_for_people {
            output::line(match living.len() {
                0 => "no worker lives: the next one that is started runs it".to_owned(),
                _ => format!(
                    "they look every {} or so; `shardmill plugin list` says which of them run it",
                    humantime::format_duration(crate::fleet::pace(leases))
                ),
            });
        } else {
            output::line(text::json(&answer(processor, &digest, &written, None)));
        }
        return Ok(());
    };
    let is_quiet = telling.json;
    let waiting = Waiting { processor, sidecar: tables, leases, deployment: &written.deployment, limit, is_quiet };
    let waited = waiting.until_done().await?;
    if is_for_people {
        output::line(format_args!("{processor}: {}", progress::line(&waited.progress)));
    } else {
        output::line(text::json(&answer(processor, &digest, &written, Some(&waited))));
    }
    let Some(undone) = waited.undone else { return Ok(()) };
    let reasons: Vec<String> =
        waited.progress.troubles.iter().map(|(worker, reason)| format!("{worker}: {reason}")).collect();
    let help = format!(
        "it is still wanted, and workers go on trying; `shardmill plugin rollback {processor}` goes back to what was there before"
    );
    let message = format!("{processor}: {undone}\n{}", reasons.join("\n"));
    Err(Failure::running(message.trim_end()).code(code::fleet::NOT_FOLLOWED).help(help))
}

/// Writes the document unless somebody has decided otherwise since it was read.
async fn write(
    processor: &str,
    tables: &DynamoDb,
    before: &Read,
    order: &Order,
    living: &[&str],
) -> Result<Read, Failure> {
    let asked = Asked { by: whoever(), at: unix_ms::now() };
    let mut found = before.clone();
    for _ in 0..TRIES {
        if found.deployment.is_decided_since(&before.deployment) {
            return Err(overtaken(processor, found.deployment.history().entries().last()));
        }
        found.deployment.order(order.clone(), living, &asked);
        if documents::write(tables, processor, &found).await.map_err(failed)? {
            found.version = Some(found.version.unwrap_or(0) + 1);
            return Ok(found);
        }
        found = documents::read(tables, processor).await.map_err(failed)?;
    }
    Err(Failure::running(format!("{processor}: the document is written by others again and again; nothing was done"))
        .code(code::fleet::CONTENDED))
}

fn overtaken(processor: &str, last: Option<&Entry>) -> Failure {
    let by = last.map(|Entry { by, why, digest, at, .. }| {
        format!(": {} of {} by {} at {}", why.as_str(), digest.short(), text::line(by), text::time(*at))
    });
    Failure::running(format!(
        "{processor}: somebody else has decided meanwhile{}; nothing was done",
        by.unwrap_or_default()
    ))
    .code(code::fleet::OTHER_WANTED)
    .help(format!("look with `shardmill plugin history {processor}`, and say it again if it is still what you want"))
}

/// Sees whether a module is one that the processor may run, as its workers will.
async fn check(place: &Place, processor: &str, from: &Source, bytes: Vec<u8>) -> Result<(), Failure> {
    let section = place.processor(processor)?;
    crate::host::check_module(&place.config, section, &from.to_string(), bytes).await.map_err(Failure::from)
}

/// Over plain http only what may go there.
fn is_private(source: &Source, arguments: &FleetArguments) -> Result<(), Failure> {
    match source {
        Source::Url(url) if !url.is_private() && !arguments.plain_http => {
            Err(Failure::usage(format!("{url} is not https: others on the way could read the module"))
                .code(code::fleet::SOURCE)
                .help("--plain-http allows it, and --sha256 says what the module must be"))
        }
        _ => Ok(()),
    }
}

fn written(source: &Source) -> Result<String, Failure> {
    let absolute = source.clone().absolute();
    let absolute = absolute.map_err(|error| {
        Failure::usage(format!("{source} cannot be made absolute: {error}")).code(code::fleet::SOURCE)
    })?;
    absolute.written().ok_or_else(|| {
        Failure::usage(format!("{source} is not UTF-8, and is not kept as it is")).code(code::fleet::SOURCE)
    })
}

/// What clap takes for a digest.
fn sha256(text: &str) -> Result<Digest, &'static str> {
    Digest::parse(text).ok_or("a SHA-256 is 64 hexadecimal digits")
}

/// Who types this, as far as the machine says.
fn whoever() -> String {
    let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME"));
    let user = user.unwrap_or_else(|_| format!("uid {}", rustix::process::getuid().as_raw()));
    let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{user}@{machine}")
}

fn answer(processor: &str, digest: &Digest, written: &Read, waited: Option<&Waited>) -> Value {
    json!({
        "processor": processor,
        "digest": digest.to_string(),
        "wanted": progress::wanted_json(&written.deployment),
        "waited": waited.map(Waited::json),
    })
}
