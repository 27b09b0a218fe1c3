//! Connections that somebody keeps and does not use: they take neither all places nor a place for ever.
//!
//! Owns the attacks of one machine on the number of connections, against the built program with few of them allowed.

use std::{net::SocketAddr, time::Duration};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    time::{Instant, sleep, timeout},
};

use crate::{
    harness::{
        client::text,
        placet::Placet,
        setup::{Setup, plan},
        until,
    },
    mcp_clients::open,
};

/// How long somebody waits who has done nothing wrong.
const PROMPTLY: Duration = Duration::from_secs(5);

fn address(placet: &Placet) -> SocketAddr {
    placet.base.socket_addrs(|| None).unwrap()[0]
}

/// A connection from an address of this machine that buffers as little as can be.
async fn connect(placet: &Placet, from: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(1).unwrap();
    socket.bind(format!("{from}:0").parse().unwrap()).unwrap();
    socket.connect(address(placet)).await.unwrap()
}

fn head(placet: &Placet, path: &str, more: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: {}\r\n{more}\r\n", address(placet))
}

/// The answer to a request of its own connection, if there is one in this time.
async fn asked(placet: &Placet, from: &str, path: &str, token: &str) -> Option<String> {
    let more = format!("authorization: Bearer {token}\r\nconnection: close\r\n");
    let exchange = async {
        let mut stream = connect(placet, from).await;
        stream.write_all(head(placet, path, &more).as_bytes()).await.ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.ok()?;
        Some(String::from_utf8_lossy(&answer).into_owned())
    };
    timeout(PROMPTLY, exchange).await.ok()?.filter(|answer| !answer.is_empty())
}

fn is_served(answer: Option<&String>) -> bool {
    answer.is_some_and(|answer| answer.starts_with("HTTP/1.1 200"))
}

/// Whether the peer has closed a connection, as far as can be seen in a moment.
async fn is_closed(stream: &mut TcpStream) -> bool {
    let mut some = [0; 64];
    let read = timeout(Duration::from_millis(100), stream.read(&mut some)).await;
    matches!(read, Ok(Ok(0) | Err(_)))
}

#[tokio::test]
async fn who_sends_requests_and_never_reads_loses_the_connection() {
    let limits = json!({
        "connections_max": 8, "connections_per_address_max": 8, "write_timeout_ms": 1_000, "header_timeout_ms": 1_000,
    });
    let setup = Setup::new().with("http", limits);
    let placet = setup.start().await;
    let token = setup.token("agent", "dev-agent").await;
    assert!(is_served(asked(&placet, "127.0.0.1", "/v1/tools", &token).await.as_ref()));
    let many = head(&placet, "/openapi.json", "").repeat(200);
    let mut silent = Vec::new();
    for _ in 0..8 {
        let mut stream = connect(&placet, "127.0.0.1").await;
        stream.write_all(many.as_bytes()).await.unwrap();
        silent.push(stream);
    }
    // Anyone who watches is told, on the other listener.
    until("it is not ready", || async { placet.ask("/readyz").await.status == 503 }).await;
    let ready = placet.ask("/readyz").await;
    assert!(ready.text().contains("http.connections_max"), "{}", ready.text());
    let began = Instant::now();
    until("the others are served again", || async {
        is_served(asked(&placet, "127.0.0.1", "/v1/tools", &token).await.as_ref())
    })
    .await;
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    until("it is ready again", || async { placet.ask("/readyz").await.status == 200 }).await;
    drop(silent);
    placet.stop().await;
}

#[tokio::test]
async fn half_heads_of_one_address_leave_places_for_others() {
    let limits = json!({
        "connections_max": 8, "connections_per_address_max": 4, "header_timeout_ms": 600_000,
    });
    let setup = Setup::new().with("http", limits);
    let placet = setup.start().await;
    let token = setup.token("agent", "dev-agent").await;
    let mut half = Vec::new();
    for _ in 0..12 {
        let mut stream = connect(&placet, "127.0.0.1").await;
        stream.write_all(b"GET /v1/tools HTTP/1.1\r\nhost: x\r\n").await.unwrap();
        half.push(stream);
    }
    let other = asked(&placet, "127.0.0.2", "/v1/tools", &token).await;
    assert!(is_served(other.as_ref()), "{other:?}");
    let mut closed = 0;
    for stream in &mut half {
        closed += usize::from(is_closed(stream).await);
    }
    assert_eq!(closed, 8, "those beyond the share of the address are closed");
    assert!(placet.log().contains("http.connections_per_address_max"), "{}", placet.log());
    // Places come back with the connections.
    drop(half);
    until("the address is served again", || async {
        is_served(asked(&placet, "127.0.0.1", "/v1/tools", &token).await.as_ref())
    })
    .await;
    placet.stop().await;
}

