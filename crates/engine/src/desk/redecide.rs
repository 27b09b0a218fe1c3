//! Held calls are decided again when policies, contracts or the directory are others than those they were held under, and when a freeze is
//! over.
//!
//! Owns the look through what waits. A call that would be denied now ends as void; one that asks other people goes to them, with the votes
//! that still count; one that asks nobody any more runs. Invariant: nothing is dispatched from here: what is approved passes the gate
//! again, which has the last word.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use placet_ledger::{
    approval::{ApprovalRecord, ApprovalState},
    audit::{AuditEvent, AuditKind},
    ledger::LedgerError,
    record::EffectRecord,
};
use placet_policy::{
    decision::{Decision, DenialKind},
    verdict::Verdict,
};
use placet_types::{approval::Requirement, ids::ApprovalId, taint::Taint};

use super::{decide, drift, edit, resume};
use crate::{
    call::Brokered,
    context::Context,
    stages::{
        broker,
        facts::{self, Circumstances},
        gate, references, refuse,
    },
};

/// How many approvals are read from the board at once.
const PAGE: usize = 500;
/// How long a round waits for what is in force in the approval service.
const PATIENCE: Duration = Duration::from_secs(10);

/// Looks once through everything that waits.
pub(crate) async fn round(context: &Arc<Context>) {
    if let Err(refusal) = context.desk.must_be_current(context, PATIENCE).await {
        tracing::warn!(%refusal, "held calls are not decided again now");
        return;
    }
    let mut after = None;
    loop {
        let page = context.desk.board.page_after(after, PAGE);
        let Some((last, _)) = page.last() else { return };
        after = Some(*last);
        for (_, approval_id) in page {
            if context.stopping() || context.standing.cannot_decide().is_some() {
                return;
            }
            // A future of its own on the heap: deciding needs much of the stack.
            Box::pin(look_at(context, &approval_id)).await;
        }
        tokio::task::yield_now().await;
    }
}

async fn look_at(context: &Arc<Context>, approval_id: &ApprovalId) {
    let Ok(Some((approval, record))) = drift::read(context, approval_id).await else { return };
    let Ok(proposal) = context.ledger.proposal(&approval).await else { return };
    // The directory may say something else about who asks.
    context.desk.moved(context, &approval);
    let target = context.active().catalog.resolve(approval.chain.tenant(), &approval.capability);
    let changed = match target {
        None => Some("the tool is not offered any more"),
        Some(target) if target.contract.digest != proposal.evidence.contract_digest => {
            Some("the contract is not the one it was held under")
        }
        Some(_) => None,
    };
    if let Some(reason) = changed {
        return drift::end(context, approval_id, reason).await;
    }
    // An approved call passes the gate before it runs.
    if approval.state == ApprovalState::Pending {
        redecide(context, approval, record).await;
    }
}

async fn redecide(context: &Arc<Context>, approval: ApprovalRecord, record: EffectRecord) {
    let Ok(parked) = context.ledger.parked(&record).await else { return };
    let trace_id = parked.envelope.trace_id.clone();
    let built = match resume::restore(context, &approval, &record, parked, None) {
        Ok(built) => built,
        Err(reason) => return resume::void(context, &approval, &record, &reason).await,
    };
    // What cannot be decided now is left as it is: the gate decides it when people have agreed.
    let Ok(mut stage) = broker::broker(context, &trace_id, built) else { return };
    let Ok(run) = edit::run_of(context, &stage).await else { return };
    stage.taint.clone_from(&run.taint);
    if references::resolve(context, &mut stage).await.is_err() {
        return;
    }
    let circumstances = Circumstances { run: &run, record: Some(record.record_id), approval: None };
    let Ok(decided) = facts::decide(context, &stage, &circumstances) else { return };
    let held = Held { context, approval, record, stage };
    match decided.verdict {
        Verdict::Permit(permit) => held.release(permit.decision()).await,
        Verdict::Hold(hold) => held.ask(hold.requirement, &hold.decision).await,
        Verdict::Deny(denial)
            if matches!(
                denial.kind,
                DenialKind::Policy | DenialKind::NobodyToAsk | DenialKind::Ceiling
            ) =>
        {
            let reason = "the active policies deny the call, no matter who agrees";
            resume::void(context, &held.approval, &held.record, reason).await;
        }
        Verdict::Deny(_) => {}
    }
}

/// A pending call, as it would run now.
struct Held<'a> {
    context: &'a Arc<Context>,
    approval: ApprovalRecord,
    record: EffectRecord,
    stage: Brokered,
}

impl Held<'_> {
    /// The active policies ask nobody.
    async fn release(&self, decision: &Decision) {
        let event = self.event(decision, "the active policies ask nobody for this call any more");
        let released = self.context.ledger.release_approval(&self.approval, event).await;
        self.moved(released).await;
    }

    /// The active policies ask for `requirement`.
    async fn ask(&self, requirement: Requirement, decision: &Decision) {
        let Self { context, approval, .. } = self;
        // What an edit asks for besides stays asked for.
        let edited = !approval.edits.is_empty();
        let requirement =
            if edited { approval.requirement.joined(requirement) } else { requirement };
        if asks_the_same(&requirement, &approval.requirement) {
            return;
        }
        if let Some(reason) = gate::never_again(approval, &requirement) {
            return resume::void(context, approval, &self.record, reason).await;
        }
        let now = context.ledger.store().now();
        let policy = &self.stage.built.active.policy;
        let lapsed: BTreeSet<usize> =
            policy.lapsed(&approval.chain, &requirement, &approval.votes, now);
        let taint: &BTreeSet<Taint> = &self.stage.taint;
        let event = self.event(decision, "the active policies ask other people");
        let recounted =
            context.ledger.recount_approval(approval, requirement, &lapsed, taint, event);
        self.moved(recounted.await).await;
    }

    fn event(&self, decision: &Decision, note: &str) -> AuditEvent {
        let mut event = resume::ending(&self.approval, &self.record);
        event.kind = AuditKind::Held;
        event.decision = refuse::decision_json(decision);
        event.note = Some(note.to_owned());
        event
    }

    async fn moved(&self, next: Result<ApprovalRecord, LedgerError>) {
        match next {
            Ok(next) => decide::after_vote(self.context, &next).await,
            // Somebody decided meanwhile, or another node did this.
            Err(error) => {
                let approval_id = &self.approval.approval_id;
                tracing::info!(%error, %approval_id, "a held call was not decided again");
            }
        }
    }
}

/// Whether two requirements ask the same people for the same, whatever policies say so and in which order they are asked later.
fn asks_the_same(one: &Requirement, other: &Requirement) -> bool {
    let asked = |requirement: &Requirement| {
        let mut asked = Requirement { reasons: Vec::new(), ..requirement.clone() };
        asked.escalations.sort_by_key(|later| (later.after_ms, later.group.clone()));
        asked
    };
    asked(one) == asked(other)
}
