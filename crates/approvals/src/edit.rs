//! Edited arguments for a held call.
//!
//! Owns the way from what an approver typed to a request that people decide on again. Invariants: the edited arguments fit the schema and
//! the policies still hold the call with them; an editor whose arguments are not narrower does not count as an approver; what the editor
//! was shown masked and left alone keeps its value; the call remains the one that its agent made, so that the agent's retry finds it.

use std::sync::Arc;

use serde_json::{Map, Value};

use placet_identity::VerifiedCaller;
use placet_ledger::{
    approval::{ApprovalRecord, VoteError},
    audit::AuditKind,
    ledger::Replacement,
    parked::{ParkedCall, ParkedEdit},
    record::EffectRecord,
};
use placet_policy::review::ReviewAction;
use placet_types::{
    approval::{Requirement, Vote, VoteChoice},
    argument_schema::ArgumentSchema,
    envelope::proposal::{EditedFrom, ToolProposalEnvelope},
    error::{ErrorCode, Refusal},
    ids::ApprovalId,
    narrowing::Change,
};

use crate::{
    LIFETIME_MS_MAX, audit,
    calls::{HeldCall, Redecided, Redecision, Undecided},
    decision, listing,
    masking::MASK,
    outcome, presentation,
    refusals::{crowded, not_counted, read, refused},
    reviewer::Capacity,
    service::Approvals,
    views::{ApprovalView, EditRequest},
};

impl Approvals {
    /// Replaces the arguments of a held call. An editor who narrows them thereby agrees; one who widens or changes them cannot decide on
    /// them. Everyone else decides again.
    ///
    /// # Errors
    /// [`Refusal`] when the person may not edit, was shown something else, the arguments do not fit the tool, or policy denies the call
    /// with them.
    pub async fn edit(
        self: &Arc<Self>,
        caller: &VerifiedCaller,
        approval_id: &ApprovalId,
        request: EditRequest,
    ) -> Result<ApprovalView, Refusal> {
        decision::may_decide_at_all(self, caller, &request.reason, "/reason").await?;
        for _ in 0..decision::TRIES {
            let approval = listing::visible(self, caller, approval_id).await?;
            let capacity = decision::review(self, caller, &approval, ReviewAction::Edit).await?;
            if request.digest != approval.shown() {
                return Err(not_counted(&VoteError::Stale));
            }
            let held = Held::read(self, &approval).await?;
            let changed = match held.changed(self, &approval, &request.args).await {
                Ok(Some(changed)) => changed,
                Ok(None) => return Err(unchanged(self, caller, &approval).await),
                // Another edit came between reading the approval and reading its call.
                Err(refusal)
                    if refusal.code == ErrorCode::ApprovalVoid
                        && self.has_moved(&approval).await? =>
                {
                    continue;
                }
                Err(refusal) => return Err(refusal),
            };
            let next = changed.write(self, caller, &capacity, &approval, &request.reason).await?;
            // `None`: it moved between reading and writing; read it again.
            if let Some(next) = next {
                self.decided(&next).await;
                return Ok(presentation::view_of(&next, outcome::of(&next, None)));
            }
        }
        Err(crowded())
    }
}

/// A held call as it would run now.
struct Held {
    record: EffectRecord,
    parked: ParkedCall,
    proposal: ToolProposalEnvelope,
}

/// The call with edited arguments, decided by the active policies.
struct Changed {
    args: Map<String, Value>,
    decided: Redecided,
    change: Change,
    held: Held,
}

impl Held {
    async fn read(service: &Approvals, approval: &ApprovalRecord) -> Result<Self, Refusal> {
        let record = service.read_record(approval).await?;
        let waits =
            |record: &EffectRecord| record.state.approval_id() == Some(&approval.approval_id);
        let record = record.filter(waits).ok_or_else(crowded)?;
        let parked = read(service.ledger.parked(&record).await)?;
        let proposal = read(service.ledger.proposal(approval).await)?;
        Ok(Self { record, parked, proposal })
    }

