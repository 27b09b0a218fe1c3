//! Arranging something at the desk: a standing grant, a break-glass record, a freeze, a handover, a revocation.
//!
//! Owns the limits of what can be arranged, and who has to agree to it. Whether the caller may at all is Cedar's answer. Invariant: a
//! standing grant is approved under the requirement of the very call it was proposed from, and covers that call.

use std::sync::Arc;

use serde_json::Value;

use placet_identity::VerifiedCaller;
use placet_ledger::{
    approval::{ApprovalRecord, ApprovalState, VoteError},
    audit::{AuditEvent, AuditKind},
    desk::{DESK_VERSION, DeskEntry},
    ledger::LedgerError,
};
use placet_policy::{
    manage::DeskActKind,
    review::{ReviewAction, ReviewRefusal},
};
use placet_types::{
    approval::{Requirement, VoteChoice},
    clock::Timestamp,
    desk::{
        BREAK_GLASS_MS_MAX, BreakGlass, DESK_TEXT_BYTES_MAX, DeskBody, FREEZE_MS_MAX, Freeze,
        GRANT_MS_MAX, GRANT_USES_MAX, Grant, HANDOVER_MS_MAX, Handover, REVOCATION_MS_MAX,
        REVOCATION_MS_MIN, Revocation,
        pattern::{ArgumentPattern, ArgumentRule},
    },
    digest::Digest,
    error::{ErrorCode, Problem, Refusal},
    ids::{ApprovalId, DeskId},
};

use super::{
    asker,
    decide::{self, not_counted, vote_of},
    entries, guest, people,
};
use crate::{
    call::Target,
    context::{Context, ledger_refusal},
    views::desk::{Arrangement, DeskEntryView, DeskRequest},
};

/// How long before it begins something can be entered, in milliseconds: a year and a day.
const AHEAD_MS_MAX: i64 = 366 * 86_400_000;
/// The shortest time that something is arranged for, in milliseconds: less is over before anybody can agree.
const LASTS_MS_MIN: u64 = 1_000;
/// The most revocations of a tenant at a time: each is looked at for every call.
const REVOCATIONS_MAX: usize = 10_000;

/// What is to be entered, checked.
struct Terms {
    body: DeskBody,
    requirement: Requirement,
    lasts_ms_min: u64,
    lasts_ms_max: u64,
    may_begin_later: bool,
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
            grant(context, caller, (request, wanted)).await
        }
        Arrangement::BreakGlass(glass) => {
            let terms = break_glass(glass, request.lasts_ms)?;
            enter(context, caller, (DeskActKind::DeclareBreakGlass, &request), terms).await
        }
        Arrangement::Freeze(freeze) => {
            let terms = self::freeze(context, freeze)?;
            enter(context, caller, (DeskActKind::SetFreeze, &request), terms).await
        }
        Arrangement::Handover(handover) => {
            let terms = self::handover(context, caller, handover)?;
            enter(context, caller, (DeskActKind::HandOver, &request), terms).await
        }
        Arrangement::Revocation(revocation) => {
            let terms = self::revocation(context, caller, revocation)?;
            enter(context, caller, (DeskActKind::RevokeCredentials, &request), terms).await
        }
    }
}

/// Asks Cedar; a refusal is kept for the security team.
pub(crate) async fn allowed(
    context: &Context,
    caller: &VerifiedCaller,
    (act, entry): (DeskActKind, &DeskEntry),
) -> Result<(), Refusal> {
    let Err(refusal) = entries::may(context, caller, (act, entry)) else { return Ok(()) };
    Err(refused(context, caller, (act, &refusal)).await)
}

/// A refusal by policy: its cause for the audit, one sentence for the caller.
pub(crate) async fn refused(
    context: &Context,
    caller: &VerifiedCaller,
    (act, refusal): (DeskActKind, &ReviewRefusal),
) -> Refusal {
    let mut event = event_of(caller, AuditKind::Security);
    event.code = Some(refusal.code);
    event.note = Some(format!("{}: {refusal}", act.as_str()));
    context.note(event).await;
    let message = if refusal.needs_fresh_auth {
        "sign in again: this asks for a fresh sign-in"
    } else {
        "the policies do not let you do this at the desk"
    };
    Refusal::new(refusal.code, message).with_detail(refusal)
}

pub(crate) fn event_of(caller: &VerifiedCaller, kind: AuditKind) -> AuditEvent {
    let mut event = AuditEvent::new(kind);
    event.tenant = Some(caller.tenant().clone());
    event.chain = Some(caller.chain());
    event
}

fn invalid(pointer: &str, problem: impl Into<String>) -> Refusal {
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
    Ok(Terms {
        body: DeskBody::BreakGlass(glass),
        requirement,
        lasts_ms_min: LASTS_MS_MIN,
        lasts_ms_max: BREAK_GLASS_MS_MAX,
        may_begin_later: false,
    })
}

