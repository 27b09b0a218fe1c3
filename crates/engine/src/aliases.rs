//! Aliases of read-only tools (TM-13): which are in force.
//!
//! Owns when a capability has its alias. A call by an alias is a call of its capability: built, decided, compared with the pin, audited.
//! Not here: what a contract must say ([`placet_types::contract::alias`]), and how calls went (`report::scores`). Invariant: nothing of an
//! alias outlives an activation.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use placet_types::{
    contract::{
        Capability,
        alias::{Alias, AliasWhen},
    },
    ids::CapabilityId,
};

use crate::active::Active;

/// The aliases of a node.
#[derive(Debug, Default)]
pub(crate) struct Aliases {
    scores: ArcSwap<Scores>,
    /// Capabilities whose live definition differed from the pin, each with the policy epoch under which that was found.
    withdrawn: Mutex<HashSet<(u64, CapabilityId)>>,
}

/// Which capabilities score well enough.
#[derive(Debug, Default)]
pub(crate) struct Scores {
    /// The policy epoch they were scored under; scores of another epoch do not count.
    pub(crate) epoch: u64,
    pub(crate) good: BTreeSet<CapabilityId>,
}

impl Aliases {
    /// The alias that a capability has at this moment.
    pub(crate) fn of<'a>(&self, active: &Active, capability: &'a Capability) -> Option<&'a Alias> {
        let alias = capability.alias.as_ref()?;
        let (epoch, id) = (active.policy.epoch(), &capability.id);
        let is_good = || {
            let scores = self.scores.load();
            scores.epoch == epoch && scores.good.contains(id)
        };
        let is_in_force = active.catalog.aliased(&alias.name) == Some(id)
            && (alias.when == AliasWhen::Pinned || is_good())
            && !self.withdrawn.lock().contains(&(epoch, id.clone()));
        is_in_force.then_some(alias)
    }

    /// Withdraws the alias of a capability whose live definition is not the pinned one, until the next activation.
    pub(crate) fn withdraw(&self, active: &Active, id: &CapabilityId) {
        let epoch = active.policy.epoch();
        let mut withdrawn = self.withdrawn.lock();
        withdrawn.retain(|(of, _)| *of == epoch);
        withdrawn.insert((epoch, id.clone()));
    }

    /// Whether no scoring is due: tools are scored under these policies and `again` is not set, or no contract asks for scores.
    pub(crate) fn are_scored(&self, active: &Active, again: bool) -> bool {
        let is_asked = |capability: &Capability| {
            let alias = capability.alias.as_ref();
            alias.is_some_and(|alias| alias.when == AliasWhen::Scored)
        };
        (!again && self.scores.load().epoch == active.policy.epoch())
            || !active.catalog.contracts().any(|one| one.capabilities.values().any(is_asked))
    }

    pub(crate) fn score(&self, scores: Scores) {
        self.scores.store(Arc::new(scores));
    }
}
