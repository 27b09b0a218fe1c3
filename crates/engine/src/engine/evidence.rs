//! Evidence for outsiders: receipts for calls, signed checkpoints of the log, proofs about it.
//!
//! Owns who may have what, and the views. Not here: how they are made and signed (`placet-store`). Invariants: a receipt goes only to those
//! who may see the call, and reveals nothing of the entries after its own; what concerns the log as a whole names no tenant but shows the
//! volume of all tenants, and is for operators; a log that contradicts an earlier signature ends the engine.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use placet_identity::VerifiedCaller;
use placet_ledger::refusal::lookup_refusal;
use placet_store::{
    notary::{Notary, NotaryError},
    seal::SealError,
};
use placet_types::{
    digest::Digest,
    error::{ErrorCode, Refusal},
    ids::ToolCallId,
};

use super::Engine;

/// How often a record that changes while its receipt is made is read again.
const RECEIPT_TRIES: u32 = 8;

/// A signed statement of how a call ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReceiptView {
    /// The receipt: a compact JWS of type `placet-receipt+jwt`.
    pub receipt: String,
}

/// A signed checkpoint of one log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckpointView {
    /// The name of the log.
    pub log: String,
    /// The number of entries that the checkpoint covers.
    pub size: u64,
    /// The signed note (C2SP signed-note, tlog-checkpoint).
    pub note: String,
}

/// The public key that verifies receipts and checkpoints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditKeyView {
    /// The key as a C2SP signed-note verifier key.
    pub vkey: String,
    /// The key as a JSON Web Key.
    pub jwk: Value,
}

/// A proof that an entry is included in a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InclusionView {
    /// The name of the log.
    pub log: String,
    /// The sequence number of the entry.
    pub seq: u64,
    /// The size of the tree, in entries.
    pub size: u64,
    /// The chain hash of the entry.
    pub entry: Digest,
    /// The hashes from the entry to the root of the tree.
    pub path: Vec<Digest>,
}

/// A proof that a log extends an earlier state of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConsistencyView {
    /// The name of the log.
    pub log: String,
    /// The size of the earlier tree, in entries.
    pub from: u64,
    /// The size of the later tree, in entries.
    pub to: u64,
    /// The hashes that link the two trees.
    pub path: Vec<Digest>,
}

impl Engine {
    /// A signed receipt for a recorded call, for its owner, an auditor or an operator.
    ///
    /// # Errors
    /// [`ErrorCode::NotFound`] for calls of others, and for those that have no record because they only read.
    pub async fn receipt(
        &self,
        caller: &VerifiedCaller,
        id: &ToolCallId,
    ) -> Result<ReceiptView, Refusal> {
        let notary = self.notary()?;
        let mut tries = 1_u32;
        loop {
            let record = match self.settled(caller, id).await {
                Err(refusal) if refusal.code == ErrorCode::NotFound => return Err(unrecorded()),
                found => found?,
            };
            // What was parked may be deleted by now, or may never have existed: then the receipt leaves it out.
            let parked = self.context.ledger.parked(&record).await.ok();
            let digest = parked.map(|parked| parked.binding.digest());
            match notary.receipt(&record, digest, self.context.ledger.store().now()).await {
                Ok(receipt) => return Ok(ReceiptView { receipt }),
                Err(NotaryError::NoEntry) => return Err(unrecorded()),
                Err(NotaryError::Moved) if tries < RECEIPT_TRIES => {
                    tries = tries.saturating_add(1);
                }
                Err(error) => return Err(self.unproved(&error)),
            }
        }
    }

    /// A signed checkpoint of each log as it stands now, for operators.
    ///
    /// # Errors
    /// [`ErrorCode::PolicyDenied`] for others; [`ErrorCode::LedgerUnavailable`] when the ledger cannot be read.
    pub async fn checkpoints(
        &self,
        caller: &VerifiedCaller,
    ) -> Result<Vec<CheckpointView>, Refusal> {
        self.must_be_operator(caller)?;
        let sealed = self.notary()?.seal().await.map_err(|error| self.unproved(&error))?;
        let view = |sealed: placet_store::notary::Sealed| CheckpointView {
            log: sealed.log,
            size: sealed.size,
            note: sealed.note,
        };
        Ok(sealed.into_iter().map(view).collect())
    }

