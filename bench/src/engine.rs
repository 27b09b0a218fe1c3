//! The engine under measurement: `placet serve` as a child on loopback, with a data folder of its own.
//!
//! Owns finding the program, its configuration, its start and end, governed calls and the reading of its metrics. Nothing of
//! the person's set-up plays into it: its environment is empty.

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
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time::{Instant, sleep, timeout},
};
use url::Url;

use crate::{contract, http_client, peer};

/// How long a start may take: a cold disk, a busy machine.
const START: Duration = Duration::from_secs(60);
/// As many as the highest concurrency.
const CONNECTIONS: usize = 256;
/// More calls than one run of this program makes.
const CALLS_MAX: u32 = 1_000_000;

/// The program to measure: the one named, or the one beside this program, which is brought up to date when cargo runs us.
pub(crate) async fn locate(named: Option<&Path>, own: &Path) -> Result<PathBuf> {
    if let Some(named) = named {
        return fs::canonicalize(named)
            .with_context(|| format!("`{}` is not there", named.display()));
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
    let beside = own.with_file_name("placet");
    if !beside.is_file() {
        bail!("`{}` is not there: build it, or name it with --placet", beside.display());
    }
    Ok(beside)
}

/// What `placet serve --json` says once it listens.
#[derive(Debug, Deserialize)]
pub(crate) struct Greeting {
    /// Where calls go in.
    pub(crate) listen: Url,
    /// Where metrics come out.
    pub(crate) admin_listen: Url,
}

/// A running engine.
#[derive(Debug)]
pub(crate) struct Engine {
    child: Child,
    log: PathBuf,
    api: Api,
    admin: Url,
}

/// Where calls go in; cheap to clone.
#[derive(Debug, Clone)]
struct Api {
    client: EgressClient,
    calls: http::Uri,
    authorization: HeaderValue,
}

impl Engine {
    /// Starts `placet` in `folder` under these contracts, and waits until a call of each tool succeeds.
    pub(crate) async fn start(
        placet: &Path,
        folder: &Path,
        contracts: &[ContractFile],
    ) -> Result<Self> {
        let config = configure(folder, contracts)?;
        let log = folder.join("engine.log");
        let (child, greeting) = serve(placet, folder, &config).await?;
        let token = token(placet, folder, (&config, "agent", "dev-agent")).await?;
        let authorization = bearer(&token)?;
        let api = Api {
            client: http_client::egress(&[&greeting.listen, &greeting.admin_listen], CONNECTIONS)?,
            calls: http::Uri::try_from(greeting.listen.join("/v1/calls")?.as_str())?,
            authorization,
        };
        let engine = Self { child, log, api, admin: greeting.admin_listen };
        engine.warm().await?;
        Ok(engine)
    }

    /// What makes calls, each with a body of its own.
    pub(crate) fn caller(&self, call: Call) -> Caller {
        Caller { api: self.api.clone(), call: Arc::new(call) }
    }

    /// The value of one of the engine's metrics.
    pub(crate) async fn metric(&self, name: &str) -> Result<f64> {
        let request = Request::get(self.admin.join("/metrics")?.as_str()).body(Bytes::new())?;
        let response = self.api.client.send(request).await.context("no metrics")?;
        let text = String::from_utf8_lossy(response.body()).into_owned();
        value_of(&text, name).with_context(|| format!("there is no metric `{name}`"))
    }

    /// Ends it.
    pub(crate) async fn stop(mut self) -> Result<()> {
        if let Some(ended) = self.child.try_wait()? {
            bail!("`placet serve` ended by itself ({ended}): {}", tail(&self.log));
        }
        self.child.kill().await.context("`placet serve` cannot be ended")
    }

    /// The connections to the peer come up in the background: the first calls may find none.
    async fn warm(&self) -> Result<()> {
        let began = Instant::now();
        for transport in peer::Transport::ALL {
            for tool in [peer::LOOK, peer::NOTE] {
                let caller = self.caller(Call::new(contract::tool(transport, tool), tool));
                while let Err(error) = caller.clone().call().await {
                    if began.elapsed() > START {
                        return Err(error.context(tail(&self.log)));
                    }
                    sleep(Duration::from_millis(100)).await;
                }
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
    /// Calls of a tool of the peer, in a run of their own.
    pub(crate) fn new(tool: String, name: &str) -> Self {
        static RUNS: AtomicU64 = AtomicU64::new(1);
        let run = format!("bench-{}", RUNS.fetch_add(1, Ordering::Relaxed));
        let body = json!({
            "tool": tool,
            "args": peer::arguments(name),
            "run": {"run_id": run, "safety_mode": "local_write", "run_budget": {"calls_max": CALLS_MAX}},
        });
        Self { body, key: None, made: AtomicU64::new(0), name: run }
    }

    /// The same call again and again: after the first, replays.
    pub(crate) fn repeated(tool: String, name: &str) -> Self {
        let mut call = Self::new(tool, name);
        call.key = Some(format!("{}-same", call.name));
        call
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
    pub(crate) async fn call(self) -> Result<()> {
        self.succeed(false).await
    }

    /// Makes the call; it must be a replay.
    pub(crate) async fn replay(self) -> Result<()> {
        self.succeed(true).await
    }

    async fn succeed(self, replayed: bool) -> Result<()> {
        let request = Request::post(self.api.calls.clone())
            .header(header::AUTHORIZATION, self.api.authorization.clone())
            .header(header::CONTENT_TYPE, "application/json")
            .body(self.call.next_body()?)?;
        let response = self.api.client.send(request).await.context("a governed call failed")?;
        let said = || String::from_utf8_lossy(response.body()).into_owned();
        if response.status() != StatusCode::OK {
            bail!("a governed call was answered with {}: {}", response.status(), said());
        }
        let envelope: ToolResultEnvelope = serde_json::from_slice(response.body())
            .context("a governed call's answer is no envelope")?;
        if envelope.status != ResultStatus::Succeeded || envelope.replayed != replayed {
            bail!("a governed call did not end as expected: {}", said());
        }
        Ok(())
    }
}

/// Starts `placet serve` on a configuration in `folder`, and waits until it listens.
pub(crate) async fn serve(
    placet: &Path,
    folder: &Path,
    config: &Path,
) -> Result<(Child, Greeting)> {
    let log = folder.join("engine.log");
    let mut child = command(placet, folder)
        .arg("serve")
        .arg("--config")
        .arg(config)
        .args(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--json"])
        .stdout(Stdio::piped())
        .stderr(File::create(&log).context("the log cannot be made")?)
        .spawn()
        .with_context(|| format!("`{}` does not start", placet.display()))?;
    let output = child.stdout.take().context("`placet serve` has no output")?;
    let mut lines = BufReader::new(output).lines();
    let line = timeout(START, lines.next_line()).await.context("`placet serve` says nothing")??;
    let Some(line) = line else { bail!("`placet serve` ended: {}", tail(&log)) };
    let greeting =
        serde_json::from_str(&line).context("`placet serve` does not say where it listens")?;
    Ok((child, greeting))
}

/// What is sent with each request of the one who has this token.
pub(crate) fn bearer(token: &str) -> Result<HeaderValue> {
    let mut header =
        HeaderValue::try_from(format!("Bearer {token}")).context("the token is no header")?;
    header.set_sensitive(true);
    Ok(header)
}

fn command(placet: &Path, folder: &Path) -> Command {
    let mut command = Command::new(placet);
    command.env_clear().current_dir(folder).stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// Writes contracts and configuration; JSON is YAML.
pub(crate) fn configure(folder: &Path, contracts: &[ContractFile]) -> Result<PathBuf> {
    configure_with(folder, contracts, None)
}

/// The same, with the ledger in a database if one is named.
pub(crate) fn configure_with(
    folder: &Path,
    contracts: &[ContractFile],
    database: Option<&str>,
) -> Result<PathBuf> {
    let contracts_folder = folder.join("contracts").join(contract::ENVIRONMENT);
    fs::create_dir_all(&contracts_folder).context("no folder for contracts")?;
    for contract in contracts {
        let path = contracts_folder.join(format!("{}.yaml", contract.adapter));
        fs::write(path, serde_json::to_vec_pretty(contract)?)
            .context("a contract cannot be written")?;
    }
    fs::write(folder.join("directory.yaml"), serde_json::to_vec_pretty(&directory())?)
        .context("the directory cannot be written")?;
    let config = folder.join("placet.yaml");
    let document = json!({
        "data": "data",
        "environment": contract::ENVIRONMENT,
        "contracts": "contracts",
        "directory": "directory.yaml",
        "limits": {"held_per_agent_max": 1_000_000},
        "telemetry": {"log_filter": "warn"},
        "ledger": {"store": database.unwrap_or("embedded")},
    });
    fs::write(&config, serde_json::to_vec_pretty(&document)?)
        .context("the configuration cannot be written")?;
    Ok(config)
}

/// The development directory, whose agent may call as often as it can.
fn directory() -> Value {
    json!({"tenants": {"local": {
        "groups": {"approvers": {}, "operators": {}, "freeze-approvers": {}, "emergency": {}},
        "users": {"ana": {}, "ben": {"groups": ["approvers", "operators", "freeze-approvers", "emergency"]}},
        "agents": {"dev-agent": {"owner": "ana", "classes": ["bench"]}},
        "classes": {"bench": {"calls_per_minute_max": contract::CALLS_PER_MINUTE_MAX}},
    }}})
}

/// A development token for somebody of that directory.
pub(crate) async fn token(
    placet: &Path,
    folder: &Path,
    (config, kind, name): (&Path, &str, &str),
) -> Result<String> {
    let minting = command(placet, folder)
        .args(["token", kind, name, "--ttl", "12h", "--config"])
        .arg(config)
        .output();
    let minted = minting.await.context("`placet token` does not start")?;
    if !minted.status.success() {
        bail!("`placet token` failed: {}", String::from_utf8_lossy(&minted.stderr));
    }
    Ok(String::from_utf8(minted.stdout)
        .context("`placet token` printed no text")?
        .trim()
        .to_owned())
}

/// A link that signs somebody in to the console at `base`, once.
pub(crate) async fn sign_in_link(
    placet: &Path,
    folder: &Path,
    (config, base): (&Path, &Url),
) -> Result<Url> {
    let making = command(placet, folder)
        .args(["console", "--url", base.as_str(), "--config"])
        .arg(config)
        .output();
    let made = making.await.context("`placet console` does not start")?;
    if !made.status.success() {
        bail!("`placet console` failed: {}", String::from_utf8_lossy(&made.stderr));
    }
    let link = String::from_utf8(made.stdout).context("`placet console` printed no text")?;
    Url::parse(link.trim()).context("`placet console` printed no link")
}

/// The end of a log, for an error message.
pub(crate) fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines.iter().skip(lines.len().saturating_sub(8)).copied().collect::<Vec<_>>().join("\n")
}

/// The value of a metric without labels in the text format of Prometheus.
fn value_of(text: &str, name: &str) -> Option<f64> {
    let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok();
    text.lines().find_map(value)
}

#[cfg(test)]
mod tests {
    use super::{Call, value_of};

    fn keys(call: &Call) -> Vec<String> {
        let key = || {
            let body: serde_json::Value =
                serde_json::from_slice(&call.next_body().unwrap()).unwrap();
            body["idempotency_key"].as_str().unwrap().to_owned()
        };
        vec![key(), key()]
    }

    #[test]
    fn every_call_has_a_key_of_its_own_unless_it_is_to_be_repeated() {
        let (once, other) = (
            Call::new("pipe__note".to_owned(), "note"),
            Call::new("pipe__note".to_owned(), "note"),
        );
        let all: std::collections::BTreeSet<String> =
            keys(&once).into_iter().chain(keys(&other)).collect();
        assert_eq!(all.len(), 4);
        let same = keys(&Call::repeated("pipe__note".to_owned(), "note"));
        assert_eq!(same[0], same[1]);
    }

    #[test]
    fn a_metric_is_found_by_its_whole_name() {
        let text = "# HELP a_sum x\na_sum_total 9\na_sum 17.5\na_count 4\n";
        assert_eq!(value_of(text, "a_sum"), Some(17.5));
        assert_eq!(value_of(text, "a_count"), Some(4.0));
        assert_eq!(value_of(text, "a"), None);
        assert_eq!(value_of("", "a_sum"), None);
    }
}
