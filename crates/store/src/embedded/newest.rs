//! Lists that begin with the newest: of approvals, and of directives.
//!
//! Owns the way backwards through lists that are read forwards: a window of time before the last place, as wide as it takes. Not
//! here: the lists themselves (`keys`). Invariants: the order is the other one turned round; the writer waits for no more than some
//! thousand keys, unless that many are of one millisecond.

use std::sync::Arc;

use placet_ledger::approval::ApprovalRecord;
use placet_ledger::store::StoreError;
use placet_types::clock::Timestamp;

use super::index::{Index, IndexFault};
use super::keys;
use super::query::{approval_id, lists_at};
use super::state::State;

/// How wide the first window is.
const WINDOW_MS: i64 = 60_000;
/// How much wider the next one is where this one held little, and how much narrower where it held too much.
const FACTOR: i64 = 8;
/// How many keys a window should hold.
const KEYS_MAX: usize = 4096;
/// Fewer are few.
const KEYS_FEW: usize = 256;

/// Approvals in some lists that fit, the newest first, before a place.
pub(super) fn approvals(
    state: &State,
    index: &Index,
    (prefixes, before): (&[Vec<u8>], Option<Vec<u8>>),
    (limit, fits): (usize, &dyn Fn(&ApprovalRecord) -> bool),
) -> Result<Vec<ApprovalRecord>, StoreError> {
    let mut found = Vec::new();
    if limit == 0 {
        return Ok(found);
    }
    backwards(state, index, (prefixes, before), &mut |place| {
        if let Some(id) = approval_id(place) {
            let approval = state.approval(index, &id)?.filter(|approval| fits(approval));
            found.extend(approval.map(Arc::unwrap_or_clone));
        }
        Ok(found.len() < limit)
    })?;
    Ok(found)
}

/// Goes through the places of some lists, the newest first, before one of them; `visit` says whether to go on.
pub(super) fn backwards(
    state: &State,
    index: &Index,
    (prefixes, before): (&[Vec<u8>], Option<Vec<u8>>),
    visit: &mut dyn FnMut(&[u8]) -> Result<bool, StoreError>,
) -> Result<(), StoreError> {
    let failed = |fault: IndexFault| state.fail_index(&fault);
    let Some(oldest) = oldest(index, prefixes).map_err(failed)? else { return Ok(()) };
    let newest = before.as_deref().and_then(time_of).unwrap_or_else(|| state.now());
    let mut window = Window { end: before, from: newest, width_ms: WINDOW_MS };
    loop {
        window.from = Timestamp::from_ms(window.from.as_ms().saturating_sub(window.width_ms));
        let places = window.places(index, prefixes).map_err(failed)?;
        if places.len() > KEYS_MAX && window.width_ms > 1 {
            window.narrow();
            continue;
        }
        for place in places.iter().rev() {
            if !visit(place)? {
                return Ok(());
            }
        }
        if window.from <= oldest {
            return Ok(());
        }
        window.next(places.len());
    }
}

/// A part of the lists, of one time.
struct Window {
    /// The place before which it ends; nothing: it has no end.
    end: Option<Vec<u8>>,
    /// When it begins.
    from: Timestamp,
    width_ms: i64,
}

impl Window {
    /// All places in the window, oldest first; a few more than there should be tell that there are too many.
    fn places(&self, index: &Index, prefixes: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, IndexFault> {
        let begin = keys::ordered(self.from);
        let most = if self.width_ms > 1 { KEYS_MAX } else { usize::MAX };
        let mut places = Vec::new();
        let mut visit = |rest: &[u8], _value: &[u8]| {
            if self.end.as_deref().is_some_and(|end| rest >= end) {
                return false;
            }
            places.push(rest.to_vec());
            places.len() <= most
        };
        index.merge(&lists_at(prefixes, &begin), &mut visit)?;
        Ok(places)
    }

    /// The same end, and a later beginning.
    fn narrow(&mut self) {
        self.from = Timestamp::from_ms(self.from.as_ms().saturating_add(self.width_ms));
        self.width_ms = self.width_ms.checked_div(FACTOR).unwrap_or(1).max(1);
    }

    /// The window before this one, which held so many.
    fn next(&mut self, held: usize) {
        self.end = Some(keys::ordered(self.from).to_vec());
        if held < KEYS_FEW {
            self.width_ms = self.width_ms.saturating_mul(FACTOR);
        }
    }
}

/// Of when the oldest place of the lists is.
fn oldest(index: &Index, prefixes: &[Vec<u8>]) -> Result<Option<Timestamp>, IndexFault> {
    let mut first = None;
    let mut visit = |rest: &[u8], _value: &[u8]| {
        first = time_of(rest);
        false
    };
    index.merge(&lists_at(prefixes, &[]), &mut visit)?;
    Ok(first)
}

fn time_of(place: &[u8]) -> Option<Timestamp> {
    let (time, _id) = place.split_first_chunk::<8>()?;
    Some(keys::from_ordered(*time))
}
