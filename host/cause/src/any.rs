//! Errors of several kinds where whoever hears of them only tells them.

use std::error::Error;

use crate::{Code, Coded};

/// Any error that has a code, and its code. Made by `?` and [`From`]; it is no error itself, or that could not be.
#[derive(Debug)]
pub struct AnyCoded {
    /// Its code.
    pub code: Code,
    /// The error.
    pub source: Box<dyn Error + Send + Sync>,
}

impl<E: Error + Coded + Send + Sync + 'static> From<E> for AnyCoded {
    fn from(error: E) -> Self {
        Self { code: error.code(), source: error.into() }
    }
}
