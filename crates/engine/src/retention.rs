//! Retention: results become tombstones, what approvers were shown goes with them, and tombstones whose keys tell their age are dropped
//! (T10, decision 27); so is what has been over in the approval service for as long.
//!
//! Owns which lists there are and how they take turns; which of a list is due is `records`' and `approvals`'. Invariants: a key that had an
//! effect is never free again, unless it is refused as too old from then on; every turn is bounded and no call waits for one; a list that has
//! more than one turn's worth is given the next turn at once, not at the next round; each goes on where it stopped, so that what is not due
//! yet keeps nothing behind it waiting; and what cannot be read or moved keeps nothing else from it.

mod approvals;
mod records;

use tokio::time::Instant;

use placet_ledger::ledger::LedgerError;
use placet_types::ids::TenantId;

use crate::{context::Context, rounds::List, settings::Retention};

/// What a record is called whose result is due.
const SETTLED: [&str; 4] = ["succeeded", "failed_final", "failed_retriable", "denied"];

/// One round through what is due: the lists take turns until each of them was gone through to its end.
pub(crate) async fn sweep(context: &Context) {
    let mut left = all(&context.settings.ledger.retention);
    left.retain(|list| !context.rounds.swept.rests(list));
    while !left.is_empty() {
        let mut unfinished = Vec::new();
        for list in left {
            if context.node.is_stopping() {
                return;
            }
            let began = Instant::now();
            let turn = turn(context, &list).await;
            context.rounds.swept.took(&list, began.elapsed());
            match turn {
                Ok(true) => context.rounds.swept.is_through(&list),
                Ok(false) => unfinished.push(list),
                Err(error) => {
                    context.node.noticed(&error);
                    tracing::warn!(%error, ?list, "what is past its retention could not be gone through to the end");
                    if !error.is_transient() {
                        // Something in the way there: at least what is before it is found again.
                        context.rounds.swept.begins_again(&list);
                    }
                }
            }
        }
        left = unfinished;
    }
}

/// A turn of a list. Says whether its end was reached.
async fn turn(context: &Context, list: &List) -> Result<bool, LedgerError> {
    match list {
        List::Records(state, tenant) => records::records(context, state, tenant.as_ref()).await,
        List::Void => records::proposals(context).await,
        List::Approvals => approvals::approvals(context).await,
        List::Entries => approvals::entries(context).await,
    }
}

fn all(retention: &Retention) -> Vec<List> {
    let records = |state: &'static str, hasty: Vec<TenantId>| {
        let hasty = hasty.into_iter().map(Some);
        hasty.chain([None]).map(move |tenant| List::Records(state, tenant))
    };
    let settled = SETTLED.iter().flat_map(|state| records(state, retention.hasty_with_results()));
    let tombstones = records("tombstone", retention.hasty_with_tombstones());
    settled.chain(tombstones).chain([List::Void, List::Approvals, List::Entries]).collect()
}
