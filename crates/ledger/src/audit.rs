//! Audit events: what the chain says in addition to the records.
//!
//! Owns the form of an event. Invariant I15: an event holds digests, names and codes; never an argument, a result or a secret.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use placet_types::{
    binding::CredentialUse,
    caller::CallerIdentity,
    digest::Digest,
    error::ErrorCode,
    ids::{ApprovalId, CapabilityId, DirectiveId, RecordId, RunId, TenantId, ToolCallId},
    principal::{PrincipalChain, TokenAudiences},
    taint::Taint,
};

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditKind {
    /// The engine came up and recovered.
    #[default]
    Started,
    /// A policy bundle became the active one.
    BundleActivated,
    /// A run was opened by its first call.
    RunOpened,
    /// Taint entered a run's context: a call of the run declared it, or the run was given another run's result.
    RunTainted,
    /// A call was refused.
    Refused,
    /// A call was held for approval.
    Held,
    /// Somebody decided on an approval.
    Voted,
    /// An approver edited the arguments of a held call.
    Edited,
    /// The next group was asked.
    Escalated,
    /// An entry of the approval service was made or moved: a standing grant, a break-glass record, a freeze, a delegation, a
    /// revocation.
    Directive,
    /// An approval ended without an effect.
    ApprovalEnded,
    /// A write-class call was dispatched.
    Dispatched,
    /// A write-class call was settled.
    Settled,
    /// A read-only call was dispatched.
    ReadDispatched,
    /// A read-only call came back: the end of the call that its `ReadDispatched` describes.
    ReadSettled,
    /// A recorded result was replayed.
    Replayed,
    /// An operator resolved an unknown outcome.
    Resolved,
    /// An approved call waits until its caller is back with another token.
    AwaitsCredential,
    /// The duty to settle a dispatch passed to another epoch.
    Adopted,
    /// An operator asked for a call with an unknown outcome to be sent again.
    Rearmed,
    /// Result and arguments were dropped after their retention.
    Buried,
    /// A tombstone was dropped.
    Forgotten,
    /// People were notified or could not be, or the notifier recorded how far it has read.
    Notified,
    /// A security event: a forged token, a mode raised in flight, a contract that drifted.
    Security,
}

/// The digest name for the tokens that a call was tried with; it digests their handles, never the tokens.
pub const TRIED: &str = "tried";

/// One event of the chain.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditEvent {
    /// What happened.
    pub kind: AuditKind,
    /// In which tenant; absent for the engine itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// To which call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<ToolCallId>,
    /// In which run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// Of which operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capability: Option<CapabilityId>,
    /// By whom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<PrincipalChain>,
    /// How the caller and its user proved who they are, where a call is decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<Box<CallerIdentity>>,
    /// Under which record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record_id: Option<RecordId>,
    /// Under which approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<ApprovalId>,
    /// The entries of the approval service that it is about or relied on. A dispatch names the standing grant it used and the break-glass
    /// records it was decided under, so that every use of an entry can be found by its id.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub directives: BTreeSet<DirectiveId>,
    /// With which code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<ErrorCode>,
    /// The policy decision, as `policy` records it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<serde_json::Value>,
    /// Digests of what is not written out, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub digests: BTreeMap<String, Digest>,
    /// The credential that the call was sent with: its description, never its value. For an event about a credential fault, that credential
    /// as it was planned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<Box<CredentialUse>>,
    /// The audiences of the tokens, where one of them is for several services.
    #[serde(default, skip_serializing_if = "TokenAudiences::is_empty")]
    pub audiences: TokenAudiences,
    /// The run's taint at the decision; for an outcome, the taint that the result brought.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub taint: BTreeSet<Taint>,
    /// The trace it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// A sentence for the auditor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The key by which entries of a log are found.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// A call: events that name it.
    Call(ToolCallId),
    /// An approval: events that name it, and no call.
    Approval(ApprovalId),
}

/// What some events are about.
pub fn subjects_of(events: &[AuditEvent]) -> BTreeSet<Subject> {
    events.iter().filter_map(AuditEvent::subject).collect()
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(id) => write!(f, "call {id}"),
            Self::Approval(id) => write!(f, "approval {id}"),
        }
    }
}

impl AuditEvent {
    /// What the event is about, if it is about one call or approval.
    pub fn subject(&self) -> Option<Subject> {
        let call = self.call_id.clone().map(Subject::Call);
        call.or_else(|| self.approval_id.clone().map(Subject::Approval))
    }

    /// The event for the end of the read that this one begins. It names the call and its operation; the caller and the decision are in this
    /// one.
    pub fn end_of_read(&self) -> Self {
        let (tenant, call_id) = (self.tenant.clone(), self.call_id.clone());
        let capability = self.capability.clone();
        Self { tenant, call_id, capability, ..Self::new(AuditKind::ReadSettled) }
    }

    /// An event of `kind` with no other field set.
    pub fn new(kind: AuditKind) -> Self {
        Self { kind, ..Self::default() }
    }
}
