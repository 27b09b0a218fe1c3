//! The claims that the configuration shows to policies (TM-04).
//!
//! Owns their form and limits. Invariant: a claim that was asked for and cannot be shown whole is refused, so that no policy decides
//! upon a part of it.

use std::collections::BTreeSet;

use placet_types::proof::ShownClaims;
use serde_json::{Map, Value};

use super::{refused, strings};
use crate::error::IdentityError;

const TEXTS_MAX: usize = 100;
const TEXT_BYTES_MAX: usize = 512;

/// The claims of these names that the token has.
pub(super) fn claims(
    claims: &Map<String, Value>,
    names: &BTreeSet<String>,
) -> Result<ShownClaims, IdentityError> {
    let present = names.iter().filter_map(|name| claims.get(name).map(|value| (name, value)));
    present.map(|(name, value)| Ok((name.clone(), texts(name, value)?))).collect()
}

fn texts(name: &str, value: &Value) -> Result<BTreeSet<String>, IdentityError> {
    let problem = "a claim of `policy_claims` must be a string of at most 512 bytes, or a list of at most 100 such";
    let texts = strings(value, TEXTS_MAX);
    let texts = texts.filter(|texts| texts.iter().all(|text| text.len() <= TEXT_BYTES_MAX));
    let texts = texts.ok_or_else(|| refused(name, problem))?;
    Ok(texts.into_iter().map(str::to_owned).collect())
}
