//! Real sockets: slow heads, many connections, large bodies, closing.

use std::{future::pending, net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::oneshot,
    task::JoinHandle,
    time::timeout,
};

use placet_types::bounded::Bounded;

use super::{ServerError, bind};
use crate::{
    config::ServerConfig,
    testing::{People, TestApi, World},
};

fn config() -> ServerConfig {
    let free = "127.0.0.1:0".parse().unwrap();
    ServerConfig { listen: free, admin_listen: free, ..ServerConfig::default() }
}

/// A served pair of listeners; closed by sending on the channel.
struct Served {
    token: String,
    main: SocketAddr,
    admin: SocketAddr,
    close: oneshot::Sender<()>,
    task: JoinHandle<Result<(), ServerError>>,
}

async fn serve(config: ServerConfig) -> Served {
    serve_world(config, World::new(People::new()).await).await
}

async fn serve_world(config: ServerConfig, world: World) -> Served {
    let bound = bind(config).await.unwrap();
    let (main, admin) = (bound.address(), bound.admin_address());
    let (close, closed) = oneshot::channel::<()>();
    let token = world.people.token("bot");
    let engine = world.engine.clone();
    let task = tokio::spawn(async move {
        let served = bound.serve(engine, async move { drop(closed.await) }).await;
        drop(world);
        served
    });
    Served { token, main, admin, close, task }
}

impl Served {
    /// The head of a request of the agent's.
    fn head(&self, method: &str, path: &str, more: &str) -> String {
        let (main, token) = (self.main, &self.token);
        format!(
            "{method} {path} HTTP/1.1\r\nHost: {main}\r\nAuthorization: Bearer {token}\r\n{more}\r\n"
        )
    }

    /// Whether the admin listener says that the process is alive.
    async fn is_alive(&self) -> bool {
        let admin = self.admin;
        let request =
            format!("GET /healthz HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n");
        exchange(admin, &request).await.starts_with("HTTP/1.1 200 OK")
    }
}

async fn exchange(to: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(to).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut reply = String::new();
    timeout(Duration::from_secs(20), stream.read_to_string(&mut reply)).await.unwrap().unwrap();
    reply
}

#[tokio::test]
async fn both_listeners_answer_on_their_own_ports() {
    let served = serve(config()).await;
    assert_ne!(served.main.port(), 0);
    assert_ne!(served.main, served.admin);
    let tools =
        exchange(served.main, &served.head("GET", "/v1/tools", "Connection: close\r\n")).await;
    assert!(tools.starts_with("HTTP/1.1 200 OK"), "{tools}");
    assert!(served.is_alive().await);
    let wrong_api =
        exchange(served.main, &served.head("GET", "/healthz", "Connection: close\r\n")).await;
    assert!(wrong_api.starts_with("HTTP/1.1 404"), "{wrong_api}");
}

#[tokio::test]
async fn an_address_that_is_taken_is_an_error_that_names_it() {
    let first = bind(config()).await.unwrap();
    let second = bind(ServerConfig { listen: first.address(), ..config() }).await.unwrap_err();
    assert!(second.to_string().contains(&first.address().to_string()), "{second}");
}

