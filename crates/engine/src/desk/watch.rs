//! Calls that people agreed to and that are on their way: anyone who looks at one is told when its record ends, wherever it runs.
//!
//! Owns a short list of them, and the rounds through it. Invariants: no more than [`KEPT_MAX`] are kept, none longer than [`KEPT`], and
//! none of them outlives the process: a list that is lost costs news and nothing else.

use std::{collections::HashMap, time::Duration};

use parking_lot::{Mutex, MutexGuard};

use tokio::time::Instant;

use placet_ledger::{
    approval::{ApprovalRecord, ApprovalState},
    record::{EffectRecord, EffectState},
};
use placet_types::ids::ApprovalId;

use crate::context::Context;

/// How many are kept; the oldest goes for a new one.
const KEPT_MAX: usize = 1_000;
/// For how long one is kept whose outcome stays unknown.
const KEPT: Duration = Duration::from_secs(24 * 3_600);
/// How many are looked up in one round.
const LOOKED_UP_MAX: usize = 200;
/// The longest time between two looks at one: it is looked at again after an eighth of its age.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// The list.
#[derive(Debug, Default)]
pub(crate) struct Watch(Mutex<HashMap<ApprovalId, Watched>>);

#[derive(Debug)]
struct Watched {
    approval: ApprovalRecord,
    since: Instant,
    due: Instant,
    told: Told,
}

/// What was told of the end of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Nothing,
    /// That nobody can say what came of it.
    Unknown,
    /// All that there is to tell. It goes with the next round: anyone who brought the outcome may be about to tell it as well.
    All,
}

impl Watch {
    /// Watches a call that was sent on its way, of which it may be known already that nobody knows what came of it.
    pub(crate) fn begin(&self, approval: &ApprovalRecord, is_unknown: bool) {
        if !matches!(approval.state, ApprovalState::Consumed { .. }) {
            return;
        }
        let mut list = self.lock();
        if list.get(&approval.approval_id).is_some_and(|one| one.approval.rev >= approval.rev) {
            return;
        }
        if list.len() >= KEPT_MAX {
            let oldest = list.iter().min_by_key(|(_, one)| one.since).map(|(id, _)| id.clone());
            drop(oldest.and_then(|oldest| list.remove(&oldest)));
        }
        let (approval, now) = (approval.clone(), Instant::now());
        let told = if is_unknown { Told::Unknown } else { Told::Nothing };
        let watched = Watched { since: now, due: now, told, approval };
        list.insert(watched.approval.approval_id.clone(), watched);
    }

    /// Takes note that an end is known here; says whether it is still to be told.
    fn ends(&self, approval_id: &ApprovalId, is_unknown: bool) -> bool {
        let mut list = self.lock();
        let Some(watched) = list.get_mut(approval_id) else { return true };
        let before = watched.told;
        watched.told = if is_unknown && before != Told::All { Told::Unknown } else { Told::All };
        watched.told != before
    }

    /// Those that are due, and that no more is told of than what was.
    fn due(&self) -> Vec<ApprovalRecord> {
        let (mut list, now) = (self.lock(), Instant::now());
        list.retain(|_, one| one.told != Told::All && now.duration_since(one.since) < KEPT);
        let due = list.values_mut().filter(|one| one.due <= now).take(LOOKED_UP_MAX);
        due.map(|one| {
            let age = now.duration_since(one.since);
            one.due = now + age.checked_div(8).unwrap_or_default().min(PAUSE_MAX);
            one.approval.clone()
        })
        .collect()
    }

