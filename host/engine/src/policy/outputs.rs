//! The outputs of a batch, until the records that have caused them are dealt with.

use shardmill_plugin::Output;

/// Outputs that wait for their records, in the order of these: a record that succeeds at its second attempt does not lose
/// its place to a later one of its key.
#[derive(Debug, Default)]
pub(crate) struct Outputs {
    waiting: Vec<Waiting>,
    bytes: usize,
}

/// An output that may be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caused {
    /// The record that it goes behind, by its place in the batch: the last one that has caused it.
    pub by: usize,
    /// The first record that has caused it: while the output is not where it belongs, none from here on is done.
    pub since: usize,
    /// The output.
    pub output: Output,
}

#[derive(Debug)]
struct Waiting {
    /// The first record that has caused it, by its place in the batch.
    first: usize,
    /// The last one: it goes after this record's own outputs.
    last: usize,
    /// Whether a call has caused it, and no record alone.
    of_call: bool,
    output: Output,
}

// === impl Caused ===

impl Caused {
    /// The first and the last record that has caused it.
    pub(crate) fn span(&self) -> [usize; 2] {
        [self.since, self.by]
    }
}

// === impl Outputs ===

impl Outputs {
    /// Takes an output that one record has caused.
    pub(crate) fn of_record(&mut self, record: usize, output: Output) {
        self.add(Waiting { first: record, last: record, of_call: false, output });
    }

    /// Takes an output that a call as a whole has caused, in which the records from `first` to `last` were dealt with.
    pub(crate) fn of_call(&mut self, [first, last]: [usize; 2], output: Output) {
        self.add(Waiting { first, last, of_call: true, output });
    }

    fn add(&mut self, waiting: Waiting) {
        self.bytes += bytes(&waiting.output);
        self.waiting.push(waiting);
    }

    /// What the waiting ones hold: their partition keys and payloads.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// The first and the last record that has caused each of those that wait, by their places in the batch.
    pub(crate) fn spans(&self) -> impl Iterator<Item = [usize; 2]> {
        self.waiting.iter().map(|waiting| [waiting.first, waiting.last])
    }

    /// Takes out, in order, what may be sent when the records before `front` are dealt with. `leaving`: whether the others
    /// come again in another batch. Then an output of a call goes with the first of its records: it would be missing
    /// else, as those are not processed again. It may come once more with the others.
    pub(crate) fn take(&mut self, front: usize, leaving: bool) -> Vec<Caused> {
        let is_due = |waiting: &Waiting| waiting.last < front || leaving && waiting.first < front;
        let (mut due, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut self.waiting).into_iter().partition(is_due);
        self.waiting = rest;
        self.bytes = self.waiting.iter().map(|waiting| bytes(&waiting.output)).sum();
        due.sort_by_key(|waiting| (waiting.last, waiting.of_call));
        due.into_iter()
            .map(|waiting| Caused { by: waiting.last, since: waiting.first, output: waiting.output })
            .collect()
    }
}

fn bytes(output: &Output) -> usize {
    output.record.partition_key.len() + output.record.data.len()
}
