//! Sends on the orders that are large.
//!
//! An order is a JSON object with a `customer` and, as a rule, an `amount`. This is a processor to begin with: change what
//! it reads and what it sends, and let `cargo test` say whether it still does what it should.

use std::borrow::Cow;

use shardmill_guest::prelude::*;

/// The `config` table of `shardmill.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// From this amount on an order is large.
    minimum: f64,
}

/// What is read of a record; the rest of it is passed over.
#[derive(Debug, Deserialize)]
struct Order<'a> {
    #[serde(borrow)]
    customer: Cow<'a, str>,
    amount: Option<f64>,
}

/// The processor. An instance may be thrown away between any two calls, so nothing that has to last belongs in here.
#[derive(Debug)]
pub struct LargeOrders {
    settings: Settings,
}

impl RecordProcessor for LargeOrders {
    type Config = Settings;

    fn new(settings: Settings) -> Result<Self, Error> {
        if settings.minimum < 0.0 {
            return Err(Error::reject("`minimum` is below zero"));
        }
        Ok(Self { settings })
    }

    fn process_record(
        &mut self,
        _shard: &ShardContext,
        record: Record<'_>,
        outcome: &mut RecordOutcome<'_, '_>,
    ) -> Result<(), RecordError> {
        // What is no order fails alone and for good: another attempt would see the same bytes.
        let order: Order = record.json()?;
        let Some(amount) = order.amount else {
            outcome.skip("the order has no amount");
            return Ok(());
        };
        if amount >= self.settings.minimum {
            // The partition key keeps a customer's orders in their order.
            outcome
                .emit("large")
                .partition_key(&order.customer)
                .bytes(record.data())?;
            metrics::add("large_orders", &[], 1);
        }
        Ok(())
    }
}

shardmill_guest::processor!(LargeOrders);

#[cfg(test)]
mod tests {
    use shardmill_guest::testing::{self, Verdict};

    use super::*;

    fn large_orders() -> LargeOrders {
        RecordProcessor::new(Settings { minimum: 100.0 }).unwrap()
    }

    #[test]
    fn large_orders_are_sent_on_as_they_are() {
        let orders = [
            r#"{"customer":"ada","amount":100}"#,
            r#"{"customer":"ben","amount":99.9}"#,
            r#"{"customer":"cyd","amount":101}"#,
        ];
        let result = testing::run(&mut large_orders(), orders).unwrap();
        assert!(result.all_done());
        let large = result.outputs("large");
        assert_eq!(large.len(), 2);
        assert_eq!(
            (large[0].partition_key.as_str(), large[0].text()),
            ("ada", orders[0])
        );
        assert_eq!(
            (large[1].partition_key.as_str(), large[1].text()),
            ("cyd", orders[2])
        );
    }

    #[test]
    fn an_order_without_an_amount_is_skipped_and_what_is_no_order_fails_alone() {
        let records = [
            r#"{"customer":"ada"}"#,
            "no order",
            r#"{"customer":"ben","amount":500}"#,
        ];
        let result = testing::run(&mut large_orders(), records).unwrap();
        assert!(matches!(result.verdicts()[0], Verdict::Skipped { .. }));
        assert!(matches!(
            result.verdicts()[1],
            Verdict::Failed { retry: false, .. }
        ));
        assert_eq!(result.verdicts()[2], Verdict::Done);
    }

    #[test]
    fn a_configuration_that_makes_no_sense_is_refused() {
        let refused: Result<LargeOrders, Error> = RecordProcessor::new(Settings { minimum: -1.0 });
        assert!(refused.is_err());
    }
}
