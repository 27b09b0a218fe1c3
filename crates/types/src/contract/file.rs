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
    /// The only version there is.
    #[serde(rename = "placet.contract.v1")]
    V1,
}

/// One adapter: how to reach it, and what of it may be used how.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ContractFile {
    /// `placet.contract.v1`.
    pub contract_version: ContractVersion,
    /// The adapter's name; the file's name too.
    pub adapter: AdapterName,
    /// The environment; the folder's name too.
    pub environment: EnvironmentName,
    /// What the adapter is for, in a line.
    #[serde(default)]
    pub description: String,
    /// Whose agents may have it in their surface. There is no default: a file that names nobody does not load.
    #[serde(default = "TenantsFile::nobody")]
    #[schemars(required)]
    pub tenants: TenantsFile,
    /// How sensitive the data behind it is.
    #[serde(default)]
    pub data_class: DataClass,
    /// How to reach it.
    pub transport: TransportFile,
    /// The pinned version of the protocol spoken with it (TM-05), such as an MCP revision.
    pub protocol_version: String,
    /// The credential attached to its calls; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<CredentialFile>,
    /// Whether its calls carry the caller's `tracestate` (W3C Trace Context): up to 512 bytes that the caller chooses, that no policy sees and
    /// no digest covers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pass_tracestate: bool,
    /// Bounds on its use.
    #[serde(default)]
    pub limits: LimitsFile,
    /// Errors that it makes up, for tests of agents; in the environment `test` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_injection: Option<ErrorInjectionFile>,
    /// Its operations.
    pub capabilities: BTreeMap<CapabilityName, CapabilityFile>,
}

/// Tenants that may use an adapter: a list, or the word `all` where nothing behind it belongs to one tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum TenantsFile {
    /// Every tenant, with the same data.
    All(AllTenants),
    /// These.
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
    #[must_use]
    pub fn admits(&self, tenant: &TenantId) -> bool {
        match self {
            Self::All(_) => true,
            Self::Only(tenants) => tenants.contains(tenant),
        }
    }
}

/// How sensitive the data behind an adapter is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "snake_case")]
pub enum DataClass {
    /// Anyone may see it.
    Public,
    /// Not for outside.
    #[default]
    Internal,
    /// For those who need it.
    Confidential,
    /// Under a law or a regulator.
    Regulated,
}

