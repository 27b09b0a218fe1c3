//! Keeping entries of the approval service.
//!
//! Owns the commit of an entry's making and of its moves. Not here: the machine ([`crate::directives`]), who may ask for a move (policy),
//! and the use of a standing grant, which is part of dispatch. Invariant: an entry and the event that tells of it are kept together.

use super::{Ledger, LedgerError};
use crate::{
    audit::{AuditEvent, AuditKind},
    directive::Directive,
    store::{Admission, Changes, Durability},
};

impl Ledger {
    /// Keeps an entry as it was made, or as it has moved from the form that is stored. The event names it, the digest of what was
    /// agreed to, and where it stands.
    ///
    /// # Errors
    /// [`LedgerError::Store`] with [`crate::store::StoreError::Conflict`] when it has moved meanwhile, or may not move so.
    pub async fn put_directive(
        &self,
        entry: Directive,
        mut event: AuditEvent,
    ) -> Result<Directive, LedgerError> {
        // What ends or takes back a right is accepted to the last, and so is what stops calls.
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
