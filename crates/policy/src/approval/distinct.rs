//! How many distinct people a requirement needs.
//!
//! Owns the count, from the groups as the directory knows them: somebody in several of the groups counts for each, and is one person.
//! Where the directory has nobody left for a group, each missing agreement is counted as one more person.

use std::collections::BTreeMap;

use placet_types::{
    approval::{ApproverGroup, Requirement, Voice},
    directory::{Directory, UserEntry},
    ids::{GroupId, PrincipalId, TenantId},
    principal::PrincipalChain,
};

use super::is_interested;

/// The fewest people by whom `requirement` can be met, at once or after an escalation; at least its quorum.
pub(super) fn people_needed(
    requirement: &Requirement,
    chain: &PrincipalChain,
    directory: &Directory,
) -> u32 {
    let later = requirement.escalations.iter().map(|escalation| {
        let mut groups = requirement.groups.clone();
        groups.retain(|group, _| !escalation.stands_in_for.contains(group));
        groups.insert(escalation.group.clone(), escalation.people);
        groups
    });
    let ways = std::iter::once(requirement.groups.clone()).chain(later);
    let fewest = ways.map(|groups| people_for(groups, chain, directory)).min();
    requirement.quorum.max(fewest.unwrap_or_default())
}

/// One person after the other who counts for the most groups that still need somebody.
fn people_for(
    mut open: BTreeMap<ApproverGroup, u32>,
    chain: &PrincipalChain,
    directory: &Directory,
) -> u32 {
    if open.len() <= 1 {
        return open.into_values().sum();
    }
    let mut people = eligible(&open, chain, directory);
    let mut count = 0_u32;
    loop {
        let counts = |groups: &Vec<ApproverGroup>| {
            groups.iter().filter(|group| open.get(*group).is_some_and(|left| *left > 0)).count()
        };
        let best = people.iter().enumerate().max_by_key(|(_, groups)| counts(groups));
        let Some((place, _)) = best.filter(|(_, groups)| counts(groups) > 0) else { break };
        for group in people.swap_remove(place) {
            let left = open.entry(group).or_default();
            *left = left.saturating_sub(1);
        }
        count = count.saturating_add(1);
    }
    open.into_values().fold(count, u32::saturating_add)
}

/// The asked groups of everybody who may agree and is in any.
fn eligible(
    asked: &BTreeMap<ApproverGroup, u32>,
    chain: &PrincipalChain,
    directory: &Directory,
) -> Vec<Vec<ApproverGroup>> {
    let own = chain.tenant();
    let of_person = |tenant: &TenantId, id: &PrincipalId, user: &UserEntry| {
        let external = (tenant != own).then_some(tenant);
        let may =
            user.active && !is_interested(directory, chain, Voice { tenant: external, person: id });
        let groups = user.groups.iter().filter(|_| may);
        let of = |group: &GroupId| ApproverGroup::of(own, tenant.clone(), group.clone());
        groups.map(of).filter(|group| asked.contains_key(group)).collect::<Vec<_>>()
    };
    let people = directory.tenants.iter().flat_map(|(tenant, entry)| {
        entry.users.iter().map(move |(id, user)| of_person(tenant, id, user))
    });
    people.filter(|groups| !groups.is_empty()).collect()
}
