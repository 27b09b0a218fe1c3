//! The engine of a test: the shipped policies, two tenants, and one adapter; in memory, or on disk where the audit chain is read.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc, LazyLock, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use serde_json::{Value, json};
use tempfile::TempDir;

use placet_adapter::adapter::Connector;
use placet_credentials::Broker;
use placet_engine::{
    engine::{Connectors, Engine, EngineParts},
    settings::{LedgerSettings, Settings},
};
use placet_identity::Secrets;
use placet_ledger::{ledger::Ledger, store::Store, testing::MemoryStore};
use placet_policy::{
    bundle::{BundleSource, PolicyFile},
    snapshot::Snapshot,
};
use placet_store::{
    embedded::{EmbeddedConfig, EmbeddedStore},
    notary::Notary,
    seal::SealKey,
};
use placet_telemetry::{export::TelemetryConfig, metrics::Metrics, testing::Capture};
use placet_types::{
    clock::{IdSource, Timestamp},
    contract::Contract,
    digest::Digest,
    directory::Directory,
};

use super::{
    adapter::{TestConnector, Witness, contract},
    people::{NOW_MS, People, StandingClock},
};

/// What all engines of a process are made of.
struct Rules {
    contracts: Vec<Arc<Contract>>,
    directory: Arc<Directory>,
    policies: Arc<Snapshot>,
}

static RULES: LazyLock<Rules> = LazyLock::new(|| {
    let contracts = vec![Arc::new(contract())];
    let directory = directory();
    let environment = "dev".parse().unwrap();
    let policies = Snapshot::compile(&bundle(), &contracts, &directory, &environment, 0).unwrap();
    Rules { contracts, directory: Arc::new(directory), policies: Arc::new(policies) }
});

/// `ana` answers for the agent; `ben` decides and runs the service; `cy` decides as well; `ema` is on call; `eve` sees all.
fn directory() -> Directory {
    let groups = [
        "approvers",
        "operators",
        "auditors",
        "freeze-approvers",
        "emergency",
        "finance",
        "directors",
        "credit-approvers",
    ];
    let groups: BTreeMap<&str, Value> = groups.iter().map(|group| (*group, json!({}))).collect();
    let directory: Directory = serde_json::from_value(json!({ "tenants": {
        "acme": {
            "groups": groups,
            "users": {
                "ana": {}, "ben": { "groups": ["approvers", "operators", "freeze-approvers", "emergency"] },
                "cy": { "groups": ["approvers"] }, "ema": { "groups": ["emergency"] }, "eve": { "groups": ["auditors", "operators"] },
            },
            "agents": { "bot": { "owner": "ana", "classes": ["busy"] } },
            "classes": { "busy": { "calls_per_minute_max": 1_000_000 } },
        },
        "globex": { "groups": groups, "users": { "zoe": { "groups": ["operators"] } }, "agents": { "bot": { "owner": "zoe" } } },
    }}))
    .unwrap();
    directory.check().unwrap();
    directory
}

fn bundle() -> BundleSource {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies");
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
    static SUBSCRIBED: OnceLock<Capture> = OnceLock::new();
    SUBSCRIBED.get_or_init(|| {
        let capture = Capture::start(&TelemetryConfig::default()).unwrap();
        tracing::dispatcher::set_global_default(capture.dispatch.clone()).unwrap();
        capture
    });
}

#[derive(Debug, Default)]
struct Counter(AtomicU64);

impl IdSource for Counter {
    fn fresh(&self) -> String {
        // As in a ULID, the first ten characters are the time.
        format!("01MCC5RM00{:016}", self.0.fetch_add(1, Ordering::SeqCst))
    }
}

/// A running engine and its surroundings.
#[derive(Debug)]
pub struct World {
    pub engine: Engine,
    pub witness: Arc<Witness>,
    /// The store of an engine in memory.
    pub store: Arc<MemoryStore>,
    pub people: People,
    _folder: Option<TempDir>,
}

impl World {
    /// An engine in memory.
    pub async fn new(people: People) -> Self {
        let store = Arc::new(MemoryStore::new(Timestamp::from_ms(NOW_MS)));
        let kept_in: Arc<dyn Store> = Arc::<MemoryStore>::clone(&store);
        Self::over(people, store, kept_in, None).await
    }

    /// An engine on disk, with an audit chain.
    pub async fn on_disk(people: People) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = EmbeddedConfig::new(folder.path());
        let opening = tokio::task::spawn_blocking(move || {
            EmbeddedStore::open(config, Arc::new(StandingClock))
        });
        let kept = opening.await.unwrap().unwrap().0;
        let key = SealKey::from_seed("placet.example/key".parse().unwrap(), &[7; 32]);
        let (name, seals) = ("placet.example/test".parse().unwrap(), folder.path().join("seals"));
        std::fs::create_dir_all(&seals).unwrap();
        let log = Arc::<EmbeddedStore>::clone(&kept);
        let notary = Arc::new(Notary::new(Arc::new(key), name, log, seals));
        let store = Arc::new(MemoryStore::new(Timestamp::from_ms(NOW_MS)));
        Self::over(people, store, kept, Some((notary, folder))).await
    }

    async fn over(
        people: People,
        store: Arc<MemoryStore>,
        kept_in: Arc<dyn Store>,
        chain: Option<(Arc<Notary>, TempDir)>,
    ) -> Self {
        subscribe();
        let witness = Arc::<Witness>::default();
        let broker = Broker::new(Vec::new(), Secrets::default(), None, Arc::new(StandingClock));
        let connector: Arc<dyn Connector> = Arc::new(TestConnector(Arc::clone(&witness)));
        let (notary, folder) = chain.unzip();
        let engine = Engine::start(EngineParts {
            settings: settings(),
            ledger: Ledger::new(kept_in),
            verifier: people.verifier.clone(),
            secrets: Arc::new(Secrets::new(BTreeMap::new())),
            broker: broker.unwrap(),
            contracts: RULES.contracts.clone(),
            directory: Arc::clone(&RULES.directory),
            policies: Arc::clone(&RULES.policies),
            connectors: Connectors {
                internal: Arc::clone(&connector),
                mcp: Arc::clone(&connector),
                http: connector,
            },
            clock: Arc::new(StandingClock),
            ids: Arc::<Counter>::default(),
            metrics: Metrics::new(),
            notary,
            issuers: Digest::of(b"issuers"),
            files: None,
        })
        .await
        .unwrap();
        Self { engine, witness, store, people, _folder: folder }
    }
}

fn settings() -> Settings {
    Settings {
        calls_in_flight_max: 1_000,
        calls_in_flight_per_tenant_max: 1_000,
        held_per_agent_max: 1_000,
        stage_workers: 2,
        durable_reads: false,
        live_list_ms_max: 30_000,
        identity_refresh_ms: 60_000,
        answers_kept_ms: 60_000,
        answers_kept_max: 1_000,
        operators: "operators".parse().unwrap(),
        callbacks: BTreeMap::new(),
        ledger: LedgerSettings::default(),
    }
}
