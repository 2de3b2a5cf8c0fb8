//! Where a processor's outputs go, and how. What is allowed of each option the producer itself says.

use std::collections::BTreeMap;

use shardmill_producer::BatchOptions;

use super::check::{Checked, helped, name, stream_id, wrong};
use super::file::{self, File};
use super::{Output, Stream};

pub(super) fn outputs(
    file: &File,
    streams: &BTreeMap<&str, Stream>,
    processor: &str,
    own: &file::Processor,
) -> Checked<BTreeMap<String, Output>> {
    let mut outputs = BTreeMap::new();
    for (output, section) in &own.outputs {
        let at = |key| ["processors", processor, "outputs", output, key];
        name(&["processors", processor, "outputs", output], output)?;
        // An output may use the name that a stream has in this file, or Kinesis' own, or its ARN.
        let stream = match streams.get(section.stream.as_str()) {
            Some(defined) => defined.id.clone(),
            None => {
                stream_id(&at("stream"), &section.stream)?;
                section.stream.clone()
            }
        };
        let options = options(&section.settings(&file.defaults.output));
        if let Err(invalid) = options.check() {
            let (value, least, most) = (invalid.value, invalid.least, invalid.most);
            let outside = wrong(&at(invalid.key), format!("{value} is out of bounds: {least} to {most} is allowed"));
            return match invalid.key {
                "backoff-max" => {
                    let shortest = options.backoff_min;
                    helped(outside, format!("it is the longest wait, and {shortest:?} (`backoff-min`) the shortest"))
                }
                _ => outside,
            };
        }
        outputs.insert(output.clone(), Output { stream, options });
    }
    Ok(outputs)
}

fn options(settings: &file::OutputSettings) -> BatchOptions {
    let default = BatchOptions::default();
    let number = |given: u64| usize::try_from(given).unwrap_or(usize::MAX);
    let backoff_min = settings.backoff_min.map_or(default.backoff_min, |time| time.0);
    BatchOptions {
        ordering: settings.ordering.unwrap_or(default.ordering),
        aggregate: settings.aggregate.unwrap_or(default.aggregate),
        aggregate_max_bytes: settings.aggregate_max_bytes.map_or(default.aggregate_max_bytes, |size| number(size.0)),
        request_max_records: settings.request_max_records.map_or(default.request_max_records, |count| number(count.0)),
        request_max_bytes: settings.request_max_bytes.map_or(default.request_max_bytes, |size| number(size.0)),
        // What a guest may return.
        record_max_bytes: default.record_max_bytes,
        rate_limit_percent: settings
            .rate_limit_percent
            .map_or(default.rate_limit_percent, |count| u32::try_from(count.0).unwrap_or(u32::MAX)),
        request_timeout: settings.request_timeout.map_or(default.request_timeout, |time| time.0),
        max_requests: settings.max_requests.map_or(default.max_requests, |count| number(count.0)),
        backoff_min,
        backoff_max: settings.backoff_max.map_or(default.backoff_max.max(backoff_min), |time| time.0),
    }
}
