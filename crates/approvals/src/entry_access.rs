//! What policy lets somebody do with an arrangement: a standing grant, a break-glass record, a freeze, a delegation, a revocation.
//!
//! Owns the way to Cedar's question. An entry that somebody may not see answers as one that does not exist.

use std::collections::BTreeSet;

use placet_identity::VerifiedCaller;
use placet_ledger::{audit::AuditKind, directive::Directive, refusal::ledger_refusal};
use placet_policy::{
    manage::{DirectiveActKind, EntryFacts, Management},
    review::{ReviewRefusal, Reviewer},
};
use placet_types::{
    approval::Vote,
    directive::DirectiveBody,
    error::{ErrorCode, Refusal},
    ids::{DirectiveId, GroupId, PrincipalId},
};

use crate::{audit, reviewer, service::Approvals};

/// Whether the caller may see an entry.
pub(crate) fn may_see(service: &Approvals, caller: &VerifiedCaller, entry: &Directive) -> bool {
    may(service, caller, DirectiveActKind::View, entry).is_ok()
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
    directive_id: &DirectiveId,
) -> Result<Directive, Refusal> {
    let unknown = || Refusal::new(ErrorCode::NotFound, "there is no such entry");
    let entry = service.ledger.store().directive(directive_id).await;
    let entry = entry.map_err(|error| ledger_refusal(&error.into()))?.ok_or_else(unknown)?;
    if may_see(service, caller, &entry) { Ok(entry) } else { Err(unknown()) }
}

/// Everybody who has decided on an entry, and for whom.
pub(crate) fn deciders(entry: &Directive) -> BTreeSet<PrincipalId> {
    entry.votes.iter().flat_map(Vote::voices).map(|voice| voice.person.clone()).collect()
}

const fn colleague_of(entry: &Directive) -> Option<&PrincipalId> {
    match &entry.body {
        DirectiveBody::Delegation(delegation) => Some(&delegation.to),
        DirectiveBody::Grant(_)
        | DirectiveBody::BreakGlass(_)
        | DirectiveBody::Freeze(_)
        | DirectiveBody::Revocation(_) => None,
    }
}

/// What ending an entry before its time is called.
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

/// Asks Cedar; a refusal is kept for the security team.
pub(crate) async fn allowed(
    service: &Approvals,
    caller: &VerifiedCaller,
    act: DirectiveActKind,
    entry: &Directive,
) -> Result<(), Refusal> {
    let Err(refusal) = may(service, caller, act, entry) else { return Ok(()) };
    Err(refused(service, caller, act, &refusal).await)
}

/// A refusal by policy: its cause for the audit, one sentence for the caller.
pub(crate) async fn refused(
    service: &Approvals,
    caller: &VerifiedCaller,
    act: DirectiveActKind,
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
