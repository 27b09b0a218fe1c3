//! From the file to the process's settings: finding it, reading it, checking it.
//!
//! Owns [`Config`]. Invariants: a missing secret is an error at the start of the server, and elsewhere when it is used; a listener that
//! other machines can reach without issuers is refused; nothing is guessed from an unreadable value.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use placet_api::config::ServerConfig;
use placet_credentials::{StsConfig, check_all};
use placet_egress::Trust;
use placet_engine::settings::Settings;
use placet_identity::{IdentityConfig, KeySource, SecretError, SecretSource, Secrets};
use placet_mcp_server::McpSettings;
use placet_notify::config::NotifyConfig;
use placet_telemetry::export::{OtlpConfig, TelemetryConfig};
use placet_types::ids::EnvironmentName;
use secrecy::SecretString;

pub(crate) use super::args::{ConfigArgs, LocalArgs};
use super::{
    console::ConsoleFile,
    file::{ConfigFile, OtlpFile, ReadAudit, SecretFile, TlsFile},
    ledger::LedgerPlan,
    otel,
};
use crate::{
    environment::Environment,
    failure::Failure,
    yaml::{self, FileProblem},
};

/// The file that is used when none is named and it exists.
pub(crate) const DEFAULT_FILE: &str = "placet.yaml";

/// The checked configuration.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// The file it came from.
    pub(crate) origin: Option<PathBuf>,
    /// The data folder.
    pub(crate) data: PathBuf,
    /// The environment.
    pub(crate) environment: EnvironmentName,
    /// The folder of contracts.
    pub(crate) contracts: Option<PathBuf>,
    /// The folder of policies.
    pub(crate) policies: Option<PathBuf>,
    /// The directory's file.
    pub(crate) directory: Option<PathBuf>,
    /// Our name in tokens.
    pub(crate) audience: String,
    /// The configured issuers.
    pub(crate) identity: IdentityConfig,
    /// Whether tokens of the development key are accepted.
    pub(crate) development_tokens: bool,
    /// The secrets.
    pub(crate) secrets: Secrets,
    /// The token services.
    pub(crate) sts: Vec<StsConfig>,
    /// The listeners.
    pub(crate) server: ServerConfig,
    /// Whether the admin listener may be reached from elsewhere.
    pub(crate) admin_open: bool,
    /// Below this much free space the ledger refuses new writes.
    pub(crate) free_space_bytes_min: u64,
    /// Where records are kept.
    pub(crate) ledger: LedgerPlan,
    /// Traces and logs.
    pub(crate) telemetry: TelemetryConfig,
    /// Whom our own connections trust, and who we are in them.
    pub(crate) trust: Trust,
    /// TLS for callers.
    pub(crate) tls: Option<TlsFile>,
    /// The pipeline.
    pub(crate) settings: Settings,
    /// The web console.
    pub(crate) console: ConsoleFile,
    /// The MCP endpoint.
    pub(crate) mcp: McpSettings,
    /// Who is told of what happens to held calls.
    pub(crate) notifications: NotifyConfig,
    /// As written, to compare with a later reading of the file.
    pub(crate) written: Box<ConfigFile>,
    /// The first secret that is not available. Commands that need none run without it; `serve` does not start.
    missing: Option<FileProblem>,
}

impl Config {
    /// Finds, reads and checks the configuration.
    pub(crate) fn load(args: &ConfigArgs, environment: &Environment) -> Result<Self, Failure> {
        let origin = match &args.config {
            Some(path) => Some(path.clone()),
            None => found_here()?,
        };
        let mut config = Self::read(origin, environment)?;
        if let Some(data) = &args.data {
            config.data.clone_from(data);
        }
        if let Some(store) = &args.ledger {
            config.ledger.set_store(store);
        }
        Ok(config)
    }

    /// Reads and checks the file at `origin`; without one, the defaults.
    pub(crate) fn read(
        origin: Option<PathBuf>,
        environment: &Environment,
    ) -> Result<Self, Failure> {
        let (file, base) = match &origin {
            None => (ConfigFile::default(), PathBuf::new()),
            Some(path) => {
                let file = yaml::read(path).map_err(refused)?;
                (file, path.parent().map(Path::to_owned).unwrap_or_default())
            }
        };
        let name = origin.clone().unwrap_or_else(|| PathBuf::from("the defaults"));
        let reading = Reading { name: &name, base: &base, environment };
        reading.config(file, origin.clone()).map_err(refused)
    }

