//! The form of `placet.yaml`: its keys, their defaults and bounds; unknown keys are errors.
//!
//! Owns what an operator writes. Does not interpret it: [`super::load::Config`] does. Its JSON Schema is published as
//! `placet schema config`.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use placet_api::config::{ADMIN_PORT, PORT, ServerConfig};
use placet_credentials::StsConfig;
use placet_identity::{ClientAuthority, IssuerConfig, TrustDomainConfig};
use placet_mcp_server::McpSettings;
use placet_notify::config::NotifyConfig;
use placet_telemetry::export::{LogFormat, OtlpProtocol};
use placet_types::{
    bounded::Bounded,
    ids::{EnvironmentName, GroupId},
};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

use super::{console::ConsoleFile, ledger::LedgerFile, trust::TrustFile};

/// The configuration of one process. Relative paths are relative to this file's folder.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ConfigFile {
    /// The data folder. It holds the embedded ledger, the development key and the folder of the `files` adapter.
    pub(crate) data: PathBuf,
    /// The address and port of the API. Anything but loopback requires `issuers`, `trust_domains` or `client_authorities`.
    #[schemars(with = "String")]
    pub(crate) listen: SocketAddr,
    /// TLS on the API's listener. Absent: plain HTTP.
    pub(crate) tls: Option<TlsFile>,
    /// The address and port of the admin listener, which serves `/healthz`, `/readyz` and `/metrics`.
    #[schemars(with = "String")]
    pub(crate) admin_listen: SocketAddr,
    /// Confirms that anyone who can reach `admin_listen` may read health and metrics and request backups. Required if it is not on
    /// loopback.
    pub(crate) admin_open: bool,
    /// The environment this process serves. Contracts are read from the folder of this name within `contracts`.
    pub(crate) environment: EnvironmentName,
    /// The folder with the contracts, `<environment>/<adapter>.yaml`. Absent: only the built-in `files` adapter.
    pub(crate) contracts: Option<PathBuf>,
    /// The folder with the policies, `*.cedar`. Absent: the shipped policies.
    pub(crate) policies: Option<PathBuf>,
    /// The file with tenants, people and agents. Absent: a development directory.
    pub(crate) directory: Option<PathBuf>,
    /// The name of this service in tokens (`aud`).
    pub(crate) audience: String,
    /// The issuers whose tokens are accepted.
    pub(crate) issuers: Vec<IssuerConfig>,
    /// SPIFFE trust domains whose workloads may call with JWT-SVIDs.
    pub(crate) trust_domains: Vec<TrustDomainConfig>,
    /// The SPIFFE Workload API on this machine. Required for `bundle: workload_api` in a trust domain and for `jwt_svid` secrets.
    pub(crate) spiffe: Option<SpiffeFile>,
    /// Certificate authorities whose client certificates identify agents. Requires `tls`.
    pub(crate) client_authorities: Vec<ClientAuthority>,
    /// Whether tokens from `placet token` are accepted; possible on loopback only. Absent: yes, unless issuers, trust domains or client
    /// authorities are configured.
    pub(crate) development_tokens: Option<bool>,
    /// The group whose members may list ledger records and resolve unknown outcomes.
    pub(crate) operators: GroupId,
    /// Secrets, by the name under which this file and contracts refer to them.
    pub(crate) secrets: BTreeMap<String, SecretFile>,
    /// Token services that contracts may name to obtain credentials for calls.
    pub(crate) sts: Vec<StsConfig>,
    /// Additional root certificates for outgoing connections, and the client certificates that Placet presents on them.
    pub(crate) trust: TrustFile,
    /// What the HTTP API accepts: names, connections, requests and event streams.
    pub(crate) http: ServerConfig,
    /// Traces and logs.
    pub(crate) telemetry: TelemetryFile,
    /// Limits on calls.
    pub(crate) limits: LimitsFile,
    /// The audit chain.
    pub(crate) audit: AuditFile,
    /// Where records are stored, and for how long.
    pub(crate) ledger: LedgerFile,
    /// The web console.
    pub(crate) console: ConsoleFile,
    /// The MCP endpoint.
    pub(crate) mcp: McpSettings,
    /// Who is notified about held calls and directives, and through which channels.
    pub(crate) notifications: NotifyConfig,
}

