//! Held calls as the approval service asks about them: what the engine does when an approval moves, and how a held call would be decided now.
//!
//! Owns the way back from approvals to calls. Sends nothing: an approved call is taken up by the approvals actor and passes the gate again.

use async_trait::async_trait;
use serde_json::Value;

use placet_approvals::calls::{Calls, HeldCall, Redecided, Redecision, Undecided};
use placet_ledger::{
    approval::ApprovalRecord,
    record::EffectRecord,
    refusal::{internal, ledger_refusal},
};
use placet_policy::verdict::Verdict;
use placet_types::{
    ids::{ApprovalId, TenantId},
    json::canonical_digest,
};

use crate::{
    call::Built,
    context::Context,
    outcome::recorded,
    stages::{
        broker,
        facts::{self, Circumstances},
        hold, run,
    },
};

#[async_trait]
impl Calls for Context {
    async fn approved(&self, approval: &ApprovalRecord) {
        if let Ok(Some(record)) = self.ledger.store().effect(approval.record_id).await {
            let standing = recorded::answer(self, &record, false).await;
            self.registry.publish(&approval.call_id, standing);
        }
        self.routes.approved(&approval.approval_id);
    }

    async fn ended(&self, approval: &ApprovalRecord, record: &EffectRecord) {
        let answer = if record.unknown.is_some() {
            // It was sent before: its end is what is known of that attempt.
            recorded::now(self, record).await
        } else {
            recorded::refused(self, record, recorded::of_approval(approval)).await
        };
        self.registry.publish(&record.call_id, answer);
    }

    fn over(&self, approval: &ApprovalRecord) {
        // No more tokens will be exchanged for this call.
        self.tokens.forget(approval.record_id);
        self.routes.approval_over(&approval.approval_id);
    }

    fn retry_later(&self, approval_id: &ApprovalId) {
        self.routes.retry_later(approval_id);
    }

    fn is_unreachable(&self, approval: &ApprovalRecord) -> bool {
        self.current.active().ports.is_unreachable(approval)
    }

    fn has_issuer(&self, tenant: &TenantId, issuer: &str) -> bool {
        self.verifier.has_issuer(tenant, issuer)
    }

    fn revoked(&self) {
        self.revoking.send_replace(());
        self.tokens
            .drop_revoked(|tenant, tokens| self.credentials.broker.are_revoked(tenant, tokens));
    }

    async fn decide(&self, held: &HeldCall<'_>) -> Result<Redecided, Undecided> {
        let HeldCall { approval, record, parked, args } = *held;
        let (active, approval) = (self.current.active(), Some(approval.clone()));
        let mut built = Built::restored(active, record, approval, parked.clone(), None)
            .map_err(|reason| Undecided::Void(reason.to_owned()))?;
        if let Some(args) = args {
            built.args_digest = canonical_digest(&Value::Object(args.clone()));
            built.args.clone_from(args);
        }
        let decided = async {
            let mut stage = broker::broker(self, &parked.envelope.trace_id, built)?;
            let run = self.ledger.store().run(&run::key_of(&stage)).await;
            let run = run.map_err(|error| ledger_refusal(&error.into()))?;
            let run = run.ok_or_else(|| internal("a held call without its run"))?;
            stage.taint.clone_from(&run.taint);
            let circumstances =
                Circumstances { run: &run, record: Some(record.record_id), approval: None };
            let verdict = facts::decide(self, &stage, &circumstances)?.verdict;
            let decision = verdict.decision().clone();
            let evidence = hold::evidence_of(&stage, &decision, facts::budget_of(&run));
            let verdict = match verdict {
                Verdict::Permit(_) => Redecision::Permitted,
                Verdict::Hold(hold) => Redecision::Held(hold.requirement),
                Verdict::Deny(denial) => Redecision::Denied(denial.kind, denial.code),
            };
            Ok(Redecided { verdict, decision, binding: stage.binding, evidence })
        };
        decided.await.map_err(Undecided::Refused)
    }
}
