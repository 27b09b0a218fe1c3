//! Meters of a call: the rates and budgets that hold whatever run it belongs to (TM-18).
//!
//! Owns which meters apply and their limits, from the contract and the directory. Does not count: the ledger does, in the commit of the
//! intent.

use std::collections::BTreeMap;

use placet_ledger::{
    ledger::{Ledger, LedgerError},
    meter::{Meter, Metered, Window, WindowExhausted},
    store::StoreError,
};
use placet_types::{
    clock::Timestamp,
    directory::{BudgetWindow, CALLS_PER_MINUTE_MAX, ClassEntry},
    error::{ErrorCode, Refusal},
};

use crate::call::Brokered;

/// The meters that count a call, besides its run.
pub(crate) fn of(ledger: &Ledger, stage: &Brokered) -> Vec<Meter> {
    let now = ledger.store().now();
    let chain = &stage.identity.chain;
    let target = &stage.built.target;
    let minute = Window::Minute;
    let rate = |of, calls_max| Meter {
        of,
        window: minute,
        since: minute.begins(now),
        calls_max,
        cents_max: None,
    };
    let capability = Metered::Capability(target.capability.id.clone());
    let classes: Vec<_> =
        stage.built.active.directory.classes_of(chain.tenant(), &chain.actor.id).collect();
    let of_agent = classes.iter().filter_map(|class| class.calls_per_minute_max).min();
    let of_agent = of_agent.map_or(CALLS_PER_MINUTE_MAX, std::num::NonZeroU32::get);
    let mut meters = vec![
        rate(Metered::Agent, of_agent),
        rate(capability, target.contract.limits.calls_per_minute_max),
    ];
    meters.extend(budgets(&classes, now));
    meters
}

/// The budgets of the agent's classes, the smallest of each window.
fn budgets(classes: &[&ClassEntry], now: Timestamp) -> impl Iterator<Item = Meter> {
    let mut smallest = BTreeMap::new();
    for class in classes {
        if class.calls_max.is_none() && class.cost_cents_max.is_none() {
            continue;
        }
        let (calls, cents) = smallest.entry(class.budget_window).or_insert((u32::MAX, None));
        *calls = class.calls_max.map_or(*calls, |max| max.min(*calls));
        *cents = class.cost_cents_max.into_iter().chain(*cents).min();
    }
    smallest.into_iter().map(move |(window, (calls_max, cents_max))| {
        let window = match window {
            BudgetWindow::Hour => Window::Hour,
            BudgetWindow::Day => Window::Day,
        };
        Meter { of: Metered::Agent, window, since: window.begins(now), calls_max, cents_max }
    })
}

/// The refusal of a call that one of its meters has no room for; `None` for other errors.
pub(crate) fn refusal(error: &LedgerError, now: Timestamp) -> Option<Refusal> {
    let LedgerError::Store(StoreError::WindowExhausted(WindowExhausted { window, until })) = error
    else {
        return None;
    };
    let (code, message) = match window {
        Window::Minute => (
            ErrorCode::RateLimited,
            "too many calls of this agent, or of this tool, in a minute; nothing was executed",
        ),
        Window::Hour => (
            ErrorCode::BudgetExhausted,
            "the agent has used up its budget of this hour, over all its runs; nothing was executed",
        ),
        Window::Day => (
            ErrorCode::BudgetExhausted,
            "the agent has used up its budget of this day, over all its runs; nothing was executed",
        ),
    };
    let wait_ms = u64::try_from(until.since_ms(now)).unwrap_or(0).max(1);
    Some(Refusal::new(code, message).with_retry_after_ms(wait_ms).with_detail(error))
}

#[cfg(test)]
mod tests {
    use placet_ledger::meter::Window;
    use placet_types::{
        clock::Timestamp,
        directory::{BudgetWindow, ClassEntry},
    };

    use super::budgets;

    #[test]
    fn the_smallest_budget_of_each_window_counts() {
        let class = |calls_max, cost_cents_max, budget_window| ClassEntry {
            calls_max,
            cost_cents_max,
            budget_window,
            ..ClassEntry::default()
        };
        let classes = [
            class(None, None, BudgetWindow::Hour),
            class(Some(9), Some(70), BudgetWindow::Day),
            class(Some(5), None, BudgetWindow::Day),
            class(None, Some(80), BudgetWindow::Day),
        ];
        let classes: Vec<&ClassEntry> = classes.iter().collect();
        let [only] = &budgets(&classes, Timestamp::from_ms(86_400_001)).collect::<Vec<_>>()[..]
        else {
            panic!("there is one window")
        };
        assert_eq!((only.window, only.since), (Window::Day, Timestamp::from_ms(86_400_000)));
        assert_eq!((only.calls_max, only.cents_max), (5, Some(70)));
    }
}
