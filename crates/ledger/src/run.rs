//! What is fixed for a run and what it has used up.
//!
//! Owns the record and the arithmetic of reservations. Does not store.

use serde::{Deserialize, Serialize};

use placet_types::{
    clock::Timestamp,
    ids::{PrincipalId, RunId, TenantId},
    mode::ApprovalMode,
    run_context::RunBudget,
};

/// Whose run it is: the same `run_id` of another caller is another run.
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
}

/// What one dispatch takes from a run's budget.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reservation {
    /// The run.
    pub run: RunKey,
    /// Cents the call costs; it counts as one call besides.
    pub cents: u64,
}

impl RunRecord {
    /// Calls left.
    #[must_use]
    pub fn calls_left(&self) -> u32 {
        self.budget.calls_max.saturating_sub(self.calls_used)
    }

    /// Cents left.
    #[must_use]
    pub fn cents_left(&self) -> u64 {
        self.budget.cost_cents_max.saturating_sub(self.cents_used)
    }

    /// The run after one more call of `cents`; `None` when that is more than it has.
    #[must_use]
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

    /// The run when one call of `cents` turned out not to have happened.
    #[must_use]
    pub fn refunded(&self, cents: u64) -> Self {
        Self {
            calls_used: self.calls_used.saturating_sub(1),
            cents_used: self.cents_used.saturating_sub(cents),
            ..self.clone()
        }
    }
}

#[cfg(test)]
#[expect(
    clippy::arithmetic_side_effects,
    reason = "small numbers, and a test that overflows fails"
)]
mod tests {
    use placet_types::{
        clock::Timestamp,
        ids::{PrincipalId, RunId, TenantId},
        mode::ApprovalMode,
        run_context::RunBudget,
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
