//! `shardmill plugin deploy`

use clap::Args;
use hyper::Method;
use shardmill_cause::code;
use shardmill_plugin::Digest;

use super::fleet;
use crate::admin::deploys::{DIGEST, DeployAnswer, FROM};
use crate::cli::remote::{Question, SLOW_LIMIT, Server, Token, ask, expect};
use crate::cli::{Failure, output};
use crate::deploy::MAX_PLUGIN;
use crate::fleet::source::Source;

pub(super) const EXAMPLES: &str = "\
Examples:
  shardmill plugin deploy orders orders.wasm --token-file token
  shardmill plugin deploy orders orders.wasm --admin http://10.0.0.7:9465 --json
  shardmill plugin deploy orders https://plugins.example/orders-1.5.wasm -c shardmill.toml --wait
  shardmill plugin deploy orders https://plugins.example/orders-1.6.wasm -c shardmill.toml --share 25%
  shardmill plugin deploy orders -c shardmill.toml --share 100%      the same version, for all
  shardmill plugin deploy orders build/orders.wasm -c shardmill.toml --as /opt/plugins/orders.wasm

The worker loads the plugin beside the one that runs, starts it with the processor's
configuration, and lets each shard go on with it from its next batch. One that is refused
changes nothing (exit status 78, and why). It lasts until that worker's next start, until the
processor's own file changes, or until another version is deployed to the whole fleet.

With --config it is for all workers of a fleet: which version is wanted is kept in the sidecar
table of the processor's consumer, where each worker looks every 4 s or so (twice `scan` in
[leases]). It fetches the module from where the command says that it is, checks its SHA-256, and
switches. Exit status of --wait: 1 if not all workers that live run it in the end.";

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The processor's name.
    #[arg(value_name = "PROCESSOR")]
    processor: String,
    /// The component: a file, or with --config an https address as well; or nothing there, for the version that is
    /// wanted already, to change its share.
    #[arg(value_name = "FILE.wasm|URL", value_parser = Source::parse, required_unless_present = "config")]
    module: Option<Source>,
    #[command(flatten)]
    server: Server,
    #[command(flatten)]
    token: Token,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    fleet: fleet::FleetArguments,
}

pub(super) async fn deploy(arguments: &Arguments) -> Result<(), Failure> {
    let Arguments { processor, module, server, token, json, fleet } = arguments;
    if let Some(config) = &fleet.config {
        return fleet::deploy(config, processor, module.as_ref(), fleet, *json).await;
    }
    let Some(file) = module.as_ref().and_then(Source::path) else {
        return Err(Failure::usage("one worker is sent the module itself: a file is expected")
            .help("--config FILE deploys to all workers of a fleet, which fetch it from an address"));
    };
    let unreadable = |reason: String| {
        Failure::configuration(format!("the plugin {} cannot be sent: {reason}", file.display()))
            .code(code::deploy::UNAVAILABLE)
    };
    let bytes = tokio::fs::read(file).await.map_err(|error| unreadable(error.to_string()))?;
    if bytes.len() > MAX_PLUGIN {
        return Err(unreadable(format!("it is larger than {} MiB", MAX_PLUGIN >> 20)));
    }
    let token = token.read()?;
    let headers = vec![(DIGEST, Digest::of(&bytes).to_string()), (FROM, shown(&file.display().to_string()))];
    let path = format!("/v1/processors/{processor}/deploy");
    let question = Question { path: &path, token: Some(&token), headers, body: bytes, limit: Some(SLOW_LIMIT) };
    let (code, body) = ask(&server.admin, Method::POST, question).await?;
    let answer = expect(code, &body)?;
    if *json {
        output::line(format_args!("{answer:#}"));
        return Ok(());
    }
    let DeployAnswer { processor, switched, from, to, lasts, stopped_shards } = serde_json::from_value(answer)
        .map_err(|error| {
            Failure::running(format!("the answer of {} makes no sense: {error}", server.admin))
                .code(code::command::ANSWER)
        })?;
    if switched {
        output::line(format_args!("{processor}: {from} was followed by {to}; {lasts}"));
    } else {
        output::line(format_args!("{processor}: {to} runs already"));
    }
    if stopped_shards > 0 {
        output::line(format_args!(
            "{stopped_shards} stopped shards stay so until they are restarted: shardmill restart {processor}"
        ));
    }
    Ok(())
}

/// A path as a header can hold it.
fn shown(path: &str) -> String {
    let mut shown = String::with_capacity(path.len());
    for character in path.chars() {
        match character {
            ' '..='~' => shown.push(character),
            other => shown.extend(other.escape_unicode()),
        }
    }
    shown
}
