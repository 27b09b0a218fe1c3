//! The ledger's verbs: claim, hold, vote, dispatch, settle, resolve.
//!
//! Owns the ledger over a store, its errors, and the verbs that concern neither an approval nor a dispatch; those are in the modules below.
//! Decides nothing and stores nothing. Invariant: every verb is one [`Store::commit`], so it happens as a whole or not at all.

mod approvals;
mod directives;
mod dispatching;
mod edits;
mod keeping;
mod settling;
#[cfg(test)]
mod tests;

pub use edits::Replacement;

use std::{collections::BTreeSet, sync::Arc};

use serde::de::DeserializeOwned;

use placet_policy::policies::PolicyDigests;
use placet_types::{
    digest::Digest,
    envelope::{proposal::ToolProposalEnvelope, result::ToolResultEnvelope},
    error::ErrorCode,
    ids::{RecordId, TenantId},
    taint::Taint,
};

use crate::{
    approval::{ApprovalRecord, VoteError},
    audit::{AuditEvent, AuditKind},
    parked::ParkedCall,
    policies::{Activation, PolicyState, ReplacedPolicies},
    record::EffectRecord,
    run::{RunRecord, RunTaint},
    store::{Admission, Changes, ClaimAnswer, Durability, Store, StoreError},
};

/// Why a verb did nothing.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The store refused or failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A re-arm by two people needs two different operators.
    #[error("another person than the first has to agree")]
    SamePerson,
    /// The permit is for another call.
    #[error("the permit is for another call")]
    PermitMismatch,
    /// The edit is for another call, or asks for more than the held one.
    #[error("the edit is of another call, or asks for more than the held one")]
    EditMismatch,
    /// The record is not in the state that the verb needs.
    #[error("the record is {0}")]
    WrongState(&'static str),
    /// A vote that does not count.
    #[error(transparent)]
    Vote(#[from] VoteError),
    /// A value to store has no JSON form.
    #[error("the record has no JSON form: {0}")]
    Encoding(String),
}

impl LedgerError {
    /// Whether the same may succeed in a moment: see [`StoreError::is_transient`].
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_transient())
    }
}

/// What became of a dispatched call, as its adapter reports it.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// It succeeded.
    Succeeded,
    /// It failed and will not be tried again.
    FailedFinal(ErrorCode),
    /// Nothing happened: it was not sent, or a probe does not know it; it may be tried again under its approval.
    FailedRetriable(ErrorCode),
    /// It was sent, and refused with an answer that its contract declares as "not executed". It may be tried again; under its approval only
    /// where the target recognises its token, since the target's statement is no proof.
    Declined(ErrorCode),
    /// Its outcome is unknown.
    Unknown(String),
}

/// The ledger over some store; cheap to clone.
#[derive(Debug, Clone)]
pub struct Ledger {
    store: Arc<dyn Store>,
}

