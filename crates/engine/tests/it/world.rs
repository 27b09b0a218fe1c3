//! A small world: one tenant, an agent, two people, an adapter with a witness of every effect.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::future::BoxFuture;
use parking_lot::Mutex;

use serde_json::{Value, json};

use placet_adapter::adapter::Connector;
use placet_credentials::Broker;
use placet_engine::{
    answer::{Answer, Held},
    engine::{Connectors, Engine, EngineParts, StartError},
    reload::{Files, Loaded, ReloadError},
    settings::{LedgerSettings, Retention, Settings},
    submission::{Inbound, Submission},
    ticket::Ticket,
    views::{RearmRequest, RecordView, status::ReloadView},
};
use placet_identity::{DevKey, IdentityConfig, Secrets, VerifiedCaller, Verifier};
use placet_ledger::{
    ledger::Ledger,
    record::EffectRecord,
    store::{EffectQuery, Store},
    testing::MemoryStore,
};
use placet_policy::{
    bundle::{BundleSource, PolicyFile},
    snapshot::Snapshot,
};
use placet_store::notary::Notary;
use placet_telemetry::{export::TelemetryConfig, metrics::Metrics, testing::Capture};
use placet_types::{
    clock::{Clock, IdSource, Timestamp},
    contract::{Contract, file::ContractFile},
    digest::Digest,
    directory::Directory,
    envelope::result::{PendingApproval, ToolResultEnvelope},
    error::Refusal,
    ids::{AdapterName, EnvironmentName},
};

mod people;

use crate::fake::{FakeConnector, Witness, live_tools, schema};

/// When the world begins.
const BEGINNING: Timestamp = Timestamp::from_ms(1_800_000_000_000);

/// A clock that stands still unless moved.
#[derive(Debug)]
pub(crate) struct StandingClock(Mutex<Timestamp>);

impl Clock for StandingClock {
    fn now(&self) -> Timestamp {
        *self.0.lock()
    }
}

#[derive(Debug, Default)]
struct Counter(AtomicU64);

impl IdSource for Counter {
    fn fresh(&self) -> String {
        format!("{:026}", self.0.fetch_add(1, Ordering::SeqCst))
    }
}

fn contract(
    name: &str,
    breaker_failures: u32,
    places: u32,
    per_minute: u32,
    brings: &[(&str, Value)],
) -> Contract {
    let adapter = AdapterName::new(name).unwrap();
    let pins: BTreeMap<String, String> = live_tools(false)
        .into_iter()
        .map(|tool| (tool.name.clone(), tool.digest(&adapter).to_string()))
        .collect();
    let capability = |name: &str, mode: &str, dedup: Value| {
        let effect = if dedup.is_null() { "none" } else { "write" };
        let mut capability = json!({
            "description": format!("to {name}"), "input_schema": schema(), "mode": mode, "effect": effect, "pin": pins[name]
        });
        if !dedup.is_null() {
            capability["dedup"] = dedup;
        }
        capability
    };
    let opaque = || json!({"class": "opaque"});
    // `fetch` goes over a network, which needs a bound.
    let per_minute = if per_minute == 0 { 1_000_000 } else { per_minute };
    let mut file = json!({
        "contract_version": "placet.contract.v1", "adapter": name, "environment": "dev", "tenants": ["acme", "globex"],
        "transport": {"type": "internal", "builtin": "fake", "root": "."}, "protocol_version": "1",
        "limits": {"breaker_failures": breaker_failures, "concurrency_max": places, "calls_per_minute_max": per_minute},
        "capabilities": {
            "look": capability("look", "read_only", Value::Null),
            "note": capability("note", "local_write", opaque()),
            "erase": capability("erase", "destructive", opaque()),
            "fetch": capability("fetch", "network", Value::Null),
            "pay": capability("pay", "delegated", opaque()),
            "send": capability("send", "local_write", json!({"class": "keyed", "window_ms": 86_400_000})),
            "book": capability("book", "local_write", json!({"class": "queryable", "settle_delay_ms": 0})),
        }
    });
    for (tool, taint) in brings {
        file["capabilities"][*tool]["result_taint"] = taint.clone();
    }
    let file: ContractFile = serde_json::from_value(file).unwrap();
    Contract::from_file(file).unwrap()
}

