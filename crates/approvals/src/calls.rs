//! What the approval service needs of the engine: the engine owns the calls, approvals are decided here.
//!
//! Owns the only way back to the engine. Invariant: nothing in here sends a call; an approved call passes the gate again before it runs.

use std::fmt;

use async_trait::async_trait;
use serde_json::{Map, Value};

use placet_ledger::{approval::ApprovalRecord, parked::ParkedCall, record::EffectRecord};
use placet_policy::decision::{Decision, DenialKind};
use placet_types::{
    approval::Requirement,
    binding::RequestBinding,
    envelope::proposal::Evidence,
    error::{ErrorCode, Refusal},
    ids::{ApprovalId, TenantId},
};

/// The calls that approvals are about.
#[async_trait]
pub trait Calls: fmt::Debug + Send + Sync {
    /// The call may run: enough people agreed, or approval is no longer required.
    async fn approved(&self, approval: &ApprovalRecord);

    /// An approval ended here without success: the waiters of its call are told how it ended.
    async fn ended(&self, approval: &ApprovalRecord, record: &EffectRecord);

    /// An approval has ended, here or on another node: drop what is kept for its call.
    fn over(&self, approval: &ApprovalRecord);

    /// Handling an approved call failed: it is taken up again later.
    fn retry_later(&self, approval_id: &ApprovalId);

    /// Whether the target of a held call cannot be reached now.
    fn is_unreachable(&self, approval: &ApprovalRecord) -> bool;

    /// Whether callers of the tenant can have tokens of this issuer.
    fn has_issuer(&self, tenant: &TenantId, issuer: &str) -> bool;

    /// Further revocations are in force: drop what is kept for their subjects.
    fn revoked(&self);

    /// Has the active policies decide a held call as it would run now.
    ///
    /// # Errors
    /// [`Undecided`] when it would not run as it was held, or nothing can be decided now.
    async fn decide(&self, held: &HeldCall<'_>) -> Result<Redecided, Undecided>;
}

/// A call that is held.
#[derive(Debug)]
pub struct HeldCall<'a> {
    /// Its approval.
    pub approval: &'a ApprovalRecord,
    /// Its record.
    pub record: &'a EffectRecord,
    /// The call as it was held.
    pub parked: &'a ParkedCall,
    /// Arguments to use instead of its own, validated.
    pub args: Option<&'a Map<String, Value>>,
}

/// A held call as it would run now, and what the active policies say about it.
#[derive(Debug)]
pub struct Redecided {
    /// Their verdict.
    pub verdict: Redecision,
    /// The decision, for the records.
    pub decision: Decision,
    /// What an approval of it binds.
    pub binding: RequestBinding,
    /// What its approvers would be shown.
    pub evidence: Evidence,
}

/// What the active policies say about a held call.
#[derive(Debug)]
pub enum Redecision {
    /// No approval is required.
    Permitted,
    /// This approval is required.
    Held(Requirement),
    /// It is denied, even if approvers agree.
    Denied(DenialKind, ErrorCode),
}

/// Why nothing was decided about a held call.
#[derive(Debug)]
pub enum Undecided {
    /// It is no longer what would run.
    Void(String),
    /// It cannot be decided now.
    Refused(Refusal),
}
