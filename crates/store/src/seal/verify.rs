//! Verifying a log entry by entry, wherever it is kept.
//!
//! Owns the order of the checks and the report of the first that fails. Not here: the form (`export`), signatures, and comparing the result
//! with what was signed. Invariant: an entry is accepted only if its hash is computed from its own bytes and the next one names it.

use placet_ledger::log::LogEntry;
use placet_ledger::proof::Frontier;

use super::export::entry_hash;
use crate::journal::{Fault, Position};

/// How far a log has been verified, entry by entry.
#[derive(Debug)]
pub(crate) struct Walk {
    frontier: Frontier,
    position: Position,
}

impl Walk {
    /// Before the first entry.
    pub(crate) const fn new() -> Self {
        Self { frontier: Frontier::new(), position: Position::START }
    }

    /// The tree over the entries so far.
    pub(crate) const fn frontier(&self) -> &Frontier {
        &self.frontier
    }

    /// The hash of the last entry; zeros before the first.
    pub(crate) const fn head(&self) -> [u8; 32] {
        self.position.head
    }

    /// Verifies the next entry.
    pub(crate) fn entry(&mut self, entry: &LogEntry) -> Result<(), Fault> {
        let seq = entry.seq;
        if entry_hash(entry) != entry.hash {
            let changed = format!("entry {seq} is not what its hash says: it was changed");
            return Err(Fault::new(changed));
        }
        if entry.durable_seq >= seq {
            let itself =
                format!("entry {seq} says of itself, or of a later one, that it is durable");
            return Err(Fault::new(itself));
        }
        let due = self.position.seq.saturating_add(1);
        let placed = self.position.advance(entry);
        placed.map_err(|fault| Fault::new(format!("where entry {due} is due: {fault}")))?;
        self.frontier.append(&entry.hash, &mut |_node, _hash| {});
        Ok(())
    }
}
