//! What an approval requires and how people voted: shared by policy, ledger and the listeners.
//!
//! Owns the wire forms of requirement and vote; [`ballot`] counts. Does not decide who may vote (policy) nor store votes (ledger).

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    str::FromStr,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    clock::Timestamp,
    digest::Digest,
    ids::{GroupId, IdError, PrincipalId, TenantId},
};

pub mod ballot;

/// A group that is asked to approve: of the call's own tenant, or of another tenant, whose members decide as external approvers.
///
/// Written as `group` or `tenant/group`.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct ApproverGroup {
    tenant: Option<TenantId>,
    group: GroupId,
}

impl ApproverGroup {
    /// A group of the call's own tenant.
    pub const fn own(group: GroupId) -> Self {
        Self { tenant: None, group }
    }

    /// A group of `tenant`, as it is asked about a call of `own`.
    pub fn of(own: &TenantId, tenant: TenantId, group: GroupId) -> Self {
        let tenant = (tenant != *own).then_some(tenant);
        Self { tenant, group }
    }

    /// The other tenant whose group it is; `None`: the call's own.
    pub const fn external_tenant(&self) -> Option<&TenantId> {
        self.tenant.as_ref()
    }

    /// The group within its tenant.
    pub const fn group(&self) -> &GroupId {
        &self.group
    }

    /// Whether somebody of `tenant` (`None`: of the call's own) who is in `groups` is in it.
    pub fn has(&self, tenant: Option<&TenantId>, groups: &BTreeSet<GroupId>) -> bool {
        self.tenant.as_ref() == tenant && groups.contains(&self.group)
    }
}

impl From<GroupId> for ApproverGroup {
    fn from(group: GroupId) -> Self {
        Self::own(group)
    }
}

impl fmt::Display for ApproverGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.tenant {
            Some(tenant) => write!(f, "{tenant}/{}", self.group),
            None => self.group.fmt(f),
        }
    }
}

impl FromStr for ApproverGroup {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        match text.split_once('/') {
            Some((tenant, group)) => {
                Ok(Self { tenant: Some(TenantId::new(tenant)?), group: GroupId::new(group)? })
            }
            None => GroupId::new(text).map(Self::own),
        }
    }
}

impl TryFrom<String> for ApproverGroup {
    type Error = IdError;
    fn try_from(text: String) -> Result<Self, IdError> {
        text.parse()
    }
}

impl From<ApproverGroup> for String {
    fn from(group: ApproverGroup) -> Self {
        group.to_string()
    }
}

/// A person whose vote counts: the one who decided, or the one they decided for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Voice<'a> {
    /// The person's tenant, where it is not the call's own: an external approver.
    pub tenant: Option<&'a TenantId>,
    /// The person.
    pub person: &'a PrincipalId,
}

impl<'a> Voice<'a> {
    /// A person of the call's own tenant.
    pub const fn own(person: &'a PrincipalId) -> Self {
        Self { tenant: None, person }
    }
}

impl fmt::Display for Voice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.tenant {
            Some(tenant) => write!(f, "{} of {tenant}", self.person),
            None => self.person.fmt(f),
        }
    }
}

/// Who has to agree to a call, merged from every policy that holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Requirement {
    /// The groups that have to agree, each with the number of distinct members who must agree.
    pub groups: BTreeMap<ApproverGroup, u32>,
    /// The total number of distinct people who must agree.
    pub quorum: u32,
    /// The number of distinct people whose denial ends the approval, whatever they were shown. Default: 1.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub deny_threshold: u32,
    /// Further groups to ask if nobody decides in time, in the order of `after_ms`. Groups that were already asked come first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub escalations: Vec<Escalation>,
    /// The maximum age of an approver's authentication (`auth_time`, OpenID Connect Core section 2), in milliseconds; absent: any age.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fresh_auth_ms: Option<u64>,
    /// Whether people must decide on every single call. If so, no standing grant satisfies the requirement.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub once_only: bool,
    /// How long the approval can be decided, in milliseconds from when it was requested.
    pub expires_in_ms: u64,
    /// The policies that hold the call, with their reasons, for the approvers to read.
    pub reasons: Vec<HoldReason>,
}

