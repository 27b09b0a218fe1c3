//! An entry before it is kept: for how long it lasts, and the room that is left for it.
//!
//! Owns the limits of time, and keeping an entry with the event that says what happened to it. Invariant: nobody fills the approval service of a tenant.

use placet_identity::VerifiedCaller;
use placet_ledger::{
    audit::AuditKind,
    directive::{Claimed, DIRECTIVE_VERSION, Directive},
    ledger::LedgerError,
    refusal::{internal, ledger_refusal},
    store::StoreError,
};
use placet_types::{
    approval::Requirement,
    clock::Timestamp,
    directive::{
        BREAK_GLASS_MS_MAX, DELEGATION_MS_MAX, DirectiveBody, DirectiveKind, FREEZE_MS_MAX,
        GRANT_MS_MAX, REVOCATION_MS_MAX, REVOCATION_MS_MIN,
    },
    error::Refusal,
    ids::DirectiveId,
};

use crate::{
    audit, quotas::Reservation, refusals::invalid, reviewer, service::Approvals,
    views::DirectiveRequest,
};

/// How long before it begins something can be entered, in milliseconds: a year and a day.
const AHEAD_MS_MAX: i64 = 366 * 86_400_000;
/// The shortest time that something is arranged for, in milliseconds: less is over before anybody can agree.
const LASTS_MS_MIN: u64 = 1_000;
/// What is to be entered, checked.
pub(crate) struct Terms {
    pub(crate) body: DirectiveBody,
    pub(crate) requirement: Requirement,
}

/// How long entries of a kind last.
#[derive(Debug, Clone, Copy)]
struct Span {
    min_ms: u64,
    max_ms: u64,
    may_begin_later: bool,
}

const fn span_of(kind: DirectiveKind) -> Span {
    let (min_ms, max_ms, may_begin_later) = match kind {
        DirectiveKind::Grant => (LASTS_MS_MIN, GRANT_MS_MAX, false),
        DirectiveKind::BreakGlass => (LASTS_MS_MIN, BREAK_GLASS_MS_MAX, false),
        DirectiveKind::Freeze => (LASTS_MS_MIN, FREEZE_MS_MAX, true),
        DirectiveKind::Delegation => (LASTS_MS_MIN, DELEGATION_MS_MAX, true),
        DirectiveKind::Revocation => (REVOCATION_MS_MIN, REVOCATION_MS_MAX, false),
    };
    Span { min_ms, max_ms, may_begin_later }
}

/// From when until when.
pub(crate) fn window_of(
    request: &DirectiveRequest,
    kind: DirectiveKind,
    now: Timestamp,
) -> Result<(Timestamp, Timestamp), Refusal> {
    let Span { min_ms: min, max_ms: max, may_begin_later } = span_of(kind);
    if !(min..=max).contains(&request.lasts_ms) {
        let problem = format!("must be {min} to {max} milliseconds");
        return Err(invalid("/lasts_ms", problem));
    }
    let starts_at = request.starts_at.unwrap_or(now).max(now);
    if request.starts_at.is_some_and(|at| at > now) && !may_begin_later {
        return Err(invalid("/starts_at", "only a freeze and a delegation begin later"));
    }
    if starts_at.since_ms(now) > AHEAD_MS_MAX {
        return Err(invalid("/starts_at", "is more than a year ahead"));
    }
    let lasts_ms = i64::try_from(request.lasts_ms).unwrap_or(i64::MAX);
    Ok((starts_at, starts_at.plus_ms(lasts_ms)))
}

/// The entry as it would be.
pub(crate) fn drafted(
    service: &Approvals,
    caller: &VerifiedCaller,
    request: &DirectiveRequest,
    terms: Terms,
) -> Result<Directive, Refusal> {
    let now = service.ledger.store().now();
    let (starts_at, expires_at) = window_of(request, terms.body.kind(), now)?;
    let directive_id = DirectiveId::new(format!("dir_{}", service.ids.fresh()));
    Ok(Directive {
        version: DIRECTIVE_VERSION,
        directive_id: directive_id.map_err(internal)?,
        tenant: caller.tenant().clone(),
        by: caller.actor.principal().id.clone(),
        reason: request.reason.clone(),
        created_at: now,
        starts_at,
        expires_at,
        claimed: claimed_of(service, caller, &terms.body),
        body: terms.body,
        state: Directive::first_state(&terms.requirement),
        requirement: terms.requirement,
        rev: 1,
        votes: Vec::new(),
        uses: 0,
    })
}

/// What only the token of the one who hands over says of the groups.
fn claimed_of(
    service: &Approvals,
    caller: &VerifiedCaller,
    body: &DirectiveBody,
) -> Option<Claimed> {
    let DirectiveBody::Delegation(delegation) = body else { return None };
    let groups = reviewer::only_claimed(service, caller, &delegation.groups);
    Some(Claimed { groups, as_of: caller.actor.groups_as_of() })
}

pub(crate) async fn make(
    service: &Approvals,
    caller: &VerifiedCaller,
    entry: &Directive,
    place: Reservation,
) -> Result<(), Refusal> {
    let kept = keep(service, caller, entry, "made").await;
    match &kept {
        // Dropped here: a reading that begins from now on has it.
        Ok(()) | Err(LedgerError::Store(StoreError::Uncertain(_))) => drop(place),
        Err(_) => place.free(),
    }
    kept.map_err(|error| {
        service.node.noticed(&error);
        ledger_refusal(&error)
    })
}

/// Keeps an entry as it is now, with an event that says what happened to it.
pub(crate) async fn keep(
    service: &Approvals,
    caller: &VerifiedCaller,
    entry: &Directive,
    what: &str,
) -> Result<(), LedgerError> {
    let mut event = audit::of_caller(AuditKind::Directive, caller);
    event.note = Some(format!("{} {what}", entry.kind().as_str()));
    event.directives.insert(entry.directive_id.clone());
    event.digests.insert("terms".to_owned(), entry.terms());
    if let DirectiveBody::Grant(grant) = &entry.body {
        event.approval_id = Some(grant.approval_id.clone());
        event.capability = Some(grant.capability.clone());
    }
    service.ledger.put_directive(entry.clone(), event).await.map(drop)
}
