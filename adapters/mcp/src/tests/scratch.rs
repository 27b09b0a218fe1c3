//! scratch
use super::support::*;
use serde_json::json;
use placet_adapter::adapter::*;
use crate::connector::Endpoint;

async fn show(title: &str, transport: serde_json::Value, calls: &[(&str, serde_json::Value)]) {
    let c = contract(transport.clone(), |file| {
        for (tool, _) in calls { file["capabilities"][tool] = json!({"input_schema": {"type":"object"}, "mode":"local_write","effect":"write","dedup":{"class":"opaque"}}); }
        file["limits"]["result_bytes_max"] = json!(1_000_000);
    });
    println!("=== {title}");
    let ep: Endpoint = endpoint(&c);
    let any = match connector(&std::env::temp_dir()).connect_any(&ep).await { Ok(a) => a, Err(e) => { println!("connect_any: {e}"); return } };
    println!("any: {} {:?}", any.protocol_version, any.server);
    let tools = any.adapter.discover().await.unwrap();
    println!("tools: {:?}", tools.iter().map(|t| t.name.clone()).collect::<Vec<_>>());
    any.adapter.close().await;
    for v in ["2025-06-18", "2025-11-25", "2026-07-28"] {
        let c = contract(transport.clone(), |file| { file["protocol_version"] = json!(v); });
        match connect(&c).await { Ok(a) => { println!("{v}: ok gen {}", a.generation()); a.close().await }, Err(e) => println!("{v}: {e:?}") }
    }
    let adapter = match connect(&c).await { Ok(a) => a, Err(e) => { println!("connect: {e}"); return } };
    let g = adapter.generation();
    for (tool, args) in calls {
        let begun = tokio::time::Instant::now();
        let t = if *tool == "trigger-long-running-operation" { 1500 } else { 10_000 };
        let o = adapter.invoke(dispatch(&c, tool, args.clone()), within(t)).await;
        let s = format!("{o:?}");
        println!("{tool} [{:?}]: {}", begun.elapsed(), &s[..s.len().min(700)]);
    }
    println!("generation moved by {}", adapter.generation() - g);
    adapter.close().await;
    println!("alive after close {}", adapter.is_alive());
}

#[tokio::test]
#[ignore]
async fn npm() {
    let root = "/tmp/npm/node_modules/@modelcontextprotocol";
    std::fs::create_dir_all("/tmp/mcpfs").unwrap();
    std::fs::write("/tmp/mcpfs/a.txt", "hello").unwrap();
    show("filesystem stdio", json!({"type":"mcp_stdio","command":"node","args":[format!("{root}/server-filesystem/dist/index.js"), "/tmp/mcpfs"]}),
        &[("read_text_file", json!({"path":"/tmp/mcpfs/a.txt"})), ("write_file", json!({"path":"/tmp/mcpfs/b.txt","content":"x"})), ("read_text_file", json!({"path":"/etc/passwd"})), ("nope", json!({})), ("read_text_file", json!({}))]).await;
    let calls: Vec<(&str, serde_json::Value)> = vec![
        ("echo", json!({"message":"hi"})), ("get-sum", json!({"a":1,"b":2})), ("get-structured-content", json!({"location":"New York"})),
        ("get-resource-links", json!({"count":3})), ("get-resource-reference", json!({"resourceType":"Text","resourceId":1})), ("get-tiny-image", json!({})),
        ("get-env", json!({})), ("trigger-long-running-operation", json!({"duration":5,"steps":5})), ("trigger-sampling-request", json!({"prompt":"x","maxTokens":10})), ("get-annotated-message", json!({"messageType":"error"})), ("echo", json!({}))];
    show("everything stdio", json!({"type":"mcp_stdio","command":"node","args":[format!("{root}/server-everything/dist/index.js")]}), &calls).await;
    show("everything http", json!({"type":"mcp_http","url":"http://127.0.0.1:3911/mcp","private_network":true}), &calls).await;
}
