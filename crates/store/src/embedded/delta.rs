//! What the journal says since a checkpoint: the edits of all entries after it, made while they are verified.
//!
//! Owns the way of an entry that is in the journal into an index that has not seen it, from its outline alone. Not here: the checks
//! of new changes, which an entry has passed when it was written; only its revisions are checked again.
//! Invariants: memory is bounded: what is too much for it goes into tables; a delta is the same however the index was made.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use placet_ledger::directive::Directive;
use placet_types::digest::Digest;
use placet_types::ids::{ApprovalId, RecordId, TenantId, ToolCallId};

use super::checkpoint::Loaded;
use super::codec::{ApprovalOutline, EffectOutline, Meta, Outline, decode_value, outline};
use super::index::Counts;
use super::keys;
use super::slip::{self, Edit, Slip};
use crate::journal::medium::Medium;
use crate::journal::{Frame, VisitError};
use crate::sorted::{Marks, Merged, Source, TableError, TableSet, TableWriter};

mod forget;
mod runs;

/// How many bytes of edits are held in memory.
const BYTES_MAX: usize = 64 << 20;
/// What an edit takes in memory beside its bytes.
const EDIT_BYTES: usize = 96;

/// Where edits go that are too many for memory.
#[derive(Debug, Clone)]
pub(super) struct Spill {
    pub(super) medium: Arc<dyn Medium>,
    pub(super) directory: PathBuf,
    /// The number of the next table.
    pub(super) next_table: u64,
    pub(super) bytes_max: usize,
    /// The number of the first table that is its own.
    pub(super) first_table: u64,
}

impl Spill {
    pub(super) fn new(medium: Arc<dyn Medium>, directory: PathBuf, next_table: u64) -> Self {
        Self { medium, directory, next_table, bytes_max: BYTES_MAX, first_table: next_table }
    }

    /// Writes edits, in order, as the newest table of a set, and merges where that is due.
    pub(super) fn write<'a>(
        &mut self,
        tables: &TableSet,
        edits: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<TableSet, TableError> {
        let is_lowest = tables.tables().is_empty();
        let mut writer = self.writer()?;
        for (key, value) in edits.filter(|(_, value)| !is_lowest || !value.is_empty()) {
            writer.put(key, value, keys::is_filtered(key))?;
        }
        let tables = tables.with(writer.finish()?);
        self.merge(tables)
    }

    /// Merges tables where that is due.
    pub(super) fn merge(&mut self, tables: TableSet) -> Result<TableSet, TableError> {
        match tables.due_for_merge() {
            Some(count) => self.merge_newest(tables, count),
            None => Ok(tables),
        }
    }

    /// Makes one table of the newest `count`.
    fn merge_newest(&mut self, tables: TableSet, count: usize) -> Result<TableSet, TableError> {
        let merged = tables.merge(count, self.writer()?, (keys::is_filtered, Marks::Drop))?;
        self.remove_own(&tables, count)?;
        Ok(tables.replaced(count, merged))
    }

    /// Removes tables that it has made itself and merged: no checkpoint names them yet, and a long journal would need room for
    /// every one of its merges.
    fn remove_own(&self, tables: &TableSet, count: usize) -> Result<(), TableError> {
        for table in tables.tables().iter().take(count) {
            let path = table.path();
            let is_here = path.parent() == Some(self.directory.as_path());
            if is_here && table.name().number >= self.first_table {
                self.medium.remove(path).map_err(TableError::io("remove", path))?;
            }
        }
        Ok(())
    }

    pub(super) fn writer(&mut self) -> Result<TableWriter, TableError> {
        let number = self.next_table;
        self.next_table = number.saturating_add(1);
        TableWriter::new(Arc::clone(&self.medium), &self.directory, number)
    }
}

/// The edits since a checkpoint, and what stood before them.
#[derive(Debug)]
pub(super) struct Delta {
    tables: TableSet,
    edits: BTreeMap<Vec<u8>, (u64, Vec<u8>)>,
    bytes: usize,
    open: BTreeMap<RecordId, u8>,
    counts: Counts,
    first: Meta,
    last: Meta,
    /// How far the generations of the index go that were found, and the hashes of the entries there.
    watched: BTreeMap<u64, Option<[u8; 32]>>,
    forgotten: BTreeSet<(TenantId, Digest)>,
    spill: Spill,
    has_spilled: bool,
    /// A table that turned out to be damaged.
    damaged: RefCell<Option<PathBuf>>,
}