/// The people of all worlds, and their agents.
pub(crate) fn directory() -> Directory {
    let directory: Directory = serde_json::from_value(json!({"tenants": {"acme": {
        "groups": {"approvers": {}, "operators": {}, "credit-approvers": {}, "finance": {}, "directors": {}, "auditors": {}, "freeze-approvers": {}, "emergency": {}},
        "users": {"ana": {}, "ben": {"groups": ["approvers", "operators"]}, "cy": {"groups": ["approvers"]}, "dora": {"groups": ["operators"]},
                  "finn": {"groups": ["finance"]}, "fia": {"groups": ["finance"]}, "dan": {"groups": ["directors"]}, "eve": {"groups": ["auditors"]},
                  "fay": {"groups": ["freeze-approvers"]}, "emil": {"groups": ["emergency"]}, "ema": {"groups": ["emergency"]}, "leo": {},
                  "gone": {"groups": ["approvers", "operators"], "active": false}},
        "agents": {"bot": {"owner": "ana", "display": "The bot", "classes": ["busy"]}, "other": {"owner": "ana", "classes": ["busy"]}},
        "classes": {"busy": {"calls_per_minute_max": 1_000_000}}
    }, "globex": {
        "groups": {"credit-approvers": {}, "auditors": {}, "finance": {}},
        "users": {"gil": {"groups": ["credit-approvers", "finance"]}, "ben": {"groups": ["credit-approvers"]}, "zoe": {"groups": ["auditors", "finance"]}},
        "agents": {"bot": {"owner": "zoe"}}
    }}}))
    .unwrap();
    directory.check().unwrap();
    directory
}

pub(crate) fn bundle() -> BundleSource {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies");
    BundleSource::new(std::fs::read_dir(folder).unwrap().filter_map(|entry| {
        let path = entry.unwrap().path();
        (path.extension()? == "cedar").then(|| PolicyFile {
            name: path.file_name().unwrap().to_string_lossy().into_owned(),
            text: std::fs::read_to_string(&path).unwrap(),
        })
    }))
}

/// A subscriber for threads that have none: otherwise the first of them to reach a span turns it off for all.
fn subscribe() {
    static SUBSCRIBED: std::sync::OnceLock<Capture> = std::sync::OnceLock::new();
    SUBSCRIBED.get_or_init(|| {
        let capture = Capture::start(&TelemetryConfig::default()).unwrap();
        tracing::dispatcher::set_global_default(capture.dispatch.clone()).unwrap();
        capture
    });
}

/// What a world is made of.
pub(crate) struct Make {
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) witness: Arc<Witness>,
    pub(crate) calls: usize,
    pub(crate) breaker_failures: u32,
    /// How many calls the adapter takes at a time.
    pub(crate) places: u32,
    /// How many calls of a tool it takes in a minute.
    pub(crate) per_minute: u32,
    pub(crate) bundle: BundleSource,
    pub(crate) directory: Directory,
    /// Whether no tool is offered any more.
    pub(crate) is_bare: bool,
    pub(crate) ledger: LedgerSettings,
    /// Another adapter with the same tools.
    pub(crate) also: Option<&'static str>,
    /// What the results of its tools carry, by the contract.
    pub(crate) brings: Vec<(&'static str, Value)>,
    /// Where the engine keeps, if not in `store`.
    pub(crate) kept_in: Option<Arc<dyn Store>>,
    /// Who signs, and shows the audit chain.
    pub(crate) notary: Option<Arc<Notary>>,
    /// Whether spans go nowhere: those that tests look at stay in memory.
    pub(crate) is_quiet: bool,
}

impl Make {
    fn offered(&self) -> Vec<Arc<Contract>> {
        let names = std::iter::once("fake").chain(self.also).filter(|_| !self.is_bare);
        names
            .map(|name| {
                Arc::new(contract(
                    name,
                    self.breaker_failures,
                    self.places,
                    self.per_minute,
                    &self.brings,
                ))
            })
            .collect()
    }
}

