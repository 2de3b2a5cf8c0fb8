//! The codes of this room's errors.

use shardmill_cause::code::plugin;
use shardmill_cause::{Code, Coded};

use crate::{Failure, InvalidHost, InvalidOutcome, ProcessError, module, runtime};

impl Coded for module::Error {
    fn code(&self) -> Code {
        match self {
            Self::NotWasm { .. } => plugin::NOT_WASM,
            Self::CoreModule { .. } => plugin::CORE_MODULE,
            Self::Broken { .. } => plugin::BROKEN,
            Self::OtherWorld { .. } | Self::BothForms { .. } | Self::Types { .. } => plugin::NOT_A_PROCESSOR,
            Self::OtherVersion { .. } => plugin::OTHER_VERSION,
            Self::NotGranted { .. } => plugin::NOT_GRANTED,
            Self::Compile { .. } => plugin::COMPILE,
            Self::TooLarge { .. } | Self::TooMuch { .. } => plugin::TOO_LARGE,
            Self::CompileTime { .. } | Self::CompileEnded { .. } => plugin::COMPILE_LIMITS,
            Self::NoProcess { .. } | Self::OtherProgram { .. } => plugin::NO_COMPILER,
        }
    }
}

impl Coded for runtime::Error {
    fn code(&self) -> Code {
        match self {
            Self::Engine(_) | Self::Clock(_) | Self::Threads { .. } => plugin::RUNTIME,
        }
    }
}

impl Coded for Failure {
    fn code(&self) -> Code {
        match self {
            Self::Guest(error) => error.code(),
            Self::Refused(_) => plugin::INIT_REFUSED,
            Self::Trap(_) => plugin::TRAP,
            Self::Timeout(_) => plugin::TIMEOUT,
            Self::Memory { .. } => plugin::MEMORY,
            Self::InvalidOutcome(invalid) => invalid.code(),
            Self::Host(_) => plugin::HOST_FAILED,
        }
    }
}

impl Coded for ProcessError {
    fn code(&self) -> Code {
        match self {
            Self::Retry { .. } => plugin::GUEST_RETRY,
            Self::Reject { .. } => plugin::GUEST_REJECT,
            Self::StopShard { .. } => plugin::GUEST_STOP,
        }
    }
}

impl Coded for InvalidOutcome {
    /// Whatever is wrong with it, nothing of it is carried out.
    fn code(&self) -> Code {
        plugin::INVALID_OUTCOME
    }
}

impl Coded for InvalidHost {
    fn code(&self) -> Code {
        match self {
            Self::Scheme(_) | Self::More(_) | Self::Port(_) | Self::Host(_) => plugin::HOST_ENTRY,
        }
    }
}
