//! What every lease store must do, of stores in others' DynamoDB.

use std::time::Duration;

use shardmill_lease::store::conformance;
use shardmill_lease::store::dynamodb::{DynamoDb, Timeouts};
use shardmill_tests::Services;

async fn conforms(services: &Services) {
    // The machine may be busy with other tests.
    let timeouts = Timeouts { attempt: Duration::from_secs(15), read: Duration::from_secs(15), ..Timeouts::default() };
    conformance::check_all(&DynamoDb::new(services.dynamodb.clone(), "orders", timeouts)).await;
}

#[tokio::test]
async fn leases_in_dynalite_conform() {
    conforms(&Services::kinesis_local_and_dynalite().await).await;
}

#[tokio::test]
async fn leases_in_ministack_conform() {
    conforms(&Services::ministack().await).await;
}
