//! Rows and writes as they go to DynamoDB and come from there, for the fuzz targets and for nobody else.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;

use super::{row, update};
use crate::change::{self, Change, Refused};
use crate::store::InvalidRow;
use crate::{Lease, NewLease};

/// A row, by attribute.
pub type Item = HashMap<String, AttributeValue>;

/// A write as `UpdateItem` takes it.
#[derive(Debug)]
pub struct Write {
    /// The update expression.
    pub update: String,
    /// The condition expression.
    pub condition: String,
    /// What `#name` stands for in both.
    pub names: HashMap<String, String>,
    /// What `:value` stands for in both.
    pub values: Item,
}

/// Reads a row. `None`: it is something else than a lease.
///
/// # Errors
/// It should be a lease, and cannot be read as one.
pub fn read(item: &Item) -> Result<Option<Lease>, InvalidRow> {
    row::read(item)
}

/// The row of a new lease.
pub fn create(lease: &NewLease) -> Item {
    row::create(lease)
}

/// The write of a change, and the lease that it is to make.
///
/// # Errors
/// The change does not apply.
pub fn write(known: &Lease, change: &Change) -> Result<(Write, Lease), Refused> {
    let after = change::apply(known, change)?;
    let update::Expression { update, condition, names, values } = update::expression(known, &after, change.guard());
    Ok((Write { update, condition, names, values }, after))
}
