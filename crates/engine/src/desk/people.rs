//! The people's side of an approval: find it, see it, list it.
//!
//! Owns what an approval looks like to the one who may see it. An approval that somebody may not see answers as one that does not exist.

use placet_identity::VerifiedCaller;
use placet_ledger::{
    approval::{ApprovalRecord, ApprovalState},
    audit::{AuditEvent, AuditKind},
    store::ApprovalQuery,
};
use placet_types::{
    approval::ApproverGroup,
    error::{ErrorCode, Problem, Refusal},
    ids::ApprovalId,
};

use super::{external, outcome, reviewer};
use crate::{
    context::{Context, ledger_refusal},
    views::{ApprovalView, FINISHED, WithdrawalView, desk::GroupProgress},
};

/// The longest reason, in bytes.
const REASON_BYTES_MAX: usize = 2_000;
/// How many approvals are read at a time.
const PAGE: usize = 200;
/// About how many policy is asked in a row.
const ASKED_AT_ONCE: usize = 16;

/// The approvals that the caller may see, oldest first.
pub(crate) async fn list(
    context: &Context,
    caller: &VerifiedCaller,
    state: Option<&str>,
    after: Option<&ApprovalId>,
    limit: usize,
) -> Result<Vec<ApprovalView>, Refusal> {
    outcome::check(state)?;
    let limit = limit.max(1);
    let mut seen = Vec::new();
    let after_external = match after {
        Some(after) => {
            let approval = context.ledger.store().approval(after).await;
            let approval = approval.map_err(|error| ledger_refusal(&error.into()))?;
            approval.is_some_and(|approval| {
                external::is_external(caller, &approval)
                    && reviewer::may_view(context, caller, &approval)
            })
        }
        None => false,
    };
    let tenant = Some(caller.tenant().clone());
    let stored = state.and_then(outcome::stored).map(str::to_owned);
    let decided = state == Some(FINISHED);
    // Their own tenant's first, then those that they are asked about as external approvers.
    if !after_external {
        let own = ApprovalQuery {
            tenant: tenant.clone(),
            state: stored.clone(),
            decided,
            after: after.cloned(),
            ..ApprovalQuery::default()
        };
        gather(context, caller, own, state, &mut seen, limit).await?;
    }
    // External approvers are persons who are in a group at all: nobody else is asked, and nothing is looked through for them.
    if reviewer::is_person(caller) && !reviewer::groups_of(context, caller).is_empty() {
        let after = after.filter(|_| after_external).cloned();
        let as_external = ApprovalQuery {
            external: tenant,
            state: stored,
            decided,
            after,
            ..ApprovalQuery::default()
        };
        gather(context, caller, as_external, state, &mut seen, limit).await?;
    }
    Ok(seen)
}

/// Adds the approvals of a query that the caller may see, until there are enough.
async fn gather(
    context: &Context,
    caller: &VerifiedCaller,
    mut query: ApprovalQuery,
    state: Option<&str>,
    seen: &mut Vec<ApprovalView>,
    limit: usize,
) -> Result<(), Refusal> {
    // Most pages are of somebody who sees everything; who sees little has much to be looked through.
    query.limit = limit.saturating_sub(seen.len()).min(PAGE);
    while seen.len() < limit {
        let page = context.ledger.store().approvals(&query).await;
        let page = page.map_err(|error| ledger_refusal(&error.into()))?;
        let Some(last) = page.last() else { break };
        query.after = Some(last.approval_id.clone());
        query.limit = PAGE;
        for (number, approval) in page.iter().enumerate() {
            if number.checked_rem(ASKED_AT_ONCE) == Some(0) {
                // Who sees little has many looked through: nobody else waits for that.
                tokio::task::yield_now().await;
            }
            if seen.len() < limit
                && reviewer::may_view(context, caller, approval)
                && outcome::is_wanted(context, caller, approval, state).await
            {
                seen.push(external::view_for(context, caller, approval).await);
            }
        }
    }
    Ok(())
}

