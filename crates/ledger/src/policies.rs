//! Which policies become active, and which do not come back by themselves.
//!
//! Owns the rule about policies that were replaced: a mere start does not bring them back, since the started node may have been left behind
//! with old files. Not here: where past policies are stored. Invariant: policies that a later activation replaced become active again only
//! through a roll-back that names what it replaces.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use placet_policy::policies::PolicyDigests;
use placet_types::{clock::Timestamp, digest::Digest};

/// The active policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyState {
    /// Counts activations; a permit carries its epoch. 0: none yet.
    pub epoch: u64,
    /// What was activated: policies, contracts, directory and issuers.
    pub digests: PolicyDigests,
}

/// What activates policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// A process that starts with them.
    Start {
        /// The epoch of the policies that an operator allows to be rolled back.
        rolls_back: Option<u64>,
    },
    /// A person activates exactly these policies, whatever was active before.
    Promotion,
}

impl Activation {
    /// Whether policies that were replaced may take the place of `active`.
    pub(crate) fn rolls_back(self, active: PolicyState) -> bool {
        match self {
            Self::Start { rolls_back } => rolls_back == Some(active.epoch),
            Self::Promotion => true,
        }
    }
}

/// Policies that are not activated, because they, or a part of them, were active before and were replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplacedPolicies {
    /// What was replaced: all of it, or which part.
    pub what: &'static str,
    /// What was to be activated.
    pub digest: Digest,
    /// When it was replaced.
    pub replaced_at: Timestamp,
    /// By which.
    pub replaced_by: Digest,
    /// The active policies.
    pub active: PolicyState,
}

impl fmt::Display for ReplacedPolicies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, digest, replaced_at, replaced_by, active } = self;
        write!(f, "`{digest}` ({what}) was replaced at {replaced_at} by `{replaced_by}`")?;
        let mut now = all_of(active.digests).filter(|(name, _)| name == what);
        match now.find(|(_, now)| now != replaced_by) {
            None => write!(f, ", which is active in epoch {}", active.epoch),
            Some((_, now)) => write!(f, "; `{now}` is active in epoch {}", active.epoch),
        }
    }
}

/// The digest of everything, and those of the parts.
fn all_of(digests: PolicyDigests) -> impl Iterator<Item = (&'static str, Digest)> {
    let whole = ("policies, contracts, directory and issuers together", digests.whole());
    std::iter::once(whole).chain(digests.parts())
}

/// What of `next` differs from `current`, with what it takes the place of.
fn changed(
    current: PolicyDigests,
    next: PolicyDigests,
) -> impl Iterator<Item = ((&'static str, Digest), Digest)> {
    all_of(next).zip(all_of(current).map(|(_, before)| before)).filter(|((_, new), old)| new != old)
}

/// The end of policies that were active once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replaced {
    /// When they were replaced.
    pub at: Timestamp,
    /// By which.
    pub by: Digest,
}

/// The policies that were active once and are no longer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PastPolicies(BTreeMap<Digest, Replaced>);

impl PastPolicies {
    /// These past policies.
    pub fn new(past: impl IntoIterator<Item = (Digest, Replaced)>) -> Self {
        Self(past.into_iter().collect())
    }

