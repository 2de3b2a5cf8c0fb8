//! Mistakes of an operator: each is told apart by its exit status, and says what is wrong, where, and what is allowed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use shardmill_tests::{Config, Finished, Services, Worker, assert_says, command, paths, run};
use tempfile::TempDir;

const WRONG_CONFIGURATION: Option<i32> = Some(78);
const UNAVAILABLE: Option<i32> = Some(69);

/// A configuration that is wrong: its text (`PLUGIN` stands for a plugin's path), the line of the mistake (0 for none),
/// and what has to be said.
struct Mistake {
    name: &'static str,
    text: &'static str,
    line: usize,
    said: &'static [&'static str],
}

const PROCESSOR: &str =
    "[processors.copy]\nstream = \"input\"\nplugin = 'PLUGIN'\nconfig = { field = \"/n\", default = \"out\" }\n";

/// One of each kind, and those that need a file or a plugin. All rules of the configuration's text have tests beside it.
const MISTAKES: &[Mistake] = &[
    Mistake { name: "syntax", text: "application = \"tests\n", line: 1, said: &["string"] },
    Mistake {
        name: "unknown key",
        text: "application = \"tests\"\n[leases]\nrenw = \"3s\"\n",
        line: 3,
        said: &["renw", "renew", "expiry"],
    },
    Mistake { name: "wrong type", text: "application = 7\n", line: 1, said: &["application", "7", "string"] },
    Mistake {
        name: "bounds",
        text: "application = \"tests\"\nPROCESSOR[processors.copy.batch]\nrecords = 10_001\n",
        line: 7,
        said: &["processors.copy.batch.records", "10001", "1 to 10000"],
    },
    Mistake {
        name: "bounds in the defaults",
        text: "application = \"tests\"\n[defaults.processor.retry]\nattempts = 0\nPROCESSOR",
        line: 3,
        said: &["defaults.processor.retry.attempts", "0 is out of bounds"],
    },
    Mistake {
        name: "one lease table for two",
        text: "application = \"tests\"\nPROCESSOR[processors.other]\nstream = \"input\"\nplugin = 'PLUGIN'\nlease-table = \"tests-copy\"\n",
        line: 9,
        said: &["processors.other.lease-table", "tests-copy", "copy"],
    },
    Mistake {
        name: "pattern of a filter",
        text: "application = \"tests\"\nPROCESSOR[processors.copy.filter]\npatterns = [\n  '{\"data\": {\"n\": [1]}}',\n  '{\"data\": {\"n\": 1}}',\n]\n",
        line: 9,
        said: &["processors.copy.filter.patterns", "pattern 2", "at `data.n`", "a list of values"],
    },
    Mistake {
        name: "batcher that takes nothing",
        text: "application = \"tests\"\nPROCESSOR[[processors.copy.batchers]]\nname = \"all\"\n[[processors.copy.batchers]]\nname = \"more\"\n",
        line: 8,
        said: &["processors.copy.batchers.more", "no record comes here", "`all`"],
    },
    Mistake {
        name: "lanes of records that come once",
        text: "application = \"tests\"\nPROCESSORdelivery = \"at-most-once\"\nparallelism = 4\n",
        line: 7,
        said: &["processors.copy.parallelism", "at-most-once"],
    },
    Mistake {
        name: "output to a processor that is not there",
        text: "application = \"tests\"\nPROCESSOR[processors.copy.outputs.out]\nto = \"processor:cpoy\"\n",
        line: 7,
        said: &["processors.copy.outputs.out.to", "no processor `cpoy`", "did you mean `copy`?"],
    },
    Mistake {
        name: "stage with a checkpoint",
        text: "application = \"tests\"\nPROCESSOR[processors.copy.outputs.out]\nto = \"processor:stage\"\n[processors.stage]\nplugin = 'PLUGIN'\ncheckpoint-interval = \"1s\"\n",
        line: 10,
        said: &["processors.stage.checkpoint-interval", "reads none"],
    },
    Mistake {
        name: "plugin that is not there",
        text: "application = \"tests\"\n[processors.copy]\nstream = \"input\"\nplugin = \"nowhere.wasm\"\n",
        line: 4,
        said: &["processors.copy.plugin", "nowhere.wasm", "No such file", "correct the path"],
    },
    Mistake {
        name: "plugin that is a folder",
        text: "application = \"tests\"\n[processors.copy]\nstream = \"input\"\nplugin = \".\"\n",
        line: 4,
        said: &["processors.copy.plugin", "directory"],
    },
    Mistake {
        name: "plugin that is none",
        text: "application = \"tests\"\n[processors.copy]\nstream = \"input\"\nplugin = \"shardmill.toml\"\n",
        line: 0,
        said: &["copy", "shardmill.toml", "not WebAssembly"],
    },
    Mistake {
        name: "configuration that the guest refuses",
        text: "application = \"tests\"\n[processors.copy]\nstream = \"input\"\nplugin = 'PLUGIN'\nconfig = { field = \"/n\" }\n",
        line: 0,
        said: &["copy", "routes", "default", "nothing anywhere"],
    },
];