    /// The call with these arguments: unmasked, validated, decided. `None`: they are the current ones.
    async fn changed(
        self,
        service: &Approvals,
        approval: &ApprovalRecord,
        args: &Map<String, Value>,
    ) -> Result<Option<Changed>, Refusal> {
        let policies = service.policies();
        let target = policies.catalog.resolve(approval.chain.tenant(), &approval.capability);
        let contract = self.parked.binding.contract_digest;
        let target = target.filter(|target| target.contract.digest == contract);
        let target = target.ok_or_else(|| changed("the contract is not the approved one"))?;
        let before = &self.parked.envelope.args;
        let schema = target.capability.arguments.as_ref().map_err(not_offered)?;
        let args = target.validate(&unmasked(schema, args, before)?)?;
        let whole = |args: &Map<String, Value>| Value::Object(args.clone());
        let change = Change::of(schema, &whole(before), &whole(&args));
        let calls = service.calls().ok_or_else(crowded)?;
        let held =
            HeldCall { approval, record: &self.record, parked: &self.parked, args: Some(&args) };
        let decided = match calls.decide(&held).await {
            Ok(decided) => decided,
            Err(Undecided::Void(reason)) => return Err(changed(reason)),
            Err(Undecided::Refused(refusal)) => return Err(refusal),
        };
        if decided.binding.digest() == approval.request_digest {
            return Ok(None);
        }
        Ok(Some(Changed { args, decided, change, held: self }))
    }
}

/// An edit that changes nothing. It is audited: an editor who guesses masked values learns by this answer that they are right.
async fn unchanged(
    service: &Approvals,
    caller: &VerifiedCaller,
    approval: &ApprovalRecord,
) -> Refusal {
    let refusal = not_counted(&VoteError::Unchanged);
    let mut event = audit::of_decision(AuditKind::Security, caller, approval);
    event.code = Some(refusal.code);
    event.note = Some("an edit named the arguments as they are".to_owned());
    service.note(event).await;
    refusal
}

fn changed(why: impl std::fmt::Display) -> Refusal {
    let message = "what was asked for is no longer what would run";
    Refusal::new(ErrorCode::ApprovalVoid, message).with_detail(why)
}

fn not_offered(why: impl std::fmt::Display) -> Refusal {
    Refusal::new(ErrorCode::ApprovalVoid, "the tool is not offered any more").with_detail(why)
}

/// The arguments with the values put back that the editor was shown masked and left unchanged. In a list that is only done if everything
/// that was shown of it is still there: its entries could not be told apart, and one would get the value of another.
fn unmasked(
    schema: &ArgumentSchema,
    given: &Map<String, Value>,
    real: &Map<String, Value>,
) -> Result<Map<String, Value>, Refusal> {
    let real = Value::Object(real.clone());
    let mut given = Value::Object(given.clone());
    let (shown, edited) = (masked(schema, &real), masked(schema, &given));
    for place in schema.sensitive_pointers(&real) {
        if let Some(value) = given.pointer_mut(&place)
            && value.as_str() == Some(MASK)
            && let Some(kept) = real.pointer(&place)
        {
            if let Some(list) = list_around(&real, &place)
                && shown.pointer(&list) != edited.pointer(&list)
            {
                let problem = "its entries could not be told apart: write out the masked values that are to stay, or leave the list as it is and deny the call";
                let what = "a list with masked values cannot be changed around them";
                return Err(refused(what, &format!("/args{list}"), problem));
            }
            value.clone_from(kept);
        }
    }
    let left = schema.sensitive_pointers(&given).into_iter().find(|place| {
        let is_mask = given.pointer(place).is_some_and(|value| value.as_str() == Some(MASK));
        is_mask && real.pointer(place).is_none_or(|kept| kept.as_str() != Some(MASK))
    });
    if let Some(place) = left {
        let problem = "is shown masked and has no earlier value that it could keep";
        return Err(refused("a masked value is not a value", &format!("/args{place}"), problem));
    }
    let Value::Object(fields) = given else {
        return Err(Refusal::new(ErrorCode::ValidationError, "the arguments must be an object"));
    };
    Ok(fields)
}