impl Default for Make {
    fn default() -> Self {
        Self {
            store: Arc::new(MemoryStore::new(BEGINNING)),
            witness: Arc::default(),
            calls: 10_000,
            breaker_failures: 1_000,
            places: 8,
            per_minute: 0,
            bundle: bundle(),
            directory: directory(),
            is_bare: false,
            ledger: quick(),
            also: None,
            brings: Vec::new(),
            kept_in: None,
            notary: None,
            is_quiet: false,
        }
    }
}

/// What a reload reads: policies and a directory that tests put there; all else stays.
#[derive(Debug)]
struct Folder {
    bundle: Mutex<BundleSource>,
    contracts: Vec<Arc<Contract>>,
    directory: Mutex<Arc<Directory>>,
    environment: EnvironmentName,
    verifier: Verifier,
    config: IdentityConfig,
}

impl Files for Folder {
    fn read(&self) -> BoxFuture<'_, Result<Loaded, Vec<String>>> {
        let (bundle, directory) = (self.bundle.lock().clone(), self.directory.lock().clone());
        let policies =
            Snapshot::compile(&bundle, &self.contracts, &directory, &self.environment, 0);
        let loaded = policies.map(|policies| Loaded {
            policies: Arc::new(policies),
            contracts: self.contracts.clone(),
            directory,
            issuers: self.verifier.prepare(&self.config, None).unwrap(),
            issuers_digest: Digest::of(b"issuers"),
            needs_restart: Vec::new(),
        });
        let told = |problems: Vec<_>| problems.iter().map(ToString::to_string).collect();
        Box::pin(std::future::ready(loaded.map_err(told)))
    }
}

/// Settings whose rounds come soon.
pub(crate) fn quick() -> LedgerSettings {
    LedgerSettings {
        fleet_every_ms: 50,
        poll_ms: 20,
        ask_every_ms: 50,
        retention: Retention { sweep_every_ms: 100, ..Retention::default() },
        ..LedgerSettings::default()
    }
}

/// Settings for hours of a paused clock: with rounds as frequent as otherwise in tests, millions of timers would go off.
pub(crate) fn unhurried() -> LedgerSettings {
    LedgerSettings {
        fleet_every_ms: 10_000,
        poll_ms: 1_000,
        ask_every_ms: 10_000,
        retention: Retention { sweep_every_ms: 60_000, ..Retention::default() },
        ..LedgerSettings::default()
    }
}

fn settings(calls: usize, ledger: LedgerSettings) -> Settings {
    Settings {
        calls_in_flight_max: calls,
        calls_in_flight_per_tenant_max: calls,
        held_per_agent_max: 100_000,
        stage_workers: 2,
        durable_reads: false,
        live_list_ms_max: 30_000,
        identity_refresh_ms: 60_000,
        answers_kept_ms: 60_000,
        answers_kept_max: 10_000,
        operators: "operators".parse().unwrap(),
        callbacks: std::collections::BTreeMap::new(),
        ledger,
    }
}

/// Who mints nothing.
fn broker(clock: &Arc<StandingClock>) -> Broker {
    let clock = Arc::<StandingClock>::clone(clock);
    Broker::new(Vec::new(), Secrets::default(), None, clock).unwrap()
}

/// A running engine and everything around it.
pub(crate) struct World {
    pub(crate) engine: Engine,
    pub(crate) witness: Arc<Witness>,
    pub(crate) store: Arc<MemoryStore>,
    key: DevKey,
    clock: Arc<StandingClock>,
    verifier: Verifier,
    folder: Arc<Folder>,
}

