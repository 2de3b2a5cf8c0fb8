//! What a process takes of the machine's memory, as the kernel counts it.

/// Resident now, in bytes.
pub fn resident(pid: u32) -> u64 {
    of_status(pid, "VmRSS:")
}

/// The most that was resident since the process began, in bytes.
pub fn peak(pid: u32) -> u64 {
    of_status(pid, "VmHWM:")
}

fn of_status(pid: u32, name: &str) -> u64 {
    let path = format!("/proc/{pid}/status");
    let status = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.split_whitespace().next()).and_then(|kib| kib.parse::<u64>().ok());
    kib.unwrap_or_else(|| panic!("{name} in {status}")) * 1024
}