/// From what a delta begins.
#[derive(Debug)]
pub(super) struct Ground {
    pub(super) tables: TableSet,
    pub(super) open: BTreeMap<RecordId, u8>,
    pub(super) counts: Counts,
    pub(super) meta: Meta,
}

impl Ground {
    /// What a checkpoint says.
    pub(super) fn of(loaded: Loaded) -> Self {
        let Loaded { checkpoint, tables, .. } = loaded;
        let (counts, meta) = (checkpoint.counts, checkpoint.meta());
        Self { tables, open: checkpoint.open.into_iter().collect(), counts, meta }
    }

    /// Before the first entry.
    pub(super) fn empty() -> Self {
        Self {
            tables: TableSet::default(),
            open: BTreeMap::new(),
            counts: Counts::default(),
            meta: Meta { applied_seq: 0, head: [0; 32] },
        }
    }
}

impl Delta {
    pub(super) fn new(ground: Ground, spill: Spill, watched: &BTreeSet<u64>) -> Self {
        let Ground { tables, open, counts, meta } = ground;
        let head_at = |seq: &u64| (*seq, (*seq == meta.applied_seq).then_some(meta.head));
        let watched = watched.iter().map(head_at).collect();
        Self {
            tables,
            edits: BTreeMap::new(),
            bytes: 0,
            open,
            counts,
            first: meta,
            last: meta,
            watched,
            forgotten: BTreeSet::new(),
            spill,
            has_spilled: false,
            damaged: RefCell::new(None),
        }
    }

    /// Takes an entry into account.
    pub(super) fn visit(&mut self, frame: &Frame) -> Result<(), VisitError> {
        if frame.seq <= self.last.applied_seq {
            return Ok(());
        }
        if let Some(outline) = outline(frame.kind, &frame.payload)? {
            self.take(frame.seq, outline).map_err(|why| {
                format!("entry {} does not follow from those before it: {why}", frame.seq)
            })?;
        }
        self.last = Meta { applied_seq: frame.seq, head: frame.hash };
        if let Some(head) = self.watched.get_mut(&frame.seq) {
            *head = Some(frame.hash);
        }
        if self.bytes > self.spill.bytes_max { Ok(self.spill_over()?) } else { Ok(()) }
    }

    /// The entry up to which it goes.
    pub(super) fn last(&self) -> Meta {
        self.last
    }

    /// The entry after which it began.
    pub(super) fn first(&self) -> Meta {
        self.first
    }

    /// The key's last edit: its entry, and the value (nothing: gone).
    pub(super) fn get(&self, key: &[u8]) -> Option<(u64, &[u8])> {
        self.edits.get(key).map(|(seq, value)| (*seq, value.as_slice()))
    }

    /// All edits, by key.
    pub(super) fn edits(&self) -> impl Iterator<Item = (&[u8], u64, &[u8])> {
        self.edits.iter().map(|(key, (seq, value))| (key.as_slice(), *seq, value.as_slice()))
    }

