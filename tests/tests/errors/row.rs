//! A case as it was seen: what was given, what was said, and what was kept.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use serde_json::Value;
use shardmill_cause::Code;
use shardmill_tests::{Environment, Finished, Services, command, paths, run};
use tempfile::TempDir;

/// A line of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    /// What was wrong, in words.
    pub(crate) given: String,
    /// What was said of it, with what differs from run to run replaced.
    pub(crate) says: String,
    pub(crate) code: Code,
    /// The exit status; `None` where the process goes on.
    pub(crate) exit: Option<i32>,
    /// What was looked at and found to be kept.
    pub(crate) kept: &'static str,
    /// In what it has ended otherwise than it should. All such rows of a group are told together.
    pub(crate) wrong: Option<String>,
}

/// How a command should have failed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expected {
    pub(crate) exit: i32,
    pub(crate) code: Code,
}

/// So much of a message is shown.
const SHOWN: usize = 260;

// === impl Row ===

impl Row {
    /// Of a command that has failed as it should.
    pub(crate) fn of(given: &str, finished: &Finished, expected: Expected, kept: &'static str) -> Self {
        let Expected { exit, code } = expected;
        let told = message(&finished.stderr);
        let is_as_expected = finished.code == Some(exit)
            && codes(&finished.stderr).last() == Some(&code)
            && told.is_some()
            && !finished.stderr.contains("panicked at host/");
        let wrong = (!is_as_expected).then(|| format!("{given}: {exit} and {code} are expected: {finished:?}"));
        let says = shown(&told.unwrap_or_default());
        Self { given: given.to_owned(), says, code, exit: Some(exit), kept, wrong }
    }

    /// Of a line in the log of a worker that goes on: the sentence, or the reason where that says more.
    pub(crate) fn of_log(given: &str, line: &Value, code: Code, kept: &'static str) -> Self {
        let text = |name: &str| line[name].as_str();
        let wrong = (text("code") != Some(code.name())).then(|| format!("{given}: {code} is expected: {line}"));
        let said = ["reason", "error", "row", "message"].into_iter().find_map(text);
        let says = shown(said.unwrap_or_else(|| panic!("{given}: {line}")));
        Self { given: given.to_owned(), says, code, exit: None, kept, wrong }
    }
}

/// Every case has ended as it should.
pub(crate) fn assert_right(rows: &[Row]) {
    let wrong: Vec<&str> = rows.iter().filter_map(|row| row.wrong.as_deref()).collect();
    assert!(!rows.is_empty() && wrong.is_empty(), "{} of {}:\n{}", wrong.len(), rows.len(), wrong.join("\n\n"));
}

/// The codes of failures that were told, in order.
fn codes(stderr: &str) -> Vec<Code> {
    let named = stderr.lines().filter_map(|line| line.trim_start().strip_prefix("code: "));
    named.filter_map(|rest| Code::parse(rest.get(..6)?)).collect()
}

/// The last failure that was told, in one line.
fn message(stderr: &str) -> Option<String> {
    let lines: Vec<&str> = stderr.lines().map(str::trim_start).collect();
    let is_first = |line: &&str| line.starts_with("× ") || line.starts_with("error: ");
    let at = lines.iter().rposition(is_first)?;
    let first = lines[at].trim_start_matches("× ").trim_start_matches("error: ");
    let mut said = first.trim().to_owned();
    for line in &lines[at + 1..] {
        if let Some(more) = line.strip_prefix("│ ") {
            said += &format!(" {}", more.trim());
        } else if let Some(cause) = line.strip_prefix("╰─▶ ").or_else(|| line.strip_prefix("├─▶ ")) {
            said += &format!(": {}", cause.trim());
        } else {
            break;
        }
    }
    Some(said)
}

/// What differs from run to run and from machine to machine, in stable names.
pub(crate) fn shown(said: &str) -> String {
    // What a guest says in the end is the compiler's words.
    let said = said.split("; its last words").next().unwrap_or_default();
    let mut text = said.replace(&format!("{}/", paths::target().join("plugins").display()), "");
    text = text.replace(&std::env::temp_dir().display().to_string(), "/tmp");
    let mut shown = String::new();
    let mut before = "";
    for word in text.split(' ') {
        if !shown.is_empty() {
            shown.push(' ');
        }
        // Where something stands in a file that a compiler has made, and how much memory that wants.
        let is_number = !word.is_empty() && word.trim_end_matches(':').bytes().all(|byte| byte.is_ascii_digit());
        if is_number && ["offset", "wanted"].contains(&before) {
            shown.push('…');
            shown.push_str(word.trim_start_matches(|first: char| first.is_ascii_digit()));
        } else {
            shown.push_str(&stable(word));
        }
        before = word;
    }
    match shown.char_indices().nth(SHOWN) {
        Some((cut, _)) => format!("{}…", &shown[..cut]),
        None => shown,
    }
}

