//! MCP over standard input and output: `placet mcp`, `placet wrap` and `placet init --import`, as clients and people use them.
//!
//! Owns what is particular to them: the engine in the background that they share, its death, and contracts that come of a client's own
//! configuration. The session of a client is `real_clients.rs`'. Invariant: no engine in the background outlives its test.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

use crate::{
    harness::{client::text, npm, scripted::Scripted, setup::Setup, until, watcher, within},
    mcp_clients::{MODES, Sdk},
    program,
    real_clients::{Cancelled, Inspector, World},
    workspace,
};

/// The command of `placet mcp` on this set-up.
fn command(setup: &Setup) -> Vec<String> {
    let config = setup.config_file().display().to_string();
    vec![program::placet().display().to_string(), "mcp".to_owned(), "-f".to_owned(), config]
}

/// The same as the scripts of clients take it.
fn server(setup: &Setup) -> String {
    json!(command(setup)).to_string()
}

/// The engine that was started in the background; it ends with the test.
struct Background {
    pid: Pid,
    data: PathBuf,
}

impl Background {
    fn of(data: &Path) -> Self {
        let pid = Self::named(data).expect("an engine listens");
        watcher::watch(u32::try_from(pid.as_raw_nonzero().get()).ok());
        Self { pid, data: data.to_owned() }
    }

    /// The one that says that it listens.
    fn named(data: &Path) -> Option<Pid> {
        let text = fs::read_to_string(data.join("listening.json")).ok()?;
        let said: Value = serde_json::from_str(&text).ok()?;
        Pid::from_raw(said["pid"].as_i64()?.try_into().ok()?)
    }

    fn kill(&self, signal: Signal) {
        // Unless it has ended.
        let _asked = kill_process(self.pid, signal).is_ok();
    }

    /// Waits until it runs no more, whether anybody has asked for its exit code or not.
    async fn ends(&self) {
        let process = format!("/proc/{}", self.pid.as_raw_nonzero());
        // Its locks end with the last of its threads.
        let threads =
            || fs::read_dir(format!("{process}/task")).map_or(0, std::iter::Iterator::count);
        let is_dead = |stat: String| stat.contains(") Z ");
        let runs = || {
            let stat = fs::read_to_string(format!("{process}/stat"));
            threads() > 1 || stat.is_ok_and(|stat| !is_dead(stat))
        };
        until("the engine has ended", || async { !runs() }).await;
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.kill(Signal::KILL);
        // One that was started after it, where the test has failed before it knew.
        let Some(next) = Self::named(&self.data) else { return };
        let command = fs::read_to_string(format!("/proc/{}/cmdline", next.as_raw_nonzero()));
        if command.is_ok_and(|command| command.contains(&*self.data.to_string_lossy())) {
            let _asked = kill_process(next, Signal::KILL).is_ok();
        }
    }
}

/// A client that writes what it wants.
struct Raw {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Raw {
    fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().unwrap();
        watcher::watch(child.id());
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { input: child.stdin.take().unwrap(), output, child }
    }

    fn on(setup: &Setup) -> Self {
        let words = command(setup);
        let mut command = Command::new(&words[0]);
        Self::start(command.args(&words[1..]))
    }

