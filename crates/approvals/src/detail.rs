//! One approval with everything its approvers are shown: the frozen evidence, what the caller may do, what became of the call.
//!
//! Owns the words in which somebody is told why they cannot decide. Invariant: nothing that a schema marks sensitive leaves here, neither
//! in the arguments nor in the result.

use serde_json::Value;

use placet_identity::VerifiedCaller;
use placet_ledger::{
    approval::{ApprovalRecord, ApprovalState},
    record::{EffectRecord, EffectState},
    refusal::ledger_refusal,
};
use placet_policy::review::ReviewAction;
use placet_types::{approval::VoteChoice, clock::Timestamp, error::Refusal, ids::ApprovalId};

use crate::{
    ballot::vote_of,
    completion::is_provisional,
    external, freezes, listing, masking, outcome, presentation,
    reviewer::{self, Capacity, is_external},
    service::Approvals,
    views::{ApprovalDetail, ApprovalView, NextEscalation, OutcomeView, ReviewStanding},
};

impl Approvals {
    /// One approval with what its approvers are shown.
    ///
    /// # Errors
    /// [`ErrorCode::NotFound`](placet_types::error::ErrorCode::NotFound) for approvals that the caller may not see.
    pub async fn approval(
        &self,
        caller: &VerifiedCaller,
        approval_id: &ApprovalId,
    ) -> Result<ApprovalDetail, Refusal> {
        let approval = listing::visible(self, caller, approval_id).await?;
        let standing = standing_of(self, caller, &approval);
        if is_external(caller, &approval) {
            let part = external::part(self, caller.tenant(), &approval).await?;
            return Ok(ApprovalDetail {
                approval: external::view_of(part.clone(), &approval),
                proposal: None,
                part: Some(part),
                standing,
                outcome: None,
            });
        }
        let mut proposal =
            self.ledger.proposal(&approval).await.map_err(|error| ledger_refusal(&error))?;
        // What is shown is masked; the digests cover the real values.
        proposal.call.args = proposal.evidence.preview.as_object().cloned().unwrap_or_default();
        // What came into the run's self since is what it went back to them for.
        proposal.evidence.taint.extend(&approval.taint);
        let record = self.ledger.store().effect(approval.record_id).await;
        let record = record.map_err(|error| ledger_refusal(&error.into()))?;
        // The key may have been taken by a later call since.
        let record = record.filter(|record| record.call_id == approval.call_id);
        let state = outcome::of(&approval, record.as_ref());
        let outcome = match record {
            Some(record) => {
                let may_resolve = reviewer::is_operator(self, caller);
                let preview = &proposal.evidence.preview;
                Some(outcome_of(self, &approval, &record, preview, may_resolve).await)
            }
            None => None,
        };
        Ok(ApprovalDetail {
            approval: ApprovalView {
                unreachable: self.is_unreachable(&approval),
                ..presentation::view_of(&approval, state)
            },
            proposal: Some(proposal),
            part: None,
            standing,
            outcome,
        })
    }
}

/// What became of the call, with its result as it is kept: anyone who may see what was approved may see what came of it. Whatever they were
/// not shown of the arguments is not shown in the result either, also once the tool is another one, or gone.
async fn outcome_of(
    service: &Approvals,
    approval: &ApprovalRecord,
    record: &EffectRecord,
    preview: &Value,
    may_resolve: bool,
) -> OutcomeView {
    if record.state.is_open() || is_provisional(&record.state) {
        // Anyone who looks at it is told what becomes of it, wherever it runs.
        service.sent_calls.begin(approval, !record.state.is_open());
    }
    let (mut output, mut message) = (None, None);
    if let Some(digest) = record.state.result() {
        // What retention has deleted is not shown any more; nor is a result of which nobody can tell what in it is masked.
        let kept = service.ledger.result(record, digest).await.ok();
        let parked = service.ledger.parked(record).await.ok();
        if let Some((result, parked)) = kept.zip(parked) {
            let hidden = masking::hidden_texts(preview, &Value::Object(parked.envelope.args));
            let mut shown = result.output;
            masking::mask(&mut shown, &hidden);
            output = Some(shown).filter(|output| !output.is_null());
            message = result.error.map(|error| masking::masked(error.message, &hidden));
        }
    }
    OutcomeView {
        record_id: record.record_id,
        state: record.state.name().to_owned(),
        code: record.state.code(),
        message,
        output,
        updated_at: record.updated_at,
        may_resolve: may_resolve && matches!(record.state, EffectState::Indeterminate { .. }),
    }
}

/// What the caller may do with an approval, as policy sees it now.
pub(crate) fn standing_of(
    service: &Approvals,
    caller: &VerifiedCaller,
    approval: &ApprovalRecord,
) -> ReviewStanding {
    let now = service.ledger.store().now();
    let over = approval.state != ApprovalState::Pending || now >= approval.expires_at;
    let may = |action| {
        let asked = !over && reviewer::is_person(caller);
        asked.then(|| reviewer::capacity(service, caller, approval, action).ok()).flatten()
    };
    let approves = may(ReviewAction::Approve);
    let external = is_external(caller, approval);
    let fresh = reviewer::needs_fresh_auth(approval.requirement.fresh_auth_ms, caller, now);
    let freezes = if over { Vec::new() } else { freezes::of(service, caller, approval) };
    let why_not = approves.is_none().then(|| reviewer::why_not(service, caller, approval, now));
    ReviewStanding {
        may_approve: approves.is_some(),
        may_deny: may(ReviewAction::Deny).is_some(),
        may_edit: may(ReviewAction::Edit).is_some(),
        may_withdraw: approval.state.is_open()
            && reviewer::may_withdraw(service, caller, approval).is_ok(),
        needs_fresh_auth: approves.is_none()
            && fresh
            && is_ready_but_stale(service, caller, approval),
        why_not,
        stands_for: approves.as_ref().and_then(|capacity| capacity.stands_for.clone()),
        // Whether others still have to agree is the asking tenant's own.
        completes: !external
            && !freezes.iter().any(|freeze| freeze.after_asking)
            && approves.as_ref().is_some_and(|capacity| completes(caller, capacity, approval, now)),
        progress: external::progress_for(caller, approval),
        next_escalation: if external {
            external::next_escalation(approval, caller.tenant())
        } else {
            next_escalation(approval)
        },
        freezes,
        grantable: approves.is_some() && !external && !approval.requirement.once_only,
    }
}

/// Whether nothing but an old sign-in keeps the caller from deciding.
fn is_ready_but_stale(
    service: &Approvals,
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
        && reviewer::capacity(service, caller, &lenient, ReviewAction::Approve).is_ok()
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
