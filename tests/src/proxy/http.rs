//! As much of HTTP/1.1 as an AWS SDK speaks to an endpoint: requests with a length, answers that can be broken off at
//! any byte. A server library would mend what has to be broken here.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The most that a request may have, of which the service's own limit is a part.
const LARGEST_REQUEST: usize = 64 << 20;
/// So much is read at a time.
const READ: usize = 16 << 10;
const END_OF_HEAD: &[u8] = b"\r\n\r\n";

/// A request that came whole.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

/// An answer that is whole.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

/// One connection from a worker.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    /// What has come and is not yet part of a request.
    buffer: Vec<u8>,
}

// === impl Request ===

impl Request {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    fn parse(head: &str) -> Option<Request> {
        let mut lines = head.split("\r\n");
        let mut first = lines.next()?.split(' ');
        let (method, path) = (first.next()?.to_owned(), first.next()?.to_owned());
        let header = |line: &str| {
            let (name, value) = line.split_once(':')?;
            Some((name.trim().to_owned(), value.trim().to_owned()))
        };
        let headers = lines.map(header).collect::<Option<_>>()?;
        Some(Request { method, path, headers, body: Vec::new() })
    }
}

// === impl Answer ===

impl Answer {
    /// An error of a service.
    pub(super) fn json(status: u16, version: &str, body: &serde_json::Value) -> Answer {
        let content_type = ("content-type".to_owned(), format!("application/x-amz-json-{version}"));
        Answer { status, headers: vec![content_type], body: body.to_string().into_bytes() }
    }

    fn head(&self, framing: &str) -> Vec<u8> {
        let mut head = format!("HTTP/1.1 {} -\r\n{framing}\r\n", self.status);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        head.into_bytes()
    }
}

// === impl Connection ===

impl Connection {
    pub(super) fn new(stream: TcpStream) -> Connection {
        Connection { stream, buffer: Vec::new() }
    }

    /// The next request; `None` when the worker has closed the connection between two of them.
    pub(super) async fn request(&mut self) -> io::Result<Option<Request>> {
        let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        let head_end = loop {
            if let Some(at) = self.buffer.windows(END_OF_HEAD.len()).position(|window| window == END_OF_HEAD) {
                break at;
            }
            self.buffer.reserve(READ);
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return if self.buffer.is_empty() { Ok(None) } else { Err(invalid("half a head")) };
            }
        };
        let head = std::str::from_utf8(&self.buffer[..head_end]).map_err(|_| invalid("a head that is no text"))?;
        let mut request = Request::parse(head).ok_or_else(|| invalid("a head that is none"))?;
        let length = match request.header("content-length") {
            Some(digits) => digits.parse().map_err(|_| invalid("a length that is no number"))?,
            None if request.header("transfer-encoding").is_some() => return Err(invalid("a body without a length")),
            None => 0,
        };
        if length > LARGEST_REQUEST {
            return Err(invalid("more than any service takes"));
        }
        let body_start = head_end + END_OF_HEAD.len();
        while self.buffer.len() < body_start + length {
            self.buffer.reserve(READ);
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(invalid("half a body"));
            }
        }
        let rest = self.buffer.split_off(body_start + length);
        request.body = std::mem::replace(&mut self.buffer, rest).split_off(body_start);
        Ok(Some(request))
    }

    /// Sends a whole answer.
    pub(super) async fn answer(&mut self, answer: &Answer) -> io::Result<()> {
        let mut bytes = answer.head(&format!("content-length: {}", answer.body.len()));
        bytes.extend_from_slice(&answer.body);
        self.stream.write_all(&bytes).await
    }

    /// Sends half of an answer, of which the head promises the whole, and closes the connection.
    pub(super) async fn half_an_answer(mut self, answer: &Answer) -> io::Result<()> {
        let mut bytes = answer.head(&format!("content-length: {}", answer.body.len().max(1)));
        bytes.extend_from_slice(&answer.body[..answer.body.len() / 2]);
        self.stream.write_all(&bytes).await?;
        self.stream.shutdown().await
    }

    /// Begins an answer whose length is not known.
    pub(super) async fn begin(&mut self, answer: &Answer) -> io::Result<()> {
        self.stream.write_all(&answer.head("transfer-encoding: chunked")).await
    }

    /// Goes on with an answer that was begun; no bytes end it.
    pub(super) async fn chunk(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
        chunk.extend_from_slice(bytes);
        chunk.extend_from_slice(b"\r\n");
        self.stream.write_all(&chunk).await
    }

    /// Returns when the worker has closed the connection.
    pub(super) async fn closed(&mut self) {
        let mut ignored = Vec::new();
        // A reset is an end, too.
        while self.stream.read_buf(&mut ignored).await.is_ok_and(|read| read > 0) {
            ignored.clear();
        }
    }

    /// Ends the connection as a peer does that knows nothing of it.
    pub(super) fn reset(self) {
        // Where that is refused the connection ends in the ordinary way, which is as bad for the worker.
        let _refused = self.stream.set_zero_linger();
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// Two ends of a connection.
    async fn pair() -> (TcpStream, Connection) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (far, _) = listener.accept().await.unwrap();
        (near, Connection::new(far))
    }

    #[tokio::test]
    async fn requests_are_read_one_after_another_however_they_are_cut() {
        let (mut near, mut connection) = pair().await;
        let two = b"POST / HTTP/1.1\r\nHost: x\r\nX-Amz-Target: A.B\r\nContent-Length: 3\r\n\r\nabcPOST /p HTTP/1.1\r\ncontent-length: 0\r\n\r\n";
        let writing = tokio::spawn(async move {
            for byte in two {
                near.write_all(&[*byte]).await.unwrap();
                tokio::task::yield_now().await;
            }
            near
        });
        let request = connection.request().await.unwrap().unwrap();
        assert_eq!(
            (request.method.as_str(), request.path.as_str(), request.body.as_slice()),
            ("POST", "/", &b"abc"[..])
        );
        assert_eq!(request.header("x-amz-target"), Some("A.B"));
        assert_eq!(connection.request().await.unwrap().unwrap().path, "/p");
        let mut near = writing.await.unwrap();
        near.shutdown().await.unwrap();
        assert!(connection.request().await.unwrap().is_none());
    }

    #[tokio::test]
    async fn half_a_request_is_none() {
        for half in ["POST / HTTP/1.1\r\nHost", "POST / HTTP/1.1\r\ncontent-length: 9\r\n\r\nabc", "\r\n\r\n"] {
            let (mut near, mut connection) = pair().await;
            near.write_all(half.as_bytes()).await.unwrap();
            near.shutdown().await.unwrap();
            assert!(connection.request().await.is_err(), "{half:?}");
        }
    }
}
