//! The right to dispatch one exact call, once.
//!
//! Owns [`Permit`]. Invariant: only [`crate::snapshot::Snapshot::decide`] makes one, and it cannot be copied, cloned,
//! defaulted or read from anywhere, so anyone who holds one was given it for this call; the ledger consumes it.

use placet_types::{
    digest::Digest,
    directive::DirectiveBasis,
    ids::{ApprovalId, CapabilityId, DirectiveId, RecordId},
    mode::ApprovalMode,
};

use crate::{
    decision::Decision,
    facts::{ApprovalScope, Facts},
};

/// The right to dispatch one exact call, once.
#[derive(Debug)]
#[must_use = "a permit that is dropped dispatches nothing"]
pub struct Permit {
    decision: Decision,
    request_digest: Digest,
    capability: CapabilityId,
    record: Option<RecordId>,
    approval_id: Option<ApprovalId>,
    grant: Option<DirectiveId>,
    directives: DirectiveBasis,
    write_class: bool,
}

impl Permit {
    /// `counted`: whether policy saw the approval. A standing grant that made no difference is not used up.
    pub(crate) fn of(facts: &Facts<'_>, decision: Decision, counted: bool) -> Self {
        let grant = facts.approval.filter(|_| counted).and_then(|approval| match &approval.scope {
            ApprovalScope::Standing(grant) => Some(grant.clone()),
            ApprovalScope::Once => None,
        });
        Self {
            request_digest: decision.request_digest,
            capability: facts.capability.id.clone(),
            record: facts.key,
            approval_id: facts.approval.and_then(|approval| approval.approval_id.clone()),
            grant,
            directives: facts.directives,
            write_class: facts.capability.is_write_class(),
            decision,
        }
    }

    /// The decision behind it.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// The digest of the request that may run.
    pub fn request_digest(&self) -> Digest {
        self.request_digest
    }

    /// The operation that may run.
    pub fn capability(&self) -> &CapabilityId {
        &self.capability
    }

    /// The effect record it may run under; never absent when [`Self::write_class`].
    pub fn record(&self) -> Option<RecordId> {
        self.record
    }

    /// The approval that dispatch consumes.
    pub fn approval_id(&self) -> Option<&ApprovalId> {
        self.approval_id.as_ref()
    }

    /// The standing grant that the dispatch uses once, if it satisfied policy.
    pub fn grant(&self) -> Option<&DirectiveId> {
        self.grant.as_ref()
    }

    /// The mode the call runs in.
    pub fn mode_effective(&self) -> ApprovalMode {
        self.decision.mode_effective
    }

    /// The policy epoch; dispatch in another epoch needs a new decision.
    pub fn epoch(&self) -> u64 {
        self.decision.epoch
    }

    /// The state of the approval service that it reflects; where that has become stricter, dispatch needs a new decision.
    pub fn directives(&self) -> DirectiveBasis {
        self.directives
    }

    /// Whether the call changes something, so that it must be durable before it is sent.
    pub fn write_class(&self) -> bool {
        self.write_class
    }
}
