//! Brings a module from where it is, within bounds, and sees that it is the one that is meant.

use std::io;
use std::path::Path;
use std::time::Duration;

use aws_smithy_http_client::{Connector, tls};
use aws_smithy_runtime_api::client::http::{HttpConnector as _, HttpConnectorSettings, SharedHttpConnector};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_types::byte_stream::ByteStream;
use shardmill_cause::with_causes;
use shardmill_plugin::Digest;
use tokio::io::AsyncReadExt as _;

use super::source::{Source, Url};
use crate::deploy::MAX_PLUGIN;

/// How long all of it may take, redirections included.
const LIMIT: Duration = Duration::from_secs(60);
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// How long an answer's head may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);
const REDIRECTIONS: usize = 5;

/// Brings modules. Clones share its connections.
#[derive(Debug, Clone)]
pub(crate) struct Fetcher {
    http: SharedHttpConnector,
    max_bytes: u64,
}

// === impl Fetcher ===

impl Fetcher {
    pub(crate) fn new() -> Self {
        let settings =
            HttpConnectorSettings::builder().connect_timeout(CONNECT_LIMIT).read_timeout(ANSWER_LIMIT).build();
        let http = Connector::builder()
            .tls_provider(tls::Provider::Rustls(tls::rustls_provider::CryptoMode::Ring))
            .connector_settings(settings)
            .build();
        Self { http: SharedHttpConnector::new(http), max_bytes: MAX_PLUGIN as u64 }
    }

    /// Brings what is there.
    ///
    /// # Errors
    /// Why it cannot be had, as a sentence that names the place.
    pub(crate) async fn fetch(&self, source: &Source) -> Result<Vec<u8>, String> {
        let fetched = async {
            match source {
                Source::File(path) => {
                    self.read(path).await.map_err(|error| format!("{source} cannot be read: {error}"))
                }
                Source::Url(url) => self.get(url).await,
            }
        };
        let late = |_elapsed| format!("{source} was not there within {LIMIT:?}");
        tokio::time::timeout(LIMIT, fetched).await.map_err(late)?
    }

    /// Brings what is there if it has this digest.
    pub(crate) async fn fetch_exactly(&self, source: &Source, expected: &Digest) -> Result<Vec<u8>, String> {
        let bytes = self.fetch(source).await?;
        is_exactly(source, &bytes, expected)?;
        Ok(bytes)
    }

    async fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let file = crate::file::open_async(path).await?;
        let mut bytes = Vec::new();
        file.take(self.max_bytes + 1).read_to_end(&mut bytes).await?;
        if bytes.len() as u64 > self.max_bytes {
            return Err(io::Error::other(format!("it is larger than {} bytes", self.max_bytes)));
        }
        Ok(bytes)
    }

    async fn get(&self, url: &Url) -> Result<Vec<u8>, String> {
        let mut at = url.clone();
        for _ in 0..=REDIRECTIONS {
            let answer = self.ask(&at).await?;
            match answer.status().as_u16() {
                200 => return self.body(&at, answer).await,
                301 | 302 | 303 | 307 | 308 => {
                    let location = answer.headers().get("location").unwrap_or_default();
                    at = at.redirected(location)?;
                }
                code => return Err(format!("{at} answers with HTTP status {code}")),
            }
        }
        Err(format!("{url} redirects more than {REDIRECTIONS} times"))
    }

    async fn ask(&self, url: &Url) -> Result<HttpResponse, String> {
        let mut request =
            HttpRequest::get(url.as_uri().to_string()).map_err(|error| format!("{url}: {}", with_causes(&error)))?;
        request.headers_mut().insert("user-agent", concat!("shardmill/", env!("CARGO_PKG_VERSION")));
        request.headers_mut().insert("accept", "application/wasm, application/octet-stream, */*");
        self.http.call(request).await.map_err(|error| format!("{url} cannot be had: {}", with_causes(&error)))
    }

    async fn body(&self, url: &Url, answer: HttpResponse) -> Result<Vec<u8>, String> {
        let too_large = || format!("what {url} sends is larger than {} bytes", self.max_bytes);
        let announced = answer.headers().get("content-length").and_then(|length| length.parse::<u64>().ok());
        if announced.is_some_and(|length| length > self.max_bytes) {
            return Err(too_large());
        }
        let mut body = ByteStream::new(answer.into_body());
        let mut bytes = Vec::new();
        while let Some(part) = body.next().await {
            let part = part.map_err(|error| format!("{url} breaks off: {}", with_causes(&error)))?;
            if (bytes.len() + part.len()) as u64 > self.max_bytes {
                return Err(too_large());
            }
            bytes.extend_from_slice(&part);
        }
        Ok(bytes)
    }
}

