//! The names in cases: everybody, every group and every tool that a case is about exists.
//!
//! Owns the check. Invariant: a misspelt name fails its case, because the case would be about somebody else and might pass all the same.

use std::collections::BTreeSet;

use placet_types::{
    approval::ApproverGroup,
    directory::TenantDirectory,
    ids::{CapabilityId, GroupId, PrincipalId, TenantId},
    principal::PrincipalKind,
};

use super::{
    super::people::{DirectiveCase, ReviewCase},
    CallCase, CasePrincipal, Runner, principal_of,
};
use crate::{cases::CaseProof, snapshot::nearest};

/// What is unknown, in a sentence.
type Known = Result<(), String>;

impl Runner<'_> {
    pub(super) fn knows_call(&self, case: &CallCase) -> Known {
        self.knows_caller(&case.actor, case.user.as_ref(), &case.user_groups)?;
        if case.user.is_none() && case.delegation != CaseProof::default() {
            return Err("`delegation` is a user's, and the case has no `user`".to_owned());
        }
        let own = &case.actor.tenant;
        if let Some(glass) = &case.break_glass {
            self.knows_person(own, &glass.by, &BTreeSet::new())?;
        }
        for vote in case.approval.iter().flat_map(|approval| &approval.votes) {
            let tenant = vote.tenant.as_ref().unwrap_or(own);
            self.knows_person(tenant, &vote.by, &vote.groups)?;
            if let Some(colleague) = &vote.stands_for {
                self.knows_person(tenant, colleague, &vote.groups)?;
            }
        }
        case.evidence
            .iter()
            .chain(case.history.tools())
            .try_for_each(|tool| self.knows_tool(tool))?;
        self.snapshot.history.flaw(&case.history).map_or(Ok(()), Err)
    }

    pub(super) fn knows_review(&self, case: &ReviewCase) -> Known {
        self.knows_caller(&case.actor, case.user.as_ref(), &BTreeSet::new())?;
        self.knows_principal(&case.reviewer, PrincipalKind::User, &case.groups)?;
        if let Some(colleague) = &case.stands_for {
            self.knows_person(&case.reviewer.tenant, &colleague.id, &colleague.groups)?;
        }
        if case.reviewer.unlisted {
            return Ok(());
        }
        case.asked.iter().try_for_each(|group| self.knows_asked(&case.actor.tenant, group))
    }

    pub(super) fn knows_directive(&self, case: &DirectiveCase) -> Known {
        self.knows_principal(&case.person, PrincipalKind::User, &case.groups)
    }

    pub(super) fn knows_caller(
        &self,
        actor: &CasePrincipal,
        user: Option<&CasePrincipal>,
        user_groups: &BTreeSet<GroupId>,
    ) -> Known {
        self.knows_principal(actor, PrincipalKind::Agent, &BTreeSet::new())?;
        match user {
            Some(user) => self.knows_principal(user, PrincipalKind::User, user_groups),
            None if user_groups.is_empty() => Ok(()),
            None => Err("`user_groups` are a user's, and the case has no `user`".to_owned()),
        }
    }

    fn knows_principal(
        &self,
        one: &CasePrincipal,
        kind: PrincipalKind,
        claimed: &BTreeSet<GroupId>,
    ) -> Known {
        if one.unlisted {
            return Ok(());
        }
        let known = match principal_of(one, kind).kind {
            PrincipalKind::User => self.knows_person(&one.tenant, &one.id, claimed),
            PrincipalKind::Agent | PrincipalKind::Service | PrincipalKind::Automation => {
                let agents = &self.tenant(&one.tenant)?.agents;
                is_listed("agent", &one.id, agents.keys(), &one.tenant)
            }
        };
        known.map_err(|why| format!("{why}; if that is on purpose, write `unlisted: true` there"))
    }

    /// Somebody of the directory, or with groups that only a token states.
    fn knows_person(
        &self,
        tenant: &TenantId,
        id: &PrincipalId,
        claimed: &BTreeSet<GroupId>,
    ) -> Known {
        let entry = self.tenant(tenant)?;
        let groups = || entry.groups.keys();
        claimed.iter().try_for_each(|group| is_listed("group", group, groups(), tenant))?;
        if !claimed.is_empty() {
            return Ok(());
        }
        is_listed("user", id, entry.users.keys(), tenant)
    }

    fn knows_asked(&self, own: &TenantId, asked: &ApproverGroup) -> Known {
        let tenant = asked.external_tenant().unwrap_or(own);
        is_listed("group", asked.group(), self.tenant(tenant)?.groups.keys(), tenant)
    }

    fn knows_tool(&self, tool: &CapabilityId) -> Known {
        self.world.find(tool).map(drop).ok_or_else(|| format!("no contract has the tool `{tool}`"))
    }

    fn tenant(&self, id: &TenantId) -> Result<&TenantDirectory, String> {
        let tenants = &self.world.directory.tenants;
        tenants.get(id).ok_or_else(|| {
            let near = near(id, tenants.keys());
            format!("the directory has no tenant `{id}`{near}")
        })
    }
}

fn is_listed<'n, N: ToString + PartialEq + 'n>(
    what: &str,
    name: &N,
    names: impl Iterator<Item = &'n N> + Clone,
    tenant: &TenantId,
) -> Known {
    if names.clone().any(|known| known == name) {
        return Ok(());
    }
    let (name, near) = (name.to_string(), near(name, names));
    Err(format!("the directory has no {what} `{name}` in tenant `{tenant}`{near}"))
}

/// The existing name that was probably meant.
fn near<'n, N: ToString + 'n>(name: &N, names: impl Iterator<Item = &'n N>) -> String {
    let names = names.map(ToString::to_string).collect();
    let near = nearest(&name.to_string(), &names).map(|near| format!(" (the nearest is `{near}`)"));
    near.unwrap_or_default()
}
