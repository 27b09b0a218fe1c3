//! Case files: what a bundle is meant to decide, in YAML, for `placet policy test`.
//!
//! Owns the format. Running them is [`run`]. Unknown keys are errors: an expectation that is misspelt would test nothing.

use std::collections::{BTreeMap, BTreeSet};

use placet_types::{
    approval::{ApproverGroup, VoteChoice},
    clock::Timestamp,
    contract::file::ContractFile,
    directory::{ClassEntry, Directory},
    error::ErrorCode,
    ids::{CapabilityId, EnvironmentName, GroupId, PrincipalId, TenantId},
    mode::{ApprovalMode, EngineMode},
    principal::PrincipalKind,
    proof::{AuthType, CallerProof, Proof, ShownClaims},
    run_history::RunHistory,
    taint::Taint,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::decision::DenialKind;
use people::{DirectiveCase, ReviewCase};

pub mod people;
pub mod run;

/// How many problems of a bundle an error names, and how much of each.
const LISTED_MAX: usize = 3;
const PROBLEM_CHARS_MAX: usize = 240;

/// The version tag of a case file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CasesVersion {
    /// The only version there is.
    #[serde(rename = "placet.policy-cases.v1")]
    V1,
}

/// A file of cases.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseFile {
    /// `placet.policy-cases.v1`.
    pub cases_version: CasesVersion,
    /// The directory and contracts the cases are about; absent: those that the engine is configured with. Tools, tenants, groups and
    /// classes that it lacks are taken from the configuration, so that policies may name them.
    #[serde(default)]
    pub world: Option<WorldFile>,
    /// Calls and what is decided about them.
    #[serde(default)]
    pub cases: Vec<CallCase>,
    /// Reviews of approvals and whether they are allowed.
    #[serde(default)]
    pub reviews: Vec<ReviewCase>,
    /// What people do in the approval service and whether it is allowed.
    #[serde(default)]
    pub directives: Vec<DirectiveCase>,
    /// Callers and the tools that exist for them.
    #[serde(default)]
    pub surfaces: Vec<SurfaceCase>,
}

/// A directory and contracts made up for cases.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorldFile {
    /// The environment.
    pub environment: EnvironmentName,
    /// Who exists.
    pub directory: Directory,
    /// What can be called.
    pub contracts: Vec<ContractFile>,
}

/// One principal of a case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CasePrincipal {
    /// What kind it is; a user where a user is meant, else an agent.
    #[serde(default)]
    pub kind: Option<PrincipalKind>,
    /// Its name.
    pub id: PrincipalId,
    /// Its tenant.
    pub tenant: TenantId,
    /// Whether the directory lacks it, or its groups, on purpose.
    #[serde(default)]
    pub unlisted: bool,
}

/// One call, and what is expected of the decision about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallCase {
    /// What it shows, as a sentence.
    pub name: String,
    /// When it happens, in RFC 3339; absent: 2026-01-01T00:00:00Z.
    #[serde(default = "new_year", with = "when")]
    pub now: Timestamp,
    /// Who calls.
    pub actor: CasePrincipal,
    /// For whom.
    #[serde(default)]
    pub user: Option<CasePrincipal>,
    /// Groups in the user's verified claims.
    #[serde(default)]
    pub user_groups: BTreeSet<GroupId>,
    /// What is called.
    pub tool: CapabilityId,
    /// With what; defaults of the schema are added.
    #[serde(default = "no_args")]
    pub args: Value,
    /// The mode asked for; absent: none, so that policies may lower the contract's.
    #[serde(default)]
    pub mode: Option<ApprovalMode>,
    /// The run's ceiling.
    #[serde(default = "strongest")]
    pub safety_mode: ApprovalMode,
    /// What the engine is doing.
    #[serde(default)]
    pub engine_mode: EngineMode,
    /// Whether the caller is a verified workload.
    #[serde(default = "yes")]
    pub attested: bool,
    /// What the caller proved who it is with.
    #[serde(default)]
    pub proof: CaseProof,
    /// What the user's authority was proved with; counts only with `user`.
    #[serde(default)]
    pub delegation: CaseProof,
    /// Who acted for the user before the caller, the latest first.
    #[serde(default)]
    pub via: Vec<String>,
    /// The run's remaining budget.
    #[serde(default)]
    pub budget: CaseBudget,
    /// What the run has in its context.
    #[serde(default)]
    pub taint: BTreeSet<Taint>,
    /// What the run has done in batches: by tool and argument, the values of calls that succeeded.
    #[serde(default)]
    pub history: RunHistory,
    /// The tools whose earlier results in the run it offers as evidence.
    #[serde(default)]
    pub evidence: BTreeSet<CapabilityId>,
    /// The approval the call has.
    #[serde(default)]
    pub approval: Option<CaseApproval>,
    /// Whether a freeze is on for it.
    #[serde(default)]
    pub frozen: bool,
    /// The break-glass record that is in force for it.
    #[serde(default)]
    pub break_glass: Option<CaseBreakGlass>,
    /// What is expected.
    pub expect: Expectation,
}

