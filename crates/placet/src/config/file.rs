//! The form of `placet.yaml`: its keys, their defaults and bounds; unknown keys are errors.
//!
//! Owns what an operator writes. Does not interpret it: [`super::load::Config`] does. Its JSON Schema is published as
//! `placet schema config`.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use placet_api::config::{ADMIN_PORT, PORT};
use placet_credentials::StsConfig;
use placet_identity::{ClientAuthority, IssuerConfig, TrustDomainConfig};
use placet_notify::config::NotifyConfig;
use placet_types::ids::{EnvironmentName, GroupId};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

use super::{console::ConsoleFile, ledger::LedgerFile, mcp::McpFile, trust::TrustFile};

/// The configuration of one process. Relative paths are relative to this file's folder.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ConfigFile {
    /// The data folder: the ledger with its parked calls, the development key, and the folder of the `files` adapter.
    pub(crate) data: PathBuf,
    /// Where callers come in. Other than loopback only with `issuers`.
    #[schemars(with = "String")]
    pub(crate) listen: SocketAddr,
    /// TLS for callers; absent: plain HTTP.
    pub(crate) tls: Option<TlsFile>,
    /// Where `/healthz`, `/readyz` and `/metrics` are.
    #[schemars(with = "String")]
    pub(crate) admin_listen: SocketAddr,
    /// Says that anyone who reaches `admin_listen` may read health and metrics and ask for backups; needed when it is not on loopback.
    pub(crate) admin_open: bool,
    /// The environment this process serves; contracts are read from the folder of that name.
    pub(crate) environment: EnvironmentName,
    /// The folder with `<environment>/<adapter>.yaml`; absent: the built-in `files` adapter alone.
    pub(crate) contracts: Option<PathBuf>,
    /// The folder with `*.cedar`; absent: the shipped policies.
    pub(crate) policies: Option<PathBuf>,
    /// The file with tenants, people and agents; absent: a development directory.
    pub(crate) directory: Option<PathBuf>,
    /// The name of this service in tokens (`aud`).
    pub(crate) audience: String,
    /// Who issues tokens; absent: only the development key, on loopback.
    pub(crate) issuers: Vec<IssuerConfig>,
    /// SPIFFE trust domains whose workloads may call with JWT-SVIDs.
    pub(crate) trust_domains: Vec<TrustDomainConfig>,
    /// The agent of the SPIFFE Workload API, for trust domains with `bundle: workload_api`.
    pub(crate) spiffe: Option<SpiffeFile>,
    /// Authorities whose client certificates name agents. They need `tls`.
    pub(crate) client_authorities: Vec<ClientAuthority>,
    /// Whether tokens of `placet token` are accepted; absent: when nobody else is trusted. Only ever on loopback.
    pub(crate) development_tokens: Option<bool>,
    /// The group whose people may list the ledger and resolve unknown outcomes.
    pub(crate) operators: GroupId,
    /// Secrets that contracts may name.
    pub(crate) secrets: BTreeMap<String, SecretFile>,
    /// Token services that contracts may name, for credentials that are minted for one call.
    pub(crate) sts: Vec<StsConfig>,
    /// Whom our own connections trust, and who we are to whom they lead to.
    pub(crate) trust: TrustFile,
    /// The HTTP API.
    pub(crate) http: HttpFile,
    /// Traces and logs.
    pub(crate) telemetry: TelemetryFile,
    /// Bounds.
    pub(crate) limits: LimitsFile,
    /// The audit chain.
    pub(crate) audit: AuditFile,
    /// Where records are kept.
    pub(crate) ledger: LedgerFile,
    /// The web console.
    pub(crate) console: ConsoleFile,
    /// The MCP endpoint.
    pub(crate) mcp: McpFile,
    /// Who is told of what happens to held calls, and over what.
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
            http: HttpFile::default(),
            telemetry: TelemetryFile::default(),
            limits: LimitsFile::default(),
            audit: AuditFile::default(),
            ledger: LedgerFile::default(),
            console: ConsoleFile::default(),
            mcp: McpFile::default(),
            notifications: NotifyConfig::default(),
        }
    }
}

#[expect(clippy::expect_used, reason = "constants of this file, made by the test of the defaults")]
fn constant<T: std::str::FromStr<Err = placet_types::ids::IdError>>(text: &str) -> T {
    text.parse().expect("a lower-case word")
}