    /// How these policies ended, if they were active and are no longer.
    pub fn get(&self, digest: &Digest) -> Option<Replaced> {
        self.0.get(digest).copied()
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = (&Digest, Replaced)> {
        self.0.iter().map(|(digest, replaced)| (digest, *replaced))
    }

    /// Whether `next` may take the place of `current`; `rolls_back` is the epoch of the policies that may be rolled back. Each part counts by
    /// itself: a node that was left behind brings nothing back by an edit of something else.
    ///
    /// # Errors
    /// [`ReplacedPolicies`] when something of `next` was replaced by a later activation, and `current` may not be rolled back.
    pub fn check(
        &self,
        current: Option<PolicyState>,
        next: PolicyState,
        rolls_back: Option<u64>,
    ) -> Result<(), Box<ReplacedPolicies>> {
        let Some(active) = current.filter(|active| rolls_back != Some(active.epoch)) else {
            return Ok(());
        };
        let mut replaced = changed(active.digests, next.digests)
            .filter_map(|((what, digest), _)| Some((what, digest, self.get(&digest)?)));
        match replaced.next() {
            Some((what, digest, Replaced { at, by })) => Err(Box::new(ReplacedPolicies {
                what,
                digest,
                replaced_at: at,
                replaced_by: by,
                active,
            })),
            None => Ok(()),
        }
    }

    /// Notes that `next` replaced `current` at this time.
    pub fn activated(&mut self, current: Option<PolicyState>, next: PolicyState, at: Timestamp) {
        if let Some(before) = current {
            for ((_, by), before) in changed(before.digests, next.digests) {
                self.0.insert(before, Replaced { at, by });
            }
        }
        for (_, digest) in all_of(next.digests) {
            self.0.remove(&digest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::policy_digests;

    fn of(epoch: u64, name: &str) -> PolicyState {
        PolicyState { epoch, digests: policy_digests(name) }
    }

    fn whole(name: &str) -> Digest {
        policy_digests(name).whole()
    }

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_ms(ms)
    }

    /// `old`, then `new`, then `newer`.
    fn past() -> (PastPolicies, PolicyState) {
        let mut past = PastPolicies::default();
        past.activated(None, of(1, "old"), at(10));
        past.activated(Some(of(1, "old")), of(2, "new"), at(20));
        past.activated(Some(of(2, "new")), of(3, "newer"), at(30));
        (past, of(3, "newer"))
    }

    #[test]
    fn what_was_replaced_says_by_what_and_when_and_what_is_active() {
        let (past, active) = past();
        let replaced = past.check(Some(active), of(4, "old"), None).unwrap_err();
        assert_eq!((replaced.replaced_at, replaced.replaced_by), (at(20), whole("new")));
        assert_eq!(replaced.active, active);
        let said = replaced.to_string();
        for name in ["old", "new", "newer"] {
            assert!(said.contains(&whole(name).to_string()), "{said}");
        }
        assert!(said.contains(&at(20).to_string()) && said.contains("epoch 3"), "{said}");
    }

    #[test]
    fn only_a_roll_back_of_what_is_active_brings_them_back() {
        let (past, active) = past();
        assert!(past.check(Some(active), of(4, "old"), Some(2)).is_err(), "of another epoch");
        assert_eq!(past.check(Some(active), of(4, "old"), Some(3)), Ok(()));
        assert_eq!(past.check(Some(active), of(4, "unheard of"), None), Ok(()));
        assert_eq!(past.check(Some(active), active, None), Ok(()));
    }

    #[test]
    fn a_part_that_was_replaced_is_not_brought_back_by_an_edit_of_another_one() {
        let (past, active) = past();
        let new_directory = Digest::of(b"with another user");
        let behind = |policies, directory| {
            let digests = PolicyDigests { policies, directory, ..active.digests };
            PolicyState { epoch: 4, digests }
        };
        let stale = behind(policy_digests("new").policies, new_directory);
        let refused = past.check(Some(active), stale, None).unwrap_err();
        assert_eq!((refused.what, refused.digest), ("policies", stale.digests.policies));
        assert_eq!(past.check(Some(active), stale, Some(3)), Ok(()));
        let fresh = behind(active.digests.policies, new_directory);
        assert_eq!(past.check(Some(active), fresh, None), Ok(()));
    }

    #[test]
    fn what_was_rolled_back_is_a_thing_of_the_past_and_what_came_back_is_not() {
        let (mut past, active) = past();
        past.activated(Some(active), of(4, "old"), at(40));
        assert_eq!(past.get(&whole("old")), None);
        let refused = past.check(Some(of(4, "old")), of(5, "newer"), None);
        assert_eq!(refused.unwrap_err().digest, whole("newer"));
        // The permission to roll back is used up.
        assert!(past.check(Some(of(4, "old")), of(5, "new"), Some(3)).is_err());
    }
}
