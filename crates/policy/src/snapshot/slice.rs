//! Policies by action: those a request for the action can concern at all.
//!
//! Owns the index. Invariant: a policy is left out only if its scope cannot match the action, so no decision changes; a
//! property test compares with the whole set.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use cedar_policy::{ActionConstraint, EntityUid, Policy, PolicySet, PolicySetError};

/// Slices that were made, each shared by all actions that need the same policies.
#[derive(Debug)]
pub(super) struct Slicer<'a> {
    policies: Vec<(&'a Policy, ActionConstraint)>,
    made: BTreeMap<BTreeSet<usize>, Arc<PolicySet>>,
}

impl<'a> Slicer<'a> {
    pub(super) fn new(policies: &'a PolicySet) -> Self {
        let policies =
            policies.policies().map(|policy| (policy, policy.action_constraint())).collect();
        Self { policies, made: BTreeMap::new() }
    }

    /// The policies that can concern an action, given itself and every group it is in.
    pub(super) fn slice(
        &mut self,
        lineage: &BTreeSet<EntityUid>,
    ) -> Result<Arc<PolicySet>, PolicySetError> {
        let matching = |constraint: &ActionConstraint| match constraint {
            ActionConstraint::Any => true,
            ActionConstraint::Eq(action) => lineage.contains(action),
            ActionConstraint::In(actions) => actions.iter().any(|action| lineage.contains(action)),
        };
        let kept =
            || self.policies.iter().enumerate().filter(|(_, (_, constraint))| matching(constraint));
        let key: BTreeSet<usize> = kept().map(|(index, _)| index).collect();
        if let Some(made) = self.made.get(&key) {
            return Ok(Arc::clone(made));
        }
        let slice =
            Arc::new(PolicySet::from_policies(kept().map(|(_, (policy, _))| (*policy).clone()))?);
        self.made.insert(key, Arc::clone(&slice));
        Ok(slice)
    }
}
