//! The witness as a client sees it: bytes over a socket, and its log.

use std::{net::SocketAddr, path::Path};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinHandle,
    time::{Duration, sleep, timeout},
};

use super::{
    Options, Witness,
    control::{Command, Manner, send},
    log::{Line, Seen, read},
};

struct World {
    folder: TempDir,
    address: SocketAddr,
    control: SocketAddr,
    running: JoinHandle<std::io::Result<()>>,
}

impl World {
    async fn new() -> Self {
        Self::on(TempDir::new().unwrap(), 60_000).await
    }

    async fn on(folder: TempDir, window_ms: u64) -> Self {
        let local: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let log = folder.path().join("effects.jsonl");
        let options = Options { listen: local, control: local, log, window_ms };
        let witness = Witness::open(&options).await.unwrap();
        let (address, control) = (witness.calls.local_addr().unwrap(), witness.control().unwrap());
        Self { folder, address, control, running: tokio::spawn(witness.run()) }
    }

    /// The process ends and is restarted with its log.
    async fn again(self, window_ms: u64) -> Self {
        self.running.abort();
        Self::on(self.folder, window_ms).await
    }

    /// Arms a manner for the next call about «a».
    async fn arm(&self, manner: Manner) {
        self.arm_for("a", manner).await;
    }

    async fn arm_for(&self, item: &str, manner: Manner) {
        let item = item.to_owned();
        send(self.control, &Command::Arm { item, manner }).await.unwrap();
    }

    async fn has_fired(&self, item: &str) -> bool {
        send(self.control, &Command::Fired { item: item.to_owned() }).await.unwrap()
    }

    async fn bytes(&self, tool: &str, args: &Value, token: &str) -> std::io::Result<String> {
        let meta = json!({"dev.placet/idempotency-key": token, "dev.placet/attempt": 1});
        let params = json!({"name": tool, "arguments": args, "_meta": meta});
        let message = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params});
        let body = message.to_string();
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: w\r\nAuthorization: Bearer s3cret\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let mut stream = TcpStream::connect(self.address).await?;
        stream.write_all(format!("{head}{body}").as_bytes()).await?;
        let mut answer = Vec::new();
        let mut chunk = [0_u8; 65_536];
        // The connection stays open after a whole answer: a pause is its end.
        while let Ok(read) = timeout(Duration::from_millis(300), stream.read(&mut chunk)).await {
            match read? {
                0 => break,
                length => answer.extend_from_slice(&chunk[..length]),
            }
        }
        Ok(String::from_utf8(answer).unwrap())
    }

    async fn call(&self, tool: &str, args: &Value, token: &str) -> Value {
        let answer = self.bytes(tool, args, token).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
    }

    async fn put(&self, token: &str) -> Value {
        self.call("put", &json!({"item": "a"}), token).await["result"]["structuredContent"].clone()
    }

    fn log(&self) -> Vec<Line> {
        read(&self.folder.path().join("effects.jsonl")).unwrap()
    }

    fn effects(&self) -> usize {
        self.log().iter().filter(|line| matches!(line.what, Seen::Effect { .. })).count()
    }
}

async fn effects_become(world: &World, wanted: usize) {
    for _ in 0..100 {
        if world.effects() == wanted {
            return;
        }
        sleep(Duration::from_millis(20)).await;
    }
    panic!("{} effects instead of {wanted}", world.effects());
}

#[tokio::test]
async fn an_effect_is_in_the_log_before_its_answer_is_out() {
    let world = World::new().await;
    let said = world.put("plc_1").await;
    assert_eq!((&said["token"], &said["effect"]), (&json!("plc_1"), &json!(1)));
    assert_eq!(world.effects(), 1);
}

#[tokio::test]
async fn a_keyed_token_has_one_effect_also_after_a_restart_and_another_one_after_its_window() {
    let world = World::new().await;
    let first = world.put("plc_1").await;
    let world = world.again(60_000).await;
    assert_eq!(world.put("plc_1").await, first);
    assert_eq!(world.effects(), 1);
    let world = world.again(0).await;
    assert_ne!(world.put("plc_1").await, first);
    assert_eq!(world.effects(), 2);
}

#[tokio::test]
async fn an_opaque_tool_has_an_effect_for_every_arrival() {
    let world = World::new().await;
    for _ in 0..2 {
        world.call("push", &json!({"item": "a"}), "plc_1").await;
    }
    assert_eq!(world.effects(), 2);
}

