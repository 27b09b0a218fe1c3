//! Whose calls and runs somebody sees.
//!
//! Owns the rule: operators and auditors see all of their tenant, other people what their agents do and what is done for them, an agent what
//! it does itself.

use placet_approvals::reviewer;
use placet_identity::VerifiedCaller;
use placet_types::ids::{PrincipalId, TenantId};

use crate::context::Context;

/// Somebody who looks.
pub(crate) struct Sight<'a> {
    context: &'a Context,
    pub(crate) caller: &'a VerifiedCaller,
    sees_all: bool,
}

impl<'a> Sight<'a> {
    pub(crate) fn of(context: &'a Context, caller: &'a VerifiedCaller) -> Self {
        let sees_all = reviewer::is_auditor(&context.approvals, caller);
        Self { context, caller, sees_all }
    }

    /// Whether they see what this agent does for this user, in a tenant.
    pub(crate) fn sees(
        &self,
        tenant: &TenantId,
        agent: &PrincipalId,
        user: Option<&PrincipalId>,
    ) -> bool {
        if tenant != self.caller.tenant() {
            return false;
        }
        let person = &self.caller.actor.principal().id;
        if !reviewer::is_person(self.caller) {
            let own_user = self.caller.delegation.as_ref().map(|token| &token.principal().id);
            return agent == person && user == own_user;
        }
        let directory = &self.context.current.active().directory;
        self.sees_all
            || directory.agent(tenant, agent).is_some_and(|agent| agent.owner == *person)
            || user == Some(person)
    }
}
