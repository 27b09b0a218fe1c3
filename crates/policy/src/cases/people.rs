//! The cases about people: who may decide and see approvals, and who may do what in the approval service.
//!
//! Owns their format. Running them is [`super::run`].

use std::collections::BTreeSet;

use placet_types::{
    approval::ApproverGroup,
    clock::Timestamp,
    ids::{CapabilityId, GroupId, PrincipalId, TenantId},
};
use serde::{Deserialize, Serialize};

use super::CasePrincipal;
use crate::manage::DirectiveActKind;

/// One review of an approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReviewCase {
    /// What it shows, as a sentence.
    pub name: String,
    /// When it happens, in RFC 3339; absent: 2026-01-01T00:00:00Z.
    #[serde(default = "super::new_year", with = "super::when")]
    pub now: Timestamp,
    /// Who reviews.
    pub reviewer: CasePrincipal,
    /// Groups in the reviewer's claims.
    #[serde(default)]
    pub groups: BTreeSet<GroupId>,
    /// What the reviewer wants to do.
    pub act: ReviewAct,
    /// Who calls.
    pub actor: CasePrincipal,
    /// For whom.
    #[serde(default)]
    pub user: Option<CasePrincipal>,
    /// What is called.
    pub tool: CapabilityId,
    /// The groups that were asked.
    pub asked: BTreeSet<ApproverGroup>,
    /// The colleague the reviewer decides for, with the groups that were delegated.
    #[serde(default)]
    pub stands_for: Option<CaseColleague>,
    /// How long ago the reviewer authenticated, in milliseconds; absent: the token does not say.
    #[serde(default)]
    pub authenticated_ago_ms: Option<i64>,
    /// The maximum age of that authentication.
    #[serde(default)]
    pub fresh_auth_ms: Option<u64>,
    /// When the approval ends, in milliseconds from now.
    #[serde(default = "super::an_hour")]
    pub expires_in_ms: i64,
    /// Who of the call's tenant has decided already.
    #[serde(default)]
    pub decided_by: BTreeSet<PrincipalId>,
    /// Who of the call's tenant wrote the arguments instead of its agent.
    #[serde(default)]
    pub authors: BTreeSet<PrincipalId>,
    /// Whether it is allowed.
    pub expect: ExpectedReview,
    /// All forbids that stood against it.
    #[serde(default)]
    pub policies: Option<BTreeSet<String>>,
}

/// What a reviewer wants to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReviewAct {
    /// See the approval.
    View,
    /// Say yes.
    Approve,
    /// Say no.
    Deny,
    /// Change the arguments.
    Edit,
    /// Take the call back.
    Withdraw,
}

/// A colleague who delegated their votes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseColleague {
    /// Who.
    pub id: PrincipalId,
    /// The groups that were delegated and that the colleague still has.
    pub groups: BTreeSet<GroupId>,
}

/// One act in the approval service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DirectiveCase {
    /// What it shows, as a sentence.
    pub name: String,
    /// When it happens, in RFC 3339; absent: 2026-01-01T00:00:00Z.
    #[serde(default = "super::new_year", with = "super::when")]
    pub now: Timestamp,
    /// Who acts.
    pub person: CasePrincipal,
    /// Groups in the person's claims.
    #[serde(default)]
    pub groups: BTreeSet<GroupId>,
    /// What the person wants to do.
    pub act: DirectiveActKind,
    /// How long ago the person authenticated, in milliseconds; absent: the token does not say.
    #[serde(default)]
    pub authenticated_ago_ms: Option<i64>,
    /// With which entry; absent: with a new one of their own.
    #[serde(default)]
    pub entry: Option<CaseEntry>,
    /// Whether it is allowed.
    pub expect: ExpectedReview,
    /// All forbids that stood against it.
    #[serde(default)]
    pub policies: Option<BTreeSet<String>>,
}

/// An entry of the approval service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseEntry {
    /// Who made it.
    pub by: PrincipalId,
    /// Whose directives; absent: those of the acting person's tenant.
    #[serde(default)]
    pub tenant: Option<TenantId>,
    /// Who approved or denied it.
    #[serde(default)]
    pub decided_by: BTreeSet<PrincipalId>,
    /// The groups asked for it; for a standing grant.
    #[serde(default)]
    pub asked: BTreeSet<GroupId>,
    /// Who decides instead; for a delegation.
    #[serde(default)]
    pub colleague: Option<PrincipalId>,
}

/// Whether a review is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExpectedReview {
    /// It is.
    Allow,
    /// It is not.
    Refuse,
}
