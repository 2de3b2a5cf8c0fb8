//! Answers that are too long, too late, or none.

use super::*;

fn chunk(bytes: usize) -> Vec<u8> {
    [format!("{bytes:x}\r\n").as_bytes(), &vec![b'x'; bytes], b"\r\n"].concat()
}

const CHUNKED: &[u8] = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";

fn one_host(server: &Server, change: impl FnOnce(&mut HttpGrant)) -> (Scene, String) {
    let scene = Scene::new(&[&format!("http://a.b:{}", server.port)], change);
    (scene, format!("http://a.b:{}/", server.port))
}

#[tokio::test]
async fn an_answer_that_says_how_long_it_is_is_refused_before_it_comes() {
    let server = Server::start(async |mut call| {
        call.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1001\r\n\r\n").await;
        call.until_gone().await;
    })
    .await;
    let (scene, url) = one_host(&server, |grant| grant.response_bytes = 1000);
    assert!(matches!(scene.get(&url).await.err(), Some(Error::HttpResponseBodySize(Some(1000)))));
    assert_eq!(scene.count("too-large"), 1);
    server.all_gone().await;
    // One of no body says how long it would be.
    let answered = scene.send(request("HEAD", &url, whole(b""))).await.unwrap();
    assert_eq!((answered.status, answered.body.unwrap().len()), (200, 0));
}

#[tokio::test]
async fn an_answer_without_an_end_is_cut_off_at_its_limit() {
    let server = Server::start(async |mut call| {
        call.write(CHUNKED).await;
        while call.write(&chunk(100)).await {}
    })
    .await;
    let (scene, url) = one_host(&server, |grant| grant.response_bytes = 100_000);
    let answered = scene.get(&url).await.unwrap();
    assert!(matches!(answered.body, Err(Error::HttpResponseBodySize(Some(100_000)))));
    assert_eq!(scene.count("too-large"), 1);
    server.all_gone().await;
}

#[tokio::test]
async fn header_fields_are_bounded() {
    let server = Server::start(async |mut call| {
        let field = format!("x-long: {}\r\n", "y".repeat(1000));
        let fields = if call.line().contains("long") { 40 } else { 8 };
        call.write(format!("HTTP/1.1 204 None\r\n{}\r\n", field.repeat(fields)).as_bytes()).await;
        call.until_gone().await;
    })
    .await;
    let (scene, url) = one_host(&server, |_| {});
    assert_eq!(scene.get(&url).await.unwrap().headers.len(), 8);
    let refused = scene.get(&format!("{url}long")).await.err();
    assert!(matches!(refused, Some(Error::HttpResponseHeaderSectionSize(_))), "{refused:?}");
    assert_eq!((scene.count("answered"), scene.count("too-large")), (1, 1));
}

#[tokio::test]
async fn a_request_is_bounded_whether_or_not_it_says_how_long_it_is() {
    let server = Server::start(async |call| call.until_gone().await).await;
    let (scene, url) = one_host(&server, |grant| grant.request_bytes = 1000);
    let mut declared = request("POST", &url, whole(b""));
    declared.headers_mut().insert("content-length", "1001".parse().unwrap());
    assert!(matches!(scene.send(declared).await.err(), Some(Error::HttpRequestBodySize(Some(1000)))));
    assert_eq!(server.connections(), 0);
    let flowing = scene.send(request("POST", &url, parts(1000, 100))).await.err();
    assert!(matches!(flowing, Some(Error::HttpRequestBodySize(Some(1000)))), "{flowing:?}");
    assert_eq!(scene.count("too-large"), 2);
    server.all_gone().await;
}

#[tokio::test]
async fn an_answer_has_its_time_to_begin_and_to_end() {
    let server = Server::start(async |mut call| {
        if call.line().contains("begins") {
            call.write(CHUNKED).await;
            call.write(&chunk(10)).await;
        }
        call.until_gone().await;
    })
    .await;
    let (scene, url) = one_host(&server, |grant| grant.timeout = Duration::from_millis(200));
    assert!(matches!(scene.get(&url).await.err(), Some(Error::HttpResponseTimeout)));
    let answered = scene.get(&format!("{url}begins")).await.unwrap();
    assert!(matches!(answered.body, Err(Error::HttpResponseTimeout)), "{:?}", answered.body);
    assert_eq!(scene.count("timeout"), 2);
    server.all_gone().await;
    // A guest may be less patient than the host.
    let (scene, url) = one_host(&server, |_| {});
    let short = Some(Duration::from_millis(100));
    let first = RequestOptions { first_byte_timeout: short, ..RequestOptions::default() };
    assert!(matches!(scene.begin(get(&url), first).await.err(), Some(Error::HttpResponseTimeout)));
    let between = RequestOptions { between_bytes_timeout: short, ..RequestOptions::default() };
    let (answer, _connection) = scene.begin(get(&format!("{url}begins")), between).await.unwrap();
    assert!(matches!(read(answer).await.body, Err(Error::HttpResponseTimeout)));
}

