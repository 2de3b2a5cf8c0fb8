use std::path::PathBuf;

use super::*;

fn granted(lines: &str) -> Grants {
    good(&format!("{MINIMAL}[processors.p.grants]\n{lines}\n")).processors["p"].grants.clone()
}

fn refused(lines: &str, said: &[&str]) {
    let told = bad(&format!("{MINIMAL}[processors.p.grants]\n{lines}\n"));
    for words in said {
        assert!(told.contains(words), "{words:?} is not said of {lines}:\n{told}");
    }
}

#[test]
fn nothing_is_granted_by_default() {
    assert_eq!(good(MINIMAL).processors["p"].grants, Grants::default());
    assert!(!Grants::default().clocks && !Grants::default().random && !Grants::default().metrics);
}

#[test]
fn what_is_granted_is_what_is_written() {
    let grants = granted(
        r#"clocks = true
        environment = { REGION = "north", NODE = { from = "NODE_NAME" } }
        secrets = { KEY = { env = "APP_KEY" }, TOKEN = { file = "token" }, OTHER = { file = "/run/token" } }
        http = { hosts = ["API.example.com", "http://10.1.0.7:8080"], allow-private = ["10.1.0.0/16", "fd12::1"], methods = ["GET"], timeout = "3s", concurrency = 2 }"#,
    );
    assert_eq!((grants.clocks, grants.random, grants.metrics), (true, false, false));
    assert_eq!(grants.environment["REGION"], Variable::Value("north".to_owned()));
    assert_eq!(grants.environment["NODE"], Variable::Host("NODE_NAME".to_owned()));
    assert_eq!(grants.secrets["KEY"], SecretSource::Variable("APP_KEY".to_owned()));
    assert_eq!(grants.secrets["TOKEN"], SecretSource::File(PathBuf::from("folder/token")));
    assert_eq!(grants.secrets["OTHER"], SecretSource::File(PathBuf::from("/run/token")));
    let http = grants.http.unwrap();
    let texts: Vec<String> = http.hosts.iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["api.example.com", "http://10.1.0.7:8080"]);
    assert_eq!((http.methods.len(), http.concurrency, http.allow_private.len()), (1, 2, 2));
    // A connection takes no longer than its request.
    assert_eq!((http.timeout, http.connect_timeout), (Duration::from_secs(3), Duration::from_secs(3)));
}

#[test]
fn one_processors_grants_are_put_over_those_of_all() {
    let config = good(
        r#"
        application = "app"
        [defaults.processor.grants]
        clocks = true
        random = true
        environment = { REGION = "north", STAGE = "test" }
        secrets = { KEY = { env = "KEY" } }
        http = { hosts = ["a.example"], concurrency = 2 }
        [processors.p]
        stream = "in"
        plugin = "p.wasm"
        grants = { clocks = false, environment = { STAGE = "live" }, http = { hosts = ["b.example"] } }
        [processors.q]
        stream = "in"
        plugin = "p.wasm"
        grants = { http = { hosts = [] } }
        "#,
    );
    let (p, q) = (&config.processors["p"].grants, &config.processors["q"].grants);
    assert_eq!((p.clocks, p.random, p.metrics), (false, true, false));
    assert_eq!(
        (&p.environment["REGION"], &p.environment["STAGE"]),
        (&Variable::Value("north".to_owned()), &Variable::Value("live".to_owned()))
    );
    assert_eq!(p.secrets.len(), 1);
    let http = p.http.as_ref().unwrap();
    assert_eq!((http.hosts[0].to_string().as_str(), http.hosts.len(), http.concurrency), ("b.example", 1, 2));
    assert!(q.clocks && q.http.is_none(), "no host is no network");
}

#[test]
fn what_cannot_be_granted_is_told_with_what_can() {
    refused("clock = true", &["clock", "clocks"]);
    refused("environment = { A = 7 }", &["a value in quotes", "{ from = "]);
    refused("environment = { A-B = \"x\" }", &["processors.p.grants.environment", "`A-B` is no name of a variable"]);
    refused("environment = { A = { of = \"B\" } }", &["from"]);
    refused(
        "environment = { A = \"x\" }\nsecrets = { A = { env = \"B\" } }",
        &["`environment` already", "another name"],
    );
    refused("secrets = { A = { file = \"\" } }", &["it names no file"]);
    refused("secrets = { A = { path = \"x\" } }", &["path", "`env`", "`file`"]);
    refused("secrets = { A = { env = \"X\", file = \"x\" } }", &["in one place", "`env` or `file`"]);
    refused("secrets = { A = {} }", &["`env` or `file`"]);
    refused("http = {}", &["processors.p.grants.http", "without hosts", "api.example.com"]);
    refused("http = { hosts = [\"https://a.example/v1\"] }", &["processors.p.grants.http.hosts", "more than a host"]);
    refused("http = { hosts = [\"a b\"] }", &["`a b` is no host"]);
    refused("http = { hosts = [\"a.example\"], methods = [\"get\"] }", &["`get` is no method", "capital"]);
    refused("http = { hosts = [\"a.example\"], methods = [\"CONNECT\"] }", &["CONNECT", "never granted"]);
    refused(
        "http = { hosts = [\"a.example\"], allow-private = [\"10.0.0\"] }",
        &["`10.0.0` is no network", "10.1.0.0/16"],
    );
    refused("http = { hosts = [\"http://10.0.0.1\"] }", &["a private address", "add \"10.0.0.1\" to `allow-private`"]);
    refused("http = { hosts = [\"a.example\"], timeout = \"0s\" }", &["http.timeout", "1ms to 1h"]);
    refused(
        "http = { hosts = [\"a.example\"], timeout = \"1s\", connect-timeout = \"2s\" }",
        &["connect-timeout", "1ms to 1s"],
    );
    refused("http = { hosts = [\"a.example\"], concurrency = 0 }", &["concurrency", "1 to 1000"]);
}

