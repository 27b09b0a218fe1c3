//! The engine under measurement: `placet serve` as a child on loopback, with a data folder of its own.
//!
//! Owns finding the program, its configuration, its start and end, governed calls, and the operating system's counts for
//! the process. Nothing of the person's set-up affects it: its environment is empty.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, header};
use placet_egress::EgressClient;
use placet_types::{
    contract::file::ContractFile,
    envelope::result::{ResultStatus, ToolResultEnvelope},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time::{Instant, sleep, timeout},
};
use url::Url;

use crate::{contract, http_client, mcp_client::McpClient, peer, process};

/// How long a start may take: a cold disk, a busy machine.
const START: Duration = Duration::from_secs(60);
/// How long a start with a large ledger may take.
const LONG: Duration = Duration::from_secs(600);
/// As many as the highest concurrency.
const CONNECTIONS: usize = 256;

/// The program to measure: the one named, or the one next to this program, which is brought up to date when cargo runs us.
pub(crate) async fn locate(named: Option<&Path>, own: &Path) -> Result<PathBuf> {
    if let Some(named) = named {
        return fs::canonicalize(named).with_context(|| format!("no `{}`", named.display()));
    }
    if let Some(cargo) = std::env::var_os("CARGO") {
        let mut command = Command::new(cargo);
        command.args(["build", "--package", "placet"]);
        if !cfg!(debug_assertions) {
            command.arg("--release");
        }
        let built = command.status().await.context("cargo does not start")?;
        if !built.success() {
            bail!("`placet` does not build");
        }
    }
    let next_to_us = own.with_file_name("placet");
    if !next_to_us.is_file() {
        bail!("no `{}`: build it, or name it with --placet", next_to_us.display());
    }
    Ok(next_to_us)
}

/// What `placet serve --json` prints once it listens.
#[derive(Debug, Deserialize)]
struct Greeting {
    listen: Url,
}

/// A running engine.
#[derive(Debug)]
pub(crate) struct Engine {
    child: Child,
    log: PathBuf,
    api: Api,
}

/// The API of the engine; cheap to clone.
#[derive(Debug, Clone)]
struct Api {
    client: EgressClient,
    calls: http::Uri,
    mcp: Url,
    authorization: HeaderValue,
}

impl Engine {
    /// Starts `placet` in `folder` with these contracts and this `ledger` section of the configuration, if any, and waits until a call of
    /// each kind succeeds.
    pub(crate) async fn start(
        placet: &Path,
        folder: &Path,
        contracts: &[ContractFile],
        ledger: Option<Value>,
    ) -> Result<Self> {
        let config = configure(folder, contracts, ledger)?;
        let log = folder.join("engine.log");
        let mut child = command(placet, folder)
            .arg("serve")
            .arg("--config")
            .arg(&config)
            .args(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--json"])
            .stdout(Stdio::piped())
            .stderr(File::create(&log).context("the log cannot be made")?)
            .spawn()
            .with_context(|| format!("`{}` does not start", placet.display()))?;
        let output = child.stdout.take().context("`placet serve` has no output")?;
        let mut lines = BufReader::new(output).lines();
        let line = timeout(START, lines.next_line()).await.context("`placet serve` hangs")??;
        let Some(line) = line else { bail!("`placet serve` ended: {}", tail(&log)) };
        let greeting: Greeting =
            serde_json::from_str(&line).context("`placet serve` does not say where it listens")?;
        let api = Api {
            client: http_client::egress(&[&greeting.listen], CONNECTIONS)?,
            calls: http::Uri::try_from(greeting.listen.join("/v1/calls")?.as_str())?,
            mcp: greeting.listen.join("/mcp")?,
            authorization: token(placet, folder, &config).await?,
        };
        let engine = Self { child, log, api };
        engine.warm_up().await?;
        Ok(engine)
    }

    /// A caller of this call, with a separate body each time.
    pub(crate) fn caller(&self, call: Call) -> Caller {
        Caller { api: self.api.clone(), call: Arc::new(call) }
    }

    /// Connects to it as an MCP client does.
    pub(crate) async fn mcp_client(&self) -> Result<McpClient> {
        McpClient::connect(&self.api.mcp, Some(self.api.authorization.clone())).await
    }

    /// The operating system's counts for its process.
    pub(crate) fn usage(&self) -> Result<process::Usage> {
        process::Usage::of(self.child.id().context("`placet serve` has ended")?)
    }

    /// Ends it.
    pub(crate) async fn stop(mut self) -> Result<()> {
        if let Some(ended) = self.child.try_wait()? {
            bail!("`placet serve` ended by itself ({ended}): {}", tail(&self.log));
        }
        self.child.kill().await.context("`placet serve` cannot be ended")
    }

    /// The connections come up in the background: the first calls may find none.
    async fn warm_up(&self) -> Result<()> {
        let began = Instant::now();
        for call in [Call::read(), Call::write(), Call::file()] {
            let caller = self.caller(call);
            while let Err(error) = caller.clone().succeed().await {
                if began.elapsed() > START {
                    return Err(error.context(tail(&self.log)));
                }
                sleep(Duration::from_millis(100)).await;
            }
        }
        Ok(())
    }
}

/// One kind of governed call.
#[derive(Debug)]
pub(crate) struct Call {
    body: Value,
    /// The one key of all its calls; absent: each has its own.
    key: Option<String>,
    made: AtomicU64,
    name: String,
}

impl Call {
    /// A read at the MCP server.
    pub(crate) fn read() -> Self {
        Self::mcp(contract::WEB, peer::LOOK, "local_write")
    }