    /// Checks that every secret of this machine is available: variables are set, files are readable.
    pub(crate) fn check_secrets(&self) -> Result<(), Failure> {
        self.missing.clone().map_or(Ok(()), |problem| Err(refused(problem)))
    }

    /// Refuses listeners that other machines can reach unless that was meant, and development tokens where others reach this service.
    pub(crate) fn check_listeners(&self) -> Result<(), Failure> {
        let is_local = |address: SocketAddr| address.ip().to_canonical().is_loopback();
        let (listen, admin) = (self.server.listen, self.server.admin_listen);
        if listen == admin && listen.port() != 0 {
            return Err(Failure::new(format!("`listen` and `admin_listen` are both {listen}"))
                .try_this("give the admin listener a port of its own"));
        }
        if !is_local(listen) && !self.identity.trusts_somebody() {
            return Err(Failure::new(format!("refused to listen on {listen} without issuers"))
                .because(
                    "other machines could reach it, and the development key is for loopback only",
                )
                .try_this("name your identity provider under `issuers:` in the configuration file")
                .try_this("or listen on 127.0.0.1"));
        }
        if !is_local(listen) && self.development_tokens {
            return Err(Failure::new(format!("refused to accept development tokens on {listen}"))
                .because("`development_tokens: true` is for a loopback listener only")
                .try_this("take it out, or listen on 127.0.0.1"));
        }
        if !is_local(admin) && !self.admin_open {
            return Err(Failure::new(format!("refused to open the admin listener on {admin}"))
                .because("it has no authentication")
                .try_this("keep it on 127.0.0.1, or set `admin_open: true` where the network keeps others out"));
        }
        self.check_development_names()
    }
}

fn found_here() -> Result<Option<PathBuf>, Failure> {
    let path = PathBuf::from(DEFAULT_FILE);
    match path.try_exists() {
        Ok(true) => Ok(Some(path)),
        Ok(false) => Ok(None),
        Err(error) => {
            Err(Failure::new(format!("`{DEFAULT_FILE}` cannot be looked at")).because(error))
        }
    }
}

fn refused(problem: FileProblem) -> Failure {
    Failure::new("the configuration cannot be used").because(problem).try_this(
        "`placet schema config` prints every key, `placet doctor` checks the whole set-up",
    )
}

/// What is needed to interpret a file.
struct Reading<'a> {
    name: &'a Path,
    base: &'a Path,
    environment: &'a Environment,
}

