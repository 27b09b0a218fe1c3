//! The file form of a contract: `contracts/<environment>/<adapter>.yaml`.
//!
//! Owns the exact keys an operator writes, with their defaults; unknown keys are errors. Does not interpret them: that
//! is [`super::Contract::from_file`].

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    alias::AliasFile,
    credential::CredentialFile,
    error_injection::ErrorInjectionFile,
    not_executed::NotExecuted,
    offering::{CheckFile, PromptFile},
    process::ProcessFile,
    rest::RestFile,
};
use crate::{
    digest::Digest,
    directory::CALLS_PER_MINUTE_MAX,
    ids::{AdapterName, CapabilityName, EnvironmentName, TenantId},
    json::is_default,
    mode::{ApprovalMode, Effect},
    taint::Taint,
};

/// The version tag of a contract file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ContractVersion {
    /// The only version.
    #[serde(rename = "placet.contract.v1")]
    V1,
}

/// The contract of one adapter: how to reach it, and how its capabilities may be used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ContractFile {
    /// `placet.contract.v1`.
    pub contract_version: ContractVersion,
    /// The name of the adapter. It is also the name of the file.
    pub adapter: AdapterName,
    /// The environment. It is also the name of the folder.
    pub environment: EnvironmentName,
    /// What the adapter is for, in one line.
    #[serde(default)]
    pub description: String,
    /// The tenants whose agents may use the adapter. Required: a file that names no tenant does not load.
    #[serde(default = "TenantsFile::nobody")]
    #[schemars(required)]
    pub tenants: TenantsFile,
    /// The sensitivity of the data behind the adapter.
    #[serde(default)]
    pub data_class: DataClass,
    /// How to reach the adapter.
    pub transport: TransportFile,
    /// The pinned protocol version of the adapter (TM-05), such as an MCP revision.
    pub protocol_version: String,
    /// The credential attached to the adapter's calls; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<CredentialFile>,
    /// Whether its calls carry the caller's `tracestate` (W3C Trace Context): up to 512 bytes that the caller chooses, that no policy sees and
    /// no digest covers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pass_tracestate: bool,
    /// Limits on the use of the adapter.
    #[serde(default)]
    pub limits: LimitsFile,
    /// Errors to inject, for testing agents. Allowed in the environment `test` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_injection: Option<ErrorInjectionFile>,
    /// The capabilities of the adapter, by name.
    pub capabilities: BTreeMap<CapabilityName, CapabilityFile>,
}

/// The tenants that may use an adapter: a list, or `all` if nothing behind the adapter belongs to one tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum TenantsFile {
    /// Every tenant, with the same data.
    All(AllTenants),
    /// These tenants.
    Only(BTreeSet<TenantId>),
}

/// The word `all`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AllTenants {
    /// Every tenant.
    All,
}

impl TenantsFile {
    /// The default for a file without the key; [`super::Contract::from_file`] refuses it.
    const fn nobody() -> Self {
        Self::Only(BTreeSet::new())
    }

    /// Whether they fit an adapter that is reached over `transport`.
    pub(super) fn check(&self, transport: &TransportFile) -> Result<(), &'static str> {
        match (self, transport) {
            (Self::Only(tenants), _) if tenants.is_empty() => Err(
                "names no tenant; write `tenants: [NAME]`, or `tenants: all` for an adapter with nothing that belongs to one tenant",
            ),
            (Self::All(_), TransportFile::Internal { .. }) => Err(
                "must be a list, because each tenant has a directory of its own; write `tenants: [NAME]`",
            ),
            _ => Ok(()),
        }
    }

    /// Whether `tenant` is among them.
    pub fn admits(&self, tenant: &TenantId) -> bool {
        match self {
            Self::All(_) => true,
            Self::Only(tenants) => tenants.contains(tenant),
        }
    }
}

