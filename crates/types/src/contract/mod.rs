//! Contracts: the declared, pinned description of an adapter and of each of its capabilities.
//!
//! Owns what a valid contract is. Does not read files (the binary does) nor talk to the adapter. Invariant: a
//! [`Contract`] has passed every check, and a capability whose schema cannot be enforced is quarantined, not loosened.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    ops::Deref,
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    argument_schema::ArgumentSchema,
    digest::Digest,
    ids::{AdapterName, CapabilityId, CapabilityName, TenantId},
    json::canonical_digest,
    mode::{ApprovalMode, Effect},
    text::is_hidden,
};

pub mod alias;
pub mod credential;
mod definition;
pub mod error_injection;
pub mod feature;
pub mod file;
pub mod not_executed;
pub mod offering;
pub mod process;
pub mod repeating;
pub mod rest;
#[cfg(test)]
mod tests;

pub use definition::{LiveTool, unusable_output};

use alias::Alias;
use credential::CredentialPlan;
use feature::Feature;
use file::{CapabilityFile, ContractFile, DedupFile, HttpTarget, ProbeFile, TransportFile};
use not_executed::NotExecuted;
use offering::ArgumentCheck;

/// The most capabilities a contract may have.
pub const CAPABILITIES_MAX: usize = 1_000;
/// The longest description, in bytes.
pub const DESCRIPTION_BYTES_MAX: usize = 8_192;

/// The longest name of a tool at its server, in bytes.
const TOOL_BYTES_MAX: usize = 256;

/// A checked contract, with everything from its file.
#[derive(Debug, Clone)]
pub struct Contract {
    /// The content of its file, without its capabilities.
    pub file: ContractFile,
    /// Its operations by name.
    pub capabilities: BTreeMap<CapabilityName, Capability>,
    /// The digest of the whole contract: bound by every approval and recorded with every call.
    pub digest: Digest,
}

impl Deref for Contract {
    type Target = ContractFile;

    fn deref(&self) -> &ContractFile {
        &self.file
    }
}

/// One checked operation, with everything from its file.
#[derive(Debug, Clone)]
pub struct Capability {
    /// Its id.
    pub id: CapabilityId,
    /// The tool's name at its server.
    pub tool: String,
    /// The compiled schemas that arguments have to pass: its own, and the server's if that differs. Or why the capability is quarantined.
    pub arguments: Result<ArgumentSchema, String>,
    /// The strongest mode it can have.
    pub mode_highest: ApprovalMode,
    /// What is known about repeating it.
    pub dedup: Dedup,
    /// The top-level argument that carries its dispatch token, in addition to where every write carries it.
    pub token_argument: Option<String>,
    /// Which error answers to a call that was sent mean that it was not executed.
    pub not_executed: NotExecuted,
    /// The short name that it may have.
    pub alias: Option<Alias>,
    /// Its entry in the file.
    pub file: CapabilityFile,
    checks: Vec<ArgumentCheck>,
}

impl Deref for Capability {
    type Target = CapabilityFile;

    fn deref(&self) -> &CapabilityFile {
        &self.file
    }
}

/// What is known about repeating a call, as contracts say and attempts record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "class", rename_all = "snake_case", deny_unknown_fields)]
pub enum Dedup {
    /// It changes nothing.
    ReadOnly,
    /// See [`file::DedupFile::Keyed`].
    Keyed {
        /// How long a token is remembered, in milliseconds.
        window_ms: u64,
    },
    /// See [`file::DedupFile::Queryable`].
    Queryable {
        /// How long after the deadline «not found» means «did not happen», in milliseconds.
        settle_delay_ms: u64,
    },
    /// See [`file::DedupFile::Opaque`].
    Opaque,
}

impl Dedup {
    /// Its name in contracts and reports.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::ReadOnly => "read_only",
            Self::Keyed { .. } => "keyed",
            Self::Queryable { .. } => "queryable",
            Self::Opaque => "opaque",
        }
    }

    /// Whether a call whose outcome is unknown may be sent again with the same token.
    pub const fn may_repeat(&self) -> bool {
        matches!(self, Self::ReadOnly | Self::Keyed { .. })
    }
}

/// What is wrong with a contract.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("contract `{adapter}`: {place}: {problem}")]
pub struct ContractError {
    adapter: AdapterName,
    place: String,
    problem: String,
}

impl Contract {
    /// Checks a contract file.
    ///
    /// # Errors
    /// [`ContractError`] for the first rule it breaks. A schema that cannot be enforced is not an error: its capability is
    /// quarantined, so that one bad tool does not disable the others.
    pub fn from_file(mut file: ContractFile) -> Result<Self, ContractError> {
        let digest = file.digest();
        let adapter = file.adapter.clone();
        let wrong = |place, problem| ContractError { adapter: adapter.clone(), place, problem };
        let of = |name: &CapabilityName| format!("capabilities.{name}");
        check_file(&file).map_err(|(place, problem)| wrong(place, problem))?;
        let capabilities = mem::take(&mut file.capabilities)
            .into_iter()
            .map(|(name, capability)| {
                Capability::from_file(&file, &name, capability)
                    .map_err(|problem| wrong(of(&name), problem))
                    .map(|checked| (name, checked))
            })
            .collect::<Result<BTreeMap<_, _>, _>>()?;
        let mut tools = BTreeSet::new();
        for (name, capability) in &capabilities {
            if !tools.insert(&capability.tool) {
                return Err(wrong(of(name), "another capability has this tool already".to_owned()));
            }
            repeating::check(capability, &file.transport, &capabilities)
                .map_err(|problem| wrong(of(name), problem))?;
        }
        Ok(Self { file, capabilities, digest })
    }

