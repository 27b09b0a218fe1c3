//! Intents that are kept in memory only: the ledger without the guard [`crate::sabotage::Guard::DispatchNotDurable`].
//!
//! Owns where they are until their outcome is written. In no build without the feature `sabotage`.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use placet_types::ids::RecordId;

use crate::store::{Changes, EffectChange};

static HELD_BACK: Mutex<BTreeMap<RecordId, Changes>> = Mutex::new(BTreeMap::new());

/// Keeps an intent in memory only, until its outcome is written.
pub(super) fn keep(changes: Changes) {
    let Some(EffectChange::Put(record)) = changes.effects.first() else { return };
    let record_id = record.record_id;
    HELD_BACK.lock().insert(record_id, changes);
}

/// The intent of a record that was kept in memory only.
pub(super) fn take(record_id: RecordId) -> Option<Changes> {
    HELD_BACK.lock().remove(&record_id)
}
