//! Hostile MCP clients: what each is refused, and that nobody else notices.
//!
//! Owns requests over Streamable HTTP that no SDK would send. What the listener does with slow heads, readers and connections is tested where it
//! is served (`placet-api`).

use std::{fs, time::Duration};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    harness::{
        client::{Client, text},
        npm,
        placet::Placet,
        setup::Setup,
        within,
    },
    mcp::stub,
    mcp_clients::{World, capable, list, open, posted, sessioned, stateless, with_tasks},
};

fn delete() -> Value {
    json!({ "name": "files__delete", "arguments": { "path": "a.txt" } })
}

fn body() -> Value {
    stateless("tools/call", delete())
}

#[tokio::test]
async fn what_could_be_read_in_two_ways_is_refused_and_nothing_is_executed() {
    let world = World::holding(100).await;
    world.setup.put("a.txt", "hello");
    let agent = world.setup.agent(&world.placet).await;
    let good = body().to_string();
    let nested = |depth: usize| {
        let deep = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        good.replacen("\"a.txt\"", &deep, 1)
    };
    let table = [
        ("a batch", format!("[{good},{good}]"), 400, -32600),
        (
            "an argument twice",
            good.replacen("\"path\":", "\"path\":\"b\",\"path\":", 1),
            400,
            -32600,
        ),
        ("a method twice", good.replacen('{', "{\"method\":\"tools/list\",", 1), 400, -32600),
        ("a byte order mark", format!("\u{feff}{good}"), 400, -32600),
        ("something after it", format!("{good}{good}"), 400, -32600),
        ("half of it", good.split_at(good.len().div_euclid(2)).0.to_owned(), 400, -32700),
        ("an id that is none", good.replacen("\"id\":1", "\"id\":1.5", 1), 400, -32600),
        ("an id of null", good.replacen("\"id\":1", "\"id\":null", 1), 400, -32600),
        ("another version", good.replacen("\"2.0\"", "\"1.0\"", 1), 400, -32600),
        ("depth", nested(200), 400, -32600),
        ("depth of half a megabyte", nested(500_000), 400, -32600),
        ("depth of two megabytes", nested(1_000_000), 413, -32600),
    ];
    for (what, body, status, code) in table {
        let refused = posted(&agent, "tools/call", "files__delete", body).await;
        assert_eq!(refused.status, status, "{what}: {refused:?}");
        assert_eq!(refused.json()["error"]["code"], code, "{what}: {refused:?}");
    }
    for (method, name) in [("tools/call", "files__read"), ("tools/list", "files__delete")] {
        let refused = posted(&agent, method, name, good.clone()).await;
        assert_eq!(refused.status, 400, "{method} {name}: {refused:?}");
        assert_eq!(refused.json()["error"]["code"], -32020, "{method} {name}: {refused:?}");
    }
    assert!(world.setup.file("a.txt").is_file());
    assert_eq!(world.waiting().await, Vec::<Value>::new());
    let held = posted(&agent, "tools/call", "files__delete", good).await;
    assert_eq!(held.status, 200, "the same, sent well: {held:?}");
    world.held().await;
}

#[tokio::test]
async fn an_id_that_is_a_number_and_one_that_is_its_text_are_of_two_calls() {
    let world = World::holding(100).await;
    let agent = world.setup.agent(&world.placet).await;
    let session = open(&agent).await.headers["mcp-session-id"].to_str().unwrap().to_owned();
    for (id, path) in [(json!(7), "a.txt"), (json!("7"), "b.txt")] {
        let params = json!({ "name": "files__delete", "arguments": { "path": path } });
        let body = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
        let request = agent
            .request(http::Method::POST, "/mcp")
            .header("accept", "application/json, text/event-stream")
            .header("content-type", "application/json")
            .header("mcp-session-id", &session);
        let told = agent.send(request.body(body.to_string().into()).unwrap()).await;
        assert!(told.text().contains("PENDING"), "{told:?}");
    }
    assert_eq!(world.waiting().await.len(), 2);
}