#[tokio::test]
async fn long_polls_of_one_token_leave_connections_for_others() {
    let limits = json!({ "connections_max": 16, "connections_per_address_max": 16 });
    let setup = Setup::new().with("http", limits);
    setup.put("a.txt", "x");
    let placet = setup.start().await;
    let agent = setup.token("agent", "dev-agent").await;
    let ben = setup.token("user", "ben").await;
    let delete = plan("files__delete", "s1", json!({ "path": "a.txt" }));
    let held = placet.client(Some(agent.clone())).call(&delete).await.held();
    let path = format!("/v1/calls/{}?wait_ms=600000", text(&held, "call_id"));
    let wait = head(&placet, &path, &format!("authorization: Bearer {agent}\r\n"));
    let mut polls = Vec::new();
    for _ in 0..10 {
        let mut stream = connect(&placet, "127.0.0.1").await;
        stream.write_all(wait.as_bytes()).await.unwrap();
        polls.push(stream);
        sleep(Duration::from_millis(20)).await;
    }
    // Four wait; of the others each is told at once that there are too many.
    let mut told = 0;
    for stream in &mut polls {
        let mut some = vec![0; 4_096];
        if let Ok(read) = timeout(Duration::from_millis(200), stream.read(&mut some)).await {
            let answer = String::from_utf8_lossy(&some[..read.unwrap()]).into_owned();
            assert!(
                answer.starts_with("HTTP/1.1 503") && answer.contains("retry-after"),
                "{answer}"
            );
            let body = answer.split_once("\r\n\r\n").unwrap().1;
            let problem: Value = serde_json::from_str(body).unwrap();
            assert_eq!(problem["error_code"], "OVERLOADED", "{problem:#}");
            assert_eq!(problem["execution"], "not_executed", "{problem:#}");
            told += 1;
        }
    }
    assert_eq!(told, 6);
    let inbox = asked(&placet, "127.0.0.1", "/v1/inbox", &ben).await;
    assert!(is_served(inbox.as_ref()), "{inbox:?}");
    drop(polls);
    until("the agent is served again", || async {
        is_served(asked(&placet, "127.0.0.1", "/v1/tools", &agent).await.as_ref())
    })
    .await;
    placet.stop().await;
}

#[tokio::test]
async fn mcp_streams_of_one_token_leave_connections_for_others() {
    let limits = json!({ "connections_max": 16, "connections_per_address_max": 16 });
    let setup = Setup::new().with("http", limits);
    let placet = setup.start().await;
    let agent = setup.token("agent", "dev-agent").await;
    let ben = setup.token("user", "ben").await;
    let client = placet.client(Some(agent.clone()));
    let (mut streams, mut refused) = (Vec::new(), 0);
    for _ in 0..8 {
        let opened = open(&client).await;
        let session = opened.headers.get("mcp-session-id").map(|id| id.to_str().unwrap());
        let more = format!(
            "authorization: Bearer {agent}\r\naccept: text/event-stream\r\nmcp-session-id: {}\r\n",
            session.unwrap_or("none")
        );
        let mut stream = connect(&placet, "127.0.0.1").await;
        stream.write_all(head(&placet, "/mcp", &more).as_bytes()).await.unwrap();
        let mut status = [0; 12];
        timeout(PROMPTLY, stream.read_exact(&mut status)).await.unwrap().unwrap();
        match &status {
            b"HTTP/1.1 200" => streams.push(stream),
            b"HTTP/1.1 503" => refused += 1,
            _ => panic!("{}", String::from_utf8_lossy(&status)),
        }
    }
    assert_eq!((streams.len(), refused), (4, 4));
    let tools = asked(&placet, "127.0.0.1", "/v1/tools", &agent).await;
    assert!(is_served(tools.as_ref()), "idle streams do not keep the agent from asking: {tools:?}");
    let inbox = asked(&placet, "127.0.0.1", "/v1/inbox", &ben).await;
    assert!(is_served(inbox.as_ref()), "{inbox:?}");
    drop(streams);
    placet.stop().await;
}
