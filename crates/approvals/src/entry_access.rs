//! What policy lets somebody do with an arrangement: a standing grant, a break-glass record, a freeze, a delegation, a revocation.
//!
//! Owns the way to Cedar's question. An entry that somebody may not see answers as one that does not exist.

use std::collections::BTreeSet;

use placet_identity::VerifiedCaller;
use placet_ledger::{audit::AuditKind, desk::DeskEntry, refusal::ledger_refusal};
use placet_policy::{
    manage::{DeskActKind, EntryFacts, Management},
    review::{ReviewRefusal, Reviewer},
};
use placet_types::{
    approval::Vote,
    desk::DeskBody,
    error::{ErrorCode, Refusal},
    ids::{DeskId, GroupId, PrincipalId},
};

use crate::{audit, reviewer, service::Approvals};

/// Whether the caller may see an entry.
pub(crate) fn may_see(service: &Approvals, caller: &VerifiedCaller, entry: &DeskEntry) -> bool {
    may(service, caller, DeskActKind::View, entry).is_ok()
}

/// Whether policy lets the caller do this in the approval service.
///
/// # Errors
/// Why not.
pub(crate) fn may(
    service: &Approvals,
    caller: &VerifiedCaller,
    act: DeskActKind,
    entry: &DeskEntry,
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
    // What stands is never asked of another tenant.
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
    desk_id: &DeskId,
) -> Result<DeskEntry, Refusal> {
    let unknown = || Refusal::new(ErrorCode::NotFound, "there is no such entry");
    let entry = service.ledger.store().desk_entry(desk_id).await;
    let entry = entry.map_err(|error| ledger_refusal(&error.into()))?.ok_or_else(unknown)?;
    if may_see(service, caller, &entry) { Ok(entry) } else { Err(unknown()) }
}

/// Everybody who has decided on an entry, and for whom.
pub(crate) fn deciders(entry: &DeskEntry) -> BTreeSet<PrincipalId> {
    entry.votes.iter().flat_map(Vote::voices).map(|voice| voice.person.clone()).collect()
}

const fn colleague_of(entry: &DeskEntry) -> Option<&PrincipalId> {
    match &entry.body {
        DeskBody::Delegation(delegation) => Some(&delegation.to),
        DeskBody::Grant(_)
        | DeskBody::BreakGlass(_)
        | DeskBody::Freeze(_)
        | DeskBody::Revocation(_) => None,
    }
}

/// What ending an entry before its time is called.
pub(crate) const fn ending_of(body: &DeskBody) -> DeskActKind {
    match body {
        DeskBody::Grant(_) => DeskActKind::RevokeGrant,
        DeskBody::BreakGlass(_) => DeskActKind::EndBreakGlass,
        DeskBody::Freeze(freeze) if freeze.lockdown => DeskActKind::LiftLockdown,
        DeskBody::Freeze(_) => DeskActKind::LiftFreeze,
        DeskBody::Delegation(_) => DeskActKind::TakeBack,
        DeskBody::Revocation(_) => DeskActKind::LiftRevocation,
    }
}

/// Asks Cedar; a refusal is kept for the security team.
pub(crate) async fn allowed(
    service: &Approvals,
    caller: &VerifiedCaller,
    act: DeskActKind,
    entry: &DeskEntry,
) -> Result<(), Refusal> {
    let Err(refusal) = may(service, caller, act, entry) else { return Ok(()) };
    Err(refused(service, caller, act, &refusal).await)
}

/// A refusal by policy: its cause for the audit, one sentence for the caller.
pub(crate) async fn refused(
    service: &Approvals,
    caller: &VerifiedCaller,
    act: DeskActKind,
    refusal: &ReviewRefusal,
) -> Refusal {
    let mut event = audit::of_caller(AuditKind::Security, caller);
    event.code = Some(refusal.code);
    event.note = Some(format!("{}: {refusal}", act.as_str()));
    service.note(event).await;
    let message = if refusal.needs_fresh_auth {
        "sign in again: this asks for a fresh sign-in"
    } else {
        "the policies do not let you do this"
    };
    Refusal::new(refusal.code, message).with_detail(refusal)
}
