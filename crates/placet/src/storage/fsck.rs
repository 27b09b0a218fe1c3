//! Whether every move of every record was one that the machine knows (I7), read from the journal alone.
//!
//! Owns the walk. Not here: which moves are legal (`placet-ledger`). It holds one form of each record that is there, in memory: about a kilobyte
//! each.

use std::{collections::BTreeMap, path::Path};

use placet_ledger::record::EffectRecord;
use placet_store::{
    embedded::{EffectEntry, Entry, OpenError},
    journal::verify_each,
};
use placet_types::ids::RecordId;

/// How many findings are listed.
const LISTED_MAX: usize = 1_000;

/// What the walk came to.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    /// How many moves there were.
    pub(crate) count: u64,
    /// How many records are there in the end.
    pub(crate) records: u64,
    /// The first illegal ones.
    pub(crate) illegal: Vec<String>,
    known: BTreeMap<RecordId, EffectRecord>,
}

/// Walks through all entries.
///
/// # Errors
/// [`OpenError`] when the journal is damaged.
pub(crate) fn moves(journal: &Path, archive: Option<&Path>) -> Result<Moves, OpenError> {
    let mut moves = Moves::default();
    verify_each(journal, archive, &mut |frame| {
        let entry: Entry = serde_json::from_slice(&frame.payload)?;
        for effect in entry.effects {
            moves.take(frame.seq, effect);
        }
        Ok(())
    })?;
    moves.records = u64::try_from(moves.known.len()).unwrap_or(u64::MAX);
    moves.known.clear();
    Ok(moves)
}

impl Moves {
    fn take(&mut self, seq: u64, effect: EffectEntry) {
        self.count = self.count.saturating_add(1);
        match effect {
            EffectEntry::Put(after) => {
                // Of a record that is not known the beginning is in the archive, or it is the first claim.
                if let Some(before) = self.known.get(&after.record_id) {
                    let follows = before.rev.checked_add(1) == Some(after.rev);
                    if !follows || !before.may_move_to(&after) {
                        let (from, to) = (before.state.name(), after.state.name());
                        self.found(seq, &format!("{} went from {from} to {to}", after.record_id));
                    }
                }
                self.known.insert(after.record_id, *after);
            }
            EffectEntry::Removed { record_id, rev } => {
                let before = self.known.remove(&record_id);
                if before.is_some_and(|before| before.rev != rev || !before.may_be_removed()) {
                    self.found(seq, &format!("{record_id} was removed"));
                }
            }
            EffectEntry::Forgotten { record_id, rev } => {
                let before = self.known.remove(&record_id);
                if before.is_some_and(|before| before.rev != rev || !before.may_be_forgotten()) {
                    self.found(seq, &format!("{record_id} was forgotten"));
                }
            }
        }
    }

    fn found(&mut self, seq: u64, what: &str) {
        if self.illegal.len() < LISTED_MAX {
            self.illegal.push(format!("entry {seq}: {what}"));
        }
    }
}
