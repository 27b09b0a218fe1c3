//! An entry before it is recorded: how long it lasts, and how many of its kind may be open.
//!
//! Owns the limits, and recording an entry with its event. Invariant: on one node, no number of concurrent requests exceeds the limits.
//! Entries of other nodes are known here after the next reading, by default within a second: a limit is exceeded at most by what they add
//! within that time.

use placet_identity::VerifiedCaller;
use placet_ledger::{
    audit::AuditKind,
    directive::{Claimed, DIRECTIVE_VERSION, Directive},
    ledger::LedgerError,
    refusal::internal,
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
    audit,
    refusals::{crowded, invalid},
    reviewer,
    service::Approvals,
    views::DirectiveRequest,
};

/// How long before it begins an entry can be made, in milliseconds: a year and a day.
const AHEAD_MS_MAX: i64 = 366 * 86_400_000;
/// How long ago an entry may begin, which then begins now: the time from typing it, or from the start of the minute.
const PAST_MS_MAX: i64 = 120_000;
/// The shortest duration of an entry, in milliseconds: a shorter one would end before anyone could agree.
const LASTS_MS_MIN: u64 = 1_000;

/// How long entries of a kind last, and how many may be open: every open entry is checked for each call.
#[derive(Debug, Clone, Copy)]
struct Limits {
    min_ms: u64,
    max_ms: u64,
    may_begin_later: bool,
    /// For all people of a tenant.
    tenant: usize,
    /// For one person.
    person: usize,
    /// The plural of their name.
    many: &'static str,
}

const fn limits_of(kind: DirectiveKind) -> Limits {
    let (max_ms, tenant, person, many) = match kind {
        DirectiveKind::Grant => (GRANT_MS_MAX, 5_000, 500, "standing grants"),
        DirectiveKind::BreakGlass => (BREAK_GLASS_MS_MAX, 200, 20, "break-glass records"),
        DirectiveKind::Freeze => (FREEZE_MS_MAX, 500, 100, "freezes"),
        DirectiveKind::Delegation => (DELEGATION_MS_MAX, 2_000, 20, "delegations"),
        // In an emergency one person revokes the tokens of many.
        DirectiveKind::Revocation => (REVOCATION_MS_MAX, 10_000, 10_000, "revocations"),
    };
    let is_revocation = matches!(kind, DirectiveKind::Revocation);
    let min_ms = if is_revocation { REVOCATION_MS_MIN } else { LASTS_MS_MIN };
    let may_begin_later = matches!(kind, DirectiveKind::Freeze | DirectiveKind::Delegation);
    Limits { min_ms, max_ms, may_begin_later, tenant, person, many }
}

/// A checked entry before it is drafted.
pub(crate) struct Terms {
    pub(crate) body: DirectiveBody,
    pub(crate) requirement: Requirement,
}

/// Its start and end.
pub(crate) fn window_of(
    request: &DirectiveRequest,
    kind: DirectiveKind,
    now: Timestamp,
) -> Result<(Timestamp, Timestamp), Refusal> {
    let Limits { min_ms: min, max_ms: max, may_begin_later, .. } = limits_of(kind);
    if !(min..=max).contains(&request.lasts_ms) {
        let problem = format!("must be {min} to {max} milliseconds");
        return Err(invalid("/lasts_ms", problem));
    }
    if request.starts_at.is_some_and(|at| now.since_ms(at) > PAST_MS_MAX) {
        return Err(invalid("/starts_at", "is in the past; leave it out to begin now"));
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

/// The entry as it would be recorded.
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

/// The groups that only the token of the delegating person confirms.
fn claimed_of(
    service: &Approvals,
    caller: &VerifiedCaller,
    body: &DirectiveBody,
) -> Option<Claimed> {
    let DirectiveBody::Delegation(delegation) = body else { return None };
    let groups = reviewer::only_claimed(service, caller, &delegation.groups);
    Some(Claimed { groups, as_of: caller.actor.groups_as_of() })
}

/// Makes an entry if the limits permit, and puts it in force.
pub(crate) async fn make(
    service: &Approvals,
    caller: &VerifiedCaller,
    entry: &Directive,
) -> Result<(), Refusal> {
    let _one_at_a_time = service.entering.lock().await;
    let (all, own) = service.rules.open().count(&entry.tenant, entry.kind(), &entry.by);
    fits(entry.kind(), all, own).map_err(|problem| invalid("/arrange", problem))?;
    service.written(keep(service, caller, entry, "made").await)?.ok_or_else(crowded)?;
    service.arranged(entry.clone()).await;
    Ok(())
}

/// Whether one more fits: `all` are open in the tenant, `own` of them are the caller's.
fn fits(kind: DirectiveKind, all: usize, own: usize) -> Result<(), String> {
    let Limits { tenant, person, many, .. } = limits_of(kind);
    if own >= person {
        return Err(format!("you have {own} open {many}, and nobody may have more"));
    }
    if all >= tenant {
        return Err(format!("{all} {many} are open, and there may not be more"));
    }
    Ok(())
}

/// Records an entry as it is now, with an event that says what happened to it.
pub(crate) async fn keep(
    service: &Approvals,
    caller: &VerifiedCaller,
    entry: &Directive,
    what: &str,
) -> Result<(), LedgerError> {
    let mut event = audit::of_caller(AuditKind::Directive, caller);
    let is_lockdown = matches!(&entry.body, DirectiveBody::Freeze(freeze) if freeze.lockdown);
    let kind = if is_lockdown { "lockdown" } else { entry.kind().as_str() };
    event.note = Some(format!("{kind} {what}"));
    event.directives.insert(entry.directive_id.clone());
    event.digests.insert("terms".to_owned(), entry.terms());
    if let DirectiveBody::Grant(grant) = &entry.body {
        event.approval_id = Some(grant.approval_id.clone());
        event.capability = Some(grant.capability.clone());
    }
    service.ledger.put_directive(entry.clone(), event).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_each_kind_one_person_and_a_tenant_have_so_many_and_no_more() {
        for kind in DirectiveKind::ALL {
            let room = limits_of(kind);
            assert!(0 < room.person && room.person <= room.tenant, "{kind:?}");
            assert_eq!(
                fits(kind, room.tenant.saturating_sub(1), room.person.saturating_sub(1)),
                Ok(())
            );
            let own = fits(kind, room.person, room.person).unwrap_err();
            assert!(own.starts_with(&format!("you have {} open", room.person)), "{own}");
            assert!(fits(kind, room.tenant, 0).unwrap_err().contains("are open"));
        }
    }
}
