//! What a deployment is made of: the program, the machine, and the files that a node is started with.
//!
//! Owns a node's configuration, directory, contract and key, in a folder of its own. They are JSON, which is also YAML.

use std::{
    fs,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use placet_testkit::{machine::Machine, postgres::Postgres};
use serde_json::{Map, Value, json};
use tokio::{process::Command, time::timeout};

use crate::{
    people,
    witness::tools::{self, ADAPTER, ENVIRONMENT, SECRET_NAME},
};

/// How long one call of the witness may take, in milliseconds.
pub(crate) const LATENCY_MS: u64 = 2_000;
/// The credential that is sent to the witness.
pub(crate) const SECRET: &str = "chaos-secret-5f0e9c1ab27d4486";
/// The most concurrent calls, few enough to be exceeded.
pub(crate) const IN_FLIGHT_MAX: u64 = 96;
/// How long results are kept in rounds with expired results, in milliseconds.
pub(crate) const RETENTION_MS: u64 = 2_000;

/// What rounds need.
#[derive(Debug)]
pub(crate) struct Workshop {
    /// The program under test.
    pub(crate) placet: PathBuf,
    pub(crate) machine: Machine,
    /// The folder of all rounds.
    pub(crate) folder: PathBuf,
    /// The database server, once it was needed.
    pub(crate) postgres: Option<Arc<tokio::sync::Mutex<Postgres>>>,
    /// The shipped policies.
    pub(crate) policies: PathBuf,
    /// Variables for the nodes.
    pub(crate) env: Vec<(String, String)>,
}

impl Workshop {
    /// One for rounds of this program below `folder`, where it writes its shipped policies.
    pub(crate) async fn new(placet: PathBuf, folder: &Path) -> Result<Self> {
        let shipped = folder.join("shipped");
        let mut command = Command::new(&placet);
        command.arg("init").arg(&shipped).env_clear().stdin(Stdio::null()).kill_on_drop(true);
        let output = timeout(Duration::from_secs(30), command.output())
            .await
            .with_context(|| format!("`{}` does not answer", placet.display()))?
            .with_context(|| format!("`{}` does not start", placet.display()))?;
        if !output.status.success() {
            bail!("`{} init` failed", placet.display());
        }
        Ok(Self {
            placet,
            machine: Machine::look(),
            folder: folder.to_owned(),
            postgres: None,
            policies: shipped.join("policies"),
            env: Vec::new(),
        })
    }
}

/// The parameters of a node's files.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    /// Where the witness listens.
    pub(crate) witness: String,
    /// The shared ledger; `None`: the embedded one.
    pub(crate) ledger: Option<String>,
    pub(crate) short_retention: bool,
    pub(crate) policies: PathBuf,
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
        let contract = tools::contract(&self.witness)?;
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
        set("secrets", json!({ SECRET_NAME: { "file": "witness.secret" } }));
        set("telemetry", json!({ "log_filter": "info,rmcp=error" }));
        let limits = json!({
            "calls_in_flight_max": IN_FLIGHT_MAX,
            "calls_in_flight_per_tenant_max": IN_FLIGHT_MAX,
            "held_per_agent_max": 1_000_000,
            "free_space_bytes_min": 128 << 20,
        });
        set("limits", limits);
        set("http", json!({ "drain_ms": 4_000 }));
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
