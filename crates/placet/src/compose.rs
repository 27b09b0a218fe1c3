//! The composition root: puts the parts together into a running engine behind its listeners.
//!
//! Owns the order of the start: configuration checked, policies compiled, listeners bound, data folder locked, journal verified;
//! only then is anything served. Makes no decision of its own.

use std::{
    collections::BTreeMap,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use async_trait::async_trait;
use placet_adapter_files::files::{FilesConnector, FilesSettings};
use placet_adapter_http::{HttpConnector, HttpSettings};
use placet_adapter_mcp::connector::{
    McpConnector, McpSettings, SecretLookup, SecretVersions, SessionLimits,
};
use placet_api::{
    listen::{Bound, bind},
    tls::TlsSettings,
};
use placet_egress::{Destination, EgressClient, Limits, PrivateRanges};
use placet_engine::engine::{Connectors, Engine, EngineParts, StartError};
use placet_identity::{Secrets, SvidKeeper, Verifier};
use placet_ledger::ledger::Ledger;
use placet_store::{journal::Lock, notary::Notary};
use placet_telemetry::{
    export::{TelemetryGuard, check, init},
    metrics::Metrics,
};
use placet_types::{clock::Clock, contract::Contract};
use secrecy::SecretString;

#[cfg(any(feature = "sabotage", test))]
use crate::testing::sabotage;
use crate::{
    backups::LedgerBackups,
    broker::broker,
    clock::{SystemClock, UlidSource},
    config::load::Config,
    console,
    development::make_data_folder,
    egress,
    failure::{Attempted as _, Failure},
    issuers, mcp, notices,
    reload::ConfiguredFiles,
    sealing::{self, Tending},
    storage, svids,
    world::{self, World},
};

/// The secrets for connections: those of an import, before those of the configuration.
#[derive(Debug)]
struct ConnectionSecrets {
    imported: BTreeMap<String, SecretString>,
    configured: Secrets,
}

#[async_trait]
impl SecretLookup for ConnectionSecrets {
    async fn secret(&self, name: &str) -> Result<SecretVersions, String> {
        if let Some(value) = self.imported.get(name) {
            return Ok(SecretVersions { newest: value.clone(), previous: None });
        }
        let live = self.configured.live_soon(name).await.map_err(|error| error.to_string())?;
        let (newest, previous) = live.into_values();
        Ok(SecretVersions { newest, previous })
    }
}

/// Everything that runs.
#[derive(Debug)]
pub(crate) struct Running {
    /// The engine.
    pub(crate) engine: Engine,
    /// The listeners, bound and not yet served.
    pub(crate) bound: Bound,
    /// The telemetry.
    pub(crate) telemetry: TelemetryGuard,
    /// What opening the store found, as text.
    pub(crate) recovered: String,
    /// Signs the ledger.
    pub(crate) notary: Arc<Notary>,
    /// Renews the secrets that others issue, until it is dropped.
    pub(crate) svids: Option<SvidKeeper>,
    /// Keeps other nodes of a database from the data folder, until it is dropped.
    pub(crate) lock: Option<Lock>,
}

/// Starts everything up to the point where the listeners can be served.
pub(crate) async fn start(
    config: &Config,
    world: &World,
    files_settings: FilesSettings,
) -> Result<Running, Failure> {
    config.check_listeners()?;
    let policies = world.compile(&world.bundle, config).map_err(|found| world::refused(&found))?;
    let telemetry = telemetry(config)?;
    let data = data_folder(config)?;
    let bound = bind(config.server.clone()).await.map_err(|error| {
        Failure::new("cannot bind the listeners")
            .because(error)
            .try_this("is another Placet running, or is a port below 1024, which needs a privilege? --listen and --admin-listen name other addresses; port 0 takes a free one")
    })?;
    let own = vec![bound.address(), bound.admin_address()];
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let svids = svids::open(config).await?;
    let verifier = issuers::verifier(config, &world.directory, &own, &clock)?;
    let bound = with_tls(config, bound, &verifier)?;
    let opened = open_store(config, &data, &clock, telemetry.metrics()).await?;
    let bound = console::with_console(
        bound,
        config,
        &world.directory,
        &verifier,
        &clock,
        &own,
        &opened.sessions,
    )?;
    let notary = sealing::notary(config, &data, &opened).await?;
    let bound = with_backups(config, bound, &opened, &notary);
    let told = notices::sender(config, &opened, &own, telemetry.metrics())?;
    let files = ConfiguredFiles::new(config, &verifier, &own);
    let parts = EngineParts {
        settings: config.settings.clone(),
        ledger: Ledger::new(Arc::clone(&opened.store)),
        verifier,
        secrets: Arc::new(config.secrets.clone()),
        broker: broker(config, &own, &clock)?,
        issuers: issuers::issuers_digest(config),
        files: Some(Arc::new(files)),
        contracts: contracts(world),
        directory: Arc::new(world.directory.clone()),
        policies: Arc::new(policies),
        connectors: connectors(config, data, own, files_settings),
        clock: Arc::clone(&clock),
        ids: Arc::new(UlidSource::new(SystemClock)),
        metrics: telemetry.metrics(),
        notary: Some(Arc::clone(&notary)),
    };
    let engine = Engine::start(parts).await.map_err(not_started)?;
    notices::begin(told).await;
    let (dying, died) = (engine.clone(), opened.died);
    // The task ends with the process: a store that closes in order never reports a failure.
    drop(tokio::spawn(async move { dying.die(&died.await) }));
    let tending = Tending {
        engine: engine.clone(),
        notary: Arc::clone(&notary),
        embedded: opened.embedded,
        archive_after: config.ledger.archive.as_ref().map(|_| config.ledger.audit_for()),
        clock: Arc::clone(&clock),
    };
    drop(tokio::spawn(tending.run(config.ledger.checkpoint_every())));
    let bound = mcp::with_mcp(bound, config, &engine, clock, &notary)?;
    let (recovered, lock) = (opened.report, opened.lock);
    Ok(Running { engine, bound, telemetry, recovered, notary, svids, lock })
}

async fn open_store(
    config: &Config,
    data: &Path,
    clock: &Arc<dyn Clock>,
    metrics: Metrics,
) -> Result<storage::Opened, Failure> {
    let opened = storage::open(config, data, Arc::clone(clock), metrics).await?;
    #[cfg(any(feature = "sabotage", test))]
    let opened = storage::Opened { store: sabotage::store(opened.store), ..opened };
    Ok(opened)
}

fn contracts(world: &World) -> Vec<Arc<Contract>> {
    let contracts = world.checked();
    #[cfg(any(feature = "sabotage", test))]
    let contracts = sabotage::contracts(contracts);
    contracts
}

/// Enables TLS for callers, if a certificate is configured.
fn with_tls(config: &Config, bound: Bound, verifier: &Verifier) -> Result<Bound, Failure> {
    match tls_settings(config, verifier) {
        Some(settings) => bound.with_tls(settings).attempted("TLS cannot be set up"),
        None => Ok(bound),
    }
}

/// The TLS settings for callers, if configured.
pub(crate) fn tls_settings(config: &Config, verifier: &Verifier) -> Option<TlsSettings> {
    let tls = config.tls.as_ref()?;
    Some(TlsSettings {
        certificate: tls.certificate.clone(),
        key: tls.key.clone(),
        authorities: verifier.client_authorities().cloned(),
    })
}

/// Lets the admin listener make backups, if a folder for them is configured.
fn with_backups(
    config: &Config,
    bound: Bound,
    opened: &storage::Opened,
    notary: &Arc<Notary>,
) -> Bound {
    let folder = match (&config.ledger.backups, &opened.embedded) {
        (Some(folder), _) => folder.clone(),
        (None, Some(_)) => return bound,
        // A request is answered with how a database is backed up.
        (None, None) => PathBuf::new(),
    };
    let backups = LedgerBackups {
        store: opened.embedded.clone(),
        notary: Arc::clone(notary),
        sealed: sealing::sealed_folder(&config.data),
        folder,
        interval: config.ledger.backup_interval(),
        kept_max: config.ledger.backups_max(),
        asked_at: Arc::default(),
    };
    bound.with_backups(move || backups.clone().make())
}

fn not_started(error: StartError) -> Failure {
    let failure = Failure::new("the engine does not start");
    if let StartError::Replaced(replaced) = &error {
        let epoch = replaced.active.epoch;
        return failure
            .because(error)
            .try_this("put the policies, contracts, directory and `issuers` of the configuration on this node that the other nodes have")
            .try_this(format!("to bring the old ones back on every node, start once with --roll-back-policies {epoch}; the audit says so"));
    }
    failure.because(error)
}

fn connectors(
    config: &Config,
    data: PathBuf,
    own: Vec<SocketAddr>,
    files_settings: FilesSettings,
) -> Connectors {
    let connectors = Connectors {
        mcp: Arc::new(mcp_connector(config, data.clone(), BTreeMap::new(), own.clone())),
        internal: Arc::new(FilesConnector::new(data, files_settings)),
        http: Arc::new(HttpConnector::new(HttpSettings {
            trust: config.trust.clone(),
            own_listeners: own,
        })),
    };
    #[cfg(any(feature = "sabotage", test))]
    let connectors = sabotage::connectors(connectors);
    connectors
}

/// Connects to MCP servers; `imported` are secrets that the configuration does not have yet.
pub(crate) fn mcp_connector(
    config: &Config,
    data_dir: PathBuf,
    imported: BTreeMap<String, SecretString>,
    own_listeners: Vec<SocketAddr>,
) -> McpConnector {
    McpConnector::new(McpSettings {
        data_dir,
        client_name: "placet".to_owned(),
        client_version: env!("CARGO_PKG_VERSION").to_owned(),
        secrets: Arc::new(ConnectionSecrets { imported, configured: config.secrets.clone() }),
        trust: config.trust.clone(),
        own_listeners,
        sessions: SessionLimits::default(),
    })
}

/// The data folder as an absolute path, created if missing.
pub(crate) fn data_folder(config: &Config) -> Result<PathBuf, Failure> {
    make_data_folder(config)?;
    fs::canonicalize(&config.data)
        .attempted(format!("the data folder `{}` cannot be used", config.data.display()))
}

/// Whether the telemetry could start as it is configured.
pub(crate) fn check_telemetry(config: &Config) -> Result<(), Failure> {
    let egress = collector(config)?;
    check(&config.telemetry, egress.as_ref()).attempted(NO_TELEMETRY)
}

const NO_TELEMETRY: &str = "the telemetry cannot start";

fn telemetry(config: &Config) -> Result<TelemetryGuard, Failure> {
    let egress = collector(config)?;
    init(&config.telemetry, egress.as_ref()).attempted(NO_TELEMETRY)
}

/// The client for the collector of spans.
fn collector(config: &Config) -> Result<Option<EgressClient>, Failure> {
    // The configuration names the collector, so it may be on a private network.
    let collector = config.telemetry.otlp.iter();
    let collector =
        collector.map(|otlp| Destination::from_url(&otlp.endpoint, PrivateRanges::Allowed));
    let collector = collector.collect::<Result<_, _>>().attempted(NO_TELEMETRY)?;
    // The listeners are not open yet; with port 0 nobody can have meant them.
    let own = [config.server.listen, config.server.admin_listen];
    egress::client(config, collector, Limits::default(), &own, NO_TELEMETRY)
}