crate::named_enum! {
    /// The sensitivity of the data behind an adapter.
    #[derive(Default, JsonSchema)]
    pub enum DataClass {
        /// Anyone may see it.
        Public = "public",
        /// Not for people outside the organization.
        #[default]
        Internal = "internal",
        /// Only for people who need it.
        Confidential = "confidential",
        /// Subject to laws or regulators.
        Regulated = "regulated",
    }
}

/// How an adapter is reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum TransportFile {
    /// A built-in adapter.
    Internal {
        /// Which one: `files`.
        builtin: String,
        /// The directory with one directory for each tenant, to which that tenant's calls are confined; relative to the data folder unless
        /// absolute.
        root: String,
    },
    /// An MCP server that is started as a child process and reached over its standard input and output.
    McpStdio {
        /// The program: an absolute path, or a plain name that is looked up in the folders of `PATH` in `env`; without it, in those of the
        /// system.
        command: String,
        /// The arguments of the program. No shell interprets them.
        #[serde(default)]
        args: Vec<String>,
        /// The environment of the program. No other variables are passed on.
        #[serde(default)]
        env: BTreeMap<String, EnvValue>,
        /// The working directory; relative to the data folder unless absolute. Absent: the data folder.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cwd: Option<String>,
        /// The limits of the process.
        #[serde(default, skip_serializing_if = "is_default")]
        process: ProcessFile,
    },
    /// An MCP server over HTTP.
    McpHttp {
        /// The URL of the endpoint.
        url: String,
        /// Whether the host may be in a private or loopback range and be reached over plain `http:`.
        #[serde(default)]
        private_network: bool,
        /// Whether it speaks the older HTTP+SSE (MCP revision 2024-11-05), and `url` is that of its event stream. Without it, streamable HTTP.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        sse: bool,
    },
    /// An HTTP service. Each capability describes its request under `rest`.
    Rest {
        /// The base URL of all paths.
        url: String,
        /// As for `mcp_http`.
        #[serde(default)]
        private_network: bool,
    },
    /// Another agent, over A2A 1.0: a call is a message to it.
    A2a {
        /// The endpoint of its JSON-RPC interface, as its agent card names it.
        url: String,
        /// As for `mcp_http`.
        #[serde(default)]
        private_network: bool,
    },
    /// A language model that makes up results, for simulations. Nothing is executed.
    Lm {
        /// The URL of the OpenAI-compatible endpoint, up to `/chat/completions`.
        url: String,
        /// As for `mcp_http`.
        #[serde(default)]
        private_network: bool,
        /// The name of the model at that endpoint.
        model: String,
    },
}

/// The one host that an adapter over HTTP speaks to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpTarget<'a> {
    /// Its URL.
    pub url: &'a str,
    /// Whether it may be in a private or loopback range, and be spoken to over plain `http:`.
    pub private_network: bool,
}

impl TransportFile {
    /// Its host, if it goes over HTTP.
    pub fn http(&self) -> Option<HttpTarget<'_>> {
        match self {
            Self::McpHttp { url, private_network, .. }
            | Self::Rest { url, private_network }
            | Self::A2a { url, private_network }
            | Self::Lm { url, private_network, .. } => {
                Some(HttpTarget { url, private_network: *private_network })
            }
            Self::Internal { .. } | Self::McpStdio { .. } => None,
        }
    }

    /// Whether it leads to an MCP server.
    pub const fn is_mcp(&self) -> bool {
        matches!(self, Self::McpStdio { .. } | Self::McpHttp { .. })
    }

    /// Whether the contract itself defines its tools: no server lists them, so there is nothing to compare with a pin.
    pub const fn defines_its_tools(&self) -> bool {
        match self {
            Self::Rest { .. } | Self::A2a { .. } | Self::Lm { .. } => true,
            Self::Internal { .. } | Self::McpStdio { .. } | Self::McpHttp { .. } => false,
        }
    }
}

/// A value in the environment of a child process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, deny_unknown_fields)]
pub enum EnvValue {
    /// The value, as written.
    Literal(String),
    /// A configured secret.
    Secret {
        /// The secret's name.
        secret: String,
    },
}

