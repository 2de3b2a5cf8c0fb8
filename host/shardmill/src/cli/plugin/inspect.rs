//! `shardmill plugin inspect`

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use shardmill_cause::{Coded, code, with_causes};
use shardmill_plugin::{Module, Need, Runtime, RuntimeOptions};

use crate::cli::{Failure, output};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The component.
    #[arg(value_name = "FILE.wasm")]
    file: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) async fn inspect(arguments: &Arguments) -> Result<(), Failure> {
    let path = &arguments.file;
    let bytes = tokio::fs::read(path).await.map_err(|error| {
        Failure::configuration(format!("cannot read {}: {error}", path.display())).code(code::deploy::UNAVAILABLE)
    })?;
    let options = RuntimeOptions { compiler: crate::compile::compiler(), ..RuntimeOptions::default() };
    let runtime = Runtime::new(options, shardmill_plugin::Metrics::default())
        .map_err(|error| Failure::running(with_causes(&error)).code(error.code()))?;
    let module = runtime
        .load(&path.display().to_string(), bytes)
        .await
        .map_err(|error| Failure::configuration(with_causes(&error)).code(error.code()))?;
    let description = describe(&module);
    if arguments.json {
        output::line(format_args!("{description:#}"));
        return Ok(());
    }
    output::line(format_args!("{}", path.display()));
    for key in ["contract", "form", "hooks", "digest", "bytes"] {
        output::line(format_args!(
            "  {key:<10} {}",
            description[key].as_str().map_or_else(|| description[key].to_string(), str::to_owned)
        ));
    }
    let needs: Vec<&str> = module.needs().into_iter().map(Need::line).collect();
    if needs.is_empty() {
        output::line(format_args!("  {:<10} none", "needs"));
    } else {
        output::line(format_args!("  {:<10} grants = {{ {} }}", "needs", needs.join(", ")));
    }
    for (title, key) in [("exports", "exports"), ("imports", "imports")] {
        output::line(format_args!("  {title}"));
        for name in description[key].as_array().into_iter().flatten() {
            output::line(format_args!("    {}", name.as_str().unwrap_or_default()));
        }
    }
    Ok(())
}

pub(in crate::cli) fn describe(module: &Module) -> serde_json::Value {
    json!({
        "contract": module.abi().to_string(),
        "form": module.form().to_string(),
        "hooks": module.hooks(),
        "digest": module.digest().to_string(),
        "bytes": module.size(),
        "needs": module.needs().into_iter().map(Need::as_str).collect::<Vec<_>>(),
        "exports": module.exports(),
        "imports": module.imports(),
    })
}
