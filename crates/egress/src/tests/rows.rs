//! The table of server-side request forgery, row by row, against real sockets.
//!
//! What `destinations` and `exchange` do not cover: redirects in every spelling, names that are rebound between two connections, heads that
//! never end, and bodies that are bombs.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, sleep};

use super::support::{Answers, Server, client, get, policy, read_head};
use crate::{EgressClient, EgressError, Limits, PrivateRanges};

const OK: &[&str] = &["HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"];
const KEY: &str = "x-api-key-canary-4711";

/// A server that answers one request with a redirect to `location`.
async fn redirecting(status: &'static str, location: String) -> Server {
    Server::start(move |mut stream| {
        let answer =
            format!("HTTP/1.1 {status}\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n");
        async move {
            read_head(&mut stream).await;
            drop(stream.write_all(answer.as_bytes()).await);
        }
    })
    .await
}

#[tokio::test]
async fn no_spelling_of_a_location_is_followed_and_no_key_goes_along() {
    let victim = Server::answering(OK).await;
    let port = victim.address.port();
    let locations = [
        format!("http://127.0.0.1:{port}/latest/meta-data/"),
        "http://169.254.169.254/latest/meta-data/iam/security-credentials/".to_owned(),
        format!("//127.0.0.1:{port}/"),
        format!("/\\127.0.0.1:{port}/"),
        format!("\\\\127.0.0.1:{port}\\"),
        format!("http:127.0.0.1:{port}"),
        format!("http://[::ffff:127.0.0.1]:{port}/"),
        format!("http://2130706433:{port}/"),
        "../../admin".to_owned(),
        "?x=1".to_owned(),
        "file:///etc/passwd".to_owned(),
        "gopher://127.0.0.1:6379/_FLUSHALL".to_owned(),
        String::new(),
    ];
    for location in locations {
        for status in
            ["302 Found", "307 Temporary Redirect", "308 Permanent Redirect", "300 Choices"]
        {
            let server = redirecting(status, location.clone()).await;
            let allowed = [
                (server.url("/"), PrivateRanges::Allowed),
                (victim.url("/"), PrivateRanges::Allowed),
            ];
            let allowed = allowed.each_ref().map(|(url, private)| (url.as_str(), *private));
            let client = client(&allowed, Limits::default());
            let post = Request::post(server.url("/"))
                .header("x-api-key", KEY)
                .body(Bytes::from_static(b"{\"transfer\":1}"));
            for request in [get(&server.url("/")), post.unwrap()] {
                let refused = client.send(request).await.unwrap_err();
                let redirected = matches!(refused, EgressError::Redirected { .. });
                assert!(redirected, "{status} {location}: {refused}");
                assert!(!refused.nothing_was_sent(), "the first server may have acted");
                assert!(!refused.to_string().contains(KEY));
            }
            assert_eq!(server.connections(), 2, "{status} {location}: asked once each");
        }
    }
    assert_eq!(victim.connections(), 0);
}

#[tokio::test]
async fn a_name_that_is_rebound_between_two_connections_is_checked_again() {
    let server = Server::answering(OK).await;
    let url = format!("http://tools.test:{}/", server.address.port());
    // A private name that is permitted, then the metadata service, then both at once, then an own listener.
    for rebound in [&["169.254.169.254"][..], &["127.0.0.1", "169.254.169.254"], &["0.0.0.0"]] {
        let resolver = Answers::new(&[&["127.0.0.1"], rebound]);
        let limits = Limits { pool_idle_connections_max: 0, ..Limits::default() };
        let client = client(&[(&url, PrivateRanges::Allowed)], limits)
            .with_resolver(Arc::<Answers>::clone(&resolver));
        let before = server.connections();
        assert_eq!(client.send(get(&url)).await.unwrap().into_body(), "ok");
        sleep(Duration::from_millis(50)).await;
        let refused = client.send(get(&url)).await.unwrap_err();
        assert!(matches!(refused, EgressError::AddressRefused { .. }), "{rebound:?}: {refused}");
        assert!(refused.nothing_was_sent());
        assert_eq!(server.connections(), before + 1, "{rebound:?}");
        assert_eq!(resolver.questions(), 2);
    }
}

#[tokio::test]
async fn a_name_that_leads_to_ourselves_is_refused_in_every_form() {
    let own = Server::answering(OK).await;
    let port = own.address.port();
    for address in ["127.0.0.1", "::ffff:127.0.0.1", "127.8.8.8"] {
        let url = format!("http://tools.test:{port}/");
        // A listener on every address is one on each loopback address too.
        let everywhere = format!("0.0.0.0:{port}").parse().unwrap();
        let policy = policy(&[(&url, PrivateRanges::Allowed)]).refusing_listeners(vec![everywhere]);
        let client = EgressClient::new(policy, Limits::default())
            .unwrap()
            .with_resolver(Answers::new(&[&[address]]));
        let refused = client.send(get(&url)).await.unwrap_err();
        assert!(matches!(refused, EgressError::AddressRefused { .. }), "{address}: {refused}");
    }
    assert_eq!(own.connections(), 0);
}

#[tokio::test]
async fn a_head_that_comes_in_drops_meets_the_deadline_of_the_whole_exchange() {
    let server = Server::start(|mut stream| async move {
        read_head(&mut stream).await;
        for byte in b"HTTP/1.1 200 OK\r\nx-slow: ".iter().chain(std::iter::repeat(&b'z')) {
            if stream.write_all(&[*byte]).await.is_err() {
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let limits = Limits { request_timeout_ms: 300, ..Limits::default() };
    let started = Instant::now();
    let late = server.client(limits).send(get(&server.url("/"))).await.unwrap_err();
    assert_eq!(late, EgressError::DeadlineExceeded { timeout_ms: 300 });
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn a_bomb_stays_packed_and_a_large_one_is_cut() {
    // A compressed body is never unpacked: the limit counts the bytes on the wire.
    for encoding in ["gzip", "deflate", "br", "zstd", "gzip, gzip, gzip"] {
        let server = Server::start(move |mut stream| async move {
            read_head(&mut stream).await;
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-encoding: {encoding}\r\ntransfer-encoding: chunked\r\n\r\n"
            );
            drop(stream.write_all(head.as_bytes()).await);
            let chunk = [b"1000\r\n".as_slice(), &[0x1f; 4_096], b"\r\n"].concat();
            while stream.write_all(&chunk).await.is_ok() {}
        })
        .await;
        let limits = Limits { response_bytes_max: 64 * 1024, ..Limits::default() };
        let refused = server.client(limits).send(get(&server.url("/"))).await.unwrap_err();
        assert_eq!(refused, EgressError::ResponseTooLarge { bytes_max: 64 * 1024 }, "{encoding}");
    }
}

#[tokio::test]
async fn an_answer_that_goes_on_after_its_end_is_not_the_next_answer() {
    // The second response arrives before the second request: a client that reused the connection would believe it.
    let smuggled = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nforged";
    let server = Server::answering(Box::leak(Box::new([smuggled, OK[0]]))).await;
    let client = server.client(Limits::default());
    assert_eq!(client.send(get(&server.url("/"))).await.unwrap().into_body(), "ok");
    sleep(Duration::from_millis(50)).await;
    let second = client.send(get(&server.url("/"))).await;
    assert!(second.is_err() || second.unwrap().into_body() != "forged");
}