fn stable(word: &str) -> String {
    let is_digest = |text: &str| text.len() >= 12 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let core = word.trim_matches(|character: char| !character.is_ascii_alphanumeric());
    if is_digest(core) && core.bytes().any(|byte| byte.is_ascii_alphabetic()) {
        return word.replace(core, "DIGEST");
    }
    // A sequence number with its place in an aggregate.
    if core.len() > 50 && core.bytes().all(|byte| byte.is_ascii_digit() || byte == b'/') {
        return word.replace(core, "POSITION");
    }
    // The last number is the compiler's.
    if let Some((name, _)) = word.split_once("@0.2.").filter(|(name, _)| name.contains("wasi:")) {
        return format!("{name}@0.2");
    }
    if core.starts_with("0x") {
        return word.replace(core, "0x…");
    }
    if let Some(at) = word.find("/tmp/.tmp") {
        // The folder's name, which is random, up to what follows it.
        let rest = &word[at + "/tmp/.tmp".len()..];
        let end = rest.find(|character: char| !character.is_ascii_alphanumeric()).unwrap_or(rest.len());
        return format!("{}FOLDER{}", &word[..at], &rest[end..]);
    }
    if let Some(at) = word.find("127.0.0.1:") {
        let rest = &word[at + "127.0.0.1:".len()..];
        let end = rest.find(|character: char| !character.is_ascii_digit()).unwrap_or(rest.len());
        return format!("{}127.0.0.1:PORT{}", &word[..at], &rest[end..]);
    }
    word.to_owned()
}

/// Services that nobody is to ask: an endpoint that sees whether somebody does.
#[derive(Debug)]
pub(crate) struct Unasked {
    listener: TcpListener,
    environment: BTreeMap<String, String>,
}

// === impl Unasked ===

impl Unasked {
    pub(crate) fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("a listener");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let variables = [
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", "nobody"),
            ("AWS_SECRET_ACCESS_KEY", "nothing"),
            ("AWS_ENDPOINT_URL_KINESIS", endpoint.as_str()),
            ("AWS_ENDPOINT_URL_DYNAMODB", endpoint.as_str()),
        ];
        let environment = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        Self { listener, environment }
    }

    /// Nobody has asked so far.
    pub(crate) fn assert(&self, given: &str) {
        let asked = self.listener.accept();
        assert!(
            asked.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock),
            "{given}: a service was asked"
        );
    }
}

impl Environment for Unasked {
    fn environment(&self) -> &BTreeMap<String, String> {
        &self.environment
    }
}

/// A folder of a case's own, whose files must stay as they are.
#[derive(Debug)]
pub(crate) struct Folder(TempDir);

// === impl Folder ===

impl Folder {
    pub(crate) fn new() -> Self {
        Self(TempDir::new().expect("a temporary folder"))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// A path in it, as arguments have it.
    pub(crate) fn at(&self, name: &str) -> String {
        self.path().join(name).to_str().expect("a path in UTF-8").to_owned()
    }

    /// Writes a file; its path.
    pub(crate) fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> String {
        let path = self.at(name);
        fs::write(&path, contents).expect("a file");
        path
    }

    /// All files, with what they hold.
    pub(crate) fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        let mut folders = vec![self.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                match path.symlink_metadata().expect("metadata") {
                    found if found.is_dir() => folders.push(path),
                    found if found.is_file() => _ = files.insert(path.clone(), fs::read(&path).expect("a file")),
                    _other => {}
                }
            }
        }
        files
    }
}

/// Runs a command on services to its end. Frames of messages are drawn alike everywhere.
pub(crate) async fn finish(services: &impl Environment, arguments: &[&str]) -> Finished {
    let mut child = command();
    child.args(arguments).envs(services.environment()).env("LC_ALL", "C.UTF-8");
    run(child).await
}

/// The payloads of a stream.
pub(crate) async fn payloads(services: &Services, stream: &str) -> Vec<Vec<u8>> {
    shardmill_tests::raw::user_records(services, stream).await.into_iter().map(|(_key, data)| data.to_vec()).collect()
}