impl Requirement {
    /// A requirement of groups and a quorum alone.
    pub const fn new(
        groups: BTreeMap<ApproverGroup, u32>,
        quorum: u32,
        expires_in_ms: u64,
    ) -> Self {
        Self {
            groups,
            quorum,
            deny_threshold: 1,
            escalations: Vec::new(),
            fresh_auth_ms: None,
            once_only: false,
            expires_in_ms,
            reasons: Vec::new(),
        }
    }

    /// The other tenants that are asked, at once or after a while of silence.
    pub fn external_tenants(&self) -> BTreeSet<TenantId> {
        let later = self.escalations.iter().map(|escalation| &escalation.group);
        let groups = self.groups.keys().chain(later);
        groups.filter_map(ApproverGroup::external_tenant).cloned().collect()
    }

    /// What is asked of the people of one other tenant, and why, without whom else it asks. The quorum is that of their own groups.
    pub fn part_of(&self, external: &TenantId) -> Self {
        let is_theirs = |group: &ApproverGroup| group.external_tenant() == Some(external);
        let mut part = self.clone();
        part.groups.retain(|group, _| is_theirs(group));
        part.escalations.retain(|one| is_theirs(&one.group));
        part.quorum = part.groups.values().copied().max().unwrap_or(1);
        part.reasons.retain(|reason| reason.asks.contains(external));
        for reason in &mut part.reasons {
            reason.asks.retain(|tenant| tenant == external);
        }
        part
    }

    /// This requirement in the place of an earlier one, of which so many escalations were made: those that it still asks for come first.
    /// Also answers how many these are; all others wait for a silence from now on.
    ///
    /// One was made if it is to the same group, after no longer a silence, for no more people, and stands in for no further group.
    pub fn instead_of(self, earlier: &Self, escalated: u32) -> (Self, u32) {
        let made = earlier.escalations.iter();
        let made = made.take(usize::try_from(escalated).unwrap_or(usize::MAX));
        let was_made = |one: &Escalation| {
            made.clone().any(|made| {
                made.group == one.group
                    && one.stands_in_for.is_subset(&made.stands_in_for)
                    && one.after_ms <= made.after_ms
                    && one.people <= made.people
            })
        };
        let (first, later): (Vec<_>, Vec<_>) = self.escalations.into_iter().partition(was_made);
        let escalated = u32::try_from(first.len()).unwrap_or(u32::MAX);
        (Self { escalations: [first, later].concat(), ..self }, escalated)
    }

    /// Everything that this or `after` asks for, as an edit has to meet it.
    pub fn joined(&self, after: Self) -> Self {
        let escalations = joined_escalations([self, &after]);
        let mut groups = after.groups;
        for (group, wanted) in &self.groups {
            let people = groups.entry(group.clone()).or_default();
            *people = (*people).max(*wanted);
        }
        let mut reasons = after.reasons;
        // What is still asked for keeps its reason.
        reasons.extend(
            self.reasons.iter().filter(|one| !reasons.contains(one)).cloned().collect::<Vec<_>>(),
        );
        Self {
            groups,
            quorum: self.quorum.max(after.quorum),
            deny_threshold: self.deny_threshold.min(after.deny_threshold),
            escalations,
            fresh_auth_ms: [self.fresh_auth_ms, after.fresh_auth_ms].into_iter().flatten().min(),
            once_only: self.once_only || after.once_only,
            expires_in_ms: self.expires_in_ms.min(after.expires_in_ms),
            reasons,
        }
    }
}

/// The escalations of requirements that apply together, in the order in which they are due.
///
/// A group stands in for another one only where it does so in every requirement that asks that one; the longest wait and the most people
/// apply. Otherwise the escalation of one requirement would answer for another one that has none.
fn joined_escalations(requirements: [&Requirement; 2]) -> Vec<Escalation> {
    let mut joined: BTreeMap<&ApproverGroup, Escalation> = BTreeMap::new();
    for escalation in requirements.iter().flat_map(|one| &one.escalations) {
        let later = &escalation.group;
        let may_stand_in = |group: &&ApproverGroup| {
            let mut asking = requirements.iter().filter(|one| one.groups.contains_key(*group));
            asking.all(|one| {
                one.escalations
                    .iter()
                    .any(|other| other.group == *later && other.stands_in_for.contains(*group))
            })
        };
        let one = joined
            .entry(later)
            .or_insert_with(|| Escalation { stands_in_for: BTreeSet::new(), ..escalation.clone() });
        one.after_ms = one.after_ms.max(escalation.after_ms);
        one.people = one.people.max(escalation.people);
        one.stands_in_for.extend(escalation.stands_in_for.iter().filter(may_stand_in).cloned());
    }
    let mut found: Vec<Escalation> =
        joined.into_values().filter(|one| !one.stands_in_for.is_empty()).collect();
    found.sort_by(|a, b| (a.after_ms, &a.group).cmp(&(b.after_ms, &b.group)));
    found
}

