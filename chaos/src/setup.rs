//! The files that a node is started with: configuration, directory, contract and key, in a folder of its own.
//!
//! Owns these files. They are JSON, which is also YAML.

use std::{
    fs,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use placet_chaos::witness::tools::{self, Terms};
use serde_json::{Map, Value, json};
use tokio::{process::Command, time::timeout};

use crate::people;

/// The environment of the contracts.
const ENVIRONMENT: &str = "dev";
/// The name of the witness as an adapter.
pub(crate) const ADAPTER: &str = "witness";
/// For how long the witness honours a token, in milliseconds.
pub(crate) const KEYED_WINDOW_MS: u64 = 7_000;
/// After how long «not found» means «did not happen», in milliseconds.
pub(crate) const SETTLE_DELAY_MS: u64 = 500;
/// How long one call of the witness may take, in milliseconds.
pub(crate) const LATENCY_MS: u64 = 2_000;
/// The credential that is sent to the witness.
pub(crate) const SECRET: &str = "chaos-secret-5f0e9c1ab27d4486";
/// The most concurrent calls, few enough to be exceeded.
pub(crate) const IN_FLIGHT_MAX: u64 = 96;
/// How long results are kept in rounds with expired results, in milliseconds.
pub(crate) const RETENTION_MS: u64 = 2_000;

/// Runs the program.
async fn run(placet: &Path, arguments: &[&str]) -> Result<()> {
    let mut command = Command::new(placet);
    command.args(arguments).env_clear().stdin(Stdio::null()).kill_on_drop(true);
    let output = timeout(Duration::from_secs(30), command.output())
        .await
        .with_context(|| format!("`{}` does not answer", placet.display()))?
        .with_context(|| format!("`{}` does not start", placet.display()))?;
    if !output.status.success() {
        bail!("`{} {}` failed", placet.display(), arguments.join(" "));
    }
    Ok(())
}

/// The parameters of a node's files.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    /// Where the witness listens.
    pub(crate) witness: String,
    /// The shared ledger; `None`: the embedded one.
    pub(crate) ledger: Option<String>,
    /// Whether the retention of results is short.
    pub(crate) short_retention: bool,
    /// The folder of the shipped policies.
    pub(crate) policies: PathBuf,
}

/// Has the program write its shipped policies below `folder`; where they are.
pub(crate) async fn shipped_policies(placet: &Path, folder: &Path) -> Result<PathBuf> {
    let start = folder.join("shipped");
    let place = start.to_str().context("the folder has a name that is no text")?;
    run(placet, &["init", place]).await?;
    Ok(start.join("policies"))
}

impl Setup {
    /// Writes everything below `folder`; the key is copied from `key`.
    pub(crate) fn write(&self, number: usize, folder: &Path, key: &Path) -> Result<()> {
        let mut private = fs::DirBuilder::new();
        private.recursive(true).mode(0o700);
        private.create(folder.join("data"))?;
        private.create(folder.join("contracts").join(ENVIRONMENT))?;
        put(&folder.join("data/dev-key.jwk"), &fs::read(key).context("there is no key")?)?;
        put(&secret_file(folder), SECRET.as_bytes())?;
        put(&folder.join("directory.yaml"), &serde_json::to_vec_pretty(&people::directory())?)?;
        let terms = Terms {
            keyed_window_ms: KEYED_WINDOW_MS,
            settle_delay_ms: SETTLE_DELAY_MS,
            secret: Some("witness".to_owned()),
        };
        let contract = tools::contract(ADAPTER, ENVIRONMENT, &self.witness, &terms)?;
        let path = folder.join("contracts").join(ENVIRONMENT).join(format!("{ADAPTER}.yaml"));
        put(&path, &serde_json::to_vec_pretty(&contract)?)?;
        self.write_policies(&folder.join("policies"))?;
        put(&folder.join("placet.yaml"), &serde_json::to_vec_pretty(&self.config(number))?)
    }

    /// The shipped policies, with short-lived approvals.
    fn write_policies(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder)?;
        for entry in fs::read_dir(&self.policies).context("there are no policies")? {
            let path = entry?.path();
            // A cluster has no built-in `files`, which this policy names.
            let is_of_files = path.ends_with("15-files.cedar");
            if !is_of_files && path.extension().is_some_and(|extension| extension == "cedar") {
                let text = fs::read_to_string(&path)?.replace("@expires(\"24h\")", EXPIRES);
                let name = path.file_name().context("a policy has a name")?;
                put(&folder.join(name), text.as_bytes())?;
            }
        }
        Ok(())
    }

    fn config(&self, number: usize) -> Value {
        let mut config = Map::new();
        let mut set = |key: &str, value: Value| drop(config.insert(key.to_owned(), value));
        set("data", json!("data"));
        set("environment", json!(ENVIRONMENT));
        set("contracts", json!("contracts"));
        set("directory", json!("directory.yaml"));
        set("policies", json!("policies"));
        set("secrets", json!({ "witness": { "file": "witness.secret" } }));
        set("telemetry", json!({ "log_filter": "info,rmcp=error" }));
        let limits = json!({
            "calls_in_flight_max": IN_FLIGHT_MAX,
            "calls_in_flight_per_tenant_max": IN_FLIGHT_MAX,
            "held_per_agent_max": 1_000_000,
            "free_space_bytes_min": 128 << 20,
            "drain_ms": 4_000,
        });
        set("limits", limits);
        set("mcp", json!({ "hold_ms": HOLD_MS }));
        set("ledger", self.ledger_part(number));
        Value::Object(config)
    }

    fn ledger_part(&self, number: usize) -> Value {
        let mut part = json!({ "lease_ms": LEASE_MS, "checkpoint_every_s": 1 });
        if let (Some(url), Some(fields)) = (&self.ledger, part.as_object_mut()) {
            fields.insert("store".to_owned(), json!(url));
            fields.insert("node".to_owned(), json!(format!("node-{number}")));
        }
        if let (true, Some(fields)) = (self.short_retention, part.as_object_mut()) {
            let results_s = RETENTION_MS.div_euclid(1_000);
            fields.insert("retention".to_owned(), json!({ "results_s": results_s }));
        }
        part
    }
}

/// For how long a call over MCP waits for people, in milliseconds.
const HOLD_MS: u64 = 300;

/// The lifetime of approvals: short, so that some votes are late.
const EXPIRES: &str = "@expires(\"3s\")";

/// How long a node that shares its ledger may be silent, in milliseconds.
pub(crate) const LEASE_MS: u64 = 3_000;

/// The file with the credential of the witness.
pub(crate) fn secret_file(folder: &Path) -> PathBuf {
    folder.join("witness.secret")
}

/// Writes a file that only its owner reads.
pub(crate) fn put(path: &Path, content: &[u8]) -> Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let written =
        options.open(path).and_then(|mut file| std::io::Write::write_all(&mut file, content));
    written.with_context(|| format!("`{}` cannot be written", path.display()))
}
