//! Contracts: the declared, pinned description of an adapter and of each of its capabilities.
//!
//! Owns what a valid contract is. Does not read files (the binary does) nor talk to the adapter. Invariant: a
//! [`Contract`] has passed every check, and a capability whose schema cannot be enforced is quarantined, not loosened.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::{
    argument_schema::ArgumentSchema,
    digest::Digest,
    ids::{AdapterName, CapabilityId, CapabilityName, EnvironmentName, IdError, TenantId},
    json::canonical_digest,
    mode::{ApprovalMode, Effect},
    taint::Taint,
    text::is_hidden,
};

pub mod alias;
pub mod credential;
mod definition;
pub mod error_injection;
pub mod feature;
pub mod file;
mod network;
pub mod not_executed;
pub mod offering;
pub mod process;
pub mod repeating;
pub mod rest;

pub use definition::LiveTool;

use credential::{CredentialFile, CredentialPlan};
use error_injection::ErrorInjectionFile;
use feature::Feature;
use file::{CapabilityFile, ContractFile, DataClass, LimitsFile, TenantsFile, TransportFile};
use not_executed::NotExecuted;
use offering::Offering;
use repeating::{ProbePlan, Repeating, TokenPlace};
use rest::RestFile;

/// The most capabilities a contract may have.
pub const CAPABILITIES_MAX: usize = 1_000;
/// The longest description, in bytes.
pub const DESCRIPTION_BYTES_MAX: usize = 8_192;

/// A checked contract.
#[derive(Debug, Clone)]
pub struct Contract {
    /// The adapter's name.
    pub adapter: AdapterName,
    /// The environment it is for.
    pub environment: EnvironmentName,
    /// What it is for.
    pub description: String,
    /// Who may use it.
    pub tenants: TenantsFile,
    /// How sensitive the data behind it is.
    pub data_class: DataClass,
    /// How it is reached.
    pub transport: TransportFile,
    /// The pinned protocol version.
    pub protocol_version: String,
    /// The credential attached to its calls.
    pub credential: Option<CredentialFile>,
    /// Whether its calls carry the caller's `tracestate`.
    pub pass_tracestate: bool,
    /// Bounds on its use.
    pub limits: LimitsFile,
    /// Errors that it makes up.
    pub error_injection: Option<ErrorInjectionFile>,
    /// Its operations by name.
    pub capabilities: BTreeMap<CapabilityName, Capability>,
    /// The digest of the whole contract: bound by every approval and recorded with every call.
    pub digest: Digest,
}

/// One checked operation.
#[derive(Debug, Clone)]
pub struct Capability {
    /// Its id.
    pub id: CapabilityId,
    /// The tool's name at its server.
    pub tool: String,
    /// What it does, as a planner reads it.
    pub description: String,
    /// The JSON Schema of its arguments as written.
    pub input_schema: Value,
    /// The JSON Schema of its structured output.
    pub output_schema: Option<Value>,
    /// Its request, of a service over HTTP.
    pub rest: Option<RestFile>,
    /// What arguments have to pass: the compiled schema, and the server's own where that is another. Or why the capability is quarantined.
    pub arguments: Result<ArgumentSchema, String>,
    /// The strongest mode it can have.
    pub mode_highest: ApprovalMode,
    /// Further things it does, its mode left out.
    pub also: BTreeSet<ApprovalMode>,
    /// Whether it changes anything.
    pub effect: Effect,
    /// What is known about repeating it.
    pub dedup: Dedup,
    /// Where its dispatch token is sent, beside the places where every write has it.
    pub token: TokenPlace,
    /// How it is asked about a token, where its contract says so.
    pub probe: Option<ProbePlan>,
    /// Which error answers to a call that was sent mean that it was not executed.
    pub not_executed: NotExecuted,
    /// What one call costs, in cents.
    pub cost_cents: u64,
    /// What its results carry into the context of the run that gets them.
    pub result_taint: BTreeSet<Taint>,
    /// Whether it may be called at all.
    pub enabled: bool,
    /// The digest of the live definition that was reviewed.
    pub pin: Option<Digest>,
    /// How it is offered in runs.
    pub offering: Offering,
}

/// What is known about repeating a call.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::ReadOnly => "read_only",
            Self::Keyed { .. } => "keyed",
            Self::Queryable { .. } => "queryable",
            Self::Opaque => "opaque",
        }
    }
}

/// What is wrong with a contract.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContractError {
    /// A rule is broken at a place.
    #[error("contract `{adapter}`: {place}: {problem}")]
    Rule {
        /// The adapter.
        adapter: AdapterName,
        /// Where in the file.
        place: String,
        /// What is wrong there.
        problem: String,
    },
    /// A capability's name cannot be used.
    #[error("contract `{adapter}`: capability `{capability}`: {source}")]
    Name {
        /// The adapter.
        adapter: AdapterName,
        /// The capability.
        capability: CapabilityName,
        /// Why.
        source: IdError,
    },
}

impl Contract {
    /// Checks a contract file.
    ///
    /// # Errors
    /// [`ContractError`] for the first rule it breaks. A schema that cannot be enforced is no error: its capability is
    /// quarantined, so that one bad tool does not take the others away.
    pub fn from_file(file: ContractFile) -> Result<Self, ContractError> {
        let digest = file.digest();
        check_file(&file)?;
        let capabilities = file
            .capabilities
            .into_iter()
            .map(|(name, capability)| {
                let capability = network::reached(&file.transport, capability);
                Capability::from_file(&file.adapter, name.clone(), capability)
                    .and_then(|checked| definition::pinned(&file.transport, &file.adapter, checked))
                    .map(|checked| (name, checked))
            })
            .collect::<Result<_, _>>()?;
        definition::check_tools(&file.adapter, &capabilities)?;
        repeating::check(&file.adapter, &file.transport, &capabilities)?;
        Ok(Self {
            adapter: file.adapter,
            environment: file.environment,
            description: file.description,
            tenants: file.tenants,
            data_class: file.data_class,
            transport: file.transport,
            protocol_version: file.protocol_version,
            credential: file.credential,
            pass_tracestate: file.pass_tracestate,
            limits: file.limits,
            error_injection: file.error_injection,
            capabilities,
            digest,
        })
    }