#[tokio::test]
async fn a_head_that_does_not_end_and_an_idle_connection_are_cut() {
    let served = serve(ServerConfig { header_timeout_ms: Bounded(300), ..config() }).await;
    for start in ["GET /v1/tools HTTP/1.1\r\nHost: x\r\n", "", &served.head("GET", "/v1/tools", "")]
    {
        let mut stream = TcpStream::connect(served.main).await.unwrap();
        stream.write_all(start.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        let cut = timeout(Duration::from_secs(10), stream.read_to_end(&mut rest)).await;
        assert!(cut.is_ok(), "still open after `{start}`");
    }
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let served = serve(config()).await;
    let many: String = (0..65).map(|n| format!("X-{n}: y\r\n")).collect();
    let reply = exchange(served.main, &served.head("GET", "/v1/tools", &many)).await;
    assert!(reply.starts_with("HTTP/1.1 431"), "{reply}");
}

#[tokio::test]
async fn ten_mebibytes_are_refused_with_an_answer_that_arrives() {
    let served = serve(config()).await;
    let length = 10 * 1024 * 1024;
    let more = format!(
        "Content-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n"
    );
    let mut request = served.head("POST", "/v1/calls", &more);
    request.push_str(&" ".repeat(length));
    let reply = exchange(served.main, &request).await;
    assert!(reply.starts_with("HTTP/1.1 413") && reply.contains("VALIDATION_ERROR"), "{reply}");
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_for_a_place() {
    let config = ServerConfig {
        connections_max: Bounded(1),
        connections_per_address_max: Bounded(1),
        ..config()
    };
    let served = serve(config).await;
    let mut first = TcpStream::connect(served.main).await.unwrap();
    first.write_all(served.head("GET", "/v1/tools", "").as_bytes()).await.unwrap();
    let mut some = [0_u8; 12];
    first.read_exact(&mut some).await.unwrap();
    assert_eq!(&some, b"HTTP/1.1 200");

    let request = served.head("GET", "/v1/tools", "Connection: close\r\n");
    let second = exchange(served.main, &request);
    tokio::pin!(second);
    assert!(timeout(Duration::from_millis(300), &mut second).await.is_err(), "it did not wait");
    assert!(
        served.is_alive().await,
        "the admin listener must not depend on the other's connections"
    );
    drop(first);
    assert!(second.await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn a_connection_ends_with_its_time_and_says_so_before() {
    let served = serve(ServerConfig { connection_ms_max: Bounded(500), ..config() }).await;
    let mut stream = TcpStream::connect(served.main).await.unwrap();
    let request = served.head("GET", "/v1/tools", "");
    let mut replies = String::new();
    let began = tokio::time::Instant::now();
    loop {
        if stream.write_all(request.as_bytes()).await.is_err() {
            break;
        }
        let mut some = [0; 4_096];
        match timeout(Duration::from_secs(5), stream.read(&mut some)).await.unwrap() {
            Ok(0) | Err(_) => break,
            Ok(read) => replies.push_str(&String::from_utf8_lossy(&some[..read])),
        }
        assert!(began.elapsed() < Duration::from_secs(10), "it goes on");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(began.elapsed() >= Duration::from_millis(450), "it ended early");
    assert!(replies.matches("HTTP/1.1 200").count() >= 2, "{replies}");
}

#[tokio::test]
async fn what_is_sent_ahead_is_answered_in_order_as_it_is_read() {
    let served = serve(config()).await;
    let mut stream = TcpStream::connect(served.main).await.unwrap();
    let one = served.head("GET", "/v1/tools", "");
    let last = served.head("GET", "/nowhere", "Connection: close\r\n");
    let (mut reader, mut writer) = stream.split();
    let sending = async {
        writer.write_all((one.repeat(500) + &last).as_bytes()).await.unwrap();
    };
    let reading = async {
        let mut replies = String::new();
        reader.read_to_string(&mut replies).await.unwrap();
        replies
    };
    let both = async { tokio::join!(sending, reading).1 };
    let replies = timeout(Duration::from_secs(20), both).await.unwrap();
    assert_eq!(replies.matches("HTTP/1.1 200").count(), 500);
    assert_eq!(replies.matches("HTTP/1.1 404").count(), 1);
}

#[tokio::test]
async fn closing_answers_who_waits_for_people_and_then_ends() {
    let api = TestApi::new().await;
    let held = api.held("one").await;
    let served = serve_world(config(), api.world).await;
    let request = served.head("GET", &format!("/v1/calls/{}?wait_ms=600000", held.call), "");
    let waiting = tokio::spawn({
        let main = served.main;
        async move { exchange(main, &request).await }
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    served.close.send(()).unwrap();
    let reply = timeout(Duration::from_secs(10), waiting).await.unwrap().unwrap();
    assert!(reply.starts_with("HTTP/1.1 202"), "{reply}");
    timeout(Duration::from_secs(10), served.task).await.unwrap().unwrap().unwrap();
    assert!(TcpStream::connect(served.main).await.is_err());
    assert!(TcpStream::connect(served.admin).await.is_err());
}

#[tokio::test]
async fn closing_does_not_wait_for_ever() {
    let served = serve(ServerConfig { drain_ms: Bounded(300), ..config() }).await;
    let mut stuck = TcpStream::connect(served.main).await.unwrap();
    let more = "Content-Type: application/json\r\nContent-Length: 100\r\n";
    stuck.write_all(served.head("POST", "/v1/calls", more).as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    served.close.send(()).unwrap();
    timeout(Duration::from_secs(10), served.task).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn the_listeners_stay_open_until_they_are_asked_to_close() {
    let bound = bind(config()).await.unwrap();
    let world = World::new(People::new()).await;
    let served =
        timeout(Duration::from_millis(100), bound.serve(world.engine.clone(), pending())).await;
    assert!(served.is_err());
}
