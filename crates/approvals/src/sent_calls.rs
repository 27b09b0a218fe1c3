//! Approved calls in flight: those who view one are notified when its record ends, wherever it runs.
//!
//! Owns a short list of them, and the rounds over it. Invariants: no more than [`KEPT_MAX`] are kept, none longer than [`KEPT`], and none
//! of them outlives the process: losing the list loses only events.

use std::{collections::HashMap, time::Duration};

use parking_lot::{Mutex, MutexGuard};

use tokio::time::Instant;

use placet_ledger::approval::{ApprovalRecord, ApprovalState};
use placet_types::ids::ApprovalId;

/// How many are kept; a new one replaces the oldest.
const KEPT_MAX: usize = 1_000;
/// How long a call with an unknown outcome is kept.
const KEPT: Duration = Duration::from_secs(24 * 3_600);
/// How many are looked up in one round.
const LOOKED_UP_MAX: usize = 200;
/// The longest interval between two look-ups of a call; otherwise an eighth of its age.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// The list.
#[derive(Debug, Default)]
pub(crate) struct SentCalls(Mutex<HashMap<ApprovalId, Watched>>);

#[derive(Debug)]
struct Watched {
    approval: ApprovalRecord,
    since: Instant,
    due: Instant,
    told: Told,
}

/// What was reported about the end of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Nothing,
    /// That its outcome is unknown.
    Unknown,
    /// Its final outcome. Removed in the next round: the task that recorded the outcome may be about to report it as well.
    All,
}

impl SentCalls {
    /// Follows a call that was sent; `is_unknown` if its outcome is already known to be unknown.
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

    /// Notes that an end is known here; returns whether it is still to be reported.
    pub(crate) fn ends(&self, approval_id: &ApprovalId, is_unknown: bool) -> bool {
        let mut list = self.lock();
        let Some(watched) = list.get_mut(approval_id) else { return true };
        let before = watched.told;
        watched.told = if is_unknown && before != Told::All { Told::Unknown } else { Told::All };
        watched.told != before
    }

    /// Those that are due; removes those that are finally reported or too old.
    pub(crate) fn due(&self) -> Vec<ApprovalRecord> {
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

    /// Its record no longer exists.
    pub(crate) fn forget(&self, approval_id: &ApprovalId) {
        self.lock().remove(approval_id);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ApprovalId, Watched>> {
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use placet_types::clock::Timestamp;

    use super::*;
    use crate::pending::tests::approval;

    fn sent(number: i64) -> ApprovalRecord {
        let state = ApprovalState::Consumed { arm: 0, at: Timestamp::from_ms(1) };
        ApprovalRecord { state, ..approval(number) }
    }

    fn kept(watch: &SentCalls) -> usize {
        watch.lock().len()
    }

    #[tokio::test(start_paused = true)]
    async fn the_list_has_an_end_in_number_and_in_time() {
        let watch = SentCalls::default();
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
        let (watch, one) = (SentCalls::default(), sent(1));
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
        // A call that is sent again under the same approval is followed again.
        watch.begin(&one, true);
        watch.begin(&ApprovalRecord { rev: one.rev + 1, ..one.clone() }, false);
        assert!(watch.ends(&one.approval_id, true));
    }
}
