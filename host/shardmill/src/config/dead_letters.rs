//! Where a processor's dead letters go: exactly one place, and the options of that place alone.

use std::collections::BTreeMap;
use std::path::Path;

use shardmill_cause::code::config as code;

use super::check::{self, Checked, MIB, helped, size, stream_id, wrong};
use super::{DeadLetters, Output, Stream, file, may_be_one};

const FILE_BYTES: u64 = 64 * MIB;
const PLACES: &str = "`folder` for files of JSON lines, `stream` for a stream, or `output` for one of the processor's outputs to a stream";

pub(super) fn resolve(
    table: &file::DeadLetters,
    processor: &str,
    inputs: &[Stream],
    outputs: &BTreeMap<String, Output>,
    streams: &BTreeMap<&str, Stream>,
    folder: &Path,
) -> Checked<DeadLetters> {
    let at = |key| ["processors", processor, "dead-letters", key];
    // Also where it does not belong: a number is wrong first, and then out of place.
    let file_bytes = size(&at("file-bytes"), table.file_bytes, FILE_BYTES, [MIB, 1 << 40])?;
    let named =
        [("folder", table.folder.is_some()), ("stream", table.stream.is_some()), ("output", table.output.is_some())];
    let mut named = named.into_iter().filter(|(_, is_named)| *is_named).map(|(place, _)| place);
    let (place, second) = (named.next(), named.next());
    if let (Some(first), Some(second)) = (place, second) {
        return helped(
            wrong(code::TOGETHER, &at(second), format!("there is `{first}` already, and letters go to one place")),
            PLACES,
        );
    }
    for (option, is_given, its_place) in
        [("file-bytes", table.file_bytes.is_some(), "folder"), ("aggregate", table.aggregate.is_some(), "stream")]
    {
        if is_given && place != Some(its_place) {
            let message = format!("it says how letters are kept in a {its_place}, and they do not go to one");
            return helped(
                wrong(code::TOGETHER, &at(option), message),
                format!("leave it out, or name a `{its_place}`"),
            );
        }
    }
    if let Some(path) = &table.folder {
        if path.as_os_str().is_empty() {
            return helped(
                wrong(code::MISSING, &at("folder"), "it names no folder"),
                "a path, relative to this file's folder",
            );
        }
        return Ok(DeadLetters::Folder { path: folder.join(path), file_bytes });
    }
    if let Some(name) = &table.stream {
        let stream = match streams.get(name.as_str()) {
            Some(defined) => defined.id.clone(),
            None => {
                stream_id(&at("stream"), name)?;
                name.clone()
            }
        };
        comes_back(&at("stream"), inputs, &stream)?;
        return Ok(DeadLetters::Stream { stream, aggregate: table.aggregate.unwrap_or(false) });
    }
    if let Some(output) = &table.output {
        let Some(target) = outputs.get(output) else {
            let shown = check::shown(output);
            let known: Vec<&str> = outputs.keys().map(String::as_str).collect();
            let help = match known.as_slice() {
                [] => "add a table [processors.NAME.outputs.OUTPUT]".to_owned(),
                known => format!("the processor's outputs: `{}`", known.join("`, `")),
            };
            return helped(wrong(code::NO_SUCH, &at("output"), format!("the processor has no output `{shown}`")), help);
        };
        let Some(stream) = target.stream() else {
            let message = format!("the output `{output}` leads to a processor, which keeps nothing");
            return helped(wrong(code::TOGETHER, &at("output"), message), PLACES);
        };
        comes_back(&at("output"), inputs, stream)?;
        return Ok(DeadLetters::Output { output: output.clone() });
    }
    helped(wrong(code::MISSING, &["processors", processor, "dead-letters"], "no place is named"), PLACES)
}

/// Letters about letters, without end, where they go to a stream that the processor reads.
fn comes_back(path: &[&str], inputs: &[Stream], stream: &str) -> Checked<()> {
    let Some(input) = inputs.iter().find(|input| may_be_one(&input.id, stream)) else { return Ok(()) };
    let (read, again) = (&input.id, "its dead letters would come back to it as records");
    if read == stream {
        let message = format!("the processor reads `{read}`: {again}");
        return helped(wrong(code::PIPELINE, path, message), "name a stream that is for dead letters alone");
    }
    let message = format!("the processor reads `{read}`, which `{stream}` may be: {again}");
    let help =
        "name a stream that is for dead letters alone; if these are two streams of one name, name both by their ARNs";
    helped(wrong(code::PIPELINE, path, message), help)
}