/// Holds what was found somewhere against what is meant.
pub(crate) fn is_exactly(source: &Source, bytes: &[u8], expected: &Digest) -> Result<(), String> {
    let found = Digest::of(bytes);
    if found == *expected {
        return Ok(());
    }
    let (found, expected) = (found.short(), expected.short());
    Err(format!("{source} holds another module: its SHA-256 begins with {found}, and not with {expected}"))
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpListener;

    use super::*;

    /// Answers each request with what is said for its path; the address.
    async fn serve(answers: &'static [(&'static str, &'static str)]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut connection, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        let Ok(byte) = connection.read_u8().await else { return };
                        head.push(byte);
                    }
                    let head = String::from_utf8(head).unwrap();
                    let path = head.split(' ').nth(1).unwrap_or_default();
                    let answer = answers.iter().find(|(known, _)| *known == path).map_or("", |(_, answer)| *answer);
                    connection.write_all(answer.as_bytes()).await.unwrap();
                });
            }
        });
        format!("http://{address}")
    }

    async fn get(fetcher: &Fetcher, url: String) -> Result<String, String> {
        let bytes = fetcher.fetch(&Source::parse(&url).unwrap()).await?;
        Ok(String::from_utf8(bytes).unwrap())
    }

    #[tokio::test]
    async fn a_module_comes_over_http_with_redirections_and_within_bounds() {
        let base = serve(&[
            ("/a", "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nabcd"),
            ("/chunked?q=1", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n"),
            ("/moved", "HTTP/1.1 302 Found\r\nlocation: /again\r\ncontent-length: 0\r\n\r\n"),
            ("/again", "HTTP/1.1 307 Found\r\nlocation: /a\r\ncontent-length: 0\r\n\r\n"),
            ("/round", "HTTP/1.1 301 Found\r\nlocation: /round\r\ncontent-length: 0\r\n\r\n"),
            ("/out", "HTTP/1.1 301 Found\r\nlocation: http://plugins.example/\r\ncontent-length: 0\r\n\r\n"),
            ("/gone", "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"),
            ("/large", "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nabcde"),
            ("/endless", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n6\r\nabcdef\r\n"),
            ("/short", "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nab"),
        ])
        .await;
        let fetcher = Fetcher { max_bytes: 4, ..Fetcher::new() };
        for path in ["/a", "/chunked?q=1", "/moved"] {
            assert_eq!(get(&fetcher, format!("{base}{path}")).await.as_deref(), Ok("abcd"), "{path}");
        }
        for (path, said) in [
            ("/round", "more than 5 times"),
            ("/out", "is not https"),
            ("/gone", "HTTP status 404"),
            ("/large", "larger than 4 bytes"),
            ("/endless", "larger than 4 bytes"),
            ("/short", "breaks off"),
        ] {
            let refused = get(&fetcher, format!("{base}{path}")).await.unwrap_err();
            assert!(refused.contains(said) && refused.contains(&base), "{path}: {refused}");
        }
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let refused = get(&fetcher, format!("http://{closed}/a?token=secret")).await.unwrap_err();
        assert!(refused.contains("cannot be had") && !refused.contains("secret"), "{refused}");
    }

    #[tokio::test]
    async fn a_file_is_read_if_it_is_one_and_must_be_the_one_that_is_meant() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.wasm");
        std::fs::write(&path, "abcd").unwrap();
        let source = Source::File(path.clone());
        let fetcher = Fetcher { max_bytes: 4, ..Fetcher::new() };
        assert_eq!(fetcher.fetch_exactly(&source, &Digest::of(b"abcd")).await.as_deref(), Ok(&b"abcd"[..]));
        let other = fetcher.fetch_exactly(&source, &Digest::of(b"abce")).await.unwrap_err();
        assert!(other.contains(&Digest::of(b"abcd").short()) && other.contains("another module"), "{other}");
        std::fs::write(&path, "abcde").unwrap();
        assert!(fetcher.fetch(&source).await.unwrap_err().contains("larger than 4 bytes"));
        assert!(fetcher.fetch(&Source::File(folder.path().to_owned())).await.unwrap_err().contains("is a directory"));
        let gone = fetcher.fetch(&Source::File(folder.path().join("b.wasm"))).await.unwrap_err();
        assert!(gone.contains("b.wasm cannot be read"), "{gone}");
    }
}