    /// Whether `tenant` may have this adapter in its surface.
    pub fn admits(&self, tenant: &TenantId) -> bool {
        self.tenants.admits(tenant)
    }

    /// The target of calls, for approvers to read and approvals to bind.
    pub fn target(&self) -> String {
        match &self.transport {
            TransportFile::Internal { builtin, root } => format!("internal:{builtin}:{root}"),
            TransportFile::McpStdio { command, args, .. } => {
                format!("mcp+stdio:{command} {}", args.join(" "))
            }
            TransportFile::McpHttp { url, .. } => format!("mcp+{url}"),
            TransportFile::Rest { url, .. } => url.clone(),
            TransportFile::A2a { url, .. } => format!("a2a+{url}"),
            TransportFile::Lm { url, model, .. } => format!("lm:{model}+{url}"),
        }
    }

    /// The credential that would be attached to a call of `capability`.
    pub fn credential_plan(&self, capability: &CapabilityId) -> CredentialPlan {
        self.credential
            .as_ref()
            .map_or_else(CredentialPlan::default, |one| one.plan(capability.capability()))
    }
}

impl ContractFile {
    /// The digest of the whole file's meaning: layout and comments do not change it, every value does.
    fn digest(&self) -> Digest {
        canonical_digest(&serde_json::to_value(self).unwrap_or(Value::Null))
    }
}

/// Whether a tool of this mode may have this effect.
const fn fits(effect: Effect, mode: ApprovalMode) -> bool {
    match effect {
        Effect::Write => !matches!(mode, ApprovalMode::ReadOnly),
        Effect::None => {
            matches!(mode, ApprovalMode::ReadOnly | ApprovalMode::Network | ApprovalMode::Delegated)
        }
    }
}

impl Capability {
    fn from_file(
        contract: &ContractFile,
        name: &CapabilityName,
        mut file: CapabilityFile,
    ) -> Result<Self, String> {
        let transport = &contract.transport;
        let id = CapabilityId::new(contract.adapter.clone(), name.clone())
            .map_err(|error| error.to_string())?;
        let tool = file.tool_of(name).to_owned();
        check_capability(&file, &tool, transport)?;
        if transport.http().is_some() {
            file.also.insert(ApprovalMode::Network);
        }
        file.also.remove(&file.mode);
        if transport.defines_its_tools() {
            // No server states another definition.
            file.pin = Some(file.definition(name).digest(&contract.adapter));
        }
        let (dedup, token_argument) = repeating::read(file.effect, file.dedup.as_ref())?;
        let not_executed = file.not_executed.clone().unwrap_or_default();
        let arguments = definition::arguments(&file, token_argument.as_deref());
        offering::check(&file, arguments.as_ref().ok())?;
        Ok(Self {
            tool,
            arguments,
            mode_highest: file.mode,
            dedup,
            token_argument,
            not_executed,
            alias: Alias::of(&id, &file).map_err(|problem| format!("`alias`: {problem}"))?,
            checks: offering::checks_of(&file.checks)
                .map_err(|problem| format!("`checks`: {problem}"))?,
            id,
            file,
        })
    }

    /// How long after the deadline of an attempt «not found» means «did not happen», in milliseconds; `None` if it cannot be probed.
    pub const fn settle_delay_ms(&self) -> Option<u64> {
        match &self.file.dedup {
            Some(DedupFile::Keyed { settle_delay_ms, .. }) => *settle_delay_ms,
            Some(DedupFile::Queryable { settle_delay_ms, .. }) => Some(*settle_delay_ms),
            Some(DedupFile::Opaque) | None => None,
        }
    }

    /// How it is probed for a token, if its contract says so.
    pub fn probe(&self) -> Option<&ProbeFile> {
        match &self.file.dedup {
            Some(DedupFile::Keyed { probe, .. } | DedupFile::Queryable { probe, .. }) => {
                probe.as_deref()
            }
            Some(DedupFile::Opaque) | None => None,
        }
    }

    /// The MCP method that it stands for, if it is not a tool.
    pub fn feature(&self) -> Option<Feature> {
        Feature::of_method(&self.tool)
    }

    /// Whether calls of it are kept in the ledger under a key.
    pub fn is_write_class(&self) -> bool {
        self.effect == Effect::Write
    }

    /// Whether it acts with a user's authority, by its mode or besides it (TM-08).
    pub fn is_delegated(&self) -> bool {
        self.mode_highest == ApprovalMode::Delegated || self.also.contains(&ApprovalMode::Delegated)
    }

