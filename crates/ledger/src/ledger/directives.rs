//! Recording entries of the approval service.
//!
//! Owns the commit that makes or moves an entry. Not here: the machine ([`crate::directive`]), who may ask for a move (policy), and the use
//! of a standing grant, which is part of dispatch. Invariant: an entry and its event are recorded together.

use super::{Ledger, LedgerError};
use crate::{
    audit::{AuditEvent, AuditKind},
    directive::Directive,
    store::{Admission, Changes, Durability},
};

impl Ledger {
    /// Records a new entry, or one that has moved from its stored version. The event names it, the digest of its terms, and its state.
    ///
    /// # Errors
    /// [`LedgerError::Store`] with [`crate::store::StoreError::Conflict`] when it has moved meanwhile, or the move is illegal.
    pub async fn put_directive(
        &self,
        entry: Directive,
        mut event: AuditEvent,
    ) -> Result<Directive, LedgerError> {
        // What revokes a right or stops calls is accepted even when space is low.
        let is_new = entry.rev == 1 && !entry.is_restrictive();
        let admission = if is_new { Admission::New } else { Admission::Completion };
        event.kind = AuditKind::Directive;
        event.tenant = Some(entry.tenant.clone());
        event.directives.insert(entry.directive_id.clone());
        event.digests.insert("terms".to_owned(), entry.terms());
        if event.note.is_none() {
            event.note = Some(format!("{} {}", entry.kind().as_str(), entry.state.name()));
        }
        let mut changes = Changes::new(Durability::Synced, admission);
        changes.directives.push(entry.clone());
        changes.audit.push(event);
        self.store.commit(changes).await?;
        Ok(entry)
    }
}