impl Reading<'_> {
    fn config(&self, file: ConfigFile, origin: Option<PathBuf>) -> Result<Config, FileProblem> {
        if file.audience.is_empty() {
            return Err(FileProblem::at(self.name, "audience", "is empty"));
        }
        let (secrets, missing) = self.secrets(&file.secrets)?;
        if secrets.need_agent() && file.spiffe.is_none() {
            let problem = "is needed by `secrets`: it says where the agent is";
            return Err(FileProblem::at(self.name, "spiffe", problem));
        }
        let telemetry = self.telemetry(&file, &secrets)?;
        let server = self.server(&file)?;
        let (ledger, without_password) = self.ledger(&file)?;
        let settings = self.settings(&file, &ledger);
        let identity = self.identity(&file)?;
        self.check_services(&file.sts, &secrets)?;
        file.console.check(self.name, &identity.issuers, &secrets)?;
        let is_named = |name: &str| secrets.named(name).map_err(|error| error.to_string());
        let told = file.notifications.check(is_named);
        told.map_err(|error| FileProblem::at(self.name, "notifications", error))?;
        let written = Box::new(file.clone());
        Ok(Config {
            origin,
            written,
            data: self.base.join(file.data),
            environment: file.environment,
            contracts: file.contracts.map(|path| self.base.join(path)),
            policies: file.policies.map(|path| self.base.join(path)),
            directory: file.directory.map(|path| self.base.join(path)),
            audience: file.audience,
            development_tokens: file.development_tokens.unwrap_or(!identity.trusts_somebody()),
            identity,
            secrets,
            sts: file.sts,
            server,
            trust: file.trust.read(self.name, self.base)?,
            tls: file.tls.map(|tls| self.tls(&tls)),
            admin_open: file.admin_open,
            free_space_bytes_min: file.limits.free_space_bytes_min.0,
            ledger,
            telemetry,
            settings,
            console: file.console,
            mcp: file.mcp,
            notifications: file.notifications,
            missing: missing.or(without_password),
        })
    }

    /// Who is trusted to identify callers.
    fn identity(&self, file: &ConfigFile) -> Result<IdentityConfig, FileProblem> {
        let mut identity = IdentityConfig {
            issuers: file.issuers.clone(),
            trust_domains: file.trust_domains.clone(),
            client_authorities: file.client_authorities.clone(),
            workload_api: file.spiffe.as_ref().map(|agent| self.base.join(&agent.socket)),
            ..IdentityConfig::default()
        };
        let issuers = identity.issuers.iter_mut().map(|issuer| &mut issuer.keys);
        let domains = identity.trust_domains.iter_mut().map(|domain| &mut domain.bundle);
        for keys in issuers.chain(domains) {
            if let KeySource::File(path) = keys {
                *path = self.base.join(&*path);
            }
        }
        for authority in &mut identity.client_authorities {
            authority.ca = self.base.join(&authority.ca);
        }
        if file.tls.is_none() && !identity.client_authorities.is_empty() {
            let problem = "need `tls`: a certificate is shown in its handshake";
            return Err(FileProblem::at(self.name, "client_authorities", problem));
        }
        identity.check().map_err(|error| FileProblem::at(self.name, "issuers", error))?;
        Ok(identity)
    }

    fn tls(&self, file: &TlsFile) -> TlsFile {
        TlsFile { certificate: self.base.join(&file.certificate), key: self.base.join(&file.key) }
    }

    /// The ledger, and why its password is not available, if so.
    fn ledger(&self, file: &ConfigFile) -> Result<(LedgerPlan, Option<FileProblem>), FileProblem> {
        let mut missing = None;
        let password = match &file.ledger.password {
            None => None,
            Some(secret) => {
                let named = BTreeMap::from([("password".to_owned(), secret.clone())]);
                let (secrets, problem) = self.secrets(&named)?;
                let value = secrets.get("password").map_err(|error| error.to_string());
                missing = problem.or_else(|| {
                    let error = value.as_ref().err()?;
                    Some(FileProblem::at(self.name, "ledger.password", error))
                });
                Some(value)
            }
        };
        let plan = LedgerPlan::read(file.ledger.clone(), self.base, password)
            .map_err(|(key, why)| FileProblem::at(self.name, key, why))?;
        Ok((plan, missing))
    }

    /// The secrets, and what is wrong with the first that is not available.
    fn secrets(
        &self,
        files: &BTreeMap<String, SecretFile>,
    ) -> Result<(Secrets, Option<FileProblem>), FileProblem> {
        let mut sources = BTreeMap::new();
        let mut missing = None;
        for (name, file) in files {
            let source = match file {
                // Here and below it may be the value itself, in the place of a name.
                SecretFile::Interpolated(text) => {
                    let unset = "`${…}` names a variable that is not set";
                    self.variable(name, &text.variable, unset)
                }
                SecretFile::Env { env } => {
                    self.variable(name, env, "`env` names a variable that is not set")
                }
                SecretFile::File { file } => Ok(SecretSource::File(self.base.join(file))),
                SecretFile::JwtSvid { jwt_svid } => {
                    Ok(SecretSource::JwtSvid { audience: jwt_svid.clone() })
                }
            };
            let source = source.unwrap_or_else(|problem| {
                missing.get_or_insert(problem);
                SecretSource::Unset
            });
            sources.insert(name.clone(), source);
        }
        let secrets = Secrets::new(sources);
        let missing = missing.or_else(|| {
            let error = secrets.check().err()?;
            Some(FileProblem::at(self.name, "secrets", error))
        });
        Ok((secrets, missing))
    }

    fn check_services(&self, services: &[StsConfig], secrets: &Secrets) -> Result<(), FileProblem> {
        check_all(services).map_err(|error| FileProblem::at(self.name, "sts", error))?;
        for (service, secret) in
            services.iter().filter_map(|one| Some((one, one.client_auth.secret()?)))
        {
            secrets.named(secret).map_err(|error| {
                let problem = format!("token service `{}`: `client_auth` {error}", service.name);
                FileProblem::at(self.name, "sts", problem)
            })?;
        }
        Ok(())
    }

    fn variable(
        &self,
        secret: &str,
        variable: &str,
        unset: &str,
    ) -> Result<SecretSource, FileProblem> {
        let unset = || FileProblem::at(self.name, format!("secrets.{secret}"), unset);
        let value = self.environment.get(variable).ok_or_else(unset)?;
        Ok(SecretSource::Env(SecretString::from(value)))
    }

    fn telemetry(
        &self,
        file: &ConfigFile,
        secrets: &Secrets,
    ) -> Result<TelemetryConfig, FileProblem> {
        let otlp = match &file.telemetry.otlp {
            Some(otlp) => Some(self.collector(otlp, secrets)?),
            None => otel::collector(self.environment)?,
        };
        let default = super::file::TelemetryFile::default();
        let named = file.telemetry.service_name != default.service_name;
        let from_environment = self.environment.get("OTEL_SERVICE_NAME").filter(|_| !named);
        Ok(TelemetryConfig {
            otlp,
            log_format: file.telemetry.log,
            log_filter: file.telemetry.log_filter.clone(),
            service_name: from_environment.unwrap_or_else(|| file.telemetry.service_name.clone()),
            resource_attributes: otel::resource_attributes(self.environment)?,
            sample_ratio: file.telemetry.sample_ratio,
        })
    }

    fn collector(&self, file: &OtlpFile, secrets: &Secrets) -> Result<OtlpConfig, FileProblem> {
        let header = |(name, header): (&String, &super::file::HeaderFile)| {
            match secrets.get(&header.secret) {
                Ok(value) => Some(Ok((name.to_ascii_lowercase(), value))),
                Err(error @ (SecretError::Unknown { .. } | SecretError::NotAsked { .. })) => {
                    let key = format!("telemetry.otlp.headers.{name}.secret");
                    Some(Err(FileProblem::at(self.name, key, error)))
                }
                // Reported by `Config::check_secrets`.
                Err(_) => None,
            }
        };
        Ok(OtlpConfig {
            endpoint: file.endpoint.clone(),
            protocol: file.protocol,
            headers: file.headers.iter().filter_map(header).collect::<Result<_, _>>()?,
            timeout_ms: file.timeout_ms.0,
        })
    }

    fn server(&self, file: &ConfigFile) -> Result<ServerConfig, FileProblem> {
        let config = ServerConfig {
            listen: file.listen,
            admin_listen: file.admin_listen,
            public_url: file.console.public_url.clone(),
            resource: is_url(&file.audience).then(|| file.audience.clone()),
            authorization_servers: authorization_servers(file),
            ..file.http.clone()
        };
        if config.connections_per_address_max.0 > config.connections_max.0 {
            let problem = "must not be more than `http.connections_max`";
            let key = "http.connections_per_address_max";
            return Err(FileProblem::at(self.name, key, problem));
        }
        Ok(config)
    }

    fn settings(&self, file: &ConfigFile, ledger: &LedgerPlan) -> Settings {
        Settings {
            calls_in_flight_max: file.limits.calls_in_flight_max.size(),
            calls_in_flight_per_tenant_max: file.limits.calls_in_flight_per_tenant_max.size(),
            held_per_agent_max: file.limits.held_per_agent_max.size(),
            stage_workers: file.limits.stage_workers.size(),
            durable_reads: file.audit.reads == ReadAudit::Durable,
            live_list_ms_max: file.limits.live_list_ms_max.0,
            identity_refresh_ms: file.limits.identity_refresh_ms.0,
            answers_kept_ms: file.limits.answers_kept_ms.0,
            answers_kept_max: file.limits.answers_kept_max.size(),
            operators: file.operators.clone(),
            callbacks: file.notifications.callbacks(),
            ledger: ledger.settings(),
        }
    }
}

fn is_url(text: &str) -> bool {
    text.starts_with("https://") && url::Url::parse(text).is_ok()
}

/// The issuers that callers without a token may be told about.
fn authorization_servers(file: &ConfigFile) -> Vec<String> {
    let told = file.issuers.iter().filter(|issuer| issuer.advertised);
    told.map(|issuer| issuer.issuer.clone()).filter(|issuer| is_url(issuer)).collect()
}