#[tokio::test]
async fn an_answer_that_nobody_reads_keeps_no_turn_beyond_its_time() {
    let server = Server::start(async |mut call| {
        call.write(CHUNKED).await;
        while call.write(&chunk(10_000)).await {}
    })
    .await;
    let (scene, url) = one_host(&server, |grant| {
        grant.concurrency = 1;
        grant.timeout = Duration::from_millis(300);
        grant.response_bytes = 1 << 30;
    });
    let (answer, connection) = scene.begin(get(&url), RequestOptions::default()).await.unwrap();
    // Held, as a guest may hold it in a variable of its own.
    tokio::time::timeout(LIMIT, connection).await.expect("the end of the connection").unwrap();
    assert_eq!(scene.client.0.turns.free(), 1);
    server.all_gone().await;
    assert!(matches!(read(answer).await.body, Err(Error::HttpResponseTimeout)));
    assert_eq!(scene.count("timeout"), 1);
}

#[tokio::test]
async fn a_server_that_dies_is_a_failure_of_the_request_alone() {
    let server = Server::start(async |mut call| {
        match call.line() {
            line if line.contains("begins") => {
                call.write(CHUNKED).await;
                call.write(&chunk(10)).await;
            }
            line if line.contains("babble") => {
                call.write(b"SSH-2.0-OpenSSH_9.9\r\n\r\n").await;
            }
            _dies => {}
        };
    })
    .await;
    let (scene, url) = one_host(&server, |_| {});
    let died = scene.get(&url).await.err();
    assert!(matches!(died, Some(Error::HttpResponseIncomplete | Error::ConnectionTerminated)), "{died:?}");
    let babble = scene.get(&format!("{url}babble")).await.err();
    assert!(matches!(babble, Some(Error::HttpProtocolError)), "{babble:?}");
    let answered = scene.get(&format!("{url}begins")).await.unwrap();
    assert!(matches!(answered.body, Err(Error::HttpResponseIncomplete)), "{:?}", answered.body);
    drop(server);
    // The port may take a moment to be free.
    let refused = async {
        while !matches!(scene.get(&url).await, Err(Error::ConnectionRefused)) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LIMIT, refused).await.expect("a refusal");
    assert!(scene.count("failed") >= 4, "{}", scene.count("failed"));
    assert_eq!(scene.client.0.turns.free(), 16);
}

#[tokio::test]
async fn floods_before_and_behind_an_answer_are_bounded() {
    let server = Server::start(async |mut call| {
        match call.line().contains("trailers") {
            true => {
                call.write(CHUNKED).await;
                call.write(&[&chunk(10)[..], b"0\r\n"].concat()).await;
                while call.write(b"x-more: and more\r\n").await {}
            }
            false => while call.write(b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n").await {},
        };
    })
    .await;
    let (scene, url) = one_host(&server, |grant| grant.timeout = Duration::from_millis(500));
    // Answers that are not the answer yet: they are not kept, and end with the request's time.
    let flooded = scene.get(&url).await.err();
    assert!(matches!(flooded, Some(Error::HttpResponseTimeout)), "{flooded:?}");
    let answered = scene.get(&format!("{url}trailers")).await.unwrap();
    let flooded = answered.body.err();
    let is_told = matches!(flooded, Some(Error::HttpResponseIncomplete | Error::HttpResponseTrailerSectionSize(_)));
    assert!(is_told, "{flooded:?}");
    server.all_gone().await;
    assert_eq!((scene.count("timeout"), scene.count("answered")), (1, 0));
}

#[tokio::test]
async fn an_instance_holds_so_many_answers_and_no_more() {
    let server = Server::start(async |call| call.answer(200, "", b"here").await).await;
    let (mut scene, url) = one_host(&server, |grant| grant.timeout = Duration::from_millis(300));
    assert_eq!(scene.answers.available_permits(), ANSWERS);
    scene.answers = Arc::new(Semaphore::new(2));
    let begin = async || scene.begin(get(&url), RequestOptions::default()).await;
    let (first, _second) = (begin().await.unwrap(), begin().await.unwrap());
    assert!(matches!(begin().await.err(), Some(Error::ConnectionLimitReached)));
    assert_eq!((scene.count("busy"), server.connections()), (1, 2));
    // One that is let go makes room, read or not.
    drop(first);
    let third = begin().await.unwrap();
    assert_eq!(third.0.status(), 200);
}