/// A configuration in a folder of its own.
fn written(text: &str) -> (TempDir, PathBuf) {
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("shardmill.toml");
    std::fs::write(&path, text).expect("a configuration file");
    (folder, path)
}

async fn with_config(subcommand: &str, path: &Path) -> Finished {
    let mut child = command();
    // A region, and no service: nothing here comes so far as to ask one.
    child.arg(subcommand).arg("--config").arg(path).env("AWS_REGION", "us-east-1");
    run(child).await
}

fn assert_told(what: &str, finished: &Finished, said: &[&str]) {
    assert_says(what, &finished.stderr, said);
    assert!(!finished.stderr.contains("panicked at host/"), "{what}: {}", finished.stderr);
}

async fn assert_refused(subcommand: &str, mistake: &Mistake) {
    let plugin = paths::plugin("route").display().to_string();
    let (_folder, path) = written(&mistake.text.replace("PROCESSOR", PROCESSOR).replace("PLUGIN", &plugin));
    let what = format!("{subcommand}, {}", mistake.name);
    let finished = with_config(subcommand, &path).await;
    assert_eq!(finished.code, WRONG_CONFIGURATION, "{what}: {}", finished.stderr);
    assert_told(&what, &finished, mistake.said);
    if mistake.line > 0 {
        assert_told(&what, &finished, &[&format!("{}:{}:", path.display(), mistake.line)]);
    }
    assert_eq!(finished.stdout, "", "{what}");
}

#[tokio::test]
async fn check_names_the_file_the_line_the_key_and_what_is_allowed() {
    for mistake in MISTAKES {
        assert_refused("check", mistake).await;
    }
}

#[tokio::test]
async fn run_refuses_what_check_refuses() {
    for mistake in MISTAKES {
        assert_refused("run", mistake).await;
    }
}

#[tokio::test]
async fn check_tells_what_a_good_configuration_means() {
    let (_folder, path) = written(&Config::copy().text());
    let finished = with_config("check", &path).await;
    assert_eq!(finished.code, Some(0), "{finished:?}");
    for text in ["copy", "input", "tests-copy", "route.wasm", "copies → output"] {
        assert!(finished.stdout.contains(text), "{text:?} in {}", finished.stdout);
    }
    let mut child = command();
    child.args(["check", "--json", "--config"]).arg(&path);
    let finished = run(child).await;
    let json: Value = serde_json::from_str(&finished.stdout).expect("JSON");
    let processor = &json["processors"][0];
    assert_eq!(processor["lease-table"], "tests-copy", "{json}");
    assert_eq!(processor["outputs"]["copies"]["stream"], "output", "{json}");
}

