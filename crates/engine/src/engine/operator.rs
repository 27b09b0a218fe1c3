//! Operators: people who inspect the ledger, the tools and how calls went, and resolve unknown outcomes.
//!
//! Owns who that is (people of the tenant in the operators' group) and what they may do. A resolution needs evidence in words and is
//! kept with the operator's name.

use placet_approvals::reviewer;
use placet_identity::VerifiedCaller;
use placet_ledger::{
    audit::{AuditEvent, AuditKind},
    ledger::{Ledger, LedgerError, Outcome},
    record::{EffectRecord, EffectState, Rearm, Resolution},
    refusal::{known_state, ledger_refusal, lookup_refusal},
    store::{EffectQuery, StoreError},
};
use serde_json::Value;

use placet_types::{
    envelope::result::{Mutation, ResultStatus},
    error::{ErrorCode, Refusal},
    ids::{RecordId, RecordPlace, ToolCallId},
};

use super::Engine;
use crate::{
    outcome::{Outcomes, recorded::subject_of, resolve},
    rearm,
    report::{self, ReportRange, ReportView},
    result::shown_args,
    tool_states::{self, ToolStateView},
    views::{RearmRequest, RearmView, RecordView, ResolutionRequest, ResolvedOutcome},
};

/// The longest evidence, in bytes.
const EVIDENCE_BYTES_MAX: usize = 2_000;
/// How often a re-arm is tried again when the record moved meanwhile.
const REARM_TRIES: usize = 4;

impl Engine {
    /// One effect record, for its owner or an operator.
    ///
    /// # Errors
    /// [`ErrorCode::NotFound`] for records of others.
    pub async fn record(
        &self,
        caller: &VerifiedCaller,
        id: RecordId,
    ) -> Result<RecordView, Refusal> {
        let record = find(&self.context, caller, id).await?;
        Ok(view_of(&self.context, &record).await)
    }

    /// The effect records of the tenant, for operators.
    ///
    /// # Errors
    /// [`ErrorCode::PolicyDenied`] for everybody else.
    pub async fn records(
        &self,
        caller: &VerifiedCaller,
        state: Option<&str>,
        after: Option<RecordPlace>,
        limit: usize,
    ) -> Result<Vec<RecordView>, Refusal> {
        self.must_be_operator(caller)?;
        known_state(state, &EffectState::NAMES)?;
        let query = EffectQuery {
            tenant: Some(caller.tenant().clone()),
            state: state.map(str::to_owned),
            after,
            limit,
            ..EffectQuery::default()
        };
        let records = self
            .context
            .ledger
            .store()
            .effects(&query)
            .await
            .map_err(|error| ledger_refusal(&error.into()))?;
        Ok(records.iter().map(brief).collect())
    }

    /// Ends an unknown outcome, for operators.
    ///
    /// # Errors
    /// [`ErrorCode::PolicyDenied`] for everybody else; [`ErrorCode::ValidationError`] when the outcome is known.
    pub async fn resolve(
        &self,
        caller: &VerifiedCaller,
        id: RecordId,
        request: ResolutionRequest,
    ) -> Result<RecordView, Refusal> {
        self.must_be_operator(caller)?;
        check_evidence(&request.evidence)?;
        let context = &self.context;
        let record = find(context, caller, id).await?;
        if !matches!(record.state, EffectState::Indeterminate { .. }) {
            return Err(Refusal::new(
                ErrorCode::ValidationError,
                format!(
                    "the record is {}: only an indeterminate one can be resolved",
                    record.state.name()
                ),
            ));
        }
        let subject = subject_of(context, &record).await.map_err(|error| ledger_refusal(&error))?;
        let now = context.ledger.store().now();
        let (found, (outcome, result)) = match request.outcome {
            ResolvedOutcome::Happened => {
                let mut result = subject.result(ResultStatus::Succeeded, now);
                result.output = request.output;
                result.mutations.push(Mutation {
                    action: "write".to_owned(),
                    target: record.scope.capability.to_string(),
                });
                ("happened", (Outcome::Succeeded, result))
            }
            ResolvedOutcome::DidNotHappen => {
                let found = "an operator found that the effect did not happen";
                ("did not happen", resolve::did_not_happen(subject, found, now))
            }
        };
        let by = Resolution::Operator { operator: caller.actor.principal().id.clone() };
        let mut event = event_of(AuditKind::Resolved, caller, &record);
        event.note = Some(format!("{found}: {}", request.evidence));
        let resolved = resolve::with(context, &record, outcome, by, &result, event)
            .await
            .map_err(|error| ledger_refusal(&error))?;
        Ok(view_of(context, &resolved).await)
    }