/// Where a secret comes from. The value itself never stands in the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    deny_unknown_fields,
    expecting = "a secret is written `${VARIABLE}`, `{ env: VARIABLE }`, `{ file: path }` or `{ jwt_svid: audience }`"
)]
pub(crate) enum SecretFile {
    /// `${VARIABLE}`: the same as `env`.
    Interpolated(Interpolated),
    /// A variable of the environment, read once at start.
    Env {
        /// Its name.
        env: String,
    },
    /// A file, read whenever the secret is used.
    File {
        /// Its path.
        file: PathBuf,
    },
    /// A JWT-SVID of our own, from the agent that `spiffe` names.
    JwtSvid {
        /// For whom it is, such as the issuer of a token service.
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

/// The agent of the SPIFFE Workload API on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SpiffeFile {
    /// Its socket in the file system.
    pub(crate) socket: PathBuf,
}

/// TLS for callers. Changed files count without a restart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TlsFile {
    /// The file with the certificate and what lies between it and its authority, in PEM form.
    pub(crate) certificate: PathBuf,
    /// The file with its private key, in PEM form.
    pub(crate) key: PathBuf,
}

/// The HTTP API.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct HttpFile {
    /// Names this service is called by, `name` or `name:port`; loopback names are always there.
    pub(crate) allowed_hosts: BTreeSet<String>,
    /// Web origins whose scripts may call, such as `https://console.example`.
    pub(crate) allowed_origins: BTreeSet<String>,
}

/// Traces and logs.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TelemetryFile {
    /// The collector; absent: as `OTEL_EXPORTER_OTLP_ENDPOINT` says, or none.
    pub(crate) otlp: Option<OtlpFile>,
    /// `service.name`.
    pub(crate) service_name: String,
    /// The part of new traces that is exported, from 0 to 1.
    #[schemars(range(min = 0.0, max = 1.0))]
    #[serde(deserialize_with = "ratio")]
    pub(crate) sample_ratio: f64,
    /// How log lines look.
    pub(crate) log: LogFormatFile,
    /// Which events are logged, such as `info,rmcp=warn,placet_engine=debug`.
    pub(crate) log_filter: String,
}

impl Default for TelemetryFile {
    fn default() -> Self {
        Self {
            otlp: None,
            service_name: "placet".to_owned(),
            sample_ratio: 1.0,
            log: LogFormatFile::People,
            log_filter: "info,rmcp=warn".to_owned(),
        }
    }
}

/// How log lines look.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LogFormatFile {
    /// One JSON object a line.
    Json,
    /// One line of text.
    People,
}

/// An OTLP collector.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OtlpFile {
    /// Its base URL, such as `http://127.0.0.1:4317`.
    #[schemars(with = "String", extend("format" = "uri"))]
    pub(crate) endpoint: url::Url,
    /// The protocol.
    #[serde(default)]
    pub(crate) protocol: OtlpProtocolFile,
    /// Headers, each from a secret.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, HeaderFile>,
    /// The limit of one export, in milliseconds.
    #[serde(default = "OtlpFile::default_timeout")]
    pub(crate) timeout_ms: Bounded<100, 60_000>,
}

impl OtlpFile {
    /// The default limit of one export.
    pub(crate) const fn default_timeout() -> Bounded<100, 60_000> {
        Bounded(10_000)
    }
}

/// A header of the collector.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HeaderFile {
    /// The name of a secret.
    pub(crate) secret: String,
}

/// A protocol of OTLP.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) enum OtlpProtocolFile {
    /// gRPC, usually on port 4317.
    #[default]
    #[serde(rename = "grpc")]
    Grpc,
    /// Protobuf over HTTP, usually on port 4318.
    #[serde(rename = "http/protobuf")]
    HttpProtobuf,
}

