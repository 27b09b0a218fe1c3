//! The Cedar context of a request: `req`, written by the engine alone, and `input`, from the validated arguments alone.
//!
//! Owns how facts become typed Cedar values. Invariant: nothing an agent sends reaches `req` except the mode it asked for, the
//! taint it declares, which the run keeps, and which of its own earlier results it refers to; claims come from the verifier.

use std::sync::Arc;

use cedar_policy::Context;
use cedar_policy_core::{
    ast::{self, Value},
    evaluator::EvaluationError,
};
use placet_types::{
    contract::credential::CredentialPlan, digest::Digest, evidence::EvidenceItem,
    mode::ApprovalMode, proof::Proof,
};

use crate::{
    decision::Link,
    facts::{BreakGlassFacts, BudgetView, Facts},
    value::{count, datetime, flag, long, record, set, text, uid},
    vocabulary::{self, Vocabulary},
};

/// What varies between the evaluations of one call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Circumstance {
    /// The mode that the caller asked for; if it named none, the mode in question.
    pub(crate) mode_requested: ApprovalMode,
    pub(crate) mode_effective: ApprovalMode,
    pub(crate) mode_target: Option<ApprovalMode>,
    pub(crate) budget: BudgetView,
    pub(crate) approved: bool,
    pub(crate) request_digest: Digest,
}

pub(crate) fn of(
    names: &Vocabulary,
    facts: &Facts<'_>,
    circumstance: &Circumstance,
    history: &Value,
    input: Option<&Value>,
) -> Result<Context, EvaluationError> {
    let mut fields = vec![("req", req(names, facts, circumstance, history)?)];
    fields.extend(input.map(|input| ("input", input.clone())));
    fields.extend(circumstance.mode_target.map(|target| ("mode_target", uid(names.mode(target)))));
    let fields = fields.into_iter().map(|(name, value)| (name.into(), value));
    Ok(ast::Context::Value(Arc::new(fields.collect())).into())
}

fn req(
    names: &Vocabulary,
    facts: &Facts<'_>,
    circumstance: &Circumstance,
    history: &Value,
) -> Result<Value, EvaluationError> {
    let engine_mode = vocabulary::uid(&names.engine_mode, facts.engine_mode.as_str());
    let mut fields = vec![
        ("now", datetime(facts.now)?),
        ("tenant", uid(names.tenant_uid(facts.chain.tenant()))),
        ("attested", flag(facts.proof.attested)),
        ("auth_type", uid(names.auth_type(&facts.proof.actor))),
        ("claims", uid(names.claims_uid(Link::Actor))),
        ("delegation_depth", long(facts.chain.delegation_depth())),
        ("mode_requested", uid(names.mode(circumstance.mode_requested))),
        ("mode_effective", uid(names.mode(circumstance.mode_effective))),
        ("mode_highest", uid(names.mode(facts.capability.mode_highest))),
        ("safety_mode", uid(names.mode(facts.safety_mode))),
        ("engine_mode", uid(engine_mode)),
        ("budget", budget(circumstance.budget)?),
        ("frozen", flag(facts.frozen)),
        ("evidence", evidence(names, facts, circumstance.request_digest)),
        ("history", history.clone()),
    ];
    if let Some(user) = &facts.chain.on_behalf_of {
        fields.push(("on_behalf_of", uid(names.principal_uid(user))));
    }
    if let Some(id) = facts.proof.actor.spiffe_id() {
        fields.push(("spiffe_id", text(id)));
    }
    if let Some(proof) = &facts.proof.user {
        fields.push(("delegation", delegation(names, proof)));
    }
    if let Some(plan) = credential(names, &facts.binding.credential) {
        fields.push(("credential", plan));
    }
    if let Some(broken) = in_force(facts) {
        fields.push(("break_glass", break_glass(names, facts, broken)?));
    }
    if circumstance.approved {
        fields.push(("approval", uid(names.approval_uid())));
    }
    Ok(record(fields))
}

fn delegation(names: &Vocabulary, proof: &Proof) -> Value {
    record([
        ("auth_type", uid(names.auth_type(proof))),
        ("subject", text(&proof.subject)),
        ("scopes", set(proof.scopes.iter().map(|scope| text(scope)))),
        ("claims", uid(names.claims_uid(Link::User))),
    ])
}

fn evidence(names: &Vocabulary, facts: &Facts<'_>, request_digest: Digest) -> Value {
    let refs = facts.evidence.iter().map(|item| reference(names, item));
    let tools = facts.evidence.iter().map(|item| uid(names.tool_uid(&item.capability_id)));
    let taint = facts.taint.iter().map(|one| uid(vocabulary::uid(&names.taint, one.as_str())));
    record([
        ("request_digest", text(&request_digest.to_string())),
        ("taint", set(taint)),
        ("refs", set(refs)),
        ("tools", set(tools)),
    ])
}

fn reference(names: &Vocabulary, item: &EvidenceItem) -> Value {
    let kind = vocabulary::uid(&names.evidence_kind, item.kind.as_str());
    record([("kind", uid(kind)), ("digest", text(&item.digest.to_string()))])
}

/// The planned credential; `None` where a call is made without one.
fn credential(names: &Vocabulary, plan: &CredentialPlan) -> Option<Value> {
    let source = plan.source.as_ref()?;
    let kind = vocabulary::uid(&names.credential_kind, plan.kind.as_str());
    let mut fields = vec![
        ("kind", uid(kind)),
        ("source", text(source)),
        ("scopes", set(plan.scopes.iter().map(|scope| text(scope)))),
        ("impersonates", flag(plan.impersonates())),
    ];
    fields.extend(plan.audience.iter().map(|audience| ("audience", text(audience))));
    fields.extend(plan.resource.iter().map(|resource| ("resource", text(resource))));
    Some(record(fields))
}

fn budget(view: BudgetView) -> Result<Value, EvaluationError> {
    Ok(record([
        ("calls_left", long(view.calls_left)),
        ("cents_left", count(view.cents_left)),
        ("window_ends", datetime(view.window_ends)?),
    ]))
}

/// The break-glass record that policy sees: never one that has expired.
pub(crate) fn in_force<'a>(facts: &Facts<'a>) -> Option<&'a BreakGlassFacts> {
    facts.break_glass.filter(|record| facts.now < record.until)
}

fn break_glass(
    names: &Vocabulary,
    facts: &Facts<'_>,
    broken: &BreakGlassFacts,
) -> Result<Value, EvaluationError> {
    let actor = names.user_uid(facts.chain.tenant(), &broken.actor);
    Ok(record([
        ("ticket", text(&broken.ticket)),
        ("actor", uid(actor)),
        ("until", datetime(broken.until)?),
    ]))
}
