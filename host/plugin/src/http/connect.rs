use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use wasmtime_wasi_http::Error;

use super::client::Client;
use super::exchange::Fault;
use super::hosts::{Host, Target};
use super::turns::Turn;

/// Bytes to a host and back.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Finds the addresses of a name.
pub(super) trait Resolve: Send + Sync {
    fn resolve(&self, name: String, port: u16) -> Resolving;
}

pub(super) type Resolving = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

/// As the operating system does it.
pub(super) struct SystemResolver;

/// What connections over TLS are made with: made when it is needed for the first time. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Tls(Arc<OnceCell<TlsConnector>>);

impl Resolve for SystemResolver {
    fn resolve(&self, name: String, port: u16) -> Resolving {
        Box::pin(async move { Ok(tokio::net::lookup_host((name, port)).await?.collect()) })
    }
}

/// A connection to a host, at an address that it may have and at no other: what is judged is what is connected to.
///
/// `turn`: what is given back when nothing is left of the request, a lookup that nobody waits for included.
pub(super) async fn connect(
    client: &Client,
    target: &Target,
    by: Instant,
    turn: &Arc<Turn>,
) -> Result<Box<dyn Stream>, Fault> {
    let found = addresses(client, target, by, turn).await?;
    let allowed = judge(client, target, &found)?;
    let stream = tcp(&allowed, by).await?;
    // What cannot be set costs time and nothing else.
    let _slower = stream.set_nodelay(true);
    if !target.is_secure {
        return Ok(Box::new(stream));
    }
    let connector = connector(client, by, turn).await?;
    let name = match &target.host {
        Host::Name(name) => ServerName::try_from(name.clone()),
        Host::Address(address) => Ok(ServerName::from(*address)),
    };
    let name = name.map_err(|_| Fault::refused(Error::HttpRequestUriInvalid))?;
    match timeout_at(by, connector.connect(name, stream)).await {
        Ok(Ok(stream)) => Ok(Box::new(stream)),
        Ok(Err(error)) => Err(Fault::failed(of_tls(error))),
        Err(_elapsed) => Err(Fault::timeout(Error::ConnectionTimeout)),
    }
}

/// What connects over TLS. Certificates are read when it is needed for the first time, from files that may hang: whoever gives
/// up leaves that to a task, which keeps the turn.
async fn connector(client: &Client, by: Instant, turn: &Arc<Turn>) -> Result<TlsConnector, Fault> {
    if let Some(made) = client.0.tls.made() {
        return Ok(made);
    }
    let (tls, turn) = (client.0.tls.clone(), Arc::clone(turn));
    let making = tokio::spawn(async move {
        let made = tls.make().await;
        drop(turn);
        made
    });
    let reason = match timeout_at(by, making).await {
        Ok(Ok(Ok(connector))) => return Ok(connector),
        Ok(Ok(Err(reason))) => reason,
        Ok(Err(stopped)) => stopped.to_string(),
        Err(_elapsed) => return Err(Fault::timeout(Error::ConnectionTimeout)),
    };
    client.tell_no_roots(&reason);
    Err(Fault::failed(Error::TlsCertificateError))
}

async fn addresses(client: &Client, target: &Target, by: Instant, turn: &Arc<Turn>) -> Result<Vec<SocketAddr>, Fault> {
    let name = match &target.host {
        Host::Address(address) => return Ok(vec![SocketAddr::new(*address, target.port)]),
        Host::Name(name) if target.is_absolute => format!("{name}."),
        Host::Name(name) => name.clone(),
    };
    let place = timeout_at(by, Arc::clone(&client.0.lookups).acquire_owned()).await;
    let Ok(Ok(place)) = place else { return Err(Fault::timeout(Error::DnsTimeout)) };
    let resolving = client.0.resolver.resolve(name, target.port);
    // A lookup goes on when it is given up, on a thread of its own. It keeps its turn and its place: there are no more than of
    // those.
    let turn = Arc::clone(turn);
    let resolving = tokio::spawn(async move {
        let found = resolving.await;
        drop((turn, place));
        found
    });
    let no_answer = |rcode: &str| Error::DnsError { rcode: Some(rcode.to_owned()), info_code: None };
    match timeout_at(by, resolving).await {
        Ok(Ok(Ok(found))) if found.is_empty() => Err(Fault::failed(no_answer("no address"))),
        Ok(Ok(Ok(found))) => Ok(found),
        Ok(Ok(Err(_))) => Err(Fault::failed(no_answer("the name is not found"))),
        Ok(Err(_stopped)) => Err(Fault::failed(no_answer("the lookup was stopped"))),
        Err(_elapsed) => Err(Fault::timeout(Error::DnsTimeout)),
    }
}

