use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use super::LIMIT;

/// A server on a free port. It stops when this is dropped.
pub(super) struct Server {
    pub(super) port: u16,
    counts: Arc<Counts>,
    task: JoinHandle<()>,
}

struct Counts {
    connections: AtomicUsize,
    now: watch::Sender<usize>,
    most: AtomicUsize,
}

/// A request that has come.
pub(super) struct Call {
    stream: Box<dyn Bytes>,
    head: String,
    /// What came behind the head.
    rest: Vec<u8>,
    counts: Arc<Counts>,
}

trait Bytes: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Bytes for T {}

// === impl Server ===

impl Server {
    pub(super) async fn start<F, A>(handle: F) -> Self
    where
        F: Fn(Call) -> A + Send + Sync + 'static,
        A: Future<Output = ()> + Send,
    {
        Self::start_with(None, handle).await
    }

    pub(super) async fn start_with<F, A>(tls: Option<TlsAcceptor>, handle: F) -> Self
    where
        F: Fn(Call) -> A + Send + Sync + 'static,
        A: Future<Output = ()> + Send,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (connections, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let counts = Arc::new(Counts { connections, most, now: watch::Sender::new(0) });
        let (handle, shared) = (Arc::new(handle), Arc::clone(&counts));
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (handle, counts, tls) = (Arc::clone(&handle), Arc::clone(&shared), tls.clone());
                counts.connections.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(async move {
                    counts.now.send_modify(|now| {
                        *now += 1;
                        counts.most.fetch_max(*now, Ordering::Relaxed);
                    });
                    if let Some(call) = Call::read(stream, tls, &counts).await {
                        handle(call).await;
                    }
                    counts.now.send_modify(|now| *now -= 1);
                });
            }
        });
        Self { port, counts, task }
    }

    pub(super) fn connections(&self) -> usize {
        self.counts.connections.load(Ordering::Relaxed)
    }

    pub(super) fn most_at_once(&self) -> usize {
        self.counts.most.load(Ordering::Relaxed)
    }

    /// Waits until no connection is open.
    pub(super) async fn all_gone(&self) {
        let mut now = self.counts.now.subscribe();
        let gone = now.wait_for(|now| *now == 0);
        tokio::time::timeout(LIMIT, gone).await.expect("the end of all connections").unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

// === impl Call ===

impl Call {
    async fn read(stream: TcpStream, tls: Option<TlsAcceptor>, counts: &Arc<Counts>) -> Option<Self> {
        let mut stream: Box<dyn Bytes> = match tls {
            Some(tls) => Box::new(tls.accept(stream).await.ok()?),
            None => Box::new(stream),
        };
        let mut bytes = Vec::new();
        loop {
            if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                let rest = bytes.split_off(end + 4);
                let head = String::from_utf8(bytes).unwrap();
                return Some(Self { stream, head, rest, counts: Arc::clone(counts) });
            }
            if stream.read_buf(&mut bytes).await.ok()? == 0 {
                return None;
            }
        }
    }

    /// The request's first line.
    pub(super) fn line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }

    /// As many bytes as its head announces.
    pub(super) async fn body(&mut self) -> Vec<u8> {
        let length = self.head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        while self.rest.len() < length.unwrap_or(0) {
            self.stream.read_buf(&mut self.rest).await.unwrap();
        }
        std::mem::take(&mut self.rest)
    }

    /// Waits until so many connections are open, or until there have been so many in all.
    pub(super) async fn hold(&self, open: usize, in_all: usize) {
        let mut now = self.counts.now.subscribe();
        let is_last = || self.counts.connections.load(Ordering::Relaxed) >= in_all;
        now.wait_for(|now| *now >= open || is_last()).await.unwrap();
    }

    pub(super) async fn answer(self, status: u16, headers: &str, body: &[u8]) {
        let head = format!("HTTP/1.1 {status} Some\r\ncontent-length: {}\r\n{headers}\r\n", body.len());
        let mut call = self;
        call.write(head.as_bytes()).await;
        call.write(body).await;
    }

    /// Bytes as they are; whether they were taken.
    pub(super) async fn write(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).await.is_ok() && self.stream.flush().await.is_ok()
    }

    /// Waits until the other end is gone.
    pub(super) async fn until_gone(mut self) {
        while self.stream.read_buf(&mut self.rest).await.is_ok_and(|bytes| bytes > 0) {}
    }
}
