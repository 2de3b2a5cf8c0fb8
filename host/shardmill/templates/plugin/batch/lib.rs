//! Adds up what each customer has ordered, batch by batch.
//!
//! An order is a JSON object with a `customer` and, as a rule, an `amount`. This is a processor to begin with: change what
//! it reads and what it sends, and let `cargo test` say whether it still does what it should.

use std::borrow::Cow;
use std::collections::BTreeMap;

use shardmill_guest::prelude::*;

/// The `config` table of `shardmill.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Orders below this amount are not counted.
    minimum: f64,
}

/// What is read of a record; the rest of it is passed over.
#[derive(Debug, Deserialize)]
struct Order<'a> {
    #[serde(borrow)]
    customer: Cow<'a, str>,
    amount: Option<f64>,
}

/// What is sent.
#[derive(Debug, Serialize)]
struct Total<'a> {
    customer: &'a str,
    orders: u32,
    amount: f64,
}

/// The processor. An instance may be thrown away between any two calls, so nothing that has to last belongs in here: a
/// total is one of a batch.
#[derive(Debug)]
pub struct CustomerTotals {
    settings: Settings,
}

impl Processor for CustomerTotals {
    type Config = Settings;

    fn new(settings: Settings) -> Result<Self, Error> {
        if settings.minimum < 0.0 {
            return Err(Error::reject("`minimum` is below zero"));
        }
        Ok(Self { settings })
    }

    fn process(&mut self, _shard: &ShardContext, batch: &Batch<'_>) -> Result<Outcome, Error> {
        // Every record is done, unless something else is said of it below.
        let mut outcome = batch.outcome();
        let mut totals: BTreeMap<Cow<'_, str>, (u32, f64)> = BTreeMap::new();
        for record in batch {
            let order: Order = match record.json() {
                Ok(order) => order,
                Err(error) => {
                    // For good: another attempt would see the same bytes.
                    outcome.fail_for_good(record, error);
                    continue;
                }
            };
            match order.amount {
                None => outcome.skip(record, "the order has no amount"),
                Some(amount) if amount >= self.settings.minimum => {
                    let (orders, sum) = totals.entry(order.customer).or_default();
                    *orders += 1;
                    *sum += amount;
                }
                Some(_small) => {}
            }
        }
        for (customer, (orders, amount)) in &totals {
            let total = Total {
                customer,
                orders: *orders,
                amount: *amount,
            };
            // A customer that is no partition key spoils the batch, whoever tries it again.
            outcome
                .emit_for_batch("totals", customer)
                .json(&total)
                .map_err(Error::reject)?;
        }
        metrics::add("customers", &[], totals.len() as u64);
        Ok(outcome)
    }
}

shardmill_guest::processor!(CustomerTotals);

#[cfg(test)]
mod tests {
    use shardmill_guest::testing::{self, Verdict};

    use super::*;

    fn totals() -> CustomerTotals {
        CustomerTotals::new(Settings { minimum: 100.0 }).unwrap()
    }

    #[test]
    fn the_orders_of_each_customer_are_added_up() {
        let orders = [
            r#"{"customer":"ben","amount":100}"#,
            r#"{"customer":"ada","amount":200}"#,
            r#"{"customer":"ben","amount":300.5}"#,
            r#"{"customer":"ben","amount":99}"#,
        ];
        let result = testing::run(&mut totals(), orders).unwrap();
        assert!(result.all_done());
        let totals = result.outputs("totals");
        assert_eq!(totals.len(), 2);
        assert_eq!(
            totals[0].text(),
            r#"{"customer":"ada","orders":1,"amount":200.0}"#
        );
        assert_eq!(
            totals[1].text(),
            r#"{"customer":"ben","orders":2,"amount":400.5}"#
        );
        assert_eq!(totals[1].partition_key, "ben");
    }

    #[test]
    fn an_order_without_an_amount_is_skipped_and_what_is_no_order_fails_alone() {
        let records = [
            r#"{"customer":"ada"}"#,
            "no order",
            r#"{"customer":"ben","amount":500}"#,
        ];
        let result = testing::run(&mut totals(), records).unwrap();
        assert!(matches!(result.verdicts()[0], Verdict::Skipped { .. }));
        assert!(matches!(
            result.verdicts()[1],
            Verdict::Failed { retry: false, .. }
        ));
        assert_eq!(result.verdicts()[2], Verdict::Done);
        assert_eq!(result.outputs("totals").len(), 1);
    }

    #[test]
    fn a_configuration_that_makes_no_sense_is_refused() {
        assert!(CustomerTotals::new(Settings { minimum: -1.0 }).is_err());
    }
}