    /// Whether `tenant` may have this adapter in its surface.
    #[must_use]
    pub fn admits(&self, tenant: &TenantId) -> bool {
        self.tenants.admits(tenant)
    }

    /// Where a call goes, for approvers to read and approvals to bind.
    #[must_use]
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
    #[must_use]
    pub fn credential_plan(&self, capability: &CapabilityId) -> CredentialPlan {
        self.credential
            .as_ref()
            .map_or_else(CredentialPlan::default, |one| one.plan(capability.capability()))
    }
}

impl ContractFile {
    /// The digest of the whole file's meaning: layout and comments do not change it, every value does.
    #[must_use]
    pub fn digest(&self) -> Digest {
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
        adapter: &AdapterName,
        name: CapabilityName,
        file: CapabilityFile,
    ) -> Result<Self, ContractError> {
        let id = CapabilityId::new(adapter.clone(), name.clone()).map_err(|source| {
            ContractError::Name { adapter: adapter.clone(), capability: name.clone(), source }
        })?;
        let rule = |problem: &str| ContractError::Rule {
            adapter: adapter.clone(),
            place: format!("capabilities.{name}"),
            problem: problem.to_owned(),
        };
        if file.description.len() > DESCRIPTION_BYTES_MAX {
            return Err(rule("the description is longer than 8,192 bytes"));
        }
        if file.description.chars().any(|c| is_hidden(c) && !matches!(c, '\n' | '\t')) {
            return Err(rule(
                "the description has control, invisible or text-direction characters, or unusual spaces",
            ));
        }
        if !fits(file.effect, file.mode) {
            return Err(rule(
                "`effect: none` goes with the modes read_only, network and delegated; `effect: write` with all but read_only",
            ));
        }
        if let (Some(feature), Effect::Write) =
            (file.tool.as_deref().and_then(Feature::of_method), file.effect)
        {
            let method = feature.method();
            return Err(rule(&format!("`{method}` changes nothing: it goes with `effect: none`")));
        }
        let Repeating { dedup, token, probe } =
            Repeating::of(file.effect, file.dedup.clone()).map_err(|problem| rule(&problem))?;
        let not_executed = NotExecuted::of(file.effect, file.not_executed.clone())
            .map_err(|problem| rule(&problem))?;
        let arguments = definition::arguments(&file, &token);
        let offering = Offering::of(&id, &file, arguments.as_ref())
            .map_err(|(key, problem)| rule(&format!("`{key}`: {problem}")))?;
        let mut also = file.also;
        also.remove(&file.mode);
        Ok(Self {
            tool: file.tool.unwrap_or_else(|| name.to_string()),
            id,
            description: file.description,
            arguments,
            input_schema: file.input_schema,
            output_schema: file.output_schema,
            rest: file.rest.map(|rest| *rest),
            mode_highest: file.mode,
            also,
            effect: file.effect,
            dedup,
            token,
            probe,
            not_executed,
            cost_cents: file.cost_cents,
            result_taint: file.result_taint,
            enabled: file.enabled,
            pin: file.pin,
            offering,
        })
    }

    /// What it asks an MCP server for, where that is no tool.
    #[must_use]
    pub fn feature(&self) -> Option<Feature> {
        Feature::of_method(&self.tool)
    }

    /// Whether calls of it are kept in the ledger under a key.
    #[must_use]
    pub fn is_write_class(&self) -> bool {
        self.effect == Effect::Write
    }

    /// Whether it acts with a user's authority, by its mode or besides it (TM-08).
    #[must_use]
    pub fn is_delegated(&self) -> bool {
        self.mode_highest == ApprovalMode::Delegated || self.also.contains(&ApprovalMode::Delegated)
    }

    /// Whether it could be called if policy agreed: enabled, reviewed and enforceable.
    #[must_use]
    pub fn is_callable(&self) -> bool {
        self.enabled && self.pin.is_some() && self.arguments.is_ok()
    }
}

fn check_file(file: &ContractFile) -> Result<(), ContractError> {
    let rule = |place: &str, problem: String| {
        Err(ContractError::Rule { adapter: file.adapter.clone(), place: place.to_owned(), problem })
    };
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
        let place =
            if key.is_empty() { "credential".to_owned() } else { format!("credential.{key}") };
        return rule(&place, problem);
    }
    if let TransportFile::McpStdio { process, .. } = &file.transport
        && let Err((key, problem)) = process.check()
    {
        return rule(&format!("transport.process.{key}"), problem);
    }
    if let Some(injection) = &file.error_injection
        && let Err(problem) = injection.check(&file.environment)
    {
        return rule("error_injection", problem);
    }
    let is_mcp =
        matches!(file.transport, TransportFile::McpStdio { .. } | TransportFile::McpHttp { .. });
    let aliased = file.capabilities.iter().find(|(_, one)| one.alias.is_some());
    if let (Some((name, _)), false) = (aliased, is_mcp) {
        let problem = "`alias`: only tools of MCP servers may have one".to_owned();
        return rule(&format!("capabilities.{name}"), problem);
    }
    network::check(file).or_else(|(place, problem)| rule(&place, problem))
}