    /// Its record is not there any more.
    fn forget(&self, approval_id: &ApprovalId) {
        self.lock().remove(approval_id);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ApprovalId, Watched>> {
        self.0.lock()
    }
}

/// The call of an approval has come to an end; that its outcome is unknown is one for the time being.
pub(crate) fn ended(context: &Context, approval: &ApprovalRecord, is_unknown: bool) {
    if context.desk.watch.ends(&approval.approval_id, is_unknown) {
        context.desk.settled(context, approval);
    }
}

/// What came of a call is known by now.
pub(crate) async fn resolved(context: &Context, call_id: &placet_types::ids::ToolCallId) {
    match context.ledger.store().approval_of_call(call_id).await {
        Ok(Some(approval)) if matches!(approval.state, ApprovalState::Consumed { .. }) => {
            ended(context, &approval, false);
        }
        Ok(_) => {}
        // The next round finds it.
        Err(error) => context.noticed(&error.into()),
    }
}

/// A call that was under way in a process that is over goes on in this one, which tells how it ends.
pub(crate) async fn taken_over(context: &Context, record: &EffectRecord) {
    let Some(approval_id) = record.state.approval_id() else { return };
    match context.ledger.store().approval(approval_id).await {
        Ok(Some(approval)) => context.desk.watch.begin(&approval, false),
        Ok(None) => {}
        Err(error) => {
            tracing::info!(%error, record_id = %record.record_id, "nobody is told of the end of a call whose approval cannot be read");
            context.noticed(&error.into());
        }
    }
}

/// One round: those whose records have ended, here or on another node, are told.
pub(crate) async fn round(context: &Context) {
    for approval in context.desk.watch.due() {
        if context.stopping() || context.standing.is_ledger_lost() {
            return;
        }
        match context.ledger.store().effect(approval.record_id).await {
            Ok(Some(record)) if record.call_id != approval.call_id => {
                context.desk.watch.forget(&approval.approval_id);
            }
            // It may be tried again.
            Ok(Some(record)) if is_for_the_time_being(&record.state) => {
                ended(context, &approval, true);
            }
            Ok(Some(record)) if record.state.is_settled() => ended(context, &approval, false),
            Ok(Some(_)) => {}
            Ok(None) => context.desk.watch.forget(&approval.approval_id),
            Err(error) => return context.noticed(&error.into()),
        }
    }
}

/// Whether a record stands at an end that may not be the last one.
pub(crate) const fn is_for_the_time_being(state: &EffectState) -> bool {
    matches!(state, EffectState::Indeterminate { .. } | EffectState::FailedRetriable { .. })
}

#[cfg(test)]
mod tests {
    use placet_types::clock::Timestamp;

    use super::*;
    use crate::desk::board::tests::approval;

    fn sent(number: i64) -> ApprovalRecord {
        let state = ApprovalState::Consumed { arm: 0, at: Timestamp::from_ms(1) };
        ApprovalRecord { state, ..approval(number) }
    }

    fn kept(watch: &Watch) -> usize {
        watch.lock().len()
    }

    #[tokio::test(start_paused = true)]
    async fn the_list_has_an_end_in_number_and_in_time() {
        let watch = Watch::default();
        watch.begin(&approval(0), false);
        assert_eq!(kept(&watch), 0, "it waits for people");
        for number in 0..1_001 {
            watch.begin(&sent(number), false);
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert_eq!(kept(&watch), KEPT_MAX);
        assert!(!watch.lock().contains_key(&sent(0).approval_id), "the oldest goes");
        assert_eq!(watch.due().len(), LOOKED_UP_MAX);
        tokio::time::advance(KEPT).await;
        assert!(watch.due().is_empty());
        assert_eq!(kept(&watch), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn each_end_is_told_once_and_looked_for_less_and_less_often() {
        let (watch, one) = (Watch::default(), sent(1));
        assert!(
            watch.ends(&one.approval_id, false),
            "the end of a call that nobody watched is reported by its owner"
        );
        watch.begin(&one, false);
        assert_eq!(watch.due().len(), 1);
        tokio::time::advance(Duration::from_secs(80)).await;
        assert_eq!(watch.due().len(), 1);
        tokio::time::advance(Duration::from_secs(9)).await;
        assert!(watch.due().is_empty(), "an eighth of its age");
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(watch.due().len(), 1);
        let told = [true, true, false, false, true]
            .map(|is_unknown| watch.ends(&one.approval_id, is_unknown));
        assert_eq!(told, [true, false, true, false, false]);
        drop(watch.due());
        assert_eq!(kept(&watch), 0);
        // One that is sent again under the same agreement is followed again.
        watch.begin(&one, true);
        watch.begin(&ApprovalRecord { rev: one.rev + 1, ..one.clone() }, false);
        assert!(watch.ends(&one.approval_id, true));
    }
}
