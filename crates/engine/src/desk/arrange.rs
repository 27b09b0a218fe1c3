//! Arranging something in the approval service: a standing grant, a break-glass record, a freeze, a delegation, a revocation.
//!
//! Owns the limits of what can be arranged: for how long, how much at a time, and who has to agree to it. Whether the caller may at all is
//! Cedar's answer. A standing grant is proposed by [`super::propose`]. Invariant: nobody fills the approval service of a tenant.

use std::sync::Arc;

use placet_identity::VerifiedCaller;
use placet_ledger::{
    audit::{AuditEvent, AuditKind},
    desk::{Claimed, DESK_VERSION, DeskEntry},
    ledger::LedgerError,
    store::StoreError,
};
use placet_policy::{manage::DeskActKind, review::ReviewRefusal};
use placet_types::{
    approval::Requirement,
    clock::Timestamp,
    desk::{
        BREAK_GLASS_MS_MAX, BreakGlass, DELEGATION_MS_MAX, DESK_TEXT_BYTES_MAX, Delegation,
        DeskBody, DeskKind, FREEZE_MS_MAX, Freeze, GRANT_MS_MAX, REVOCATION_MS_MAX,
        REVOCATION_MS_MIN, Revocation,
    },
    error::{ErrorCode, Problem, Refusal},
    ids::DeskId,
};

use super::{
    decide, entries,
    propose::{self, Wanted},
    quotas::Room,
    reviewer,
};
use crate::{
    context::{Context, ledger_refusal},
    views::desk::{Arrangement, DeskEntryView, DeskRequest},
};

/// How long before it begins something can be entered, in milliseconds: a year and a day.
const AHEAD_MS_MAX: i64 = 366 * 86_400_000;
/// The shortest time that something is arranged for, in milliseconds: less is over before anybody can agree.
const LASTS_MS_MIN: u64 = 1_000;
/// What is said of a subject that nobody has come with.
const UNSEEN: &str = "no token of this subject has come to this node since it started: the revocation stands, and counts if one comes; compare the name with `sub` as the issuer writes it";

/// What is to be entered, checked.
pub(crate) struct Terms {
    pub(crate) body: DeskBody,
    pub(crate) requirement: Requirement,
}

/// How long entries of a kind last.
#[derive(Debug, Clone, Copy)]
struct Span {
    min_ms: u64,
    max_ms: u64,
    may_begin_later: bool,
}

const fn span_of(kind: DeskKind) -> Span {
    let (min_ms, max_ms, may_begin_later) = match kind {
        DeskKind::Grant => (LASTS_MS_MIN, GRANT_MS_MAX, false),
        DeskKind::BreakGlass => (LASTS_MS_MIN, BREAK_GLASS_MS_MAX, false),
        DeskKind::Freeze => (LASTS_MS_MIN, FREEZE_MS_MAX, true),
        DeskKind::Delegation => (LASTS_MS_MIN, DELEGATION_MS_MAX, true),
        DeskKind::Revocation => (REVOCATION_MS_MIN, REVOCATION_MS_MAX, false),
    };
    Span { min_ms, max_ms, may_begin_later }
}

/// Arranges something.
pub(crate) async fn arrange(
    context: &Arc<Context>,
    caller: &VerifiedCaller,
    request: DeskRequest,
) -> Result<DeskEntryView, Refusal> {
    decide::may_decide_at_all(context, caller, &request.reason).await?;
    match request.arrange.clone() {
        Arrangement::Grant { approval_id, pattern, uses_max, digest } => {
            let wanted = Wanted { approval_id, pattern, uses_max, digest };
            propose::grant(context, caller, request, wanted).await
        }
        Arrangement::BreakGlass(glass) => {
            let terms = break_glass(glass, request.lasts_ms)?;
            enter(context, caller, DeskActKind::DeclareBreakGlass, &request, terms).await
        }
        Arrangement::Freeze(freeze) => {
            let act =
                if freeze.lockdown { DeskActKind::SetLockdown } else { DeskActKind::SetFreeze };
            let terms = self::freeze(context, freeze)?;
            enter(context, caller, act, &request, terms).await
        }
        Arrangement::Delegation(delegation) => {
            let terms = self::delegation(context, caller, delegation)?;
            enter(context, caller, DeskActKind::DelegateVotes, &request, terms).await
        }
        Arrangement::Revocation(revocation) => {
            let seen = context.subjects.is_seen(caller.tenant(), &revocation);
            let terms = self::revocation(revocation)?;
            let mut view =
                enter(context, caller, DeskActKind::RevokeCredentials, &request, terms).await?;
            // Who entered it may not ask about subjects before policy let them.
            view.hint = (seen == Some(false)).then(|| UNSEEN.to_owned());
            Ok(view)
        }
    }
}