    /// Asks for a call with an unknown outcome to be sent again, for operators. When enough of them agree the engine sends it under a new
    /// token, if policy still permits it.
    ///
    /// # Errors
    /// [`ErrorCode::PolicyDenied`] for everybody else; [`ErrorCode::ValidationError`] when the outcome is known, or the same person
    /// asks twice.
    pub async fn rearm(
        &self,
        caller: &VerifiedCaller,
        id: RecordId,
        request: RearmRequest,
    ) -> Result<RecordView, Refusal> {
        self.must_be_operator(caller)?;
        check_evidence(&request.evidence)?;
        let context = &self.context;
        for _ in 0..REARM_TRIES {
            let record = find(context, caller, id).await?;
            may_be_rearmed(&context.ledger, &record)?;
            let word = Rearm {
                operator: caller.actor.principal().id.clone(),
                evidence: request.evidence.clone(),
                at: context.ledger.store().now(),
            };
            let mut event = event_of(AuditKind::Rearmed, caller, &record);
            event.note = Some(request.evidence.clone());
            let two_people = context.settings.ledger.rearm_people != 1;
            match context.ledger.rearm(&record, word, two_people, event).await {
                Ok(next) => {
                    if matches!(next.state, EffectState::Rearmed { .. }) {
                        // Earlier answers about the previous arm no longer hold.
                        context.registry.forget(&next.call_id);
                        rearm::send(context, next.clone()).await;
                    }
                    return Ok(view_of(context, &next).await);
                }
                Err(LedgerError::Store(StoreError::Conflict)) => {}
                Err(error) => {
                    context.node.noticed(&error);
                    return Err(ledger_refusal(&error));
                }
            }
        }
        Err(Refusal::new(
            ErrorCode::InProgress,
            "others work on this record at this moment; look again",
        ))
    }

    /// The record of a call, for its owner, an auditor or an operator: the basis of a receipt.
    ///
    /// # Errors
    /// [`ErrorCode::NotFound`] for calls of others, and for those without a record.
    pub async fn settled(
        &self,
        caller: &VerifiedCaller,
        id: &ToolCallId,
    ) -> Result<EffectRecord, Refusal> {
        let found = self.context.ledger.store().effect_of_call(id).await;
        let record = found.map_err(|error| lookup_refusal(&error))?;
        let audits = |record: &EffectRecord| {
            record.scope.tenant == *caller.tenant()
                && reviewer::is_auditor(&self.context.approvals, caller)
        };
        let mine = record.filter(|record| may_see(&self.context, caller, record) || audits(record));
        mine.ok_or_else(|| Refusal::new(ErrorCode::NotFound, "there is no such call"))
    }

    /// Every tool of the contracts with its state, for operators. Asks connected servers whether their tools match the pins.
    ///
    /// # Errors
    /// [`ErrorCode::PolicyDenied`] for everybody else.
    pub async fn tool_states(
        &self,
        caller: &VerifiedCaller,
    ) -> Result<Vec<ToolStateView>, Refusal> {
        self.must_be_operator(caller)?;
        Ok(tool_states::of(&self.context, caller.tenant()).await)
    }

    /// How the calls of the tenant went in a range of time, for operators (TM-21).
    ///
    /// # Errors
    /// [`ErrorCode::PolicyDenied`] for everybody else; [`Refusal`] for a range that is not usable, and when the audit chain cannot be read.
    pub async fn report(
        &self,
        caller: &VerifiedCaller,
        range: ReportRange,
    ) -> Result<ReportView, Refusal> {
        self.must_be_operator(caller)?;
        report::of(&self.context, caller.tenant(), range).await
    }

    /// Refuses everyone but operators.
    pub(super) fn must_be_operator(&self, caller: &VerifiedCaller) -> Result<(), Refusal> {
        if reviewer::is_operator(&self.context.approvals, caller) {
            return Ok(());
        }
        Err(Refusal::new(
            ErrorCode::PolicyDenied,
            format!("only people in the group `{}` may do this", self.context.settings.operators),
        ))
    }
}

/// What an operator did, for the audit.
fn event_of(kind: AuditKind, caller: &VerifiedCaller, record: &EffectRecord) -> AuditEvent {
    let mut event = AuditEvent::new(kind);
    event.tenant = Some(caller.tenant().clone());
    event.call_id = Some(record.call_id.clone());
    event.run_id = Some(record.run_id.clone());
    event.capability = Some(record.scope.capability.clone());
    event.chain = Some(caller.chain());
    event.audiences = caller.several_audiences();
    event.record_id = Some(record.record_id);
    event
}

