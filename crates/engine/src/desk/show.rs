//! One approval with everything its approvers are shown: the frozen evidence, what the caller may do, what became of the call.
//!
//! Owns the words in which somebody is told why they cannot decide. Invariant: nothing that a schema marks sensitive leaves here, neither
//! in the arguments nor in the result.

use serde_json::Value;

use placet_identity::VerifiedCaller;
use placet_ledger::{
    approval::{ApprovalRecord, ApprovalState},
    record::{EffectRecord, EffectState},
};
use placet_policy::review::ReviewAction;
use placet_types::{approval::VoteChoice, clock::Timestamp, error::Refusal, ids::ApprovalId};

use super::{
    decide::vote_of,
    external, freezes, masking, outcome, people,
    reviewer::{self, Capacity},
    watch,
};
use crate::{
    context::{Context, ledger_refusal},
    operator,
    views::{
        ApprovalDetail, ApprovalView,
        desk::{NextEscalation, OutcomeView, ReviewStanding},
    },
};

/// One approval with what its approvers are shown.
pub(crate) async fn show(
    context: &Context,
    caller: &VerifiedCaller,
    approval_id: &ApprovalId,
) -> Result<ApprovalDetail, Refusal> {
    let approval = people::visible(context, caller, approval_id).await?;
    let standing = standing_of(context, caller, &approval);
    if external::is_external(caller, &approval) {
        let part = external::part(context, caller.tenant(), &approval).await?;
        return Ok(ApprovalDetail {
            approval: external::view_of(part.clone(), &approval),
            proposal: None,
            part: Some(part),
            standing,
            outcome: None,
        });
    }
    let mut proposal =
        context.ledger.proposal(&approval).await.map_err(|error| ledger_refusal(&error))?;
    // What is shown is masked; the digests cover the real values.
    proposal.call.args = proposal.evidence.preview.as_object().cloned().unwrap_or_default();
    // What came into the run's context since is what it went back to them for.
    proposal.evidence.taint.extend(&approval.taint);
    let record = context.ledger.store().effect(approval.record_id).await;
    let record = record.map_err(|error| ledger_refusal(&error.into()))?;
    // The key may have been taken by a later call since.
    let record = record.filter(|record| record.call_id == approval.call_id);
    let state = outcome::of(&approval, record.as_ref());
    let outcome = match record {
        Some(record) => {
            let may_resolve = operator::must_be_operator(context, caller).is_ok();
            let preview = &proposal.evidence.preview;
            Some(outcome_of(context, &approval, &record, preview, may_resolve).await)
        }
        None => None,
    };
    Ok(ApprovalDetail {
        approval: ApprovalView {
            unreachable: context.active().ports.is_unreachable(&approval),
            ..people::view_of(&approval, state)
        },
        proposal: Some(proposal),
        part: None,
        standing,
        outcome,
    })
}

/// What became of the call, with its result as it is kept: anyone who may see what was approved may see what came of it. Whatever they were
/// not shown of the arguments is not shown in the result either, also once the tool is another one, or gone.
async fn outcome_of(
    context: &Context,
    approval: &ApprovalRecord,
    record: &EffectRecord,
    preview: &Value,
    may_resolve: bool,
) -> OutcomeView {
    if record.state.is_open() || watch::is_for_the_time_being(&record.state) {
        // Anyone who looks at it is told what becomes of it, wherever it runs.
        context.desk.watch.begin(approval, !record.state.is_open());
    }
    let mut output = None;
    if let Some(digest) = record.state.result() {
        // What retention has deleted is not shown any more; nor is a result of which nobody can tell what in it is masked.
        let kept = context.ledger.result(record, digest).await.ok();
        let parked = context.ledger.parked(record).await.ok();
        output = kept.zip(parked).map(|(result, parked)| {
            let mut shown = result.output;
            let args = Value::Object(parked.envelope.args);
            masking::mask(&mut shown, &masking::hidden_texts(preview, &args));
            shown
        });
        output = output.filter(|output| !output.is_null());
    }
    OutcomeView {
        record_id: record.record_id,
        state: record.state.name().to_owned(),
        code: record.state.code(),
        output,
        updated_at: record.updated_at,
        may_resolve: may_resolve && matches!(record.state, EffectState::Indeterminate { .. }),
    }
}