/// Bounds.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LimitsFile {
    /// Calls admitted at the same time; one more is `OVERLOADED`.
    pub(crate) calls_in_flight_max: Bounded<1, 100_000>,
    /// Of one tenant.
    pub(crate) calls_in_flight_per_tenant_max: Bounded<1, 100_000>,
    /// Calls of one agent that may wait for people at the same time; one more is `OVERLOADED`. Each node counts those that it knows of.
    pub(crate) held_per_agent_max: Bounded<1, 1_000_000>,
    /// Workers of each stage.
    pub(crate) stage_workers: Bounded<1, 64>,
    /// The largest body of a request, in bytes.
    pub(crate) body_bytes_max: Bounded<1_024, 16_777_216>,
    /// Connections open at the same time. Of the requests on them that are not answered yet, one principal has a quarter at most, one
    /// tenant three quarters; one more is `OVERLOADED`.
    pub(crate) connections_max: Bounded<1, 65_536>,
    /// Of those, how many one address (of IPv6: one /64) may have; the connection of one more is closed. Behind a proxy or balancer, which
    /// has one address for all callers: as many as `connections_max`. Never more than that.
    pub(crate) connections_per_address_max: Bounded<1, 65_536>,
    /// How long a connection takes requests, in milliseconds; what is under way then has `stream_ms_max` to end.
    pub(crate) connection_ms_max: Bounded<1_000, 86_400_000>,
    /// How long a caller may take nothing of what it is sent, in milliseconds, until its connection is closed.
    pub(crate) write_timeout_ms: Bounded<1_000, 600_000>,
    /// Handshakes of TLS that one address (of IPv6: one /64) may have begun and not ended; the connection of one more is closed. Callers
    /// behind one translated address (NAT) or one balancer count together.
    pub(crate) handshakes_per_address_max: Bounded<1, 65_536>,
    /// How long the head of a request or a handshake may take, and a connection be idle, in milliseconds.
    pub(crate) header_timeout_ms: Bounded<1_000, 600_000>,
    /// How long a body may take to arrive, and a question to be answered, in milliseconds. Calls have limits of their own.
    pub(crate) request_timeout_ms: Bounded<1_000, 3_600_000>,
    /// Streams of events of calls open at the same time, and as many of the approval service; one more is `OVERLOADED`. One principal has a quarter
    /// of them at most, one tenant three quarters.
    pub(crate) streams_max: Bounded<1, 65_536>,
    /// How often a silent stream of events sends a comment, in milliseconds: shorter than what stands in between waits.
    pub(crate) heartbeat_ms: Bounded<1_000, 600_000>,
    /// How long a stream of events may last, in milliseconds; its reader comes again.
    pub(crate) stream_ms_max: Bounded<60_000, 86_400_000>,
    /// How old a server's tool list may be when a call is checked against its pin, in milliseconds.
    pub(crate) live_list_ms_max: Bounded<0, 30_000>,
    /// How often the issuers' keys are refreshed, in milliseconds.
    pub(crate) identity_refresh_ms: Bounded<1_000, 3_600_000>,
    /// How long the answer of a finished read is kept for `GET /v1/calls/{id}`, in milliseconds.
    pub(crate) answers_kept_ms: Bounded<0, 86_400_000>,
    /// How many such answers at most.
    pub(crate) answers_kept_max: Bounded<1, 1_000_000>,
    /// How long open requests may take to end when the process is asked to stop, in milliseconds.
    pub(crate) drain_ms: Bounded<1, 3_600_000>,
    /// Below this much free space for the embedded ledger new writes are refused, so that what is under way can be recorded, in bytes;
    /// `/readyz` says so.
    pub(crate) free_space_bytes_min: Bounded<1_048_576, 1_125_899_906_842_624>,
}

impl Default for LimitsFile {
    fn default() -> Self {
        Self {
            calls_in_flight_max: Bounded(4_096),
            calls_in_flight_per_tenant_max: Bounded(1_024),
            held_per_agent_max: Bounded(100),
            stage_workers: Bounded(4),
            body_bytes_max: Bounded(1_048_576),
            connections_max: Bounded(1_024),
            connections_per_address_max: Bounded(256),
            connection_ms_max: Bounded(3_600_000),
            write_timeout_ms: Bounded(30_000),
            handshakes_per_address_max: Bounded(64),
            header_timeout_ms: Bounded(10_000),
            request_timeout_ms: Bounded(30_000),
            streams_max: Bounded(256),
            heartbeat_ms: Bounded(15_000),
            stream_ms_max: Bounded(3_600_000),
            live_list_ms_max: Bounded(30_000),
            identity_refresh_ms: Bounded(60_000),
            answers_kept_ms: Bounded(600_000),
            answers_kept_max: Bounded(10_000),
            drain_ms: Bounded(30_000),
            free_space_bytes_min: Bounded(268_435_456),
        }
    }
}

/// The audit chain.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AuditFile {
    /// When a read is answered.
    pub(crate) reads: ReadAudit,
}

/// When a read is answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ReadAudit {
    /// Once its audit entry is with the operating system: a killed process loses nothing, a power cut at most 50 ms.
    #[default]
    Written,
    /// Once its audit entry is on the disk.
    Durable,
}

/// A number between two bounds, which the schema names too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(crate) struct Bounded<const MIN: u64, const MAX: u64>(pub(crate) u64);

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Bounded<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = u64::deserialize(deserializer)?;
        if (MIN..=MAX).contains(&number) {
            Ok(Self(number))
        } else {
            Err(D::Error::custom(format!("{number} is not between {MIN} and {MAX}")))
        }
    }
}

impl<const MIN: u64, const MAX: u64> JsonSchema for Bounded<MIN, MAX> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("number_{MIN}_{MAX}").into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "format": "uint64", "minimum": MIN, "maximum": MAX })
    }
}

fn ratio<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let number = f64::deserialize(deserializer)?;
    if (0.0..=1.0).contains(&number) {
        Ok(number)
    } else {
        Err(D::Error::custom(format!("{number} is not between 0 and 1")))
    }
}