/// How an adapter is reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum TransportFile {
    /// Compiled in.
    Internal {
        /// Which one: `files`.
        builtin: String,
        /// The directory with one directory for each tenant, to which that tenant's calls are confined; relative to the data folder unless
        /// absolute.
        root: String,
    },
    /// An MCP server started as a child process, spoken with over its standard input and output.
    McpStdio {
        /// The program: an absolute path, or a name looked up on `path` below.
        command: String,
        /// Its arguments, as they are: no shell sees them.
        #[serde(default)]
        args: Vec<String>,
        /// Its environment: nothing else is passed on.
        #[serde(default)]
        env: BTreeMap<String, EnvValue>,
        /// Its working directory; relative to the data folder unless absolute. Absent: the data folder.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cwd: Option<String>,
        /// Its bounds.
        #[serde(default, skip_serializing_if = "is_default")]
        process: ProcessFile,
    },
    /// An MCP server over HTTP.
    McpHttp {
        /// Its endpoint.
        url: String,
        /// Whether the host may be in a private or loopback range, and be spoken to over plain `http:`.
        #[serde(default)]
        private_network: bool,
        /// Whether it speaks the older HTTP+SSE (MCP revision 2024-11-05), and `url` is that of its event stream. Without it, streamable HTTP.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        sse: bool,
    },
    /// A service over HTTP: each capability says its request under `rest`.
    Rest {
        /// What all paths are below.
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
    /// A model that makes up results, for simulations: nothing is done.
    Lm {
        /// Its OpenAI-compatible endpoint, up to `/chat/completions`.
        url: String,
        /// As for `mcp_http`.
        #[serde(default)]
        private_network: bool,
        /// The model's name there.
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
    #[must_use]
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
    #[must_use]
    pub const fn is_mcp(&self) -> bool {
        matches!(self, Self::McpStdio { .. } | Self::McpHttp { .. })
    }

    /// Whether the contract itself defines its tools: no server lists them, so there is nothing to compare with a pin.
    #[must_use]
    pub const fn defines_its_tools(&self) -> bool {
        match self {
            Self::Rest { .. } | Self::A2a { .. } | Self::Lm { .. } => true,
            Self::Internal { .. } | Self::McpStdio { .. } | Self::McpHttp { .. } => false,
        }
    }
}

/// A value in a child's environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, deny_unknown_fields)]
pub enum EnvValue {
    /// As written.
    Literal(String),
    /// From a secret of the configuration.
    Secret {
        /// The secret's name.
        secret: String,
    },
}

/// Bounds on the use of an adapter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsFile {
    /// Calls at the same time.
    #[schemars(range(min = 1, max = 1024))]
    pub concurrency_max: u32,
    /// Calls that may wait for their turn; one more is `OVERLOADED`.
    #[schemars(range(max = 10_000))]
    pub queue_max: u32,
    /// Calls per minute, tenant and capability (TM-18).
    #[schemars(range(min = 1))]
    pub calls_per_minute_max: u32,
    /// The largest result kept, in bytes.
    #[schemars(range(min = 1024, max = 16_777_216))]
    pub result_bytes_max: u64,
    /// Failures in a row that open the breaker.
    #[schemars(range(min = 1, max = 1_000))]
    pub breaker_failures: u32,
    /// How long the open breaker refuses before it tries again, in milliseconds.
    #[schemars(range(min = 10, max = 600_000))]
    pub breaker_open_ms: u64,
    /// How long a connection may take to come up, in milliseconds.
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

/// One operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CapabilityFile {
    /// The tool's name at its server, where the capability has another one. `resources/read`, `prompts/get` and `completion/complete` are no
    /// tools but methods of MCP: the capability reads a resource, gets a prompt, or completes an argument of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The title that the server gives it: shown to operators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What it does, as a planner reads it.
    #[serde(default)]
    pub description: String,
    /// The JSON Schema of its arguments.
    pub input_schema: Value,
    /// The JSON Schema that the server declares, where a reviewer has changed `input_schema`: arguments have to pass both. Written by
    /// `placet adapters pin`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live_input_schema: Option<Value>,
    /// The JSON Schema of its structured output, where it declares one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// Its request, of a service over HTTP (`transport.type: rest`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rest: Option<Box<RestFile>>,
    /// The strongest mode it can have (TM-08).
    pub mode: ApprovalMode,
    /// Further things it does, for policies that speak of them: a delete over a network is `mode: destructive`, `also: [network]`. Over `mcp_http` a
    /// capability always reaches a network, whether `network` stands here or not.
    #[serde(default)]
    pub also: BTreeSet<ApprovalMode>,
    /// Whether it changes anything.
    pub effect: Effect,
    /// What is known about repeating it; required for `effect: write`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedup: Option<DedupFile>,
    /// Which error answers to a call that was sent mean that it was not executed; for `effect: write` over MCP. All others say nothing of
    /// the kind, but for HTTP statuses that are given before a handler can run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_executed: Option<NotExecuted>,
    /// What one call costs at most, in cents: what a run's budget is charged with. A result may report another cost (`dev.placet/cost-cents`).
    #[serde(default)]
    pub cost_cents: u64,
    /// What its results carry into the context of the run that gets them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub result_taint: BTreeSet<Taint>,
    /// Whether it may be called at all.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// The digest of the live definition that was reviewed (TM-14); absent: not reviewed, so never callable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin: Option<Digest>,
    /// Whether the server runs it as an MCP task only. Placet makes no such calls, so it is never callable.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub task_only: bool,
    /// What the server says about itself: shown to operators, never trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_hints: Option<Value>,
    /// Whether a run that has it in its surface has no other tool.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exclusive: bool,
    /// Whether it takes over from the model: of a batch with it and any other call nothing is executed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub takes_control: bool,
    /// Whether runs have it only where it is asked for: chosen, forced, or added by another tool.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub on_demand: bool,
    /// What is to be checked about answers that use its results; gathered over a run for its orchestrator, which makes the checks.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub evaluation_checks: BTreeSet<String>,
    /// What a model is told of it beside its definition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<PromptFile>,
    /// Checks of its arguments, beside the schema, that tell a model what to do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<CheckFile>,
    /// Where its result says which tools the run gets and loses, `{"add": […], "remove": […]}`, as a JSON pointer into `output`. Such a tool
    /// is called in batches of runs only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exposes: Option<String>,
    /// Top-level arguments whose values a run remembers of calls that succeeded, for policies (`context.req.history`): texts or whole numbers.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub run_keys: BTreeSet<String>,
    /// Lets it have the alias `mcp_<adapter>_<capability>`; for tools of MCP servers that only read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias: Option<AliasFile>,
}

