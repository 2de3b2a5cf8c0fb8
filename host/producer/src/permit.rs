use std::fmt;
use std::sync::Arc;

use aws_sdk_kinesis::config::interceptors::BeforeTransmitInterceptorContextRef;
use aws_sdk_kinesis::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_kinesis::error::BoxError;

use crate::Stopped;

/// Whether another request may be sent. Cheap to clone.
///
/// It is asked before a request is made, and once more when the request is signed and goes to its connection: the
/// process may have been suspended in between, for longer than what the permit was given for.
#[derive(Clone)]
pub struct Permit(Arc<dyn Fn() -> Result<(), Stopped> + Send + Sync>);

// === impl Permit ===

impl Permit {
    /// Asks this each time. Once it has refused, it must go on refusing.
    pub fn new(ask: impl Fn() -> Result<(), Stopped> + Send + Sync + 'static) -> Self {
        Self(Arc::new(ask))
    }

    /// Always.
    pub fn always() -> Self {
        Self::new(|| Ok(()))
    }

    pub(crate) fn ask(&self) -> Result<(), Stopped> {
        (self.0)()
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Permit").finish_non_exhaustive()
    }
}

impl Intercept for Permit {
    fn name(&self) -> &'static str {
        "Permit"
    }

    fn read_before_transmit(
        &self,
        _context: &BeforeTransmitInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        _config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        Ok(self.ask()?)
    }
}
