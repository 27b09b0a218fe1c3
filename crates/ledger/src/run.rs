//! What is fixed for a run and what it has used up.
//!
//! Owns the record and its arithmetic. Does not store.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use placet_types::{
    clock::Timestamp,
    ids::{PrincipalId, RunId, SessionId, TenantId},
    mode::ApprovalMode,
    run_context::RunBudget,
    taint::Taint,
};

/// The owner and id of a run: the same `run_id` of another caller is another run.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunKey {
    /// The tenant.
    pub tenant: TenantId,
    /// The agent.
    pub agent: PrincipalId,
    /// The user it acts for.
    pub on_behalf_of: Option<PrincipalId>,
    /// The run.
    pub run_id: RunId,
}

/// A run as its first call fixed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunRecord {
    /// Whose it is.
    pub key: RunKey,
    /// Its ceiling.
    pub safety_mode: ApprovalMode,
    /// What it may use up.
    pub budget: RunBudget,
    /// When its first call came.
    pub opened_at: Timestamp,
    /// Calls dispatched.
    pub calls_used: u32,
    /// Cents spent.
    pub cents_used: u64,
    /// The taint of its context: declared by its calls, or brought by results. It only grows.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub taint: BTreeSet<Taint>,
}

impl RunKey {
    /// The key of a session of the same caller: kept like a run, of which only the taint matters.
    pub fn of_session(&self, session: &SessionId) -> Self {
        Self { run_id: RunId::of_session(session), ..self.clone() }
    }
}

/// Taint that enters a run's context.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunTaint {
    /// The run.
    pub run: RunKey,
    /// The session that gets the same, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The taint.
    pub taint: BTreeSet<Taint>,
}

impl RunTaint {
    /// The keys of the records that get it: the run's, and the session's.
    pub fn keys(&self) -> impl Iterator<Item = RunKey> {
        let session = self.session.as_ref().map(|session| self.run.of_session(session));
        std::iter::once(self.run.clone()).chain(session)
    }
}

impl RunRecord {
    /// Calls left.
    pub fn calls_left(&self) -> u32 {
        self.budget.calls_max.saturating_sub(self.calls_used)
    }

    /// Cents left.
    pub fn cents_left(&self) -> u64 {
        self.budget.cost_cents_max.saturating_sub(self.cents_used)
    }

    /// The run after one more call of `cents`; `None` when that is more than it has.
    pub fn reserved(&self, cents: u64) -> Option<Self> {
        if self.calls_left() == 0 || self.cents_left() < cents {
            return None;
        }
        Some(Self {
            calls_used: self.calls_used.saturating_add(1),
            cents_used: self.cents_used.saturating_add(cents),
            ..self.clone()
        })
    }

    /// The run with this taint added; `None` if it has all of it already.
    pub fn tainted(&self, taint: &BTreeSet<Taint>) -> Option<Self> {
        let all: BTreeSet<Taint> = self.taint.union(taint).copied().collect();
        (all != self.taint).then(|| Self { taint: all, ..self.clone() })
    }

    /// The run after one call of `cents` turned out not to have happened.
    pub fn refunded(&self, cents: u64) -> Self {
        Self {
            calls_used: self.calls_used.saturating_sub(1),
            cents_used: self.cents_used.saturating_sub(cents),
            ..self.clone()
        }
    }
}

#[expect(
    clippy::arithmetic_side_effects,
    reason = "small numbers, and a test that overflows fails"
)]
#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use placet_types::{
        clock::Timestamp,
        ids::{PrincipalId, RunId, TenantId},
        mode::ApprovalMode,
        run_context::RunBudget,
        taint::Taint,
    };
    use proptest::prelude::*;

    use super::{RunKey, RunRecord};

    fn run(calls_max: u32, cost_cents_max: u64) -> RunRecord {
        RunRecord {
            key: RunKey {
                tenant: TenantId::new("acme").unwrap(),
                agent: PrincipalId::new("scribe").unwrap(),
                on_behalf_of: None,
                run_id: RunId::new("run_1").unwrap(),
            },
            safety_mode: ApprovalMode::Destructive,
            budget: RunBudget { calls_max, cost_cents_max, tool_latency_ms_max: 1_000 },
            opened_at: Timestamp::from_ms(0),
            calls_used: 0,
            cents_used: 0,
            taint: BTreeSet::new(),
        }
    }

    #[test]
    fn a_run_without_calls_or_cents_left_reserves_nothing() {
        assert!(run(0, 100).reserved(0).is_none());
        assert!(run(1, 9).reserved(10).is_none());
        let last = run(1, 10).reserved(10).unwrap();
        assert_eq!((last.calls_left(), last.cents_left()), (0, 0));
        assert!(last.reserved(0).is_none());
    }

    #[test]
    fn a_run_over_its_budget_has_nothing_left_rather_than_very_much() {
        let over = RunRecord { calls_used: 9, cents_used: 99, ..run(3, 10) };
        assert_eq!((over.calls_left(), over.cents_left()), (0, 0));
    }

    #[test]
    fn taint_only_grows_and_outlives_a_refund() {
        let secret: BTreeSet<Taint> = [Taint::Secret].into();
        let tainted = run(3, 10).tainted(&secret).unwrap();
        assert_eq!(tainted.tainted(&secret), None, "there is nothing new in it");
        assert_eq!(tainted.tainted(&BTreeSet::new()), None);
        let both = tainted.tainted(&[Taint::Pii].into()).unwrap();
        assert_eq!(both.taint, [Taint::Secret, Taint::Pii].into());
        assert_eq!(both.reserved(1).unwrap().refunded(1), both);
    }

    proptest! {
        #[test]
        fn no_sequence_of_reservations_exceeds_the_budget(
            calls_max in 0_u32..10,
            cents_max in prop_oneof![0_u64..100, Just(u64::MAX)],
            costs in proptest::collection::vec(prop_oneof![0_u64..40, Just(u64::MAX)], 0..20),
        ) {
            let mut current = run(calls_max, cents_max);
            let (mut calls, mut cents) = (0_u32, 0_u128);
            for cost in costs {
                let fits = calls < calls_max && cents + u128::from(cost) <= u128::from(cents_max);
                match current.reserved(cost) {
                    Some(next) => {
                        prop_assert!(fits);
                        (calls, cents) = (calls + 1, cents + u128::from(cost));
                        current = next;
                    }
                    None => prop_assert!(!fits),
                }
                prop_assert_eq!(current.calls_used, calls);
                prop_assert_eq!(u128::from(current.cents_used), cents);
            }
        }
    }
}
