//! Connections over TLS, with a root certificate of the tests' own.

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsAcceptor;

use super::*;

const ROOT: &[u8] = include_bytes!("../../../tests/tls/root.pem");
const HOST: &[u8] = include_bytes!("../../../tests/tls/host.pem");
const KEY: &[u8] = include_bytes!("../../../tests/tls/host.key");

fn acceptor() -> TlsAcceptor {
    let certificates = vec![CertificateDer::from_pem_slice(HOST).unwrap()];
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(certificates, PrivateKeyDer::from_pem_slice(KEY).unwrap())
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

fn roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ROOT).unwrap()).unwrap();
    roots
}

/// The port of a server that speaks something else, and speaks first.
async fn plain() -> u16 {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"220 mail.example.com ESMTP\r\n").await.unwrap();
            // Until the other end is gone: what is unread would reset the connection.
            while stream.read_buf(&mut Vec::new()).await.is_ok_and(|bytes| bytes > 0) {}
        }
    });
    port
}

#[tokio::test]
async fn a_host_is_whose_certificate_it_has() {
    let server = Server::start_with(Some(acceptor()), async |call| call.answer(200, "", b"secure").await).await;
    let (port, plain) = (server.port, plain().await);
    let hosts = [format!("*:{port}"), format!("*:{plain}"), format!("http://*:{port}")];
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    let scene = Scene::with(&hosts, |_| {}, Tls::with(roots()));
    let answered = scene.get(&format!("https://api.example.com:{port}/")).await.unwrap();
    assert_eq!(answered.body.unwrap(), "secure".as_bytes());
    let other = scene.get(&format!("https://other.example.com:{port}/")).await.err();
    assert!(matches!(other, Some(Error::TlsCertificateError)), "{other:?}");
    let address = scene.get(&format!("https://127.0.0.1:{port}/")).await.err();
    assert!(matches!(address, Some(Error::TlsCertificateError)), "{address:?}");
    let not_tls = scene.get(&format!("https://api.example.com:{plain}/")).await.err();
    assert!(matches!(not_tls, Some(Error::TlsProtocolError)), "{not_tls:?}");
    assert!(scene.get(&format!("http://api.example.com:{port}/")).await.is_err());
    // Nobody whom these roots know has signed it.
    let stranger = Scene::with(&hosts, |_| {}, Tls::with(RootCertStore::empty()));
    let unknown = stranger.get(&format!("https://api.example.com:{port}/")).await.err();
    assert!(matches!(unknown, Some(Error::TlsCertificateError)), "{unknown:?}");
    assert_eq!((scene.count("answered"), stranger.count("failed")), (1, 1));
}

#[tokio::test]
async fn a_handshake_that_is_not_answered_has_the_time_of_a_connection() {
    // It takes connections, and says nothing.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = silent.local_addr().unwrap().port();
    let connect = |grant: &mut HttpGrant| grant.connect_timeout = Duration::from_millis(200);
    let scene = Scene::with(&[&format!("*:{port}")], connect, Tls::with(roots()));
    let late = scene.get(&format!("https://api.example.com:{port}/")).await.err();
    assert!(matches!(late, Some(Error::ConnectionTimeout)), "{late:?}");
    assert_eq!(scene.count("timeout"), 1);
}
