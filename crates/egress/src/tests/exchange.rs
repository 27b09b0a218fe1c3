//! What happens on a permitted connection: limits, deadlines, redirects, lost connections.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc::channel;
use tokio::time::sleep;

use super::support::{Answers, Server, Silence, client, get, read_head};
use crate::{EgressError, Limits, PrivateRanges};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

#[tokio::test]
async fn a_response_is_read_whole_and_the_host_comes_from_the_url() {
    let server = Server::start(|mut stream| async move {
        let head = read_head(&mut stream).await.unwrap();
        let mut body = [0; 4];
        stream.read_exact(&mut body).await.unwrap();
        let answer = format!("{head}{}", String::from_utf8_lossy(&body));
        let length = answer.len();
        let whole = format!("HTTP/1.1 201 Created\r\ncontent-length: {length}\r\n\r\n{answer}");
        stream.write_all(whole.as_bytes()).await.unwrap();
    })
    .await;
    let request = Request::post(server.url("/path?q=1"))
        .header("x-own", "1")
        .body(Bytes::from_static(b"body"));
    let response = server.client(Limits::default()).send(request.unwrap()).await.unwrap();
    assert_eq!(response.status(), 201);
    let seen = String::from_utf8(response.into_body().to_vec()).unwrap().to_ascii_lowercase();
    assert!(seen.starts_with("post /path?q=1 http/1.1\r\n"), "{seen}");
    assert!(seen.contains(&format!("host: {}\r\n", server.address)), "{seen}");
    assert!(seen.contains("content-length: 4\r\n") && seen.ends_with("body"), "{seen}");
    for never in ["cookie", "user-agent", "accept-encoding", "referer", "proxy"] {
        assert!(!seen.contains(never), "{never} in {seen}");
    }
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "only another process can have another environment")]
async fn proxy_variables_are_ignored() {
    let mut again = std::process::Command::new(std::env::current_exe().unwrap());
    again.args([
        "--exact",
        "tests::exchange::a_response_is_read_whole_and_the_host_comes_from_the_url",
    ]);
    for name in ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"]
    {
        again.env(name, "http://127.0.0.1:1");
    }
    let output = again.env_remove("NO_PROXY").env_remove("no_proxy").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[tokio::test]
async fn a_redirect_is_an_error_and_is_not_followed() {
    let target = Server::answering(&[OK]).await;
    for status in [
        "301 Moved",
        "302 Found",
        "303 See Other",
        "307 Temporary",
        "308 Permanent",
        "304 Not Modified",
    ] {
        let location = target.url("/canary");
        let server = Server::start(move |mut stream| {
            let answer =
                format!("HTTP/1.1 {status}\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n");
            async move {
                read_head(&mut stream).await;
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        })
        .await;
        let allowed =
            [(server.url("/"), PrivateRanges::Allowed), (target.url("/"), PrivateRanges::Allowed)];
        let allowed = allowed.each_ref().map(|(url, private)| (url.as_str(), *private));
        let client = client(&allowed, Limits::default());
        for refused in [
            client.send(get(&server.url("/"))).await.unwrap_err(),
            client.stream(get(&server.url("/"))).await.map(drop).unwrap_err(),
        ] {
            assert!(matches!(refused, EgressError::Redirected { .. }), "{status}: {refused}");
            assert!(!refused.nothing_was_sent(), "{status}");
            assert!(!refused.to_string().contains("canary"), "{status}");
        }
    }
    assert_eq!(target.connections(), 0);
}

#[tokio::test]
async fn an_announced_body_above_the_limit_is_not_read() {
    let server = Server::answering(&["HTTP/1.1 200 OK\r\ncontent-length: 101\r\n\r\n"]).await;
    let client = server.client(Limits {
        response_bytes_max: 100,
        stream_bytes_max: 100,
        ..Limits::default()
    });
    let refused = client.send(get(&server.url("/"))).await.unwrap_err();
    assert_eq!(refused, EgressError::ResponseTooLarge { bytes_max: 100 });
    assert!(!refused.nothing_was_sent());
    let refused = client.stream(get(&server.url("/"))).await.map(drop).unwrap_err();
    assert_eq!(refused, EgressError::ResponseTooLarge { bytes_max: 100 });
}

#[tokio::test]
async fn an_endless_body_is_cut_off_and_its_connection_closed() {
    let (closed, mut was_closed) = channel(1);
    let server = Server::start(move |mut stream| {
        let closed = closed.clone();
        async move {
            read_head(&mut stream).await;
            stream
                .write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
                .await
                .unwrap();
            while stream.write_all(b"10\r\n0123456789abcdef\r\n").await.is_ok() {}
            closed.try_send(()).unwrap();
        }
    })
    .await;
    let client = server.client(Limits { response_bytes_max: 1000, ..Limits::default() });
    let refused = client.send(get(&server.url("/"))).await.unwrap_err();
    assert_eq!(refused, EgressError::ResponseTooLarge { bytes_max: 1000 });
    tokio::time::timeout(Duration::from_secs(5), was_closed.recv()).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_body_of_exactly_the_limit_is_read() {
    let server = Server::answering(&[OK]).await;
    let client = server.client(Limits { response_bytes_max: 2, ..Limits::default() });
    assert_eq!(client.send(get(&server.url("/"))).await.unwrap().into_body(), "ok");
}

#[tokio::test]
async fn an_encoded_body_is_not_decoded() {
    let answer = "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\nbomb";
    let server: Server = Server::answering(std::slice::from_ref(Box::leak(Box::new(answer)))).await;
    let response = server.client(Limits::default()).send(get(&server.url("/"))).await.unwrap();
    assert_eq!(response.into_body(), "bomb");
}

#[tokio::test]
async fn a_response_head_above_the_limits_is_refused() {
    for (value_bytes, count) in [(900, 1), (100_000, 1), (1, 200)] {
        let server = Server::start(move |mut stream| async move {
            read_head(&mut stream).await;
            let header = format!("x-canary: {}\r\n", "c".repeat(value_bytes)).repeat(count);
            let answer = format!("HTTP/1.1 200 OK\r\n{header}content-length: 0\r\n\r\n");
            // The client hangs up in the middle of the long ones.
            drop(stream.write_all(answer.as_bytes()).await);
            drop(read_head(&mut stream).await);
        })
        .await;
        let client = server.client(Limits { header_bytes_max: 800, ..Limits::default() });
        let refused = client.send(get(&server.url("/"))).await.unwrap_err();
        let refusals = [
            EgressError::ResponseHeadTooLarge { bytes_max: 800 },
            EgressError::ResponseUnusable {
                reason: "its head is not http or has no end within the limit",
            },
        ];
        assert!(refusals.contains(&refused), "{value_bytes} x {count}: {refused}");
    }
}

#[tokio::test]
async fn an_answer_that_is_not_http_is_refused_without_its_text() {
    let server = Server::answering(&["SSH-2.0-canary\r\n\r\n"]).await;
    let refused = server.client(Limits::default()).send(get(&server.url("/"))).await.unwrap_err();
    assert!(matches!(refused, EgressError::ResponseUnusable { .. }), "{refused}");
    assert!(!refused.nothing_was_sent());
    assert!(!format!("{refused} {refused:?}").contains("canary"));
}

#[tokio::test]
async fn a_slow_server_hits_the_deadline() {
    let server = Server::start(|mut stream| async move {
        read_head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n").await.unwrap();
        while stream.write_all(b"x").await.is_ok() {
            sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let client = server.client(Limits { request_timeout_ms: 200, ..Limits::default() });
    let late = client.send(get(&server.url("/"))).await.unwrap_err();
    assert_eq!(late, EgressError::DeadlineExceeded { timeout_ms: 200 });
    assert!(!late.nothing_was_sent());
}

#[tokio::test]
async fn a_server_that_never_answers_hits_the_deadline() {
    let server = Server::start(|mut stream| async move {
        read_head(&mut stream).await;
        sleep(Duration::from_secs(60)).await;
        drop(stream);
    })
    .await;
    let client = server.client(Limits { request_timeout_ms: 100, ..Limits::default() });
    for late in [
        client.send(get(&server.url("/"))).await.map(drop).unwrap_err(),
        client.stream(get(&server.url("/"))).await.map(drop).unwrap_err(),
    ] {
        assert_eq!(late, EgressError::DeadlineExceeded { timeout_ms: 100 });
    }
}

#[tokio::test]
async fn a_deadline_without_a_connection_means_nothing_was_sent() {
    let destination = [("https://tools.test/", PrivateRanges::Refused)];
    let limits = Limits { request_timeout_ms: 50, ..Limits::default() };
    let client = client(&destination, limits).with_resolver(Arc::new(Silence));
    let late = client.send(get("https://tools.test/")).await.unwrap_err();
    assert_eq!(late, EgressError::DeadlineBeforeRequest { timeout_ms: 50 });
    assert!(late.nothing_was_sent());
    // Nor is it sent where the call has less time than the contract gives a request.
    for (limit, timeout_ms) in [(10, 10), (5_000, 50)] {
        let limit = Duration::from_millis(limit);
        let late = client.send_within(get("https://tools.test/"), limit).await.unwrap_err();
        assert_eq!(late, EgressError::DeadlineBeforeRequest { timeout_ms });
    }
    // Nor in the time in which a late answer is awaited.
    let (limit, listening) = (Duration::from_millis(10), Duration::from_millis(40));
    let late = client.send_listening(get("https://tools.test/"), limit, listening).await;
    assert_eq!(late.unwrap_err(), EgressError::DeadlineBeforeRequest { timeout_ms: 10 });
}

#[tokio::test]
async fn a_late_answer_is_heard_as_long_as_somebody_listens() {
    let server = Server::start(|mut stream| async move {
        read_head(&mut stream).await;
        sleep(Duration::from_secs(1)).await;
        let _sent = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
    })
    .await;
    let client = server.client(Limits::default());
    let limit = Duration::from_millis(500);
    let listening = Duration::from_millis(10);
    let unheard = client.send_listening(get(&server.url("/")), limit, listening).await.unwrap_err();
    assert_eq!(unheard, EgressError::DeadlineExceeded { timeout_ms: 510 });
    let listening = Duration::from_secs(20);
    let heard = client.send_listening(get(&server.url("/")), limit, listening).await.unwrap();
    assert_eq!(heard.body().as_ref(), b"ok");
}

#[tokio::test]
async fn a_silent_resolver_hits_the_connect_timeout() {
    let destination = [("https://tools.test/", PrivateRanges::Refused)];
    let limits = Limits { connect_timeout_ms: 50, ..Limits::default() };
    let client = client(&destination, limits).with_resolver(Arc::new(Silence));
    let late = client.send(get("https://tools.test/")).await.unwrap_err();
    assert!(matches!(late, EgressError::ConnectTimeout { timeout_ms: 50, .. }), "{late}");
    assert!(late.nothing_was_sent());
}

#[tokio::test]
async fn a_refused_connection_means_nothing_was_sent() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    let client = client(&[(&url, PrivateRanges::Allowed)], Limits::default());
    let refused = client.send(get(&url)).await.unwrap_err();
    assert!(matches!(refused, EgressError::ConnectFailed { .. }), "{refused}");
    assert!(refused.nothing_was_sent());
}

#[tokio::test]
async fn the_next_address_is_dialled_when_one_refuses() {
    let server = Server::answering(&[OK]).await;
    let url = format!("http://tools.test:{}/", server.address.port());
    let client = client(&[(&url, PrivateRanges::Allowed)], Limits::default())
        .with_resolver(Answers::new(&[&["127.9.9.9", "::ffff:127.0.0.1"]]));
    assert_eq!(client.send(get(&url)).await.unwrap().into_body(), "ok");
}

#[tokio::test]
async fn a_connection_lost_after_the_request_is_an_unknown_outcome() {
    for reset in [false, true] {
        let server = Server::start(move |mut stream| async move {
            read_head(&mut stream).await;
            if reset {
                stream.set_zero_linger().unwrap();
            }
        })
        .await;
        let lost = server.client(Limits::default()).send(get(&server.url("/"))).await.unwrap_err();
        assert_eq!(lost, EgressError::ConnectionLost, "reset: {reset}");
        assert!(!lost.nothing_was_sent());
        assert_eq!(server.connections(), 1);
    }
}

#[tokio::test]
async fn a_body_that_ends_early_is_a_lost_connection() {
    let server = Server::answering(&["HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nearly"]).await;
    let lost = server.client(Limits::default()).send(get(&server.url("/"))).await.unwrap_err();
    assert_eq!(lost, EgressError::ConnectionLost);
}

#[tokio::test]
async fn a_request_on_a_reused_connection_is_never_sent_twice() {
    let server = Server::start(|mut stream| async move {
        read_head(&mut stream).await;
        stream.write_all(OK.as_bytes()).await.unwrap();
        // The second request is read and then dropped without an answer.
        read_head(&mut stream).await;
    })
    .await;
    let client = server.client(Limits::default());
    assert_eq!(client.send(get(&server.url("/"))).await.unwrap().into_body(), "ok");
    let lost = client.send(get(&server.url("/"))).await.unwrap_err();
    assert_eq!(lost, EgressError::ConnectionLost);
    sleep(Duration::from_millis(50)).await;
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_connection_that_the_peer_closed_is_not_reused() {
    let server = Server::answering(&[OK]).await;
    let client = server.client(Limits::default());
    for connections in 1..=3 {
        assert_eq!(client.send(get(&server.url("/"))).await.unwrap().into_body(), "ok");
        assert_eq!(server.connections(), connections);
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_streamed_body_arrives_piece_by_piece() {
    let server = Server::start(|mut stream| async move {
        read_head(&mut stream).await;
        let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(head).await.unwrap();
        for _ in 0..3 {
            stream.write_all(b"9\r\ndata: a\n\n\r\n").await.unwrap();
            sleep(Duration::from_millis(30)).await;
        }
        stream.write_all(b"0\r\n\r\n").await.unwrap();
    })
    .await;
    let response = server.client(Limits::default()).stream(get(&server.url("/"))).await.unwrap();
    let mut body = response.into_body();
    let mut pieces = Vec::new();
    while let Some(frame) = body.frame().await {
        pieces.extend(frame.unwrap().into_data());
    }
    assert_eq!(pieces, [&b"data: a\n\n"[..]; 3]);
}

#[tokio::test]
async fn a_stream_outlives_the_request_timeout_but_not_its_silence() {
    let server = Server::start(|mut stream| async move {
        read_head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await.unwrap();
        for _ in 0..8 {
            stream.write_all(b"1\r\nx\r\n").await.unwrap();
            sleep(Duration::from_millis(50)).await;
        }
        sleep(Duration::from_secs(60)).await;
    })
    .await;
    let limits = Limits { request_timeout_ms: 200, idle_timeout_ms: 200, ..Limits::default() };
    let mut body = server.client(limits).stream(get(&server.url("/"))).await.unwrap().into_body();
    for _ in 0..8 {
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "x");
    }
    let silent = body.frame().await.unwrap().unwrap_err();
    assert_eq!(silent, EgressError::IdleTimeout { timeout_ms: 200 });
    assert!(body.frame().await.is_none(), "a failed body has ended");
}

#[tokio::test]
async fn a_stream_above_its_limit_is_cut_off() {
    let server = Server::answering(&[
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n01234\r\n5\r\n56789\r\n5\r\nabcde\r\n0\r\n\r\n",
    ])
    .await;
    let client = server.client(Limits { stream_bytes_max: 12, ..Limits::default() });
    let mut body = client.stream(get(&server.url("/"))).await.unwrap().into_body();
    let mut read = 0;
    let refused = loop {
        match body.frame().await.unwrap() {
            Ok(frame) => read += frame.into_data().unwrap().len(),
            Err(refused) => break refused,
        }
    };
    assert_eq!(refused, EgressError::ResponseTooLarge { bytes_max: 12 });
    assert!(read <= 12, "{read}");
    assert!(body.frame().await.is_none());
}

/// Answers two requests on one connection with `answer`, the second after a pause; the connection is then closed.
async fn twice(answer: &'static [&'static str]) -> Server {
    Server::start(move |mut stream| async move {
        for _ in 0..2 {
            if read_head(&mut stream).await.is_none() {
                return;
            }
            for piece in answer {
                if stream.write_all(piece.as_bytes()).await.is_err() {
                    return;
                }
                sleep(Duration::from_millis(20)).await;
            }
        }
    })
    .await
}

const HEAD: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";

#[tokio::test]
async fn a_connection_is_used_again_once_its_body_has_ended() {
    for answer in [&[OK][..], &[HEAD, "1\r\nx\r\n", "0\r\n\r\n"], &["HTTP/1.1 204 No\r\n\r\n"]] {
        let server = twice(answer).await;
        let client = server.client(Limits::default());
        for _ in 0..2 {
            let mut body = client.stream(get(&server.url("/"))).await.unwrap().into_body();
            while body.frame().await.is_some() {}
        }
        assert_eq!(server.connections(), 1, "{answer:?}");
    }
}

#[tokio::test]
async fn a_connection_is_used_again_if_the_end_had_arrived_when_its_body_was_dropped() {
    for (answer, connections) in
        [(&[HEAD, "1\r\nx\r\n0\r\n\r\n"][..], 1), (&[HEAD, "1\r\nx\r\n", "1\r\ny\r\n"], 2)]
    {
        let server = twice(answer).await;
        let client = server.client(Limits::default());
        for _ in 0..2 {
            let mut body = client.stream(get(&server.url("/"))).await.unwrap().into_body();
            assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "x");
        }
        assert_eq!(server.connections(), connections, "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_can_be_read_by_another_task_than_the_one_that_sent() {
    let server = twice(&[HEAD, "1\r\nx\r\n", "1\r\ny\r\n", "0\r\n\r\n"]).await;
    let client = server.client(Limits::default());
    for _ in 0..2 {
        let sent = client.stream(get(&server.url("/"))).await.unwrap();
        let read = tokio::spawn(async move { sent.into_body().collect().await.unwrap() });
        assert_eq!(read.await.unwrap().to_bytes(), "xy");
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn an_exchange_needs_no_task_of_its_own() {
    let server = twice(&[HEAD, "1\r\nx\r\n", "0\r\n\r\n"]).await;
    let client = server.client(Limits::default());
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let response = client.stream(get(&server.url("/"))).await.unwrap();
    // The server's.
    assert_eq!(tasks(), before.saturating_add(1));
    drop(response);
}

#[tokio::test]
async fn a_response_that_comes_before_its_request_was_written_does_not_cut_it_off() {
    const BYTES: usize = 4 * 1024 * 1024;
    let (told, mut arrived) = channel(1);
    let server = Server::start(move |mut stream| {
        let told = told.clone();
        async move {
            read_head(&mut stream).await;
            stream.write_all(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            sleep(Duration::from_millis(100)).await;
            let mut body = vec![0; BYTES];
            let whole = stream.read_exact(&mut body).await.is_ok();
            told.try_send(whole).unwrap();
        }
    })
    .await;
    let request = Request::post(server.url("/")).body(Bytes::from(vec![b'x'; BYTES])).unwrap();
    let response = server.client(Limits::default()).send(request).await.unwrap();
    assert_eq!(response.status(), 202);
    assert!(arrived.recv().await.unwrap());
}

#[tokio::test]
async fn unused_connections_are_closed_after_a_while() {
    let (closed, mut was_closed) = channel(1);
    let server = Server::start(move |mut stream| {
        let closed = closed.clone();
        async move {
            read_head(&mut stream).await;
            stream.write_all(OK.as_bytes()).await.unwrap();
            assert!(read_head(&mut stream).await.is_none());
            closed.try_send(()).unwrap();
        }
    })
    .await;
    let client = server.client(Limits { pool_idle_timeout_ms: 50, ..Limits::default() });
    client.send(get(&server.url("/"))).await.unwrap();
    tokio::time::timeout(Duration::from_secs(5), was_closed.recv()).await.unwrap().unwrap();
    drop(client);
}

#[tokio::test]
async fn nothing_is_written_to_a_connection_that_comes_too_late() {
    let server = Server::answering(&[OK, OK]).await;
    let client = server.client(Limits::default());
    client.send(get(&server.url("/"))).await.unwrap();
    // The unused connection is there at once, but not in time.
    let late = client.send_within(get(&server.url("/")), Duration::ZERO).await.unwrap_err();
    assert_eq!(late, EgressError::DeadlineBeforeRequest { timeout_ms: 0 });
    assert!(late.nothing_was_sent());
}
