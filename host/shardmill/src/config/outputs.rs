//! Where a processor's outputs go, and how. What is allowed of each option the producer itself says.

use std::collections::{BTreeMap, BTreeSet};

use shardmill_cause::code::config as code;
use shardmill_producer::BatchOptions;

use super::check::{self, Checked, did_you_mean, helped, name, stream_id, wrong};
use super::file::{self, File};
use super::{Output, Stream, StreamOutput};

pub(super) fn outputs(
    file: &File,
    streams: &BTreeMap<&str, Stream>,
    processor: &str,
    own: &file::Processor,
) -> Checked<BTreeMap<String, Output>> {
    let mut outputs = BTreeMap::new();
    for (output, section) in &own.outputs {
        let path = ["processors", processor, "outputs", output];
        name(&path, output)?;
        let resolved = match (&section.stream, &section.to) {
            (Some(stream), None) => Output::Stream(to_stream(file, streams, path, section, stream)?),
            (None, Some(to)) => Output::Processor(to_processor(file, path, section, to)?),
            (Some(_), Some(_)) => {
                let both = wrong(
                    code::TOGETHER,
                    &at(path, "to"),
                    "there is `stream` already, and an output leads to one place",
                );
                return helped(both, "make it two outputs, and let the plugin name both");
            }
            (None, None) => {
                let help = "set `stream` to a stream, or `to` to another processor of this file: \"processor:NAME\"";
                return helped(wrong(code::MISSING, &path, "it leads nowhere"), help);
            }
        };
        outputs.insert(output.clone(), resolved);
    }
    Ok(outputs)
}

fn at<'a>([first, second, third, fourth]: [&'a str; 4], key: &'a str) -> [&'a str; 5] {
    [first, second, third, fourth, key]
}

fn to_stream(
    file: &File,
    streams: &BTreeMap<&str, Stream>,
    path: [&str; 4],
    section: &file::Output,
    named: &str,
) -> Checked<StreamOutput> {
    // An output may use the name that a stream has in this file, or Kinesis' own, or its ARN.
    let stream = match streams.get(named) {
        Some(defined) => defined.id.clone(),
        None => {
            stream_id(&at(path, "stream"), named)?;
            named.to_owned()
        }
    };
    let options = options(&section.settings(&file.defaults.output));
    if let Err(invalid) = options.check() {
        let (value, least, most) = (invalid.value, invalid.least, invalid.most);
        let outside = wrong(
            code::OUT_OF_BOUNDS,
            &at(path, invalid.key),
            format!("{value} is out of bounds: {least} to {most} is allowed"),
        );
        return match invalid.key {
            "backoff-max" => {
                let shortest = options.backoff_min;
                helped(outside, format!("it is the longest wait, and {shortest:?} (`backoff-min`) the shortest"))
            }
            _ => outside,
        };
    }
    Ok(StreamOutput { stream, options })
}

/// The processors that outputs lead to. All of them before any processor is looked at: one that is misspelt here is not to
/// be told as another one that nothing leads to.
pub(super) fn targets(file: &File) -> Checked<BTreeSet<&str>> {
    let mut targets = BTreeSet::new();
    for (processor, section) in &file.processors {
        for (output, section) in &section.outputs {
            if let Some(to) = &section.to {
                targets.insert(target(file, ["processors", processor, "outputs", output], to)?);
            }
        }
    }
    Ok(targets)
}

/// The processor that `to` names.
fn target<'a>(file: &'a File, path: [&str; 4], to: &str) -> Checked<&'a str> {
    let known = || file.processors.keys().map(String::as_str);
    let Some(name) = to.strip_prefix("processor:") else {
        let shown = check::shown(to);
        let help = match check::meant(to, known()) {
            Some(meant) => format!("did you mean \"processor:{meant}\"?"),
            None => "write \"processor:NAME\" for a processor of this file; a stream is named with `stream`".to_owned(),
        };
        return helped(
            wrong(code::NOT_A_NAME, &at(path, "to"), format!("`{shown}` is not a place that an output leads to")),
            help,
        );
    };
    match file.processors.get_key_value(name) {
        Some((name, _)) => Ok(name),
        None => {
            let none = wrong(code::NO_SUCH, &at(path, "to"), format!("there is no processor `{}`", check::shown(name)));
            helped(none, did_you_mean(name, "the processors of this file", known()))
        }
    }
}

/// Records that stay in memory are not sent, so nothing may be said about how.
fn to_processor(file: &File, path: [&str; 4], section: &file::Output, to: &str) -> Checked<String> {
    let name = target(file, path, to)?;
    let sending = section.sending_keys();
    if let [first, ..] = sending[..] {
        let message = "it says how records are sent to a stream, and this output leads to a processor";
        return helped(
            wrong(code::TOGETHER, &at(path, first), message),
            format!("leave out `{}`", sending.join("`, `")),
        );
    }
    Ok(name.to_owned())
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