#[tokio::test]
async fn a_fault_in_an_argument_is_the_result_of_its_call_in_a_session() {
    let world = World::holding(100).await;
    let agent = world.setup.agent(&world.placet).await;
    let opened = open(&agent).await;
    let session = opened.headers["mcp-session-id"].to_str().unwrap().to_owned();
    let sent = async |arguments: &str, method: &str| {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":7,"method":"{method}","params":{{"name":"files__read","arguments":{arguments}}}}}"#
        );
        let request = agent
            .request(http::Method::POST, "/mcp")
            .header("accept", "application/json, text/event-stream")
            .header("content-type", "application/json")
            .header("mcp-session-id", &session);
        agent.send(request.body(body.into()).unwrap()).await
    };
    for arguments in [
        r#"{"path":9007199254740993}"#,
        r#"{"path":"\ud83d"}"#,
        r#"{"path":"a.txt","path":"b.txt"}"#,
    ] {
        let told = sent(arguments, "tools/call").await;
        assert_eq!((told.status, told.json()["id"].clone()), (200, json!(7)), "{told:?}");
        let result = &told.json()["result"];
        assert_eq!(result["isError"], true, "{result:#}");
        let said = result["content"][0]["text"].to_string();
        assert!(said.contains("VALIDATION_ERROR: ") && said.contains("/path"), "{said}");
        assert!(!said.contains("/params"), "{said}");
        assert_eq!(sent(arguments, "tools/list").await.status, 400, "no call");
    }
    assert_eq!(sent(r#"{"path":1},"name":"files__list""#, "tools/call").await.status, 400);
}

#[tokio::test]
async fn a_write_whose_client_gave_up_is_not_made_again_and_a_read_is() {
    let setup = stub("late-calls").await;
    let record = setup.path("record");
    let mut contract = setup.read_contract("stub");
    contract["transport"]["args"] = json!([npm::stub(), "late-calls", record]);
    fs::write(setup.contract_file("stub"), contract.to_string()).unwrap();
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    for (tool, made) in [("look", 2), ("note", 1)] {
        let name = format!("stub__{tool}");
        let call = json!({ "name": name, "arguments": { "what": "x" } });
        let asked = || {
            posted(&agent, "tools/call", &name, stateless("tools/call", call.clone()).to_string())
        };
        tokio::time::timeout(Duration::from_millis(500), asked()).await.unwrap_err();
        tokio::time::sleep(Duration::from_secs(3)).await;
        let told = asked().await;
        assert_eq!(told.json()["result"]["isError"], json!(false), "{told:?}");
        let calls = format!("\"name\":\"{tool}\"");
        assert_eq!(fs::read_to_string(&record).unwrap().matches(&calls).count(), made, "{tool}");
    }
}

#[tokio::test]
async fn a_foreign_origin_is_refused_for_every_method() {
    let world = World::holding(100).await;
    let agent = world.setup.agent(&world.placet).await;
    let opened = open(&agent).await;
    let session = opened.headers["mcp-session-id"].to_str().unwrap().to_owned();
    for method in [http::Method::POST, http::Method::GET, http::Method::DELETE] {
        for (header, value) in [
            ("origin", "https://evil.example"),
            ("origin", "null"),
            ("origin", "http://[::1].evil.example"),
        ] {
            let mut request = agent
                .request(method.clone(), "/mcp")
                .header("accept", "application/json, text/event-stream")
                .header("content-type", "application/json")
                .header("mcp-session-id", &session);
            request.headers_mut().unwrap().insert(header, value.parse().unwrap());
            let refused = agent.send(request.body(body().to_string().into()).unwrap()).await;
            assert!(matches!(refused.status, 403 | 421), "{method} {value}: {refused:?}");
        }
    }
    assert_eq!(list(&agent, &session).await.status, 200, "the session is still open");
}

#[tokio::test]
async fn nobody_takes_all_sessions_and_a_place_is_free_again_when_one_is_closed() {
    let setup = Setup::new().with("mcp", json!({ "sessions_max": 6 }));
    let world = World::of(setup).await;
    let agent = world.setup.agent(&world.placet).await;
    let mut sessions = Vec::new();
    for _ in 0..3 {
        let opened = open(&agent).await;
        assert_eq!(opened.status, 200, "{opened:?}");
        sessions.push(opened.headers["mcp-session-id"].to_str().unwrap().to_owned());
    }
    assert_eq!(open(&agent).await.status, 503);
    // Others open theirs, and who needs none is answered.
    assert_eq!(open(&world.ben).await.status, 200);
    let params = json!({ "name": "files__list", "arguments": {} });
    let listed = capable(&agent, json!({}), "tools/call", "files__list", params).await;
    assert!(listed["result"]["isError"] != json!(true) && listed["error"].is_null(), "{listed:#}");
    for session in &sessions {
        assert_eq!(list(&agent, session).await.status, 200);
    }
    let request =
        agent.request(http::Method::DELETE, "/mcp").header("mcp-session-id", &sessions[0]);
    let closed = agent.send(request.body(bytes::Bytes::new()).unwrap()).await;
    assert!((200..300).contains(&closed.status), "{closed:?}");
    assert_eq!(list(&agent, &sessions[0]).await.status, 404);
    assert_eq!(open(&agent).await.status, 200);
}

/// The head of a request to this host, and a part of its body.
async fn begun(placet: &Placet, host: &str, token: &str) -> TcpStream {
    let url = placet.url("/mcp");
    let address = format!("{}:{}", url.host_str().unwrap(), url.port().unwrap());
    let mut stream = TcpStream::connect(&address).await.unwrap();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\naccept: application/json, text/event-stream\r\n\
         content-type: application/json\r\ncontent-length: 1000\r\n\r\n{{\"jsonrpc\""
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

async fn status_of(mut stream: TcpStream) -> String {
    let mut reply = [0; 12];
    within("an answer", stream.read_exact(&mut reply)).await.unwrap();
    String::from_utf8(reply.to_vec()).unwrap()
}

#[tokio::test]
async fn a_foreign_host_is_refused() {
    let world = World::holding(100).await;
    let token = world.setup.token("agent", "dev-agent").await;
    for host in ["evil.example", "127.0.0.1.evil.example", "[::1].evil.example"] {
        let status = status_of(begun(&world.placet, host, &token).await).await;
        assert!(
            ["HTTP/1.1 403", "HTTP/1.1 421", "HTTP/1.1 400"].contains(&status.as_str()),
            "{host}: {status}"
        );
    }
}

#[tokio::test]
async fn bodies_that_do_not_arrive_are_not_waited_for_and_hold_up_nobody() {
    let setup = Setup::new().with("http", json!({ "request_timeout_ms": 1_500 }));
    let world = World::of(setup).await;
    let token = world.setup.token("agent", "dev-agent").await;
    let url = world.placet.url("/mcp");
    let host = format!("{}:{}", url.host_str().unwrap(), url.port().unwrap());
    let mut slow = Vec::new();
    for _ in 0..20 {
        slow.push(begun(&world.placet, &host, &token).await);
    }
    let agent = world.setup.agent(&world.placet).await;
    let listed = posted(&agent, "tools/list", "", stateless("tools/list", json!({})).to_string());
    let listed = tokio::time::timeout(Duration::from_secs(1), listed).await.unwrap();
    assert_eq!(listed.status, 200, "{listed:?}");
    for stream in slow {
        assert_eq!(status_of(stream).await, "HTTP/1.1 408");
    }
}

const DIRECTORY: &str = "tenants:
  acme:
    groups: &groups { approvers: {}, freeze-approvers: {}, emergency: {} }
    users: { ana: {}, ben: &asked { groups: [approvers, freeze-approvers, emergency] } }
    agents: { bot: { owner: ana } }
  globex:
    groups: *groups
    users: { zoe: {}, yan: *asked }
    agents: { bot: { owner: zoe } }
";

async fn bot(setup: &Setup, placet: &Placet, tenant: &str) -> Client {
    let token = setup.configured(&["token", "agent", "bot", "--tenant", tenant]).await;
    placet.client(Some(token.ok().trim().to_owned()))
}

#[tokio::test]
async fn tasks_handles_and_sessions_of_another_tenant_answer_like_none() {
    let setup = Setup::new()
        .with("directory", json!("directory.yaml"))
        .with("mcp", json!({ "hold_ms": 100 }));
    fs::write(setup.path("directory.yaml"), DIRECTORY).unwrap();
    let placet = setup.start().await;
    let (acme, globex) = (bot(&setup, &placet, "acme").await, bot(&setup, &placet, "globex").await);
    let created = with_tasks(&acme, "tools/call", "files__delete", delete()).await;
    let id = text(&created["result"], "taskId");
    for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
        let of = async |id: &str| {
            let params = json!({ "taskId": id, "inputResponses": {} });
            with_tasks(&globex, method, id, params).await["error"].clone()
        };
        let error = of(&id).await;
        assert_eq!(error["code"], -32602, "{method}: {error:#}");
        assert_eq!(error, of("call_none").await, "{method}");
    }
    let awaited = json!({ "name": "placet__await", "arguments": { "handle": id } });
    let of_another = with_tasks(&globex, "tools/call", "placet__await", awaited).await;
    assert_eq!(of_another["result"]["isError"], true, "{of_another:#}");
    assert!(!of_another.to_string().contains(&id), "{of_another:#}");
    let opened = open(&acme).await;
    let session = opened.headers["mcp-session-id"].to_str().unwrap();
    assert_eq!(sessioned(&globex, Some(session), "tools/list", json!({})).await.status, 404);
    let still = with_tasks(&acme, "tasks/get", &id, json!({ "taskId": id })).await;
    assert_eq!(still["result"]["status"], "working", "{still:#}");
    assert_eq!(still["result"]["taskId"], id, "{still:#}");
}
