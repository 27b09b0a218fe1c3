//! Entries of the approval service as people see them: standing grants, break-glass records, freezes, delegations.
//!
//! Owns their views. Who sees an entry is Cedar's answer; one that somebody may not see answers as one that does not exist. Invariant: no
//! argument that its schema marks sensitive is in a view, though the digest that people agree to covers it.

use placet_identity::VerifiedCaller;
use placet_ledger::{
    directive::{Directive, DirectiveState},
    refusal::ledger_refusal,
    store::DirectiveQuery,
};
use placet_types::{
    clock::Timestamp,
    directive::{DirectiveBody, Grant},
    error::Refusal,
    ids::DirectiveId,
};

use crate::{
    entry_access::{may_see, visible},
    hints, masking, permitted_actions,
    refusals::gone,
    rules,
    service::Approvals,
    views::{DirectiveNoteView, DirectiveView, EntriesPage, EntriesQuery},
};

/// How many entries are read at a time, at least and at most.
const READ: std::ops::RangeInclusive<usize> = 64..=256;
/// How many are looked at for one page, however few of them the caller may see.
const LOOKED_MAX: usize = 2_000;

impl Approvals {
    /// A page of the entries that the caller may see.
    ///
    /// # Errors
    /// [`Refusal`] when the ledger cannot be read, or has no place as that to go on from.
    pub async fn entries(
        &self,
        caller: &VerifiedCaller,
        wanted: &EntriesQuery,
    ) -> Result<EntriesPage, Refusal> {
        let store = self.ledger.store();
        if let Some(after) = &wanted.after {
            must_be_there(self, caller, after).await?;
        }
        let most = wanted.limit.saturating_add(1).clamp(*READ.start(), *READ.end());
        let mut query = DirectiveQuery {
            tenant: Some(caller.tenant().clone()),
            kind: wanted.kind,
            open_at: wanted.only_open.then(|| store.now()),
            made_before: wanted.made_before,
            newest_first: wanted.newest_first,
            after: wanted.after.clone(),
            limit: most,
        };
        let (mut page, mut looked) = (EntriesPage::default(), 0_usize);
        loop {
            let read = store.directives(&query).await;
            let read = read.map_err(|error| ledger_refusal(&error.into()))?;
            for entry in read.iter().filter(|entry| may_see(self, caller, entry)) {
                if page.entries.len() >= wanted.limit {
                    page.next_after = page.entries.last().map(|last| last.directive_id.clone());
                    return Ok(page);
                }
                page.entries.push(view_of(self, caller, entry));
            }
            looked = looked.saturating_add(read.len());
            let Some(last) = read.last().filter(|_| read.len() >= most) else { return Ok(page) };
            query.after = Some(last.directive_id.clone());
            if looked >= LOOKED_MAX {
                page.next_after = query.after;
                return Ok(page);
            }
        }
    }
}

/// A place that is gone has nothing after it, and a list that silently began again would be read twice.
async fn must_be_there(
    service: &Approvals,
    caller: &VerifiedCaller,
    after: &DirectiveId,
) -> Result<(), Refusal> {
    let entry = service.ledger.store().directive(after).await;
    let entry = entry.map_err(|error| ledger_refusal(&error.into()))?;
    if entry.is_some_and(|entry| entry.tenant == *caller.tenant()) { Ok(()) } else { Err(gone()) }
}

impl Approvals {
    /// One entry.
    ///
    /// # Errors
    /// [`ErrorCode::NotFound`](placet_types::error::ErrorCode::NotFound) for entries that the caller may not see.
    pub async fn entry(
        &self,
        caller: &VerifiedCaller,
        directive_id: &DirectiveId,
    ) -> Result<DirectiveView, Refusal> {
        Ok(view_of(self, caller, &visible(self, caller, directive_id).await?))
    }
}

/// An entry as it is shown to the caller.
pub(crate) fn view_of(
    service: &Approvals,
    caller: &VerifiedCaller,
    entry: &Directive,
) -> DirectiveView {
    let now = service.ledger.store().now();
    let note = match &entry.state {
        DirectiveState::Ended { end: note } | DirectiveState::Reviewed { review: note } => {
            Some(DirectiveNoteView { by: note.by.clone(), at: note.at, text: note.text.clone() })
        }
        DirectiveState::Proposed | DirectiveState::Active | DirectiveState::Denied => None,
    };
    DirectiveView {
        directive_id: entry.directive_id.clone(),
        state: state_of(entry, now).to_owned(),
        in_force: entry.is_in_force(now),
        review_due: rules::is_review_due(entry, now),
        by: entry.by.clone(),
        reason: entry.reason.clone(),
        created_at: entry.created_at,
        starts_at: entry.starts_at,
        expires_at: entry.expires_at,
        body: shown_body(service, entry),
        requirement: entry.requirement.clone(),
        votes: entry.votes.clone(),
        uses: entry.uses,
        note,
        digest: entry.terms(),
        standing: permitted_actions::of(service, caller, entry),
        hint: hints::of(service, entry),
    }
}

/// The state, and by the clock what it has come to.
fn state_of(entry: &Directive, now: Timestamp) -> &'static str {
    match &entry.state {
        DirectiveState::Proposed | DirectiveState::Active if now >= entry.expires_at => "expired",
        DirectiveState::Active if entry.uses_left() == Some(0) => "used_up",
        DirectiveState::Active if now < entry.starts_at => "scheduled",
        state @ (DirectiveState::Proposed
        | DirectiveState::Active
        | DirectiveState::Denied
        | DirectiveState::Ended { .. }
        | DirectiveState::Reviewed { .. }) => state.name(),
    }
}

fn shown_body(service: &Approvals, entry: &Directive) -> DirectiveBody {
    match &entry.body {
        DirectiveBody::Grant(grant) => {
            let target = service.policies().catalog.resolve(&entry.tenant, &grant.capability);
            let pattern = masking::masked_pattern(target.as_ref(), &grant.pattern);
            DirectiveBody::Grant(Box::new(Grant { pattern, ..grant.as_ref().clone() }))
        }
        body @ (DirectiveBody::BreakGlass(_)
        | DirectiveBody::Freeze(_)
        | DirectiveBody::Delegation(_)
        | DirectiveBody::Revocation(_)) => body.clone(),
    }
}
