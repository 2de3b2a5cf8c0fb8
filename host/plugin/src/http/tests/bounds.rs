//! What requests of several guests share, and what hangs before there is a connection.

use super::*;

const SHORT: Duration = Duration::from_millis(100);

async fn until(what: &str, holds: impl Fn() -> bool) {
    let reached = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(LIMIT, reached).await.unwrap_or_else(|_| panic!("{what}"));
}

#[tokio::test]
async fn a_lookup_that_hangs_ends_for_its_guest_and_keeps_its_turn() {
    let scene = Scene::new(&["http://*"], |grant| {
        grant.concurrency = 2;
        grant.connect_timeout = SHORT;
    });
    scene.names.hangs.send_replace(true);
    assert!(matches!(scene.get("http://a.b/").await.err(), Some(Error::DnsTimeout)));
    assert_eq!((scene.count("timeout"), scene.client.0.turns.free()), (1, 1));
    scene.names.hangs.send_replace(false);
    until("the end of the lookup", || scene.client.0.turns.free() == 2).await;
}

#[tokio::test]
async fn lookups_of_all_guests_are_bounded_and_waited_for_in_time() {
    let scene = Scene::new(&["http://*"], |grant| grant.connect_timeout = SHORT);
    let lookups = &scene.shared.lookups;
    let all = lookups.available_permits();
    assert!((1..512).contains(&all), "{all} at a time");
    // All but one are away.
    let away = lookups.acquire_many(u32::try_from(all - 1).unwrap()).await.unwrap();
    scene.names.hangs.send_replace(true);
    let other = scene.beside("others", |_| {});
    assert!(matches!(scene.get("http://a.b/").await.err(), Some(Error::DnsTimeout)));
    // Nobody waits for that one any more, and it is on its way all the same.
    assert!(matches!(other.get("http://a.b/").await.err(), Some(Error::DnsTimeout)));
    assert_eq!(scene.names.asked.load(Ordering::Relaxed), 1);
    scene.names.hangs.send_replace(false);
    drop(away);
    until("the end of the lookup", || lookups.available_permits() == all).await;
}

#[tokio::test]
async fn a_name_that_ends_with_a_dot_is_looked_up_with_it() {
    let server = Server::start(async |call| call.answer(200, "", b"").await).await;
    let port = server.port;
    let scene = Scene::new(&[&format!("http://api.example.com:{port}")], |_| {});
    for host in ["api.example.com.", "API.example.com"] {
        assert_eq!(scene.get(&format!("http://{host}:{port}/")).await.unwrap().status, 200);
    }
    assert_eq!(*scene.names.names.lock().unwrap(), ["api.example.com.", "api.example.com"]);
}

#[tokio::test]
async fn versions_of_a_plugin_have_the_turns_of_one() {
    let server = Server::start(async |call| call.until_gone().await).await;
    let first = Scene::new(&[&format!("http://a.b:{}", server.port)], |grant| grant.concurrency = 2);
    let url = format!("http://a.b:{}/", server.port);
    let next = first.beside("flights", |grant| (grant.concurrency, grant.timeout) = (1, SHORT));
    let holds = async { tokio::join!(first.get(&url), first.get(&url)) };
    let others = async {
        until("both requests", || server.connections() == 2).await;
        let busy = next.get(&url).await.err();
        assert!(matches!(busy, Some(Error::ConnectionLimitReached)), "{busy:?}");
        // Another processor has its own.
        let late = first.beside("others", |grant| grant.timeout = SHORT).get(&url).await.err();
        assert!(matches!(late, Some(Error::HttpResponseTimeout)), "{late:?}");
    };
    tokio::select! {
        held = holds => panic!("{}", held.0.is_ok()),
        () = others => {}
    }
    server.all_gone().await;
    // What is left when the first version is gone is the next one's.
    drop(first);
    assert_eq!(next.client.0.turns.free(), 1);
    assert_eq!(server.connections(), 3);
}

#[tokio::test]
async fn certificates_that_cannot_be_read_in_time_are_a_connection_that_is_not_made() {
    let server = Server::start(async |call| call.until_gone().await).await;
    let connect = |grant: &mut HttpGrant| (grant.connect_timeout, grant.concurrency) = (SHORT, 2);
    let scene = Scene::with(&[&format!("*:{}", server.port)], connect, Tls::hanging().await);
    let late = scene.get(&format!("https://api.example.com:{}/", server.port)).await.err();
    assert!(matches!(late, Some(Error::ConnectionTimeout)), "{late:?}");
    // Who waits for them is no more than who may make a request.
    assert_eq!((scene.count("timeout"), scene.client.0.turns.free()), (1, 1));
}
