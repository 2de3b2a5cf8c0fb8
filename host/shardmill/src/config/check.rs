//! What a value must be: bounds of numbers, and the names that the services take.

use std::fmt::Display;
use std::time::Duration;

use shardmill_cause::code::config as code;
use shardmill_cause::{Code, Coded};
use shardmill_record::StreamArn;

use super::units::{Count, Size, Time};

/// A mistake and the key that it is about.
#[derive(Debug)]
pub(super) struct Wrong {
    pub(super) path: Vec<String>,
    pub(super) message: String,
    pub(super) help: Option<String>,
    pub(super) code: Code,
}

pub(super) type Checked<T> = Result<T, Wrong>;

pub(super) const MIB: u64 = 1 << 20;
pub(super) const HOUR: Duration = Duration::from_secs(3600);

pub(super) fn wrong<T>(code: Code, path: &[&str], message: impl Into<String>) -> Checked<T> {
    let path = path.iter().map(|key| (*key).to_owned()).collect();
    Err(Wrong { path, message: message.into(), help: None, code })
}

pub(super) fn helped<T>(checked: Checked<T>, help: impl Into<String>) -> Checked<T> {
    checked.map_err(|wrong| Wrong { help: Some(help.into()), ..wrong })
}

fn within<T: PartialOrd + Display>(path: &[&str], value: T, lowest: T, highest: T) -> Checked<T> {
    if value < lowest || value > highest {
        return wrong(code::OUT_OF_BOUNDS, path, format!("{value} is out of bounds: {lowest} to {highest} is allowed"));
    }
    Ok(value)
}

/// A duration within bounds, both included.
pub(super) fn time(path: &[&str], given: Option<Time>, default: Duration, bounds: [Duration; 2]) -> Checked<Duration> {
    let [lowest, highest] = bounds.map(Time);
    within(path, given.unwrap_or(Time(default)), lowest, highest).map(|time| time.0)
}

/// A size within bounds, both included.
pub(super) fn size(path: &[&str], given: Option<Size>, default: u64, bounds: [u64; 2]) -> Checked<u64> {
    let [lowest, highest] = bounds.map(Size);
    within(path, given.unwrap_or(Size(default)), lowest, highest).map(|size| size.0)
}

/// A number within bounds, both included.
pub(super) fn count(path: &[&str], given: Option<Count>, default: u32, bounds: [u32; 2]) -> Checked<u32> {
    let [lowest, highest] = bounds.map(|bound| Count(bound.into()));
    let count = within(path, given.unwrap_or(Count(default.into())), lowest, highest)?;
    Ok(u32::try_from(count.0).unwrap_or(u32::MAX))
}

/// Names become parts of table names, metrics labels and log fields.
pub(super) fn name(path: &[&str], name: &str) -> Checked<()> {
    if !is_name(name, 1, 100) {
        let shown = shown(name);
        return wrong(
            code::NOT_A_NAME,
            path,
            format!("`{shown}` is not a name: 1 to 100 letters, digits, `_`, `.` or `-` are allowed"),
        );
    }
    Ok(())
}

/// The rule of the Kinesis API.
pub(super) fn stream_name(path: &[&str], name: &str) -> Checked<()> {
    if !is_name(name, 1, 128) {
        let shown = shown(name);
        return wrong(
            code::NOT_A_NAME,
            path,
            format!("`{shown}` is not a stream's name: 1 to 128 letters, digits, `_`, `.` or `-`"),
        );
    }
    Ok(())
}

/// An ARN of a stream.
pub(super) fn stream_arn(path: &[&str], text: &str) -> Checked<StreamArn> {
    StreamArn::parse(text).or_else(|error| wrong(error.code(), path, shown(&error.to_string())))
}

/// A stream's name, or its ARN.
pub(super) fn stream_id(path: &[&str], text: &str) -> Checked<()> {
    if StreamArn::is_meant(text) { stream_arn(path, text).map(drop) } else { stream_name(path, text) }
}

/// The rule of the DynamoDB API: 3 to 255 characters, ten of which the sidecar table's suffix takes.
pub(super) fn table_name(path: &[&str], name: &str) -> Checked<()> {
    if !is_name(name, 3, 245) {
        let shown = shown(name);
        return wrong(
            code::NOT_A_NAME,
            path,
            format!("`{shown}` is not a table's name: 3 to 245 letters, digits, `_`, `.` or `-`"),
        );
    }
    Ok(())
}

/// A text that has to say something, in one line.
pub(super) fn line(path: &[&str], text: &str) -> Checked<()> {
    if text.trim().is_empty() || text.chars().any(char::is_control) {
        return wrong(
            code::NOT_A_NAME,
            path,
            format!("`{}` is empty, or holds characters that no name has", shown(text)),
        );
    }
    Ok(())
}

/// An address that the AWS SDK can be sent to.
pub(super) fn endpoint(path: &[&str], text: &str) -> Checked<()> {
    let uri = text.parse::<axum::http::Uri>().ok();
    let is_endpoint = uri.is_some_and(|uri| {
        let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
        let authority = uri.authority();
        let port = authority.and_then(|authority| authority.as_str().rsplit_once(':'));
        // An IPv6 address in brackets has colons of its own.
        let is_port = port.is_none_or(|(_, port)| port.ends_with(']') || port.parse::<u16>().is_ok());
        is_http && authority.is_some_and(|authority| !authority.host().is_empty()) && is_port
    });
    if !is_endpoint {
        let not_one = wrong(code::NOT_A_NAME, path, format!("`{}` is not an endpoint", shown(text)));
        return helped(not_one, "write an address such as \"http://127.0.0.1:4566\", or leave it out for AWS' own");
    }
    Ok(())
}

fn is_name(text: &str, shortest: usize, longest: usize) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    (shortest..=longest).contains(&text.len()) && text.bytes().all(allowed)
}

/// A text as a message can hold it.
pub(super) fn shown(text: &str) -> String {
    const LONGEST: usize = 300;
    match text.char_indices().nth(LONGEST) {
        Some((cut, _)) => format!("{}…", escaped(&text[..cut])),
        None => escaped(text),
    }
}

/// A text in one line. Only what would break it is escaped: letters of all languages stay.
pub(super) fn escaped(text: &str) -> String {
    let each = text.chars().flat_map(|character| {
        let control = character.is_control();
        control.then(|| character.escape_default()).into_iter().flatten().chain((!control).then_some(character))
    });
    each.collect()
}

/// What may have been meant by a name that is none of these.
pub(super) fn meant<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    /// Below this names have little in common.
    const ALIKE: f64 = 0.8;
    let likeness = known.into_iter().map(|other| (strsim::jaro_winkler(name, other), other));
    let nearest = likeness.max_by(|(left, _), (right, _)| left.total_cmp(right));
    nearest.filter(|(likeness, _)| *likeness >= ALIKE).map(|(_, other)| other)
}

/// Names as a help lists them; what may have been meant, where that can be told.
pub(super) fn did_you_mean<'a>(name: &str, what: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> String {
    match meant(name, known.clone()) {
        Some(other) => format!("did you mean `{other}`?"),
        None => format!("{what}: `{}`", known.into_iter().collect::<Vec<_>>().join("`, `")),
    }
}