impl Default for ConfigFile {
    fn default() -> Self {
        Self {
            data: PathBuf::from("placet-data"),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)),
            tls: None,
            admin_listen: SocketAddr::from((Ipv4Addr::LOCALHOST, ADMIN_PORT)),
            admin_open: false,
            environment: constant("dev"),
            contracts: None,
            policies: None,
            directory: None,
            audience: "placet".to_owned(),
            issuers: Vec::new(),
            trust_domains: Vec::new(),
            spiffe: None,
            client_authorities: Vec::new(),
            development_tokens: None,
            operators: constant("operators"),
            secrets: BTreeMap::new(),
            sts: Vec::new(),
            trust: TrustFile::default(),
            http: ServerConfig::default(),
            telemetry: TelemetryFile::default(),
            limits: LimitsFile::default(),
            audit: AuditFile::default(),
            ledger: LedgerFile::default(),
            console: ConsoleFile::default(),
            mcp: McpSettings::default(),
            notifications: NotifyConfig::default(),
        }
    }
}

#[expect(clippy::expect_used, reason = "constants of this file, made by the test of the defaults")]
fn constant<T: std::str::FromStr<Err = placet_types::ids::IdError>>(text: &str) -> T {
    text.parse().expect("a lower-case word")
}

/// The source of a secret. Its value is never in this file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    deny_unknown_fields,
    expecting = "a secret is written `${VARIABLE}`, `{ env: VARIABLE }`, `{ file: path }` or `{ jwt_svid: audience }`"
)]
pub(crate) enum SecretFile {
    /// An environment variable, written `${VARIABLE}`: the same as `env`.
    Interpolated(Interpolated),
    /// An environment variable, read once at start.
    Env {
        /// The variable's name.
        env: String,
    },
    /// A file, read whenever the secret is used.
    File {
        /// The file's path.
        file: PathBuf,
    },
    /// A JWT-SVID of Placet's own, from the Workload API that `spiffe` names.
    JwtSvid {
        /// The audience of the SVID, such as the issuer of a token service.
        jwt_svid: String,
    },
}

/// The text `${VARIABLE}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String", extend("pattern" = r"^\$\{[A-Za-z_][A-Za-z0-9_]*\}$"))]
pub(crate) struct Interpolated {
    /// The variable's name.
    pub(crate) variable: String,
}

impl TryFrom<String> for Interpolated {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let name = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
        let is_name = |name: &&str| {
            name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
                && name.chars().next().is_some_and(|c| !c.is_ascii_digit())
        };
        let variable = name.filter(is_name).ok_or("it is not `${VARIABLE}`")?;
        Ok(Self { variable: variable.to_owned() })
    }
}

impl From<Interpolated> for String {
    fn from(text: Interpolated) -> Self {
        format!("${{{}}}", text.variable)
    }
}

/// The SPIFFE Workload API on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SpiffeFile {
    /// The path of its Unix domain socket.
    pub(crate) socket: PathBuf,
}

/// TLS on the API's listener. Changed files take effect without a restart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TlsFile {
    /// The PEM file with the certificate and its intermediate certificates. A changed file takes effect without a restart.
    pub(crate) certificate: PathBuf,
    /// The PEM file with the private key of the certificate. A changed file takes effect without a restart.
    pub(crate) key: PathBuf,
}

/// Traces and logs.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TelemetryFile {
    /// The OTLP collector. Absent: the one in `OTEL_EXPORTER_OTLP_ENDPOINT`, or none.
    pub(crate) otlp: Option<OtlpFile>,
    /// The resource attribute `service.name`.
    pub(crate) service_name: String,
    /// The fraction of new traces that is exported, from 0 to 1.
    #[schemars(range(min = 0.0, max = 1.0))]
    #[serde(deserialize_with = "ratio")]
    pub(crate) sample_ratio: f64,
    /// The format of log lines.
    pub(crate) log: LogFormat,
    /// Which events are logged, such as `info,rmcp=warn,placet_engine=debug`.
    pub(crate) log_filter: String,
}

