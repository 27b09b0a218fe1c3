//! One process of the simulation: an engine over the disk, in a runtime whose clock is virtual, until it ends or is killed.
//!
//! Owns the configuration of the engine. What its clients do is in `client`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;

use serde_json::{Value, json};

use placet_adapter::adapter::Connector;
use placet_credentials::Broker;
use placet_engine::{
    engine::{Connectors, Engine, EngineParts},
    settings::{LedgerSettings, Settings},
};
use placet_identity::{
    DevKey, IdentityConfig, MintRequest, Secrets, TokenRole, VerifiedCaller, Verifier,
};
use placet_ledger::ledger::Ledger;
use placet_policy::{
    bundle::{BundleSource, PolicyFile},
    snapshot::Snapshot,
};
use placet_telemetry::metrics::Metrics;
use placet_types::{
    clock::IdSource,
    contract::{Contract, file::ContractFile},
    directory::Directory,
    ids::{AdapterName, TenantId},
    principal::PrincipalKind,
};

use crate::{
    disk::{Disk, SimStore},
    time::SimTime,
    witness::{SETTLE_MS, TOOLS, Target, Witness, live_tools, schema},
};

const AUDIENCE: &str = "placet";

/// Ids that no process of a simulation gives twice.
#[derive(Debug)]
struct Counter(u64, AtomicU64);

impl IdSource for Counter {
    fn fresh(&self) -> String {
        format!("{:06}{:020}", self.0, self.1.fetch_add(1, Ordering::SeqCst))
    }
}

/// An engine and what its clients need.
pub(crate) struct Process {
    pub(crate) engine: Engine,
    pub(crate) time: Arc<SimTime>,
    verifier: Verifier,
    /// Callers with the time they were verified: signing is slow in a test build.
    callers: Mutex<BTreeMap<String, (i64, VerifiedCaller)>>,
}

/// For how long a token is used again, in milliseconds.
const TOKEN_MS: i64 = 300_000;

/// What does not change from seed to seed.
struct Fixed {
    key: DevKey,
    contract: Arc<Contract>,
    directory: Arc<Directory>,
    policies: Arc<Snapshot>,
}

static FIXED: LazyLock<Fixed> = LazyLock::new(|| {
    let (contract, directory) = (Arc::new(contract()), directory());
    let contracts = [Arc::clone(&contract)];
    let environment = "dev".parse().unwrap();
    let policies = Snapshot::compile(&bundle(), &contracts, &directory, &environment, 0).unwrap();
    Fixed {
        key: DevKey::generate().unwrap(),
        contract,
        directory: Arc::new(directory),
        policies: Arc::new(policies),
    }
});

fn contract() -> Contract {
    let adapter = AdapterName::new("sim").unwrap();
    let pins: BTreeMap<String, String> = live_tools()
        .into_iter()
        .map(|tool| (tool.name.clone(), tool.digest(&adapter).to_string()))
        .collect();
    let capabilities: serde_json::Map<String, Value> = TOOLS
        .into_iter()
        .map(|(name, class)| (name.to_owned(), capability(name, class, &pins[name])))
        .collect();
    let file: ContractFile = serde_json::from_value(json!({
        "contract_version": "placet.contract.v1", "adapter": "sim", "environment": "dev", "tenants": ["acme", "globex"],
        "transport": {"type": "internal", "builtin": "sim", "root": "."}, "protocol_version": "1",
        "limits": {"breaker_failures": 1_000, "calls_per_minute_max": 1_000_000}, "capabilities": capabilities
    }))
    .unwrap();
    Contract::from_file(file).unwrap()
}

fn capability(name: &str, class: &str, pin: &str) -> Value {
    let (mode, effect) = match name {
        "look" => ("read_only", "none"),
        "erase" => ("destructive", "write"),
        _ => ("local_write", "write"),
    };
    let mut capability = json!({
        "description": format!("to {name}"), "input_schema": schema(), "mode": mode, "effect": effect,
        "pin": pin
    });
    match class {
        "keyed" => capability["dedup"] = json!({"class": "keyed", "window_ms": 86_400_000}),
        "queryable" => {
            capability["dedup"] = json!({"class": "queryable", "settle_delay_ms": SETTLE_MS});
        }
        "opaque" => capability["dedup"] = json!({"class": "opaque"}),
        _ => {}
    }
    capability
}