/// A proof of identity of a case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CaseProof {
    /// The kind of proof.
    pub auth_type: AuthType,
    /// The subject as its issuer names it; absent: the principal's name. Of an SVID it is the SPIFFE id.
    pub subject: Option<String>,
    /// The scopes granted.
    pub scopes: BTreeSet<String>,
    /// The claims that policies see.
    pub claims: ShownClaims,
}

impl Default for CaseProof {
    fn default() -> Self {
        Self {
            auth_type: AuthType::Jwt,
            subject: None,
            scopes: BTreeSet::new(),
            claims: ShownClaims::new(),
        }
    }
}

impl CaseProof {
    fn of(&self, principal: &PrincipalId) -> Proof {
        Proof {
            auth_type: self.auth_type,
            subject: self.subject.clone().unwrap_or_else(|| principal.to_string()),
            scopes: self.scopes.clone(),
            claims: self.claims.clone(),
        }
    }
}

impl CallCase {
    /// How the parties of the case proved who they are.
    pub(crate) fn caller_proof(&self) -> CallerProof {
        CallerProof {
            attested: self.attested,
            actor: self.proof.of(&self.actor.id),
            user: self.user.as_ref().map(|user| self.delegation.of(&user.id)),
        }
    }
}

/// A run's remaining budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CaseBudget {
    /// Calls left.
    pub calls_left: u32,
    /// Cents left.
    pub cents_left: u64,
}

impl Default for CaseBudget {
    fn default() -> Self {
        Self { calls_left: 100, cents_left: 100_000 }
    }
}

impl CaseBudget {
    /// No more than a run of an agent of this class may have.
    pub(crate) fn at_most(self, class: &ClassEntry) -> Self {
        Self {
            calls_left: class.calls_max.map_or(self.calls_left, |max| max.min(self.calls_left)),
            cents_left: class
                .cost_cents_max
                .map_or(self.cents_left, |max| max.min(self.cents_left)),
        }
    }
}

/// A break-glass record of a case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseBreakGlass {
    /// Who broke the glass.
    pub by: PrincipalId,
    /// The incident.
    #[serde(default = "a_ticket")]
    pub ticket: String,
    /// When it ends, in milliseconds from now; negative: it has ended.
    #[serde(default = "an_hour")]
    pub ends_in_ms: i64,
}

/// An approval of a case, asked for by the same bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseApproval {
    /// When it ends, in milliseconds from now; negative: it has ended.
    #[serde(default = "an_hour")]
    pub expires_in_ms: i64,
    /// Whether it was asked for a request that differs from the call.
    #[serde(default)]
    pub changed: bool,
    /// Whether it is a standing grant that covers the call.
    #[serde(default)]
    pub standing: bool,
    /// How many escalations were made.
    #[serde(default)]
    pub escalated: u32,
    /// Whether an approver narrowed the arguments.
    #[serde(default)]
    pub args_edited: bool,
    /// What people decided.
    #[serde(default)]
    pub votes: Vec<CaseVote>,
}

/// A decision of somebody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseVote {
    /// Who.
    pub by: PrincipalId,
    /// The person's tenant; absent: the call's own.
    #[serde(default)]
    pub tenant: Option<TenantId>,
    /// The colleague the person decided for; the groups are the colleague's then.
    #[serde(default)]
    pub stands_for: Option<PrincipalId>,
    /// Groups in that person's claims; those of the directory count anyway.
    #[serde(default)]
    pub groups: BTreeSet<GroupId>,
    /// How long before deciding the person proved who they are, in milliseconds; absent: the token does not say.
    #[serde(default)]
    pub authenticated_ago_ms: Option<i64>,
    /// How long ago those claims were made, in milliseconds.
    #[serde(default)]
    pub groups_age_ms: i64,
    /// Yes or no.
    #[serde(default = "approve")]
    pub choice: VoteChoice,
    /// Whether the person was shown something else than what would run.
    #[serde(default)]
    pub shown_other: bool,
}

/// What is expected; what is left out is not checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// The outcome.
    pub outcome: ExpectedOutcome,
    /// The code that the caller gets.
    #[serde(default)]
    pub code: Option<ErrorCode>,
    /// Why the call was denied.
    #[serde(default)]
    pub kind: Option<DenialKind>,
    /// The mode of the call.
    #[serde(default)]
    pub mode: Option<ApprovalMode>,
    /// All policies that made the difference.
    #[serde(default)]
    pub policies: Option<BTreeSet<String>>,
    /// Who has to agree.
    #[serde(default)]
    pub requirement: Option<ExpectedRequirement>,
    /// Whether it is a standing grant that lets the call run.
    #[serde(default)]
    pub by_grant: Option<bool>,
}

placet_types::named_enum! {
    /// The outcome.
    pub enum ExpectedOutcome {
        /// The call may be dispatched.
        Allow = "allow",
        /// It waits for people.
        Hold = "hold",
        /// It does not happen.
        Deny = "deny",
    }
}

