//! What the approval service asks of the engine: the calls are the engine's, the approvals are decided here.
//!
//! Owns the one way back. Invariant: nothing in here sends a call; an approved call passes the gate again before it runs.

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
    ids::ApprovalId,
};

/// The calls that approvals are about.
#[async_trait]
pub trait Calls: fmt::Debug + Send + Sync {
    /// Enough people agreed, or nobody is asked any more: the call may run.
    async fn approved(&self, approval: &ApprovalRecord);

    /// An approval came to nothing here: those who wait for its call are told how it ended.
    async fn ended(&self, approval: &ApprovalRecord, record: &EffectRecord);

    /// An approval is over, here or on another node: nothing is kept for its call any more.
    fn over(&self, approval: &ApprovalRecord);

    /// What was to be done with an approved call failed: it is taken up again later.
    fn retry_later(&self, approval_id: &ApprovalId);

    /// Whether the target of a held call cannot be reached now.
    fn is_unreachable(&self, approval: &ApprovalRecord) -> bool;

    /// Further revocations are in force: what is kept for their subjects is dropped.
    fn revoked(&self);

    /// Has the active policies decide about a held call as it would run now.
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
    /// Other arguments in the place of its own, validated.
    pub args: Option<&'a Map<String, Value>>,
}

/// A held call as it would run now, and what the active policies say about it.
#[derive(Debug)]
pub struct Redecided {
    /// What they say.
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
    /// Nobody has to agree.
    Permitted,
    /// These have to agree.
    Held(Requirement),
    /// It is denied, no matter who agrees.
    Denied(DenialKind, ErrorCode),
}

/// Why nothing was decided about a held call.
#[derive(Debug)]
pub enum Undecided {
    /// It is no longer what would run.
    Void(String),
    /// It cannot be decided about now.
    Refused(Refusal),
}
