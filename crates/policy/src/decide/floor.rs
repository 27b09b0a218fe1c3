//! The floor under every bundle: what the engine denies whatever policies say.
//!
//! Owns these rules. The shipped bundle has forbids for most of them, so that a decision names a policy; a bundle without
//! them is no weaker. Invariant: facts that contradict each other are an error, never a call.

use placet_types::{
    contract::{Capability, Contract},
    directory::Directory,
    mode::EngineMode,
    principal::{Principal, PrincipalChain, PrincipalKind},
};

use crate::{decision::DenialKind, facts::Facts, snapshot::Snapshot};

/// Something the engine holds against a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Obstacle {
    pub(crate) kind: DenialKind,
    pub(crate) note: &'static str,
}

const fn against(note: &'static str) -> Option<Obstacle> {
    Some(Obstacle { kind: DenialKind::Policy, note })
}

/// The first obstacle; lockdown before all, as it leaves an approval as it is.
pub(crate) fn of(snapshot: &Snapshot, facts: &Facts<'_>) -> Option<Obstacle> {
    if facts.engine_mode == EngineMode::Lockdown {
        return Some(Obstacle { kind: DenialKind::Lockdown, note: "the engine is in lockdown" });
    }
    of_chain(&snapshot.directory, facts.chain)
        .or_else(|| of_tool(facts.chain, facts.contract, facts.capability))
        .or_else(|| of_delegation(facts))
        .or_else(|| of_write(facts))
        .or_else(|| of_budget(facts))
}

/// Facts that do not belong together.
pub(crate) fn contradiction(snapshot: &Snapshot, facts: &Facts<'_>) -> Option<&'static str> {
    let (binding, id) = (facts.binding, &facts.capability.id);
    let Some(plan) = snapshot.tools.get(id) else {
        return Some("the snapshot does not know the tool");
    };
    if plan.contract_digest != facts.contract.digest
        || binding.contract_digest != facts.contract.digest
    {
        return Some("the contract is not the one the snapshot was compiled for");
    }
    if &binding.capability != id || &binding.principal_chain != facts.chain {
        return Some("the binding is of another call");
    }
    if !facts.proof.fits(facts.chain) {
        return Some("the proof of identity is of another caller");
    }
    None
}

pub(crate) fn of_chain(directory: &Directory, chain: &PrincipalChain) -> Option<Obstacle> {
    let tenant = chain.tenant();
    let actor_is_active = match chain.actor.kind {
        PrincipalKind::User => is_active_person(directory, &chain.actor),
        PrincipalKind::Agent | PrincipalKind::Service | PrincipalKind::Automation => {
            directory.agent(tenant, &chain.actor.id).is_some_and(|entry| entry.active)
        }
    };
    if !actor_is_active {
        return against("the caller is not in the directory, or not active");
    }
    match &chain.on_behalf_of {
        Some(user) if user.kind != PrincipalKind::User => {
            against("the caller acts for somebody who is no user")
        }
        Some(user) if &user.tenant_id != tenant => {
            against("the caller acts for a user of another tenant")
        }
        Some(user) if !is_active_person(directory, user) => {
            against("the user the caller acts for is not active")
        }
        Some(_) | None => None,
    }
}

fn is_active_person(directory: &Directory, person: &Principal) -> bool {
    directory.user(&person.tenant_id, &person.id).is_none_or(|user| user.active)
}

pub(crate) fn of_tool(
    chain: &PrincipalChain,
    contract: &Contract,
    capability: &Capability,
) -> Option<Obstacle> {
    if !contract.admits(chain.tenant()) {
        return against("the contract is not for this tenant");
    }
    if !capability.enabled {
        return against("the contract disables the tool");
    }
    if capability.arguments.is_err() {
        return against("the tool's schema cannot be enforced");
    }
    if capability.pin.is_none() {
        return against("the tool's definition was not reviewed");
    }
    None
}

/// A user's authority is used only for a user who delegated it, and upon evidence (TM-08).
fn of_delegation(facts: &Facts<'_>) -> Option<Obstacle> {
    if !facts.capability.is_delegated() {
        return None;
    }
    if facts.chain.on_behalf_of.is_none() {
        return against("the tool acts with a user's authority, and no user delegated any");
    }
    if facts.evidence.is_empty() {
        return against("the tool acts with a user's authority, and the call offers no evidence");
    }
    None
}

fn of_write(facts: &Facts<'_>) -> Option<Obstacle> {
    if facts.capability.is_write_class() && facts.key.is_none() {
        return against("a call that writes has no idempotency key");
    }
    None
}

fn of_budget(facts: &Facts<'_>) -> Option<Obstacle> {
    let spent =
        facts.budget.calls_left == 0 || facts.budget.cents_left < facts.capability.cost_cents;
    spent.then_some(Obstacle { kind: DenialKind::Budget, note: "the run's budget is used up" })
}
