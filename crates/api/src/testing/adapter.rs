//! The adapter of a test: it does as configured, and records what it executed.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::Mutex;

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::sync::{Notify, Semaphore};

use placet_adapter::{
    adapter::{Adapter, Conditions, Connector, Inquiry, PrepareRequest, SessionLease},
    outcome::{AdapterError, Answer, Outcome, Probe},
};
use placet_ledger::dispatch::Dispatch;
use placet_types::{
    contract::{Contract, LiveTool, file::ContractFile},
    ids::AdapterName,
};

/// Its tools, each with its mode.
const TOOLS: [(&str, &str); 3] =
    [("read", "read_only"), ("write", "local_write"), ("delete", "destructive")];

/// What it did, and how it behaves.
#[derive(Debug)]
pub struct Witness {
    /// Which tools it executed.
    pub executed: Mutex<Vec<String>>,
    /// Told whenever a call reaches it.
    pub begun: Notify,
    /// One permit for each call that may go on; unlimited until `hold` is called.
    pub leave: Semaphore,
    /// Whether calls end without an answer.
    pub breaks_off: AtomicBool,
}

impl Default for Witness {
    fn default() -> Self {
        let leave = Semaphore::new(Semaphore::MAX_PERMITS / 2);
        Self {
            executed: Mutex::default(),
            begun: Notify::new(),
            leave,
            breaks_off: AtomicBool::new(false),
        }
    }
}

impl Witness {
    /// Every call waits from now on.
    pub fn hold(&self) {
        self.leave.forget_permits(Semaphore::MAX_PERMITS);
    }

    /// Lets one call go on.
    pub fn let_go(&self) {
        self.leave.add_permits(1);
    }
}

pub(super) fn contract() -> Contract {
    let adapter = AdapterName::new("files").unwrap();
    let pins: BTreeMap<String, String> = live_tools()
        .into_iter()
        .map(|tool| (tool.name.clone(), tool.digest(&adapter).to_string()))
        .collect();
    let capability = |tool: &str, mode: &str| {
        let writes = mode != "read_only";
        let mut capability = json!({
            "description": about(tool), "input_schema": schema(), "mode": mode,
            "effect": if writes { "write" } else { "none" }, "pin": pins[tool],
        });
        if writes {
            capability["dedup"] = json!({ "class": "opaque" });
        }
        (tool.to_owned(), capability)
    };
    let capabilities: BTreeMap<String, Value> =
        TOOLS.iter().map(|(tool, mode)| capability(tool, mode)).collect();
    let file: ContractFile = serde_json::from_value(json!({
        "contract_version": "placet.contract.v1", "adapter": "files", "environment": "dev", "tenants": ["acme"],
        "transport": { "type": "internal", "builtin": "files", "root": "." }, "protocol_version": "1",
        "limits": { "breaker_failures": 1_000, "concurrency_max": 8, "calls_per_minute_max": 1_000_000 },
        "capabilities": capabilities,
    }))
    .unwrap();
    Contract::from_file(file).unwrap()
}

fn about(tool: &str) -> String {
    format!("to {tool} a file")
}

fn schema() -> Value {
    json!({
        "type": "object", "required": ["path"], "additionalProperties": false,
        "properties": {
            "path": { "type": "string" }, "count": { "type": "integer", "maximum": 500 },
            "a/b": { "type": "boolean" }, "to ": { "type": "string" },
        },
    })
}

fn live_tools() -> Vec<LiveTool> {
    let tool = |(name, _): &(&str, &str)| LiveTool {
        name: (*name).to_owned(),
        title: None,
        description: about(name),
        input_schema: schema(),
        output_schema: None,
        annotations: None,
        task_only: false,
    };
    TOOLS.iter().map(tool).collect()
}

#[derive(Debug)]
pub(super) struct TestConnector(pub Arc<Witness>);

#[async_trait]
impl Connector for TestConnector {
    async fn connect(&self, _: Arc<Contract>) -> Result<Box<dyn Adapter>, AdapterError> {
        Ok(Box::new(TestAdapter(Arc::clone(&self.0))))
    }
}

#[derive(Debug)]
struct TestAdapter(Arc<Witness>);

#[async_trait]
impl Adapter for TestAdapter {
    async fn discover(&self) -> Result<Vec<LiveTool>, AdapterError> {
        Ok(live_tools())
    }

    fn generation(&self) -> u64 {
        0
    }

    async fn prepare(&self, _: PrepareRequest<'_>) -> Result<SessionLease, AdapterError> {
        Ok(SessionLease::holding(()))
    }

    async fn invoke(&self, dispatch: Dispatch, _: Conditions) -> Outcome {
        self.0.begun.notify_one();
        self.0.leave.acquire().await.unwrap().forget();
        self.0.executed.lock().push(dispatch.capability().capability().to_string());
        if self.0.breaks_off.load(Ordering::SeqCst) {
            return Outcome::Unknown("connection reset".to_owned());
        }
        Outcome::Done(Answer { output: json!("two\nlines"), ..Answer::default() })
    }

    async fn probe(&self, _: &Inquiry) -> Probe {
        Probe::Unknown
    }

    fn is_alive(&self) -> bool {
        true
    }

    async fn close(&self) {}
}
