//! Documents: one row each, `{key, version, body}` with the body as JSON text.

use std::collections::{BTreeMap, HashMap};

use async_trait::async_trait;
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::types::AttributeValue;
use serde_json::Value;

use super::row::n;
use super::{DynamoDb, Item};
use crate::store::{Document, Error, Sidecar};

pub(super) const KEY: &str = "key";
const VERSION: &str = "version";
const BODY: &str = "body";

#[async_trait]
impl Sidecar for DynamoDb {
    fn sidecar_table(&self) -> &str {
        &self.sidecar_table
    }

    async fn document(&self, key: &str) -> Result<Option<Document>, Error> {
        let get = self.client.get_item().table_name(&self.sidecar_table).consistent_read(true);
        let answer = get
            .key(KEY, AttributeValue::S(key.to_owned()))
            .customize()
            .config_override(self.retried())
            .send()
            .await
            .map_err(|error| self.context_of("dynamodb:GetItem", &self.sidecar_table).read(error))?;
        let invalid =
            |problem| Error::InvalidDocument { table: self.sidecar_table.clone(), key: key.to_owned(), problem };
        answer.item().map(read).transpose().map_err(invalid)
    }

    async fn put_document(&self, key: &str, body: &Value, version: Option<u64>) -> Result<bool, Error> {
        let next = version.unwrap_or(0) + 1;
        let (condition, values) = match version {
            None => ("attribute_not_exists(#name)", None),
            Some(version) => ("#name = :version", Some(HashMap::from([(":version".to_owned(), n(version))]))),
        };
        let put = self
            .client
            .put_item()
            .table_name(&self.sidecar_table)
            .item(KEY, AttributeValue::S(key.to_owned()))
            .item(VERSION, n(next))
            .item(BODY, AttributeValue::S(body.to_string()))
            .condition_expression(condition)
            .expression_attribute_names("#name", VERSION)
            .set_expression_attribute_values(values)
            .customize()
            .config_override(self.once())
            .send()
            .await;
        match put {
            Ok(_) => Ok(true),
            Err(SdkError::ServiceError(error))
                if matches!(error.err(), PutItemError::ConditionalCheckFailedException(_)) =>
            {
                Ok(false)
            }
            Err(error) => Err(self.context_of("dynamodb:PutItem", &self.sidecar_table).write(error)),
        }
    }

    async fn documents(&self, prefix: &str) -> Result<BTreeMap<String, Document>, Error> {
        let mut documents = BTreeMap::new();
        let mut start = None;
        loop {
            let page = self
                .client
                .scan()
                .table_name(&self.sidecar_table)
                .consistent_read(true)
                .filter_expression("begins_with(#name, :prefix)")
                .expression_attribute_names("#name", KEY)
                .expression_attribute_values(":prefix", AttributeValue::S(prefix.to_owned()))
                .set_exclusive_start_key(start)
                .customize()
                .config_override(self.retried())
                .send()
                .await
                .map_err(|error| self.context_of("dynamodb:Scan", &self.sidecar_table).read(error))?;
            for item in page.items() {
                if let (Some(Ok(key)), Ok(document)) = (item.get(KEY).map(AttributeValue::as_s), read(item)) {
                    documents.insert(key.clone(), document);
                }
            }
            start = page.last_evaluated_key;
            if start.is_none() {
                return Ok(documents);
            }
        }
    }

    async fn delete_document(&self, key: &str, version: u64) -> Result<bool, Error> {
        let deleted = self
            .client
            .delete_item()
            .table_name(&self.sidecar_table)
            .key(KEY, AttributeValue::S(key.to_owned()))
            .condition_expression("attribute_not_exists(#name) OR #name = :version")
            .expression_attribute_names("#name", VERSION)
            .expression_attribute_values(":version", n(version))
            .customize()
            .config_override(self.once())
            .send()
            .await;
        match deleted {
            Ok(_) => Ok(true),
            Err(SdkError::ServiceError(error))
                if matches!(error.err(), DeleteItemError::ConditionalCheckFailedException(_)) =>
            {
                Ok(false)
            }
            Err(error) => Err(self.context_of("dynamodb:DeleteItem", &self.sidecar_table).write(error)),
        }
    }
}

fn read(item: &Item) -> Result<Document, String> {
    let attribute = |name: &str| item.get(name).ok_or_else(|| format!("`{name}` is missing"));
    let version = attribute(VERSION)?.as_n().ok().and_then(|digits| digits.parse().ok());
    let version = version.ok_or_else(|| format!("`{VERSION}` is not a whole number"))?;
    let body = attribute(BODY)?.as_s().map_err(|_| format!("`{BODY}` is not a text"))?;
    let body = serde_json::from_str(body).map_err(|error| format!("`{BODY}` is not JSON: {error}"))?;
    Ok(Document { version, body })
}
