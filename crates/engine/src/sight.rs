//! Whose calls and runs a caller may see.
//!
//! Owns the rule: operators and auditors see all of their tenant, other people see what their agents do and what is done for them, and
//! everyone sees what they do themselves.

use placet_approvals::reviewer;
use placet_identity::VerifiedCaller;

use crate::{context::Context, registry::Owner};

/// A caller who looks.
#[derive(Clone, Copy)]
pub(crate) struct Sight<'a> {
    context: &'a Context,
    pub(crate) caller: &'a VerifiedCaller,
    /// They see all of their tenant.
    pub(crate) sees_all: bool,
}

impl<'a> Sight<'a> {
    pub(crate) fn of(context: &'a Context, caller: &'a VerifiedCaller) -> Self {
        let sees_all = reviewer::is_auditor(&context.approvals, caller);
        Self { context, caller, sees_all }
    }

    /// Whether they may see what `owner` does.
    pub(crate) fn sees(&self, owner: &Owner) -> bool {
        if owner.tenant != *self.caller.tenant() {
            return false;
        }
        let is_own = *owner == Owner::of(&self.caller.chain());
        if is_own || !reviewer::is_person(self.caller) {
            return is_own;
        }
        let person = &self.caller.actor.principal().id;
        let directory = &self.context.current.active().directory;
        let agent = directory.agent(&owner.tenant, &owner.actor);
        self.sees_all
            || agent.is_some_and(|agent| agent.owner == *person)
            || owner.on_behalf_of.as_ref() == Some(person)
    }
}
