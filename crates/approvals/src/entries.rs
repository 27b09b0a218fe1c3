//! Entries of the approval service: who may see them, who may act on them, and how they are shown. Standing grants, break-glass records,
//! freezes, delegations, revocations.
//!
//! Owns their views and the questions to Cedar. An entry that the caller may not see gets the same answer as one that does not exist; that
//! a freeze holds a call is no secret to those who may see the call. Invariant: no argument that its schema marks sensitive is in a view.

use std::collections::BTreeSet;

use placet_identity::VerifiedCaller;
use placet_ledger::{
    approval::ApprovalRecord,
    audit::AuditKind,
    directive::{Directive, DirectiveNote, DirectiveState},
    store::DirectiveQuery,
};
use placet_policy::{
    manage::{DirectiveActKind, EntryFacts, Management},
    review::{ReviewAction, ReviewRefusal, Reviewer},
};
use placet_types::{
    approval::Vote,
    clock::Timestamp,
    directive::DirectiveBody,
    error::{ErrorCode, Refusal},
    ids::{AdapterName, DirectiveId, GroupId, PrincipalId},
};

use crate::{
    audit,
    refusals::{gone, read},
    reviewer::{self, Capacity},
    rules,
    service::Approvals,
    views::{
        DirectiveNoteView, DirectiveView, EntriesPage, EntriesQuery, EntryStanding, FreezeView,
    },
};

/// How many entries are read at a time, at least and at most.
const READ: std::ops::RangeInclusive<usize> = 64..=256;
/// How many are read for one page, however few of them the caller may see.
const LOOKED_MAX: usize = 2_000;

