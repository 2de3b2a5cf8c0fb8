//! What a configuration says of a processor's plugin.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use shardmill_plugin::{Limits, LoadLimits, OutcomeLimits, Settings};
use shardmill_record::BatchLimits;

use super::grants::{self, Error as GrantError};
use crate::config::{self, Config, Grants};

/// What a configuration says of a processor's plugin.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Setup {
    /// The component's file.
    pub(crate) path: PathBuf,
    /// What loading the file may take.
    pub(crate) load: LoadLimits,
    /// With the values of what is granted as they were when they were looked up.
    pub(crate) settings: Settings,
    /// Where they are looked up.
    pub(crate) grants: Grants,
    pub(crate) trial: Option<Trial>,
}

/// Records that another version has to process before it is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trial {
    /// The file with the records.
    pub(crate) path: PathBuf,
    /// What the guest is told.
    pub(crate) application: Arc<str>,
    pub(crate) worker: Arc<str>,
    pub(crate) stream: Arc<str>,
    /// How many go into one call.
    pub(crate) batch: BatchLimits,
    /// The outputs that there are.
    pub(crate) outputs: BTreeSet<String>,
    pub(crate) outcome: OutcomeLimits,
}

/// What is a version of a plugin besides its module: all of it can change while everything runs. Secrets and variables are
/// looked up.
///
/// # Errors
/// If what is granted is not there.
pub(crate) async fn settings(processor: &config::Processor) -> Result<Settings, GrantError> {
    let limits = &processor.limits;
    Ok(Settings {
        processor: processor.name.clone(),
        config: processor.config.clone(),
        limits: Limits {
            memory_bytes: limits.memory as usize,
            batch_timeout: limits.batch_timeout,
            start_timeout: limits.start_timeout,
            cpu_time: limits.cpu_time,
            outcome_bytes: limits.outcome as usize,
            log_lines_per_second: limits.log_lines_per_second,
            log_line_bytes: limits.log_line as usize,
            metric_series: limits.metric_series,
            instance_calls: limits.instance_calls,
            retire_above: limits.retire_above,
            keep_idle: limits.keep_idle,
            ..Limits::default()
        },
        grants: grants::read(&processor.grants).await?,
    })
}

/// What the outputs of one outcome may be.
pub(crate) fn outcome_limits(processor: &config::Processor) -> OutcomeLimits {
    OutcomeLimits {
        bytes: processor.limits.outcome as usize,
        outputs: processor.limits.outputs,
        ..OutcomeLimits::default()
    }
}

// === impl Setup ===

impl Setup {
    /// Looks up what the processor is granted.
    ///
    /// # Errors
    /// If a secret or a variable is not there.
    pub(crate) async fn of(config: &Config, processor: &config::Processor) -> Result<Self, GrantError> {
        let trial = processor.trial.as_ref().map(|path| Trial {
            path: path.clone(),
            application: config.application.as_str().into(),
            worker: config.worker.as_str().into(),
            stream: processor.stream_ids().next().unwrap_or_default().into(),
            batch: BatchLimits { records: processor.batch.records, bytes: processor.batch.bytes },
            outputs: processor.outputs.keys().cloned().collect(),
            outcome: outcome_limits(processor),
        });
        let (path, load) = (processor.plugin.clone(), processor.limits.load.clone());
        let (settings, grants) = (settings(processor).await?, processor.grants.clone());
        Ok(Self { path, load, settings, grants, trial })
    }

    /// The same with what is granted as it is now: a secret may be another one each time that a plugin is loaded.
    ///
    /// # Errors
    /// If a secret or a variable is not there any more.
    pub(crate) async fn again(&self) -> Result<Self, GrantError> {
        let grants = grants::read(&self.grants).await?;
        let settings = Settings { grants, ..self.settings.clone() };
        Ok(Self { settings, ..self.clone() })
    }
}
