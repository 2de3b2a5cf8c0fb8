//! `shardmill check`

use std::path::Path;

use serde_json::json;

use super::{Failure, output};
use crate::config::{DeadLetters, Processor};
use crate::{Host, config};

pub(super) async fn check(path: &Path, as_json: bool) -> Result<(), Failure> {
    let config = config::load(path)?;
    crate::telemetry::init(&config.log)?;
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    let application = config.application.clone();
    let processors: Vec<_> = config.processors.values().cloned().collect();
    let modules = Host::builder(config).load_modules().await?;
    let mut described = Vec::new();
    for processor in &processors {
        let outputs: serde_json::Map<_, _> = processor
            .outputs
            .iter()
            .map(|(name, output)| {
                (name.clone(), json!({ "stream": output.stream, "aggregate": output.options.aggregate }))
            })
            .collect();
        described.push(json!({
            "processor": processor.name,
            "streams": processor.streams.iter().map(|stream| &stream.id).collect::<Vec<_>>(),
            "lease-table": processor.lease_table,
            "plugin": processor.plugin.display().to_string(),
            "module": modules.get(&processor.name).map(super::inspect::describe),
            "outputs": outputs,
            "dead-letters": processor.dead_letters.as_ref().map(|place| dead_letters(processor, place)),
        }));
    }
    if as_json {
        output::line(format_args!("{:#}", json!({ "application": application, "processors": described })));
        return Ok(());
    }
    output::line(format_args!("{}: the configuration is good.", path.display()));
    for processor in &described {
        let text = |key: &str| processor[key].as_str().unwrap_or_default().to_owned();
        output::line(format_args!("\nprocessor {}", text("processor")));
        for stream in processor["streams"].as_array().into_iter().flatten() {
            output::line(format_args!("  reads       {}", stream.as_str().unwrap_or_default()));
        }
        output::line(format_args!("  lease table {}", text("lease-table")));
        let module = &processor["module"];
        output::line(format_args!(
            "  plugin      {} ({}, {}, sha-256 {}…)",
            text("plugin"),
            module["contract"].as_str().unwrap_or_default(),
            module["form"].as_str().unwrap_or_default(),
            module["digest"].as_str().unwrap_or_default().chars().take(12).collect::<String>(),
        ));
        for (name, output) in processor["outputs"].as_object().into_iter().flatten() {
            output::line(format_args!("  output      {name} → {}", output["stream"].as_str().unwrap_or_default()));
        }
        let dead_letters = &processor["dead-letters"];
        for place in ["folder", "output", "stream"] {
            if let Some(name) = dead_letters[place].as_str() {
                output::line(format_args!("  given up    {place} {name}"));
                break;
            }
        }
    }
    Ok(())
}

/// Where a processor's dead letters go.
fn dead_letters(processor: &Processor, place: &DeadLetters) -> serde_json::Value {
    match place {
        DeadLetters::Folder { path, file_bytes } => {
            json!({ "folder": path.display().to_string(), "file-bytes": file_bytes })
        }
        DeadLetters::Stream { stream, aggregate } => json!({ "stream": stream, "aggregate": aggregate }),
        DeadLetters::Output { output } => json!({ "output": output, "stream": processor.dead_letter_stream() }),
    }
}