/// A further group that is asked if the first groups do not decide in time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Escalation {
    /// The delay without a decision, in milliseconds since people were asked or last asked again (after an edit, or because policies came
    /// to require more).
    pub after_ms: u64,
    /// The group that is asked then.
    pub group: ApproverGroup,
    /// The number of distinct members whose agreement is enough.
    pub people: u32,
    /// The groups that this group stands in for: each of them counts as agreed once `people` members of `group` have agreed.
    pub stands_in_for: BTreeSet<ApproverGroup>,
}

const fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
const fn is_one(number: &u32) -> bool {
    *number == 1
}

/// A policy that holds a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HoldReason {
    /// The id of the policy.
    pub policy: String,
    /// The reason that the policy states (`@reason`).
    pub reason: String,
    /// The other tenants whose groups the policy asks, at once or by escalation. No other external approvers see this reason.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub asks: BTreeSet<TenantId>,
}

crate::named_enum! {
    /// An approver's decision.
    #[derive(JsonSchema)]
    pub enum VoteChoice {
        /// The approver agrees.
        Approve = "approve",
        /// The approver denies. Enough denials (`deny_threshold` of the requirement) end the approval.
        Deny = "deny",
    }
}

/// One person's decision on one approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Vote {
    /// The person who decided.
    pub approver: PrincipalId,
    /// The approver's tenant, if it is not the call's own. An external approver speaks only for groups of that tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// The colleague who delegated their duty to the approver; `groups` are then the colleague's. Absent if the approver decided for
    /// themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stands_for: Option<PrincipalId>,
    /// The groups of the approver's tenant that the approver was in when deciding.
    pub groups: BTreeSet<GroupId>,
    /// When the groups were read from the token's claims. An approval is used only if this is at most 24 hours ago.
    pub groups_as_of: Timestamp,
    /// Those of `groups` that only the token states. The directory states all others, and must still state them when the decision is used.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub claimed: BTreeSet<GroupId>,
    /// When the approver last authenticated (`auth_time`); absent if the token does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authenticated_at: Option<Timestamp>,
    /// The OAuth client that the approver's token was issued to; absent if the token does not say. Not recorded for external approvers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The handle of the token that identified the approver. Never the token itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_ref: Option<String>,
    /// The decision.
    pub choice: VoteChoice,
    /// The reason, in the approver's words.
    pub reason: String,
    /// When the approver decided.
    pub at: Timestamp,
    /// The digest of the proposal that was decided on.
    pub shown_digest: Digest,
    /// The digest of what the approver was shown, if that was not the plain proposal: the part shown to an external approver, or the
    /// proposal together with what policies came to require later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part_digest: Option<Digest>,
}

impl Vote {
    /// The token it was given with, for display: its handle, and the client it was issued to. Empty if that is not recorded.
    pub fn with_token(&self) -> String {
        let Some(token) = &self.token_ref else { return String::new() };
        let client = self.client.as_ref().map(|client| format!(" of client {client}"));
        format!(" with {token}{}", client.unwrap_or_default())
    }

    /// Everybody whose voice it is: the voter, and the colleague they voted for.
    pub fn voices(&self) -> impl Iterator<Item = Voice<'_>> {
        let tenant = self.tenant.as_ref();
        let people = std::iter::once(&self.approver).chain(self.stands_for.as_ref());
        people.map(move |person| Voice { tenant, person })
    }

    /// The person whose duty it was.
    pub fn duty_of(&self) -> Voice<'_> {
        let person = self.stands_for.as_ref().unwrap_or(&self.approver);
        Voice { tenant: self.tenant.as_ref(), person }
    }

    /// Whether the approver decided as one of a group.
    pub fn is_of(&self, group: &ApproverGroup) -> bool {
        group.has(self.tenant.as_ref(), &self.groups)
    }
}

#[cfg(test)]
mod tests;
