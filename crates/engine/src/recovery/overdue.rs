//! Orphaned dispatches of this process.
//!
//! Owns the search. Invariant I13: a dispatch that this process must settle and that no task holds any more is found, whatever became of
//! its task: a commit that succeeded without its answer, a part of the engine that failed, a read that the ledger refused.

use std::sync::Arc;

use placet_ledger::record::{EffectRecord, EffectState};

use crate::{context::Context, outcome::recorded, recovery};

/// How many dispatched records are read in one round.
const PAGE: usize = 1_000;
/// How long after its deadline a dispatch may have no task before it counts as overdue, in milliseconds.
const OVERDUE_MS: i64 = 2_000;

/// One search for orphaned dispatches of this process; they are recovered by class.
pub(crate) async fn look(context: &Arc<Context>) {
    if context.node.is_ending() || context.node.health().is_ledger_lost() {
        return;
    }
    let page = match context.rounds.overdue.next(&context.ledger, "dispatched", PAGE).await {
        Ok(page) => page,
        Err(error) => return context.node.noticed(&error.into()),
    };
    let overdue = page.into_iter().filter(|record| is_overdue(context, record));
    let dropped = context.callers.in_flight.dropped(overdue);
    if dropped.is_empty() {
        return;
    }
    tracing::warn!(
        calls = dropped.len(),
        "calls under way that nobody was at work on are recovered"
    );
    recovery::recover(context, dropped).await;
}

/// Whether this process has to settle it, and it is overdue.
fn is_overdue(context: &Context, record: &EffectRecord) -> bool {
    let EffectState::Dispatched(attempt) = &record.state else { return false };
    let over = attempt.deadline_at.plus_ms(OVERDUE_MS) < context.ledger.store().now();
    over && recorded::is_ours(&context.ledger, record)
}
