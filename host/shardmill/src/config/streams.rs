//! Streams as they are defined, and those that a processor reads.

use std::collections::BTreeMap;
use std::time::Duration;

use shardmill_cause::Coded;
use shardmill_cause::code::config as code;
use shardmill_lease::store::KeyForm;
use shardmill_record::ShardId;
use shardmill_stream::StartPosition;
use shardmill_stream::start::{ShardStart, Start};

use super::Stream;
use super::check::{self, Checked, MIB, count, helped, line, size, stream_arn, stream_id, stream_name, time, wrong};
use super::file::{self, File};
use super::resolve::Written;

const MINUTE: Duration = Duration::from_secs(60);

/// The streams that a processor reads; none where its records come from other processors alone. One in `stream` or a list
/// in `streams`, also of one, decides how lease keys are made.
pub(super) fn inputs(written: &Written<'_>, processor: &str, own: &file::Processor) -> Checked<(Vec<Stream>, KeyForm)> {
    let at = |key| ["processors", processor, key];
    let (key, key_form) = match (&own.stream, &own.streams) {
        (Some(_), None) => ("stream", KeyForm::Shard),
        (None, Some(list)) if list.is_empty() => {
            return helped(
                wrong(code::MISSING, &at("streams"), "it names no stream"),
                "a list such as [\"orders\", \"returns\"]",
            );
        }
        (None, Some(_)) => ("streams", KeyForm::MultiStream),
        (Some(_), Some(_)) => {
            let both = wrong(code::TOGETHER, &at("streams"), "there is `stream` already");
            return helped(
                both,
                "`stream` for a consumer of one stream, or `streams` for one of many: the lease table is another",
            );
        }
        (None, None) if written.targets.contains(processor) => {
            stage(processor, own)?;
            return Ok((Vec::new(), KeyForm::Shard));
        }
        (None, None) => {
            let neither =
                wrong(code::MISSING, &["processors", processor], "no stream is named, and no output leads to it");
            let help = format!(
                "set `stream`, or `streams` to a list, or let an output of another processor lead to it: to = \"processor:{processor}\""
            );
            return helped(neither, help);
        }
    };
    let mut inputs: Vec<Stream> = Vec::new();
    for named in own.inputs() {
        let input = match written.streams.get(named) {
            Some(defined) => defined.clone(),
            None => {
                stream_id(&at(key), named)?;
                stream(written.file, named, &file::Stream::default())?
            }
        };
        if inputs.iter().any(|other| other.id == input.id) {
            return wrong(code::TWICE, &at(key), format!("`{}` is named twice", input.id));
        }
        inputs.push(input);
    }
    Ok((inputs, key_form))
}

/// A processor that reads nothing has no leases, and no checkpoint of its own: that of whoever reads waits for it.
fn stage(processor: &str, own: &file::Processor) -> Checked<()> {
    let reading = own.reading_keys();
    let [first, ..] = reading[..] else { return Ok(()) };
    let message = "it is about reading a stream, and this processor reads none: its records come from other processors";
    let help = format!("leave out `{}`, or name a `stream` that it reads as well", reading.join("`, `"));
    helped(wrong(code::TOGETHER, &["processors", processor, first], message), help)
}

pub(super) fn stream(file: &File, name: &str, section: &file::Stream) -> Checked<Stream> {
    let id = match (&section.name, &section.arn) {
        (None, None) => {
            stream_id(&["streams", name], name)?;
            name
        }
        (Some(kinesis_name), None) => {
            line(&["streams", name], name)?;
            stream_name(&["streams", name, "name"], kinesis_name)?;
            kinesis_name
        }
        (kinesis_name, Some(text)) => {
            line(&["streams", name], name)?;
            let arn = stream_arn(&["streams", name, "arn"], text)?;
            if let Some(other) = kinesis_name.as_ref().filter(|other| *other != arn.name()) {
                let message = format!("it is the ARN of `{}`, while `name` is `{}`", arn.name(), check::shown(other));
                return helped(
                    wrong(code::TOGETHER, &["streams", name, "arn"], message),
                    "leave `name` out: it follows from the ARN",
                );
            }
            text
        }
    };
    let settings = section.settings(&file.defaults.stream);
    let idle = time(
        &["streams", name, "idle"],
        settings.idle,
        Duration::from_secs(1),
        // Kinesis answers five reads of a shard in a second.
        [Duration::from_millis(200), 5 * MINUTE],
    )?;
    let longest = idle.max(Duration::from_secs(2));
    let idle_max = time(&["streams", name, "idle-max"], settings.idle_max, longest, [idle, 5 * MINUTE]);
    Ok(Stream {
        id: id.to_owned(),
        start: Start {
            position: settings.start.unwrap_or(StartPosition::TrimHorizon),
            shards: start_shards(name, section)?,
        },
        reset: settings.reset.unwrap_or_default(),
        idle,
        idle_max: helped(idle_max, format!("it is the longest wait at the tip, and {idle:?} (`idle`) the shortest"))?,
        reads_per_second: count(&["streams", name, "reads-per-second"], settings.reads_per_second, 5, [1, 1000])?,
        bytes_per_second: size(
            &["streams", name, "bytes-per-second"],
            settings.bytes_per_second,
            2 * MIB,
            [16 * 1024, 1 << 40],
        )?,
        decoder: settings.decoder.unwrap_or_default(),
    })
}

fn start_shards(stream: &str, section: &file::Stream) -> Checked<BTreeMap<ShardId, ShardStart>> {
    let mut shards = BTreeMap::new();
    for (id, start) in &section.start_shards {
        let shard = ShardId::parse(id)
            .or_else(|error| wrong(error.code(), &["streams", stream, "start-shards", id], error.to_string()))?;
        shards.insert(shard, start.clone());
    }
    Ok(shards)
}
