//! One approval with all that its approvers are shown: the frozen evidence, what the caller may do, what became of the call.
//!
//! Owns the words that tell a caller why they cannot decide. Invariant: nothing that a schema marks sensitive is shown, neither in the
//! arguments nor in the result.

use serde_json::Value;

use placet_identity::VerifiedCaller;
use placet_ledger::{
    approval::{ApprovalRecord, ApprovalState},
    record::{EffectRecord, EffectState},
};
use placet_policy::review::ReviewAction;
use placet_types::{approval::VoteChoice, error::Refusal, ids::ApprovalId};

use crate::{
    endings::is_provisional,
    entries::freezes_of,
    listing, masking, outcome, presentation,
    reviewer::{self, Capacity, is_external},
    service::Approvals,
    views::{ApprovalDetail, OutcomeView, ReviewStanding},
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
            let part = presentation::part(self, caller.tenant(), &approval).await?;
            return Ok(ApprovalDetail {
                approval: presentation::view_of_part(part.clone(), &approval),
                proposal: None,
                part: Some(part),
                standing,
                outcome: None,
            });
        }
        let mut proposal = presentation::proposal(self, &approval).await?;
        if let Some(proposal) = &mut proposal {
            // The values shown are masked; the digests cover the real ones.
            proposal.call.args = proposal.evidence.preview.as_object().cloned().unwrap_or_default();
            // Taint that entered the run's context since is why it went back to them.
            proposal.evidence.taint.extend(&approval.taint);
            if !reviewer::is_person(caller) {
                proposal.evidence.caller = None;
                proposal.requirement.reasons.clear();
                proposal.evidence.edited.iter_mut().for_each(|edited| edited.reason.clear());
                proposal
                    .evidence
                    .sent_before
                    .iter_mut()
                    .for_each(|before| before.operators.clear());
            }
        }
        // A later call may have taken the key since.
        let record = self.read_record(&approval).await?;
        let record = record.filter(|record| record.call_id == approval.call_id);
        let state = outcome::of(&approval, record.as_ref());
        let outcome = match record {
            Some(record) => {
                let may_resolve = reviewer::is_operator(self, caller);
                // Without the preview, everything is masked.
                let preview = proposal.as_ref().map(|proposal| &proposal.evidence.preview);
                let preview = preview.unwrap_or(&Value::Null);
                Some(outcome_of(self, &approval, &record, preview, may_resolve).await)
            }
            None => None,
        };
        Ok(ApprovalDetail {
            approval: presentation::own_view(self, caller, &approval, state),
            proposal,
            part: None,
            standing,
            outcome,
        })
    }
}

/// What became of the call, with its recorded result: anyone who may see what was approved may see the result. Arguments that were masked
/// are masked in the result too, even after the tool has changed or is gone.
async fn outcome_of(
    service: &Approvals,
    approval: &ApprovalRecord,
    record: &EffectRecord,
    preview: &Value,
    may_resolve: bool,
) -> OutcomeView {
    if record.state.is_open() || is_provisional(&record.state) {
        // Followed from now on, so that viewers are notified of its end wherever it runs.
        service.sent_calls.begin(approval, !record.state.is_open());
    }
    let (mut output, mut message) = (None, None);
    if let Some(digest) = record.state.result() {
        // Not shown: what retention has deleted, and a result for which it is unknown what must be masked.
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
    let resolved_by = if let EffectState::Succeeded { resolved_by, .. }
    | EffectState::FailedFinal { resolved_by, .. } = &record.state
    {
        resolved_by.as_ref()
    } else {
        None
    };
    OutcomeView {
        record_id: record.record_id,
        state: record.state.name().to_owned(),
        code: record.state.code(),
        resolved_by: resolved_by.map(ToString::to_string),
        message,
        output,
        updated_at: record.updated_at,
        may_resolve: may_resolve && matches!(record.state, EffectState::Indeterminate { .. }),
    }
}

/// What the caller may do with an approval, according to policy now.
pub(crate) fn standing_of(
    service: &Approvals,
    caller: &VerifiedCaller,
    approval: &ApprovalRecord,
) -> ReviewStanding {
    let now = service.ledger.store().now();
    let over = approval.state != ApprovalState::Pending || now >= approval.expires_at;
    let may = |action| {
        let is_asked = !over && reviewer::is_person(caller);
        is_asked.then(|| reviewer::capacity(service, caller, approval, action))
    };
    let answer = may(ReviewAction::Approve);
    let needs_fresh_auth =
        answer.as_ref().is_some_and(|answer| matches!(answer, Err(no) if no.needs_fresh_auth));
    let approves = answer.and_then(Result::ok);
    let is_allowed = |action| may(action).is_some_and(|answer| answer.is_ok());
    let external = is_external(caller, approval);
    // A lockdown holds up an approved call too.
    let has_ended = !approval.state.is_open() || now >= approval.expires_at;
    let freezes = if has_ended { Vec::new() } else { freezes_of(service, caller, approval) };
    let why_not =
        approves.is_none().then(|| reviewer::why_not(service, caller, approval, needs_fresh_auth));
    ReviewStanding {
        may_approve: approves.is_some(),
        may_deny: is_allowed(ReviewAction::Deny),
        may_edit: is_allowed(ReviewAction::Edit),
        may_withdraw: approval.state.is_open()
            && reviewer::may_withdraw(service, caller, approval).is_ok(),
        needs_fresh_auth,
        why_not,
        stands_for: approves.as_ref().and_then(|capacity| capacity.stands_for.clone()),
        // Whether others still have to agree is known only to the asking tenant.
        completes: !external
            && !freezes.iter().any(|freeze| freeze.after_asking)
            && approves
                .as_ref()
                .is_some_and(|capacity| completes(service, caller, capacity, approval)),
        progress: presentation::progress_for(caller, approval),
        next_escalation: presentation::next_escalation(caller, approval),
        freezes,
        grantable: approves.is_some() && !external && !approval.requirement.once_only,
    }
}

fn completes(
    service: &Approvals,
    caller: &VerifiedCaller,
    capacity: &Capacity,
    approval: &ApprovalRecord,
) -> bool {
    let vote = service.vote_of(caller, capacity, VoteChoice::Approve, "", approval.proposal);
    let next = approval.cast(vote, service.ledger.store().now());
    next.is_ok_and(|next| next.state == ApprovalState::Approved)
}