impl Ledger {
    /// A ledger over `store`.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store }
    }

    /// The store, for look-ups.
    pub fn store(&self) -> &dyn Store {
        self.store.as_ref()
    }

    /// Activates the policies with these digests and returns their epoch; permits of another epoch are no longer accepted. If another node
    /// activated the same policies, joins its epoch. Policies that were replaced come back only as `by` allows.
    ///
    /// # Errors
    /// [`LedgerError::Store`] when it could not be recorded, or is a roll-back that was not asked for.
    pub async fn activate(
        &self,
        digests: PolicyDigests,
        by: Activation,
        event: AuditEvent,
    ) -> Result<u64, LedgerError> {
        let mut rolls_back: Option<ReplacedPolicies> = None;
        loop {
            let current = self.store.policy().await?;
            let next = match current {
                Some(current) if current.digests == digests => current,
                current => {
                    let epoch = current.map_or(0, |current| current.epoch).saturating_add(1);
                    PolicyState { epoch, digests }
                }
            };
            let mut event = event.clone();
            let digests_of = [("before", current), ("activated", Some(next))];
            for (name, of) in digests_of.into_iter().filter_map(|(name, of)| Some((name, of?))) {
                event.digests.insert(name.to_owned(), of.digests.whole());
            }
            let mut changes = Changes::new(Durability::Synced, Admission::Completion);
            changes.activate = Some(next);
            changes.rolls_back = rolls_back.map(|replaced| replaced.active.epoch);
            let rolled_back = rolls_back.map(|replaced| format!("a roll-back: {replaced}"));
            let notes: Vec<String> = event.note.iter().cloned().chain(rolled_back).collect();
            let note = (!notes.is_empty()).then(|| notes.join("; "));
            changes.audit.push(AuditEvent { note, ..event });
            match self.store.commit(changes).await {
                // Another node was faster: look again.
                Err(StoreError::Conflict) => rolls_back = None,
                Err(StoreError::PoliciesReplaced(replaced))
                    if rolls_back != Some(*replaced) && by.rolls_back(replaced.active) =>
                {
                    rolls_back = Some(*replaced);
                }
                Err(error) => return Err(error.into()),
                Ok(_) => return Ok(next.epoch),
            }
        }
    }

    /// Records an event on its own.
    ///
    /// # Errors
    /// [`LedgerError::Store`] when it could not be kept.
    pub async fn note(&self, event: AuditEvent, durability: Durability) -> Result<(), LedgerError> {
        let mut changes = Changes::new(durability, Admission::Completion);
        changes.audit.push(event);
        self.store.commit(changes).await?;
        Ok(())
    }

    /// Opens a run, or returns the one that its first call opened, adding the taint of this call.
    ///
    /// # Errors
    /// [`LedgerError::Store`] when the store cannot read or record it.
    pub async fn open_run(&self, run: RunRecord) -> Result<RunRecord, LedgerError> {
        match self.store.run(&run.key).await? {
            Some(known) => self.with_taint(known, run.taint).await,
            // Boxed because it happens once to a run: otherwise every call would have room for it.
            None => Box::pin(self.begin_run(run)).await,
        }
    }

    async fn begin_run(&self, run: RunRecord) -> Result<RunRecord, LedgerError> {
        let mut event = AuditEvent::new(AuditKind::RunOpened);
        event.tenant = Some(run.key.tenant.clone());
        event.run_id = Some(run.key.run_id.clone());
        event.taint.clone_from(&run.taint);
        // A run whose taint were lost could not be told from a clean one.
        let durability =
            if run.taint.is_empty() { Durability::Written } else { Durability::Synced };
        let mut changes = Changes::new(durability, Admission::New);
        changes.runs.push(run.clone());
        changes.audit.push(event);
        self.store.commit(changes).await?;
        // Two first calls may race: the store keeps one, and both read that one.
        let known = self.store.run(&run.key).await?.unwrap_or_else(|| run.clone());
        self.with_taint(known, run.taint).await
    }

    async fn with_taint(
        &self,
        run: RunRecord,
        taint: BTreeSet<Taint>,
    ) -> Result<RunRecord, LedgerError> {
        let Some(tainted) = run.tainted(&taint) else { return Ok(run) };
        let brought = RunTaint { run: run.key, session: None, taint };
        Box::pin(self.taint_run(brought, AuditEvent::new(AuditKind::RunTainted))).await?;
        Ok(tainted)
    }

    /// Adds taint to a run's context that none of its own results brought.
    ///
    /// # Errors
    /// [`LedgerError::Store`] when it could not be recorded: then nothing may be decided or told as if it had been.
    pub async fn taint_run(
        &self,
        brought: RunTaint,
        mut event: AuditEvent,
    ) -> Result<(), LedgerError> {
        event.kind = AuditKind::RunTainted;
        event.tenant = Some(brought.run.tenant.clone());
        event.run_id = Some(brought.run.run_id.clone());
        event.taint.clone_from(&brought.taint);
        // A full store still returns what it has.
        let mut changes = Changes::new(Durability::Synced, Admission::Completion);
        changes.taint.push(brought);
        changes.audit.push(event);
        self.store.commit(changes).await?;
        Ok(())
    }

    /// Claims the key of `record`, or returns its state.
    ///
    /// # Errors
    /// [`LedgerError::Store`] when the store cannot tell.
    pub async fn claim(&self, record: EffectRecord) -> Result<ClaimAnswer, LedgerError> {
        Ok(self.store.claim(record).await?)
    }

    /// Releases a claim that was not used, and records `event`.
    ///
    /// # Errors
    /// [`LedgerError::Store`] when the event could not be recorded; the claim is released all the same.
    pub async fn release(&self, record_id: RecordId, event: AuditEvent) -> Result<(), LedgerError> {
        let kept = self.note(event, Durability::Synced).await;
        self.store.release(record_id).await;
        kept
    }

    /// What was parked of a record, checked against its digest.
    ///
    /// # Errors
    /// [`StoreError::ContentAltered`] and [`StoreError::ContentMissing`]; [`StoreError::Damaged`] when its format is unknown.
    pub async fn parked(&self, record: &EffectRecord) -> Result<ParkedCall, LedgerError> {
        self.document(&record.scope.tenant, record.parked).await
    }

    /// A result envelope from the stored content.
    ///
    /// # Errors
    /// As [`Self::parked`].
    pub async fn result(
        &self,
        record: &EffectRecord,
        digest: Digest,
    ) -> Result<ToolResultEnvelope, LedgerError> {
        self.document(&record.scope.tenant, digest).await
    }

    /// What the approvers of `approval` are shown.
    ///
    /// # Errors
    /// As [`Self::parked`].
    pub async fn proposal(
        &self,
        approval: &ApprovalRecord,
    ) -> Result<ToolProposalEnvelope, LedgerError> {
        self.document(approval.chain.tenant(), approval.proposal).await
    }

    async fn document<T: DeserializeOwned>(
        &self,
        tenant: &TenantId,
        digest: Digest,
    ) -> Result<T, LedgerError> {
        let bytes = self.store.content(tenant, digest).await?;
        serde_json::from_slice(&bytes)
            .map_err(|error| StoreError::Damaged(error.to_string()).into())
    }
}

/// A document as it is stored, with its digest.
fn content_of<T: serde::Serialize>(document: &T) -> Result<(Vec<u8>, Digest), LedgerError> {
    let bytes =
        serde_json::to_vec(document).map_err(|error| LedgerError::Encoding(error.to_string()))?;
    let digest = Digest::of(&bytes);
    Ok((bytes, digest))
}