#[tokio::test]
async fn a_probe_tells_what_has_happened_and_a_delayed_effect_comes_after_it_said_no() {
    let world = World::new().await;
    let asked = || async {
        world.call("ask", &json!({"token": "plc_1"}), "").await["result"]["structuredContent"]
            .clone()
    };
    world.arm(Manner::DelayedEffect { ms: 400 }).await;
    assert!(world.bytes("post", &json!({"item": "a"}), "plc_1").await.is_err(), "it was not reset");
    assert_eq!(asked().await["state"], "not_found");
    effects_become(&world, 1).await;
    let said = asked().await;
    assert_eq!(said["state"], "committed");
    assert_eq!(said["result"]["structuredContent"]["token"], "plc_1");
    let states: Vec<_> = world
        .log()
        .into_iter()
        .filter_map(
            |line| if let Seen::Asked { state, .. } = line.what { Some(state) } else { None },
        )
        .collect();
    assert_eq!(states, ["not_found", "committed"]);
}

#[tokio::test]
async fn every_manner_has_its_effect_or_none() {
    for (manner, effects) in [
        (Manner::Hang { ms: 50 }, 0),
        (Manner::RefuseBefore, 0),
        (Manner::Error, 0),
        (Manner::HangThen { ms: 50 }, 1),
        (Manner::ResetAfter { bytes: 20 }, 1),
        (Manner::RefuseAfterEffect, 1),
        (Manner::FailAfterEffect { status: 502 }, 1),
        (Manner::Truncated, 1),
        (Manner::Twice, 1),
        (Manner::Late { ms: 50 }, 1),
        (Manner::Slow { ms: 50 }, 1),
        (Manner::Huge { bytes: 100_000 }, 1),
        (Manner::Leak, 1),
    ] {
        let world = World::new().await;
        world.arm(manner).await;
        let answer = world.bytes("push", &json!({"item": "a"}), "plc_1").await.unwrap_or_default();
        assert_eq!(world.effects(), effects, "{manner:?}: {answer}");
        assert!(world.has_fired("a").await && !world.has_fired("b").await, "{manner:?}");
        let whole = answer
            .split_once("\r\n\r\n")
            .is_some_and(|(_, body)| serde_json::from_str::<Value>(body).is_ok());
        let good = matches!(
            manner,
            Manner::Late { .. }
                | Manner::Slow { .. }
                | Manner::Huge { .. }
                | Manner::Leak
                | Manner::RefuseBefore
                | Manner::RefuseAfterEffect
                | Manner::Error
        );
        assert_eq!(whole, good, "{manner:?}: {answer}");
    }
}

#[tokio::test]
async fn a_leak_shows_the_credential_and_two_answers_are_two() {
    let world = World::new().await;
    world.arm(Manner::Leak).await;
    assert!(world.bytes("push", &json!({"item": "a"}), "plc_1").await.unwrap().contains("s3cret"));
    world.arm(Manner::Twice).await;
    let answer = world.bytes("push", &json!({"item": "a"}), "plc_2").await.unwrap();
    assert_eq!(answer.matches("data: ").count(), 2, "{answer}");
}

#[tokio::test]
async fn told_to_exit_it_ends_with_the_effect_in_its_log_and_no_answer() {
    let world = World::new().await;
    world.arm(Manner::Exit).await;
    let answer = world.bytes("push", &json!({"item": "a"}), "plc_1").await.unwrap_or_default();
    assert_eq!(answer, "");
    assert!(world.running.await.unwrap().is_err());
    let lines = read(&world.folder.path().join("effects.jsonl")).unwrap();
    assert!(lines.iter().any(|line| matches!(line.what, Seen::Effect { .. })));
}

#[tokio::test]
async fn a_manner_is_for_the_calls_it_names_and_for_so_many() {
    let world = World::new().await;
    for _ in 0..2 {
        world.arm_for("b", Manner::Error).await;
    }
    assert!(!world.has_fired("b").await, "it is armed, and nobody called");
    let failed = |answer: &Value| answer["result"]["isError"] == json!(true);
    for (tool, item, expected) in
        [("post", "a", false), ("push", "b", true), ("push", "b", true), ("push", "b", false)]
    {
        let answer = world.call(tool, &json!({"item": item}), item).await;
        assert_eq!(failed(&answer), expected, "{tool} {item}");
    }
}

#[tokio::test]
async fn a_line_that_was_cut_off_is_left_out_and_the_next_one_is_whole() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("effects.jsonl");
    std::fs::write(
        &path,
        b"{\"us\":1,\"wall_ms\":2,\"seen\":\"booted\",\"pid\":1}\n{\"us\":3,\"wa",
    )
    .unwrap();
    let world = World::on(folder, 1_000).await;
    world.put("plc_1").await;
    assert_eq!(world.effects(), 1);
    assert!(matches!(world.log()[0].what, Seen::Booted { pid: 1 }));
    assert!(Path::new(&path).is_file());
}