/// The arguments as they are shown.
fn masked(schema: &ArgumentSchema, args: &Value) -> Value {
    let mut shown = args.clone();
    for place in schema.sensitive_pointers(args) {
        if let Some(value) = shown.pointer_mut(&place) {
            *value = Value::from(MASK);
        }
    }
    shown
}

/// The outermost list that a place is in.
fn list_around(args: &Value, place: &str) -> Option<String> {
    let (mut pointer, mut at) = (String::new(), args);
    for token in place.split('/').skip(1) {
        if at.is_array() {
            return Some(pointer);
        }
        pointer = format!("{pointer}/{token}");
        at = args.pointer(&pointer)?;
    }
    None
}

impl Changed {
    /// Records the edited arguments if approval is still required for them. `None`: the approval moved meanwhile.
    async fn write(
        self,
        service: &Approvals,
        caller: &VerifiedCaller,
        capacity: &Capacity,
        approval: &ApprovalRecord,
        reason: &str,
    ) -> Result<Option<ApprovalRecord>, Refusal> {
        let Self { args, decided, change, held } = self;
        let requirement = required(approval, &decided)?;
        let now = service.ledger.store().now();
        let (agrees, shown) = (VoteChoice::Approve, approval.proposal);
        let vote = service.vote_of(caller, capacity, agrees, reason, shown);
        let edited = edited_from(approval, &held.proposal, &vote, &change);
        let editors = approval.edits.iter().map(|edit| &edit.by).chain([&vote.approver]);
        let kept = ParkedEdit { by: editors.cloned().collect(), masked: edited.masked.clone() };
        let mut envelope = held.parked.envelope.clone();
        envelope.args = args;
        envelope.policy_decision_id = Some(decided.decision.id.clone());
        // As when it goes back to its approvers: the lifetime that is given now, but never longer than the original one.
        let given_ms = requirement.expires_in_ms.clamp(1_000, LIFETIME_MS_MAX);
        let given_ms = i64::try_from(given_ms).unwrap_or(i64::MAX);
        let mut proposal = ToolProposalEnvelope {
            approval_id: approval.approval_id.clone(),
            evidence: decided.evidence,
            call: envelope,
            requirement,
            expires_at: approval.expires_at.min(now.plus_ms(given_ms)),
            ..held.proposal
        };
        proposal.evidence.similar = held.proposal.evidence.similar;
        proposal.evidence.sent_before = held.proposal.evidence.sent_before;
        proposal.evidence.edited = Some(edited);
        let parked = ParkedCall {
            envelope: proposal.call.clone(),
            binding: decided.binding,
            edited: Some(kept),
            ..held.parked
        };
        let mut event = audit::of_decision(AuditKind::Edited, caller, approval);
        event.decision = serde_json::to_value(&decided.decision).ok();
        let replacement = Replacement { parked: &parked, proposal: &proposal, change: &change };
        service.written(service.ledger.edit_approval(approval, replacement, vote, event).await)
    }
}

/// Who has to agree to the edited arguments: approval must still be required, and a weaker requirement does not waive the original one.
fn required(approval: &ApprovalRecord, decided: &Redecided) -> Result<Requirement, Refusal> {
    if decided.decision.mode_effective > approval.mode {
        return Err(Refusal::new(
            ErrorCode::ModeUpgraded,
            "with these arguments the call is stronger than the one that people are asked about",
        ));
    }
    let requirement = match &decided.verdict {
        Redecision::Held(requirement) => requirement.clone(),
        Redecision::Permitted => approval.requirement.clone(),
        Redecision::Denied(kind, code) => {
            return Err(Refusal::new(
                *code,
                "the policies do not allow the call with these arguments, no matter who agrees",
            )
            .with_detail(kind));
        }
    };
    if requirement.external_tenants() != approval.external_tenants {
        return Err(not_counted(&VoteError::Elsewhere));
    }
    // Shown as it will be counted: no earlier requirement is dropped.
    Ok(approval.requirement.joined(requirement))
}

