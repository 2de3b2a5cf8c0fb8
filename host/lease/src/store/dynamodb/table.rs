//! Tables: found, checked, created.

use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::create_table::CreateTableError;
use aws_sdk_dynamodb::operation::describe_table::DescribeTableError;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType, Projection, ProjectionType,
    ScalarAttributeType, TableDescription, TableStatus,
};
use std::time::Duration;

use super::{DynamoDb, schema};
use crate::store::{Ensured, Error, Source};

/// Between looks at a table that is being created: soon at first, for stores that need no time, then seldom.
const POLL: Duration = Duration::from_millis(20);
const LONGEST_POLL: Duration = Duration::from_secs(1);

/// What a table must look like.
#[derive(Debug)]
pub(super) struct Layout {
    what: &'static str,
    key: &'static str,
    has_owner_index: bool,
}

pub(super) const LEASES: Layout =
    Layout { what: "a lease table (key `leaseKey`, a text)", key: schema::LEASE_KEY, has_owner_index: true };

pub(super) const DOCUMENTS: Layout =
    Layout { what: "a table of documents (key `key`, a text)", key: super::sidecar::KEY, has_owner_index: false };

#[derive(Debug, thiserror::Error)]
#[error("the table is {0}")]
struct NotActive(TableStatus);

// === impl DynamoDb ===

impl DynamoDb {
    /// Finds or creates a table, and waits until it can be used.
    pub(super) async fn ensure_table(&self, layout: &Layout, table: &str) -> Result<Ensured, Error> {
        let mut ensured = Ensured::Existing;
        let mut poll = POLL;
        let deadline = tokio::time::Instant::now() + self.timeouts.table;
        loop {
            let status = match self.describe(table).await? {
                Some(description) => {
                    layout.check(table, &description)?;
                    description.table_status.unwrap_or(TableStatus::Active)
                }
                None => match self.create_table(layout, table).await? {
                    Some(status) => {
                        ensured = Ensured::Created;
                        tracing::info!(table, "lease table created");
                        status
                    }
                    None => TableStatus::Creating,
                },
            };
            // A table that is being updated serves requests.
            if matches!(status, TableStatus::Active | TableStatus::Updating) {
                return Ok(ensured);
            }
            if tokio::time::Instant::now() >= deadline {
                let source: Source = Box::new(NotActive(status));
                return Err(Error::Unavailable { table: table.to_owned(), source });
            }
            tokio::time::sleep(poll).await;
            poll = LONGEST_POLL.min(poll * 2);
        }
    }

    /// Checks a table that may be there.
    pub(super) async fn check_table(&self, layout: &Layout, table: &str) -> Result<(), Error> {
        self.describe(table).await?.map_or(Ok(()), |description| layout.check(table, &description))
    }

    async fn describe(&self, table: &str) -> Result<Option<TableDescription>, Error> {
        let describe = self.client.describe_table().table_name(table).customize();
        match describe.config_override(self.retried()).send().await {
            Ok(answer) => Ok(answer.table),
            Err(SdkError::ServiceError(error))
                if matches!(error.err(), DescribeTableError::ResourceNotFoundException(_)) =>
            {
                Ok(None)
            }
            Err(error) => Err(self.context_of("dynamodb:DescribeTable", table).read(error)),
        }
    }

    /// What the new table's status is; `None` if somebody else is creating it.
    async fn create_table(&self, layout: &Layout, table: &str) -> Result<Option<TableStatus>, Error> {
        let invalid = |error| Error::Unavailable { table: table.to_owned(), source: Box::new(error) };
        let mut create = self
            .client
            .create_table()
            .table_name(table)
            .billing_mode(BillingMode::PayPerRequest)
            .attribute_definitions(text(layout.key).map_err(invalid)?)
            .key_schema(key(layout.key, KeyType::Hash).map_err(invalid)?);
        if layout.has_owner_index {
            let keys_only = Projection::builder().projection_type(ProjectionType::KeysOnly).build();
            let index = GlobalSecondaryIndex::builder()
                .index_name(schema::OWNER_INDEX)
                .key_schema(key(schema::LEASE_OWNER, KeyType::Hash).map_err(invalid)?)
                .key_schema(key(schema::LEASE_KEY, KeyType::Range).map_err(invalid)?)
                .projection(keys_only)
                .build();
            create = create
                .attribute_definitions(text(schema::LEASE_OWNER).map_err(invalid)?)
                .global_secondary_indexes(index.map_err(invalid)?);
        }
        match create.customize().config_override(self.retried()).send().await {
            Ok(created) => {
                let status = created.table_description.and_then(|table| table.table_status);
                Ok(Some(status.unwrap_or(TableStatus::Creating)))
            }
            Err(SdkError::ServiceError(error))
                if matches!(error.err(), CreateTableError::ResourceInUseException(_)) =>
            {
                Ok(None)
            }
            Err(error) => Err(self.context_of("dynamodb:CreateTable", table).write(error)),
        }
    }
}

// === impl Layout ===

impl Layout {
    fn check(&self, table: &str, description: &TableDescription) -> Result<(), Error> {
        let type_of = |name: &str| {
            let definitions = description.attribute_definitions();
            definitions
                .iter()
                .find(|definition| definition.attribute_name() == name)
                .map(|found| found.attribute_type())
        };
        let keys = description.key_schema();
        let is_right = match keys {
            [only] => only.attribute_name() == self.key && type_of(self.key) == Some(&ScalarAttributeType::S),
            _ => false,
        };
        if is_right {
            return Ok(());
        }
        let describe = |element: &KeySchemaElement| {
            let name = element.attribute_name();
            let kind = type_of(name).map_or("unknown", ScalarAttributeType::as_str);
            format!("{} `{name}` ({kind})", element.key_type().as_str())
        };
        let found = keys.iter().map(describe).collect::<Vec<_>>().join(", ");
        Err(Error::WrongTable { table: table.to_owned(), expected: self.what, found })
    }
}

fn text(name: &str) -> Result<AttributeDefinition, aws_sdk_dynamodb::error::BuildError> {
    AttributeDefinition::builder().attribute_name(name).attribute_type(ScalarAttributeType::S).build()
}

fn key(name: &str, kind: KeyType) -> Result<KeySchemaElement, aws_sdk_dynamodb::error::BuildError> {
    KeySchemaElement::builder().attribute_name(name).key_type(kind).build()
}
