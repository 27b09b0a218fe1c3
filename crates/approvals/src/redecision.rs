//! Held calls are decided again when policies, contracts or the directory have changed since, and when a freeze has ended.
//!
//! Owns the round over held calls. A call that would now be denied becomes void; one that now asks other people goes to them, with the
//! votes that still count; one that needs no approval any more runs. Invariant: nothing is dispatched from here: what is approved passes
//! the gate again, which decides finally.

use std::{sync::Arc, time::Duration};

use placet_ledger::{
    approval::{ApprovalRecord, ApprovalState, Ballot, Tally},
    audit::{AuditEvent, AuditKind},
    ledger::LedgerError,
    record::EffectRecord,
    store::StoreError,
};
use placet_policy::decision::{Decision, DenialKind};
use placet_types::{approval::Requirement, ids::ApprovalId};

use crate::{
    audit,
    calls::{HeldCall, Redecided, Redecision, Undecided},
    service::Approvals,
};

/// How many approvals are taken from the index at once.
const PAGE: usize = 500;
/// How long a round waits for the directives in force to be read.
const PATIENCE: Duration = Duration::from_secs(10);

impl Approvals {
    /// Decides every held call once.
    pub async fn decide_all_again(self: &Arc<Self>) {
        if let Err(refusal) = self.must_be_current(PATIENCE).await {
            tracing::warn!(%refusal, "held calls are not decided again now");
            return;
        }
        let mut after = None;
        loop {
            let page = self.pending.page_after(after, PAGE);
            let Some((last, _)) = page.last() else { return };
            after = Some(*last);
            for (_, approval_id) in page {
                if self.node.is_stopping() || self.node.health().cannot_decide().is_some() {
                    return;
                }
                // Boxed: deciding needs much of the stack.
                Box::pin(self.decide_one_again(&approval_id)).await;
            }
            tokio::task::yield_now().await;
        }
    }

    async fn decide_one_again(&self, approval_id: &ApprovalId) {
        let Ok(Some((approval, record))) = self.open(approval_id).await else { return };
        let Ok(proposal) = self.ledger.proposal(&approval).await else { return };
        let policies = self.policies();
        let target = policies.catalog.resolve(approval.chain.tenant(), &approval.capability);
        let changed = match target {
            None => Some("the tool is not offered any more"),
            Some(target) if target.contract.digest != proposal.evidence.contract_digest => {
                Some("the contract is not the one it was held under")
            }
            Some(_) => None,
        };
        if let Some(reason) = changed {
            return self.void(&approval, &record, reason).await;
        }
        // An approved call passes the gate before it runs.
        if approval.state == ApprovalState::Pending {
            self.redecide(&approval, &record).await;
        }
    }

    async fn redecide(&self, approval: &ApprovalRecord, record: &EffectRecord) {
        let Ok(parked) = self.ledger.parked(record).await else { return };
        let Some(calls) = self.calls() else { return };
        let held = HeldCall { approval, record, parked: &parked, args: None };
        let decided = match calls.decide(&held).await {
            Ok(decided) => decided,
            Err(Undecided::Void(reason)) => return self.void(approval, record, &reason).await,
            // Left as it is: the gate decides once it is approved.
            Err(Undecided::Refused(_)) => return,
        };
        let event = |note| event_of(approval, record, &decided.decision, note);
        match &decided.verdict {
            Redecision::Permitted => {
                let event = event("the active policies ask nobody for this call any more");
                self.recorded(approval, self.ledger.release_approval(approval, event).await).await;
            }
            Redecision::Held(requirement) => {
                let event = event(
                    "the active policies ask other people, or somebody who agreed may not agree any more",
                );
                self.ask(approval, record, requirement, &decided, event).await;
            }
            Redecision::Denied(
                DenialKind::Policy | DenialKind::NobodyToAsk | DenialKind::Ceiling,
                _,
            ) => {
                let reason = "the active policies deny the call, no matter who agrees";
                self.void_by(approval, record, reason, Some(&decided.decision)).await;
            }
            Redecision::Denied(..) => {}
        }
    }

    /// Applies the new `requirement` of the active policies.
    async fn ask(
        &self,
        approval: &ApprovalRecord,
        record: &EffectRecord,
        requirement: &Requirement,
        decided: &Redecided,
        event: AuditEvent,
    ) {
        // What an edit required in addition stays required.
        let edited = !approval.edits.is_empty();
        let requirement = if edited {
            approval.requirement.joined(requirement.clone())
        } else {
            requirement.clone()
        };
        let (policy, now) = (&self.policies().policy, self.ledger.store().now());
        let lapsed = policy.lapsed(&approval.chain, &requirement, &approval.votes, now);
        if asks_the_same(&requirement, &approval.requirement) && lapsed.is_subset(&approval.lapsed)
        {
            return;
        }
        if let Some(reason) = never_again(approval, &requirement) {
            return self.void_by(approval, record, reason, Some(&decided.decision)).await;
        }
        let taint = &decided.evidence.taint;
        let recounted =
            self.ledger.recount_approval(approval, requirement, &lapsed, taint, event).await;
        self.recorded(approval, recounted).await;
    }

    async fn recorded(&self, approval: &ApprovalRecord, next: Result<ApprovalRecord, LedgerError>) {
        match next {
            Ok(next) => self.decided(&next).await,
            // A decision, or another node, was faster.
            Err(
                LedgerError::Store(StoreError::Conflict)
                | LedgerError::Vote(_)
                | LedgerError::WrongState(_),
            ) => {}
            Err(error) => {
                let approval_id = &approval.approval_id;
                tracing::warn!(%error, %approval_id, "a held call was not decided again");
            }
        }
    }
}

fn event_of(
    approval: &ApprovalRecord,
    record: &EffectRecord,
    decision: &Decision,
    note: &str,
) -> AuditEvent {
    let mut event = audit::of_end(approval, record);
    event.kind = AuditKind::Held;
    event.decision = serde_json::to_value(decision).ok();
    event.note = Some(note.to_owned());
    event
}

/// Why an approval cannot go back to its approvers under another requirement.
pub fn never_again(approval: &ApprovalRecord, now: &Requirement) -> Option<&'static str> {
    // External approvers were shown whom it asked and why; if that changes, they must be asked again.
    if !now.external_tenants().is_empty() || !approval.external_tenants.is_empty() {
        return Some("other tenants would have to be asked again");
    }
    let counted = Ballot { requirement: now, ..approval.ballot() }.tally();
    (counted == Tally::Denied)
        .then_some("as many people have denied it as the active policies need for a denial")
}

/// Whether two requirements ask the same people for the same, whatever their reasons and the order of escalations.
fn asks_the_same(one: &Requirement, other: &Requirement) -> bool {
    let asked = |requirement: &Requirement| {
        let mut asked = Requirement { reasons: Vec::new(), ..requirement.clone() };
        asked.escalations.sort_by_key(|later| (later.after_ms, later.group.clone()));
        asked
    };
    asked(one) == asked(other)
}