/// An approval that the caller may see.
pub(crate) async fn visible(
    context: &Context,
    caller: &VerifiedCaller,
    approval_id: &ApprovalId,
) -> Result<ApprovalRecord, Refusal> {
    let unknown = || Refusal::new(ErrorCode::NotFound, "there is no such approval");
    let approval = context.ledger.store().approval(approval_id).await;
    let approval = approval.map_err(|error| ledger_refusal(&error.into()))?.ok_or_else(unknown)?;
    if reviewer::may_view(context, caller, &approval) { Ok(approval) } else { Err(unknown()) }
}

/// Refuses a decision without a reason, or with a novel.
pub(crate) fn check_reason(reason: &str, pointer: &str) -> Result<(), Refusal> {
    if reason.trim().is_empty() || reason.len() > REASON_BYTES_MAX {
        let problem = format!("must be 1 to {REASON_BYTES_MAX} bytes of text");
        return Err(Refusal::new(ErrorCode::ValidationError, "a decision needs a reason")
            .with_problems(vec![Problem { pointer: pointer.to_owned(), problem }]));
    }
    Ok(())
}

/// What an event says of an approval that the caller does something with.
pub(crate) fn event_of(
    kind: AuditKind,
    caller: &VerifiedCaller,
    approval: &ApprovalRecord,
) -> AuditEvent {
    let mut event = AuditEvent::new(kind);
    // The decision is the asking tenant's, no matter who takes it; the chain says of which tenant that is.
    event.tenant = Some(approval.chain.tenant().clone());
    event.call_id = Some(approval.call_id.clone());
    event.capability = Some(approval.capability.clone());
    event.chain = Some(caller.chain());
    // What else an external approver's token is for is the business of their own tenant.
    if caller.tenant() == approval.chain.tenant() {
        event.audiences = caller.several_audiences();
    }
    event.record_id = Some(approval.record_id);
    event.approval_id = Some(approval.approval_id.clone());
    event.digests.insert("request".to_owned(), approval.request_digest);
    event
}

/// How far each group is that is asked, those besides that were asked after a while of silence.
pub(crate) fn progress_of(approval: &ApprovalRecord) -> Vec<GroupProgress> {
    let ballot = approval.ballot();
    let agreed = |group: &ApproverGroup| u32::try_from(ballot.agreed_of(group)).unwrap_or(u32::MAX);
    let of = |(group, wanted, escalated): (&ApproverGroup, u32, bool)| GroupProgress {
        group: group.clone(),
        wanted,
        agreed: agreed(group),
        escalated,
    };
    let requirement = &approval.requirement;
    let first = requirement.groups.iter().map(|(group, wanted)| (group, *wanted, false));
    let made = usize::try_from(approval.escalated).unwrap_or(usize::MAX);
    let escalations = requirement.escalations.iter().take(made);
    let later = escalations.map(|escalation| (&escalation.group, escalation.people, true));
    first.chain(later).map(of).collect()
}

/// An approval as it is shown, in its state as [`super::outcome`] has it.
pub(crate) fn view_of(approval: &ApprovalRecord, state: &str) -> ApprovalView {
    let (mut void_reason, mut withdrawn) = (None, None);
    match &approval.state {
        ApprovalState::Void { reason } => void_reason = Some(reason.clone()),
        ApprovalState::Withdrawn { by, reason, at } => {
            withdrawn = Some(WithdrawalView { by: by.clone(), reason: reason.clone(), at: *at });
        }
        ApprovalState::Pending
        | ApprovalState::Approved
        | ApprovalState::Denied
        | ApprovalState::Expired
        | ApprovalState::Consumed { .. } => {}
    }
    ApprovalView {
        approval_id: approval.approval_id.clone(),
        state: state.to_owned(),
        void_reason,
        unreachable: false,
        withdrawn,
        call_id: approval.call_id.clone(),
        capability_id: approval.capability.clone(),
        principal_chain: approval.chain.clone(),
        requirement: approval.requirement.clone(),
        votes: approval.votes.clone(),
        lapsed: approval.lapsed.clone(),
        created_at: approval.created_at,
        expires_at: approval.expires_at,
        mode: approval.mode,
        edits: u32::try_from(approval.edits.len()).unwrap_or(u32::MAX),
        escalated: approval.escalated,
        digest: approval.shown(),
    }
}
