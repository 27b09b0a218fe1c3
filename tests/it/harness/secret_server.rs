//! A server that notes with which secret each call reaches it, and a Placet in front of it.
//!
//! Owns what is asserted of secrets in use: which one a call was made with is what the server was shown, not what Placet says of it.

use std::{fs, path::PathBuf, process::Stdio, time::Duration};

use placet_types::digest::Digest;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time::Instant,
};

use super::{
    client::{Client, Reply},
    npm,
    setup::{Setup, local, plan},
    within,
};

/// A server over HTTP that notes what it is shown, and may take one secret only.
pub(crate) struct Server {
    url: String,
    record: PathBuf,
    accepted: PathBuf,
    _child: Child,
}

impl Server {
    async fn start(setup: &Setup) -> Self {
        let (record, accepted) = (setup.path("record"), setup.path("accepted"));
        let mut command = Command::new(npm::node());
        command.arg(npm::stub()).arg("http").arg(&record).arg(&accepted).env_clear();
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        super::watcher::watch(child.id());
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = within("the server says its port", lines.next_line()).await.unwrap().unwrap();
        Self {
            url: local(port.parse().unwrap(), "/mcp").to_string(),
            record,
            accepted,
            _child: child,
        }
    }

    /// From now on it takes this secret and no other.
    pub(crate) fn takes_only(&self, secret: &str) {
        let next = self.accepted.with_extension("next");
        fs::write(&next, fingerprint(secret)).unwrap();
        fs::rename(&next, &self.accepted).unwrap();
    }

    /// The fingerprints of what its calls were made with, in their order.
    pub(crate) fn shown(&self) -> Vec<String> {
        self.calls(true)
    }

    /// The fingerprints of what it did not take, and did nothing for.
    pub(crate) fn turned_away(&self) -> Vec<String> {
        self.calls(false)
    }

    fn calls(&self, taken: bool) -> Vec<String> {
        let text = fs::read_to_string(&self.record).unwrap_or_default();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let calls = lines
            .filter(|line| line["message"]["method"] == "tools/call" && line["isTaken"] == taken);
        calls
            .map(|line| line["headers"]["authorization"].as_str().unwrap_or("none").to_owned())
            .collect()
    }
}

/// What the server notes of a secret.
pub(crate) fn fingerprint(secret: &str) -> String {
    let digest = Digest::of(format!("Bearer {secret}").as_bytes()).to_string();
    digest.trim_start_matches("sha256:").to_owned()
}

/// A Placet whose server wants the secret `key`.
pub(crate) async fn with_server(setup: Setup) -> (Setup, Server) {
    let server = Server::start(&setup).await;
    let setup = setup
        .with("contracts", json!("contracts"))
        .with("telemetry", json!({ "log_filter": "trace" }));
    let import = ["adapters", "import", "--mode-default", "read_only", "--name", "remote"];
    let remote = ["--url", &server.url, "--private-network", "--credential", "key"];
    setup.configured(&[&import[..], &remote].concat()).await.ok();
    let mut contract = setup.read_contract("remote");
    let look = &mut contract["capabilities"]["look"];
    look["effect"] = json!("none");
    look.as_object_mut().unwrap().remove("dedup");
    (setup.contract("remote", &contract), server)
}

/// Ten callers at the same time for four seconds, every call of which must succeed; how many they were.
pub(crate) async fn load(agent: &Client) -> usize {
    let callers = (0..10).map(|caller| {
        let agent = agent.clone();
        tokio::spawn(async move {
            let (started, mut calls) = (Instant::now(), 0_usize);
            while started.elapsed() < Duration::from_secs(4) {
                look(&agent, &format!("load-{caller}-{calls}")).await.succeeded();
                calls = calls.saturating_add(1);
            }
            calls
        })
    });
    let callers: Vec<_> = callers.collect();
    let mut calls = 0_usize;
    for caller in callers {
        calls = calls.saturating_add(caller.await.unwrap());
    }
    assert!(calls > 40, "{calls} calls are no load");
    calls
}

/// A call of its tool, in a run of its own.
pub(crate) async fn look(agent: &Client, step: &str) -> Reply {
    let mut call = plan("remote__look", step, json!({ "what": "x" }));
    // A run of its own: a fast machine makes more calls than one run may.
    call["run"]["run_id"] = json!(format!("run-{step}"));
    agent.call(&call).await
}