const AUDIENCE: &str = "placet";

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(Make::default()).await
    }

    /// An engine that admits so many calls at a time.
    pub(crate) async fn bounded(calls: usize) -> Self {
        Self::with(Make { calls, ..Make::default() }).await
    }

    /// An engine whose adapter is left alone after so many failures.
    pub(crate) async fn touchy(breaker_failures: u32) -> Self {
        Self::with(Make { breaker_failures, ..Make::default() }).await
    }

    /// The next process over the records of an earlier one, which is over.
    pub(crate) async fn over(store: Arc<MemoryStore>, witness: Arc<Witness>) -> Self {
        Self::with(Make { store: Arc::new(store.restarted()), witness, ..Make::default() }).await
    }

    /// Another node over the same records and with the same adapter.
    pub(crate) async fn node(&self) -> Self {
        Self::with(self.beside()).await
    }

    /// What another node over the same records is made of, with the same adapter.
    pub(crate) fn beside(&self) -> Make {
        let store = Arc::new(self.store.node());
        Make { store, witness: Arc::clone(&self.witness), ..Make::default() }
    }

    /// What the next process over the same records is made of, with the same adapter; this one is over.
    pub(crate) fn after(&self) -> Make {
        let store = Arc::new(self.store.restarted());
        Make { store, witness: Arc::clone(&self.witness), ..Make::default() }
    }

    pub(crate) async fn with(make: Make) -> Self {
        Self::started(make).await.unwrap()
    }

    /// An engine, if it starts.
    pub(crate) async fn started(make: Make) -> Result<Self, StartError> {
        let contracts = make.offered();
        let Make {
            store,
            witness,
            calls,
            bundle,
            directory,
            ledger,
            kept_in,
            notary,
            is_quiet,
            ..
        } = make;
        if !is_quiet {
            subscribe();
        }
        let settings = settings(calls, ledger);
        let environment = "dev".parse().unwrap();
        let policies = Snapshot::compile(&bundle, &contracts, &directory, &environment, 0).unwrap();
        let clock = Arc::new(StandingClock(Mutex::new(BEGINNING)));
        let key = DevKey::generate().unwrap();
        let loopback = std::net::IpAddr::from([127, 0, 0, 1]);
        let issuer = |tenant: &str| {
            let audiences = BTreeSet::from([AUDIENCE.to_owned()]);
            key.issuer_config(loopback, tenant.parse().unwrap(), audiences).unwrap()
        };
        let config = IdentityConfig {
            issuers: vec![issuer("acme"), issuer("globex")],
            ..IdentityConfig::default()
        };
        let verifier =
            Verifier::new(config.clone(), Arc::<StandingClock>::clone(&clock), None).unwrap();
        let directory = Arc::new(directory);
        let folder = Arc::new(Folder {
            bundle: Mutex::new(bundle),
            contracts: contracts.clone(),
            directory: Mutex::new(Arc::clone(&directory)),
            environment,
            verifier: verifier.clone(),
            config,
        });
        // No two nodes give the same.
        let first_id = store.epoch().saturating_mul(1_000_000_000).saturating_add(store.commits());
        let connector: Arc<dyn Connector> = Arc::new(FakeConnector(Arc::clone(&witness)));
        let engine = Engine::start(EngineParts {
            settings,
            ledger: Ledger::new(kept_in.unwrap_or_else(|| Arc::<MemoryStore>::clone(&store))),
            verifier: verifier.clone(),
            secrets: Arc::new(Secrets::new(BTreeMap::new())),
            broker: broker(&clock),
            contracts,
            directory,
            policies: Arc::new(policies),
            connectors: Connectors {
                internal: Arc::clone(&connector),
                mcp: Arc::clone(&connector),
                http: connector,
            },
            clock: Arc::<StandingClock>::clone(&clock),
            ids: Arc::new(Counter(AtomicU64::new(first_id))),
            metrics: Metrics::new(),
            notary,
            issuers: Digest::of(b"issuers"),
            files: Some(Arc::<Folder>::clone(&folder)),
        })
        .await?;
        Ok(Self { engine, witness, store, key, clock, verifier, folder })
    }

    /// Puts other policies into the files, and reloads.
    pub(crate) async fn activate(&self, bundle: BundleSource) -> Result<ReloadView, ReloadError> {
        *self.folder.bundle.lock() = bundle;
        self.engine.reload("a test").await
    }

    /// Puts another directory there, and reloads.
    pub(crate) async fn appoint(&self, directory: Directory) -> Result<ReloadView, ReloadError> {
        *self.folder.directory.lock() = Arc::new(directory);
        self.engine.reload("a test").await
    }

    /// Sends a call and waits until it is settled or held.
    pub(crate) async fn call(&self, submission: Value) -> Answer {
        self.call_as(self.agent().await, submission).await
    }

    /// Sends a call and leaves it to itself.
    pub(crate) async fn send(&self, submission: Value) -> Ticket {
        let submission: Submission = serde_json::from_value(submission).unwrap();
        self.engine.submit(self.agent().await, submission, Inbound::default()).unwrap()
    }

    pub(crate) async fn call_as(&self, caller: VerifiedCaller, submission: Value) -> Answer {
        let submission: Submission = serde_json::from_value(submission).unwrap();
        let mut ticket = self.engine.submit(caller, submission, Inbound::default()).unwrap();
        tokio::time::timeout(Duration::from_secs(20), ticket.settled(0))
            .await
            .expect("the caller hangs")
    }

    /// Waits until a call of the agent's has ended.
    pub(crate) async fn end_of(&self, held: &Held) -> Answer {
        let caller = self.agent().await;
        let mut ticket = self.engine.follow(&caller, &held.call_id).await.unwrap();
        tokio::time::timeout(Duration::from_secs(20), async {
            loop {
                let answer = ticket.current();
                if answer.is_final() {
                    return answer;
                }
                ticket.changed().await;
            }
        })
        .await
        .expect("the call does not end")
    }

    /// The only record there is.
    pub(crate) async fn record(&self) -> EffectRecord {
        self.any_record().await.expect("there is no record")
    }

    async fn any_record(&self) -> Option<EffectRecord> {
        let query = EffectQuery { limit: 2, ..EffectQuery::default() };
        let mut records = self.store.effects(&query).await.unwrap();
        assert!(records.len() <= 1, "{records:?}");
        records.pop()
    }

    /// Waits until the only record is in this state.
    pub(crate) async fn reaches(&self, state: &str) -> EffectRecord {
        let reaching = async {
            loop {
                if let Some(record) = self.any_record().await
                    && record.state.name() == state
                {
                    return record;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        match tokio::time::timeout(Duration::from_secs(20), reaching).await {
            Ok(record) => record,
            Err(_) => panic!("never {state}: {:?}", self.record().await.state),
        }
    }

    /// An operator's word that the call of the only record shall be sent again.
    pub(crate) async fn rearm(&self, operator: &str) -> Result<RecordView, Refusal> {
        let caller = self.person(operator).await;
        let request = RearmRequest { evidence: "not in the target".to_owned() };
        self.engine.rearm(&caller, self.record().await.record_id, request).await
    }

    /// Moves the clock that tokens are made by to the time of the store: anyone who signs in from now on is fresh.
    pub(crate) fn tell_time(&self) {
        *self.clock.0.lock() = self.store.now();
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.store.now()
    }
}

/// A call of a tool in the run of all tests.
pub(crate) fn plan(tool: &str, step: &str, what: &str) -> Value {
    json!({
        "tool": format!("fake__{tool}"), "args": {"what": what}, "step_id": step, "request_id": "req",
        "run": {"run_id": "run", "safety_mode": "destructive"}
    })
}

/// The same call upon the result of an earlier one of its run.
pub(crate) fn upon(mut plan: Value, earlier: &ToolResultEnvelope) -> Value {
    plan["evidence_refs"] = json!([earlier.tool_call_id]);
    plan
}

pub(crate) fn finished(answer: Answer) -> ToolResultEnvelope {
    match answer {
        Answer::Finished(result) => Arc::unwrap_or_clone(result),
        other @ (Answer::InProgress(_) | Answer::Held(_) | Answer::Refused(_)) => {
            panic!("not finished: {other:?}")
        }
    }
}

pub(crate) fn refused(answer: Answer) -> Refusal {
    match answer {
        Answer::Refused(refused) => refused.refusal,
        other @ (Answer::InProgress(_) | Answer::Held(_) | Answer::Finished(_)) => {
            panic!("not refused: {other:?}")
        }
    }
}

/// What a held call waits for, as its caller is told.
pub(crate) fn waits(held: &Held) -> PendingApproval {
    held.result.pending_approval.clone().unwrap()
}

pub(crate) fn held(answer: Answer) -> Held {
    match answer {
        Answer::Held(held) => *held,
        other @ (Answer::InProgress(_) | Answer::Finished(_) | Answer::Refused(_)) => {
            panic!("not held: {other:?}")
        }
    }
}
