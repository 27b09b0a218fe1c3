//! Whether a directory has the people that policies need.
//!
//! Owns two checks. Each gate can be satisfied: the groups it names are declared and have enough active members, in every tenant whose
//! calls it can hold; the owner of an agent does not count for its calls; and some policy permits approvals. And wherever somebody may set
//! a freeze or a lockdown, somebody may lift it. Where an issuer assigns groups by claims of its tokens, the members are not known, and only the declaration
//! is checked.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::Arc,
};

use cedar_policy::{ActionConstraint, Effect, Policy, PolicyId};
use placet_types::{
    clock::Timestamp,
    contract::{Capability, Contract},
    directory::Directory,
    ids::{GroupId, PrincipalId, TenantId},
    principal::{Principal, PrincipalKind},
};

use crate::{
    annotations::{ApprovalRule, PolicyMeta, Route},
    bundle::BundleProblem,
    manage::{Asked, DirectiveActKind, EntryFacts},
    review::{Reviewer, When},
    route::{WrittenGroup, WrittenTenant, has_group},
    schema,
    snapshot::Snapshot,
};

mod holds;

use holds::{Caller, can_apply};

/// When it is tried whether somebody may lift a freeze, where policies depend on the time: every full hour of a week, from the present one on.
const HOURS: Range<i64> = 0..168;
const HOUR_MS: i64 = 3_600_000;

/// Who exists, and for which tenants tokens add to that.
#[derive(Debug, Clone, Copy)]
pub struct Staff<'a> {
    /// The directory.
    pub directory: &'a Directory,
    /// The tenants with an issuer whose tokens assign groups.
    pub claimed: &'a BTreeSet<TenantId>,
    /// What can be called.
    pub contracts: &'a [Arc<Contract>],
    /// When it is asked.
    pub now: Timestamp,
}

