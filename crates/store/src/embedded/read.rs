//! Records read from the state.
//!
//! Owns the path from a key to a record. Invariant: a record is read from a value that verifies, or is an error.

use placet_ledger::approval::ApprovalRecord;
use placet_ledger::directive::Directive;
use placet_ledger::record::EffectRecord;
use placet_ledger::run::{RunKey, RunRecord};
use placet_types::digest::Digest;
use placet_types::ids::{ApprovalId, DirectiveId, RecordId, TenantId};
use serde::de::DeserializeOwned;

use super::codec::{Stored, decode_place};
use super::keys;
use super::tree::{Tree, TreeFault};
use crate::journal::Place;

/// An effect record.
pub(super) fn effect(tree: &Tree, id: &RecordId) -> Result<Option<EffectRecord>, TreeFault> {
    record(tree, &keys::effect(id))
}

/// An approval.
pub(super) fn approval(tree: &Tree, id: &ApprovalId) -> Result<Option<ApprovalRecord>, TreeFault> {
    record(tree, &keys::approval(id))
}

/// A directive.
pub(super) fn directive(tree: &Tree, id: &DirectiveId) -> Result<Option<Directive>, TreeFault> {
    record(tree, &keys::directive(id))
}

/// A run.
pub(super) fn run(tree: &Tree, key: &RunKey) -> Result<Option<RunRecord>, TreeFault> {
    record(tree, &keys::run(key))
}

/// Where a content is.
pub(super) fn place(
    tree: &Tree,
    tenant: &TenantId,
    digest: Digest,
) -> Result<Option<Place>, TreeFault> {
    match tree.get(&keys::content(tenant, digest))? {
        Some(value) => decode_place(&value).map(Some).ok_or(TreeFault::Altered),
        None => Ok(None),
    }
}

/// The record of a key.
pub(super) fn record<T: DeserializeOwned>(tree: &Tree, key: &[u8]) -> Result<Option<T>, TreeFault> {
    tree.record(key)?.map(|stored| parsed(&stored)).transpose()
}

/// The record of a value.
pub(super) fn parsed<T: DeserializeOwned>(stored: &Stored) -> Result<T, TreeFault> {
    serde_json::from_slice(&stored.body).map_err(|error| {
        TreeFault::Sled(format!("a record of entry {} cannot be read: {error}", stored.seq))
    })
}
