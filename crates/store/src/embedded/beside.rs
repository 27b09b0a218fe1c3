//! What a check looks at beside the journal and the index: contents that entries name, records that were carried over from archived
//! entries, and the checkpoints that a start can fall back on.
//!
//! Owns the reading of these. Not here: the verdict on the whole (`offline`), how contents are read (`content`). Invariants: nothing is
//! changed; a piece is missing only where nothing says, or may have said, that it was deleted.

use placet_ledger::approval::{ApprovalRecord, ApprovalState};
use placet_ledger::record::EffectRecord;

use super::checkpoint::{Checkpoints, Refused, Unusable};
use super::codec::{Stored, decode_value};
use super::keys;
use super::offline::{Contents, contents_of};
use super::open::OpenError;
use super::slip::Slip;
use crate::sorted::{TableError, TableSet};

/// The records of archived entries, as a checkpoint has them.
pub(super) struct Carried<'a> {
    /// The index as of the checkpoint: it says which of the records are the last form of theirs.
    pub(super) tables: &'a TableSet,
    pub(super) bodies: &'a TableSet,
}

impl Carried<'_> {
    /// Looks at the contents that the records name, before any entry that is at hand is looked at: whatever those delete was there
    /// until then. Answers what is wrong with the records themselves, where anything is.
    pub(super) fn look_at(&self, contents: &mut Contents) -> Result<Option<String>, OpenError> {
        for pair in self.bodies.newest(self.bodies.tables().len()) {
            let (key, value) = match pair {
                Ok(pair) => pair,
                Err(error @ TableError::Damaged { .. }) => return Ok(Some(error.to_string())),
                Err(error) => return Err(error.into()),
            };
            let Some(stored) = decode_value(&key, &value) else {
                return Ok(Some("a record does not verify".to_owned()));
            };
            // What has moved on since stands in a later entry, and may name what was deleted by then.
            if self.indexed(&key)?.is_none_or(|indexed| indexed.seq != stored.seq) {
                continue;
            }
            if let Err(error) = self.look_at_one(&key, &stored, contents)? {
                return Ok(Some(format!(
                    "a record of entry {} cannot be read: {error}",
                    stored.seq
                )));
            }
        }
        Ok(None)
    }

    fn look_at_one(
        &self,
        key: &[u8],
        stored: &Stored,
        contents: &mut Contents,
    ) -> Result<Result<(), serde_json::Error>, OpenError> {
        if key.first() == Some(&keys::EFFECT) {
            let record: EffectRecord = match serde_json::from_slice(&stored.body) {
                Ok(record) => record,
                Err(error) => return Ok(Err(error)),
            };
            for digest in contents_of(&record) {
                contents.look_at(&record.scope.tenant, digest)?;
            }
        } else if key.first() == Some(&keys::APPROVAL) {
            let approval: ApprovalRecord = match serde_json::from_slice(&stored.body) {
                Ok(approval) => approval,
                Err(error) => return Ok(Err(error)),
            };
            if !self.may_be_stripped(&approval)? {
                contents.look_at(approval.chain.tenant(), approval.proposal)?;
            }
        }
        Ok(Ok(()))
    }

    /// Whether what approvers were shown may have been deleted, by an entry that nobody has to have at hand: with the result of the
    /// call, or because nothing came of the approval.
    fn may_be_stripped(&self, approval: &ApprovalRecord) -> Result<bool, TableError> {
        let slip = self.indexed(&keys::effect(&approval.record_id))?;
        let code = slip.and_then(|stored| Slip::decode(&stored.body)).map(|slip| slip.code);
        let is_over = matches!(approval.state, ApprovalState::Void { .. });
        Ok(is_over || code.is_none() || code == keys::effect_state_code("tombstone"))
    }

    /// What the index has for a record.
    fn indexed(&self, key: &[u8]) -> Result<Option<Stored>, TableError> {
        match self.tables.get_filtered(key) {
            Ok(value) => Ok(value.and_then(|value| decode_value(key, &value))),
            // That is found wrong with the index itself.
            Err(TableError::Damaged { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// What is wrong with a table, where one is damaged.
pub(super) fn first_damage(tables: &TableSet) -> Result<Option<String>, TableError> {
    for table in tables.tables() {
        match table.verify() {
            Ok(()) => {}
            Err(error @ TableError::Damaged { .. }) => return Ok(Some(error.to_string())),
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// The checkpoints before the one that counts which do not verify, with every table that they name: a start could not fall back on them.
pub(super) fn damaged_before(checkpoints: &Checkpoints, number: u64) -> Result<Refused, OpenError> {
    let mut damaged = Refused::new();
    for earlier in checkpoints.numbers()?.into_iter().filter(|earlier| *earlier < number) {
        let found = match checkpoints.load(earlier) {
            Ok(loaded) => first_damage(&loaded.tables)?.or(first_damage(&loaded.bodies)?),
            Err(Unusable::Damaged(why)) => Some(why),
            Err(Unusable::Unread(error)) => return Err(error),
        };
        damaged.extend(found.map(|why| (earlier, why)));
    }
    Ok(damaged)
}