fn may_be_rearmed(ledger: &Ledger, record: &EffectRecord) -> Result<(), Refusal> {
    let refuse = |message: String| Err(Refusal::new(ErrorCode::ValidationError, message));
    let EffectState::Indeterminate { attempt, .. } = &record.state else {
        return refuse(format!(
            "the record is {}: only an indeterminate one can be sent again",
            record.state.name()
        ));
    };
    // A fenced node may resume and send until the deadline; after it, the node refuses to. Where nothing is shared the node is gone:
    // otherwise this process could not have opened the store.
    let store = ledger.store();
    let may_live = store.is_shared() && attempt.adopted_by.is_some();
    if may_live && store.now() < attempt.deadline_at {
        return refuse(format!(
            "the node that sent it may not have stopped: wait until {}, when it expires",
            attempt.deadline_at
        ));
    }
    Ok(())
}

fn may_see(outcomes: &Outcomes, caller: &VerifiedCaller, record: &EffectRecord) -> bool {
    let owns = caller.chain().key_scope(&record.scope.capability) == record.scope;
    owns || record.scope.tenant == *caller.tenant()
        && reviewer::is_operator(&outcomes.approvals, caller)
}

/// A record, for its owner or an operator.
async fn find(
    outcomes: &Outcomes,
    caller: &VerifiedCaller,
    record_id: RecordId,
) -> Result<EffectRecord, Refusal> {
    let unknown = || Refusal::new(ErrorCode::NotFound, "there is no such record");
    let record = outcomes
        .ledger
        .store()
        .effect(record_id)
        .await
        .map_err(|error| ledger_refusal(&error.into()))?
        .ok_or_else(unknown)?;
    if may_see(outcomes, caller, &record) { Ok(record) } else { Err(unknown()) }
}

/// Refuses evidence that is empty or too long.
fn check_evidence(evidence: &str) -> Result<(), Refusal> {
    if evidence.trim().is_empty() || evidence.len() > EVIDENCE_BYTES_MAX {
        let problem = format!("must be 1 to {EVIDENCE_BYTES_MAX} bytes of text");
        return Err(Refusal::new(ErrorCode::ValidationError, "this needs evidence")
            .with_problem("/evidence", problem));
    }
    Ok(())
}

/// A record with its result.
async fn view_of(outcomes: &Outcomes, record: &EffectRecord) -> RecordView {
    let mut view = brief(record);
    view.args = args_of(outcomes, record).await;
    if let Some(digest) = record.state.result() {
        match outcomes.ledger.result(record, digest).await {
            Ok(result) => view.result = Some(result),
            Err(error) => view.reason = Some(format!("the result cannot be read: {error}")),
        }
    }
    view
}

/// The arguments, masked as the tool's schema says. `None` where no schema says what is sensitive.
async fn args_of(outcomes: &Outcomes, record: &EffectRecord) -> Option<Value> {
    let parked = outcomes.ledger.parked(record).await.ok()?;
    let scope = &record.scope;
    let target = outcomes.current.active().catalog.resolve(&scope.tenant, &scope.capability)?;
    shown_args(&target.capability, &parked.envelope.args)
}

fn brief(record: &EffectRecord) -> RecordView {
    let earlier = record.unknown.as_ref().map(|unknown| &unknown.attempt);
    let sent = record.state.attempt().or(earlier);
    let mut view = RecordView {
        record_id: record.record_id,
        call_id: record.call_id.clone(),
        capability_id: record.scope.capability.clone(),
        agent: record.scope.agent.to_string(),
        on_behalf_of: record.scope.on_behalf_of.as_ref().map(ToString::to_string),
        state: record.state.name().to_owned(),
        attempts: record.attempts,
        arm: record.arm,
        code: record.state.code(),
        rearm: None,
        resolved_by: None,
        settled_at: None,
        sent_at: sent.map(|attempt| attempt.first_dispatched_at),
        dispatch_token: record.state.attempt().map(|attempt| attempt.token.clone()),
        reason: record.unknown.as_ref().map(|unknown| unknown.reason.clone()),
        created_at: record.created_at,
        updated_at: record.updated_at,
        args: None,
        result: None,
    };
    match &record.state {
        EffectState::Indeterminate { reason, rearm, .. } => {
            view.reason = Some(reason.clone());
            view.rearm = rearm.as_deref().map(|word| RearmView {
                by: word.operator.to_string(),
                evidence: word.evidence.clone(),
                at: word.at,
            });
        }
        EffectState::Succeeded { resolved_by, .. }
        | EffectState::FailedFinal { resolved_by, .. } => {
            view.resolved_by = resolved_by.as_ref().map(ToString::to_string);
            view.reason = None;
        }
        EffectState::Tombstone { was, settled_at, .. } => {
            view.reason = Some(format!("it was {was}; its result is no longer kept"));
            view.settled_at = Some(*settled_at);
        }
        EffectState::Claimed { .. }
        | EffectState::PendingApproval { .. }
        | EffectState::Approved { .. }
        | EffectState::Dispatched(_)
        | EffectState::Rearmed { .. }
        | EffectState::FailedRetriable { .. }
        | EffectState::Denied { .. } => {}
    }
    view
}