/// Limits on the use of an adapter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsFile {
    /// The maximum number of concurrent calls.
    #[schemars(range(min = 1, max = 1024))]
    pub concurrency_max: u32,
    /// The maximum number of calls that may wait for their turn. Further calls are refused with `OVERLOADED`.
    #[schemars(range(max = 10_000))]
    pub queue_max: u32,
    /// The maximum number of calls per minute, for each tenant and capability (TM-18).
    #[schemars(range(min = 1))]
    pub calls_per_minute_max: u32,
    /// The maximum size of a result that is kept, in bytes.
    #[schemars(range(min = 1024, max = 16_777_216))]
    pub result_bytes_max: u64,
    /// The number of failures in a row that open the circuit breaker.
    #[schemars(range(min = 1, max = 1_000))]
    pub breaker_failures: u32,
    /// How long the open circuit breaker refuses calls before it tries again, in milliseconds.
    #[schemars(range(min = 10, max = 600_000))]
    pub breaker_open_ms: u64,
    /// The time limit for connecting, in milliseconds.
    #[schemars(range(min = 100, max = 600_000))]
    pub connect_ms_max: u64,
}

impl Default for LimitsFile {
    fn default() -> Self {
        Self {
            concurrency_max: 16,
            queue_max: 256,
            calls_per_minute_max: CALLS_PER_MINUTE_MAX,
            result_bytes_max: 4_194_304,
            breaker_failures: 5,
            breaker_open_ms: 5_000,
            connect_ms_max: 20_000,
        }
    }
}

/// One capability of an adapter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CapabilityFile {
    /// The name of the tool at its server, if it differs from that of the capability. `resources/read`, `prompts/get` and
    /// `completion/complete` are not tools but methods of MCP: the capability reads a resource, gets a prompt, or completes an argument of
    /// one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The title that the server gives to the tool. Shown to operators and users of clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What the capability does, written for planners.
    #[serde(default)]
    pub description: String,
    /// The JSON Schema of the arguments.
    pub input_schema: Value,
    /// The JSON Schema that the server declares, where a reviewer has changed `input_schema`: arguments have to pass both. Written by
    /// `placet adapters pin`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live_input_schema: Option<Value>,
    /// The JSON Schema of the structured output; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// The HTTP request of the capability (`transport.type: rest`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rest: Option<Box<RestFile>>,
    /// The strongest approval mode that a call can have (TM-08).
    pub mode: ApprovalMode,
    /// Further things it does, for policies that speak of them: a delete over a network is `mode: destructive`, `also: [network]`. Over `mcp_http` a
    /// capability always reaches a network, whether `network` stands here or not.
    #[serde(default)]
    pub also: BTreeSet<ApprovalMode>,
    /// Whether the capability changes anything.
    pub effect: Effect,
    /// What is known about repeating a call. Required for `effect: write`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedup: Option<DedupFile>,
    /// Which error answers to a call that was sent mean that it was not executed; for `effect: write` over MCP. All others say nothing of
    /// the kind, but for HTTP statuses that are given before a handler can run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_executed: Option<NotExecuted>,
    /// The maximum cost of one call, in cents, which is charged to the run's budget. A result can report another cost
    /// (`dev.placet/cost-cents`).
    #[serde(default)]
    pub cost_cents: u64,
    /// The taint that the results add to the run that gets them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub result_taint: BTreeSet<Taint>,
    /// Whether the capability may be called at all.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// The digest of the live definition that was reviewed (TM-14); absent: not reviewed, and therefore not callable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin: Option<Digest>,
    /// Whether the server runs the tool only as an MCP task. Placet makes no such calls, so the capability is not callable.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub task_only: bool,
    /// What the server states about the tool. Shown to operators, never trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_hints: Option<Value>,
    /// Whether a run that has this tool has no other tool.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exclusive: bool,
    /// Whether the tool takes over from the model. A batch that contains it and any other call is not executed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub takes_control: bool,
    /// Whether runs have it only where it is asked for: chosen, forced, or added by another tool.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub on_demand: bool,
    /// The checks to make on answers that use the tool's results. They are collected over a run for its orchestrator, which makes them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub evaluation_checks: BTreeSet<String>,
    /// What to tell a model about the tool besides its definition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<PromptFile>,
    /// Further checks of the arguments, besides the schema, that tell a model what to do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<CheckFile>,
    /// Where the result names the tools to add to the run or remove from it, `{"add": […], "remove": […]}`, as a JSON Pointer into
    /// `output`. Such a tool can only be called in batches of runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exposes: Option<String>,
    /// The top-level arguments whose values a run remembers from successful calls, for policies (`context.req.history`): texts or whole
    /// numbers.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub run_keys: BTreeSet<String>,
    /// Allows the alias `mcp_<adapter>_<capability>`; only for tools of MCP servers that read only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias: Option<AliasFile>,
}