/// Gates that nobody, or not enough people, can satisfy, and freezes that nobody can lift: one problem for each, and for each tenant.
///
/// # Errors
/// All of them.
pub fn check(policies: &Snapshot, staff: &Staff<'_>) -> Result<(), Vec<BundleProblem>> {
    let mut problems = Vec::new();
    let approvable = policies.set.policies().any(permits_approvals);
    for meta in policies.policies.values() {
        let ApprovalRule::Required(route) = &meta.rule else { continue };
        let Some(policy) = policies.set.policy(&PolicyId::new(&meta.id)) else { continue };
        if !approvable {
            let message = "it asks people, and no policy permits anybody to approve".to_owned();
            let help = "add a permit for `Placet::Action::\"approve\"`, as the shipped policies have in `40-review.cedar`";
            problems.push(problem(meta, message, help.to_owned()));
        }
        for (tenant, owners) in staff.callers_of(policy) {
            let gate = Gate { staff, tenant, owners, route };
            problems.extend(gate.flaw().map(|(message, help)| problem(meta, message, help)));
        }
    }
    problems.extend(unliftable_freezes(policies, staff));
    problems.sort();
    problems.dedup();
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// Freezes and lockdowns that somebody may set and nobody may lift; one problem for each kind and tenant.
fn unliftable_freezes(policies: &Snapshot, staff: &Staff<'_>) -> Vec<BundleProblem> {
    let mut problems = Vec::new();
    for tenant in staff.directory.tenants.keys().filter(|tenant| !staff.claimed.contains(*tenant)) {
        for (set, lift, what) in [
            (DirectiveActKind::SetFreeze, DirectiveActKind::LiftFreeze, "freeze"),
            (DirectiveActKind::SetLockdown, DirectiveActKind::LiftLockdown, "lockdown"),
        ] {
            let Some(setter) = staff.who_may(policies, tenant, set, None) else { continue };
            if staff.who_may(policies, tenant, lift, Some(setter)).is_none() {
                problems.push(
                    BundleProblem::of_bundle(format!(
                        "`{setter}` of tenant `{tenant}` may set a {what}, and nobody may lift it"
                    ))
                    .with_help(format!(
                        "put an active person in a group whose people the policies let do `{}`, such as `freeze-approvers`",
                        lift.as_str()
                    )),
                );
            }
        }
    }
    problems
}

fn problem(meta: &PolicyMeta, message: String, help: String) -> BundleProblem {
    BundleProblem {
        file: meta.file.clone(),
        line: meta.line,
        policy: Some(meta.id.clone()),
        ..BundleProblem::of_bundle(message)
    }
    .with_help(help)
}

impl<'a> Staff<'a> {
    /// The tenants whose calls a policy can hold, each with the owners of the agents that make them.
    fn callers_of(&self, policy: &Policy) -> Vec<(&'a TenantId, Vec<&'a PrincipalId>)> {
        let (constraint, json) = (policy.action_constraint(), policy.to_json().unwrap_or_default());
        let governing: Vec<&Contract> = self
            .contracts
            .iter()
            .map(Arc::as_ref)
            .filter(|contract| {
                contract.capabilities.values().any(|tool| governs(&constraint, tool))
            })
            .collect();
        let tenants = self.directory.tenants.iter();
        let tenants =
            tenants.filter(|(tenant, _)| governing.iter().any(|contract| contract.admits(tenant)));
        let callers = tenants.map(|(tenant, entry)| {
            let for_users = can_apply(&json, &Caller { tenant, agent: None });
            let held = entry.agents.iter().filter(|(id, agent)| {
                let caller = Caller { tenant, agent: Some((id, agent)) };
                agent.active && (for_users || can_apply(&json, &caller))
            });
            (tenant, held.map(|(_, agent)| &agent.owner).collect::<Vec<_>>())
        });
        callers.filter(|(_, owners)| !owners.is_empty()).collect()
    }

    /// Somebody of the tenant who may do this at some time: with a new entry of their own, or with an entry by `by`.
    fn who_may(
        &self,
        policies: &Snapshot,
        tenant: &TenantId,
        act: DirectiveActKind,
        by: Option<&PrincipalId>,
    ) -> Option<&'a PrincipalId> {
        let nothing = (BTreeSet::new(), BTreeSet::new());
        let users = &self.directory.tenants.get(tenant)?.users;
        let mut active = users.iter().filter(|(_, user)| user.active).map(|(id, _)| id);
        let may = |id: &PrincipalId, hours: Range<i64>| {
            let person = Principal {
                kind: PrincipalKind::User,
                id: id.clone(),
                tenant_id: tenant.clone(),
                display: None,
            };
            let entry = by.map(|by| EntryFacts {
                tenant,
                by,
                decided_by: &nothing.0,
                asked: &nothing.1,
                colleague: None,
            });
            let reviewer = Reviewer { principal: &person, groups: &nothing.1 };
            let Ok(asked) = Asked::of(policies, reviewer, act, entry) else { return false };
            let hour = self.now.as_ms().div_euclid(HOUR_MS);
            let mut times = hours
                .map(|nth| Timestamp::from_ms(hour.saturating_add(nth).saturating_mul(HOUR_MS)));
            times.any(|now| asked.at(When { now, authenticated_at: Some(now) }).is_ok())
        };
        // Mostly somebody may at this hour, and few of many people may at any.
        active.clone().find(|id| may(id, 0..1)).or_else(|| active.find(|id| may(id, HOURS)))
    }

    /// The active members of a group; `None` where tokens say who is in it.
    fn members(&self, tenant: &TenantId, group: &GroupId) -> Option<BTreeSet<&'a PrincipalId>> {
        if self.claimed.contains(tenant) {
            return None;
        }
        let users = self.directory.tenants.get(tenant).map(|entry| &entry.users);
        let members = users.into_iter().flatten().filter(|(_, user)| user.active);
        Some(members.filter(|(_, user)| user.groups.contains(group)).map(|(id, _)| id).collect())
    }
}

fn governs(constraint: &ActionConstraint, tool: &Capability) -> bool {
    let own = [tool.id.to_string(), "call_tool".to_owned()];
    let lineage: Vec<String> = schema::parents(tool).into_iter().chain(own).collect();
    tool.enabled && includes(constraint, |name| lineage.iter().any(|one| one == name))
}

fn permits_approvals(policy: &Policy) -> bool {
    policy.effect() == Effect::Permit
        && includes(&policy.action_constraint(), |name| ["approve", "review"].contains(&name))
}

