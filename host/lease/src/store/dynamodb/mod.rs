//! Leases in a DynamoDB table that a KCL application can use as well, before us, after us, or at the same time.

mod error;
#[doc(hidden)]
pub mod fuzzing;
mod row;
mod schema;
mod sidecar;
mod table;
mod update;

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::Builder;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue, ReturnValuesOnConditionCheckFailure};

use self::error::Context;
use super::{Ensured, Error, Listing, SIDECAR_SUFFIX, Store};
use crate::change::{self, Change, Guard};
use crate::{Lease, LeaseKey, NewLease};

type Item = HashMap<String, AttributeValue>;

/// Leases in a table, and documents in the table `<table>-shardmill`.
#[derive(Debug, Clone)]
pub struct DynamoDb {
    client: Client,
    table: String,
    sidecar_table: String,
    timeouts: Timeouts,
}

/// How long calls may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// One attempt. A write is one attempt: its lost answer must be seen.
    pub attempt: Duration,
    /// A read with its retries, or one page of a scan.
    pub read: Duration,
    /// From creating a table until it can be used.
    pub table: Duration,
}

// === impl Timeouts ===

impl Default for Timeouts {
    fn default() -> Self {
        Self { attempt: Duration::from_millis(1500), read: Duration::from_secs(5), table: Duration::from_secs(120) }
    }
}

// === impl DynamoDb ===

impl DynamoDb {
    /// A table by its name. Nothing is called before [`Store::ensure`].
    pub fn new(client: Client, table: impl Into<String>, timeouts: Timeouts) -> Self {
        let table = table.into();
        Self { client, sidecar_table: format!("{table}{SIDECAR_SUFFIX}"), table, timeouts }
    }

    /// Compare-and-set: one attempt.
    fn once(&self) -> Builder {
        let timeout = self.timeouts.attempt;
        let timeouts = TimeoutConfig::builder().operation_attempt_timeout(timeout).operation_timeout(timeout).build();
        Builder::new().retry_config(RetryConfig::disabled()).timeout_config(timeouts)
    }

    /// Reads and table management: the client's own retries, within a bound.
    fn retried(&self) -> Builder {
        let timeouts = TimeoutConfig::builder()
            .operation_attempt_timeout(self.timeouts.attempt)
            .operation_timeout(self.timeouts.read)
            .build();
        Builder::new().timeout_config(timeouts)
    }

    fn context(&self, action: &'static str) -> Context<'_> {
        self.context_of(action, &self.table)
    }

    fn context_of<'a>(&'a self, action: &'static str, table: &'a str) -> Context<'a> {
        Context::new(action, table, self.client.config().region())
    }

    fn read_item(&self, item: &Item) -> Result<Option<Lease>, Error> {
        row::read(item).map_err(|row| Error::Invalid { table: self.table.clone(), row })
    }

    fn conflict(&self, key: &LeaseKey, item: Option<&Item>) -> Error {
        // A row that cannot be read is as good as one that was not returned: reading it again will tell.
        let current = item.and_then(|item| row::read(item).ok().flatten()).map(Box::new);
        Error::Conflict { key: key.clone(), current }
    }
}

#[async_trait]
impl Store for DynamoDb {
    fn lease_table(&self) -> &str {
        &self.table
    }

    async fn ensure(&self) -> Result<Ensured, Error> {
        // Nothing is created beside a table that is something else.
        self.check_table(&table::LEASES, &self.table).await?;
        // At once, because a new table takes seconds to become active.
        let (leases, documents) = tokio::join!(
            self.ensure_table(&table::LEASES, &self.table),
            self.ensure_table(&table::DOCUMENTS, &self.sidecar_table),
        );
        let ensured = leases?;
        documents?;
        Ok(ensured)
    }

    async fn list(&self) -> Result<Listing, Error> {
        let mut listing = Listing::default();
        let mut start = None;
        loop {
            let scan = self.client.scan().table_name(&self.table).consistent_read(true);
            let page = scan
                .set_exclusive_start_key(start)
                .customize()
                .config_override(self.retried())
                .send()
                .await
                .map_err(|error| self.context("dynamodb:Scan").read(error))?;
            for item in page.items() {
                match row::read(item) {
                    Ok(Some(lease)) => listing.leases.push(lease),
                    Ok(None) => {}
                    Err(invalid) => listing.invalid.push(invalid),
                }
            }
            start = page.last_evaluated_key;
            if start.is_none() {
                return Ok(listing);
            }
        }
    }

