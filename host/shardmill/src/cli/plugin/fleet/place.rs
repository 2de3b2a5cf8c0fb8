//! Where a command finds a fleet: its configuration and its tables.

use std::path::Path;

use shardmill_cause::{Coded, code, with_causes};
use shardmill_lease::store;
use shardmill_lease::store::dynamodb::{DynamoDb, Timeouts};
use tokio_util::sync::CancellationToken;

use crate::aws::{self, Clients};
use crate::cli::{Failure, stop_at_signal};
use crate::config::{self, Config, Log, Processor};
use crate::fleet::{documents, home};
use crate::host::Class;
use crate::telemetry;

/// A fleet, as its configuration names it.
pub(in crate::cli) struct Place {
    pub(in crate::cli) config: Config,
    clients: Clients,
    /// Somebody wants an end.
    stop: CancellationToken,
}

// === impl Place ===

impl Place {
    /// Reads the configuration. From now on signals and the log are looked after.
    pub(in crate::cli) async fn open(path: &Path) -> Result<Self, Failure> {
        let config = config::load_without_plugins(path)?;
        telemetry::init(&Log { format: config.log.format, filter: "warn".to_owned() })?;
        let stop = stop_at_signal()?;
        let sdk = aws::load(&config.aws).await;
        if sdk.region().is_none() {
            return Err(crate::Error::NoRegion.into());
        }
        let clients = Clients::new(&sdk, &config.aws);
        Ok(Self { config, clients, stop })
    }

    pub(in crate::cli) fn processor(&self, name: &str) -> Result<&Processor, Failure> {
        self.config.processors.get(name).ok_or_else(|| {
            let names: Vec<&str> = self.config.processors.keys().map(String::as_str).collect();
            Failure::configuration(format!("the configuration has no processor `{name}`"))
                .code(code::deploy::NO_PROCESSOR)
                .help(format!("its processors: {}", names.join(", ")))
        })
    }

    /// The tables in which a processor's document is.
    pub(in crate::cli) fn home(&self, name: &str) -> Result<DynamoDb, Failure> {
        self.processor(name)?;
        let table = home::home(&self.config, name).and_then(|home| home.lease_table.as_deref());
        let no_home = || {
            Failure::configuration(format!("no processor that reads a stream leads to `{name}`"))
                .code(code::deploy::NO_PROCESSOR)
        };
        Ok(self.tables(table.ok_or_else(no_home)?))
    }

    /// A lease table, with the one beside it.
    pub(in crate::cli) fn tables(&self, lease_table: &str) -> DynamoDb {
        DynamoDb::new(self.clients.dynamodb.clone(), lease_table, Timeouts::default())
    }

    /// What a future gives, unless somebody wants an end first.
    pub(in crate::cli) async fn unless_stopped<T>(
        &self,
        future: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(Failure::running("interrupted").code(code::command::INTERRUPTED)),
            given = future => given,
        }
    }
}

/// What a store says, for who has asked for it.
pub(in crate::cli) fn failed(error: impl Into<documents::Error>) -> Failure {
    match error.into() {
        documents::Error::Store(error @ store::Error::NoTable { .. }) => Failure::unavailable(with_causes(&error))
            .code(error.code())
            .help("the first worker that is started makes the tables; is this its configuration, account and region?"),
        documents::Error::Store(error) => {
            Failure::of_class(Class::of_store(&error), with_causes(&error)).code(error.code())
        }
        other => Failure::running(with_causes(&other)).code(other.code()),
    }
}
