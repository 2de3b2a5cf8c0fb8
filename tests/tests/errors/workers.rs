//! Orders to a worker that runs, which it cannot obey: it goes on with what it has.

use std::net::TcpListener;

use serde_json::Value;
use shardmill_cause::code::{Code, command, deploy, plugin};
use shardmill_tests::{Config, Services, Tail, Worker, Writer, another_build, paths};

use crate::plugins::of_one_import;
use crate::row::{Expected, Folder, Row, finish};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";
const KEPT: &str = "the worker goes on with the plugin it had, and no record is lost or comes twice";

/// A worker, and what its plugin was at first.
struct Scene {
    services: Services,
    worker: Worker,
    folder: Folder,
    digest: Value,
}

pub(crate) async fn rows() -> Vec<Row> {
    let folder = Folder::new();
    folder.write("token", TOKEN);
    folder.write("other-token", "fedcba9876543210fedcba9876543210");
    let services = Services::with_streams(1, 1).await;
    let config = Config::copy().admin(&format!("token-file = {:?}", folder.at("token")));
    let text = config.text();
    let worker = Worker::start_ready(&services, &config).await;
    let digest = worker.status().await["plugin"]["digest"].clone();
    assert!(digest.is_string(), "{digest}");
    let mut scene = Scene { services, worker, folder, digest };
    let mut rows = scene.of_orders().await;
    rows.extend(scene.of_plugins().await);
    rows.push(scene.of_a_configuration(&text).await);
    scene.assert_goes_on().await;
    rows.extend(of_addresses().await);
    rows
}

// === impl Scene ===

impl Scene {
    async fn order(&self, given: &str, arguments: &[&str], exit: i32, code: Code) -> Row {
        let admin = self.worker.admin();
        let finished = finish(&self.services, &[arguments, &["--admin", &admin]].concat()).await;
        assert_eq!(self.worker.status().await["plugin"]["digest"], self.digest, "{given}");
        Row::of(given, &finished, Expected { exit, code }, KEPT)
    }

    async fn of_orders(&self) -> Vec<Row> {
        let (token, other) = (self.folder.at("token"), self.folder.at("other-token"));
        let absent = self.folder.at("absent");
        let with = ["--token-file", token.as_str()];
        let order = async |given: &str, arguments: &[&str], exit: i32, code: Code| {
            self.order(given, &[arguments, &with].concat(), exit, code).await
        };
        let shard = ["--shard", "shardId-000000000009"];
        vec![
            self.order("an order without the token", &["pause", "copy"], 77, command::TOKEN).await,
            self.order("another token", &["pause", "copy", "--token-file", &other], 77, command::TOKEN).await,
            self.order(
                "a token's file that is not there",
                &["pause", "copy", "--token-file", &absent],
                78,
                command::TOKEN,
            )
            .await,
            order("a processor that there is not", &["pause", "cpoy"], 1, command::NOT_DONE).await,
            order(
                "a shard that the worker does not have",
                &[&["restart", "copy"][..], &shard].concat(),
                1,
                command::NOT_DONE,
            )
            .await,
            order(
                "a rewind to a time to come",
                &["rewind", "copy", "--to", "2999-01-01T00:00:00Z"],
                1,
                command::NOT_DONE,
            )
            .await,
        ]
    }

    async fn of_plugins(&self) -> Vec<Row> {
        let (token, absent) = (self.folder.at("token"), self.folder.at("absent.wasm"));
        let with = ["--token-file", token.as_str()];
        let deploy = async |given: &str, processor: &str, file: &str, exit: i32, code: Code| {
            let arguments = [&["plugin", "deploy", processor, file][..], &with].concat();
            self.order(given, &arguments, exit, code).await
        };
        let text = self.folder.write("text.wasm", "this is not it");
        let core = self.folder.write("core.wasm", b"\0asm\x01\0\0\0");
        let route = std::fs::read(paths::plugin("route")).expect("the plugin");
        let cut = self.folder.write("cut.wasm", &route[..8]);
        let good = self.folder.write("good.wasm", another_build(&route, 7));
        let reach = paths::plugin("guest_reach").display().to_string();
        vec![
            deploy("a text in place of a plugin", "copy", &text, 78, plugin::NOT_WASM).await,
            deploy("a core module", "copy", &core, 78, plugin::CORE_MODULE).await,
            deploy("the first eight bytes of a component", "copy", &cut, 78, plugin::NOT_A_PROCESSOR).await,
            deploy("a plugin for a processor that there is not", "other", &good, 1, deploy::NO_PROCESSOR).await,
            deploy("a plugin's file that is not there", "copy", &absent, 78, deploy::UNAVAILABLE).await,
            of_one_import(
                deploy(
                    "a plugin that wants what the processor is not granted",
                    "copy",
                    &reach,
                    78,
                    plugin::NOT_GRANTED,
                )
                .await,
            ),
            self.of_a_digest(&route).await,
        ]
    }

    /// As a program sends it that has written the digest down.
    async fn of_a_digest(&self, route: &[u8]) -> Row {
        let given = "a file with another digest than was sent with it";
        let digest = "0".repeat(64);
        let headers = [("x-shardmill-digest", digest.as_str())];
        let path = "/v1/processors/copy/deploy";
        let (status, text) = self.worker.send(path, TOKEN, &headers, another_build(route, 8)).await;
        assert_eq!(status, 422, "{text}");
        let answer: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(answer["code"], deploy::DIGEST.name(), "{answer}");
        assert_eq!(self.worker.status().await["plugin"]["digest"], self.digest, "{given}");
        let says =
            "its digest is DIGEST, and DIGEST is expected: send the file that has that digest, or name this one's";
        let said = answer["error"].as_str().expect("a sentence");
        assert!(said.starts_with("its digest is ") && said.contains(&digest), "{said}");
        Row {
            given: given.to_owned(),
            says: says.to_owned(),
            code: deploy::DIGEST,
            exit: None,
            kept: KEPT,
            wrong: None,
        }
    }

    /// A file that has become wrong while the worker runs.
    async fn of_a_configuration(&self, text: &str) -> Row {
        self.worker.replace_config(&text.replace("[streams.input]", "[streams.input]\nidel = \"1s\""));
        let token = self.folder.at("token");
        let given = "a mistake in the file of a worker that runs";
        let row = self.order(given, &["reload", "--token-file", &token], 78, deploy::NOT_TAKEN).await;
        self.worker.replace_config(text);
        row
    }

    /// Every record of before and after is in the output once.
    async fn assert_goes_on(&mut self) {
        Writer::new(&self.services, "input", 5).put(50).await;
        let mut output = Tail::new(&self.services, "output").await;
        self.worker.until("all outputs", async |_| (output.count().await >= 50).then_some(())).await;
        self.worker.stop().await;
        shardmill_tests::assert_each_once(&Tail::all(&self.services, "output").await, 0..50);
    }
}

/// Addresses at which there is no worker.
async fn of_addresses() -> Vec<Row> {
    let services = crate::row::Unasked::new();
    let closed = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port");
    let closed = format!("http://{closed}");
    let mut rows = Vec::new();
    for (given, admin, exit, code) in [
        ("an address at which nobody listens", closed.as_str(), 69, command::UNREACHABLE),
        ("an admin address with another scheme", "https://127.0.0.1:9465", 78, command::ADMIN_ADDRESS),
    ] {
        let finished = finish(&services, &["status", "--admin", admin]).await;
        rows.push(Row::of(given, &finished, Expected { exit, code }, "nothing was ordered"));
    }
    rows
}