    async fn get(&self, key: &LeaseKey) -> Result<Option<Lease>, Error> {
        let get = self.client.get_item().table_name(&self.table).consistent_read(true);
        let answer = get
            .key(schema::LEASE_KEY, AttributeValue::S(key.as_str().to_owned()))
            .customize()
            .config_override(self.retried())
            .send()
            .await
            .map_err(|error| self.context("dynamodb:GetItem").read(error))?;
        answer.item().map_or(Ok(None), |item| self.read_item(item))
    }

    async fn create(&self, lease: &NewLease) -> Result<bool, Error> {
        let created = self
            .client
            .put_item()
            .table_name(&self.table)
            .set_item(Some(row::create(lease)))
            .condition_expression("attribute_not_exists(#key)")
            .expression_attribute_names("#key", schema::LEASE_KEY)
            .customize()
            .config_override(self.once())
            .send()
            .await;
        match created {
            Ok(_) => Ok(true),
            Err(SdkError::ServiceError(error))
                if matches!(error.err(), PutItemError::ConditionalCheckFailedException(_)) =>
            {
                Ok(false)
            }
            Err(error) => Err(self.context("dynamodb:PutItem").write(error)),
        }
    }

    async fn write(&self, known: &Lease, change: &Change) -> Result<Lease, Error> {
        let refused = |refused| Error::Refused { key: known.key.clone(), refused };
        let after = change::apply(known, change).map_err(refused)?;
        let update = update::expression(known, &after, change.guard());
        let written = self
            .client
            .update_item()
            .table_name(&self.table)
            .key(schema::LEASE_KEY, AttributeValue::S(known.key.as_str().to_owned()))
            .update_expression(update.update)
            .condition_expression(update.condition)
            .set_expression_attribute_names(Some(update.names))
            .set_expression_attribute_values(Some(update.values))
            .return_values(ReturnValue::AllNew)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .customize()
            .config_override(self.once())
            .send()
            .await;
        match written {
            // What is in the table counts: a hand-off may have begun unseen.
            Ok(answer) => Ok(answer.attributes().map_or(Ok(None), |item| self.read_item(item))?.unwrap_or(after)),
            Err(SdkError::ServiceError(error)) => match error.err() {
                UpdateItemError::ConditionalCheckFailedException(failed) => {
                    Err(self.conflict(&known.key, failed.item()))
                }
                _ => Err(self.context("dynamodb:UpdateItem").write(SdkError::ServiceError(error))),
            },
            Err(error) => Err(self.context("dynamodb:UpdateItem").write(error)),
        }
    }

    async fn delete(&self, known: &Lease) -> Result<(), Error> {
        let (condition, names, values) = update::condition(known, Guard::Owners);
        let deleted = self
            .client
            .delete_item()
            .table_name(&self.table)
            .key(schema::LEASE_KEY, AttributeValue::S(known.key.as_str().to_owned()))
            .condition_expression(format!("attribute_not_exists(#key) OR ({condition})"))
            .set_expression_attribute_names(Some(with_key(names)))
            .set_expression_attribute_values(Some(values))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .customize()
            .config_override(self.once())
            .send()
            .await;
        match deleted {
            Ok(_) => Ok(()),
            Err(SdkError::ServiceError(error)) => match error.err() {
                DeleteItemError::ConditionalCheckFailedException(failed) => {
                    Err(self.conflict(&known.key, failed.item()))
                }
                _ => Err(self.context("dynamodb:DeleteItem").write(SdkError::ServiceError(error))),
            },
            Err(error) => Err(self.context("dynamodb:DeleteItem").write(error)),
        }
    }
}

fn with_key(mut names: HashMap<String, String>) -> HashMap<String, String> {
    names.insert("#key".to_owned(), schema::LEASE_KEY.to_owned());
    names
}