    /// The key that verifies what is signed here.
    ///
    /// # Errors
    /// [`ErrorCode::NotFound`] where nothing is signed.
    pub fn audit_key(&self, _caller: &VerifiedCaller) -> Result<AuditKeyView, Refusal> {
        let key = self.notary()?.key();
        Ok(AuditKeyView { vkey: key.vkey(), jwk: key.jwk() })
    }

    /// The proof that an entry is in the tree over the first `size` entries of a log, for operators; without a size, in that of its newest
    /// checkpoint.
    ///
    /// # Errors
    /// [`ErrorCode::PolicyDenied`] for others; [`ErrorCode::NotFound`] when there is no such log or entry.
    pub async fn inclusion(
        &self,
        caller: &VerifiedCaller,
        log: &str,
        seq: u64,
        size: Option<u64>,
    ) -> Result<InclusionView, Refusal> {
        self.must_be_operator(caller)?;
        let notary = self.notary()?;
        let size = match size {
            Some(size) => size,
            None => {
                let sealed = notary.seal().await.map_err(|error| self.unproved(&error))?;
                let newest = sealed.into_iter().find(|sealed| sealed.log == log);
                newest.map(|sealed| sealed.size).ok_or_else(|| no_log(log))?
            }
        };
        in_order("/seq", seq, size)?;
        let unproved = |error| self.unproved(&error);
        let proof = notary.inclusion(log, seq, size).await.map_err(unproved)?;
        let entries = notary.log().entries(log, seq, 1).await;
        let entry = entries.map_err(|error| self.unproved(&error.into()))?.into_iter().next();
        let entry = entry.ok_or_else(|| self.unproved(&NotaryError::NoEntry))?;
        let entry = Digest::from_bytes(entry.hash);
        Ok(InclusionView { log: log.to_owned(), seq, size, entry, path: proof.path })
    }

    /// The proof that a log over `to` entries begins with that over `from`, for operators.
    ///
    /// # Errors
    /// [`ErrorCode::PolicyDenied`] for others; [`ErrorCode::NotFound`] when there is no such log, or it has fewer entries.
    pub async fn consistency(
        &self,
        caller: &VerifiedCaller,
        log: &str,
        from: u64,
        to: u64,
    ) -> Result<ConsistencyView, Refusal> {
        self.must_be_operator(caller)?;
        in_order("/from", from, to)?;
        let proof = self.notary()?.consistency(log, from, to).await;
        let proof = proof.map_err(|error| self.unproved(&error))?;
        Ok(ConsistencyView { log: log.to_owned(), from, to, path: proof.path })
    }

    fn notary(&self) -> Result<&Arc<Notary>, Refusal> {
        let none = || Refusal::new(ErrorCode::NotFound, "this service signs nothing");
        self.context.notary.as_ref().ok_or_else(none)
    }

    fn unproved(&self, error: &NotaryError) -> Refusal {
        match error {
            NotaryError::NoLog(log) => no_log(log),
            NotaryError::NoEntry => Refusal::new(ErrorCode::NotFound, "there is no such entry"),
            NotaryError::Seal(SealError::NotAfter { .. }) => {
                self.context.node.die(format!("the log is not what was signed before: {error}"));
                lookup_refusal(error)
            }
            NotaryError::Store(_)
            | NotaryError::Seal(_)
            | NotaryError::Kept { .. }
            | NotaryError::Moved
            | NotaryError::Unread { .. } => lookup_refusal(error),
        }
    }
}

fn unrecorded() -> Refusal {
    Refusal::new(
        ErrorCode::NotFound,
        "there is no recorded call of this id that you may see; a call that only reads leaves no record, and receipts are \
         for recorded calls",
    )
}

fn no_log(log: &str) -> Refusal {
    Refusal::new(ErrorCode::NotFound, "there is no such log").with_detail(log)
}

fn in_order(pointer: &str, low: u64, high: u64) -> Result<(), Refusal> {
    if (1..=high).contains(&low) {
        return Ok(());
    }
    let problem = "must be at least 1, and at most the size of the tree";
    Err(Refusal::new(ErrorCode::ValidationError, "there is no proof about this")
        .with_problem(pointer, problem))
}
