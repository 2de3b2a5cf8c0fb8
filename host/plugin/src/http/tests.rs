//! Requests to servers on this machine, made as a guest's are, without a guest.

mod answers;
mod bounds;
mod servers;
mod tls;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, StreamBody};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use wasmtime_wasi_http::RequestOptions;

use self::servers::Server;
use super::client::{Client, Shared};
use super::connect::{Resolve, Resolving, Tls};
use super::*;
use crate::Metrics;
use crate::mask::Mask;

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// No wait of a test is as long as this.
const LIMIT: Duration = Duration::from_secs(30);

/// A processor `flights` with a grant, and what is counted of it.
struct Scene {
    client: Client,
    metrics: Metrics,
    names: Arc<Names>,
    shared: Shared,
    /// What an instance may hold.
    answers: Arc<Semaphore>,
}

/// A resolver that knows what it is told, and counts.
#[derive(Default)]
struct Names {
    addresses: Mutex<Vec<IpAddr>>,
    asked: AtomicUsize,
    names: Mutex<Vec<String>>,
    /// Whether nothing is answered.
    hangs: watch::Sender<bool>,
}

/// An answer, read to its end.
struct Answered {
    status: u16,
    headers: http::HeaderMap,
    body: Result<Bytes, Error>,
}

// === impl Scene ===

impl Scene {
    /// All of these hosts at this address, which may be reached.
    fn new(hosts: &[&str], change: impl FnOnce(&mut HttpGrant)) -> Self {
        Self::with(hosts, change, Tls::default())
    }

    fn with(hosts: &[&str], change: impl FnOnce(&mut HttpGrant), tls: Tls) -> Self {
        let mut grant = HttpGrant::new(hosts.iter().map(|host| host.parse().unwrap()).collect());
        grant.allow_private = vec!["127.0.0.1/32".parse().unwrap()];
        grant.connect_timeout = LIMIT;
        grant.timeout = LIMIT;
        change(&mut grant);
        let (metrics, names) = (Metrics::default(), Arc::new(Names::default()));
        names.are(&[LOOPBACK]);
        let resolver: Arc<dyn Resolve> = Arc::clone(&names) as _;
        let shared = Shared { resolver, tls, ..Shared::default() };
        let of_processor = metrics.of_processor("flights");
        let client = Client::new(grant, "flights".into(), of_processor, Mask::default(), shared.clone());
        let answers = Http::new(None).hooks.answers;
        Self { client, metrics, names, shared, answers }
    }

    /// Another version of this processor's plugin, or another processor's, in the same process.
    fn beside(&self, processor: &str, change: impl FnOnce(&mut HttpGrant)) -> Self {
        let mut grant = self.client.0.grant.clone();
        change(&mut grant);
        let (metrics, names, shared) = (self.metrics.clone(), Arc::clone(&self.names), self.shared.clone());
        let of_processor = metrics.of_processor(processor);
        let client = Client::new(grant, processor.into(), of_processor, Mask::default(), shared.clone());
        let answers = Http::new(None).hooks.answers;
        Self { client, metrics, names, shared, answers }
    }

    async fn send(&self, request: Request<WasiBody>) -> Result<Answered, Error> {
        let (answer, connection) = self.begin(request, RequestOptions::default()).await?;
        let answered = read(answer).await;
        connection.await.unwrap();
        Ok(answered)
    }

    /// An answer that is not read yet, and its connection.
    async fn begin(
        &self,
        request: Request<WasiBody>,
        options: RequestOptions,
    ) -> Result<(http::Response<WasiBody>, JoinHandle<()>), Error> {
        let (answer, connection) = Pin::from(self.client.send(request, options, &self.answers)).await?;
        let connection = tokio::spawn(async move { Pin::from(connection).await.unwrap() });
        Ok((answer, connection))
    }

    async fn get(&self, url: &str) -> Result<Answered, Error> {
        self.send(get(url)).await
    }

    fn count(&self, result: &'static str) -> u64 {
        self.metrics.http_requests("flights", result)
    }
}

// === impl Names ===

impl Names {
    fn are(&self, addresses: &[IpAddr]) {
        *self.addresses.lock().unwrap() = addresses.to_vec();
    }
}