#[test]
fn a_processor_takes_back_by_name_what_all_are_granted() {
    let with = |own: &str| {
        format!(
            r#"
            application = "app"
            [defaults.processor.grants]
            environment = {{ REGION = "north", STAGE = "test" }}
            secrets = {{ KEY = {{ env = "KEY" }}, TOKEN = {{ file = "token" }} }}
            [processors.p]
            stream = "in"
            plugin = "p.wasm"
            grants = {{ {own} }}
            "#
        )
    };
    let own = "environment = { STAGE = false, KEY = \"plain\" }, secrets = { KEY = false }";
    let grants = good(&with(own)).processors["p"].grants.clone();
    let names: Vec<&str> = grants.environment.keys().chain(grants.secrets.keys()).map(String::as_str).collect();
    assert_eq!(names, ["KEY", "REGION", "TOKEN"]);
    assert_eq!(grants.environment["KEY"], Variable::Value("plain".to_owned()));
    for (own, said) in [
        ("environment = { STAEG = false }", &["processors.p.grants.environment.STAEG", "nothing of this name"][..]),
        ("secrets = { TOEKN = false }", &["processors.p.grants.secrets.TOEKN", "nothing of this name"]),
        ("environment = { STAGE = true }", &["environment.STAGE", "`true` is no value"]),
        ("secrets = { KEY = true }", &["a secret is not written here"]),
    ] {
        let told = bad(&with(own));
        assert!(said.iter().all(|said| told.contains(said)), "{own}: {told}");
    }
    // Nobody can take back from all.
    let told = bad(
        "application = \"a\"\n[defaults.processor.grants]\nsecrets = { KEY = false }\n[processors.p]\nstream = \"in\"\nplugin = \"p\"",
    );
    assert!(told.contains("defaults.processor.grants.secrets.KEY"), "{told}");
}

#[test]
fn a_secret_that_is_written_down_is_not_repeated() {
    for lines in [
        "secrets = { A = \"hunter22\" }",
        "secrets = { A = 'hunter22' }",
        "secrets = { A = hunter22 }",
        "secrets = { A = \"hunter22 }",
        "secrets = { A = \"hunter22\" \"hunter22\" }",
        "secrets = { A = \"hunter22\", A = \"hunter22\" }",
        "secrets = { A = { env = \"B\", value = \"hunter22\" } }",
        "secrets = { A = { file = [\"hunter22\"] } }",
        "secrets = { A = [\"hunter22\"] }",
        "secrets = { A = hunter22",
        "secrets = \"hunter22\"",
        "secrets = [\"hunter22\"]",
        "secret = { A = \"hunter22\" }",
        "clock = true\nsecrets = { A = \"hunter22\" }",
        "secrets = { A = \"hunter22\" }\nclocks = 7",
        "[processors.p.grants.secrets]\nA = \"hunter22\"",
        "[processors.p.grants.secrets]\nA = \"\"\"hunter22\nand more\"\"\"",
        "[processors.p.grants.secrets]\nA = \"\"\"hunter22\nand hunter22",
        "[processors.p.grants.secrets.A]\nvalue = \"hunter22\"",
        // Numbers.
        "secrets = { A = 13572468 }",
        "secrets = { A = -13572468 }",
        "secrets = { A = 13572468.0 }",
        "secrets = { A = 13572468x }",
        "secrets = { A = 1357246800000000000000000 }",
        "secrets = { A = 1357246800000000000000000000000000000000000000000000000 }",
        "secrets = { A = { env = 13572468 } }",
        "secrets = { A = 1357-02-04 }",
        "secrets = 13572468",
    ] {
        let told = bad(&format!("{MINIMAL}[processors.p.grants]\n{lines}\n"));
        assert!(!told.contains("hunter") && !told.contains("1357"), "{lines}: {told}");
        assert!(told.contains("test.toml:"), "{lines}: {told}");
    }
    let told = bad(&format!("{MINIMAL}[processors.p.grants]\nsecrets = {{ A = 7 }}\n"));
    assert!(told.contains("test.toml:7: a secret is not written here") && told.contains("not shown here"), "{told}");
}
