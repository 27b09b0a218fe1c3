//! The lists that retention goes through, and where each of them stands.
//!
//! Owns which lists there are and how they take turns. Invariants: a list that has more than one turn's worth is given the next turn at once,
//! not at the next round; each goes on where it stopped, so that what is not due yet keeps nothing behind it waiting; and one that cannot
//! be read leaves the others theirs.

use std::{collections::HashMap, time::Duration};

use parking_lot::{Mutex, MutexGuard};

use tokio::time::Instant;

use placet_ledger::ledger::LedgerError;
use placet_types::ids::{ApprovalId, DeskId, RecordId, TenantId};

use super::{approvals, drop_proposals, go_through};
use crate::{context::Context, settings::Retention};

/// What a record is called whose result is due.
const SETTLED: [&str; 4] = ["succeeded", "failed_final", "failed_retriable", "denied"];
/// A list that took longer than this rests for a multiple of the time it took: much of it is not due, and stays.
const LONG: Duration = Duration::from_secs(60);
const RESTS: u32 = 4;

/// One list.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum List {
    /// Records in a state: of a tenant whose time is shorter than everybody's, or all that are past everybody's.
    Records(&'static str, Option<TenantId>),
    /// Approvals that are void.
    Void,
    /// Approvals that are over.
    Approvals,
    /// Entries of the approval service that are over.
    Entries,
}

/// The last thing that was looked at in a list, and stayed.
#[derive(Debug, Clone)]
pub(super) enum Place {
    Record(RecordId),
    Approval(ApprovalId),
    Entry(DeskId),
}

/// Where a list stands.
#[derive(Debug, Default)]
struct Stand {
    /// Nothing: the next turn begins at the front.
    place: Option<Place>,
    /// How long it has taken since it was begun at the front.
    took: Duration,
    rests_until: Option<Instant>,
}

/// Where the lists stand.
#[derive(Debug, Default)]
pub(crate) struct Swept {
    lists: Mutex<HashMap<List, Stand>>,
}

impl Swept {
    fn lists(&self) -> MutexGuard<'_, HashMap<List, Stand>> {
        self.lists.lock()
    }

    fn place<T>(&self, list: &List, as_own: impl FnOnce(&Place) -> Option<T>) -> Option<T> {
        self.lists().get(list)?.place.as_ref().and_then(as_own)
    }

    pub(super) fn record(&self, list: &List) -> Option<RecordId> {
        self.place(list, |place| match place {
            Place::Record(id) => Some(*id),
            Place::Approval(_) | Place::Entry(_) => None,
        })
    }

    pub(super) fn approval(&self, list: &List) -> Option<ApprovalId> {
        self.place(list, |place| match place {
            Place::Approval(id) => Some(id.clone()),
            Place::Record(_) | Place::Entry(_) => None,
        })
    }

    pub(super) fn entry(&self, list: &List) -> Option<DeskId> {
        self.place(list, |place| match place {
            Place::Entry(id) => Some(id.clone()),
            Place::Record(_) | Place::Approval(_) => None,
        })
    }

    /// Says where the next turn of a list begins.
    pub(super) fn goes_on(&self, list: List, place: Option<Place>) {
        self.lists().entry(list).or_default().place = place;
    }

    /// The next turn of a list begins at the front, and so does the count of the time it takes.
    fn begins_again(&self, list: &List) {
        let mut lists = self.lists();
        let stand = lists.entry(list.clone()).or_default();
        (stand.place, stand.took) = (None, Duration::ZERO);
    }

    fn rests(&self, list: &List) -> bool {
        let lists = self.lists();
        let until = lists.get(list).and_then(|stand| stand.rests_until);
        until.is_some_and(|until| Instant::now() < until)
    }

    fn took(&self, list: &List, took: Duration) {
        let mut lists = self.lists();
        let stand = lists.entry(list.clone()).or_default();
        stand.took = stand.took.saturating_add(took);
    }

    /// A list was gone through to its end.
    fn is_through(&self, list: &List) {
        let mut lists = self.lists();
        let stand = lists.entry(list.clone()).or_default();
        let took = std::mem::take(&mut stand.took);
        let rest = if took > LONG { took.saturating_mul(RESTS) } else { Duration::ZERO };
        stand.rests_until = Instant::now().checked_add(rest);
    }
}

/// One round through what is due: the lists take turns until each of them was gone through to its end.
pub(crate) async fn sweep(context: &Context) {
    let mut left = all(&context.settings.ledger.retention);
    left.retain(|list| !context.swept.rests(list));
    while !left.is_empty() {
        let mut unfinished = Vec::new();
        for list in left {
            if context.stopping() {
                return;
            }
            let began = Instant::now();
            let turn = turn(context, &list).await;
            context.swept.took(&list, began.elapsed());
            match turn {
                Ok(true) => context.swept.is_through(&list),
                Ok(false) => unfinished.push(list),
                Err(error) => {
                    context.noticed(&error);
                    tracing::warn!(%error, ?list, "what is past its retention could not be gone through to the end");
                    if !error.is_transient() {
                        // Something in the way there: at least what is before it is found again.
                        context.swept.begins_again(&list);
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
        List::Records(state, tenant) => go_through(context, state, tenant.as_ref()).await,
        List::Void => drop_proposals(context).await,
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