impl Resolve for Names {
    fn resolve(&self, name: String, port: u16) -> Resolving {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.names.lock().unwrap().push(name);
        let mut hangs = self.hangs.subscribe();
        let found = self.addresses.lock().unwrap().iter().map(|ip| SocketAddr::new(*ip, port)).collect();
        Box::pin(async move {
            let _answered = hangs.wait_for(|hangs| !hangs).await;
            Ok(found)
        })
    }
}

async fn read(answer: http::Response<WasiBody>) -> Answered {
    let (parts, body) = answer.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes);
    Answered { status: parts.status.as_u16(), headers: parts.headers, body }
}

fn request(method: &str, url: &str, body: WasiBody) -> Request<WasiBody> {
    Request::builder().method(method).uri(url).header("host", "of-the-guest").body(body).unwrap()
}

fn get(url: &str) -> Request<WasiBody> {
    request("GET", url, whole(b""))
}

fn whole(bytes: &'static [u8]) -> WasiBody {
    Full::new(Bytes::from_static(bytes)).map_err(|never| match never {}).boxed_unsync()
}

/// A body that does not say how long it is.
fn parts(parts: usize, bytes: usize) -> WasiBody {
    let parts = (0..parts).map(move |_| Ok::<_, Error>(http_body::Frame::data(Bytes::from(vec![b'x'; bytes]))));
    StreamBody::new(futures::stream::iter(parts)).boxed_unsync()
}

#[tokio::test]
async fn what_is_granted_is_sent_and_answered() {
    let server = Server::start(async |mut call| {
        let body = call.body().await;
        let answer = format!("{} has {} bytes", call.line(), body.len());
        call.answer(200, "x-kind: test\r\n", answer.as_bytes()).await;
    })
    .await;
    let scene = Scene::new(&[&format!("http://api.example.com:{}", server.port)], |_| {});
    let url = format!("http://api.example.com:{}/v1/a?b=c", server.port);
    let answered = scene.send(request("POST", &url, whole(b"hello"))).await.unwrap();
    assert_eq!((answered.status, answered.headers["x-kind"].to_str().unwrap()), (200, "test"));
    // The request names no host but in its header, as whoever is no proxy expects it.
    assert_eq!(answered.body.unwrap(), "POST /v1/a?b=c HTTP/1.1 has 5 bytes".as_bytes());
    let answered = scene.get(&url.replace("/v1/a?b=c", "")).await.unwrap();
    assert_eq!(answered.body.unwrap(), "GET / HTTP/1.1 has 0 bytes".as_bytes());
    assert_eq!((scene.count("answered"), scene.names.asked.load(Ordering::Relaxed)), (2, 2));
    assert_eq!(scene.client.0.turns.free(), 16);
}