/// What the caller may do with an approval, as policy sees it now.
pub(crate) fn standing_of(
    context: &Context,
    caller: &VerifiedCaller,
    approval: &ApprovalRecord,
) -> ReviewStanding {
    let now = context.ledger.store().now();
    let over = approval.state != ApprovalState::Pending || now >= approval.expires_at;
    let may = |action| {
        let asked = !over && reviewer::is_person(caller);
        asked.then(|| reviewer::capacity(context, caller, approval, action).ok()).flatten()
    };
    let approves = may(ReviewAction::Approve);
    let is_external = external::is_external(caller, approval);
    let fresh = reviewer::needs_fresh_auth(approval.requirement.fresh_auth_ms, caller, now);
    let freezes = if over { Vec::new() } else { freezes::of(context, caller, approval) };
    let why_not = approves.is_none().then(|| why_not(context, caller, approval, now));
    ReviewStanding {
        may_approve: approves.is_some(),
        may_deny: may(ReviewAction::Deny).is_some(),
        may_edit: may(ReviewAction::Edit).is_some(),
        may_withdraw: matches!(approval.state, ApprovalState::Pending | ApprovalState::Approved)
            && reviewer::may_withdraw(context, caller, approval).is_ok(),
        needs_fresh_auth: approves.is_none()
            && fresh
            && is_ready_but_stale(context, caller, approval),
        why_not,
        stands_for: approves.as_ref().and_then(|capacity| capacity.stands_for.clone()),
        // Whether others still have to agree is the asking tenant's own.
        completes: !is_external
            && !freezes.iter().any(|freeze| freeze.after_asking)
            && approves.as_ref().is_some_and(|capacity| completes(caller, capacity, approval, now)),
        progress: external::progress_for(caller, approval),
        next_escalation: if is_external {
            external::next_escalation(approval, caller.tenant())
        } else {
            next_escalation(approval)
        },
        freezes,
        grantable: approves.is_some() && !is_external && !approval.requirement.once_only,
    }
}

/// Whether nothing but an old sign-in keeps the caller from deciding.
fn is_ready_but_stale(
    context: &Context,
    caller: &VerifiedCaller,
    approval: &ApprovalRecord,
) -> bool {
    let lenient = ApprovalRecord {
        requirement: placet_types::approval::Requirement {
            fresh_auth_ms: None,
            ..approval.requirement.clone()
        },
        ..approval.clone()
    };
    approval.state == ApprovalState::Pending
        && reviewer::is_person(caller)
        && reviewer::capacity(context, caller, &lenient, ReviewAction::Approve).is_ok()
}

fn completes(
    caller: &VerifiedCaller,
    capacity: &Capacity,
    approval: &ApprovalRecord,
    now: Timestamp,
) -> bool {
    let vote = vote_of(caller, capacity, VoteChoice::Approve, "", approval.proposal, now);
    approval.cast(vote, now).is_ok_and(|next| next.state == ApprovalState::Approved)
}

fn next_escalation(approval: &ApprovalRecord) -> Option<NextEscalation> {
    let at = approval.escalation_due()?;
    let next = usize::try_from(approval.escalated).ok()?;
    let escalation = approval.requirement.escalations.get(next)?;
    Some(NextEscalation { at, group: escalation.group.clone() })
}

/// Why somebody may not agree, in words.
pub(crate) fn why_not(
    context: &Context,
    caller: &VerifiedCaller,
    approval: &ApprovalRecord,
    now: Timestamp,
) -> String {
    if approval.state != ApprovalState::Pending {
        return format!("it is {} already: nothing is left to decide", approval.state.name());
    }
    if now >= approval.expires_at {
        return "it has expired: nothing is left to decide".to_owned();
    }
    if !reviewer::is_person(caller) {
        return "only people decide, in their own name".to_owned();
    }
    let own = reviewer::voice_of(caller, approval.chain.tenant());
    let person = &caller.actor.principal().id;
    if let Some(vote) = approval.standing_votes().find(|vote| {
        vote.shown_digest == approval.proposal && vote.voices().any(|voice| voice == own)
    }) {
        return if vote.approver == *person {
            "you have decided on this already".to_owned()
        } else {
            format!("{} has decided on this already, in your place", vote.approver)
        };
    }
    if own.tenant.is_none() && approval.authors().any(|author| author == person) {
        return "you wrote these arguments: somebody else has to decide on them".to_owned();
    }
    let directory = &context.active().directory;
    let agent = directory.agent(approval.chain.tenant(), &approval.chain.actor.id);
    let agent = agent.filter(|_| own.tenant.is_none());
    if agent.is_some_and(|agent| agent.owner == *person) {
        return "you answer for the agent that asks: somebody else has to decide".to_owned();
    }
    let user = approval.chain.on_behalf_of.as_ref().filter(|_| own.tenant.is_none());
    if user.is_some_and(|user| user.id == *person) {
        return "the call is made for you: somebody else has to decide".to_owned();
    }
    let entry = directory.user(caller.tenant(), person);
    if entry.is_some_and(|entry| !entry.active) {
        return "your account is not active".to_owned();
    }
    let mut asked = approval.asked();
    // Whom else it asks is not an external approver's to know.
    asked.retain(|group| own.tenant.is_none() || group.external_tenant() == own.tenant);
    let groups = reviewer::groups_of(context, caller);
    let is_asked = asked.iter().any(|group| group.has(own.tenant, &groups))
        || reviewer::duties(context, caller)
            .iter()
            .any(|duty| asked.iter().any(|group| group.has(own.tenant, &duty.groups)));
    if !is_asked {
        let names: Vec<String> = asked.iter().map(ToString::to_string).collect();
        return format!("you are in none of the groups that are asked: {}", names.join(", "));
    }
    let fresh_ms = approval.requirement.fresh_auth_ms;
    if reviewer::needs_fresh_auth(fresh_ms, caller, now) {
        let minutes = fresh_ms.unwrap_or(0).div_ceil(60_000);
        return format!("sign in again: this asks for a sign-in at most {minutes} minutes ago");
    }
    "the policies do not let you decide on this".to_owned()
}