    /// A write at the MCP server.
    pub(crate) fn write() -> Self {
        Self::mcp(contract::WEB, peer::NOTE, "local_write")
    }

    /// The same write again and again: after the first, replays.
    pub(crate) fn repeated() -> Self {
        let mut call = Self::write();
        call.key = Some(format!("{}-same", call.name));
        call
    }

    /// A write that waits for an approval.
    pub(crate) fn held() -> Self {
        Self::mcp(contract::HELD, peer::NOTE, "destructive")
    }

    /// A read of the files adapter.
    pub(crate) fn file() -> Self {
        let args = Map::from_iter([("path".to_owned(), json!(contract::FILE))]);
        Self::new("files__read", args, "local_write")
    }

    fn mcp(adapter: &str, tool: &str, mode: &str) -> Self {
        Self::new(&format!("{adapter}__{tool}"), peer::arguments(tool), mode)
    }

    fn new(tool: &str, args: Map<String, Value>, mode: &str) -> Self {
        static RUNS: AtomicU64 = AtomicU64::new(1);
        let run = format!("bench-{}", RUNS.fetch_add(1, Ordering::Relaxed));
        let limits = json!({"calls_max": contract::CALLS_MAX});
        let body = json!({
            "tool": tool,
            "args": args,
            "run": {"run_id": run, "safety_mode": mode, "run_budget": limits},
        });
        Self { body, key: None, made: AtomicU64::new(0), name: run }
    }

    fn next_body(&self) -> Result<Bytes> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let mut body = self.body.clone();
        let key = self.key.clone().unwrap_or_else(|| format!("{}-{number}", self.name));
        body.as_object_mut()
            .context("the body is no object")?
            .insert("idempotency_key".to_owned(), json!(key));
        Ok(serde_json::to_vec(&body)?.into())
    }
}

/// Makes governed calls.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    api: Api,
    call: Arc<Call>,
}

impl Caller {
    /// Makes the call; it must be executed.
    pub(crate) async fn succeed(self) -> Result<()> {
        self.expect(StatusCode::OK, ResultStatus::Succeeded, false).await
    }

    /// Makes the call; it must be a replay.
    pub(crate) async fn replay(self) -> Result<()> {
        self.expect(StatusCode::OK, ResultStatus::Succeeded, true).await
    }

    /// Makes the call; it must be held.
    pub(crate) async fn hold(self) -> Result<()> {
        self.expect(StatusCode::ACCEPTED, ResultStatus::Pending, false).await
    }

    async fn expect(self, http: StatusCode, status: ResultStatus, replayed: bool) -> Result<()> {
        let request = Request::post(self.api.calls.clone())
            .header(header::AUTHORIZATION, self.api.authorization.clone())
            .header(header::CONTENT_TYPE, "application/json")
            .body(self.call.next_body()?)?;
        let response = self.api.client.send(request).await.context("a governed call failed")?;
        let body = || String::from_utf8_lossy(response.body()).into_owned();
        if response.status() != http {
            bail!("a governed call was answered with {}: {}", response.status(), body());
        }
        let envelope: ToolResultEnvelope = serde_json::from_slice(response.body())
            .context("a governed call's answer is no envelope")?;
        if envelope.status != status || envelope.replayed != replayed {
            bail!("a governed call did not end as expected: {}", body());
        }
        Ok(())
    }
}

/// How long `placet serve` takes on this data folder until it listens; it is ended then.
pub(crate) async fn time_start(placet: &Path, folder: &Path, data: &Path) -> Result<Duration> {
    let began = Instant::now();
    let mut child = command(placet, folder)
        .arg("serve")
        .arg("--data")
        .arg(data)
        .args(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("`{}` does not start", placet.display()))?;
    let output = child.stdout.take().context("`placet serve` has no output")?;
    let line = timeout(LONG, BufReader::new(output).lines().next_line()).await;
    line.context("`placet serve` hangs")??.context("`placet serve` ended")?;
    let took = began.elapsed();
    child.kill().await.context("`placet serve` cannot be ended")?;
    Ok(took)
}

