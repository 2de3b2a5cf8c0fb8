//! `shardmill check`

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use super::grants;
use super::graph::{self, Form};
use super::{ConfigArguments, Failure, output, text};
use crate::config::{Batch, Batcher, DeadLetters, Filter, Output, Processor};
use crate::{Host, config};

pub(super) const EXAMPLES: &str = "\
Examples:
  shardmill check --config shardmill.toml              is it good, and what does it mean?
  shardmill check -c shardmill.toml --graph            drawn in the terminal
  shardmill check -c shardmill.toml --graph=mermaid    drawn as a flowchart, for documents";

#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    config: ConfigArguments,
    /// Print JSON.
    #[arg(long, conflicts_with = "graph")]
    json: bool,
    /// Draw the streams, the processors, and the ways of records between them.
    #[arg(long, value_name = "FORM", num_args = 0..=1, require_equals = true, default_missing_value = "text")]
    graph: Option<Form>,
}

pub(super) async fn check(arguments: &Arguments) -> Result<(), Failure> {
    let path: &PathBuf = &arguments.config.config;
    let config = config::load(path)?;
    crate::telemetry::init(&config.log)?;
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    let host = Host::builder(config.clone());
    let modules = host.load_modules().await?;
    if let Some(form) = arguments.graph {
        let is_ascii = std::env::var_os("NO_UTF8").is_some_and(|value| !value.is_empty());
        let form = if form == Form::Text && is_ascii { Form::Ascii } else { form };
        output::bytes(graph::draw(&config, form).as_bytes());
        return Ok(());
    }
    let described = config.processors.values().map(|processor| {
        let module = modules.get(&processor.name).map(super::plugin::describe);
        (processor, module.unwrap_or_default())
    });
    if arguments.json {
        let processors: Vec<Value> = described.map(|(processor, module)| as_json(processor, &module)).collect();
        let check = json!({ "application": config.application, "max-hops": config.max_hops, "processors": processors });
        output::line(format_args!("{check:#}"));
        return Ok(());
    }
    output::line(format_args!("{}: the configuration is good.", path.display()));
    for (processor, module) in described {
        output::line(format_args!("\nprocessor {}", processor.name));
        for (what, how) in lines(processor, &module, &config) {
            output::line(format_args!("  {what:<11} {how}"));
        }
    }
    Ok(())
}

/// What a processor is and does, a line each.
fn lines(processor: &Processor, module: &Value, config: &config::Config) -> Vec<(&'static str, String)> {
    let mut lines: Vec<(&str, String)> = processor.stream_ids().map(|stream| ("reads", stream.to_owned())).collect();
    for other in config.processors.values() {
        let outputs = other.outputs.iter().filter(|(_, output)| output.processor() == Some(&processor.name));
        lines.extend(outputs.map(|(name, _)| ("gets", format!("{name} of processor {}", other.name))));
    }
    lines.extend(processor.lease_table.iter().map(|table| ("lease table", table.clone())));
    lines.extend(graph::details(processor));
    lines.push((
        "plugin",
        format!(
            "{} ({}, {}, sha-256 {}…)",
            processor.plugin.display(),
            module["contract"].as_str().unwrap_or_default(),
            module["form"].as_str().unwrap_or_default(),
            module["digest"].as_str().unwrap_or_default().chars().take(12).collect::<String>(),
        ),
    ));
    lines.extend(grants::lines(&processor.grants).into_iter().map(|line| ("may", line)));
    lines.extend(processor.outputs.iter().map(|(name, output)| {
        let to = match output {
            Output::Stream(output) => output.stream.clone(),
            Output::Processor(other) => format!("processor {other}"),
        };
        ("output", format!("{name} → {to}"))
    }));
    lines.extend(processor.dead_letters.iter().map(|place| {
        let place = match place {
            DeadLetters::Folder { path, .. } => format!("folder {}", text::line(&path.display().to_string())),
            DeadLetters::Stream { stream, .. } => format!("stream {stream}"),
            DeadLetters::Output { output } => format!("output {output}"),
        };
        ("given up", place)
    }));
    lines
}

fn as_json(processor: &Processor, module: &Value) -> Value {
    let outputs: serde_json::Map<_, _> = processor
        .outputs
        .iter()
        .map(|(name, output)| {
            let output = match output {
                Output::Stream(output) => json!({ "stream": output.stream, "aggregate": output.options.aggregate }),
                Output::Processor(other) => json!({ "processor": other }),
            };
            (name.clone(), output)
        })
        .collect();
    let flow = &processor.flow;
    json!({
        "processor": processor.name,
        "streams": processor.stream_ids().collect::<Vec<_>>(),
        "lease-table": processor.lease_table,
        "parallelism": flow.parallelism,
        "partition-by": flow.partition_by.as_ref().map(config::Pointer::as_str),
        "filter": flow.filter.as_ref().map(filter),
        "batch": batch(&processor.batch),
        "batchers": flow.batchers.iter().map(batcher).collect::<Vec<_>>(),
        "plugin": processor.plugin.display().to_string(),
        "module": module,
        "grants": grants::as_json(&processor.grants),
        "outputs": outputs,
        "dead-letters": processor.dead_letters.as_ref().map(|place| dead_letters(processor, place)),
    })
}

fn filter(filter: &Filter) -> Value {
    json!({ "patterns": patterns(filter), "on-invalid-json": filter.rules.on_invalid_json().as_str() })
}

fn patterns(filter: &Filter) -> Vec<Value> {
    filter.patterns.iter().filter_map(|pattern| serde_json::from_str(pattern).ok()).collect()
}

/// With durations in milliseconds.
fn batch(batch: &Batch) -> Value {
    json!({
        "records": batch.records,
        "bytes": batch.bytes,
        "wait-ms": batch.wait.as_millis(),
        "window-ms": batch.window.map(|window| window.as_millis()),
        "empty": batch.empty,
    })
}

fn batcher(batcher: &Batcher) -> Value {
    json!({ "name": batcher.name, "when": batcher.when.as_ref().map(patterns), "batch": batch(&batcher.batch) })
}

/// Where a processor's dead letters go.
fn dead_letters(processor: &Processor, place: &DeadLetters) -> Value {
    match place {
        DeadLetters::Folder { path, file_bytes } => {
            json!({ "folder": path.display().to_string(), "file-bytes": file_bytes })
        }
        DeadLetters::Stream { stream, aggregate } => json!({ "stream": stream, "aggregate": aggregate }),
        DeadLetters::Output { output } => json!({ "output": output, "stream": processor.dead_letter_stream() }),
    }
}
