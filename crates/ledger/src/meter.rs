//! Meters: how much may be used within a window of time, whatever run it is used in (TM-18).
//!
//! Owns the arithmetic of windows. Does not store: a meter is kept among the runs, under a name that no caller's run can have, so that it
//! is checked and counted in the same commit as the intent that uses it. Invariant: a window never restarts from zero, whichever node
//! counts and whatever its clock says.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use placet_types::{
    clock::Timestamp,
    ids::{CapabilityId, PrincipalId, RunId},
    mode::ApprovalMode,
    run_context::RunBudget,
};

use crate::run::{RunKey, RunRecord};

placet_types::named_enum! {
    /// How long a window is. Windows are aligned to the clock, in UTC, and do not overlap.
    pub enum Window {
        /// A minute: rates.
        Minute = "minute",
        /// An hour: budgets.
        Hour = "hour",
        /// A day: budgets.
        Day = "day",
    }
}

impl Window {
    const fn ms(self) -> i64 {
        match self {
            Self::Minute => 60_000,
            Self::Hour => 3_600_000,
            Self::Day => 86_400_000,
        }
    }

    /// The beginning of the window that contains `now`.
    pub const fn begins(self, now: Timestamp) -> Timestamp {
        Timestamp::from_ms(now.as_ms().saturating_sub(now.as_ms().rem_euclid(self.ms())))
    }
}

/// Too little is left in a window (TM-18).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the {} budget is exhausted until {until}", window.as_str())]
pub struct WindowExhausted {
    /// How long the window is.
    pub window: Window,
    /// When it ends, by the clock of the store.
    pub until: Timestamp,
}

/// Whose calls are counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metered {
    /// Those of the calling agent, in all its runs and for any user.
    Agent,
    /// Those of a capability, by all agents of the tenant.
    Capability(CapabilityId),
}

/// What one dispatch takes from a window, in addition to its run's budget.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Meter {
    /// Whose calls are counted.
    pub of: Metered,
    /// How long the window is.
    pub window: Window,
    /// The beginning of the call's window, by the clock of the store.
    pub since: Timestamp,
    /// The most calls in it.
    pub calls_max: u32,
    /// The most cents in it; absent: they are not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cents_max: Option<u64>,
}

impl Meter {
    /// The key of its record, for the agent and the tenant of `run`.
    pub fn key(&self, run: &RunKey) -> RunKey {
        let (agent, capability) = match &self.of {
            Metered::Agent => (run.agent.clone(), None),
            Metered::Capability(capability) => (PrincipalId::of_meters(), Some(capability)),
        };
        RunKey {
            tenant: run.tenant.clone(),
            agent,
            on_behalf_of: None,
            run_id: RunId::of_meter(self.window.as_str(), capability),
        }
    }

    /// The record after one more call of `cents`; `kept` is the current one. An expired window is dropped by that.
    ///
    /// # Errors
    /// [`WindowExhausted`] when that is more than the window has left.
    pub fn taken(
        &self,
        run: &RunKey,
        kept: Option<&RunRecord>,
        cents: u64,
    ) -> Result<RunRecord, WindowExhausted> {
        // A node whose clock is behind counts in the later window that another node has begun.
        let begun = kept.filter(|kept| kept.opened_at >= self.since);
        let current = RunRecord {
            key: self.key(run),
            safety_mode: ApprovalMode::ReadOnly,
            budget: RunBudget {
                calls_max: self.calls_max,
                cost_cents_max: self.cents_max.unwrap_or(u64::MAX),
                tool_latency_ms_max: 0,
            },
            opened_at: begun.map_or(self.since, |begun| begun.opened_at),
            calls_used: begun.map_or(0, |begun| begun.calls_used),
            cents_used: begun.map_or(0, |begun| begun.cents_used),
            taint: BTreeSet::new(),
        };
        let counted = self.cents_max.map_or(0, |_| cents);
        current.reserved(counted).ok_or_else(|| WindowExhausted {
            window: self.window,
            until: current.opened_at.plus_ms(self.window.ms()),
        })
    }
}

#[cfg(test)]
mod tests {
    use placet_types::{
        clock::Timestamp,
        ids::{PrincipalId, RunId, TenantId},
    };

    use super::{Meter, Metered, Window, WindowExhausted};
    use crate::run::RunKey;

    const NOON: i64 = 1_800_000_000_000;

    fn run() -> RunKey {
        RunKey {
            tenant: TenantId::new("acme").unwrap(),
            agent: PrincipalId::new("scribe").unwrap(),
            on_behalf_of: None,
            run_id: RunId::new("run_1").unwrap(),
        }
    }

    fn meter(window: Window, now: Timestamp, calls_max: u32) -> Meter {
        let since = window.begins(now);
        Meter { of: Metered::Agent, window, since, calls_max, cents_max: None }
    }

    #[test]
    fn a_window_is_exhausted_until_it_ends_and_then_begins_again() {
        let now = Timestamp::from_ms(NOON + 12_345);
        let one = meter(Window::Minute, now, 2).taken(&run(), None, 5).unwrap();
        let two = meter(Window::Minute, now, 2).taken(&run(), Some(&one), 5).unwrap();
        assert_eq!((two.calls_used, two.cents_used), (2, 0));
        assert_eq!(
            meter(Window::Minute, now, 2).taken(&run(), Some(&two), 5),
            Err(WindowExhausted {
                window: Window::Minute,
                until: Timestamp::from_ms(NOON + 60_000),
            })
        );
        // A changed limit applies at once, whether higher or lower.
        meter(Window::Minute, now, 3).taken(&run(), Some(&two), 0).unwrap();
        meter(Window::Minute, now, 1).taken(&run(), Some(&one), 0).unwrap_err();
        let later = Timestamp::from_ms(NOON + 60_000);
        let next = meter(Window::Minute, later, 2).taken(&run(), Some(&two), 0).unwrap();
        assert_eq!((next.calls_used, next.opened_at), (1, later));
    }

    #[test]
    fn a_clock_that_is_behind_does_not_refill_a_window() {
        let now = Timestamp::from_ms(NOON);
        let used = meter(Window::Minute, now, 1).taken(&run(), None, 0).unwrap();
        let behind = meter(Window::Minute, now.plus_ms(-1), 1);
        assert_eq!(
            behind.taken(&run(), Some(&used), 0),
            Err(WindowExhausted {
                window: Window::Minute,
                until: Timestamp::from_ms(NOON + 60_000),
            })
        );
    }

    #[test]
    fn cents_are_counted_where_they_are_limited() {
        let now = Timestamp::from_ms(NOON);
        let limited = Meter { cents_max: Some(10), ..meter(Window::Day, now, 100) };
        let used = limited.taken(&run(), None, 7).unwrap();
        limited.taken(&run(), Some(&used), 4).unwrap_err();
        assert_eq!(limited.taken(&run(), Some(&used), 3).unwrap().cents_used, 10);
    }

    #[test]
    fn meters_have_names_that_no_run_of_a_caller_has() {
        let now = Timestamp::from_ms(NOON);
        let agent = meter(Window::Minute, now, 1);
        let capability =
            Meter { of: Metered::Capability("files/read".parse().unwrap()), ..agent.clone() };
        let other = RunKey { agent: PrincipalId::new("clerk").unwrap(), ..run() };
        assert_eq!(agent.key(&run()).run_id.as_str(), "placet/meter/minute/agent");
        assert_ne!(agent.key(&run()), agent.key(&other));
        assert_eq!(capability.key(&run()), capability.key(&other));
        assert!(agent.key(&run()).run_id.is_reserved() && !run().run_id.is_reserved());
    }
}