/// How long it takes to build the state of this data folder from its journal.
pub(crate) async fn time_rebuild(placet: &Path, folder: &Path, data: &Path) -> Result<Duration> {
    let began = Instant::now();
    let mut rebuild = command(placet, folder);
    rebuild.args(["ledger", "fsck", "--rebuild", "--data"]).arg(data).stdout(Stdio::null());
    let ended = rebuild.status().await.context("`placet ledger` does not start")?;
    if !ended.success() {
        bail!("`placet ledger fsck --rebuild` failed: {ended}");
    }
    Ok(began.elapsed())
}

fn command(placet: &Path, folder: &Path) -> Command {
    let mut command = Command::new(placet);
    command.env_clear().current_dir(folder).stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// Writes contracts, configuration and the file that is read; JSON is YAML.
fn configure(folder: &Path, contracts: &[ContractFile], ledger: Option<Value>) -> Result<PathBuf> {
    let write = |path: PathBuf, bytes: &[u8]| -> Result<()> {
        let parent = path.parent().context("a file is in no folder")?;
        fs::create_dir_all(parent).with_context(|| format!("no folder `{}`", parent.display()))?;
        fs::write(&path, bytes).with_context(|| format!("`{}` not written", path.display()))
    };
    for contract in contracts {
        let file = format!("contracts/{}/{}.yaml", contract::ENVIRONMENT, contract.adapter);
        write(folder.join(file), &serde_json::to_vec_pretty(contract)?)?;
    }
    let files = folder.join("data").join(contract::FILES_ROOT).join(contract::TENANT);
    write(files.join(contract::FILE), b"buy milk and bread, answer the letter")?;
    write(folder.join("directory.yaml"), &serde_json::to_vec_pretty(&directory())?)?;
    let config = folder.join("placet.yaml");
    let mut document = json!({
        "data": "data",
        "environment": contract::ENVIRONMENT,
        "contracts": "contracts",
        "directory": "directory.yaml",
        "limits": {"held_per_agent_max": 1_000_000},
        "http": {"connections_per_address_max": 1_024},
        "telemetry": {"log_filter": "warn"},
    });
    if let (Some(ledger), Some(document)) = (ledger, document.as_object_mut()) {
        document.insert("ledger".to_owned(), ledger);
    }
    write(config.clone(), &serde_json::to_vec_pretty(&document)?)?;
    Ok(config)
}

/// The development directory, without a limit on the agent's calls.
fn directory() -> Value {
    json!({"tenants": {contract::TENANT: {
        "groups": {"approvers": {}, "operators": {}, "freeze-approvers": {}, "emergency": {}},
        "users": {"ana": {}, "ben": {"groups": ["approvers", "operators", "freeze-approvers", "emergency"]}},
        "agents": {"dev-agent": {"owner": "ana", "classes": ["bench"]}},
        "classes": {"bench": {"calls_per_minute_max": contract::CALLS_PER_MINUTE_MAX}},
    }}})
}

/// The `Authorization` of the directory's agent.
async fn token(placet: &Path, folder: &Path, config: &Path) -> Result<HeaderValue> {
    let minting = command(placet, folder)
        .args(["token", "agent", "dev-agent", "--ttl", "12h", "--config"])
        .arg(config)
        .output();
    let minted = minting.await.context("`placet token` does not start")?;
    if !minted.status.success() {
        bail!("`placet token` failed: {}", String::from_utf8_lossy(&minted.stderr));
    }
    let token = String::from_utf8(minted.stdout).context("`placet token` printed no text")?;
    let bearer = format!("Bearer {}", token.trim());
    let mut header = HeaderValue::try_from(bearer).context("the token is no header")?;
    header.set_sensitive(true);
    Ok(header)
}

/// The end of a log, for an error message.
fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines.iter().skip(lines.len().saturating_sub(8)).copied().collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::Call;

    fn keys(call: &Call) -> Vec<String> {
        let key = || {
            let body: serde_json::Value =
                serde_json::from_slice(&call.next_body().unwrap()).unwrap();
            body["idempotency_key"].as_str().unwrap().to_owned()
        };
        vec![key(), key()]
    }

    #[test]
    fn every_call_has_its_own_key_unless_it_is_repeated() {
        let (once, other) = (Call::write(), Call::write());
        let all: std::collections::BTreeSet<String> =
            keys(&once).into_iter().chain(keys(&other)).collect();
        assert_eq!(all.len(), 4);
        let same = keys(&Call::repeated());
        assert_eq!(same[0], same[1]);
    }
}
