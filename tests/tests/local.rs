//! `shardmill local`: Kinesis and DynamoDB for development.

use std::time::Duration;

use shardmill_tests::{Process, Services, command, eventually, run};
use tempfile::TempDir;

#[tokio::test]
async fn it_prints_what_a_shell_takes_and_ends_well_at_sigterm() {
    let folder = TempDir::new().expect("a temporary folder");
    let mut local = command();
    local.arg("local");
    let mut process = Process::start(local, folder.path());
    eventually(Duration::from_secs(20), "the settings", async || {
        process.stdout().contains("AWS_EC2_METADATA_DISABLED").then_some(())
    })
    .await;

    // What a shell makes of it.
    let shell = format!("{}\nenv", process.stdout());
    let environment = tokio::process::Command::new("sh").arg("-euc").arg(shell).env_clear().output().await;
    let environment = environment.expect("a shell");
    assert!(environment.status.success(), "{environment:?}");
    let text = String::from_utf8(environment.stdout).expect("UTF-8");
    let value = |name: &str| {
        let prefix = format!("{name}=");
        text.lines().find_map(|line| line.strip_prefix(&prefix)).unwrap_or_else(|| panic!("{name} in {text}"))
    };
    assert_eq!(value("AWS_REGION"), "us-east-1");
    for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_EC2_METADATA_DISABLED"] {
        assert_ne!(value(name), "");
    }
    for name in ["AWS_ENDPOINT_URL_KINESIS", "AWS_ENDPOINT_URL_DYNAMODB"] {
        let address = value(name).strip_prefix("http://").expect("an HTTP address");
        assert!(address.starts_with("127.0.0.1:"), "only this machine can reach it: {address}");
        tokio::net::TcpStream::connect(address).await.expect("somebody listens");
    }

    process.terminate();
    assert_eq!(process.wait(Duration::from_secs(10)).await.code(), Some(0));
}

#[tokio::test]
async fn each_instance_has_services_of_its_own() {
    let (one, other) = (Services::start().await, Services::start().await);
    one.create_stream("mine", 1).await;
    let streams = other.kinesis.list_streams().send().await.expect("a listing").stream_names;
    assert!(streams.is_empty(), "{streams:?}");
}

#[tokio::test]
async fn a_port_in_use_is_named() {
    let services = Services::start().await;
    for (option, variable, service) in [
        ("--kinesis-port", "AWS_ENDPOINT_URL_KINESIS", "Kinesis"),
        ("--dynamodb-port", "AWS_ENDPOINT_URL_DYNAMODB", "DynamoDB"),
    ] {
        let port = services.environment()[variable].rsplit(':').next().expect("a port");
        let mut local = command();
        local.args(["local", option, port]);
        let finished = run(local).await;
        assert_eq!(finished.code, Some(69), "{finished:?}");
        assert!(finished.stderr.contains(port) && finished.stderr.contains(service), "{finished:?}");
    }
}
