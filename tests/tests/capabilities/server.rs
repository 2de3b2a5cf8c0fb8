//! A small server for HTTP and HTTPS on this machine. What it does, the path of a request says.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use shardmill_tests::paths;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// How long the answer to `/busy` takes, so that several requests are there at a time.
const BUSY: Duration = Duration::from_millis(50);

/// The server. It ends with the test.
pub(crate) struct Server {
    pub(crate) http: u16,
    /// Its certificate is for `localhost`, from the tests' root.
    pub(crate) https: u16,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    requests: AtomicUsize,
    busy: AtomicUsize,
    busiest: AtomicUsize,
}

// === impl Server ===

impl Server {
    pub(crate) async fn start() -> Self {
        let counts = Arc::new(Counts::default());
        let http = listen(None, &counts).await;
        let https = listen(Some(acceptor()), &counts).await;
        Self { http, https, counts }
    }

    /// The most requests for `/busy` that were there at a time.
    pub(crate) fn busiest(&self) -> usize {
        self.counts.busiest.load(Ordering::Relaxed)
    }

    pub(crate) fn requests(&self) -> usize {
        self.counts.requests.load(Ordering::Relaxed)
    }
}

async fn listen(tls: Option<TlsAcceptor>, counts: &Arc<Counts>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let counts = Arc::clone(counts);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.expect("a connection");
            let (counts, tls) = (Arc::clone(&counts), tls.clone());
            counts.requests.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                match tls {
                    None => answer(stream, &counts).await,
                    Some(tls) => {
                        if let Ok(stream) = tls.accept(stream).await {
                            answer(stream, &counts).await;
                        }
                    }
                }
            });
        }
    });
    port
}

async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin, counts: &Counts) {
    let mut head = Vec::new();
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
        if stream.read_buf(&mut head).await.unwrap_or(0) == 0 {
            return;
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let path = head.split(' ').nth(1).unwrap_or_default();
    let mut whole = async |fields: &str, body: &str| {
        let answer = format!("HTTP/1.1 {fields}content-length: {}\r\n\r\n{body}", body.len());
        let _gone = stream.write_all(answer.as_bytes()).await;
        let _closed = stream.shutdown().await;
    };
    match path {
        "/redirect" => whole("302 Found\r\nlocation: http://elsewhere.example.com/\r\n", "").await,
        "/busy" => {
            counts.busiest.fetch_max(counts.busy.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            tokio::time::sleep(BUSY).await;
            counts.busy.fetch_sub(1, Ordering::Relaxed);
            whole("200 OK\r\n", "done").await;
        }
        // Until the other end has had enough of it.
        "/slow" => while stream.read_buf(&mut Vec::new()).await.is_ok_and(|bytes| bytes > 0) {},
        "/dies" => {}
        "/large" => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await;
            let chunk = format!("2000\r\n{}\r\n", "x".repeat(0x2000));
            while stream.write_all(chunk.as_bytes()).await.is_ok() {}
        }
        _other => whole("200 OK\r\n", head.lines().next().unwrap_or_default()).await,
    }
}

fn acceptor() -> TlsAcceptor {
    let file = |name: &str| paths::repository().join("host/plugin/tests/tls").join(name);
    let certificate = CertificateDer::from_pem_file(file("host.pem")).expect("a certificate");
    let key = PrivateKeyDer::from_pem_file(file("host.key")).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions of TLS")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("a certificate and its key");
    TlsAcceptor::from(Arc::new(config))
}