/// What the next approvers are shown of it: the difference from what the agent asked for, however often it was edited.
fn edited_from(
    approval: &ApprovalRecord,
    shown: &ToolProposalEnvelope,
    vote: &Vote,
    change: &Change,
) -> EditedFrom {
    let (preview, preview_masked, request_digest) = match &shown.evidence.edited {
        Some(first) => (&first.preview, &first.preview_masked, first.request_digest),
        None => {
            let evidence = &shown.evidence;
            (&evidence.preview, &evidence.preview_masked, approval.request_digest)
        }
    };
    let editors = vote.voices().map(|voice| voice.person).filter(|_| !change.narrower);
    let earlier = approval.edits.iter().flat_map(|edit| &edit.masked);
    EditedFrom {
        by: vote.approver.clone(),
        stands_for: vote.stands_for.clone(),
        reason: vote.reason.clone(),
        at: vote.at,
        preview: preview.clone(),
        preview_masked: preview_masked.clone(),
        request_digest,
        authors: approval.authors().chain(editors).cloned().collect(),
        masked: earlier.chain(&change.masked).cloned().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_masked_value_stays_with_its_entry_of_a_list_or_the_edit_is_refused() {
        let secret = r#"{ "type": "string", "x-sensitive": true }"#;
        let schema = format!(
            r#"{{ "type": "object", "properties": {{ "n": {{ "type": "integer" }}, "codes": {{ "type": "array", "items": {secret} }},
                "payees": {{ "type": "array", "items": {{ "type": "object", "properties": {{ "name": {{ "type": "string" }}, "acct": {secret} }} }} }} }} }}"#
        );
        let schema = ArgumentSchema::compile(&serde_json::from_str(&schema).unwrap()).unwrap();
        let of = |text: &str| serde_json::from_str::<Map<String, Value>>(text).unwrap();
        let real = of(
            r#"{"n":1,"codes":["c1","c2"],"payees":[{"name":"A","acct":"1"},{"name":"B","acct":"2"}]}"#,
        );
        let edited = |codes: &str, payees: &str| {
            let given =
                format!(r#"{{"n":2,"codes":{codes},"payees":{payees}}}"#).replace('*', MASK);
            unmasked(&schema, &of(&given), &real)
        };
        let (codes, payees) =
            (r#"["*","*"]"#, r#"[{"name":"A","acct":"*"},{"name":"B","acct":"*"}]"#);
        let kept = edited(codes, payees).unwrap();
        assert_eq!((&kept["codes"], &kept["payees"]), (&real["codes"], &real["payees"]));
        let given = edited(r#"["x","*"]"#, r#"[{"name":"B","acct":"2"}]"#).unwrap();
        assert_eq!(given["codes"], serde_json::json!(["x", "c2"]));
        assert_eq!(given["payees"], serde_json::json!([{ "name": "B", "acct": "2" }]));
        for (codes, payees) in [
            (r#"["*"]"#, payees),
            (r#"["*","*","y"]"#, payees),
            (codes, r#"[{"name":"B","acct":"*"}]"#),
            (codes, r#"[{"name":"B","acct":"*"},{"name":"A","acct":"*"}]"#),
            (codes, r#"[{"name":"A","acct":"*"},{"name":"C","acct":"*"}]"#),
        ] {
            let refused = edited(codes, payees).unwrap_err();
            assert_eq!(refused.code, ErrorCode::ValidationError, "{codes} {payees}");
        }
    }
}