fn includes(constraint: &ActionConstraint, is_meant: impl Fn(&str) -> bool) -> bool {
    match constraint {
        ActionConstraint::Any => true,
        ActionConstraint::Eq(action) => is_meant(action.id().unescaped()),
        ActionConstraint::In(actions) => actions.iter().any(|one| is_meant(one.id().unescaped())),
    }
}

/// A gate, as it is for the calls of one tenant.
struct Gate<'a> {
    staff: &'a Staff<'a>,
    tenant: &'a TenantId,
    /// The owners of the agents whose calls it can hold.
    owners: Vec<&'a PrincipalId>,
    route: &'a Route,
}

impl<'a> Gate<'a> {
    /// Why it cannot be satisfied, and what to do.
    fn flaw(&self) -> Option<(String, String)> {
        let later = self.route.steps.iter().map(|step| (&step.group, step.people));
        let mut asked =
            self.route.groups.iter().map(|(group, people)| (group, *people)).chain(later);
        asked
            .find_map(|(group, people)| self.flaw_of(group, people))
            .or_else(|| self.flaw_of_quorum())
    }

    /// The tenant whose group it is, if that is known before a call.
    fn tenant_of(&self, group: &'a WrittenGroup) -> Option<&'a TenantId> {
        match &group.of {
            WrittenTenant::Own => Some(self.tenant),
            WrittenTenant::Named(tenant) => Some(tenant),
            WrittenTenant::Input(_) => None,
        }
    }

    fn flaw_of(&self, group: &'a WrittenGroup, people: u32) -> Option<(String, String)> {
        let tenant = self.tenant_of(group)?;
        let name = &group.group;
        if !has_group(self.staff.directory, tenant, name) {
            let declared = self.staff.directory.tenants.get(tenant);
            let declared: Vec<&str> = declared
                .into_iter()
                .flat_map(|entry| entry.groups.keys())
                .map(GroupId::as_str)
                .collect();
            return Some((
                format!("it asks the group `{name}`, which tenant `{tenant}` does not declare"),
                format!(
                    "declare it in the directory with somebody in it; declared are `{}`",
                    declared.join("`, `")
                ),
            ));
        }
        let members = self.staff.members(tenant, name)?;
        let counted = self.counted(tenant, &members);
        (counted < number(people)).then(|| {
            let message = match counted {
                0 if members.is_empty() => {
                    format!("it asks the group `{name}` of tenant `{tenant}`, and nobody is in it")
                }
                0 => format!(
                    "it asks the group `{name}` of tenant `{tenant}`, and only the owner of an agent is in it, who does not count for its calls"
                ),
                _ => format!(
                    "it asks {people} people of the group `{name}` of tenant `{tenant}`, which has {counted} besides the owner of an agent"
                ),
            };
            (message, "put more active people in the group, in the directory, or ask fewer".to_owned())
        })
    }

    /// How many of these people count for every call of the tenant: all but the owner of the agent that calls, of the agent for which that
    /// leaves the fewest.
    fn counted(&self, tenant: &TenantId, people: &BTreeSet<&PrincipalId>) -> usize {
        let owners = self.owners.iter().filter(|_| tenant == self.tenant);
        let owned = owners.map(|owner| people.contains(owner));
        let without = owned.map(usize::from).max().unwrap_or_default();
        people.len().saturating_sub(without)
    }

    /// The problem of a quorum that exceeds the number of people in all the groups.
    fn flaw_of_quorum(&self) -> Option<(String, String)> {
        let mut people: BTreeMap<&TenantId, BTreeSet<&PrincipalId>> = BTreeMap::new();
        let later = self.route.steps.iter().map(|step| &step.group);
        for group in self.route.groups.keys().chain(later) {
            let tenant = self.tenant_of(group)?;
            people.entry(tenant).or_default().extend(self.staff.members(tenant, &group.group)?);
        }
        let counted = people.iter().map(|(tenant, people)| self.counted(tenant, people));
        let all = counted.fold(0, usize::saturating_add);
        (all < number(self.route.quorum)).then(|| {
            let quorum = self.route.quorum;
            (
                format!(
                    "it asks {quorum} people in all for calls of tenant `{}`, and its groups have {all} besides the owner of an agent",
                    self.tenant
                ),
                "put more active people in the groups, in the directory, or ask fewer with `@quorum`".to_owned(),
            )
        })
    }
}

fn number(people: u32) -> usize {
    usize::try_from(people).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