impl Default for TelemetryFile {
    fn default() -> Self {
        Self {
            otlp: None,
            service_name: "placet".to_owned(),
            sample_ratio: 1.0,
            log: LogFormat::People,
            log_filter: "info,rmcp=warn".to_owned(),
        }
    }
}

/// An OTLP collector.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OtlpFile {
    /// The base URL of the collector, such as `http://127.0.0.1:4317`.
    #[schemars(with = "String", extend("format" = "uri"))]
    pub(crate) endpoint: url::Url,
    /// The OTLP protocol.
    #[serde(default)]
    pub(crate) protocol: OtlpProtocol,
    /// HTTP headers or gRPC metadata sent with each export, by name. Each value is a secret.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, HeaderFile>,
    /// The timeout of one export, in milliseconds.
    #[serde(default = "OtlpFile::default_timeout")]
    pub(crate) timeout_ms: Bounded<100, 60_000>,
}

impl OtlpFile {
    /// The default limit of one export.
    pub(crate) const fn default_timeout() -> Bounded<100, 60_000> {
        Bounded(10_000)
    }
}

/// A header for the collector.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HeaderFile {
    /// The name of the secret with the header's value.
    pub(crate) secret: String,
}

/// Limits on calls.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LimitsFile {
    /// Calls that may be in flight at the same time. Further calls get `OVERLOADED`.
    pub(crate) calls_in_flight_max: Bounded<1, 100_000>,
    /// Calls of one tenant that may be in flight at the same time. Further calls get `OVERLOADED`.
    pub(crate) calls_in_flight_per_tenant_max: Bounded<1, 100_000>,
    /// Calls of one agent that may wait for approval at the same time. Further calls get `OVERLOADED`. Each node counts the held calls that
    /// it knows of.
    pub(crate) held_per_agent_max: Bounded<1, 1_000_000>,
    /// Workers in each stage of the call pipeline.
    pub(crate) stage_workers: Bounded<1, 64>,
    /// The maximum age of an MCP server's tool list when a call is checked against its pin, in milliseconds. Before a destructive call the
    /// list is always read again.
    pub(crate) live_list_ms_max: Bounded<0, 30_000>,
    /// How often the keys of issuers are refreshed, in milliseconds.
    pub(crate) identity_refresh_ms: Bounded<1_000, 3_600_000>,
    /// How long the result of a finished read is kept for `GET /v1/calls/{id}`, in milliseconds.
    pub(crate) answers_kept_ms: Bounded<0, 86_400_000>,
    /// The maximum number of such results.
    pub(crate) answers_kept_max: Bounded<1, 1_000_000>,
    /// The minimum free disk space for the embedded ledger, in bytes. Below it new calls are refused, reads too, so that calls in progress
    /// can still be recorded, and `/readyz` reports it; so at least the room of two segments of the journal.
    pub(crate) free_space_bytes_min: Bounded<134_217_728, 1_125_899_906_842_624>,
}

impl Default for LimitsFile {
    fn default() -> Self {
        Self {
            calls_in_flight_max: Bounded(4_096),
            calls_in_flight_per_tenant_max: Bounded(1_024),
            held_per_agent_max: Bounded(100),
            stage_workers: Bounded(4),
            live_list_ms_max: Bounded(30_000),
            identity_refresh_ms: Bounded(60_000),
            answers_kept_ms: Bounded(600_000),
            answers_kept_max: Bounded(10_000),
            free_space_bytes_min: Bounded(268_435_456),
        }
    }
}

/// The audit chain.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AuditFile {
    /// When the result of a read is returned.
    pub(crate) reads: ReadAudit,
}

/// When the result of a read is returned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ReadAudit {
    /// Once its audit entry is written to the operating system: a killed process loses nothing, a power failure at most the last 50 ms.
    #[default]
    Written,
    /// Once its audit entry is synced to disk.
    Durable,
}

fn ratio<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let number = f64::deserialize(deserializer)?;
    if (0.0..=1.0).contains(&number) {
        Ok(number)
    } else {
        Err(D::Error::custom(format!("{number} is not between 0 and 1")))
    }
}