/// A processor that reads, one that does not, and everything between them.
const PIPELINE: &str = "application = \"tests\"\n[processors.copy]\nstream = \"input\"\nplugin = 'PLUGIN'\n\
    config = { field = \"/n\", default = \"on\" }\nparallelism = 2\npartition-by = \"/n\"\n\
    filter = { patterns = ['{\"data\": {\"n\": [1]}}'] }\n[[processors.copy.batchers]]\nname = \"large\"\n\
    when = [{ partitionKey = [\"a\"] }]\nwindow = \"1m\"\n[processors.copy.outputs.on]\nto = \"processor:stage\"\n\
    [processors.stage]\nplugin = 'PLUGIN'\nconfig = { field = \"/n\", default = \"again\" }\n\
    [processors.stage.outputs.again]\nto = \"processor:copy\"\n[processors.stage.outputs.copies]\nstream = \"output\"\n";

#[tokio::test]
async fn check_tells_and_draws_pipelines() {
    let (_folder, path) = written(&PIPELINE.replace("PLUGIN", &paths::plugin("route").display().to_string()));
    let finished = with_config("check", &path).await;
    assert_eq!(finished.code, Some(0), "{finished:?}");
    for text in [
        "on → processor stage",
        "on of processor copy",
        "2 a shard, by /n",
        "{\"data\":{\"n\":[1]}}",
        "large: {\"partitionKey\":[\"a\"]}; 500 records, 4 MiB, windows of 1m",
        "default: all that is left; 500 records, 4 MiB",
    ] {
        assert!(finished.stdout.contains(text), "{text:?} in {}", finished.stdout);
    }
    let graph = async |form: &str, no_utf8: &str| {
        let mut child = command();
        child.args(["check", form, "--config"]).arg(&path).env("NO_UTF8", no_utf8);
        let finished = run(child).await;
        assert_eq!(finished.code, Some(0), "{finished:?}");
        finished.stdout
    };
    let drawn = graph("--graph", "").await;
    assert!(drawn.starts_with("stream input\n└─▶ processor copy\n    │   lanes 2 a shard, by /n\n"), "{drawn}");
    assert!(drawn.contains("output again ─▶ processor copy (cycle), see above\n"), "{drawn}");
    let ascii = graph("--graph", "1").await;
    assert!(ascii.starts_with("stream input\n`-> processor copy\n") && ascii.is_ascii(), "{ascii}");
    assert_eq!(graph("--graph=ascii", "").await, ascii);
    assert!(graph("--graph=mermaid", "").await.starts_with("flowchart LR\n    n0[(\"stream input\")]\n"));
    let json: Value = serde_json::from_str(&graph("--json", "").await).expect("JSON");
    let [copy, stage] = [&json["processors"][0], &json["processors"][1]];
    assert_eq!((&copy["parallelism"], &copy["outputs"]["on"]["processor"]), (&2.into(), &"stage".into()), "{json}");
    assert_eq!(copy["batchers"][0]["batch"]["window-ms"], 60_000, "{json}");
    assert_eq!((&stage["lease-table"], &stage["streams"]), (&Value::Null, &Value::Array(Vec::new())), "{json}");
}

/// Refused by both commands, with these words.
async fn assert_unreadable(path: &Path, said: &[&str]) {
    for subcommand in ["check", "run"] {
        let finished = with_config(subcommand, path).await;
        assert_eq!(finished.code, WRONG_CONFIGURATION, "{finished:?}");
        assert_told(subcommand, &finished, &[&[path.to_str().expect("a path in UTF-8")], said].concat());
        assert_eq!(finished.stdout, "");
    }
}

#[tokio::test]
async fn a_file_that_cannot_be_read_is_named_with_the_reason() {
    let folder = TempDir::new().expect("a temporary folder");
    assert_unreadable(&folder.path().join("absent.toml"), &["--config FILE", "No such file"]).await;
    assert_unreadable(folder.path(), &["--config FILE", "Is a directory"]).await;
    assert_unreadable(Path::new("/dev/zero"), &["--config FILE", "larger than 4 MiB"]).await;
    let path = folder.path().join("latin-1.toml");
    std::fs::write(&path, b"application = \"tests\"\n# Stra\xdfe\n").expect("a file");
    assert_unreadable(&path, &["not UTF-8", "0xdf", "latin-1.toml:2:7", "save it as UTF-8"]).await;
}

