//! Integers from 0 on through everything that a record goes through: the library producer, the input stream, a worker
//! with a processor, its own producer, the output stream. Each must come out once, and those of a key in their order.
//!
//! Every so many integers there is a pit stop: everything below a mark has to be in the output before the producer gets far
//! beyond it, and nothing of it may be missing, repeated or out of order. Without a fault nothing is a reason for a
//! repeat, so that one is as wrong as a hole. A run ends at the first pit stop that finds something.
//!
//! | file | job |
//! |---|---|
//! | `integers` | the record that an integer is; pure |
//! | `writer` | puts them, and waits for each result |
//! | `checker` | accounts for the output; pure |
//! | `course` | one run: reads the output, decides at the marks |
//! | `report` | what a person or a program is told |

mod checker;
mod course;
mod integers;
mod report;
mod writer;

use std::time::Duration;

use clap::ValueEnum;

pub use checker::{Checker, Findings, Hole, Violations};
pub use course::run;
pub use integers::{Integers, KEYS};
pub use report::{Ending, Event, Memory, PitStop, Report};
pub use writer::Told;

use crate::{Fault, Rule};

/// What a run is to do.
#[derive(Debug, Clone)]
pub struct Options {
    /// The integers are those below this; at least 1.
    pub records: u64,
    /// Of the input and of the output each; at least 1.
    pub shards: u16,
    /// Of so many integers there is a pit stop, and one at the end; at least 1.
    pub pit_stop: u64,
    /// What the keys are called, and so to which shards they go.
    pub seed: u64,
    /// Nothing new in the output for so long is the end of a run.
    pub patience: Duration,
    /// What is to go wrong, so that there is something to find.
    pub plant: Option<Plant>,
}

/// What goes wrong with the processor's writes to the output, after some have gone well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Plant {
    /// Once an entry of PutRecords is not stored, and the answer says that it is.
    Swallowed,
    /// Once a request is carried out and its answer lost, so that it is sent again.
    AnswerLost,
    /// No request is carried out or answered any more.
    Unanswered,
}

// === impl Plant ===

impl Plant {
    /// How many requests go well before.
    const AFTER: u64 = 10;

    fn rule(self, stream: &str) -> Rule {
        let (fault, times) = match self {
            Plant::Swallowed => (Fault::Swallowed, 1),
            Plant::AnswerLost => (Fault::AnswerLost, 1),
            Plant::Unanswered => (Fault::Hang, u64::MAX),
        };
        Rule::new(fault).operation("PutRecords").stream(stream).after(Plant::AFTER).times(times)
    }
}