/// Nobody has to agree.
fn nobody() -> Requirement {
    Requirement::new(std::collections::BTreeMap::new(), 0, 0)
}

fn freeze(context: &Context, freeze: Freeze) -> Result<Terms, Refusal> {
    check_text(&freeze.name, "/arrange/name")?;
    let unknown = freeze.adapters.iter().find(|adapter| context.ports.of(adapter).is_none());
    if let Some(unknown) = unknown {
        return Err(invalid("/arrange/adapters", format!("there is no adapter `{unknown}`")));
    }
    Ok(Terms {
        body: DeskBody::Freeze(freeze),
        requirement: nobody(),
        lasts_ms_min: LASTS_MS_MIN,
        lasts_ms_max: FREEZE_MS_MAX,
        may_begin_later: true,
    })
}

fn handover(
    context: &Context,
    caller: &VerifiedCaller,
    handover: Handover,
) -> Result<Terms, Refusal> {
    if handover.to == caller.actor.principal().id {
        return Err(invalid("/arrange/to", "is yourself"));
    }
    let colleague = context.directory.user(caller.tenant(), &handover.to);
    if colleague.is_some_and(|colleague| !colleague.active) {
        return Err(invalid("/arrange/to", "is not active"));
    }
    if handover.groups.is_empty() {
        return Err(invalid("/arrange/groups", "must name at least one of your groups"));
    }
    // Their own groups alone: what was handed over to them is not theirs to hand on.
    let own = asker::groups_of(context, caller);
    if let Some(other) = handover.groups.iter().find(|group| !own.contains(*group)) {
        return Err(invalid("/arrange/groups", format!("you are not in `{other}` yourself")));
    }
    Ok(Terms {
        body: DeskBody::Handover(handover),
        requirement: nobody(),
        lasts_ms_min: LASTS_MS_MIN,
        lasts_ms_max: HANDOVER_MS_MAX,
        may_begin_later: true,
    })
}

fn revocation(
    context: &Context,
    caller: &VerifiedCaller,
    revocation: Revocation,
) -> Result<Terms, Refusal> {
    check_text(&revocation.subject, "/arrange/subject")?;
    if let Some(issuer) = &revocation.issuer {
        check_text(issuer, "/arrange/issuer")?;
    }
    if context.desk.force.open().revocations_of(caller.tenant()) >= REVOCATIONS_MAX {
        let problem = format!("{REVOCATIONS_MAX} are in force already");
        return Err(invalid("/arrange", problem));
    }
    Ok(Terms {
        body: DeskBody::Revocation(revocation),
        requirement: nobody(),
        lasts_ms_min: REVOCATION_MS_MIN,
        lasts_ms_max: REVOCATION_MS_MAX,
        may_begin_later: false,
    })
}

/// From when until when.
fn window_of(
    request: &DeskRequest,
    terms: &Terms,
    now: Timestamp,
) -> Result<(Timestamp, Timestamp), Refusal> {
    let (min, max) = (terms.lasts_ms_min, terms.lasts_ms_max);
    if !(min..=max).contains(&request.lasts_ms) {
        let problem = format!("must be {min} to {max} milliseconds");
        return Err(invalid("/lasts_ms", problem));
    }
    let starts_at = request.starts_at.unwrap_or(now).max(now);
    if request.starts_at.is_some_and(|at| at > now) && !terms.may_begin_later {
        return Err(invalid("/starts_at", "only a freeze and a handover begin later"));
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
    (act, request): (DeskActKind, &DeskRequest),
    terms: Terms,
) -> Result<DeskEntryView, Refusal> {
    let entry = drafted(context, caller, request, terms)?;
    allowed(context, caller, (act, &entry)).await?;
    make(context, caller, &entry).await?;
    context.desk.arranged(context, entry.clone()).await;
    Ok(entries::view_of(context, caller, &entry))
}

/// The entry as it would be.
fn drafted(
    context: &Context,
    caller: &VerifiedCaller,
    request: &DeskRequest,
    terms: Terms,
) -> Result<DeskEntry, Refusal> {
    let now = context.ledger.store().now();
    let (starts_at, expires_at) = window_of(request, &terms, now)?;
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
        body: terms.body,
        state: DeskEntry::first_state(&terms.requirement),
        requirement: terms.requirement,
        rev: 1,
        votes: Vec::new(),
        uses: 0,
    })
}

async fn make(
    context: &Context,
    caller: &VerifiedCaller,
    entry: &DeskEntry,
) -> Result<(), Refusal> {
    keep(context, caller, (entry, "made")).await.map_err(|error| {
        context.noticed(&error);
        ledger_refusal(&error)
    })
}

