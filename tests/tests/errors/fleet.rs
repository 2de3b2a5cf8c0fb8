//! Deployments to a fleet that are wrong: what is wanted of it stays as it was, and so does what its workers run.

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use shardmill_cause::code::{Code, command, deploy, fleet, lease, plugin};
use shardmill_tests::{Config, Services, Worker, another_build, eventually, paths};

use crate::row::{Expected, Folder, Row, finish};

const KEPT: &str = "what is wanted of the fleet is as it was, and its worker goes on with the plugin it had";
const TABLE: &str = "tests-copy-shardmill";
const KEY: &str = "plugin/copy";

pub(crate) async fn rows() -> Vec<Row> {
    let services = Services::with_streams(1, 1).await;
    let folder = Folder::new();
    let config = folder.write("shardmill.toml", Config::copy().text());
    let mut rows = vec![before_any_worker(&services, &config).await];
    let mut worker = Worker::start_ready(&services, &Config::copy()).await;
    // The worker says which file it has, of its own accord.
    let is_told = async || document(&services).await.map(|_| ());
    eventually(Duration::from_secs(20), "the worker's document", is_told).await;
    let scene = Scene { services: &services, folder: &folder, config: &config, worker: &worker };
    rows.extend(scene.of_commands().await);
    rows.extend(scene.of_documents().await);
    worker.stop().await;
    rows
}

/// Commands create no table.
async fn before_any_worker(services: &Services, config: &str) -> Row {
    let file = paths::plugin("route").display().to_string();
    let arguments = ["plugin", "deploy", "copy", &file, "--config", config];
    let finished = finish(services, &arguments).await;
    let tables = services.dynamodb.list_tables().send().await.expect("the tables");
    assert!(tables.table_names().is_empty(), "{tables:?}");
    let expected = Expected { exit: 69, code: lease::NO_TABLE };
    Row::of("a fleet of which no worker has ever run", &finished, expected, "no table was created")
}

/// What is wanted of the processor.
async fn document(services: &Services) -> Option<HashMap<String, AttributeValue>> {
    let get = services.dynamodb.get_item().table_name(TABLE).key("key", AttributeValue::S(KEY.to_owned()));
    get.consistent_read(true).send().await.expect("an answer").item
}

struct Scene<'a> {
    services: &'a Services,
    folder: &'a Folder,
    config: &'a str,
    worker: &'a Worker,
}

// === impl Scene ===

impl Scene<'_> {
    async fn refused(&self, given: &str, arguments: &[&str], exit: i32, code: Code) -> Row {
        let before = (document(self.services).await, self.worker.status().await["plugin"]["digest"].clone());
        let finished = finish(self.services, &[&["plugin"][..], arguments, &["--config", self.config]].concat()).await;
        let after = (document(self.services).await, self.worker.status().await["plugin"]["digest"].clone());
        assert_eq!(after, before, "{given}");
        Row::of(given, &finished, Expected { exit, code }, KEPT)
    }

    async fn of_commands(&self) -> Vec<Row> {
        let text = self.folder.write("text.wasm", "this is not it");
        let route = std::fs::read(paths::plugin("route")).expect("the plugin");
        let other = self.folder.write("other.wasm", another_build(&route, 3));
        let absent = self.folder.at("absent.wasm");
        vec![
            self.refused("a processor that there is not", &["deploy", "other", &other], 78, deploy::NO_PROCESSOR).await,
            self.refused("a file that is not there", &["deploy", "copy", &absent], 78, deploy::UNAVAILABLE).await,
            self.refused("a text in place of a plugin", &["deploy", "copy", &text], 78, plugin::NOT_WASM).await,
            self.refused(
                "an address that others could answer",
                &["deploy", "copy", "http://a.example/a.wasm"],
                2,
                fleet::SOURCE,
            )
            .await,
            self.refused(
                "a password in an address",
                &["deploy", "copy", "https://me:secret@a.example/a.wasm"],
                2,
                command::USAGE,
            )
            .await,
            self.refused("no worker at all", &["deploy", "copy", &other, "--share", "0%"], 2, command::USAGE).await,
            self.refused(
                "a version that there never was",
                &["rollback", "copy", "--to", "0123456789ab"],
                2,
                fleet::NO_VERSION,
            )
            .await,
        ]
    }

    /// Documents that no Shardmill has written, or a later one.
    async fn of_documents(&self) -> Vec<Row> {
        let route = std::fs::read(paths::plugin("route")).expect("the plugin");
        let other = self.folder.write("another.wasm", another_build(&route, 4));
        let mut rows = Vec::new();
        for (given, body, code) in [
            ("a document that was edited by hand", r#"{"format":1,"wanted":7}"#, fleet::DOCUMENT),
            ("a document of a later version", r#"{"format":999}"#, fleet::LATER),
            ("a document that is not JSON", "wanted: the last one", lease::BROKEN_DOCUMENT),
        ] {
            let put = self.services.dynamodb.put_item().table_name(TABLE);
            let put = put.item("key", AttributeValue::S(KEY.to_owned()));
            let put = put.item("version", AttributeValue::N("7".to_owned()));
            put.item("body", AttributeValue::S(body.to_owned())).send().await.expect("a document");
            rows.push(self.refused(given, &["deploy", "copy", &other], 1, code).await);
        }
        rows
    }
}