fn directory() -> Directory {
    let directory: Directory = serde_json::from_value(json!({"tenants": {"acme": {
        "groups": {"approvers": {}, "operators": {}},
        "users": {"ana": {"groups": ["approvers"]}, "ben": {"groups": ["approvers", "operators"]},
                  "cy": {"groups": ["approvers"]}},
        "agents": {"bot": {"owner": "ana", "classes": ["load"]}, "other": {"owner": "ana", "classes": ["load"]}},
        "classes": {"load": {"calls_per_minute_max": 1_000_000}}
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

impl Process {
    /// Starts; `None` when the disk holds something that an engine must refuse.
    pub(crate) async fn start(
        disk: &Arc<Disk>,
        witness: &Arc<Witness>,
        time: &Arc<SimTime>,
        seed: u64,
    ) -> Self {
        time.begin();
        let store = SimStore::open(Arc::clone(disk), Arc::<SimTime>::clone(time), seed);
        let number = placet_ledger::store::Store::epoch(&store);
        let ids = Counter(number, AtomicU64::new(store.commits()));
        let issuer = FIXED
            .key
            .issuer_config(
                std::net::IpAddr::from([127, 0, 0, 1]),
                TenantId::new("acme").unwrap(),
                BTreeSet::from([AUDIENCE.to_owned()]),
            )
            .unwrap();
        let config = IdentityConfig { issuers: vec![issuer], ..IdentityConfig::default() };
        let verifier = Verifier::new(config, Arc::<SimTime>::clone(time), None).unwrap();
        let connector: Arc<dyn Connector> = Arc::new(Target(Arc::clone(witness)));
        let engine = Engine::start(EngineParts {
            settings: settings(),
            ledger: Ledger::new(Arc::new(store)),
            verifier: verifier.clone(),
            secrets: Arc::new(Secrets::new(BTreeMap::new())),
            broker: Broker::new(Vec::new(), Secrets::default(), None, Arc::<SimTime>::clone(time))
                .unwrap(),
            contracts: vec![Arc::clone(&FIXED.contract)],
            directory: Arc::clone(&FIXED.directory),
            policies: Arc::clone(&FIXED.policies),
            connectors: Connectors {
                internal: Arc::clone(&connector),
                mcp: Arc::clone(&connector),
                http: connector,
            },
            clock: Arc::<SimTime>::clone(time),
            ids: Arc::new(ids),
            metrics: Metrics::new(),
            notary: None,
            issuers: placet_types::digest::Digest::of(b"issuers"),
            files: None,
        })
        .await
        .unwrap();
        Self { engine, time: Arc::clone(time), verifier, callers: Mutex::default() }
    }

    pub(crate) async fn caller(&self, kind: PrincipalKind, id: &str) -> VerifiedCaller {
        let now = self.time.now_ms();
        if let Some((at, caller)) = self.callers.lock().get(id)
            && now - at < TOKEN_MS
        {
            return caller.clone();
        }
        let request = MintRequest::new(
            TenantId::new("acme").unwrap(),
            kind,
            id.parse().unwrap(),
            AUDIENCE.to_owned(),
        );
        let token = FIXED.key.mint(&request, self.time.as_ref()).unwrap();
        let token = self.verifier.verify(&token, TokenRole::Actor).await.unwrap();
        let caller = VerifiedCaller::bind(token, None).unwrap();
        self.callers.lock().insert(id.to_owned(), (now, caller.clone()));
        caller
    }
}

fn settings() -> Settings {
    Settings {
        calls_in_flight_max: 1_000,
        calls_in_flight_per_tenant_max: 1_000,
        held_per_agent_max: 1_000_000,
        stage_workers: 2,
        durable_reads: false,
        live_list_ms_max: 30_000,
        identity_refresh_ms: 60_000,
        answers_kept_ms: 60_000,
        answers_kept_max: 10_000,
        operators: "operators".parse().unwrap(),
        callbacks: std::collections::BTreeMap::new(),
        ledger: LedgerSettings::default(),
    }
}