const fn yes() -> bool {
    true
}

/// What an adapter promises about the same call arriving twice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "class", rename_all = "snake_case", deny_unknown_fields)]
pub enum DedupFile {
    /// It honours the dispatch token for `window_ms`: the same token within it has one effect.
    Keyed {
        /// How long it remembers a token, in milliseconds.
        #[schemars(range(min = 1_000, max = 315_360_000_000_u64))]
        window_ms: u64,
        /// The top-level argument the token is sent in. Over MCP it is in `_meta` as `dev.placet/idempotency-key` in any case.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        argument: Option<String>,
        /// A further key of MCP `_meta` that gets the token.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        meta_key: Option<String>,
        /// As for `queryable`; goes with `probe`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(range(max = 86_400_000))]
        settle_delay_ms: Option<u64>,
        /// How it is asked once the window is over; goes with `settle_delay_ms`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        probe: Option<Box<ProbeFile>>,
    },
    /// It can be asked whether a token's effect happened.
    Queryable {
        /// How long after the deadline «not found» means «did not happen», in milliseconds.
        #[schemars(range(max = 86_400_000))]
        settle_delay_ms: u64,
        /// As for `keyed`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        argument: Option<String>,
        /// As for `keyed`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        meta_key: Option<String>,
        /// How it is asked: required for an MCP server, never given for a compiled-in adapter.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        probe: Option<Box<ProbeFile>>,
    },
    /// Neither: after a crash nobody knows, and a person has to look.
    Opaque,
}

/// How an MCP server is asked about a token: a call of a tool that changes nothing, and how its answer is read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProbeFile {
    /// A capability of the same contract, with `mode: read_only`.
    pub tool: CapabilityName,
    /// Its top-level argument that carries the token.
    pub argument: String,
    /// Its other arguments.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub args: Map<String, Value>,
    /// How long the answer may take, in milliseconds.
    #[serde(default = "ProbeFile::default_timeout_ms")]
    #[schemars(range(min = 100, max = 30_000))]
    pub timeout_ms: u64,
    /// Where in the answer `{"content": […], "structured": …}` the state stands, as a JSON pointer; it has to be a string.
    pub state: String,
    /// The states that say: the effect happened.
    pub committed: BTreeSet<String>,
    /// The states that say: the token is not known. Every other state means that nobody knows.
    pub not_found: BTreeSet<String>,
    /// Where the recorded result stands, as a JSON pointer; absent: the probe tells no result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// What stands there.
    #[serde(default)]
    pub result_form: ResultForm,
}

impl ProbeFile {
    const fn default_timeout_ms() -> u64 {
        5_000
    }
}

/// In which form a probe tells the result of the call it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "snake_case")]
pub enum ResultForm {
    /// As `tools/call` answered it: `{"content": […], "structuredContent": …}`.
    #[default]
    CallResult,
    /// Its structured content alone.
    Structured,
}