const fn yes() -> bool {
    true
}

/// What an adapter guarantees if the same call arrives twice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "class", rename_all = "snake_case", deny_unknown_fields)]
pub enum DedupFile {
    /// The adapter honours the dispatch token for `window_ms`: within that time, the same token has one effect.
    Keyed {
        /// How long the adapter remembers a token, in milliseconds.
        #[schemars(range(min = 1_000, max = 315_360_000_000_u64))]
        window_ms: u64,
        /// The top-level argument that carries the token. Over MCP, `_meta` always carries it too, as `dev.placet/idempotency-key`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        argument: Option<String>,
        /// As for `queryable`. Goes with `probe`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(range(max = 86_400_000))]
        settle_delay_ms: Option<u64>,
        /// How to query the adapter once the window has ended. Goes with `settle_delay_ms`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        probe: Option<Box<ProbeFile>>,
    },
    /// The adapter can be queried whether a token's effect happened.
    Queryable {
        /// How long after the deadline "not found" means "did not happen", in milliseconds.
        #[schemars(range(max = 86_400_000))]
        settle_delay_ms: u64,
        /// As for `keyed`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        argument: Option<String>,
        /// How to query the adapter. Required for an MCP server; not allowed for a built-in adapter.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        probe: Option<Box<ProbeFile>>,
    },
    /// Neither: after a crash the outcome is unknown, and a person has to find out.
    Opaque,
}

/// How to query an MCP server about a token: a call of a tool that changes nothing, and how to read its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProbeFile {
    /// A capability of the same contract, with `mode: read_only`.
    pub tool: CapabilityName,
    /// The tool's top-level argument that carries the token.
    pub argument: String,
    /// The tool's other arguments.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub args: Map<String, Value>,
    /// The time limit for the answer, in milliseconds. Default: 5,000.
    #[serde(default = "ProbeFile::default_timeout_ms")]
    #[schemars(range(min = 100, max = 30_000))]
    pub timeout_ms: u64,
    /// The place of the state in the answer `{"content": […], "structured": …}`, as a JSON Pointer. The state must be a string.
    pub state: String,
    /// The states that mean that the effect happened.
    pub committed: BTreeSet<String>,
    /// The states that mean that the token is not known. Every other state means that the outcome is still unknown.
    pub not_found: BTreeSet<String>,
    /// The place of the recorded result in the answer, as a JSON Pointer; absent: the answer contains no result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// The form of the recorded result.
    #[serde(default)]
    pub result_form: ResultForm,
}

impl ProbeFile {
    const fn default_timeout_ms() -> u64 {
        5_000
    }
}

/// The form in which a probe returns the result of the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "snake_case")]
pub enum ResultForm {
    /// The answer of `tools/call`: `{"content": […], "structuredContent": …}`.
    #[default]
    CallResult,
    /// The structured content only.
    Structured,
}