/// Asks Cedar; a refusal is kept for the security team.
pub(crate) async fn allowed(
    context: &Context,
    caller: &VerifiedCaller,
    act: DeskActKind,
    entry: &DeskEntry,
) -> Result<(), Refusal> {
    let Err(refusal) = entries::may(context, caller, act, entry) else { return Ok(()) };
    Err(refused(context, caller, act, &refusal).await)
}

/// A refusal by policy: its cause for the audit, one sentence for the caller.
pub(crate) async fn refused(
    context: &Context,
    caller: &VerifiedCaller,
    act: DeskActKind,
    refusal: &ReviewRefusal,
) -> Refusal {
    let mut event = event_of(caller, AuditKind::Security);
    event.code = Some(refusal.code);
    event.note = Some(format!("{}: {refusal}", act.as_str()));
    context.note(event).await;
    let message = if refusal.needs_fresh_auth {
        "sign in again: this asks for a fresh sign-in"
    } else {
        "the policies do not let you do this"
    };
    Refusal::new(refusal.code, message).with_detail(refusal)
}

pub(crate) fn event_of(caller: &VerifiedCaller, kind: AuditKind) -> AuditEvent {
    let mut event = AuditEvent::new(kind);
    event.tenant = Some(caller.tenant().clone());
    event.chain = Some(caller.chain());
    event.audiences = caller.several_audiences();
    event
}

pub(crate) fn invalid(pointer: &str, problem: impl Into<String>) -> Refusal {
    Refusal::new(ErrorCode::ValidationError, "this cannot be arranged")
        .with_problems(vec![Problem { pointer: pointer.to_owned(), problem: problem.into() }])
}

fn check_text(text: &str, pointer: &str) -> Result<(), Refusal> {
    if text.trim().is_empty() || text.len() > DESK_TEXT_BYTES_MAX {
        return Err(invalid(pointer, format!("must be 1 to {DESK_TEXT_BYTES_MAX} bytes of text")));
    }
    Ok(())
}

fn break_glass(glass: BreakGlass, lasts_ms: u64) -> Result<Terms, Refusal> {
    check_text(&glass.ticket, "/arrange/ticket")?;
    // One other person; who, Cedar says.
    let requirement = Requirement::new(std::collections::BTreeMap::new(), 1, lasts_ms);
    Ok(Terms { body: DeskBody::BreakGlass(glass), requirement })
}

/// Nobody has to agree.
fn nobody() -> Requirement {
    Requirement::new(std::collections::BTreeMap::new(), 0, 0)
}

fn freeze(context: &Context, freeze: Freeze) -> Result<Terms, Refusal> {
    check_text(&freeze.name, "/arrange/name")?;
    let active = context.active();
    let unknown = freeze.adapters.iter().find(|adapter| active.ports.of(adapter).is_none());
    if let Some(unknown) = unknown {
        return Err(invalid("/arrange/adapters", format!("there is no adapter `{unknown}`")));
    }
    Ok(Terms { body: DeskBody::Freeze(freeze), requirement: nobody() })
}

fn delegation(
    context: &Context,
    caller: &VerifiedCaller,
    delegation: Delegation,
) -> Result<Terms, Refusal> {
    if delegation.to == caller.actor.principal().id {
        return Err(invalid("/arrange/to", "is yourself"));
    }
    let active = context.active();
    let colleague = active.directory.user(caller.tenant(), &delegation.to);
    if colleague.is_some_and(|colleague| !colleague.active) {
        return Err(invalid("/arrange/to", "is not active"));
    }
    if delegation.groups.is_empty() {
        return Err(invalid("/arrange/groups", "must name at least one of your groups"));
    }
    // Their own groups alone: what was handed over to them is not theirs to hand on.
    let own = reviewer::groups_of(context, caller);
    if let Some(other) = delegation.groups.iter().find(|group| !own.contains(*group)) {
        return Err(invalid("/arrange/groups", format!("you are not in `{other}` yourself")));
    }
    Ok(Terms { body: DeskBody::Delegation(delegation), requirement: nobody() })
}