#[tokio::test]
async fn a_file_that_may_not_be_read_is_named() {
    use std::os::unix::fs::PermissionsExt;

    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("secret.toml");
    std::fs::write(&path, Config::copy().text()).expect("a file");
    let mode = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("a mode");
    mode(&path, 0o000);
    let mut child = command();
    if std::fs::File::open(&path).is_ok() {
        // Root may read everything: somebody else tries, with a copy of the binary that everybody can reach.
        const NOBODY: u32 = 65_534;
        let binary = folder.path().join("shardmill");
        std::fs::copy(paths::binary(), &binary).expect("a copy of the binary");
        mode(&binary, 0o755);
        mode(folder.path(), 0o755);
        child = tokio::process::Command::new(binary);
        child.uid(NOBODY).gid(NOBODY).current_dir("/");
    }
    child.args(["check", "--config"]).arg(&path);
    let finished = run(child).await;
    assert_eq!(finished.code, WRONG_CONFIGURATION, "{finished:?}");
    assert_told("check", &finished, &["secret.toml", "Permission denied", "--config FILE"]);
}

#[tokio::test]
async fn what_may_be_a_mistake_is_told_and_not_refused() {
    let output = "[processors.copy.outputs.back]\nstream = \"input\"\n[streams.inptu]\n";
    let (_folder, path) = written(&format!("{}{output}", Config::copy().text()));
    let finished = with_config("check", &path).await;
    assert_eq!(finished.code, Some(0), "{finished:?}");
    let warnings: Vec<Value> = finished.stderr.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let told = |words: [&str; 2]| {
        let message = |line: &&Value| {
            let message = line["message"].as_str().unwrap_or_default();
            line["level"] == "WARN"
                && message.contains("shardmill.toml:")
                && words.iter().all(|word| message.contains(word))
        };
        warnings.iter().filter(message).count()
    };
    assert_eq!(told(["processors.copy.outputs.back.stream", "round for ever"]), 1, "{}", finished.stderr);
    assert_eq!(told(["streams.inptu", "no processor reads it"]), 1, "{}", finished.stderr);
    assert_eq!(warnings.len(), 2, "{}", finished.stderr);
}

#[tokio::test]
async fn an_admin_port_in_use_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("an address").to_string();
    let (_folder, path) = written(&Config::copy().text().replace("127.0.0.1:0", &address));
    let finished = with_config("run", &path).await;
    assert_eq!(finished.code, UNAVAILABLE, "{finished:?}");
    assert_told("run", &finished, &[&address, "listen", "[admin]"]);
}

#[tokio::test]
async fn a_stream_that_is_not_there_is_named() {
    let services = Services::start().await;
    let mut worker = Worker::start(&services, &Config::copy());
    let status = worker.wait(Duration::from_secs(15)).await;
    assert_eq!(status.code(), UNAVAILABLE, "{}", worker.stderr());
    let said = ["copy", "there is no stream `input`", "us-east-1"];
    assert_says("a missing stream", &worker.stderr(), &said);
}

#[tokio::test]
async fn without_a_region_nothing_is_guessed() {
    let (folder, path) = written(&Config::copy().text());
    let mut child = command();
    child.args(["run", "--config"]).arg(&path).env("HOME", folder.path());
    let finished = run(child).await;
    assert_eq!(finished.code, WRONG_CONFIGURATION, "{finished:?}");
    assert_told("run", &finished, &["no AWS region", "AWS_REGION", "[aws]"]);
}

