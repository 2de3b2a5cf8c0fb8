use std::time::Duration;

/// What a guest may use. All of it is per instance, but for the log's rate and the metrics, which are per processor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all linear memories and tables of an instance together. Default 64 MiB.
    pub memory_bytes: usize,
    /// How long one `process-batch` may take, what it waits for included, but for a thread of guests. Default 60 s.
    pub batch_timeout: Duration,
    /// How long one hook may take, counted in the same way; `revoked` has the time that is left instead, and of `shutdown`
    /// waits for a thread count. Default 10 s.
    pub hook_timeout: Duration,
    /// How long making an instance and its `init` may take together, counted in the same way. Default 30 s.
    pub start_timeout: Duration,
    /// How long one call may compute, making an instance and its `init` together; it is looked at each
    /// [`crate::runtime::TICK`]. A guest that computes gives way to others each one or two of them. Default 30 s.
    pub cpu_time: Duration,
    /// Bytes that a guest may hand the host in one call or one outcome, counted as the host keeps them. Default 32 MiB.
    pub outcome_bytes: usize,
    /// What the outputs of one outcome may be.
    pub outcome: OutcomeLimits,
    /// Lines that a processor may log a second, on average and at once. Default 200.
    pub log_lines_per_second: u32,
    /// Bytes of one line with its fields; the rest is cut off. Default 4 KiB.
    pub log_line_bytes: usize,
    /// Time series that a processor may make in the host's metrics; a histogram is 16. Default 1000.
    pub metric_series: usize,
    /// Calls of one instance, hooks included, after which another one takes its place. Default none.
    pub instance_calls: Option<u64>,
    /// How many hundredths of the memory that an instance may still take after its start it may have taken before another
    /// one takes its place; 100 is all of it, and none is replaced. Default 50: an instance that needs once more what it
    /// has needed so far still has it, and one that never gives anything back does not come so far as to crash.
    pub retire_above: u32,
    /// After this time instances that nothing has needed are let go, down to one. Default 60 s.
    pub keep_idle: Duration,
}

/// What loading a guest may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadLimits {
    /// Bytes of its file. Default 64 MiB.
    pub file_bytes: usize,
    /// How long compiling it may take, once it is its turn. Default 120 s.
    pub compile_timeout: Duration,
    /// Bytes of memory that compiling it may take, where it is compiled in a process of its own (see
    /// [`crate::RuntimeOptions::compiler`]). Default 2 GiB.
    pub compile_memory_bytes: u64,
}

/// What the outputs of one outcome may be, checked by [`crate::Outcome::settle`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutcomeLimits {
    /// How many. Default 100,000.
    pub outputs: usize,
    /// Bytes of all partition keys and payloads together. Default 32 MiB.
    pub bytes: usize,
    /// Bytes of one record's partition key and payload together. Default 1 MiB, Kinesis' own limit where a stream has
    /// not been given a higher one.
    pub record_bytes: usize,
}

// === impl Limits ===

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_bytes: 64 << 20,
            batch_timeout: Duration::from_secs(60),
            hook_timeout: Duration::from_secs(10),
            start_timeout: Duration::from_secs(30),
            cpu_time: Duration::from_secs(30),
            outcome_bytes: 32 << 20,
            outcome: OutcomeLimits::default(),
            log_lines_per_second: 200,
            log_line_bytes: 4 << 10,
            metric_series: 1000,
            instance_calls: None,
            retire_above: 50,
            keep_idle: Duration::from_secs(60),
        }
    }
}

// === impl LoadLimits ===

impl Default for LoadLimits {
    fn default() -> Self {
        Self { file_bytes: 64 << 20, compile_timeout: Duration::from_secs(120), compile_memory_bytes: 2 << 30 }
    }
}

// === impl OutcomeLimits ===

impl Default for OutcomeLimits {
    fn default() -> Self {
        Self { outputs: 100_000, bytes: 32 << 20, record_bytes: 1 << 20 }
    }
}
