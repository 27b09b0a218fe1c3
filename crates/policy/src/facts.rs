//! The input of a decision.
//!
//! Owns the shape of the facts. Does not gather them: identity comes from verified tokens, arguments from strict parsing
//! and the contract's schema, budget and votes from the ledger, time from the store. What an agent sends ends up only in
//! `args`, `mode_requested`, the choice of `evidence`, and `taint`, from which it can take nothing away.

use std::collections::BTreeSet;

use placet_types::{
    approval::{Requirement, Vote},
    binding::RequestBinding,
    clock::Timestamp,
    contract::{Capability, Contract},
    digest::Digest,
    directive::DirectiveBasis,
    evidence::EvidenceItem,
    ids::{ApprovalId, DirectiveId, GroupId, PrincipalId, RecordId},
    mode::{ApprovalMode, EngineMode},
    principal::PrincipalChain,
    proof::CallerProof,
    run_history::RunHistory,
    taint::Taint,
};

/// The facts of one call at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// Who calls and for whom, from verified tokens.
    pub chain: &'a PrincipalChain,
    /// Groups of the user's own tenant, from the verified claims of the user's token; the directory's are added.
    pub user_groups: &'a BTreeSet<GroupId>,
    /// The adapter's contract.
    pub contract: &'a Contract,
    /// The operation called.
    pub capability: &'a Capability,
    /// The effective arguments: validated, with defaults, as they would run.
    pub args: &'a serde_json::Value,
    /// What an approval of this call binds.
    pub binding: &'a RequestBinding,
    /// The mode the caller asked for, if it named one.
    pub mode_requested: Option<ApprovalMode>,
    /// The run's ceiling.
    pub safety_mode: ApprovalMode,
    /// What the engine as a whole is doing.
    pub engine_mode: EngineMode,
    /// The run's remaining budget.
    pub budget: BudgetView,
    /// What the run has in its context.
    pub taint: &'a BTreeSet<Taint>,
    /// What the run has done in batches.
    pub history: &'a RunHistory,
    /// The evidence that the call refers to, as the engine found it.
    pub evidence: &'a [EvidenceItem],
    /// The time of the store.
    pub now: Timestamp,
    /// The approval that was asked for this call, or the standing grant that covers it, with its votes, if there is one.
    pub approval: Option<&'a ApprovalFacts>,
    /// Whether a freeze of the calendar is on for this call.
    pub frozen: bool,
    /// The break-glass record that is in force for this call, if there is one.
    pub break_glass: Option<&'a BreakGlassFacts>,
    /// The state of the approval service that these facts reflect; no policy sees it, the permit carries it.
    pub directives: DirectiveBasis,
    /// How the caller, and the user it acts for, proved who they are.
    pub proof: &'a CallerProof,
    /// The call's effect record; every call that writes has one.
    pub key: Option<RecordId>,
}

/// A run's remaining budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetView {
    /// Calls that may still be dispatched.
    pub calls_left: u32,
    /// Cents that may still be spent.
    pub cents_left: u64,
    /// When the window of this budget ends.
    pub window_ends: Timestamp,
}

/// An approval, or a standing grant in its place, as the ledger has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalFacts {
    /// Its id; `None` for a standing grant.
    pub approval_id: Option<ApprovalId>,
    /// Whether it is for this call alone.
    pub scope: ApprovalScope,
    /// The digest of the request it counts for: for an approval, the request it was made for; for a standing grant, the call that
    /// it covers.
    pub request_digest: Digest,
    /// The digest of what approvers were to be shown: the proposal, or the grant's terms. An agreement to anything else does
    /// not count.
    pub shown_digest: Digest,
    /// When it ends.
    pub expires_at: Timestamp,
    /// The requirement that people were asked under; current policies may ask for something else.
    pub requirement: Requirement,
    /// How many of the requirement's escalations were made.
    pub escalated: u32,
    /// Whether an approver narrowed the arguments.
    pub args_edited: bool,
    /// What people decided.
    pub votes: Vec<Vote>,
}

/// What an approval is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovalScope {
    /// For one call.
    Once,
    /// For all calls that this standing grant covers.
    Standing(DirectiveId),
}

impl ApprovalScope {
    /// The name in policies.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Standing(_) => "standing",
        }
    }
}

/// A break-glass record in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BreakGlassFacts {
    /// The incident it belongs to.
    pub ticket: String,
    /// Who activated break-glass, of the caller's tenant.
    pub actor: PrincipalId,
    /// When it ends. An expired one is not shown to policy.
    pub until: Timestamp,
}
