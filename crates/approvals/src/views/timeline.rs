//! The timeline of a call, from the audit chain.
//!
//! Owns the forms.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use placet_types::{
    caller::CallerIdentity, clock::Timestamp, digest::Digest, error::ErrorCode,
    principal::TokenAudiences, taint::Taint,
};

/// A call's way from plan to effect, from the audit chain.
#[derive(Debug, Clone, PartialEq)]
pub struct TimelineView {
    /// The steps that were found, in order.
    pub steps: Vec<TimelineStep>,
    /// Whether there may be others: the chain was not read in full between the first and the last of them.
    pub incomplete: bool,
}

/// One step of a call's way from plan to effect, from the audit chain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TimelineStep {
    /// The log of the chain it stands in.
    pub log: String,
    /// Its place there.
    pub seq: u64,
    /// When.
    pub at: Timestamp,
    /// What happened: a kind of audit event.
    pub kind: String,
    /// Who, where somebody did it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// With which code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<ErrorCode>,
    /// In words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Whom the tokens were for that it was done with, where one of them is for several services: its audiences, by its handle. For people.
    #[serde(default, skip_serializing_if = "TokenAudiences::is_empty")]
    pub audiences: TokenAudiences,
    /// How the caller and its user proved who they are, of a call that was decided upon. For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<Box<CallerIdentity>>,
    /// What the run had in its context when this was decided; of an outcome, what the result brought into it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub taint: BTreeSet<Taint>,
    /// Digests of what is not written out.
    pub digests: BTreeMap<String, Digest>,
    /// The hash of the entry, by which it can be proved.
    pub hash: String,
}