impl Approvals {
    /// A page of the entries that the caller may see.
    ///
    /// # Errors
    /// [`Refusal`] when the ledger cannot be read, or the cursor does not exist.
    pub async fn entries(
        &self,
        caller: &VerifiedCaller,
        wanted: &EntriesQuery,
    ) -> Result<EntriesPage, Refusal> {
        let store = self.ledger.store();
        // Nothing follows a cursor that is gone, and a list that silently began again would be read twice.
        if let Some(after) = &wanted.after
            && read(store.directive(after).await)?
                .is_none_or(|entry| entry.tenant != *caller.tenant())
        {
            return Err(gone());
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
            let read = read(store.directives(&query).await)?;
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

    /// The freezes and lockdowns of the caller's tenant that are in force.
    pub fn freezes(&self, caller: &VerifiedCaller) -> Vec<FreezeView> {
        freezes_in_force(self, caller, None)
    }
}

/// An entry as it is shown to the caller.
pub(crate) fn view_of(
    service: &Approvals,
    caller: &VerifiedCaller,
    entry: &Directive,
) -> DirectiveView {
    let now = service.ledger.store().now();
    let shown = |note: &DirectiveNote| DirectiveNoteView {
        by: note.by.clone(),
        at: note.at,
        text: note.text.clone(),
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
        body: entry.body.clone(),
        requirement: entry.requirement.clone(),
        votes: entry.votes.clone(),
        uses: entry.uses,
        end: entry.state.end().map(shown),
        review: entry.state.review().map(shown),
        digest: entry.terms(),
        standing: standing_of(service, caller, entry),
    }
}

/// The state, adjusted to the current time.
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

/// Whether the caller may see an entry: in their own right, or because they may decide on it, such as for an absent colleague.
pub(crate) fn may_see(service: &Approvals, caller: &VerifiedCaller, entry: &Directive) -> bool {
    may(service, caller, DirectiveActKind::View, entry).is_ok()
        || [ReviewAction::Approve, ReviewAction::Deny]
            .into_iter()
            .any(|action| decides(service, caller, entry, action))
}

/// Whether policy lets the caller do this in the approval service.
///
/// # Errors
/// Why not.
pub(crate) fn may(
    service: &Approvals,
    caller: &VerifiedCaller,
    act: DirectiveActKind,
    entry: &Directive,
) -> Result<(), ReviewRefusal> {
    // An agent that acts for a person is not that person.
    if !reviewer::is_person(caller) {
        return Err(ReviewRefusal {
            code: ErrorCode::NotFound,
            determining: Vec::new(),
            errors: vec!["only people manage approvals".to_owned()],
            needs_fresh_auth: false,
        });
    }
    let decided_by = deciders(entry);
    // Standing entries never ask external tenants.
    let own = entry.requirement.groups.keys().filter(|group| group.external_tenant().is_none());
    let asked: BTreeSet<GroupId> = own.map(|group| group.group().clone()).collect();
    let person = &caller.actor;
    let management = Management {
        reviewer: Reviewer { principal: person.principal(), groups: person.groups() },
        authenticated_at: person.authenticated_at(),
        act,
        entry: Some(EntryFacts {
            tenant: &entry.tenant,
            by: &entry.by,
            decided_by: &decided_by,
            asked: &asked,
            colleague: colleague_of(entry),
        }),
        now: service.ledger.store().now(),
    };
    service.policies().policy.may_manage(&management)
}

/// An entry that the caller may see.
pub(crate) async fn visible(
    service: &Approvals,
    caller: &VerifiedCaller,
    directive_id: &DirectiveId,
) -> Result<Directive, Refusal> {
    let entry = read(service.ledger.store().directive(directive_id).await)?;
    let seen = entry.filter(|entry| may_see(service, caller, entry));
    seen.ok_or_else(|| Refusal::new(ErrorCode::NotFound, "there is no such entry"))
}

/// Everybody who has decided on an entry, and for whom.
pub(crate) fn deciders(entry: &Directive) -> BTreeSet<PrincipalId> {
    entry.votes.iter().flat_map(Vote::voices).map(|voice| voice.person.clone()).collect()
}

const fn colleague_of(entry: &Directive) -> Option<&PrincipalId> {
    let DirectiveBody::Delegation(delegation) = &entry.body else { return None };
    Some(&delegation.to)
}

/// The act that ends an entry before its time.
pub(crate) const fn ending_of(body: &DirectiveBody) -> DirectiveActKind {
    match body {
        DirectiveBody::Grant(_) => DirectiveActKind::RevokeGrant,
        DirectiveBody::BreakGlass(_) => DirectiveActKind::EndBreakGlass,
        DirectiveBody::Freeze(freeze) if freeze.lockdown => DirectiveActKind::LiftLockdown,
        DirectiveBody::Freeze(_) => DirectiveActKind::LiftFreeze,
        DirectiveBody::Delegation(_) => DirectiveActKind::TakeBack,
        DirectiveBody::Revocation(_) => DirectiveActKind::LiftRevocation,
    }
}

/// Asks Cedar; a refusal is recorded as a security event.
pub(crate) async fn allowed(
    service: &Approvals,
    caller: &VerifiedCaller,
    act: DirectiveActKind,
    entry: &Directive,
) -> Result<(), Refusal> {
    let Err(refusal) = may(service, caller, act, entry) else { return Ok(()) };
    Err(refused(service, caller, entry, act.as_str(), &refusal).await)
}

/// A refusal by policy: its cause for the audit, one sentence for the caller.
pub(crate) async fn refused(
    service: &Approvals,
    caller: &VerifiedCaller,
    entry: &Directive,
    act: &str,
    refusal: &ReviewRefusal,
) -> Refusal {
    let mut event = audit::of_caller(AuditKind::Security, caller);
    event.code = Some(refusal.code);
    event.note = Some(format!("{act}: {refusal}"));
    event.directives.insert(entry.directive_id.clone());
    service.note(event).await;
    let message = if refusal.needs_fresh_auth {
        "sign in again: this asks for a fresh sign-in"
    } else {
        "the policies do not let you do this"
    };
    Refusal::new(refusal.code, message).with_detail(refusal)
}

/// What the caller may do with an entry. Only Cedar's answer to the act itself is binding.
fn standing_of(service: &Approvals, caller: &VerifiedCaller, entry: &Directive) -> EntryStanding {
    let now = service.ledger.store().now();
    let is_over = now >= entry.expires_at;
    let may = |act| may(service, caller, act, entry).is_ok();
    let open = matches!(entry.state, DirectiveState::Proposed | DirectiveState::Active) && !is_over;
    let note =
        DirectiveNote { by: caller.actor.principal().id.clone(), at: now, text: String::new() };
    EntryStanding {
        may_agree: !is_over && decides(service, caller, entry, ReviewAction::Approve),
        may_refuse: !is_over && decides(service, caller, entry, ReviewAction::Deny),
        may_end: open && may(ending_of(&entry.body)),
        may_review: entry.reviewed(note).is_ok() && may(DirectiveActKind::ReviewBreakGlass),
    }
}

fn decides(
    service: &Approvals,
    caller: &VerifiedCaller,
    entry: &Directive,
    action: ReviewAction,
) -> bool {
    let has_decided = deciders(entry).contains(&caller.actor.principal().id);
    entry.state == DirectiveState::Proposed
        && !has_decided
        && reviewer::is_person(caller)
        && capacity_on(service, caller, entry, action).is_some_and(|capacity| capacity.is_ok())
}

/// The capacity in which the caller decides on an entry, or the act that policy refuses them and why; `None` where there is nothing to
/// decide.
pub(crate) fn capacity_on(
    service: &Approvals,
    caller: &VerifiedCaller,
    entry: &Directive,
    action: ReviewAction,
) -> Option<Result<Capacity, (&'static str, ReviewRefusal)>> {
    let (act, capacity) = match &entry.body {
        DirectiveBody::Grant(grant) => {
            let capacity = reviewer::capacity_for_grant(service, caller, entry, grant, action);
            ("decide_grant", capacity)
        }
        DirectiveBody::BreakGlass(_) => {
            let act = DirectiveActKind::ConfirmBreakGlass;
            let allowed = may(service, caller, act, entry);
            (act.as_str(), allowed.map(|()| reviewer::own(service, caller)))
        }
        DirectiveBody::Freeze(_) | DirectiveBody::Delegation(_) | DirectiveBody::Revocation(_) => {
            return None;
        }
    };
    Some(capacity.map_err(|refusal| (act, refusal)))
}

/// The freezes that hold the call of an approval. None for external approvers: arrangements concern only their tenant.
pub(crate) fn freezes_of(
    service: &Approvals,
    caller: &VerifiedCaller,
    approval: &ApprovalRecord,
) -> Vec<FreezeView> {
    if reviewer::is_external(caller, approval) {
        return Vec::new();
    }
    freezes_in_force(service, caller, Some((approval.capability.adapter(), approval.asked_since())))
}

fn freezes_in_force(
    service: &Approvals,
    caller: &VerifiedCaller,
    of: Option<(&AdapterName, Timestamp)>,
) -> Vec<FreezeView> {
    let now = service.ledger.store().now();
    let open = service.rules.open();
    let freezes = open.of(caller.tenant()).filter_map(|entry| {
        let DirectiveBody::Freeze(freeze) = &entry.body else { return None };
        let since = entry.starts_at.max(entry.created_at);
        let holds = of.is_none_or(|(of, _)| freeze.holds(of));
        if !holds || !entry.is_in_force(now) {
            return None;
        }
        let seen = may_see(service, caller, entry);
        Some(FreezeView {
            directive_id: seen.then(|| entry.directive_id.clone()),
            name: seen.then(|| freeze.name.clone()),
            until: entry.expires_at,
            lockdown: freeze.lockdown,
            adapters: freeze.adapters.clone(),
            after_asking: of.is_some_and(|(_, asked)| since > asked),
        })
    });
    freezes.collect()
}