    async fn says(&mut self, line: &str) {
        self.input.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    async fn hears(&mut self) -> Value {
        let line = within("a line of the server", self.output.next_line()).await.unwrap();
        let line = line.expect("it goes on");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    async fn asks(&mut self, id: u64, method: &str, params: Value) -> Value {
        self.hears_until_answered(id, method, params).await.pop().unwrap()
    }

    /// What it says before it answers, and the answer.
    async fn hears_until_answered(&mut self, id: u64, method: &str, params: Value) -> Vec<Value> {
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.says(&request.to_string()).await;
        let mut all = Vec::new();
        loop {
            let heard = self.hears().await;
            assert!(heard["id"] == id || heard["method"].is_string(), "{heard:#}");
            let is_answer = heard["id"] == id;
            all.push(heard);
            if is_answer {
                return all;
            }
        }
    }

    async fn begins(&mut self) {
        let params = json!({
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "raw", "version": "1" },
        });
        let hello = self.asks(0, "initialize", params).await;
        assert_eq!(hello["result"]["protocolVersion"], "2025-11-25", "{hello:#}");
        self.says(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
    }

    async fn calls(&mut self, id: u64, tool: &str, args: Value) -> Value {
        self.asks(id, "tools/call", json!({ "name": tool, "arguments": args })).await
    }

    /// Closes the input, as clients do that end.
    async fn ends(self) -> Option<i32> {
        let Self { mut child, input, output } = self;
        drop((input, output));
        within("it ends", child.wait()).await.unwrap().code()
    }
}

#[tokio::test]
async fn a_client_on_the_typescript_sdk_completes_its_session_over_stdio() {
    let world = World::start().await;
    let mut command = Command::new(npm::node());
    command.arg(workspace::root().join("tests/peers/mcp_client.mjs"));
    command.args([npm::modules(), server(&world.setup)]);
    let mut client = Scripted::start(command).await;
    world.session(&mut client, Cancelled::Withdrawn).await;
}

#[tokio::test]
async fn inspector_completes_its_session_over_stdio() {
    let world = World::start().await;
    let mut client = Inspector { server: command(&world.setup), era: "legacy" };
    world.session(&mut client, Cancelled::Held).await;
}

#[tokio::test]
async fn a_client_on_the_python_sdk_completes_its_session_over_stdio_in_both_revisions() {
    for (mode, revision) in MODES {
        let world = World::start().await;
        let (mut client, spoken) = Sdk::to(&server(&world.setup), &[mode]).await;
        assert_eq!(spoken, revision);
        world.session(&mut client, Cancelled::Either).await;
    }
}

#[tokio::test]
async fn clients_of_one_folder_share_an_engine_that_is_started_again_when_it_dies() {
    let setup = Setup::new();
    setup.put("a.txt", "hello");
    let (mut one, mut other) = (Raw::on(&setup), Raw::on(&setup));
    tokio::join!(one.begins(), other.begins());
    let engine = Background::of(&setup.data());
    let read = async |client: &mut Raw, id| {
        let answer = client.calls(id, "files__read", json!({ "path": "a.txt" })).await;
        assert!(answer["result"]["content"].to_string().contains("hello"), "{answer:#}");
    };
    read(&mut one, 1).await;
    read(&mut other, 1).await;
    // Wherever it listens, people find its console.
    let said = fs::read_to_string(setup.data().join("listening.json")).unwrap();
    let said: Value = serde_json::from_str(&said).unwrap();
    let link = setup.configured(&["console"]).await;
    assert!(link.ok().starts_with(said["url"].as_str().unwrap()), "{link:?}");
    engine.kill(Signal::KILL);
    engine.ends().await;
    // Many at once find out, and begin one session between them.
    for id in 20..28 {
        let params = json!({ "name": "files__read", "arguments": { "path": "a.txt" } });
        let request =
            json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
        one.says(&request.to_string()).await;
    }
    for _ in 20..28 {
        let answer = one.hears().await;
        assert!(answer["result"]["content"].to_string().contains("hello"), "{answer:#}");
    }
    read(&mut other, 2).await;
    let second = Background::of(&setup.data());
    assert_ne!(second.pid, engine.pid);
    // What is no message is answered, and what comes after it is too.
    other.says("{").await;
    assert_eq!(other.hears().await["error"]["code"], -32_700);
    other.says("[]").await;
    assert_eq!(other.hears().await["error"]["code"], -32_600);
    read(&mut other, 3).await;
    assert_eq!((one.ends().await, other.ends().await), (Some(0), Some(0)));
    second.kill(Signal::TERM);
    second.ends().await;
}

#[tokio::test]
async fn a_call_that_is_open_when_the_engine_dies_is_answered_and_no_engine_is_started_for_it() {
    let setup = Setup::new();
    setup.put("a.txt", "hello");
    let mut client = Raw::on(&setup);
    client.begins().await;
    let engine = Background::of(&setup.data());
    let params = json!({ "name": "files__delete", "arguments": { "path": "a.txt" } });
    let held = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    client.says(&held.to_string()).await;
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    engine.kill(Signal::KILL);
    let answer = client.hears().await;
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(answer["id"] == 1 && message.contains("look before you repeat it"), "{answer:#}");
    // Nobody asks for anything: who stops an engine does not get another one.
    engine.ends().await;
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    let log = fs::read_to_string(setup.data().join("listening.json")).unwrap();
    assert!(log.contains(&engine.pid.as_raw_nonzero().to_string()), "another one runs: {log}");
    // On SIGTERM it ends like on the end of its input.
    let pid = Pid::from_raw(client.child.id().unwrap().try_into().unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    assert_eq!(within("it ends", client.child.wait()).await.unwrap().code(), Some(0));
}

#[tokio::test]
async fn an_engine_in_the_background_stops_when_nobody_uses_it() {
    let setup = Setup::new().arg("--unused-stop-s").arg("1");
    let placet = setup.start().await;
    let mut client = Raw::on(&setup);
    client.begins().await;
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    client.calls(1, "files__list", json!({})).await;
    assert_eq!(client.ends().await, Some(0));
    let gone = placet.gone().await;
    assert!(gone.status.success(), "{gone:?}");
    gone.says(&["no client uses this data folder any more"]);
}

/// `placet wrap` in front of `server-filesystem`, with a home folder of its own.
fn wrapped(setup: &Setup, shared: &str) -> Command {
    let mut command = Command::new(program::placet());
    command.env("PLACET_HOME", setup.path("home")).current_dir(setup.path("data"));
    command.args(["wrap", "--name", "fs", "--mode", "local_write", "--", &npm::node()]);
    command.args([&npm::server("server-filesystem"), &setup.path(shared).display().to_string()]);
    command
}

#[tokio::test]
async fn a_wrapped_server_has_its_own_names_and_is_governed() {
    let setup = Setup::new();
    fs::create_dir(setup.path("one")).unwrap();
    fs::write(setup.path("one/a.txt"), "hello").unwrap();
    let mut first = Raw::start(&mut wrapped(&setup, "one"));
    first.begins().await;
    let data = setup.path("home/placet-data");
    let _engine = Background::of(&data);
    let path = setup.path("one/a.txt").display().to_string();
    let told = first.calls(1, "read_text_file", json!({ "path": path })).await;
    assert!(told["result"]["content"].to_string().contains("hello"), "{told:#}");
    assert!(setup.path("home/contracts/dev/fs.yaml").is_file());
    // A second one uses what is there; another server of the same name is none.
    let mut second = Raw::start(&mut wrapped(&setup, "one"));
    second.begins().await;
    let other = within("it ends", wrapped(&setup, "two").output()).await.unwrap();
    let said = String::from_utf8(other.stderr).unwrap();
    assert!(said.contains("is another server") && said.contains("--name"), "{said}");
    assert!(other.stdout.is_empty() && other.status.code() == Some(2), "{said}");
    // One that is new is there for a running engine too.
    fs::create_dir(setup.path("two")).unwrap();
    let mut words = Command::new(program::placet());
    words.env("PLACET_HOME", setup.path("home")).current_dir(setup.path("data"));
    words.args(["wrap", "--mode", "read_only", "--"]);
    words.args([&npm::node(), &npm::server("server-everything"), "stdio"]);
    let mut third = Raw::start(&mut words);
    third.begins().await;
    let tools = third.asks(1, "tools/list", json!({})).await;
    assert!(tools["result"]["tools"].to_string().contains("\"echo\""), "{tools:#}");
    let slow = ("trigger-long-running-operation", json!({ "duration": 1, "steps": 2 }));
    tells_its_steps(&mut third, 2, slow, 2).await;
    // Steps and answer in one breath: faster than anybody is told of one.
    let peer = workspace::root().join("adapters/mcp/src/tests/peer.py").display().to_string();
    let mut words = Command::new(program::placet());
    words.env("PLACET_HOME", setup.path("home")).current_dir(setup.path("data"));
    words.args(["wrap", "--mode", "read_only", "--", "python3", "-u", &peer, "counts"]);
    let mut fourth = Raw::start(&mut words);
    fourth.begins().await;
    for id in 1..=20 {
        tells_its_steps(&mut fourth, id, ("count", json!({})), 3).await;
    }
    for client in [first, second, third, fourth] {
        assert_eq!(client.ends().await, Some(0));
    }
}

/// What a server counts while it is at work comes to the client that asked for it: the numbers, under the client's own token.
async fn tells_its_steps(client: &mut Raw, id: u64, call: (&str, Value), steps: u32) {
    let params =
        json!({ "name": call.0, "arguments": call.1, "_meta": { "progressToken": "mine" } });
    let mut heard = client.hears_until_answered(id, "tools/call", params).await;
    let answer = heard.pop().unwrap();
    assert_eq!(answer["result"]["isError"], json!(false), "{answer:#}");
    let told: Vec<Value> = heard
        .into_iter()
        .filter(|told| told["method"] == "notifications/progress")
        .map(|mut told| told["params"].take())
        .collect();
    let of = f64::from(steps);
    let step = |done| json!({ "progressToken": "mine", "progress": f64::from(done), "total": of });
    assert_eq!(told, (1..=steps).map(step).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_result_says_what_became_of_its_call_whatever_the_server_answers() {
    let setup = Setup::new();
    let peer = workspace::root().join("adapters/mcp/src/tests/peer.py").display().to_string();
    let wrap = |mode: &str| {
        let mut words = Command::new(program::placet());
        words.env("PLACET_HOME", setup.path("home")).current_dir(setup.path("data"));
        words.args(["wrap", "--name", &mode.replace('_', "-"), "--mode", mode, "--"]);
        words.args(["python3", "-u", &peer, "lies"]);
        words
    };
    let mut reads = Raw::start(&mut wrap("read_only"));
    reads.begins().await;
    let _engine = Background::of(&setup.path("home/placet-data"));
    let begins = |answer: &Value, how: &str| {
        let said = text(&answer["result"]["content"][0], "text");
        assert!(said.starts_with(how), "{answer:#}");
    };
    let call = |answer: &Value| answer["result"]["_meta"]["io.placet/call"].clone();
    // A read without an answer, and one with an answer of another kind.
    for (id, tool, why) in [
        (1, "die", "the connection ended before the answer"),
        (2, "other_kind", "the answer is no result of what was asked"),
    ] {
        let failed = reads.calls(id, tool, json!({})).await;
        begins(&failed, &format!("ADAPTER_FAILED: the tool gave no usable answer: {why};"));
        assert_eq!(failed["result"]["isError"], true);
        assert_eq!(call(&failed)["error"]["error_code"], "ADAPTER_FAILED", "{failed:#}");
    }
    let mut writes = Raw::start(&mut wrap("local_write"));
    writes.begins().await;
    // Clients would take these for failed calls, and call again.
    let large = json!({ "bytes": 5_000_000 });
    for (id, tool, args, then) in [
        (1, "misfit", json!({}), "paid"),
        (2, "big", json!({ "bytes": 10 }), "xxxxxxxxxx"),
        (3, "big", large.clone(), "[result withheld"),
    ] {
        let done = writes.calls(id, tool, args).await;
        begins(&done, "The call WAS executed");
        assert_eq!(done["result"]["isError"], true);
        assert!(done["result"].get("structuredContent").is_none(), "{done:#}");
        assert!(text(&done["result"]["content"][1], "text").starts_with(then), "{done:#}");
        assert_eq!(call(&done)["status"], "succeeded", "{done:#}");
    }
    let fits = writes.calls(4, "both", large).await;
    assert_eq!(fits["result"]["structuredContent"], json!({ "n": 1 }), "{fits:#}");
    assert_eq!(fits["result"]["isError"], false);
    let failed = writes.calls(5, "fail", json!({})).await;
    begins(&failed, "no such row");
    assert_eq!(call(&failed)["error"]["error_code"], "ADAPTER_FAILED", "{failed:#}");
    // A request whose parameters cannot be read is none of an unknown method.
    for (id, method, params) in [
        (6, "tools/call", json!({ "name": "fail", "arguments": "{}" })),
        (7, "tools/call", json!({ "arguments": {} })),
        (8, "resources/read", json!({})),
    ] {
        let refused = writes.asks(id, method, params).await;
        assert_eq!(refused["error"]["code"], -32602, "{refused:#}");
        assert!(text(&refused["error"], "message").contains(method), "{refused:#}");
    }
    let unknown = writes.asks(9, "tools/burn", json!({})).await;
    assert_eq!(unknown["error"]["code"], -32601, "{unknown:#}");
    for client in [reads, writes] {
        assert_eq!(client.ends().await, Some(0));
    }
}

#[tokio::test]
async fn servers_that_are_wrapped_at_the_same_moment_are_all_there() {
    let setup = Setup::new();
    fs::create_dir(setup.path("one")).unwrap();
    let everything = |name: &str| {
        let mut command = Command::new(program::placet());
        command.env("PLACET_HOME", setup.path("home")).current_dir(setup.path("data"));
        let (node, script) = (npm::node(), npm::server("server-everything"));
        command.args(["wrap", "--name", name, "--", &node, &script, "stdio"]);
        Raw::start(&mut command)
    };
    let (mut a, mut b) = (everything("a"), everything("b"));
    let mut c = Raw::start(&mut wrapped(&setup, "one"));
    tokio::join!(a.begins(), b.begins(), c.begins());
    let _engine = Background::of(&setup.path("home/placet-data"));
    for (client, tool) in [(&mut a, "echo"), (&mut b, "echo"), (&mut c, "read_text_file")] {
        let tools = client.asks(1, "tools/list", json!({})).await;
        assert!(tools["result"]["tools"].to_string().contains(tool), "{tools:#}");
    }
    for client in [a, b, c] {
        assert_eq!(client.ends().await, Some(0));
    }
}

#[tokio::test]
async fn the_servers_of_a_client_become_contracts_and_one_server() {
    let setup = Setup::new();
    let filesystem = npm::server("server-filesystem");
    let servers = json!({ "mcpServers": {
        "fs": { "command": npm::node(), "args": [filesystem, setup.data()] },
        "Every Thing": { "command": npm::node(), "args": [npm::server("server-everything"), "stdio"], "env": { "API_TOKEN": "hush-hush-0815" } },
        "broken": { "command": "/no/such/program" },
        "twofold": { "url": "https://tools.example/mcp", "headers": { "X-One": "1", "X-Two": "2" } },
    } });
    fs::write(setup.path("mcp.json"), servers.to_string()).unwrap();
    let into = setup.path("new").display().to_string();
    let file = setup.path("mcp.json").display().to_string();
    let ran = setup.bare(&["init", &into, "--import", &file]).await;
    assert_eq!(ran.code, Some(1), "one cannot be asked: {ran:?}");
    assert!(ran.err.contains("broken") && ran.err.contains("twofold"), "{ran:?}");
    for name in ["fs", "every-thing"] {
        assert!(setup.path(&format!("new/contracts/dev/{name}.yaml")).is_file(), "{ran:?}");
    }
    assert!(!setup.path("new/contracts/dev/broken.yaml").is_file());
    let contract = fs::read_to_string(setup.path("new/contracts/dev/every-thing.yaml")).unwrap();
    assert!(!contract.contains("hush-hush") && !ran.out.contains("hush-hush"), "{contract}");
    assert!(ran.err.contains("every-thing-api-token"), "it says what to provide: {ran:?}");
    let snippet = ran.out.split_once("were imported:\n").unwrap().1;
    let snippet = snippet.split("\n\nNext").next().unwrap();
    let snippet: Value = serde_json::from_str(snippet).unwrap();
    let arguments = &snippet["mcpServers"]["placet"]["args"];
    assert_eq!(
        (&arguments[0], snippet["mcpServers"].as_object().unwrap().len()),
        (&json!("mcp"), 1)
    );
    assert!(Path::new(arguments[2].as_str().unwrap()).is_file(), "{arguments}");
}