/// Keeps an entry as it is now, with an event that says what happened to it.
pub(crate) async fn keep(
    context: &Context,
    caller: &VerifiedCaller,
    (entry, what): (&DeskEntry, &str),
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

/// What a standing grant is wanted for.
struct Wanted {
    approval_id: ApprovalId,
    pattern: Option<ArgumentPattern>,
    uses_max: u32,
    digest: Digest,
}

async fn grant(
    context: &Arc<Context>,
    caller: &VerifiedCaller,
    (request, wanted): (DeskRequest, Wanted),
) -> Result<DeskEntryView, Refusal> {
    let approval = people::visible(context, caller, &wanted.approval_id).await?;
    if guest::is_guest(caller, &approval) {
        let told = "people of another tenant agree to single calls, and to nothing that stands";
        return Err(Refusal::new(ErrorCode::PolicyDenied, told));
    }
    if wanted.digest != approval.shown() {
        return Err(not_counted(&VoteError::Stale));
    }
    let capacity = decide::review(context, caller, (&approval, ReviewAction::Approve)).await?;
    let terms = grant_terms(context, &approval, wanted).await?;
    let proposed = drafted(context, caller, &request, terms)?;
    make(context, caller, &proposed).await?;
    // Whoever proposes it agrees to it.
    let now = context.ledger.store().now();
    let word = (VoteChoice::Approve, request.reason.as_str(), proposed.terms());
    let vote = vote_of((caller, &capacity), word, now);
    let agreed = proposed.cast(vote, now).map_err(|error| not_counted(&error))?;
    let said =
        if capacity.stands_for.is_some() { "agreed to, for a colleague" } else { "agreed to" };
    keep(context, caller, (&agreed, said)).await.map_err(|error| {
        context.noticed(&error);
        ledger_refusal(&error)
    })?;
    context.desk.arranged(context, agreed.clone()).await;
    Ok(entries::view_of(context, caller, &agreed))
}

async fn grant_terms(
    context: &Context,
    approval: &ApprovalRecord,
    wanted: Wanted,
) -> Result<Terms, Refusal> {
    if approval.requirement.once_only {
        return Err(Refusal::new(
            ErrorCode::PolicyDenied,
            "a policy that holds this call has people decide on every single one: no standing grant covers it",
        ));
    }
    if approval.state != ApprovalState::Pending {
        return Err(not_counted(&VoteError::Late { state: approval.state.name() }));
    }
    if !(1..=GRANT_USES_MAX).contains(&wanted.uses_max) {
        return Err(invalid("/arrange/uses_max", format!("must be 1 to {GRANT_USES_MAX}")));
    }
    let record = context.ledger.store().effect(approval.record_id).await;
    let record = record.map_err(|error| ledger_refusal(&error.into()))?;
    let record = record.ok_or_else(|| not_counted(&VoteError::Late { state: "over" }))?;
    let parked = context.ledger.parked(&record).await.map_err(|error| ledger_refusal(&error))?;
    let target = context.catalog.resolve(approval.chain.tenant(), &approval.capability);
    let args = Value::Object(parked.envelope.args.clone());
    let pattern = match wanted.pattern {
        None => ArgumentPattern::exactly(&args),
        Some(pattern) => unmasked(target.as_ref(), pattern, &args),
    };
    pattern.check().map_err(|error| invalid("/arrange/pattern", error.to_string()))?;
    if !pattern.covers(&args) {
        let problem = "does not cover the call it is proposed from";
        return Err(invalid("/arrange/pattern", problem));
    }
    Ok(Terms {
        body: DeskBody::Grant(Box::new(Grant {
            approval_id: approval.approval_id.clone(),
            chain: approval.chain.clone(),
            capability: approval.capability.clone(),
            mode: approval.mode,
            contract_digest: parked.binding.contract_digest,
            pattern,
            uses_max: wanted.uses_max,
        })),
        // The same people, without those who are asked only because the first ones are silent.
        requirement: Requirement { escalations: Vec::new(), ..approval.requirement.clone() },
        lasts_ms_min: LASTS_MS_MIN,
        lasts_ms_max: GRANT_MS_MAX,
        may_begin_later: false,
    })
}

/// The pattern with the values back that its author was shown masked.
fn unmasked(target: Option<&Target>, pattern: ArgumentPattern, args: &Value) -> ArgumentPattern {
    let schema = target.and_then(|target| target.capability.arguments.as_ref().ok());
    let Some(schema) = schema else { return pattern };
    let shown = schema.redact(args);
    let rules = pattern.0.into_iter().map(|(place, rule)| {
        let rule = match (&rule, shown.pointer(&place), args.pointer(&place)) {
            (ArgumentRule::Equals(value), Some(masked), Some(real)) if value == masked => {
                ArgumentRule::Equals(real.clone())
            }
            _ => rule,
        };
        (place, rule)
    });
    ArgumentPattern(rules.collect())
}