    pub(super) fn open(&self) -> &BTreeMap<RecordId, u8> {
        &self.open
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    pub(super) fn tables(&self) -> &TableSet {
        &self.tables
    }

    /// Contents that the entries say were deleted, and that none of them kept anew.
    pub(super) fn forgotten(&self) -> &BTreeSet<(TenantId, Digest)> {
        &self.forgotten
    }

    /// Whether it was too much for memory, so that it stands on other tables than it began with.
    pub(super) fn has_spilled(&self) -> bool {
        self.has_spilled
    }

    /// The table on which the last entry failed, where it was for that.
    pub(super) fn damaged_table(&self) -> Option<PathBuf> {
        self.damaged.borrow().clone()
    }

    /// The number of the next table.
    pub(super) fn next_table(&self) -> u64 {
        self.spill.next_table
    }

    /// Whether an index that goes so far is one of this journal.
    pub(super) fn check_place(&self, meta: &Meta) -> Result<(), String> {
        if meta.applied_seq > self.last.applied_seq {
            return Err("it goes further than the journal".to_owned());
        }
        if self.watched.get(&meta.applied_seq) != Some(&Some(meta.head)) {
            return Err("it belongs to another journal".to_owned());
        }
        Ok(())
    }

    /// Everything that the entries come to, in order; what is gone has an empty value.
    pub(super) fn everything(&self) -> Merged {
        let held: Vec<_> =
            self.edits.iter().map(|(key, (_, value))| Ok((key.clone(), value.clone()))).collect();
        let held: Source = Box::new(held.into_iter());
        Merged::new(std::iter::once(held).chain(self.tables.cursors(&[])).collect())
    }

    /// Puts all that is in memory into tables.
    pub(super) fn spill_over(&mut self) -> Result<(), TableError> {
        self.has_spilled = true;
        if self.edits.is_empty() {
            return Ok(());
        }
        let edits = self.edits.iter().map(|(key, (_, value))| (key.as_slice(), value.as_slice()));
        self.tables = self.spill.write(&self.tables, edits)?;
        self.edits.clear();
        self.bytes = 0;
        Ok(())
    }

    /// Puts all that it holds into tables, for an index that goes on from them. What was read from the first entry on becomes one
    /// table: every look-up asks all of them, and each further one costs a look at the processor's slow memory.
    pub(super) fn end_in_tables(&mut self) -> Result<(), TableError> {
        self.spill_over()?;
        let count = self.tables.tables().len();
        if self.first.applied_seq == 0 && count > 1 {
            let tables = self.tables.clone();
            self.tables = self.spill.merge_newest(tables, count)?;
        }
        Ok(())
    }

    fn take(&mut self, seq: u64, outline: Outline<'_>) -> Result<(), String> {
        self.kept_anew(&outline)?;
        let Outline { reserve, refund, taint, .. } = &outline;
        self.runs(seq, &outline.runs, (reserve.as_ref(), refund.as_ref(), taint.as_ref()))?;
        for effect in outline.effects {
            self.effect(seq, effect, outline.imported)?;
        }
        for approval in outline.approvals {
            self.approval(seq, approval, outline.imported)?;
        }
        for entry in outline.directives {
            let before = self.directive(&keys::directives(&entry.directive_id))?;
            let begins = outline.imported && before.is_none();
            let rev = before.as_ref().map_or(0, |before| before.rev);
            if !begins && rev.checked_add(1) != Some(entry.rev) {
                return Err("the directive has another revision".to_owned());
            }
            self.put_directive(seq, before, &entry)?;
        }
        if let Some(directive_id) = &outline.spend {
            let before = self.directive(&keys::directives(directive_id))?;
            let spent = before.as_ref().map(used_once_more);
            let spent = spent.ok_or("it uses a standing grant that there is not")?;
            self.put_directive(seq, before, &spent)?;
        }
        self.forgotten.extend(outline.forget_content);
        self.forget(seq, outline.forget_approvals, outline.forget_directive)
    }

    fn effect(
        &mut self,
        seq: u64,
        effect: EffectOutline<'_>,
        imported: bool,
    ) -> Result<(), String> {
        let (record_id, after, rev) = match effect {
            EffectOutline::Put { record_id, scope, call_id, updated_at, rev, state, .. } => {
                let slip = Slip {
                    code: keys::effect_state_code(&state.state)
                        .ok_or_else(|| format!("unknown state `{}`", state.state))?,
                    rev,
                    at: updated_at,
                    tenant: TenantId::new(scope.tenant).map_err(|error| error.to_string())?,
                    call_id: ToolCallId::new(call_id).map_err(|error| error.to_string())?,
                    capability: None,
                    external_tenants: BTreeSet::new(),
                };
                (record_id, Some(slip), rev.saturating_sub(1))
            }
            EffectOutline::Removed { record_id, rev }
            | EffectOutline::Forgotten { record_id, rev } => (record_id, None, rev),
        };
        let before = self.slip(&keys::effect(&record_id))?;
        // What was taken over begins with the revision that it had elsewhere.
        let begins = imported && before.is_none();
        if !begins && before.as_ref().map_or(0, |before| before.rev) != rev {
            return Err("the record has another revision".to_owned());
        }
        match (&before, &after) {
            (None, Some(_)) => self.counts.effects = self.counts.effects.saturating_add(1),
            (Some(_), None) => self.counts.effects = self.counts.effects.saturating_sub(1),
            (Some(_), Some(_)) | (None, None) => {}
        }
        match after.as_ref().filter(|after| keys::open_name(after.code).is_some()) {
            Some(after) => drop(self.open.insert(record_id, after.code)),
            None => drop(self.open.remove(&record_id)),
        }
        let mut edits = Vec::new();
        slip::effect(&record_id, (before.as_ref(), after.as_ref()), seq, &mut edits);
        self.put(seq, edits);
        Ok(())
    }

    fn approval(
        &mut self,
        seq: u64,
        approval: ApprovalOutline<'_>,
        imported: bool,
    ) -> Result<(), String> {
        let ApprovalOutline {
            approval_id,
            call_id,
            chain,
            capability,
            external_tenants,
            created_at,
            rev,
            state,
            ..
        } = approval;
        let after = Slip {
            code: keys::approval_state_code(&state.state)
                .ok_or_else(|| format!("unknown state `{}`", state.state))?,
            rev,
            at: created_at,
            tenant: chain.tenant().clone(),
            call_id: ToolCallId::new(call_id).map_err(|error| error.to_string())?,
            capability: Some(capability),
            external_tenants,
        };
        let before = self.approval_slip(&approval_id)?;
        let begins = imported && before.is_none();
        if !begins && before.as_ref().map_or(0, |before| before.rev) != rev.saturating_sub(1) {
            return Err("the approval has another revision".to_owned());
        }
        if before.is_none() {
            self.counts.approvals = self.counts.approvals.saturating_add(1);
        }
        let mut edits = Vec::new();
        slip::approval(&approval_id, (before.as_ref(), &after), seq, &mut edits);
        self.put(seq, edits);
        Ok(())
    }

    fn approval_slip(&self, approval_id: &ApprovalId) -> Result<Option<Slip>, String> {
        self.slip(&keys::approval(approval_id))
    }

    fn directive(&self, key: &[u8]) -> Result<Option<Directive>, String> {
        let Some(body) = self.body(key)? else { return Ok(None) };
        let entry = serde_json::from_slice(&body);
        entry.map(Some).map_err(|error| format!("a directive cannot be read: {error}"))
    }

    fn put_directive(
        &mut self,
        seq: u64,
        before: Option<Directive>,
        after: &Directive,
    ) -> Result<(), String> {
        if before.is_none() {
            self.counts.directives = self.counts.directives.saturating_add(1);
        }
        let body = serde_json::to_vec(after).map_err(|error| error.to_string())?;
        let mut edits = Vec::new();
        slip::directives((before.as_ref(), after), seq, &body, &mut edits);
        self.put(seq, edits);
        Ok(())
    }

    fn slip(&self, key: &[u8]) -> Result<Option<Slip>, String> {
        let Some(body) = self.body(key)? else { return Ok(None) };
        Slip::decode(&body).map(Some).ok_or_else(|| "a slip cannot be read".to_owned())
    }

    fn body(&self, key: &[u8]) -> Result<Option<Vec<u8>>, String> {
        let value = match self.edits.get(key) {
            Some((_, value)) => Some(value.clone()),
            None => self.tables.get_filtered(key).map_err(|error| {
                if let TableError::Damaged { path, .. } = &error {
                    self.damaged.replace(Some(path.clone()));
                }
                error.to_string()
            })?,
        };
        match value.filter(|value| !value.is_empty()) {
            Some(value) => decode_value(key, &value)
                .map(|stored| Some(stored.body))
                .ok_or_else(|| "a value does not verify".to_owned()),
            None => Ok(None),
        }
    }

    fn put(&mut self, seq: u64, edits: Vec<Edit>) {
        for (key, value) in edits {
            let bytes = key.len().saturating_add(value.len()).saturating_add(EDIT_BYTES);
            self.bytes = self.bytes.saturating_add(bytes);
            self.edits.insert(key, (seq, value));
        }
    }
}

/// The grant after a use, which was found to be in force when the entry was written.
pub(super) fn used_once_more(grant: &Directive) -> Directive {
    let (uses, rev) = (grant.uses.saturating_add(1), grant.rev.saturating_add(1));
    Directive { uses, rev, ..grant.clone() }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Spill, TableSet};
    use crate::journal::medium::Disk;

    #[test]
    fn tables_that_were_merged_take_no_room_but_those_of_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        let spill = |next| Spill::new(Arc::new(Disk), folder.path().to_owned(), next);
        let files = || std::fs::read_dir(folder.path()).unwrap().count();
        let write = |spill: &mut Spill, tables: &TableSet, key: u8| {
            spill.write(tables, [([key].as_slice(), b"value".as_slice())].into_iter()).unwrap()
        };
        let mut own = spill(1);
        let mut tables = TableSet::default();
        for key in 0..9 {
            tables = write(&mut own, &tables, key);
            assert_eq!(files(), tables.tables().len(), "{key}");
        }
        assert_eq!(files(), 2);
        // A later one merges them, and leaves them to the checkpoint that names them.
        let mut later = spill(own.next_table);
        tables = write(&mut later, &tables, 9);
        assert_eq!((tables.tables().len(), files()), (2, 3));
        assert!((0..10).all(|key| tables.get(&[key]).unwrap().is_some()));
    }
}
