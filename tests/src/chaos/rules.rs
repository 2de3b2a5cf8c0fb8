//! What is wrong with the services, as rules of the proxy.

use std::time::Duration;

use super::action::{Trouble, Weather};
use crate::{Fault, Rule};

const THROTTLED: &str = "ProvisionedThroughputExceededException";

/// Far less than a sender waits.
const SLOW: Duration = Duration::from_millis(400);

/// The rules that make it so, between workers and these streams and this table.
pub(super) fn rules(weather: &Weather, input: &str, output: &str, table: &str) -> Vec<Rule> {
    let Weather { trouble, chance, .. } = *weather;
    let everywhere = |fault: Fault, chance: f64| {
        let rule = |operation| Rule::new(fault.clone()).operation(operation).probability(chance);
        vec![rule("GetRecords").stream(input), rule("PutRecords").stream(output), rule("UpdateItem").table(table)]
    };
    match trouble {
        Trouble::ReadsThrottled => {
            vec![Rule::new(Fault::Refused(THROTTLED)).operation("GetRecords").stream(input).probability(chance)]
        }
        Trouble::PutsThrottled => {
            let faults = [Fault::Refused(THROTTLED), Fault::Partial { chance: 0.5, code: THROTTLED }];
            faults.map(|fault| Rule::new(fault).operation("PutRecords").stream(output).probability(chance / 2.0)).into()
        }
        Trouble::PutsSlow => {
            vec![Rule::new(Fault::Late(SLOW)).operation("PutRecords").stream(output).probability(chance)]
        }
        Trouble::LeaseWritesThrottled => {
            vec![Rule::new(Fault::Refused(THROTTLED)).operation("UpdateItem").table(table).probability(chance)]
        }
        Trouble::CallsFail => {
            let failing = || Rule::new(Fault::Status(503)).probability(chance);
            vec![failing().operation("GetRecords").stream(input), failing().operation("PutRecords").stream(output)]
        }
        Trouble::ConnectionsReset => everywhere(Fault::Reset, chance / 2.0),
        Trouble::AnswersLate => everywhere(Fault::LateAnswer(SLOW), chance),
        Trouble::LeaseAnswersLost => {
            vec![Rule::new(Fault::AnswerLost).operation("UpdateItem").table(table).probability(chance)]
        }
        // Each costs a request's records once more.
        Trouble::PutAnswersLost => {
            vec![Rule::new(Fault::AnswerLost).operation("PutRecords").stream(output).probability(chance / 2.0)]
        }
    }
}