#[tokio::test]
async fn guests_that_do_not_start_are_refused_with_their_reason() {
    for (guest, reason) in [
        (r#"init = "refuse""#, "`threshold` is missing"),
        (r#"init = "trap""#, "init went wrong"),
        (r#"init = "spin""#, "500ms"),
    ] {
        let settings = r#"limits = { start-timeout = "500ms" }"#;
        let (_folder, path) = written(&Config::copy().and_guest("other", "guest_rows", settings, guest).text());
        for subcommand in ["check", "run"] {
            let finished = with_config(subcommand, &path).await;
            assert_eq!(finished.code, WRONG_CONFIGURATION, "{subcommand} {guest}: {}", finished.stderr);
            assert_told(subcommand, &finished, &["other", reason]);
        }
    }
}

#[tokio::test]
async fn help_shows_examples_and_wrong_usage_is_told_apart() {
    for arguments in [&["--help"][..], &["run", "--help"], &["demo", "--help"], &["local", "--help"]] {
        let mut child = command();
        child.args(arguments);
        let finished = run(child).await;
        assert_eq!(finished.code, Some(0), "{finished:?}");
        let (_, examples) = finished.stdout.split_once("Examples:").expect("examples");
        assert!(examples.contains("  shardmill "), "{examples}");
    }
    for arguments in
        [&[][..], &["walk"], &["run"], &["run", "--confg", "x"], &["demo", "--minutes", "soon"], &["plugin"]]
    {
        let mut child = command();
        child.args(arguments);
        let finished = run(child).await;
        assert_eq!(finished.code, Some(2), "{arguments:?}: {finished:?}");
        assert!(finished.stderr.contains("Usage:") || finished.stderr.contains("--help"), "{finished:?}");
    }
}

// === plugin inspect ===

async fn inspect(arguments: &[&str], file: &Path) -> Finished {
    let mut child = command();
    child.args(["plugin", "inspect"]).args(arguments).arg(file);
    run(child).await
}

#[tokio::test]
async fn inspect_tells_what_a_plugin_is() {
    for (plugin, form, hooks) in [("route", "columnar", false), ("guest_rows", "rows", true)] {
        let path = paths::plugin(plugin);
        let finished = inspect(&["--json"], &path).await;
        assert_eq!(finished.code, Some(0), "{finished:?}");
        let json: Value = serde_json::from_str(&finished.stdout).expect("JSON");
        assert_eq!((&json["form"], &json["hooks"]), (&form.into(), &hooks.into()), "{json}");
        assert_eq!(json["bytes"], std::fs::metadata(&path).expect("a file").len(), "{json}");
        assert_eq!(json["digest"].as_str().map(str::len), Some(64), "{json}");
        let exports = json["exports"].as_array().expect("exports");
        assert!(exports.iter().any(|name| name.as_str().is_some_and(|name| name.contains("shardmill:processor/"))));

        let finished = inspect(&[], &path).await;
        assert_eq!(finished.code, Some(0), "{finished:?}");
        for text in [json["digest"].as_str().expect("a digest"), form, "exports", "imports", "shardmill:processor/"] {
            assert!(finished.stdout.contains(text), "{text:?} in {}", finished.stdout);
        }
    }
}

#[tokio::test]
async fn inspect_says_why_a_file_is_no_plugin() {
    let folder = TempDir::new().expect("a temporary folder");
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).expect("a file");
        path
    };
    let component = std::fs::read(paths::plugin("route")).expect("a plugin");
    for (path, said) in [
        (file("garbage.wasm", b"this is not it"), "is not WebAssembly"),
        (file("empty.wasm", b""), "is not WebAssembly"),
        (file("core.wasm", b"\0asm\x01\0\0\0"), "core module"),
        (file("other.wasm", b"\0asm\x0d\0\x01\0"), "is not a processor"),
        (file("cut.wasm", &component[..component.len() / 2]), "not valid WebAssembly"),
        (folder.path().join("absent.wasm"), "cannot read"),
    ] {
        let finished = inspect(&[], &path).await;
        assert_eq!(finished.code, WRONG_CONFIGURATION, "{}: {finished:?}", path.display());
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
        assert_told("inspect", &finished, &[name, said]);
        assert_eq!(finished.stdout, "");
    }
}
