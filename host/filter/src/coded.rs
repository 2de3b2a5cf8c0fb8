//! The code of this room's error.

use shardmill_cause::code::filter;
use shardmill_cause::{Code, Coded};

impl Coded for crate::Error {
    fn code(&self) -> Code {
        filter::PATTERN
    }
}