fn revocation(revocation: Revocation) -> Result<Terms, Refusal> {
    check_text(&revocation.subject, "/arrange/subject")?;
    if let Some(issuer) = &revocation.issuer {
        check_text(issuer, "/arrange/issuer")?;
    }
    Ok(Terms { body: DeskBody::Revocation(revocation), requirement: nobody() })
}

/// From when until when.
pub(crate) fn window_of(
    request: &DeskRequest,
    kind: DeskKind,
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

async fn enter(
    context: &Context,
    caller: &VerifiedCaller,
    act: DeskActKind,
    request: &DeskRequest,
    terms: Terms,
) -> Result<DeskEntryView, Refusal> {
    let entry = drafted(context, caller, request, terms)?;
    allowed(context, caller, act, &entry).await?;
    let room = context.desk.rooms.take(context, &entry)?;
    make(context, caller, &entry, room).await?;
    context.desk.arranged(context, entry.clone()).await;
    Ok(entries::view_of(context, caller, &entry))
}

/// The entry as it would be.
pub(crate) fn drafted(
    context: &Context,
    caller: &VerifiedCaller,
    request: &DeskRequest,
    terms: Terms,
) -> Result<DeskEntry, Refusal> {
    let now = context.ledger.store().now();
    let (starts_at, expires_at) = window_of(request, terms.body.kind(), now)?;
    let desk_id = DeskId::new(format!("desk_{}", context.ids.fresh()));
    Ok(DeskEntry {
        version: DESK_VERSION,
        desk_id: desk_id.map_err(crate::context::internal)?,
        tenant: caller.tenant().clone(),
        by: caller.actor.principal().id.clone(),
        reason: request.reason.clone(),
        created_at: now,
        starts_at,
        expires_at,
        claimed: claimed_of(context, caller, &terms.body),
        body: terms.body,
        state: DeskEntry::first_state(&terms.requirement),
        requirement: terms.requirement,
        rev: 1,
        votes: Vec::new(),
        uses: 0,
    })
}

/// What only the token of the one who hands over says of the groups.
fn claimed_of(context: &Context, caller: &VerifiedCaller, body: &DeskBody) -> Option<Claimed> {
    let DeskBody::Delegation(delegation) = body else { return None };
    let groups = reviewer::only_claimed(context, caller, &delegation.groups);
    Some(Claimed { groups, as_of: caller.actor.groups_as_of() })
}

pub(crate) async fn make(
    context: &Context,
    caller: &VerifiedCaller,
    entry: &DeskEntry,
    room: Room,
) -> Result<(), Refusal> {
    let kept = keep(context, caller, entry, "made").await;
    match &kept {
        // Dropped here: a reading that begins from now on has it.
        Ok(()) | Err(LedgerError::Store(StoreError::Uncertain(_))) => drop(room),
        Err(_) => room.free(),
    }
    kept.map_err(|error| {
        context.noticed(&error);
        ledger_refusal(&error)
    })
}

/// Keeps an entry as it is now, with an event that says what happened to it.
pub(crate) async fn keep(
    context: &Context,
    caller: &VerifiedCaller,
    entry: &DeskEntry,
    what: &str,
) -> Result<(), LedgerError> {
    let mut event = event_of(caller, AuditKind::Desk);
    event.note = Some(format!("{} {what}", entry.kind().as_str()));
    event.desk.insert(entry.desk_id.clone());
    event.digests.insert("terms".to_owned(), entry.terms());
    if let DeskBody::Grant(grant) = &entry.body {
        event.approval_id = Some(grant.approval_id.clone());
        event.capability = Some(grant.capability.clone());
    }
    context.ledger.put_desk(entry.clone(), event).await.map(drop)
}