/// Who has to agree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedRequirement {
    /// How many of each group.
    pub groups: BTreeMap<ApproverGroup, u32>,
    /// How many people in all.
    pub quorum: u32,
    /// How long the approval lives.
    #[serde(default)]
    pub expires_in_ms: Option<u64>,
    /// How many denials end it.
    #[serde(default)]
    pub deny_threshold: Option<u32>,
    /// How many people of which groups are asked later.
    #[serde(default)]
    pub later: Option<BTreeMap<ApproverGroup, u32>>,
    /// The maximum age of an approver's authentication.
    #[serde(default)]
    pub fresh_auth_ms: Option<u64>,
    /// Whether no standing grant can satisfy it.
    #[serde(default)]
    pub once_only: Option<bool>,
}

/// The tools that exist for somebody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SurfaceCase {
    /// What it shows, as a sentence.
    pub name: String,
    /// Who looks.
    pub actor: CasePrincipal,
    /// For whom.
    #[serde(default)]
    pub user: Option<CasePrincipal>,
    /// Groups in the user's verified claims.
    #[serde(default)]
    pub user_groups: BTreeSet<GroupId>,
    /// All tools that exist for them.
    pub tools: BTreeSet<CapabilityId>,
}

/// A case file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CaseFileError {
    /// It is not in the format of a case file.
    #[error("the case file cannot be read: {0}")]
    Syntax(String),
    /// It has no case, so it would pass whatever is decided.
    #[error("the case file has no case")]
    Empty,
    /// A case could not be told from others in a report.
    #[error("{}", match .0.trim() {
        "" => "a case has no name".to_owned(),
        name => format!("two cases have the name `{name}`"),
    })]
    Name(String),
    /// The world it describes is not valid.
    #[error("the world of the case file cannot be: {0}")]
    World(String),
    /// It has no world and none was given.
    #[error("the case file has no `world`, and there is no configuration to take it from")]
    NoWorld,
    /// The bundle does not compile for its world.
    #[error("the bundle does not compile for the contracts and directory of the case file: {}", crate::cases::listed(.0))]
    Bundle(Vec<crate::bundle::BundleProblem>),
}

fn listed(problems: &[crate::bundle::BundleProblem]) -> String {
    let more = problems.len().saturating_sub(LISTED_MAX);
    let first: Vec<String> = problems.iter().take(LISTED_MAX).map(short).collect();
    let rest = if more > 0 { format!("; and {more} more") } else { String::new() };
    first.join("; ") + &rest
}

/// A problem without its help text, in a line of limited length.
fn short(problem: &crate::bundle::BundleProblem) -> String {
    let text = crate::bundle::BundleProblem { help: None, ..problem.clone() }.to_string();
    match text.char_indices().nth(PROBLEM_CHARS_MAX) {
        Some((end, _)) => text.get(..end).unwrap_or_default().to_owned() + "…",
        None => text,
    }
}

impl CaseFile {
    /// Reads a case file.
    ///
    /// # Errors
    /// [`CaseFileError::Syntax`] when it is not in the format.
    pub fn parse(text: &str) -> Result<Self, CaseFileError> {
        // As contracts are read: only `true` and `false` are booleans.
        let options = serde_saphyr::options! { strict_booleans: true };
        serde_saphyr::from_str_with_options(text, options)
            .map_err(|error| CaseFileError::Syntax(error.to_string()))
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        let calls = self.cases.iter().map(|case| &case.name);
        let reviews = self.reviews.iter().map(|case| &case.name);
        let directives = self.directives.iter().map(|case| &case.name);
        let surfaces = self.surfaces.iter().map(|case| &case.name);
        calls.chain(reviews).chain(directives).chain(surfaces).map(|name| name.trim())
    }

    /// There are cases, each with a name of its own.
    pub(crate) fn check(&self) -> Result<(), CaseFileError> {
        let mut known = BTreeSet::new();
        for name in self.names() {
            if name.is_empty() || !known.insert(name) {
                return Err(CaseFileError::Name(name.to_owned()));
            }
        }
        if known.is_empty() { Err(CaseFileError::Empty) } else { Ok(()) }
    }
}

fn no_args() -> Value {
    Value::Object(serde_json::Map::new())
}

const fn strongest() -> ApprovalMode {
    ApprovalMode::Destructive
}

const fn yes() -> bool {
    true
}

pub(crate) const fn new_year() -> Timestamp {
    Timestamp::from_ms(1_767_225_600_000)
}

/// A time in RFC 3339.
mod when {
    use chrono::DateTime;
    use placet_types::clock::Timestamp;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(at: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(at)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
        let text = String::deserialize(from)?;
        let time = DateTime::parse_from_rfc3339(&text).map_err(|error| {
            D::Error::custom(format!("`{text}` is no time such as 2026-11-30T09:00:00Z: {error}"))
        })?;
        Ok(Timestamp::from_ms(time.timestamp_millis()))
    }
}

const fn an_hour() -> i64 {
    3_600_000
}

fn a_ticket() -> String {
    "INC-1".to_owned()
}

const fn approve() -> VoteChoice {
    VoteChoice::Approve
}

#[cfg(test)]
mod tests;
