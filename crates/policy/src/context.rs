//! The Cedar context of a request: `req`, written by the engine alone, and `input`, from the validated arguments alone.
//!
//! Owns how facts become typed Cedar values. Invariant: nothing an agent sends reaches `req` but the mode it asked for
//! the taint it declares, which the run keeps, and which of its own earlier results it refers to; what its tokens say comes from the verifier.

use cedar_policy::{
    Context, ContextCreationError, ExpressionConstructionError, RestrictedExpression,
};
use placet_types::{
    contract::credential::CredentialPlan, digest::Digest, evidence::EvidenceItem,
    mode::ApprovalMode, proof::Proof,
};

use crate::{
    decision::Link,
    facts::{BreakGlassFacts, BudgetView, Facts},
    vocabulary::{self, Vocabulary, count, datetime, flag, long, text},
};

/// What varies between the evaluations of one call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Circumstance {
    pub(crate) mode_effective: ApprovalMode,
    pub(crate) mode_target: Option<ApprovalMode>,
    pub(crate) budget: BudgetView,
    pub(crate) approved: bool,
    pub(crate) request_digest: Digest,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ContextError {
    #[error("a record has a field twice")]
    Record(#[from] ExpressionConstructionError),
    #[error("the context cannot be made")]
    Context(#[from] ContextCreationError),
}

pub(crate) fn of(
    names: &Vocabulary,
    facts: &Facts<'_>,
    circumstance: &Circumstance,
    input: Option<&RestrictedExpression>,
) -> Result<Context, ContextError> {
    let mut pairs = vec![("req".to_owned(), req(names, facts, circumstance)?)];
    if let Some(input) = input {
        pairs.push(("input".to_owned(), input.clone()));
    }
    if let Some(target) = circumstance.mode_target {
        pairs.push(("mode_target".to_owned(), names.mode(target)));
    }
    Ok(Context::from_pairs(pairs)?)
}

fn req(
    names: &Vocabulary,
    facts: &Facts<'_>,
    circumstance: &Circumstance,
) -> Result<RestrictedExpression, ExpressionConstructionError> {
    let engine_mode = vocabulary::uid(&names.engine_mode, facts.engine_mode.as_str());
    let mut fields = vec![
        ("now", datetime(facts.now)),
        ("tenant", RestrictedExpression::new_entity_uid(names.tenant_uid(facts.chain.tenant()))),
        ("attested", flag(facts.proof.attested)),
        ("auth_type", RestrictedExpression::new_entity_uid(names.auth_type(&facts.proof.actor))),
        ("claims", RestrictedExpression::new_entity_uid(names.claims_uid(Link::Actor))),
        ("delegation_depth", long(facts.chain.delegation_depth())),
        ("mode_requested", names.mode(facts.mode_requested)),
        ("mode_effective", names.mode(circumstance.mode_effective)),
        ("mode_highest", names.mode(facts.capability.mode_highest)),
        ("safety_mode", names.mode(facts.safety_mode)),
        ("engine_mode", RestrictedExpression::new_entity_uid(engine_mode)),
        ("budget", budget(circumstance.budget)?),
        ("frozen", flag(facts.frozen)),
        ("evidence", evidence(names, facts, circumstance.request_digest)?),
    ];
    if let Some(user) = &facts.chain.on_behalf_of {
        fields.push((
            "on_behalf_of",
            RestrictedExpression::new_entity_uid(names.principal_uid(user)),
        ));
    }
    if let Some(id) = facts.proof.actor.spiffe_id() {
        fields.push(("spiffe_id", text(id)));
    }
    if let Some(proof) = &facts.proof.user {
        fields.push(("delegation", delegation(names, proof)?));
    }
    if let Some(plan) = credential(names, &facts.binding.credential)? {
        fields.push(("credential", plan));
    }
    if let Some(record) = in_force(facts) {
        fields.push(("break_glass", break_glass(names, facts, record)?));
    }
    if circumstance.approved {
        fields.push(("approval", RestrictedExpression::new_entity_uid(names.approval_uid())));
    }
    RestrictedExpression::new_record(
        fields.into_iter().map(|(name, value)| (name.to_owned(), value)),
    )
}

fn delegation(
    names: &Vocabulary,
    proof: &Proof,
) -> Result<RestrictedExpression, ExpressionConstructionError> {
    let scopes = proof.scopes.iter().map(|scope| text(scope.clone()));
    RestrictedExpression::new_record([
        ("auth_type".to_owned(), RestrictedExpression::new_entity_uid(names.auth_type(proof))),
        ("subject".to_owned(), text(proof.subject.clone())),
        ("scopes".to_owned(), RestrictedExpression::new_set(scopes)),
        ("claims".to_owned(), RestrictedExpression::new_entity_uid(names.claims_uid(Link::User))),
    ])
}

fn evidence(
    names: &Vocabulary,
    facts: &Facts<'_>,
    request_digest: Digest,
) -> Result<RestrictedExpression, ExpressionConstructionError> {
    let refs = facts.evidence.iter().map(|item| reference(names, item));
    let refs = refs.collect::<Result<Vec<_>, _>>()?;
    let tools = facts.evidence.iter().map(|item| names.tool_uid(&item.capability_id));
    let taint = facts.taint.iter().map(|one| vocabulary::uid(&names.taint, one.as_str()));
    RestrictedExpression::new_record([
        ("request_digest".to_owned(), text(request_digest.to_string())),
        ("taint".to_owned(), vocabulary::uids(taint)),
        ("refs".to_owned(), RestrictedExpression::new_set(refs)),
        ("tools".to_owned(), vocabulary::uids(tools)),
    ])
}

fn reference(
    names: &Vocabulary,
    item: &EvidenceItem,
) -> Result<RestrictedExpression, ExpressionConstructionError> {
    let kind = vocabulary::uid(&names.evidence_kind, item.kind.as_str());
    RestrictedExpression::new_record([
        ("kind".to_owned(), RestrictedExpression::new_entity_uid(kind)),
        ("digest".to_owned(), text(item.digest.to_string())),
    ])
}

/// The credential as it is planned; nothing where a call is made without one.
fn credential(
    names: &Vocabulary,
    plan: &CredentialPlan,
) -> Result<Option<RestrictedExpression>, ExpressionConstructionError> {
    let Some(source) = &plan.source else { return Ok(None) };
    let kind = vocabulary::uid(&names.credential_kind, plan.kind.as_str());
    let scopes = plan.scopes.iter().map(|scope| text(scope.clone()));
    let mut fields = vec![
        ("kind", RestrictedExpression::new_entity_uid(kind)),
        ("source", text(source.clone())),
        ("scopes", RestrictedExpression::new_set(scopes)),
        ("impersonates", flag(plan.impersonates())),
    ];
    fields.extend(plan.audience.iter().map(|audience| ("audience", text(audience.clone()))));
    fields.extend(plan.resource.iter().map(|resource| ("resource", text(resource.clone()))));
    let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value));
    RestrictedExpression::new_record(fields).map(Some)
}

fn budget(view: BudgetView) -> Result<RestrictedExpression, ExpressionConstructionError> {
    RestrictedExpression::new_record([
        ("calls_left".to_owned(), long(view.calls_left)),
        ("cents_left".to_owned(), count(view.cents_left)),
        ("window_ends".to_owned(), datetime(view.window_ends)),
    ])
}

/// The break-glass record that policy is told of: never one that has expired.
pub(crate) fn in_force<'a>(facts: &Facts<'a>) -> Option<&'a BreakGlassFacts> {
    facts.break_glass.filter(|record| facts.now < record.until)
}

fn break_glass(
    names: &Vocabulary,
    facts: &Facts<'_>,
    record: &BreakGlassFacts,
) -> Result<RestrictedExpression, ExpressionConstructionError> {
    let actor = names.user_uid(facts.chain.tenant(), &record.actor);
    RestrictedExpression::new_record([
        ("ticket".to_owned(), text(record.ticket.clone())),
        ("actor".to_owned(), RestrictedExpression::new_entity_uid(actor)),
        ("until".to_owned(), datetime(record.until)),
    ])
}