#[tokio::test]
async fn what_is_not_granted_is_not_even_looked_up() {
    let server = Server::start(async |call| call.answer(200, "", b"").await).await;
    let port = server.port;
    let hosts = [format!("http://api.example.com:{port}"), "secure.example.com".to_owned()];
    let scene = Scene::new(&[&hosts[0], &hosts[1]], |grant| {
        grant.methods.remove("DELETE");
    });
    let host = format!("http://api.example.com:{port}/");
    for request in [
        get(&format!("http://other.example.com:{port}/")),
        get(&format!("http://api.example.com.:{}/", port ^ 1)),
        get(&format!("https://api.example.com:{port}/")),
        get("http://secure.example.com/"),
        get(&format!("http://127.0.0.1:{port}/")),
        request("DELETE", &host, whole(b"")),
        request("get", &host, whole(b"")),
        request("CONNECT", &host, whole(b"")),
    ] {
        let told = format!("{request:?}");
        let refused = scene.send(request).await.err();
        assert!(matches!(refused, Some(Error::HttpRequestDenied)), "{told}: {refused:?}");
    }
    let user = scene.get(&format!("http://api.example.com:{port}@other.example.com/")).await.err();
    assert!(matches!(user, Some(Error::HttpRequestUriInvalid)), "{user:?}");
    assert_eq!((scene.count("refused"), server.connections()), (9, 0));
    assert_eq!(scene.names.asked.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn an_address_that_may_not_be_reached_is_not_and_none_is_asked_for_twice() {
    let server = Server::start(async |call| call.answer(200, "", b"here").await).await;
    let port = server.port;
    let scene = Scene::new(&[&format!("http://*:{port}"), "http://127.0.0.1"], |_| {});
    let url = format!("http://api.example.com:{port}/");
    let loopback = "127.0.0.2".parse().unwrap();
    for address in ["127.0.0.2", "169.254.169.254", "10.0.0.1", "::1", "::ffff:127.0.0.2", "64:ff9b::7f00:2"] {
        scene.names.are(&[address.parse().unwrap()]);
        let refused = scene.get(&url).await.err();
        assert!(matches!(refused, Some(Error::DestinationIpProhibited)), "{address}: {refused:?}");
        let asked_for = address.parse::<IpAddr>().unwrap();
        let literal = if asked_for.is_ipv6() { format!("[{address}]") } else { address.to_owned() };
        let refused = scene.get(&format!("http://{literal}:{port}/")).await.err();
        assert!(matches!(refused, Some(Error::DestinationIpProhibited)), "{address}: {refused:?}");
    }
    assert_eq!(server.connections(), 0);
    // Of several only what may be reached: in whatever order they come, and however they are written.
    let mapped = Ipv4Addr::LOCALHOST.to_ipv6_mapped().into();
    for addresses in [[loopback, LOOPBACK], [LOOPBACK, loopback], [loopback, mapped]] {
        scene.names.are(&addresses);
        let before = scene.names.asked.load(Ordering::Relaxed);
        assert_eq!(scene.get(&url).await.unwrap().body.unwrap(), "here".as_bytes());
        // A name that is asked for again could have another address by then.
        assert_eq!(scene.names.asked.load(Ordering::Relaxed), before + 1);
    }
    scene.names.are(&[]);
    assert!(matches!(scene.get(&url).await.err(), Some(Error::DnsError { .. })));
}

#[tokio::test]
async fn a_redirect_is_the_guests_to_follow() {
    let server = Server::start(async |call| {
        call.answer(302, "location: http://other.example.com/\r\n", b"").await;
    })
    .await;
    let scene = Scene::new(&[&format!("http://api.example.com:{}", server.port)], |_| {});
    let answered = scene.get(&format!("http://api.example.com:{}/", server.port)).await.unwrap();
    assert_eq!((answered.status, &answered.headers["location"]), (302, &"http://other.example.com/".parse().unwrap()));
    assert_eq!(server.connections(), 1);
    let location = answered.headers["location"].to_str().unwrap();
    assert!(matches!(scene.get(location).await.err(), Some(Error::HttpRequestDenied)));
}

#[tokio::test]
async fn requests_take_turns() {
    let server = Server::start(async |call| {
        call.hold(2, 8).await;
        call.answer(200, "", b"").await;
    })
    .await;
    let scene = Scene::new(&[&format!("http://a.b:{}", server.port)], |grant| grant.concurrency = 2);
    let url = format!("http://a.b:{}/", server.port);
    let answers = futures::future::join_all((0..8).map(|_| scene.get(&url))).await;
    assert!(answers.iter().all(|answer| answer.as_ref().is_ok_and(|answer| answer.status == 200)));
    // The server waits until there are two: more than two there never were.
    assert_eq!((server.connections(), server.most_at_once()), (8, 2));
    assert_eq!(scene.count("answered"), 8);
}

#[tokio::test]
async fn one_that_gets_no_turn_in_time_is_told_so_and_what_is_dropped_gives_its_turn_back() {
    let server = Server::start(async |call| call.until_gone().await).await;
    let scene = Scene::new(&[&format!("http://a.b:{}", server.port)], |grant| {
        grant.concurrency = 1;
        grant.timeout = Duration::from_millis(300);
    });
    let url = format!("http://a.b:{}/", server.port);
    let (first, second) = tokio::join!(scene.get(&url), scene.get(&url));
    assert!(matches!(first.err(), Some(Error::HttpResponseTimeout)));
    assert!(matches!(second.err(), Some(Error::ConnectionLimitReached)));
    assert_eq!((scene.count("timeout"), scene.count("busy")), (1, 1));
    let call = scene.get(&url);
    assert!(tokio::time::timeout(Duration::from_millis(100), call).await.is_err());
    assert_eq!(scene.count("dropped"), 1);
    assert_eq!(scene.client.0.turns.free(), 1);
    server.all_gone().await;
}