    /// Whether it could be called if policy agreed: enabled, reviewed and enforceable.
    pub fn is_callable(&self) -> bool {
        self.enabled && self.pin.is_some() && self.arguments.is_ok()
    }
}

fn check_file(file: &ContractFile) -> Result<(), (String, String)> {
    let rule = |place: &str, problem: String| Err((place.to_owned(), problem));
    if let Err(problem) = file.tenants.check(&file.transport) {
        return rule("tenants", problem.to_owned());
    }
    if file.capabilities.is_empty() || file.capabilities.len() > CAPABILITIES_MAX {
        return rule("capabilities", format!("there must be 1 to {CAPABILITIES_MAX}"));
    }
    if file.limits.concurrency_max == 0 || file.limits.concurrency_max > 1024 {
        return rule("limits.concurrency_max", "must be 1 to 1024".to_owned());
    }
    if file.limits.calls_per_minute_max == 0 {
        return rule("limits.calls_per_minute_max", "must be at least 1".to_owned());
    }
    if !(1_024..=16_777_216).contains(&file.limits.result_bytes_max) {
        return rule("limits.result_bytes_max", "must be 1,024 to 16,777,216".to_owned());
    }
    if let Some(credential) = &file.credential
        && let Err((key, problem)) = credential.check(&file.transport, file.capabilities.keys())
    {
        let place = format!("credential.{key}");
        return rule(place.trim_end_matches('.'), problem.to_owned());
    }
    if let Some(credential) = &file.credential {
        let carries = |name: &String| name.eq_ignore_ascii_case(&credential.header);
        let set =
            file.capabilities.iter().filter_map(|(name, one)| Some((name, one.rest.as_ref()?)));
        if let Some((name, _)) = set.into_iter().find(|(_, rest)| rest.headers.keys().any(carries))
        {
            let problem = "sets the header that carries the credential: take it out";
            return rule(&format!("capabilities.{name}.rest.headers"), problem.to_owned());
        }
    }
    if let TransportFile::McpStdio { process, .. } = &file.transport
        && let Err((key, problem)) = process.check()
    {
        return rule(&format!("transport.process.{key}"), problem);
    }
    if let Some(HttpTarget { url, private_network: false }) = file.transport.http()
        && url.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http://"))
    {
        let problem = "plain http is refused: use https, or say `private_network: true` (`--private-network` of an import) for a host of your own network";
        return rule("transport.private_network", problem.to_owned());
    }
    if let Some(injection) = &file.error_injection
        && let Err(problem) = injection.check(&file.environment)
    {
        return rule("error_injection", problem);
    }
    Ok(())
}

/// Checks whatever can be checked of a capability without the others.
fn check_capability(
    file: &CapabilityFile,
    tool: &str,
    transport: &TransportFile,
) -> Result<(), String> {
    ensure(
        (1..=TOOL_BYTES_MAX).contains(&tool.len()) && !tool.chars().any(is_hidden),
        "`tool` must be 1 to 256 bytes without control or invisible characters",
    )?;
    check_text("description", &file.description)?;
    ensure(
        fits(file.effect, file.mode),
        "`effect: none` goes with the modes read_only, network and delegated; `effect: write` with all but read_only",
    )?;
    ensure(
        Feature::of_method(tool).is_none() || file.effect == Effect::None,
        format!("`{tool}` changes nothing: it goes with `effect: none`"),
    )?;
    ensure(
        matches!(transport, TransportFile::Rest { .. }) == file.rest.is_some(),
        "`rest` says which request a call is: it goes with `transport.type: rest`, and is needed there",
    )?;
    if let Some(rest) = &file.rest {
        rest.check(&file.input_schema, file.effect)?;
    }
    ensure(
        !transport.defines_its_tools() || file.pin.is_none(),
        "leave out `pin`: no server states another definition",
    )?;
    ensure(
        file.alias.is_none() || transport.is_mcp(),
        "`alias`: only tools of MCP servers may have one",
    )?;
    if let Some(not_executed) = &file.not_executed {
        not_executed.check(file.effect, transport)?;
    }
    // Over HTTP the only host is the contract's, and compiled-in adapters open no socket (TM-08).
    let goes_out = file.mode == ApprovalMode::Network || file.also.contains(&ApprovalMode::Network);
    let is_unbounded =
        matches!(transport, TransportFile::McpStdio { process, .. } if process.network.is_none());
    ensure(
        !is_unbounded || !goes_out,
        "it goes over a network, and a contract cannot bound where a child process connects to: `transport.process.network: unconfined` says that you know it",
    )
}

/// Checks a text for people and models.
fn check_text(key: &str, text: &str) -> Result<(), String> {
    ensure(text.len() <= DESCRIPTION_BYTES_MAX, format!("`{key}` is longer than 8,192 bytes"))?;
    ensure(
        !text.chars().any(|c| is_hidden(c) && !matches!(c, '\n' | '\t')),
        format!("`{key}` has control, invisible or text-direction characters, or unusual spaces"),
    )
}

/// Reports `problem` unless a rule of contracts holds.
fn ensure(holds: bool, problem: impl Into<String>) -> Result<(), String> {
    if holds { Ok(()) } else { Err(problem.into()) }
}
