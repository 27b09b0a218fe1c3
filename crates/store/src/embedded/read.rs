//! Records read from the state.
//!
//! Owns the path from a key to a record. Invariant: a record is read from a value that verifies, or is an error.

use placet_types::digest::Digest;
use placet_types::ids::TenantId;
use serde::de::DeserializeOwned;

use super::codec::{Stored, decode_place};
use super::keys;
use super::tree::{Tree, TreeFault};
use crate::journal::Place;

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