/// Those of the addresses that may be connected to: one at least.
fn judge(client: &Client, target: &Target, found: &[SocketAddr]) -> Result<Vec<SocketAddr>, Fault> {
    let mut allowed = Vec::new();
    let mut refused: Option<(IpAddr, &'static str)> = None;
    for address in found {
        match client.0.grant.judge(address.ip()) {
            Ok(ip) => allowed.push(SocketAddr::new(ip, target.port)),
            Err(what) => refused = refused.or(Some((address.ip(), what))),
        }
    }
    match (allowed.is_empty(), refused) {
        (true, Some((address, what))) => {
            client.tell_address(target, address, what);
            Err(Fault::refused(Error::DestinationIpProhibited))
        }
        _ => Ok(allowed),
    }
}

/// The first that answers. Each has its share of what is left of the time.
async fn tcp(addresses: &[SocketAddr], by: Instant) -> Result<TcpStream, Fault> {
    let mut fault = Fault::failed(Error::DestinationNotFound);
    for (tried, address) in addresses.iter().enumerate() {
        let left = by.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX);
        fault = match timeout_at(Instant::now() + share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => Fault::failed(of_connection(&error)),
            Err(_elapsed) => Fault::timeout(Error::ConnectionTimeout),
        };
    }
    Err(fault)
}

fn of_connection(error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Error::ConnectionRefused,
        io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted => Error::ConnectionTerminated,
        io::ErrorKind::TimedOut => Error::ConnectionTimeout,
        _ => Error::DestinationUnavailable,
    }
}

fn of_tls(error: io::Error) -> Error {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented) => {
            Error::TlsCertificateError
        }
        Some(rustls::Error::AlertReceived(alert)) => {
            Error::TlsAlertReceived { alert_id: Some(u8::from(*alert)), alert_message: Some(format!("{alert:?}")) }
        }
        Some(_) => Error::TlsProtocolError,
        // The other end went away.
        None => of_connection(&error),
    }
}

// === impl Tls ===

impl Tls {
    fn made(&self) -> Option<TlsConnector> {
        self.0.get().cloned()
    }

    /// What connects, or why there are no root certificates.
    async fn make(&self) -> Result<TlsConnector, String> {
        let made = self.0.get_or_try_init(|| async {
            let found = tokio::task::spawn_blocking(rustls_native_certs::load_native_certs).await;
            let found = found.map_err(|stopped| stopped.to_string())?;
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(found.certs);
            if roots.is_empty() {
                let reason = found.errors.first().map(ToString::to_string);
                return Err(reason.unwrap_or_else(|| "none were found".to_owned()));
            }
            trusting(roots)
        });
        made.await.cloned()
    }

    /// Somebody reads the certificates, and that hangs.
    #[cfg(test)]
    pub(super) async fn hanging() -> Self {
        let tls = Self::default();
        let (cell, begun) = (Arc::clone(&tls.0), Arc::new(tokio::sync::Notify::new()));
        let begins = Arc::clone(&begun);
        tokio::spawn(async move {
            let never = async {
                begins.notify_one();
                std::future::pending().await
            };
            cell.get_or_init(|| never).await;
        });
        begun.notified().await;
        tls
    }

    #[cfg(test)]
    pub(super) fn with(roots: RootCertStore) -> Self {
        Self(Arc::new(OnceCell::new_with(Some(trusting(roots).unwrap()))))
    }
}

fn trusting(roots: RootCertStore) -> Result<TlsConnector, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
