//! What the figures were measured with.

use serde::Serialize;

/// Of the versions that are linked, those that the figures depend on.
const CRATES: [&str; 5] = ["aws-sdk-kinesis", "aws-smithy-runtime", "tokio", "wasmtime", "ferrokinesis"];

/// The machine and the versions.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Machine {
    processor: String,
    cores: usize,
    memory_gib: u64,
    kernel: String,
    versions: Vec<(String, String)>,
}

// === impl Machine ===

impl Machine {
    pub(crate) fn look() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':'));
            line.map(|value| value.trim().to_owned())
        };
        let memory = field(&read("/proc/meminfo"), "MemTotal").unwrap_or_default();
        let memory_kib: u64 = memory.split_whitespace().next().and_then(|kib| kib.parse().ok()).unwrap_or_default();
        Self {
            processor: field(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| "unknown processor".to_owned()),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_gib: (memory_kib as f64 / f64::from(1 << 20)).round() as u64,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            versions: versions(include_str!("../../../Cargo.lock")),
        }
    }

    pub(crate) fn sentence(&self) -> String {
        let versions: Vec<String> = self.versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
        format!(
            "{}, {} cores, {} GiB, Linux {}; shardmill {}, {}.",
            self.processor,
            self.cores,
            self.memory_gib,
            self.kernel,
            env!("CARGO_PKG_VERSION"),
            versions.join(", "),
        )
    }
}

fn versions(lock: &str) -> Vec<(String, String)> {
    #[derive(serde::Deserialize)]
    struct Lock {
        package: Vec<Package>,
    }
    #[derive(serde::Deserialize)]
    struct Package {
        name: String,
        version: String,
    }
    let Ok(Lock { package }) = toml::from_str(lock) else { return Vec::new() };
    let of = |name: &&str| package.iter().find(|package| package.name == **name);
    CRATES.iter().filter_map(of).map(|package| (package.name.clone(), package.version.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_and_every_version_are_found() {
        let machine = Machine::look();
        assert!(machine.cores > 0 && machine.memory_gib > 0 && !machine.kernel.is_empty(), "{machine:?}");
        assert_eq!(machine.versions.len(), CRATES.len(), "{:?}", machine.versions);
    }
}
